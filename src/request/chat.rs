//! Chat Completions requests.
//!
//! Takes: the checked fields of a body. Gives: a [`ChatRequest`] with the places that adaptation may edit. Never: changes
//! the body.

use super::check::{Checked, no_duplicates};
use super::fields::{Edits, Field, place};
use super::parts::AddressCheck;
use super::refusals::invalid;
use super::{ChatRequest, NumberedMessage, TextSpans};
use crate::json::{self, Raw, Text};
use crate::wire::fault::Failure;

/// Fields that the API names, including those of its streaming and legacy forms.
pub(super) const KNOWN: &[&str] = &[
    "model",
    "messages",
    "stream",
    "stream_options",
    "n",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "stop",
    "seed",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "reasoning_effort",
    "reasoning",
    "user",
    "metadata",
    "store",
    "service_tier",
    "modalities",
    "audio",
    "prediction",
    "verbosity",
    "web_search_options",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "moderation",
    "functions",
    "function_call",
];

/// Maximum number of parts in the content of one message; no engine reads as many (faults C46).
const PARTS: usize = 1 << 16;
/// Average number of members per message that limits the total over all structured messages; no engine's messages
/// have more.
const MEMBERS: usize = 8;
/// Number of messages whose members are always allowed, even under a lower limit on messages.
const FEW: usize = 1 << 10;

/// Parses a chat request. `complete`: missing required parameters are an error.
pub(super) fn read(from: &Checked<'_>, complete: bool) -> Result<ChatRequest, Failure> {
    let (media, notable) = match from.required("messages", complete)? {
        Some(_) => messages(from)?,
        None => Default::default(),
    };
    let streaming = from.streaming()?;
    let max_tokens = from.tokens("max_tokens", 1)?;
    // If both are set, the newer field counts (engines E.2).
    let limit = match from.get("max_completion_tokens") {
        Some(_) => from.tokens("max_completion_tokens", 1)?,
        None => max_tokens,
    };
    check_sampling(from)?;
    let tools = from
        .limited("tools", from.caps().tools, "max_tools")?
        .unwrap_or_default();
    if from
        .get("functions")
        .is_some_and(|functions| functions.value.get().starts_with('['))
    {
        from.limited("functions", from.caps().tools, "max_tools")?;
    }
    let forced_function = forced_function(from)?;
    if complete && tools.is_empty() && from.get("functions").is_none() {
        forces_nothing(from)?;
    }
    let mut custom = Vec::new();
    for (at, tool) in tools.iter().enumerate() {
        if !tool.get().starts_with('{') {
            return Err(invalid(format!("tools[{at}]"), "it must be an object"));
        }
        custom.extend(custom_name(*tool));
    }
    let model = from.string("model")?.unwrap_or_default();
    let choices = u32::try_from(from.answer_count("n")?.unwrap_or(1)).unwrap_or(1);
    Ok(ChatRequest {
        model,
        stream: streaming.stream,
        choices,
        include_usage: streaming.include_usage,
        continuous_usage: streaming.continuous_usage,
        include_obfuscation: streaming.include_obfuscation,
        logprobs: from.flag("logprobs")?,
        extensions: from.extensions(),
        limit,
        forced_function,
        one_call: from
            .get("parallel_tool_calls")
            .is_some_and(|parallel| parallel.value.get() == "false"),
        custom_tools: custom,
        legacy_functions: from.get("functions").is_some() && from.get("tools").is_none(),
        hides_reasoning: from
            .get("include_reasoning")
            .is_some_and(|value| value.value.get() == "false"),
        places: TextSpans {
            model: from.place("model"),
            messages: from.place("messages"),
            stream_options: from.place("stream_options"),
            media,
            structured: notable,
            ..TextSpans::default()
        },
        ..ChatRequest::default()
    })
}

/// Checks parameters that samewire only passes on, against the ranges of the API's reference.
fn check_sampling(from: &Checked<'_>) -> Result<(), Failure> {
    from.sampling()?;
    from.top_logprobs("top_logprobs")?;
    from.stop()?;
    from.flag("parallel_tool_calls")?;
    match from.get("metadata") {
        Some(metadata) => from.check_pair_count(&from.object("metadata", metadata)?),
        None => Ok(()),
    }
}

