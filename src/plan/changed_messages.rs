//! Changes of messages that a refusal calls for, made in the finished body: neighbours of one role become one, text
//! beside reasoning and calls becomes reasoning, images leave the results of tools.
//!
//! Takes: a body as the engine's rules have left it, and the fallbacks. Gives: the body with other messages.
//! Never: merges messages that say who speaks, nor results of tools.

use super::AdaptedBody;
use super::adapt::joined;
use crate::engine::fallback::{Fallback, Fallbacks};
use crate::json::{self, Members, Raw, Text, quoted, raw_member};
use crate::request::fields::place;
use bytes::{Bytes, BytesMut};
use std::borrow::Cow;

/// Blank line, as JSON, between texts that become one.
const BLANK_LINE: &str = "\\n\\n";
/// Role of the user, as JSON.
const USER: &str = "\"user\"";
/// Keys of reasoning in a message.
const REASONING: [&str; 2] = ["reasoning_content", "reasoning"];

/// Change of a list of messages, each given as JSON; `None` if none of them changes.
type Change = for<'t> fn(&[Raw<'t>]) -> Option<Vec<Cow<'t, str>>>;

/// Applies the changes that the fallbacks call for.
pub(super) fn changed(mut adapted: AdaptedBody, fallbacks: Fallbacks) -> AdaptedBody {
    let changes: [(Fallback, Change); 3] = [
        (Fallback::ImagesAfterTools, images_after_tools),
        (Fallback::TextInReasoning, text_into_reasoning),
        (Fallback::RolesMerged, merge_roles),
    ];
    for (fallback, change) in changes {
        if fallbacks.has(fallback)
            && let Some(body) = with_messages(&adapted.body.joined(), change)
        {
            adapted.body = body.into();
            adapted.rules.push(fallback.rule());
        }
    }
    adapted
}

/// Returns the body with changed messages; `None` if nothing changes.
fn with_messages(body: &Bytes, change: Change) -> Option<Bytes> {
    let text = simdutf8::basic::from_utf8(body).ok()?;
    let list = raw_member(text, "messages")?.get();
    let all: Vec<_> = json::elements(list)?.collect();
    let messages = change(&all)?.join(",");
    let at = place(text, list);
    let (before, after) = (text.get(..at.start)?, text.get(at.end..)?);
    let mut out = BytesMut::with_capacity(text.len());
    for piece in [before, "[", &messages, "]", after] {
        out.extend_from_slice(piece.as_bytes());
    }
    Some(out.freeze())
}

/// Replaces images in the results of tools by a line such as `[image 1]`, and puts the images, each after that line,
/// before the rest of the user's message that follows; if none does, into a separate message.
fn images_after_tools<'t>(all: &[Raw<'t>]) -> Option<Vec<Cow<'t, str>>> {
    let (mut messages, mut images, mut any) =
        (Vec::with_capacity(all.len() + 1), Vec::new(), false);
    for message in all {
        let members = Members::of(message.get())?;
        let role = members.get("role").map_or("", Raw::get);
        if role == "\"tool\"" {
            let text = result_without_images(&members, &mut images);
            any |= text.is_some();
            messages.push(text.map_or_else(|| message.get().into(), Cow::Owned));
            continue;
        }
        let turn = ChangedTurn::of(*message).filter(|turn| turn.role == USER);
        match (std::mem::take(&mut images), turn) {
            (images, _) if images.is_empty() => messages.push(message.get().into()),
            (images, Some(turn)) => messages.push(with_images(&images, &turn.inner_parts()).into()),
            (images, None) => {
                messages.extend([with_images(&images, "").into(), message.get().into()])
            }
        }
    }
    if !images.is_empty() {
        messages.push(with_images(&images, "").into());
    }
    any.then_some(messages)
}

