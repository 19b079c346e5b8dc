//! Log lines for people: `06:12:17.123Z INFO  POST /v1/chat/completions 200 complete 812 ms  model=qwen3
//! upstream=gpu-0 …`.
//!
//! Takes: an event. Gives: one line, coloured if the terminal shows colours. Never: a control character from a
//! field's value, so a client's text can neither forge lines nor control the terminal.

use crate::visible::visible;
use std::fmt::{self, Debug};
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Message of the line that is logged for each request.
const REQUEST: &str = "request";
/// Fields that start the line of a request, in this order.
const FIRST: [&str; 5] = ["method", "path", "status", "end", "total_ms"];

const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

/// Formatter of log lines for people, with or without colours.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextLines {
    pub(super) colour: bool,
}

/// Fields of an event, with their values escaped for a single line.
#[derive(Default)]
struct EventFields {
    message: String,
    named: Vec<(&'static str, String)>,
}

impl EventFields {
    fn add(&mut self, field: &Field, value: String) {
        match field.name() {
            "message" => self.message = value,
            name => self.named.push((name, value)),
        }
    }

    /// Removes a field and returns its value, so that the line does not repeat it.
    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.named.iter().position(|(known, _)| *known == name)?;
        Some(self.named.remove(at).1)
    }

    /// Returns the start of the line: the message, or, for a request, the values of [`FIRST`].
    fn head(&mut self) -> String {
        if self.message != REQUEST {
            return std::mem::take(&mut self.message);
        }
        let [method, path, status, end, total] =
            FIRST.map(|name| self.take(name).unwrap_or_default());
        format!("{method} {path} {status} {end} {total} ms")
    }
}

impl Visit for EventFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        let is_message = field.name() == "message";
        self.add(
            field,
            if is_message {
                visible(value)
            } else {
                quoted(value)
            },
        );
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.to_string());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        self.record_str(field, &text);
    }
}

/// Escapes characters that are not seen, and adds quotes if the value is not a single word.
fn quoted(text: &str) -> String {
    let is_word = !text.is_empty() && !text.contains([' ', '"', '=', '\\']);
    let plain = visible(text);
    if is_word {
        plain
    } else {
        format!("\"{}\"", plain.replace('"', "\\\""))
    }
}

/// Time of day in UTC, with milliseconds.
struct TimeOfDay(SystemTime);

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.0.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = since.as_secs() % 86_400;
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        write!(
            f,
            "{hours:02}:{minutes:02}:{:02}.{:03}Z",
            seconds % 60,
            since.subsec_millis()
        )
    }
}

fn colour(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\x1b[1;31m",
        Level::WARN => "\x1b[1;33m",
        Level::INFO => "\x1b[32m",
        Level::DEBUG => "\x1b[34m",
        Level::TRACE => "\x1b[35m",
    }
}

impl<S, N> FormatEvent<S, N> for TextLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = EventFields::default();
        event.record(&mut fields);
        let level = *event.metadata().level();
        let paint = |code: &'static str| if self.colour { code } else { "" };
        let (dim, reset) = (paint(DIM), paint(RESET));
        write!(
            out,
            "{dim}{}{reset} {}{level:<5}{reset} {}",
            TimeOfDay(SystemTime::now()),
            paint(colour(level)),
            fields.head()
        )?;
        for (at, (name, value)) in fields.named.iter().enumerate() {
            let space = if at == 0 { "  " } else { " " };
            write!(out, "{space}{dim}{name}={reset}{value}")?;
        }
        out.write_char('\n')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_words_or_in_quotes() {
        for (text, expected) in [
            ("gpu-0", "gpu-0"),
            ("", "\"\""),
            ("two words", "\"two words\""),
            ("a\"b", "\"a\\\"b\""),
            ("\u{1b}[31m\n", "\\u{1b}[31m\\n"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("é→", "é→"),
        ] {
            assert_eq!(quoted(text), expected, "{text:?}");
        }
    }

    #[test]
    fn times_of_day() {
        let at = UNIX_EPOCH + std::time::Duration::from_millis(1_763_963_537_045);
        assert_eq!(TimeOfDay(at).to_string(), "05:52:17.045Z");
    }
}