/// Checks the structure that every chat template needs: a list of objects with a role and content of a known kind.
/// Returns the edits to media addresses, and the structured messages with their indices and ranges.
pub(super) fn messages(from: &Checked<'_>) -> Result<(Edits, Vec<NumberedMessage>), Failure> {
    let all = from
        .limited("messages", from.caps().messages, "max_messages")?
        .unwrap_or_default();
    if all.is_empty() {
        return Err(invalid("messages", "it must not be empty"));
    }
    let mut judge = AddressCheck::new(from.text, &from.strings, &from.rules.media);
    let mut notable = Vec::new();
    // Members of structured messages, each of which is parsed again for the engine (property P15).
    let (mut count, most) = (0, from.caps().messages.max(FEW).saturating_mul(MEMBERS));
    for (at, message) in all.iter().enumerate() {
        let path = format_args!("messages[{at}]");
        if !message.get().starts_with('{') {
            return Err(invalid(path.to_string(), "it must be an object"));
        }
        let members = from.members(*message)?;
        no_duplicates(
            &members,
            &[
                "role",
                "content",
                "tool_calls",
                "reasoning",
                "reasoning_content",
            ],
            format_args!("{path}."),
        )?;
        let find = |key: &str| {
            members
                .iter()
                .find(|member| member.key == key)
                .map(|member| member.value)
        };
        if find("role").and_then(Text::of).is_none() {
            return Err(invalid(format!("{path}.role"), "it must be a string"));
        }
        if find("content").is_some_and(|content| !content.get().starts_with(['"', '[', 'n'])) {
            return Err(invalid(
                format!("{path}.content"),
                "it must be a string, a list of parts or null",
            ));
        }
        if find("tool_calls").is_some_and(|calls| !calls.get().starts_with(['[', 'n'])) {
            return Err(invalid(format!("{path}.tool_calls"), "it must be a list"));
        }
        if let Some(content) = find("content") {
            check_parts(from, content, || format!("{path}.content"))?;
            judge.content(content, || format!("{path}.content"))?;
        }
        if !is_plain(&members, at + 1 == all.len()) {
            count += members.len();
            if count > most {
                return Err(invalid(
                    "messages",
                    &format!("they may have at most {most} members together"),
                ));
            }
            notable.push((at, place(from.text, message.get())));
        }
    }
    Ok((judge.edits, notable))
}

/// Fails if content has more parts than a message may have. Short content cannot exceed the limit and is not
/// parsed.
fn check_parts(
    from: &Checked<'_>,
    content: Raw<'_>,
    path: impl Fn() -> String,
) -> Result<(), Failure> {
    let content = content.get();
    if content.len() > PARTS
        && from
            .strings
            .elements(content)
            .is_some_and(|parts| parts.count() > PARTS)
    {
        return Err(invalid(
            path(),
            &format!("it may have at most {PARTS} parts"),
        ));
    }
    Ok(())
}

