//! Rules for every stream of Messages events (messages 4): order, running indices, deltas of the kind of their block,
//! one end. The message is the sum of a strict client.

use serde_json::{Value, json};

/// Message as a client has it after the last event.
#[derive(Clone, Debug, PartialEq)]
pub struct Folded {
    /// Message, with the blocks that were opened; `stop_reason` is null if it broke off.
    pub message: Value,
    /// Object of the event `error`, if the stream ended in one.
    pub error: Option<Value>,
}

/// Reads and checks a stream of events.
pub fn fold(body: &str) -> Result<Folded, String> {
    let mut reader = Reader::default();
    for frame in body.split_terminator("\n\n") {
        let event = event(frame)?;
        reader
            .event(&event)
            .map_err(|wrong| format!("{wrong}: {event}"))?;
    }
    match body.is_empty() || body.ends_with("\n\n") {
        true => reader.end(),
        false => Err("the last event has no blank line".to_owned()),
    }
}

/// Returns the data of an event, after checking that its name is that of its type.
fn event(frame: &str) -> Result<Value, String> {
    let lines: Vec<_> = frame.split('\n').collect();
    let [name, data] = lines[..] else {
        return Err(format!("two lines make an event: {frame}"));
    };
    let name = name
        .strip_prefix("event: ")
        .ok_or_else(|| format!("no name: {frame}"))?;
    let data = data
        .strip_prefix("data: ")
        .ok_or_else(|| format!("no data: {frame}"))?;
    let event: Value = serde_json::from_str(data).map_err(|error| format!("{error}: {frame}"))?;
    match data.starts_with(&format!("{{\"type\":\"{name}\"")) {
        true => Ok(event),
        false => Err(format!("the type comes first and is the name: {frame}")),
    }
}

#[derive(Default)]
struct Reader {
    message: Option<Value>,
    /// True while the last block is open.
    open: bool,
    /// Arguments of the open call so far.
    arguments: String,
    has_delta: bool,
    is_over: bool,
    error: Option<Value>,
}

impl Reader {
    fn event(&mut self, event: &Value) -> Result<(), String> {
        fail_if!(self.is_over, "an event after the end");
        match (event["type"].as_str().unwrap(), self.message.is_some()) {
            ("ping", _) => Ok(()),
            ("error", _) => {
                (self.error, self.is_over) = (Some(event.clone()), true);
                error(event)
            }
            ("message_start", false) => self.start(&event["message"]),
            (_, false) => Err("before message_start".to_owned()),
            ("content_block_start", true) => self.block_start(event),
            ("content_block_delta", true) => self.block_delta(event),
            ("content_block_stop", true) => self.block_stop(event),
            ("message_delta", true) if !self.open && !self.has_delta => self.delta(event),
            ("message_stop", true) if self.has_delta => {
                self.is_over = true;
                Ok(())
            }
            _ => Err("not in this place".to_owned()),
        }
    }

    fn start(&mut self, message: &Value) -> Result<(), String> {
        whole(message)?;
        fail_if!(
            message["content"] != json!([]) || !message["stop_reason"].is_null(),
            "the beginning is not empty"
        );
        self.message = Some(message.clone());
        Ok(())
    }

    fn blocks(&mut self) -> &mut Vec<Value> {
        self.message
            .as_mut()
            .and_then(|message| message["content"].as_array_mut())
            .unwrap()
    }

    fn block_start(&mut self, event: &Value) -> Result<(), String> {
        fail_if!(
            self.open || self.has_delta,
            "another block is open, or the message has ended"
        );
        let block = event["content_block"].clone();
        let is_empty = match block["type"].as_str() {
            Some("text") => block["text"] == "",
            Some("thinking") => block["thinking"] == "" && block["signature"] == "",
            Some("tool_use") => {
                self.arguments.clear();
                block["input"] == json!({}) && block["id"].is_string() && block["name"].is_string()
            }
            kind => kind.is_some(),
        };
        let next = self.blocks().len();
        fail_if!(
            !is_empty || event["index"] != json!(next),
            "not an empty block {next}"
        );
        self.blocks().push(block);
        self.open = true;
        Ok(())
    }

