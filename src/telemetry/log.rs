//! Log lines on stderr, as JSON or as text for people. A dedicated thread writes them, so a blocked stderr never
//! blocks a request.

use super::json_line::JsonLine;
use super::series::Gauge;
use super::text::TextLines;
use crate::config::{LogFormat, LogLevel, Terminal};
use crate::visible::is_hidden;
use parking_lot::{Condvar, Mutex};
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Maximum size of the queue in bytes; further lines are dropped.
const WAITING: usize = 1 << 20;
/// Bytes that one write covers.
const WRITE_BYTES: usize = 32 << 10;
/// Pause between two writes, so that lines accumulate: waking the writer for each line costs more than the line
/// itself.
const PAUSE: Duration = Duration::from_millis(5);
/// Longest line, in bytes, with its line end.
const LONGEST: usize = 8 << 10;
/// End of a JSON line that was cut.
const CUT: &[u8] = b",\"cut\":true}\n";
/// Longest excerpt of a request's body in a line, in bytes as written. The rest of the line fits beside it.
const EXCERPT: usize = 6 << 10;

/// Number of lines dropped because stderr was blocked or could not be written. Static, because there is one logger
/// per process.
pub(super) static DROPPED: Gauge = Gauge::of(0);

/// Returns the start of a request's body, short enough that all other fields of the log line still fit.
pub fn excerpt(body: &[u8]) -> String {
    // Three bytes more, so that a character that begins within the limit is complete; [`fitting`] removes what
    // exceeds it.
    let front = String::from_utf8_lossy(body.get(..EXCERPT + 3).unwrap_or(body));
    fitting(&front, EXCERPT).to_owned()
}

/// Returns the start of a text that takes at most `room` bytes in a JSON line, escapes included.
pub fn fitting(text: &str, mut room: usize) -> &str {
    // No escape takes more than six bytes for one.
    if text.len() <= room / 6 {
        return text;
    }
    let fits = |letter: &char| {
        let written = match letter {
            '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
            '\0'..='\u{1f}' => 6,
            letter if is_hidden(*letter) => 6 * letter.len_utf16(),
            letter => letter.len_utf8(),
        };
        let left = room.checked_sub(written);
        room = left.unwrap_or(0);
        left.is_some()
    };
    let length = text.chars().take_while(fits).map(char::len_utf8).sum();
    text.get(..length).unwrap_or(text)
}

/// Starts logging. The guard, when dropped, writes the lines that are still queued.
///
/// # Errors
/// Fails if logging has been started before, or if the thread cannot be started.
pub fn start(level: LogLevel, format: LogFormat) -> Result<LogGuard, Box<dyn std::error::Error>> {
    let is_terminal = io::stderr().is_terminal();
    let text = match format {
        LogFormat::Auto => is_terminal,
        LogFormat::Json => false,
        LogFormat::Text => true,
    };
    let colour = is_terminal && !Terminal::environment().plain;
    let queue = Arc::new(Queue::default());
    let thread = std::thread::Builder::new().name("log".to_owned());
    let lines = Arc::clone(&queue);
    let writing = thread.spawn(move || lines.write_all(|| io::stderr().lock()))?;
    let sink = LogSink {
        queue: Arc::clone(&queue),
        cut: if text { cut_text } else { cut_json },
    };
    let guard = LogGuard { queue, writing };
    // Own lines only: at low levels, libraries log headers and bodies.
    let filter = Targets::new().with_target("samewire", filter(level));
    let registry = tracing_subscriber::registry().with(filter);
    match text {
        true => {
            let layer = tracing_subscriber::fmt::layer().event_format(TextLines { colour });
            registry.with(layer.with_writer(sink)).try_init()?;
        }
        false => {
            let layer = tracing_subscriber::fmt::layer().event_format(JsonLine);
            registry.with(layer.with_writer(sink)).try_init()?;
        }
    }
    Ok(guard)
}

/// Returns the log line of an event that contains this text in its message and in fields of every kind. Lets tests
/// check the escaping without a process whose log they would have to read.
pub fn line_with(text: &str) -> Vec<u8> {
    line_of(|| tracing::error!(value = text, shown = %text, debugged = ?text, "{text}"))
}

/// Returns the lines that are logged as JSON meanwhile.
pub(super) fn line_of(log: impl FnOnce()) -> Vec<u8> {
    let queue = Arc::new(Queue::default());
    let sink = LogSink {
        queue: Arc::clone(&queue),
        cut: cut_json,
    };
    let layer = tracing_subscriber::fmt::layer()
        .event_format(JsonLine)
        .with_writer(sink);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
    std::mem::take(&mut queue.waiting.lock().text)
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// Queue of lines for the writer thread, bounded in bytes.
#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<QueuedLines>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct QueuedLines {
    /// Complete lines.
    text: Vec<u8>,
    /// Number of bytes at which to wake the sleeping writer; `None` while it is awake.
    wakes: Option<usize>,
    /// True once no more lines will come.
    over: bool,
}