/// Returns true for a plain text message, which every engine accepts unchanged. A final assistant message is not
/// plain, since the engine may have to continue it.
fn is_plain(members: &[Field<'_>], is_last: bool) -> bool {
    members.iter().all(|member| match member.key.as_ref() {
        "role" => match member.value.get() {
            "\"assistant\"" => !is_last,
            role => matches!(role, "\"user\"" | "\"system\"" | "\"tool\""),
        },
        "content" => member.value.get().starts_with('"'),
        key => matches!(key, "name" | "tool_call_id"),
    })
}

/// Returns the name of a custom tool; `None` for other tools.
fn custom_name(tool: Raw<'_>) -> Option<String> {
    memchr::memmem::find(tool.get().as_bytes(), b"\"custom\"")?;
    json::member(json::raw_member(tool.get(), "custom")?.get(), "name")
}

/// Fails on a `tool_choice` that requires a call although there are no tools: vLLM, SGLang and the service refuse
/// it (capture sglang-0.5.12/err-tool-choice-required-no-tools).
fn forces_nothing(from: &Checked<'_>) -> Result<(), Failure> {
    let Some(field) = from.get("tool_choice") else {
        return Ok(());
    };
    let kind = || json::member(field.value.get(), "type");
    let forces = field.value.get() == "\"required\""
        || field.value.get().starts_with('{')
            && matches!(kind().as_deref(), Some("function" | "custom"));
    if forces {
        Err(invalid(
            "tool_choice",
            "it requires a call, but the request has no tools",
        ))
    } else {
        Ok(())
    }
}

/// Returns the function or custom tool that `tool_choice` forces. Fails on an invalid choice.
fn forced_function(from: &Checked<'_>) -> Result<Option<String>, Failure> {
    let Some(field) = from.get("tool_choice") else {
        return Ok(None);
    };
    if let Some(word) = Text::of(field.value) {
        return match word.decoded().as_ref() {
            "none" | "auto" | "required" => Ok(None),
            _ => Err(invalid(
                "tool_choice",
                "it must be none, auto, required or an object",
            )),
        };
    }
    let choice = from.object("tool_choice", field)?;
    no_duplicates(&choice, &["type", "function", "custom"], "tool_choice.")?;
    fn member<'a>(members: &[Field<'a>], key: &str) -> Option<Raw<'a>> {
        members
            .iter()
            .find(|member| member.key == key)
            .map(|member| member.value)
    }
    let tool = ["custom", "function"]
        .into_iter()
        .find_map(|kind| Some((kind, member(&choice, kind)?)));
    let Some((kind, tool)) = tool else {
        return Ok(None);
    };
    let path = format!("tool_choice.{kind}");
    let tool = from
        .members(tool)
        .map_err(|_| invalid(&*path, "it must be an object"))?;
    no_duplicates(&tool, &["name"], format_args!("{path}."))?;
    let name = member(&tool, "name")
        .and_then(Text::of)
        .map(|name| name.decoded().into_owned());
    name.map(Some)
        .ok_or_else(|| invalid(format!("{path}.name"), "it must be a string"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Caps, Rules};
    use crate::wire::Api;
    use bytes::Bytes;

    fn read(body: &str, rules: &Rules) -> Result<ChatRequest, Failure> {
        ChatRequest::read_for(Api::Chat, &Bytes::from(body.to_owned()), None, rules)
    }

    fn with(members: &str) -> Result<ChatRequest, Failure> {
        read(
            &format!(r#"{{"messages":[{{"role":"user","content":"a"}}],{members}}}"#),
            &Rules::ANSWERED,
        )
    }

    /// Structured messages are parsed once more for the engine: all of them together are limited (property P15).
    #[test]
    fn structured_messages_have_a_limited_number_of_members() {
        let message =
            |members: usize| format!(r#"{{"role":"user"{}}}"#, ",\"a\":0".repeat(members - 1));
        let rules = Rules {
            caps: Caps {
                messages: 3,
                ..Caps::PLAIN
            },
            ..Rules::ANSWERED
        };
        let read = |counts: &[usize]| {
            let messages: Vec<_> = counts.iter().map(|count| message(*count)).collect();
            read(
                &format!("{{\"messages\":[{}]}}", messages.join(",")),
                &rules,
            )
        };
        assert!(read(&[4096, 4095, 1]).is_ok());
        assert!(read(&[4096, 4096]).is_ok(), "8192 members");
        let failure = read(&[4096, 4096, 3]).unwrap_err();
        assert_eq!(failure.param.as_deref(), Some("messages"));
        assert_eq!(
            failure.message,
            "Invalid value for 'messages': they may have at most 8192 members together."
        );
    }

    #[test]
    fn content_has_a_limited_number_of_parts() {
        let content = |content: &str| {
            read(
                &format!(r#"{{"messages":[{{"role":"user","content":{content}}}]}}"#),
                &Rules::ANSWERED,
            )
        };
        let parts = |count: usize| content(&format!("[{}0]", "0,".repeat(count - 1)));
        assert!(parts(65_536).is_ok());
        let failure = parts(65_537).unwrap_err();
        assert_eq!(failure.param.as_deref(), Some("messages[0].content"));
        assert_eq!(
            failure.message,
            "Invalid value for 'messages[0].content': it may have at most 65536 parts."
        );
        let text = "a".repeat(70_000);
        assert!(
            content(&format!("\"{text}\"")).is_ok(),
            "a long text is one part"
        );
        assert!(content(&format!(r#"[{{"type":"text","text":"{text}"}}]"#)).is_ok());
    }

    #[test]
    fn no_call_can_be_required_without_tools() {
        for choice in [
            r#""required""#,
            r#"{"type":"function","function":{"name":"f"}}"#,
            r#"{"type":"custom","custom":{"name":"c"}}"#,
        ] {
            let failure = with(&format!("\"tool_choice\":{choice}")).unwrap_err();
            assert_eq!(
                (failure.param.as_deref(), failure.message.as_ref()),
                (
                    Some("tool_choice"),
                    "Invalid value for 'tool_choice': it requires a call, but the request has no tools."
                ),
                "{choice}"
            );
        }
        for choice in [
            r#""none""#,
            r#""auto""#,
            "null",
            r#"{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}}"#,
        ] {
            assert!(
                with(&format!("\"tool_choice\":{choice}")).is_ok(),
                "{choice}"
            );
        }
        assert!(with(r#""tool_choice":"required","functions":[{"name":"f"}]"#).is_ok());
    }

    #[test]
    fn the_forced_tool_is_the_one_that_the_choice_names() {
        let tools = r#"{"type":"function","function":{"name":"f"}},{"type":"custom","custom":{"name":"c"}}"#;
        for (choice, forced) in [
            (r#"{"type":"function","function":{"name":"f"}}"#, Some("f")),
            (
                r#"{"function":{"strict":true,"name":"f"},"type":"function"}"#,
                Some("f"),
            ),
            (r#"{"type":"custom","custom":{"name":"c"}}"#, Some("c")),
            (r#""required""#, None),
            (
                r#"{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}}"#,
                None,
            ),
        ] {
            let request = with(&format!("\"tools\":[{tools}],\"tool_choice\":{choice}")).unwrap();
            assert_eq!(request.forced_function.as_deref(), forced, "{choice}");
            assert_eq!(request.custom_tools, ["c"]);
        }
    }
}
