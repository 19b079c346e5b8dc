//! Request of a recorded exchange: `request.json`, read strictly.
//!
//! Takes: the text of the file. Gives: what was sent, or the line of the first mistake. Never: passes over a member that
//! it does not know, which may be another one, misspelt.

use crate::json::{self, Members, Raw, Text, integer};
use crate::nearest::suggest;
use crate::visible::excerpt;
use http::Method;

/// Members that the file may have. The last two change how the tests of samewire read a recording.
const MEMBERS: [&str; 7] = [
    "method",
    "path",
    "headers",
    "body",
    "body_raw",
    "max_event_bytes",
    "options",
];

/// Longest part of an unknown member's name that a message quotes, in characters.
const NAME: usize = 40;

/// Recorded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedRequest<'a> {
    /// HTTP method; `POST` if not recorded.
    pub method: String,
    /// Path with its query.
    pub path: String,
    /// Body, if it was JSON.
    pub body: Option<Raw<'a>>,
    /// Body as text, if it was no JSON.
    pub body_raw: Option<String>,
}

impl<'a> RecordedRequest<'a> {
    /// Reads the file.
    ///
    /// # Errors
    /// Fails with the first mistake, and its line.
    pub fn read(text: &'a str) -> Result<Self, String> {
        let text = text.trim_start_matches('\u{feff}');
        let Members(members) =
            json::read(text).map_err(|error| format!("it is not a JSON object ({error})"))?;
        let mut this = Self {
            method: "POST".to_owned(),
            path: String::new(),
            body: None,
            body_raw: None,
        };
        for (at, (name, value)) in members.iter().enumerate() {
            let wrong = |why: &str| {
                format!(
                    "line {}: {}: {why}",
                    line_of(text, *value),
                    excerpt(name, NAME)
                )
            };
            if !MEMBERS.contains(&&**name) {
                return Err(suggest(wrong("unknown"), name, MEMBERS));
            }
            if members.iter().take(at).any(|(earlier, _)| earlier == name) {
                return Err(wrong("it is there twice"));
            }
            if value.get() != "null" {
                this.take(name, *value).map_err(wrong)?;
            }
        }
        match (this.path.is_empty(), &this.body, &this.body_raw) {
            (true, ..) => Err("path: missing; the path that was asked for".to_owned()),
            (_, Some(_), Some(_)) => {
                Err("body_raw: there is a body already; one of them must go".to_owned())
            }
            _ => Ok(this),
        }
    }

    /// Takes a member that is not null. Fails if its value is of another kind.
    fn take(&mut self, name: &str, value: Raw<'a>) -> Result<(), &'static str> {
        let text = || {
            Text::of(value)
                .map(|text| text.decoded().into_owned())
                .ok_or("it must be a string")
        };
        match name {
            "method" => {
                self.method = text()?;
                Method::from_bytes(self.method.as_bytes())
                    .map_err(|_| "it must be an HTTP method such as POST")?;
            }
            "path" => {
                self.path = text()?;
                if !self.path.starts_with('/') {
                    return Err("it must begin with a slash");
                }
            }
            "headers" => {
                let headers = Members::of(value.get()).ok_or("it must be an object of strings")?;
                if headers
                    .0
                    .iter()
                    .any(|(_, value)| Text::of(*value).is_none())
                {
                    return Err("it must be an object of strings");
                }
            }
            "body" => self.body = Some(value),
            "body_raw" => self.body_raw = Some(text()?),
            "max_event_bytes" => _ = integer(value).ok_or("it must be a whole number")?,
            _ => _ = Members::of(value.get()).ok_or("it must be an object")?,
        }
        Ok(())
    }
}

/// Returns the line in which a value begins, counted from 1.
fn line_of(text: &str, value: Raw<'_>) -> usize {
    let place = value
        .get()
        .as_ptr()
        .addr()
        .saturating_sub(text.as_ptr().addr());
    1 + text
        .bytes()
        .take(place)
        .filter(|byte| *byte == b'\n')
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_read() {
        let text = "\u{feff}{\"path\": \"/a?b=1\",\n \"headers\": {\"x\": \"y\"}, \"body\": [1], \"method\": null}";
        let request = RecordedRequest::read(text).unwrap();
        assert_eq!((&*request.method, &*request.path), ("POST", "/a?b=1"));
        assert_eq!(
            (request.body.map(Raw::get), request.body_raw),
            (Some("[1]"), None)
        );
    }

    #[test]
    fn mistakes_have_their_line() {
        for (text, expected) in [
            (
                "{\"path\":\"/a\",\n\"methd\":\"GET\"}",
                "line 2: methd: unknown; is method meant?",
            ),
            (
                "{\"path\":\"/a\",\n\n\"colour\":1}",
                "line 3: colour: unknown",
            ),
            ("{\"\\u001b[2J\":1}", "line 1: \\u{1b}[2J: unknown"),
            (
                "{\"path\":\"/a\",\n\"path\":\"/b\"}",
                "line 2: path: it is there twice",
            ),
            (
                "{\"path\":\"/a\",\"method\":\"G T\"}",
                "line 1: method: it must be an HTTP method such as POST",
            ),
            (
                "{\"path\":\"/a\",\n\"headers\":{\"a\":1}}",
                "line 2: headers: it must be an object of strings",
            ),
            (
                "{\"path\":\"/a\",\"body_raw\":{}}",
                "line 1: body_raw: it must be a string",
            ),
            (
                "{\"path\":\"/a\",\"body\":{},\"body_raw\":\"x\"}",
                "body_raw: there is a body already; one of them must go",
            ),
            (
                "{\"path\":\"/a\",\n\"body\":{",
                "it is not a JSON object (line 2, column 8)",
            ),
        ] {
            assert_eq!(RecordedRequest::read(text).unwrap_err(), expected, "{text}");
        }
    }
}