impl Queue {
    /// Appends a line. Drops it if the queue is full, instead of blocking the request.
    fn push(&self, line: &[u8]) {
        let mut waiting = self.waiting.lock();
        if waiting.over || waiting.text.len() + line.len() > WAITING {
            DROPPED.add(1);
            return;
        }
        waiting.text.extend_from_slice(line);
        if waiting
            .wakes
            .is_some_and(|wakes| waiting.text.len() >= wakes)
        {
            waiting.wakes = None;
            drop(waiting);
            self.wake.notify_one();
        }
    }

    fn close(&self) {
        self.waiting.lock().over = true;
        self.wake.notify_one();
    }

    /// Waits until the queue holds `bytes` bytes or `patience` has passed, then takes its content. Returns false
    /// once the queue is closed and empty.
    fn take(&self, bytes: usize, patience: Duration, text: &mut Vec<u8>) -> bool {
        let mut waiting = self.waiting.lock();
        waiting.wakes = Some(bytes);
        let is_early = |waiting: &mut QueuedLines| waiting.text.len() < bytes && !waiting.over;
        self.wake.wait_while_for(&mut waiting, is_early, patience);
        waiting.wakes = None;
        std::mem::swap(&mut waiting.text, text);
        !(waiting.over && text.is_empty())
    }

    /// Writes lines as they arrive, until the queue is closed and empty.
    fn write_all<W: Write>(&self, out: impl Fn() -> W) {
        let mut text = Vec::new();
        loop {
            // Lines that arrive within the pause share one write. Afterwards the thread sleeps until the next
            // line.
            let goes_on = self.take(WRITE_BYTES, PAUSE, &mut text);
            if !goes_on || text.is_empty() && !self.take(1, Duration::MAX, &mut text) {
                return;
            }
            write_lines(&text, &out);
            text.clear();
            text.shrink_to(2 * WRITE_BYTES);
        }
    }
}

/// Writes lines in blocks. Counts the lines of a failed write as dropped and continues, since a full disk may have
/// room again later.
fn write_lines<W: Write>(mut text: &[u8], out: &impl Fn() -> W) {
    while !text.is_empty() {
        let front = text.get(..WRITE_BYTES).unwrap_or(text);
        let end = memchr::memrchr(b'\n', front).map_or(front.len(), |last| last + 1);
        let (lines, rest) = text.split_at(end);
        if out().write_all(lines).is_err() {
            let lost = memchr::memchr_iter(b'\n', lines).count();
            DROPPED.add(lost.try_into().unwrap_or(i64::MAX));
        }
        text = rest;
    }
}

