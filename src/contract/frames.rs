//! Frames of an answer, as a client finds them: server-sent events, or one JSON text a line.

use super::rule::Rule;
use super::violation::Form;

/// Frame: name, data and the place of its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) at: usize,
    /// Name of the event, empty if it has none; `None` in a form without names.
    pub(super) name: Option<&'a str>,
    pub(super) data: &'a str,
}

/// Returns the frames of these bytes. Comments are none. A frame that is not readable is an error with its place.
pub(super) fn frames(form: Form, bytes: &[u8]) -> Vec<Result<Frame<'_>, (usize, Rule)>> {
    if form == Form::Whole {
        return vec![text(bytes, 0).map(|data| Frame { at: 0, name: None, data })];
    }
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let is_line = rest.starts_with(b"{");
        let end: &[u8] = if is_line { b"\n" } else { b"\n\n" };
        let length = memchr::memmem::find(rest, end);
        let frame = rest.get(..length.unwrap_or(rest.len())).unwrap_or_default();
        if length.is_none() {
            found.push(Err((at, Rule::Framing)));
        } else if is_line {
            found.push(text(frame, at).map(|data| Frame { at, name: None, data }));
        } else if !frame.starts_with(b":") {
            found.push(event(frame, at));
        }
        at += frame.len() + end.len();
    }
    found
}

/// Reads an event: its name, if it has one, and one line of data.
fn event(frame: &[u8], at: usize) -> Result<Frame<'_>, (usize, Rule)> {
    let wrong = || (at, Rule::Framing);
    let text = text(frame, at)?;
    let (name, data) = match text.strip_prefix("event: ") {
        Some(rest) => rest.split_once('\n').ok_or_else(wrong)?,
        None => ("", text),
    };
    let data = data.strip_prefix("data: ").filter(|data| !data.contains(['\n', '\r'])).ok_or_else(wrong)?;
    Ok(Frame { at, name: Some(name), data })
}

fn text(bytes: &[u8], at: usize) -> Result<&str, (usize, Rule)> {
    std::str::from_utf8(bytes).map_err(|_| (at, Rule::Framing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_name_data_and_place() {
        let found = frames(Form::Stream, b"data: a\n\n: ping\n\nevent: x\ndata: b\n\n");
        let told: Vec<_> =
            found.iter().map(|one| one.map(|frame| (frame.at, frame.name, frame.data))).collect();
        assert_eq!(told, [Ok((0, Some(""), "a")), Ok((17, Some("x"), "b"))]);
        let lines = frames(Form::Stream, b"{}\n{}\n");
        assert_eq!(lines.iter().map(|one| one.unwrap().at).collect::<Vec<_>>(), [0, 3]);
        assert_eq!(frames(Form::Whole, b"{}").len(), 1);
    }

    #[test]
    fn what_is_no_frame_is_an_error_with_its_place() {
        for bytes in [
            "data: a\n\ndata: b",
            "data: a\n\ndata:b\n\n",
            "data: a\n\ndata: b\ndata: c\n\n",
            "data: a\n\nevent: x\n\n",
        ] {
            let found = frames(Form::Stream, bytes.as_bytes());
            assert_eq!(found.get(1), Some(&Err((9, Rule::Framing))), "{bytes:?}");
        }
        assert_eq!(frames(Form::Whole, b"\xff"), [Err((0, Rule::Framing))]);
    }
}
