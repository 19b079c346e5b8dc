//! Conversion of items to the messages of a chat (wire-format 4.3).
//!
//! Takes: items in order. Gives: messages, with the items of one assistant turn merged into one. Remembers: the
//! calls seen. Never: an output without its call.

use super::ResponsesTools;
use super::item::{Item, ItemArguments};
use super::sealed::{Unseal, open_reasoning, open_summary};
use crate::json::{self, Raw, Text, compacted};
use crate::request::turn::{Author, ContentPart, InputCall, InputTurn, TurnRole, member};
use crate::wire::event::ToolKind;
use crate::wire::fault::{Failure, Fault};
use bytes::{BufMut, BytesMut};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Groups items, each with its path, into turns. `hosted`: items of hosted tools become turns too. Fails on an
/// output without its call, and on a sealed summary that cannot be opened.
pub(super) fn turns<'a>(
    items: Vec<(Cow<'_, str>, Item<'a>)>,
    tools: &ResponsesTools,
    unseal: Unseal<'_>,
    hosted: bool,
) -> Result<Vec<InputTurn<'a>>, Failure> {
    let items = flattened(items, hosted);
    let asked = items.iter().filter_map(|(_, item)| match item {
        Item::Hosted {
            kind: "mcp_approval_request",
            raw: Cow::Borrowed(text),
            ..
        } => Some((json::member(text, "id")?, *text)),
        _ => None,
    });
    let asked: HashMap<String, &str> = asked.collect();
    let called = items.iter().filter_map(|(_, item)| match item {
        Item::Call { id, .. } => Some(id.decoded().into_owned()),
        _ => None,
    });
    let called: HashSet<_> = called.collect();
    let mut turns: Vec<InputTurn<'a>> = Vec::new();
    for (path, item) in items {
        match item {
            Item::Message {
                role: Author::Assistant,
                mut parts,
            } => {
                assistant(&mut turns).parts.append(&mut parts);
            }
            Item::Message { role, parts } => {
                turns.push(InputTurn::new(TurnRole::Author(role), parts))
            }
            Item::Reasoning {
                content,
                sealed,
                summary,
            } => {
                add_reasoning(&content, sealed, &summary, unseal, &mut turns);
            }
            Item::Call {
                id,
                namespace,
                name,
                arguments: given,
            } => {
                let namespace = namespace.map(|namespace| namespace.decoded());
                let name = tools.wire_name(namespace.as_deref(), &name.decoded());
                let arguments = match given {
                    ItemArguments::Text(text, kind) => arguments(text, kind),
                    ItemArguments::Object(object) => compacted(object),
                };
                assistant(&mut turns).calls.push(InputCall {
                    id,
                    name: name.into(),
                    arguments,
                });
            }
            Item::Output { call, .. } if !called.contains(call.decoded().as_ref()) => {
                let id = call.decoded();
                let message =
                    format!("No tool call found for function call output with call_id {id}.");
                let param = format!("{path}.call_id");
                return Err(Failure::from(Fault::InvalidRequest)
                    .with_message(message)
                    .with_param(param));
            }
            Item::Output { call, parts } => turns.push(InputTurn::new(TurnRole::Tool(call), parts)),
            Item::Compaction(sealed) => {
                let text = open_summary(sealed, &path, unseal)?;
                turns.push(InputTurn::new(
                    TurnRole::Author(Author::System),
                    vec![ContentPart::Generated(text)],
                ));
            }
            Item::FoundTools {
                call: Some(call),
                tools: found,
            } if called.contains(call.decoded().as_ref()) => {
                let parts = vec![ContentPart::Generated(tools.found(&found))];
                turns.push(InputTurn::new(TurnRole::Tool(call), parts));
            }
            Item::Hosted {
                kind: "mcp_approval_response",
                raw: Cow::Borrowed(response),
                ..
            } if !hosted => add_rejection(response, &asked, tools, &mut turns),
            Item::Hosted { raw, .. } if hosted => {
                turns.push(InputTurn::new(TurnRole::Hosted(raw), Vec::new()))
            }
            // References are resolved and tools added by now; hosted items were reported when the request was
            // read.
            Item::Reference(_) | Item::Hosted { .. } | Item::Tools(_) | Item::FoundTools { .. } => {
            }
        }
    }
    Ok(turns)
}