/// Guard of the writer thread. Dropped at the end of the process, when it flushes the queue.
#[derive(Debug)]
pub struct LogGuard {
    queue: Arc<Queue>,
    writing: JoinHandle<()>,
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        self.queue.close();
        // The thread ends once everything is written. Bounded to half a second, so that a blocked stderr does not
        // keep the process.
        for _ in 0..500 {
            if self.writing.is_finished() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Destination of finished lines: the queue, and the way to cut a line that is too long.
#[derive(Clone, Debug)]
struct LogSink {
    queue: Arc<Queue>,
    /// Shortens a line that is too long, in the format of the log.
    cut: fn(&mut Vec<u8>),
}

impl<'a> MakeWriter<'a> for LogSink {
    type Writer = LogLine<'a>;

    fn make_writer(&'a self) -> LogLine<'a> {
        LogLine(self)
    }
}

/// Writer of one line. The layer writes it at once, from a buffer that it keeps.
struct LogLine<'a>(&'a LogSink);

impl Write for LogLine<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let Self(sink) = self;
        match line.get(..LONGEST).filter(|_| line.len() > LONGEST) {
            None => sink.queue.push(line),
            Some(front) => {
                let mut text = front.to_vec();
                (sink.cut)(&mut text);
                sink.queue.push(&text);
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Marks a text line as cut, and resets colours.
fn cut_text(text: &mut Vec<u8>) {
    let is_coloured = memchr::memchr(0x1b, text).is_some();
    let end = if is_coloured { "…\x1b[0m\n" } else { "…\n" };
    text.truncate(LONGEST.saturating_sub(end.len()));
    let whole = String::from_utf8_lossy(text)
        .trim_end_matches(char::REPLACEMENT_CHARACTER)
        .len();
    text.truncate(whole);
    text.extend_from_slice(end.as_bytes());
}

/// Turns the start of a JSON object into a complete one, up to its last complete member.
fn cut_json(text: &mut Vec<u8>) {
    text.truncate(LONGEST.saturating_sub(CUT.len()));
    let (mut quoted, mut escaped, mut depth, mut end) = (false, false, 0_usize, 0);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 1 => end = at,
            _ => {}
        }
    }
    text.truncate(end);
    text.extend_from_slice(CUT);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, MutexGuard};

    type Object = std::collections::BTreeMap<String, Box<serde_json::value::RawValue>>;

    /// Returns the queued form of a line.
    fn written(text: &[u8]) -> Vec<u8> {
        let queue = Arc::new(Queue::default());
        LogSink {
            queue: Arc::clone(&queue),
            cut: cut_json,
        }
        .make_writer()
        .write_all(text)
        .unwrap();
        std::mem::take(&mut queue.waiting.lock().text)
    }

    #[test]
    fn long_lines_are_cut_between_members() {
        let short = br#"{"a":"b","c":[1,2]}"#;
        assert_eq!(written(short), short);
        let long = "x".repeat(LONGEST);
        for (text, expected) in [
            (
                format!(r#"{{"a":1,"b":"{long}","c":2}}"#),
                r#"{"a":1,"cut":true}"#.to_owned(),
            ),
            (
                format!(r#"{{"a":"\",\"","b":[1,"{long}"]}}"#),
                r#"{"a":"\",\"","cut":true}"#.to_owned(),
            ),
            (
                format!(r#"{{"a":{{"b":1,"c":"{long}"}},"d":1}}"#),
                r#","cut":true}"#.to_owned(),
            ),
        ] {
            assert_eq!(
                String::from_utf8(written(text.as_bytes())).unwrap(),
                expected + "\n"
            );
        }
        for more in 0..40 {
            let long = "\\n".repeat(LONGEST / 2 - more);
            let line =
                written(format!("{{\"a\":1,\"b\":\"{long}\",\"c\":\"{long}\"}}\n").as_bytes());
            assert!(line.len() <= LONGEST && line.ends_with(b"\n"), "{more}");
            assert!(
                serde_json::from_slice::<Object>(&line).is_ok_and(|line| line.contains_key("cut")),
                "{more}"
            );
        }
    }

    #[test]
    fn terminals_are_told_nothing() {
        let line = line_of(|| tracing::info!(a = "\u{7f}\u{9b}31m\u{80}\u{9f}\u{a0}é"));
        let line = String::from_utf8(line).unwrap();
        assert!(
            line.ends_with(",\"a\":\"\\u007f\\u009b31m\\u0080\\u009f\u{a0}é\"}\n"),
            "{line}"
        );
        assert!(excerpt("\u{9b}".repeat(EXCERPT).as_bytes()).chars().count() <= EXCERPT / 6);
    }

    #[test]
    fn excerpts_leave_room_for_the_rest() {
        assert_eq!(excerpt(b"{\"a\":\"\n\"}"), "{\"a\":\"\n\"}");
        assert_eq!(excerpt(b"a\xff"), "a\u{fffd}");
        for text in ["a", "\"", "\u{1}", "\u{1f600}", "é\t"] {
            let cut = excerpt(text.repeat(EXCERPT).as_bytes());
            let written = serde_json::to_string(&cut).unwrap();
            assert!(
                (EXCERPT - 8..=EXCERPT + 2).contains(&written.len()),
                "{text:?}: {}",
                written.len()
            );
        }
        assert!(excerpt(&[0xff; 2 * EXCERPT]).len() <= EXCERPT);
    }

    #[test]
    fn fault_o21_a_full_disk_loses_lines_and_nothing_else() {
        struct Full<'a>(&'a Mutex<Vec<u8>>);
        impl Write for Full<'_> {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let mut kept = self.0.lock().unwrap();
                if bytes.starts_with(b"lost") {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                kept.extend_from_slice(bytes);
                Ok(bytes.len())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let queue = Queue::default();
        let kept = Mutex::new(Vec::new());
        let before = DROPPED.value();
        std::thread::scope(|scope| {
            scope.spawn(|| queue.write_all(|| Full(&kept)));
            for line in [&b"lost\n"[..], b"kept\n"] {
                queue.push(line);
                // Each line is written separately.
                while DROPPED.value() == before {
                    std::thread::yield_now();
                }
            }
            queue.close();
        });
        assert_eq!(kept.into_inner().unwrap(), b"kept\n");
    }

    #[test]
    fn lines_of_many_threads_stay_whole_and_in_order() {
        const LINES: usize = 2000;
        let (queue, kept) = (Queue::default(), Mutex::new(Vec::new()));
        struct Kept<'a>(MutexGuard<'a, Vec<u8>>);
        impl Write for Kept<'_> {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                assert!(bytes.len() <= WRITE_BYTES && bytes.ends_with(b"\n"));
                self.0.extend_from_slice(bytes);
                Ok(bytes.len())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| queue.write_all(|| Kept(kept.lock().unwrap())));
            let say = |who: &str| {
                (0..LINES).for_each(|line| queue.push(format!("{who} {line}\n").as_bytes()))
            };
            let saying: Vec<_> = ["a", "b", "c"]
                .map(|who| scope.spawn(move || say(who)))
                .into();
            saying.into_iter().for_each(|one| one.join().unwrap());
            queue.close();
            writing.join().unwrap();
        });
        let kept = String::from_utf8(kept.into_inner().unwrap()).unwrap();
        for who in ["a ", "b ", "c "] {
            let lines = kept.lines().filter_map(|line| line.strip_prefix(who));
            assert!(lines.eq((0..LINES).map(|line| line.to_string())), "{who}");
        }
    }
}