/// Returns the result of a tool with a line in place of each image, and adds the images, with their lines before them;
/// `None` if there is none, or something other than text beside it.
fn result_without_images(result: &Members<'_>, images: &mut Vec<String>) -> Option<String> {
    let before = images.len();
    let mut lines = Vec::new();
    for part in json::elements(result.get("content")?.get())? {
        if raw_member(part.get(), "image_url").is_some() {
            let line = format!("[image {}]", images.len() / 2 + 1);
            images.extend([
                format!("{{\"type\":\"text\",\"text\":\"{line}\"}}"),
                part.get().to_owned(),
            ]);
            lines.push(line);
        } else {
            let text = raw_member(part.get(), "text").filter(|text| Text::of(*text).is_some());
            let Some(text) = text.and_then(|text| joined(text.get(), "")) else {
                images.truncate(before);
                return None;
            };
            lines.push(text);
        }
    }
    let content = format!("\"{}\"", lines.join("\\n"));
    let member = |(key, value): &(Cow<'_, str>, Raw<'_>)| {
        format!(
            "{}:{}",
            quoted(key),
            if key == "content" {
                &content
            } else {
                value.get()
            }
        )
    };
    let members: Vec<_> = result.0.iter().map(member).collect();
    (images.len() > before).then(|| format!("{{{}}}", members.join(",")))
}

/// Returns a message of the user with these parts, and those that follow.
fn with_images(images: &[String], rest: &str) -> String {
    let comma = if rest.is_empty() { "" } else { "," };
    format!(
        "{{\"role\":{USER},\"content\":[{}{comma}{rest}]}}",
        images.join(",")
    )
}

/// Puts the text of assistant messages with calls and reasoning after their reasoning.
fn text_into_reasoning<'t>(all: &[Raw<'t>]) -> Option<Vec<Cow<'t, str>>> {
    let mut any = false;
    let changed = |message: &Raw<'t>| {
        let new = ChangedTurn::of(*message)
            .filter(|turn| !turn.calls.is_empty())
            .and_then(|mut turn| {
                let text = turn.text().filter(|text| !text.is_empty())?;
                let (_, reasoning) = turn.reasoning.as_mut()?;
                reasoning.push(text.into());
                turn.contents = vec![Raw::of("\"\"")?];
                Some(turn.written())
            });
        any |= new.is_some();
        new.map_or_else(|| message.get().into(), Cow::Owned)
    };
    let messages = all.iter().map(changed).collect();
    any.then_some(messages)
}

/// Merges neighbouring messages of the user, and of the assistant.
fn merge_roles<'t>(all: &[Raw<'t>]) -> Option<Vec<Cow<'t, str>>> {
    // A message that stays alone stays as it is spelled.
    let mut merged: Vec<(Option<&'t str>, Option<ChangedTurn<'t>>)> = Vec::new();
    for message in all {
        match (merged.last_mut(), ChangedTurn::of(*message)) {
            (Some((own, Some(last))), Some(turn)) if last.role == turn.role => {
                last.add(turn);
                *own = None;
            }
            (_, turn) => merged.push((Some(message.get()), turn)),
        }
    }
    let written = |(own, turn): (Option<&'t str>, Option<ChangedTurn<'t>>)| match own {
        Some(own) => own.into(),
        None => turn.map(|turn| turn.written()).unwrap_or_default().into(),
    };
    (merged.len() < all.len()).then(|| merged.into_iter().map(written).collect())
}

/// Message of the user or of the assistant, or several of them that become one.
struct ChangedTurn<'t> {
    /// Role as JSON, with its quotes.
    role: &'t str,
    /// Contents that are neither null nor absent, in order.
    contents: Vec<Raw<'t>>,
    /// Key of the reasoning, and its texts as JSON without quotes.
    reasoning: Option<(&'static str, Vec<Cow<'t, str>>)>,
    /// Calls of tools.
    calls: Vec<Raw<'t>>,
}