    fn block_delta(&mut self, event: &Value) -> Result<(), String> {
        let last = self.blocks().len().checked_sub(1).filter(|_| self.open);
        let last = last
            .filter(|at| event["index"] == json!(at))
            .ok_or("a delta of no open block")?;
        let block = &mut self.message.as_mut().unwrap()["content"][last];
        let delta = &event["delta"];
        let kind = block["type"].as_str().unwrap().to_owned();
        let (key, text) = match (kind.as_str(), delta["type"].as_str().unwrap_or_default()) {
            ("text", "text_delta") => ("text", &delta["text"]),
            ("thinking", "thinking_delta") if block["signature"] == "" => {
                ("thinking", &delta["thinking"])
            }
            ("thinking", "signature_delta") => ("signature", &delta["signature"]),
            ("tool_use", "input_json_delta") => {
                let piece = delta["partial_json"].as_str().ok_or("no arguments")?;
                fail_if!(
                    self.arguments.is_empty() && piece.trim().is_empty(),
                    "arguments begin with white space alone"
                );
                self.arguments.push_str(piece);
                return if piece.is_empty() {
                    Err("an empty delta".to_owned())
                } else {
                    Ok(())
                };
            }
            ("text" | "thinking" | "tool_use", _) => {
                return Err("a delta of another kind".to_owned());
            }
            _ => return Ok(()),
        };
        let text = text
            .as_str()
            .filter(|text| !text.is_empty())
            .ok_or("an empty delta")?;
        block[key] = json!(format!("{}{text}", block[key].as_str().unwrap_or_default()));
        Ok(())
    }

    fn block_stop(&mut self, event: &Value) -> Result<(), String> {
        let last = self.blocks().len().checked_sub(1).filter(|_| self.open);
        let last = last
            .filter(|at| event["index"] == json!(at))
            .ok_or("the end of no open block")?;
        self.open = false;
        let arguments = self.arguments.clone();
        let block = &mut self.message.as_mut().unwrap()["content"][last];
        if block["type"] == "tool_use" && !arguments.trim().is_empty() {
            // The official libraries read arguments that are cut as far as they go.
            block["input"] = serde_json::from_str(&arguments).unwrap_or_else(|_| json!(arguments));
        }
        Ok(())
    }

    fn delta(&mut self, event: &Value) -> Result<(), String> {
        self.has_delta = true;
        let message = self.message.as_mut().unwrap();
        for key in ["stop_reason", "stop_sequence", "stop_details"] {
            message[key] = event["delta"]
                .get(key)
                .ok_or_else(|| format!("no {key}"))?
                .clone();
        }
        fail_if!(!message["stop_reason"].is_string(), "no stop reason");
        message["usage"] = event["usage"].clone();
        usage(&message["usage"])
    }

    fn end(self) -> Result<Folded, String> {
        fail_if!(!self.is_over, "no event ends it");
        Ok(Folded {
            message: self.message.unwrap_or(Value::Null),
            error: self.error,
        })
    }
}

/// Checks an object of the API's type `Message`.
pub fn whole(message: &Value) -> Result<(), String> {
    let keys = message
        .as_object()
        .ok_or("not an object")?
        .keys()
        .map(String::as_str)
        .collect::<Vec<_>>();
    let expected = [
        "content",
        "id",
        "model",
        "role",
        "stop_details",
        "stop_reason",
        "stop_sequence",
        "type",
        "usage",
    ];
    fail_if!(keys != expected, "the keys of a message: {keys:?}");
    let is_named = message["id"]
        .as_str()
        .is_some_and(|id| id.starts_with("msg_"))
        && message["type"] == "message"
        && message["role"] == "assistant"
        && message["model"].is_string()
        && message["content"].is_array();
    fail_if!(!is_named, "not a message: {message}");
    usage(&message["usage"])
}

fn usage(usage: &Value) -> Result<(), String> {
    let keys = [
        "input_tokens",
        "output_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
    ];
    let has_details = usage["output_tokens_details"]["thinking_tokens"].is_u64();
    let count = usage.as_object().map_or(0, serde_json::Map::len);
    match keys.iter().all(|key| usage[key].is_u64()) && count == 4 + usize::from(has_details) {
        true => Ok(()),
        false => Err(format!("not the four counts: {usage}")),
    }
}

/// Checks an error object.
pub fn error(body: &Value) -> Result<(), String> {
    const KINDS: [&str; 9] = [
        "invalid_request_error",
        "authentication_error",
        "permission_error",
        "not_found_error",
        "request_too_large",
        "rate_limit_error",
        "api_error",
        "timeout_error",
        "overloaded_error",
    ];
    let kind = body["error"]["type"].as_str().unwrap_or_default();
    let is_error = body["type"] == "error"
        && KINDS.contains(&kind)
        && body["error"]["message"]
            .as_str()
            .is_some_and(|text| !text.is_empty());
    if is_error {
        Ok(())
    } else {
        Err(format!("not an error: {body}"))
    }
}
