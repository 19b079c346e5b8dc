//! Log lines as JSON, one object a line: `{"timestamp":"…","level":"INFO","message":"request","request_id":"…",…}`.
//!
//! Takes: an event. Gives: its line, with the fields in the order in which they are recorded. Never: a control character
//! outside of an escape.

use crate::json::plain_run;
use crate::visible::{is_hidden, push_utf16};
use std::cell::Cell;
use std::fmt::{self, Debug, Write};
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Upper limit for the buffer that a thread keeps for its next line, in bytes. Hardly any line is longer.
const KEPT: usize = 16 << 10;

thread_local! {
    /// Buffer in which this thread writes its lines: a line costs no further memory.
    static LINE: Cell<String> = const { Cell::new(String::new()) };
}

/// Formatter of log lines as JSON. It writes each value as it comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct JsonLine;

impl<S, N> FormatEvent<S, N> for JsonLine
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
        // A value that logs while it is written finds an empty buffer.
        let mut line = LINE.take();
        line.clear();
        line.push_str("{\"timestamp\":\"");
        // Times before the epoch cannot be formatted.
        write!(
            line,
            "{}",
            humantime::format_rfc3339_micros(SystemTime::now().max(UNIX_EPOCH))
        )?;
        line.push_str("\",\"level\":\"");
        line.push_str(event.metadata().level().as_str());
        line.push('"');
        event.record(&mut LineMembers(&mut line));
        line.push_str("}\n");
        let written = out.write_str(&line);
        line.shrink_to(KEPT);
        LINE.set(line);
        written
    }
}

/// Writer of an event's fields as members.
struct LineMembers<'a>(&'a mut String);

impl LineMembers<'_> {
    /// Writes the name of a member. Names are identifiers of this program, perhaps with dots.
    fn name(&mut self, field: &Field) -> &mut String {
        self.0.push_str(",\"");
        self.0.push_str(field.name());
        self.0.push_str("\":");
        self.0
    }

    fn add_number(&mut self, field: &Field, number: impl itoa::Integer) {
        self.name(field)
            .push_str(itoa::Buffer::new().format(number));
    }
}

impl Visit for LineMembers<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        let line = self.name(field);
        line.push('"');
        escape(value, line);
        line.push('"');
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let line = self.name(field);
        line.push('"');
        // Writing to a text cannot fail. A value whose own formatting fails is cut.
        let _ = write!(Escaped(line), "{value:?}");
        line.push('"');
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.name(field)
            .push_str(if value { "true" } else { "false" });
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add_number(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add_number(field, value);
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.add_number(field, value);
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.add_number(field, value);
    }

    /// JSON has no number for infinity and for what is not a number.
    fn record_f64(&mut self, field: &Field, value: f64) {
        let line = self.name(field);
        match value.is_finite() {
            true => _ = write!(line, "{value:?}"),
            false => line.push_str("null"),
        }
    }
}

/// Writer of the inside of a JSON string.
struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        escape(text, self.0);
        Ok(())
    }
}

/// Writes the inside of a JSON string. Characters that are not seen are escaped, even where JSON allows them: terminals
/// interpret some of them.
fn escape(text: &str, line: &mut String) {
    let is_special = |letter: char| letter == '"' || letter == '\\' || is_hidden(letter);
    let is_ascii = text.is_ascii();
    let mut rest = text;
    loop {
        let plain = match is_ascii {
            true => plain_run(rest.as_bytes(), [b'"', b'\\', 0x7f], b' '),
            false => rest.find(is_special).unwrap_or(rest.len()),
        };
        let (before, special) = rest.split_at(plain);
        line.push_str(before);
        let mut letters = special.chars();
        match letters.next() {
            Some('"') => line.push_str("\\\""),
            Some('\\') => line.push_str("\\\\"),
            Some('\n') => line.push_str("\\n"),
            Some('\r') => line.push_str("\\r"),
            Some('\t') => line.push_str("\\t"),
            Some('\u{8}') => line.push_str("\\b"),
            Some('\u{c}') => line.push_str("\\f"),
            Some(letter) => push_utf16(letter, line),
            None => return,
        }
        rest = letters.as_str();
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::line_of;
    use crate::json::Members;

    #[test]
    fn values_are_json_of_their_type() {
        let line = line_of(|| {
            tracing::info!(
                text = "a \"b\" \\ \n\u{1}\u{7f}\u{85}\u{202e}\u{2028}\u{e0041}é",
                shown = %"c\td",
                debugged = ?Some("e"),
                flag = true,
                small = -1_i64,
                large = u64::MAX,
                huge = u128::MAX,
                third = 0.5,
                whole = 2.0,
                infinite = f64::INFINITY,
                absent = None::<u64>,
                "a message"
            );
        });
        let line = String::from_utf8(line).unwrap();
        assert!(line.ends_with("}\n"), "{line}");
        let Members(members) = Members::of(line.trim_end()).unwrap();
        let all: Vec<_> = members
            .iter()
            .map(|(key, raw)| (&**key, raw.get()))
            .collect();
        assert_eq!(
            all[1..],
            [
                ("level", r#""INFO""#),
                ("message", r#""a message""#),
                (
                    "text",
                    r#""a \"b\" \\ \n\u0001\u007f\u0085\u202e\u2028\udb40\udc41é""#
                ),
                ("shown", r#""c\td""#),
                ("debugged", r#""Some(\"e\")""#),
                ("flag", "true"),
                ("small", "-1"),
                ("large", "18446744073709551615"),
                ("huge", "340282366920938463463374607431768211455"),
                ("third", "0.5"),
                ("whole", "2.0"),
                ("infinite", "null"),
            ]
        );
        assert_eq!(
            (all[0].0, all[0].1.len()),
            ("timestamp", r#""2026-01-01T00:00:00.000000Z""#.len())
        );
    }
}