impl<'t> ChangedTurn<'t> {
    /// Reads a message; `None` if it has another role, or members that another message could not take over.
    fn of(message: Raw<'t>) -> Option<Self> {
        let mut turn = Self {
            role: "",
            contents: Vec::new(),
            reasoning: None,
            calls: Vec::new(),
        };
        for (key, value) in Members::of(message.get())?.0 {
            match key.as_ref() {
                "role" if matches!(value.get(), "\"user\"" | "\"assistant\"") => {
                    turn.role = value.get()
                }
                _ if value.get() == "null" => {}
                "content" => turn.contents.push(value),
                "tool_calls" => turn.calls = json::elements(value.get())?.collect(),
                key => {
                    let key = REASONING.into_iter().find(|own| *own == key)?;
                    let text = Text::of(value)?;
                    if !text.is_empty() {
                        turn.reasoning = Some((key, vec![text.spelled().into()]));
                    }
                }
            }
        }
        Some(turn).filter(|turn| !turn.role.is_empty())
    }

    /// Adds a message that follows.
    fn add(&mut self, next: Self) {
        self.contents.extend(next.contents);
        self.calls.extend(next.calls);
        match (&mut self.reasoning, next.reasoning) {
            (Some((_, own)), Some((_, texts))) => own.extend(texts),
            (own @ None, reasoning) => *own = reasoning,
            (Some(_), None) => {}
        }
    }

    /// Returns all contents as one text, as JSON without quotes; `None` if one of them is more than text.
    fn text(&self) -> Option<String> {
        let texts: Option<Vec<_>> = self
            .contents
            .iter()
            .map(|content| joined(content.get(), "\n"))
            .collect();
        Some(
            texts?
                .into_iter()
                .filter(|text| !text.is_empty())
                .collect::<Vec<_>>()
                .join(BLANK_LINE),
        )
    }

    /// Returns the contents as parts, without the brackets of their list.
    fn inner_parts(&self) -> String {
        let part = |content: &Raw<'_>| match content.get().strip_prefix('[') {
            Some(list) => list.strip_suffix(']').unwrap_or(list).to_owned(),
            None => format!("{{\"type\":\"text\",\"text\":{}}}", content.get()),
        };
        let parts = self
            .contents
            .iter()
            .map(part)
            .filter(|part| !part.trim().is_empty());
        parts.collect::<Vec<_>>().join(",")
    }

