//! Log lines as JSON, one object a line: `{"timestamp":"…","level":"INFO","message":"request","request_id":"…",…}`.
//!
//! Takes: an event. Gives: its line, with the fields in the order in which they are recorded. Never: a control character
//! outside of an escape.

use super::text::is_c1_control;
use std::fmt::{self, Debug, Write};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Formatter of log lines as JSON. It writes each value as it comes: a line costs no memory of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct JsonLine;

impl<S, N> FormatEvent<S, N> for JsonLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        out.write_str("{\"timestamp\":\"")?;
        SystemTime.format_time(&mut out)?;
        out.write_str("\",\"level\":\"")?;
        out.write_str(event.metadata().level().as_str())?;
        out.write_char('"')?;
        let mut members = Members { out: &mut out, result: Ok(()) };
        event.record(&mut members);
        members.result?;
        out.write_str("}\n")
    }
}

/// Writer of an event's fields as members. After a failure it writes nothing more.
struct Members<'a, 'w> {
    out: &'a mut Writer<'w>,
    result: fmt::Result,
}

impl Members<'_, '_> {
    fn add(&mut self, field: &Field, write: impl FnOnce(&mut Writer<'_>) -> fmt::Result) {
        let Self { out, result } = self;
        let member = |out: &mut Writer<'_>| {
            out.write_str(",\"")?;
            // Names are identifiers of this program, perhaps with dots.
            out.write_str(field.name())?;
            out.write_str("\":")?;
            write(out)
        };
        *result = result.and_then(|()| member(out));
    }

    fn add_number(&mut self, field: &Field, number: impl itoa::Integer) {
        self.add(field, |out| out.write_str(itoa::Buffer::new().format(number)));
    }
}

impl Visit for Members<'_, '_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, |out| {
            out.write_char('"')?;
            Escaped(out).write_str(value)?;
            out.write_char('"')
        });
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add(field, |out| {
            out.write_char('"')?;
            write!(Escaped(out), "{value:?}")?;
            out.write_char('"')
        });
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, |out| out.write_str(if value { "true" } else { "false" }));
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
        self.add(
            field,
            |out| if value.is_finite() { write!(out, "{value:?}") } else { out.write_str("null") },
        );
    }
}

/// Writer of the inside of a JSON string. Control characters that JSON allows are escaped too: terminals interpret some
/// of them.
struct Escaped<'a, 'w>(&'a mut Writer<'w>);

impl Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        // In UTF-8, the upper control characters are the byte 7F, or begin with C2.
        let is_special = |byte: u8| byte < 0x20 || matches!(byte, b'"' | b'\\' | 0x7f | 0xc2);
        while let Some(at) = rest.bytes().position(is_special) {
            let (before, special) = rest.split_at(at);
            self.0.write_str(before)?;
            let mut letters = special.chars();
            match letters.next() {
                Some('"') => self.0.write_str("\\\"")?,
                Some('\\') => self.0.write_str("\\\\")?,
                Some('\n') => self.0.write_str("\\n")?,
                Some('\r') => self.0.write_str("\\r")?,
                Some('\t') => self.0.write_str("\\t")?,
                Some('\u{8}') => self.0.write_str("\\b")?,
                Some('\u{c}') => self.0.write_str("\\f")?,
                Some(letter) if letter < ' ' || is_c1_control(letter) => {
                    write!(self.0, "\\u{:04x}", u32::from(letter))?;
                }
                Some(letter) => self.0.write_char(letter)?,
                None => {}
            }
            rest = letters.as_str();
        }
        self.0.write_str(rest)
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
                text = "a \"b\" \\ \n\u{1}\u{7f}\u{85}é",
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
        let all: Vec<_> = members.iter().map(|(key, raw)| (&**key, raw.get())).collect();
        assert_eq!(
            all[1..],
            [
                ("level", r#""INFO""#),
                ("message", r#""a message""#),
                ("text", r#""a \"b\" \\ \n\u0001\u007f\u0085é""#),
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
        assert_eq!((all[0].0, all[0].1.len()), ("timestamp", r#""2026-01-01T00:00:00.000000Z""#.len()));
    }
}