/// Returns the items in the form that the engine reads. The outputs of calls that samewire has run come after the client's
/// calls of the same turn.
fn flattened<'p, 'a>(
    items: Vec<(Cow<'p, str>, Item<'a>)>,
    hosted: bool,
) -> Vec<(Cow<'p, str>, Item<'a>)> {
    let (mut all, mut held) = (Vec::new(), Vec::new());
    let mut has_client_call = false;
    for (path, item) in items {
        let read = read_as(item, hosted);
        let ran = matches!(read.as_slice(), [Item::Call { .. }, Item::Output { .. }]);
        let is_call = matches!(read.as_slice(), [Item::Call { .. }]);
        let goes_on = is_call || ran && has_client_call;
        if !goes_on {
            all.append(&mut held);
            has_client_call = false;
        }
        has_client_call |= is_call;
        for item in read {
            match ran && matches!(item, Item::Output { .. }) {
                true => held.push((path.clone(), item)),
                false => all.push((path.clone(), item)),
            }
        }
    }
    all.append(&mut held);
    all
}

/// Returns an item in the form that the engine reads: an item of a hosted tool unchanged if `hosted`, otherwise what
/// takes its place, if anything does.
fn read_as(item: Item<'_>, hosted: bool) -> Vec<Item<'_>> {
    match item {
        Item::Hosted { substitutes, .. } if !hosted && !substitutes.is_empty() => substitutes,
        item => vec![item],
    }
}

/// Drops the oldest messages except those of the system, and outputs together with their call (wire-format 4.2,
/// `truncation`). The last message stays, since there would be nothing to answer. Fails if too few messages
/// remain.
pub(super) fn drop_oldest(turns: &mut Vec<InputTurn<'_>>, mut count: usize) -> Result<(), Failure> {
    let (mut left, mut forgotten) = (turns.len(), HashSet::new());
    turns.retain(|turn| {
        left -= 1;
        match &turn.role {
            TurnRole::Author(Author::System | Author::Developer) => return true,
            TurnRole::Tool(call) if forgotten.contains(call.decoded().as_ref()) => return false,
            _ if count == 0 || left == 0 => return true,
            _ => count -= 1,
        }
        forgotten.extend(turn.calls.iter().map(|call| call.id.decoded().into_owned()));
        false
    });
    let has_input = turns.iter().any(|turn| !turn.is_of_system());
    if count > 0 || (!forgotten.is_empty() && !has_input) {
        Err(Fault::ContextLength.into())
    } else {
        Ok(())
    }
}

/// Adds a call that the client has not approved, with that as its output. `asked`: the items that have asked, by id. Does
/// nothing if the client has approved it: then its call and its output are another item.
fn add_rejection<'a>(
    response: &'a str,
    asked: &HashMap<String, &'a str>,
    tools: &ResponsesTools,
    turns: &mut Vec<InputTurn<'a>>,
) {
    let is_rejected =
        json::raw_member(response, "approve").is_some_and(|flag| flag.get() == "false");
    let id = json::raw_member(response, "approval_request_id").and_then(Text::of);
    let Some(id) = id.filter(|_| is_rejected) else {
        return;
    };
    let Some(request) = asked.get(id.decoded().as_ref()) else {
        return;
    };
    let member = |key| json::member(request, key).unwrap_or_default();
    let given = member("arguments");
    assistant(turns).calls.push(InputCall {
        id,
        name: tools
            .wire_name(Some(&member("server_label")), &member("name"))
            .into(),
        arguments: arguments(Text::plain(&given), ToolKind::Function),
    });
    let mut told = "The user has not approved this call.".to_owned();
    if let Some(reason) = json::member(response, "reason") {
        told = format!("{told} {reason}");
    }
    turns.push(InputTurn::new(
        TurnRole::Tool(id),
        vec![ContentPart::Generated(told)],
    ));
}

/// Returns the assistant turn at the end, or starts one.
fn assistant<'t, 'a>(turns: &'t mut Vec<InputTurn<'a>>) -> &'t mut InputTurn<'a> {
    let open = turns
        .last()
        .is_some_and(|turn| matches!(turn.role, TurnRole::Author(Author::Assistant)));
    let at = if open { turns.len() - 1 } else { turns.len() };
    if !open {
        turns.push(InputTurn::new(
            TurnRole::Author(Author::Assistant),
            Vec::new(),
        ));
    }
    #[expect(
        clippy::indexing_slicing,
        reason = "it is the last one, which was there or has been pushed"
    )]
    &mut turns[at]
}