    /// Returns the message as JSON.
    fn written(&self) -> String {
        let content = match self.text() {
            _ if self.contents.is_empty() => "null".to_owned(),
            Some(text) => format!("\"{text}\""),
            None => format!("[{}]", self.inner_parts()),
        };
        let mut out = format!("{{\"role\":{},\"content\":{content}", self.role);
        if let Some((key, texts)) = &self.reasoning {
            out += &format!(",\"{key}\":\"{}\"", texts.join(BLANK_LINE));
        }
        if !self.calls.is_empty() {
            let calls: Vec<_> = self.calls.iter().map(|call| call.get()).collect();
            out += &format!(",\"tool_calls\":[{}]", calls.join(","));
        }
        out + "}"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(fallback: Fallback, messages: &str) -> String {
        let body = Bytes::from(format!("{{\"a\":1,\"messages\": {messages} ,\"b\":2}}"));
        let adapted = AdaptedBody {
            body: body.into(),
            rules: Vec::new(),
        };
        let body = super::changed(adapted, Fallbacks::default().with(fallback))
            .body
            .joined();
        let text = std::str::from_utf8(&body).unwrap();
        let list = text.strip_prefix("{\"a\":1,\"messages\": ").unwrap();
        list.strip_suffix(" ,\"b\":2}").unwrap().to_owned()
    }

    #[test]
    fn neighbours_of_one_role_become_one() {
        for (messages, expected) in [
            // Texts; a system message and the results of tools stay.
            (
                r#"[{"role":"system","content":"s"},{"role":"user","content":"a\n"},{"role":"user","content":"b"}]"#,
                r#"[{"role":"system","content":"s"},{"role":"user","content":"a\n\n\nb"}]"#,
            ),
            (
                r#"[{"role":"tool","content":"a"},{"role":"tool","content":"b"}]"#,
                r#"[{"role":"tool","content":"a"},{"role":"tool","content":"b"}]"#,
            ),
            // Pictures beside text; parts of text alone are text.
            (
                r#"[{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]},{"role":"user","content":"b"},{"role":"user","content":[]}]"#,
                r#"[{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}},{"type":"text","text":"b"}]}]"#,
            ),
            (
                r#"[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"user","content":"b"}]"#,
                r#"[{"role":"user","content":"a\n\nb"}]"#,
            ),
            // What the assistant said, thought and called.
            (
                r#"[{"role":"assistant","content":"a","reasoning":"r"},{"role":"assistant","content":null,"reasoning":"q","tool_calls":[{"id":"c"}]}]"#,
                r#"[{"role":"assistant","content":"a","reasoning":"r\n\nq","tool_calls":[{"id":"c"}]}]"#,
            ),
            // Others speak.
            (
                r#"[{"role":"user","content":"a","name":"x"},{"role":"user","content":"b"}]"#,
                r#"[{"role":"user","content":"a","name":"x"},{"role":"user","content":"b"}]"#,
            ),
        ] {
            assert_eq!(changed(Fallback::RolesMerged, messages), expected);
        }
    }

    #[test]
    fn images_leave_the_results_of_tools() {
        const IMAGE: &str = r#"{"type":"image_url","image_url":{"url":"u"}}"#;
        let result =
            |content: &str| format!(r#"{{"role":"tool","tool_call_id":"c","content":{content}}}"#);
        let both = result(&format!(r#"[{{"type":"text","text":"see\n"}},{IMAGE}]"#));
        let shown = format!(r#"{{"type":"text","text":"[image 1]"}},{IMAGE}"#);
        for (messages, expected) in [
            (
                format!("[{both}]"),
                format!(
                    r#"[{},{{"role":"user","content":[{shown}]}}]"#,
                    result(r#""see\n\n[image 1]""#)
                ),
            ),
            (
                format!(
                    r#"[{both},{},{{"role":"user","content":"go on"}}]"#,
                    result("\"t\"")
                ),
                format!(
                    r#"[{},{},{{"role":"user","content":[{shown},{{"type":"text","text":"go on"}}]}}]"#,
                    result(r#""see\n\n[image 1]""#),
                    result("\"t\"")
                ),
            ),
            (
                format!(
                    r#"[{},{{"role":"assistant","content":"a"}}]"#,
                    result(&format!("[{IMAGE}]"))
                ),
                format!(
                    r#"[{},{{"role":"user","content":[{shown}]}},{{"role":"assistant","content":"a"}}]"#,
                    result("\"[image 1]\"")
                ),
            ),
            (
                format!("[{}]", result("\"t\"")),
                format!("[{}]", result("\"t\"")),
            ),
        ] {
            assert_eq!(changed(Fallback::ImagesAfterTools, &messages), expected);
        }
    }

    #[test]
    fn text_beside_calls_and_reasoning_is_reasoning() {
        for (messages, expected) in [
            (
                r#"[{"role":"assistant","content":"t","reasoning_content":"r","tool_calls":[{"id":"c"}]}]"#,
                r#"[{"role":"assistant","content":"","reasoning_content":"r\n\nt","tool_calls":[{"id":"c"}]}]"#,
            ),
            (
                r#"[{"role":"assistant","content":"t","reasoning_content":"r"}]"#,
                r#"[{"role":"assistant","content":"t","reasoning_content":"r"}]"#,
            ),
            (
                r#"[{"role":"assistant","content":"t","tool_calls":[{"id":"c"}]}]"#,
                r#"[{"role":"assistant","content":"t","tool_calls":[{"id":"c"}]}]"#,
            ),
        ] {
            assert_eq!(changed(Fallback::TextInReasoning, messages), expected);
        }
    }
}
