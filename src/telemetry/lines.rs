//! Log lines: JSON on stderr, written by a thread of their own so that a reader who has stopped reading stops nobody.

use crate::config::Level;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Lines that may wait for a slow reader; later ones are dropped.
const WAITING: usize = 1024;
/// Bytes that are written at once.
const TOGETHER: usize = 32 << 10;
/// Bytes of one line.
const LONGEST: usize = 8 << 10;

/// Starts logging. The guard, when dropped, writes what still waits.
///
/// # Errors
/// Logging has been started before.
pub fn start(level: Level) -> Result<Guard, Box<dyn std::error::Error>> {
    let (sender, lines) = sync_channel(WAITING);
    let done = Arc::new(Mutex::new(()));
    let writing = Arc::clone(&done);
    std::thread::Builder::new().name("log".to_owned()).spawn(move || {
        let _writing = writing.lock();
        write_all(&lines);
    })?;
    let sink = Sink(Arc::new(Mutex::new(Some(sender))));
    let guard = Guard { sink: sink.clone(), done };
    // Only our own lines: what libraries say at low levels is made of headers and bodies.
    let filter = Targets::new().with_target("samewire", filter(level));
    let json = tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false);
    tracing_subscriber::registry().with(filter).with(json.with_target(false).with_writer(sink)).try_init()?;
    Ok(guard)
}

fn filter(level: Level) -> LevelFilter {
    match level {
        Level::Off => LevelFilter::OFF,
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    }
}

fn write_all(lines: &Receiver<Vec<u8>>) {
    // The end of the channel and the end of stderr are the same to this thread: nothing is left to do.
    while let Ok(mut text) = lines.recv() {
        // What has come meanwhile goes along in one write.
        while text.len() < TOGETHER
            && let Ok(next) = lines.try_recv()
        {
            text.extend_from_slice(&next);
        }
        if io::stderr().lock().write_all(&text).is_err() {
            return;
        }
    }
}

/// Keeps the lines' thread; dropped at the end of the process.
#[derive(Debug)]
pub struct Guard {
    sink: Sink,
    done: Arc<Mutex<()>>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.sink.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The thread holds the lock until it has written everything. A reader who has stopped must not keep the process.
        for _ in 0..50 {
            if self.done.try_lock().is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Where a line goes once it is whole.
#[derive(Clone, Debug)]
struct Sink(Arc<Mutex<Option<SyncSender<Vec<u8>>>>>);

impl<'a> MakeWriter<'a> for Sink {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { sink: self, text: Vec::new() }
    }
}

/// One line in the making.
struct Line<'a> {
    sink: &'a Sink,
    text: Vec<u8>,
}

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = LONGEST.saturating_sub(self.text.len());
        self.text.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        let sender = self.sink.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = &*sender {
            // A full queue drops the line rather than holding up a request.
            let _ = sender.try_send(std::mem::take(&mut self.text));
        }
    }
}