/// Adds reasoning to the assistant turn: its text, else the sealed text if it can be opened, else its summary.
fn add_reasoning(
    content: &[Text<'_>],
    sealed: Option<Text<'_>>,
    summary: &[Text<'_>],
    unseal: Unseal<'_>,
    turns: &mut Vec<InputTurn<'_>>,
) {
    let mut said = BytesMut::new();
    content.iter().for_each(|text| text.write(&mut said));
    let opened = sealed
        .filter(|_| said.is_empty())
        .and_then(|sealed| open_reasoning(sealed, unseal));
    if let Some(opened) = opened {
        Text::plain(&opened).write(&mut said);
    } else if said.is_empty() {
        for text in summary.iter().filter(|text| !text.is_empty()) {
            if !said.is_empty() {
                said.extend_from_slice(b"\\n\\n");
            }
            text.write(&mut said);
        }
    }
    if !said.is_empty() {
        assistant(turns).reasoning.extend_from_slice(&said);
    }
}

/// Returns a call's arguments as a JSON object, wrapping any other text: engines fail on anything else
/// (engines E.3).
pub(crate) fn arguments(text: Text<'_>, kind: ToolKind) -> String {
    let mut json = BytesMut::new();
    let decoded = text.decoded();
    let key = match kind {
        ToolKind::Custom => "{\"input\"",
        ToolKind::Function if decoded.trim().is_empty() => return "{}".to_owned(),
        ToolKind::Function
            if decoded.trim_start().starts_with('{') && Raw::of(&decoded).is_some() =>
        {
            return decoded.into_owned();
        }
        ToolKind::Function | ToolKind::Search => "{\"_raw\"",
    };
    member(key, text, &mut json);
    json.put_u8(b'}');
    String::from_utf8_lossy(&json).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::responses::{Capabilities, ChatInputs, ResponsesMode, ResponsesRequest};
    use crate::wire::options::Options;
    use bytes::Bytes;

    #[test]
    fn arguments_are_objects() {
        for (sent, kind, expected) in [
            (r#" {\"a\":1} "#, ToolKind::Function, r#" {"a":1} "#),
            ("", ToolKind::Function, "{}"),
            (r"\n", ToolKind::Function, "{}"),
            ("[1]", ToolKind::Function, r#"{"_raw":"[1]"}"#),
            (r#"{\"a\":"#, ToolKind::Function, r#"{"_raw":"{\"a\":"}"#),
            ("", ToolKind::Custom, r#"{"input":""}"#),
            (r"{}\n\u0041", ToolKind::Custom, r#"{"input":"{}\nA"}"#),
        ] {
            assert_eq!(arguments(Text::json(sent), kind), expected, "{sent}");
        }
    }

    /// The oldest messages are left out together with the outputs of their calls; what remains must hold something
    /// to answer (wire-format 4.2, `truncation`).
    #[test]
    fn the_oldest_are_left_out_and_the_last_message_stays() {
        let user = |text: &str| format!(r#"{{"role":"user","content":"{text}"}}"#);
        let system = r#"{"role":"system","content":"s"}"#;
        let call = r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}"#;
        let output = r#"{"type":"function_call_output","call_id":"c","output":"o"}"#;
        let sent = |items: &[&str], skip_oldest: usize| {
            let body = Bytes::from(format!(r#"{{"model":"m","input":[{}]}}"#, items.join(",")));
            let options = Options::default();
            let inputs = ChatInputs {
                skip_oldest,
                ..ChatInputs::default()
            };
            let request = ResponsesRequest::recall(&body, &options, ResponsesMode::Chat).unwrap();
            let sent = request.chat(&inputs, &Capabilities::PLAIN, &options);
            sent.map(|sent| String::from_utf8(sent.to_vec()).unwrap())
                .map_err(|failure| failure.fault)
        };
        let chat = |messages: &[&str]| {
            Ok(format!(
                r#"{{"model":"m","messages":[{}]}}"#,
                messages.join(",")
            ))
        };
        let (a, b) = (user("a"), user("b"));
        assert_eq!(sent(&[&a, &b], 0), chat(&[&a, &b]));
        assert_eq!(sent(&[&a, &b], 1), chat(&[&b]));
        assert_eq!(sent(&[system, &a, &b], 1), chat(&[system, &b]));
        assert_eq!(sent(&[call, output, &b], 1), chat(&[&b]));
        for (items, skip) in [
            (&[a.as_str()][..], 1),
            (&[&a, &b], 2),
            (&[system, call, output], 1),
            (&[call, output], 1),
        ] {
            assert_eq!(
                sent(items, skip),
                Err(Fault::ContextLength),
                "{items:?} {skip}"
            );
        }
    }
}
