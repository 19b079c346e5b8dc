//! WebSocket messages: parsing of a client's `response.create`, and events and errors as messages
//! (wire-format 4.12).

use crate::json::Text;
use crate::request::fields::{self, Field};
use crate::request::{invalid, unsupported_parameter};
use crate::wire::fault::{Failure, Fault};
use axum::extract::ws::{Message, Utf8Bytes};
use bytes::{BufMut, Bytes, BytesMut};

/// Parameters that only requests over HTTP may have, each with the reason for the error message.
const NOT_HERE: [(&str, &str); 3] = [
    ("stream", "on a WebSocket every response is streamed"),
    ("stream_options", "on a WebSocket events are not padded"),
    ("background", "on a WebSocket the client waits"),
];

/// Reads a `response.create` message. Returns the id of the response that it continues, which the connection forgets after
/// a failure, and whether a response is to be generated: if not, the input is only remembered for a later message. `habit`
/// accepts a redundant `"stream": true`, which some clients always send. Fails unless the message is a valid
/// `response.create` without parameters of HTTP.
pub(super) fn read(text: &[u8], habit: bool) -> (Option<String>, Result<bool, Failure>) {
    let members = match fields::text(text).and_then(|text| fields::read(text)) {
        Ok(members) => members,
        Err(failure) => return (None, Err(failure)),
    };
    let get = |key: &str| {
        members
            .iter()
            .find(|field| field.key == key && field.value.get() != "null")
    };
    let word = |field: &Field<'_>| Text::of(field.value).map(|text| text.decoded().into_owned());
    let generates = is_create(&members).and_then(|()| {
        for (key, why) in NOT_HERE {
            let told =
                get(key).filter(|field| !(habit && key == "stream" && field.value.get() == "true"));
            if told.is_some() {
                return Err(unsupported_parameter(key, why));
            }
        }
        match get("generate").map(|field| field.value.get()) {
            None | Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(_) => Err(invalid("generate", "it must be true or false")),
        }
    });
    (get("previous_response_id").and_then(word), generates)
}

fn is_create(members: &[Field<'_>]) -> Result<(), Failure> {
    let mut types = members.iter().filter(|field| field.key == "type");
    let Some(kind) = types.next() else {
        let message = "Missing required parameter: 'type'; it must be 'response.create'.";
        return Err(Failure::from(Fault::MissingParameter)
            .with_message(message)
            .with_param("type"));
    };
    if types.next().is_some() {
        return Err(Failure::from(Fault::DuplicateKey)
            .with_message("Duplicate key: 'type'.")
            .with_param("type"));
    }
    match Text::of(kind.value) {
        Some(kind) if kind == "response.create" => Ok(()),
        _ => Err(invalid("type", "it must be 'response.create'")),
    }
}

/// Returns an error message for a response body with this HTTP status.
pub(super) fn error(status: u16, body: &[u8]) -> Message {
    let mut out = BytesMut::from(format!("{{\"type\":\"error\",\"status\":{status},").as_bytes());
    out.put_slice(body.strip_prefix(b"{").unwrap_or(body));
    text(out.freeze())
}

/// Returns an error message for a failure that has no HTTP response.
pub(super) fn refusal(failure: &Failure) -> Message {
    let mut body = BytesMut::new();
    failure.write(false, &mut body);
    error(failure.status, &body)
}

fn text(bytes: Bytes) -> Message {
    // JSON written by this crate is always valid UTF-8.
    Message::Text(Utf8Bytes::try_from(bytes).unwrap_or_default())
}

/// Returns a message for each event of a stream in lines.
pub(super) fn messages(lines: &Bytes) -> impl Iterator<Item = Message> {
    let events = lines
        .split(|byte| *byte == b'\n')
        .filter(|event| !event.is_empty());
    events.map(|event| text(lines.slice_ref(event)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str, habit: bool) -> (Option<String>, Option<String>) {
        let (previous, read) = read(text.as_bytes(), habit);
        let failure = read.unwrap_err();
        assert_eq!(failure.status, 400, "{text}");
        (failure.param, previous)
    }

    #[test]
    fn only_what_creates_a_response() {
        for (text, param) in [
            ("", None),
            ("[]", None),
            ("{", None),
            ("{}", Some("type")),
            (r#"{"type":null}"#, Some("type")),
            (r#"{"type":"response.cancel"}"#, Some("type")),
            (r#"{"type":"response.create","type":"x"}"#, Some("type")),
            (
                r#"{"type":"response.create","stream":true}"#,
                Some("stream"),
            ),
            (
                r#"{"type":"response.create","stream":false}"#,
                Some("stream"),
            ),
            (
                r#"{"type":"response.create","stream_options":{}}"#,
                Some("stream_options"),
            ),
            (
                r#"{"type":"response.create","background":false}"#,
                Some("background"),
            ),
            (
                r#"{"type":"response.create","generate":0}"#,
                Some("generate"),
            ),
        ] {
            assert_eq!(refused(text, false).0.as_deref(), param, "{text}");
        }
        let text =
            r#"{"type":"response.create","previous_response_id":"resp_1","background":true}"#;
        assert_eq!(
            refused(text, true),
            (Some("background".to_owned()), Some("resp_1".to_owned()))
        );
        let all = r#"{"previous_response_id":"resp_\u0031","type":"response.create","stream":true,"generate":false}"#;
        assert_eq!(
            read(all.as_bytes(), true),
            (Some("resp_1".to_owned()), Ok(false))
        );
        let none =
            r#"{"type":"response.create","stream_options":null,"previous_response_id":null}"#;
        assert_eq!(read(none.as_bytes(), true), (None, Ok(true)));
        assert_eq!(
            refused(r#"{"type":"response.create","stream":false}"#, true)
                .0
                .as_deref(),
            Some("stream")
        );
    }

    #[test]
    fn events_become_messages() {
        let lines = Bytes::from_static(b"{\"a\":\"\\n\"}\n{\"b\":1}\n");
        let said: Vec<_> = messages(&lines)
            .map(|message| message.into_text().unwrap().to_string())
            .collect();
        assert_eq!(said, ["{\"a\":\"\\n\"}", "{\"b\":1}"]);
        assert_eq!(messages(&Bytes::new()).count(), 0);
    }
}
