//! Conversion of a Responses request to Chat Completions (wire-format 4.2, 4.3).
//!
//! Takes: the request, stored items of earlier turns, the engine's capabilities. Gives: the engine's request, written
//! anew, with the fields that the API does not name where the options pass them. Never: a null, an empty list of tools.

use super::input;
use super::inputs::{Capabilities, ChatInputs};
use super::item::Item;
use super::sealed::Unseal;
use super::turns::{drop_oldest, turns};
use super::{ResponsesMode, ResponsesRequest};
use crate::json::{Raw, Text, write_string};
use crate::request::refusals::invalid;
use crate::request::turn::InputTurn;
use crate::request::{
    MOST_FOR_PROMPT, RETURN_PROMPT_TEXT, RETURN_TOKEN_IDS, SKIP_SPECIAL_TOKENS, reasons, set_effort,
};
use crate::wire::fault::{Failure, Fault};
use crate::wire::ident;
use crate::wire::options::{
    Harmony, InstructionsRole, Options, Parser, PromptCacheKey, RequestUnknown,
};
use crate::wire::{EngineFacts, OutputConstraints, TextFormat};
use bytes::{BufMut, Bytes, BytesMut};
use std::borrow::Cow;
use std::collections::HashMap;

impl ResponsesRequest {
    /// Builds the body of a chat request in the API's form; the engine's own deviations are left to its rules.
    ///
    /// # Errors
    /// Fails on an output without its call, a sealed summary that cannot be opened, an unresolved reference, or an
    /// input that leaves no message for the model.
    pub fn chat(
        &self,
        inputs: &ChatInputs<'_>,
        takes: &Capabilities,
        options: &Options,
    ) -> Result<Bytes, Failure> {
        let mut out =
            BytesMut::with_capacity(self.input.iter().map(Bytes::len).sum::<usize>() + 1024);
        self.write_model(inputs, &mut out);
        out.extend_from_slice(b"\"messages\":[");
        self.write_messages(inputs, options, &mut out)?;
        out.put_u8(b']');
        if self.stream || self.background {
            out.extend_from_slice(b",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
        }
        if let Some(limit) = self.limit {
            out.extend_from_slice(format!(",\"max_completion_tokens\":{limit}").as_bytes());
        }
        for (key, json) in &self.settings.members {
            out.extend_from_slice(format!(",\"{key}\":{json}").as_bytes());
        }
        let script = self.script(inputs.model_alias, takes, options);
        if self.tools.write(ResponsesMode::Chat, &mut out)
            && let Some(parallel) = self.parallel
        {
            out.extend_from_slice(format!(",\"parallel_tool_calls\":{parallel}").as_bytes());
        }
        if let Some(verbosity) = self.settings.verbosity.as_ref().filter(|_| takes.verbosity) {
            out.extend_from_slice(format!(",\"verbosity\":\"{verbosity}\"").as_bytes());
        }
        self.write_cache_salt(takes, options, &mut out);
        let wants_prompt = script.as_ref().is_some_and(TextFormat::wants_prompt);
        let is_special = script.is_some_and(|script| script.needs_special_tokens());
        if is_special && !self.passes(SKIP_SPECIAL_TOKENS, options) {
            out.extend_from_slice(format!(",\"{SKIP_SPECIAL_TOKENS}\":false").as_bytes());
        }
        if takes.token_ids
            && options.harmony == Harmony::Tokens
            && !self.passes(RETURN_TOKEN_IDS, options)
        {
            out.extend_from_slice(format!(",\"{RETURN_TOKEN_IDS}\":true").as_bytes());
        }
        if wants_prompt && out.len() <= MOST_FOR_PROMPT && !self.passes(RETURN_PROMPT_TEXT, options)
        {
            out.extend_from_slice(format!(",\"{RETURN_PROMPT_TEXT}\":true").as_bytes());
        }
        self.write_unknown(options, &mut out);
        out.put_u8(b'}');
        Ok(out.freeze())
    }

    /// Returns the script that parses reasoning and calls out of the answer's text, or `None` if none is needed.
    /// `alias` is the engine's name for the model.
    pub fn script(
        &self,
        alias: Option<&str>,
        takes: &Capabilities,
        options: &Options,
    ) -> Option<TextFormat> {
        let facts = takes.facts;
        let reads_calls = options.parser != Parser::Off || facts.leaves_calls;
        let tools = if reads_calls {
            self.tools.offered_tools()
        } else {
            String::new()
        };
        let thinks = self.thinks();
        let constrained = self.is_constrained();
        let offer = OutputConstraints {
            tools: &tools,
            required: self.tools.must_call(),
            thinks,
            effort: set_effort(|key| self.member(key)),
            is_part: self.member("stop").is_some_and(|stop| stop != "null"),
            constrained,
        };
        let facts = EngineFacts {
            hides_reasoning: self.hides_reasoning(),
            ..facts
        };
        TextFormat::of(options, alias.unwrap_or(&self.model), offer, facts)
    }

    /// Returns what the request says of thinking, on or off; `None` if nothing.
    pub(super) fn thinks(&self) -> Option<bool> {
        reasons(|key| self.member(key))
    }

    /// Returns the JSON of a member of the chat request.
    fn member(&self, key: &str) -> Option<&str> {
        let member = self
            .settings
            .members
            .iter()
            .find(|(known, _)| *known == key);
        let unknown = || self.unknown.iter().find(|(known, _)| known == key);
        let unknown = || std::str::from_utf8(&unknown()?.1).ok();
        member.map(|(_, json)| json.as_str()).or_else(unknown)
    }

    /// Returns true if the request asks for an answer in a format.
    pub(super) fn is_constrained(&self) -> bool {
        let keeps = |(key, json): &(&str, String)| {
            *key == "response_format" && OutputConstraints::is_format(json)
        };
        self.settings.members.iter().any(keeps)
    }

    fn write_messages(
        &self,
        inputs: &ChatInputs<'_>,
        options: &Options,
        out: &mut BytesMut,
    ) -> Result<(), Failure> {
        let turns = self.turns(inputs, false)?;
        let start = out.len();
        let leading = self.write_leading(&turns, options, out);
        for turn in turns.get(leading..).unwrap_or_default() {
            if out.len() > start {
                out.put_u8(b',');
            }
            turn.write(options.developer_role, "", out);
        }
        match out.len() > start {
            true => Ok(()),
            false => Err(invalid("input", "nothing in it is for the model")),
        }
    }

    /// Writes the instructions and the leading input messages of the same role as one message; returns the number
    /// of turns in it. Many templates take one such message at the beginning, and others leave out the second one
    /// (engines E.2).
    fn write_leading(
        &self,
        turns: &[InputTurn<'_>],
        options: &Options,
        out: &mut BytesMut,
    ) -> usize {
        let given = self
            .instructions()
            .map(|_| match options.instructions_role {
                InstructionsRole::System => "system",
                InstructionsRole::Developer => "developer",
            });
        let lead = |turn: &InputTurn<'_>| turn.leading_role(options.developer_role);
        let Some(role) = given.or_else(|| turns.first().and_then(lead)) else {
            return 0;
        };
        let count = turns
            .iter()
            .take_while(|turn| lead(turn) == Some(role))
            .count();
        out.extend_from_slice(format!("{{\"role\":\"{role}\",\"content\":\"").as_bytes());
        let instructions = self.instructions().cloned();
        let texts = turns.iter().take(count).map(|turn| {
            let mut text = BytesMut::new();
            turn.write_text(&mut text);
            text.freeze()
        });
        for (at, text) in instructions.into_iter().chain(texts).enumerate() {
            if at > 0 {
                out.extend_from_slice(b"\\n\\n");
            }
            // Without the quotes around the string.
            out.extend_from_slice(text.get(1..text.len() - 1).unwrap_or_default());
        }
        out.extend_from_slice(b"\"}");
        count
    }

    /// Writes the opening brace and the model. An engine for which no model name is known chooses by itself
    /// (wire-format 2.10).
    pub(super) fn write_model(&self, inputs: &ChatInputs<'_>, out: &mut BytesMut) {
        out.put_u8(b'{');
        let name = inputs.model_alias.unwrap_or(&self.model);
        if !name.is_empty() {
            out.extend_from_slice(b"\"model\":");
            write_string(name, out);
            out.put_u8(b',');
        }
    }

    /// Converts history and input to turns, minus those to forget. `hosted`: items of hosted tools become turns
    /// too.
    pub(super) fn turns<'a>(
        &'a self,
        inputs: &ChatInputs<'a>,
        hosted: bool,
    ) -> Result<Vec<InputTurn<'a>>, Failure> {
        let unseal: Unseal<'_> = inputs.unseal;
        let items = self.items(inputs)?;
        let turns = turns(items, &self.tools, unseal, hosted);
        let mut turns = turns.map_err(|failure| self.with_history_param(failure))?;
        drop_oldest(&mut turns, inputs.skip_oldest)?;
        Ok(turns)
    }

    /// Returns all items, each with its path for error messages; references are replaced by their items.
    fn items<'a>(
        &'a self,
        inputs: &ChatInputs<'a>,
    ) -> Result<Vec<(Cow<'static, str>, Item<'a>)>, Failure> {
        let mut items = Vec::with_capacity(inputs.history.len() + self.input.len());
        for json in inputs.history {
            let raw = Raw::of(json).ok_or(Fault::Proxy)?;
            let item = input::item(self.history_param().to_owned(), raw, &self.rules);
            items.push((
                self.history_param().into(),
                item.map_err(|failure| self.with_history_param(failure))?,
            ));
        }
        let resolved: HashMap<_, _> = inputs.resolved.iter().copied().collect();
        for (at, json) in self.input.iter().enumerate() {
            let path = format!("input[{at}]");
            let raw = std::str::from_utf8(json)
                .ok()
                .and_then(Raw::of)
                .ok_or(Fault::Proxy)?;
            let mut item = input::item(path.clone(), raw, &self.rules)?;
            if let Item::Reference(id) = &item {
                let json = resolved.get(&at).ok_or_else(|| not_found(*id))?;
                let raw = Raw::of(json).ok_or(Fault::Proxy)?;
                item = input::item(path.clone(), raw, &self.rules)?;
            }
            items.push((path.into(), item));
        }
        Ok(items)
    }

    /// Writes the fields that the API does not name, as far as they may reach the engine.
    pub(super) fn write_unknown(&self, options: &Options, out: &mut BytesMut) {
        for (key, json) in self
            .unknown
            .iter()
            .filter(|(key, _)| self.reaches_engine(key, options))
        {
            out.put_u8(b',');
            write_string(key, out);
            out.put_u8(b':');
            out.extend_from_slice(json);
        }
    }

    /// Returns true if the client sets this field itself and the engine receives it.
    fn passes(&self, key: &str, options: &Options) -> bool {
        self.reaches_engine(key, options) && self.unknown.iter().any(|(own, _)| own == key)
    }

    /// Returns true if a field that the API does not name may reach the engine.
    fn reaches_engine(&self, key: &str, options: &Options) -> bool {
        options.request_unknown == RequestUnknown::Pass || self.rules.allows(key)
    }

    /// Returns the parameter that refers to stored items, to be named in failures.
    pub(super) fn history_param(&self) -> &'static str {
        if self.conversation.is_some() {
            "conversation"
        } else {
            "previous_response_id"
        }
    }

    /// Attributes a failure in a stored item to the parameter that refers to it.
    fn with_history_param(&self, failure: Failure) -> Failure {
        match &failure.param {
            Some(param) if param.starts_with(self.history_param()) => {
                failure.with_param(self.history_param())
            }
            _ => failure,
        }
    }

    /// Writes `cache_salt`, if enabled, so that prompts with different cache keys share no cache in the engine.
    pub(super) fn write_cache_salt(
        &self,
        takes: &Capabilities,
        options: &Options,
        out: &mut BytesMut,
    ) {
        let takes_salt = takes.cache_salt && options.prompt_cache_key == PromptCacheKey::CacheSalt;
        let own = self.passes("cache_salt", options);
        let Some(key) = self
            .cache_key
            .as_deref()
            .filter(|key| takes_salt && !own && !key.is_empty())
        else {
            return;
        };
        out.extend_from_slice(b",\"cache_salt\":");
        // Engines refuse long salts and those that look like paths (engines E.2).
        if key.len() <= 128 && !key.contains(['@', '/', '\\', '\0']) {
            write_string(key, out);
        } else {
            write_string(&ident::sha256_hex(key.as_bytes(), 64), out);
        }
    }
}

fn not_found(id: Text<'_>) -> Failure {
    let id: String = id.decoded().chars().take(64).collect();
    Failure::from(Fault::NotFound)
        .with_message(format!("Item with id '{id}' not found."))
        .with_param("input")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: &str = "thinking-2507";
    const TOOLS: &str = r#"[{"type":"function","function":{"name":"f"}}]"#;

    /// Checks that the request's constraints on the answer's text are found, whichever members are beside them.
    #[test]
    fn the_format_of_the_text_follows_from_the_request() {
        let options = Options {
            parser: Parser::Auto,
            ..Options::default()
        };
        let none = OutputConstraints::default();
        let tools = TOOLS;
        let off = OutputConstraints {
            thinks: Some(false),
            ..none
        };
        for (members, tells_reasoning, constraints, hides) in [
            (r#""user":"none""#, false, none, false),
            (r#""user":"none""#, true, none, true),
            (r#""include_reasoning":false"#, false, none, true),
            (r#""include_reasoning":true"#, false, none, false),
            (
                r#""top_k":1,"chat_template_kwargs":{"enable_thinking":false}"#,
                false,
                off,
                false,
            ),
            (
                r#""temperature":1,"reasoning":{"effort":"none"}"#,
                false,
                off,
                false,
            ),
            (
                r#""temperature":1,"reasoning":{"effort":"low"}"#,
                false,
                none,
                false,
            ),
            (
                r#""temperature":1,"text":{"format":{"type":"json_object"}}"#,
                false,
                OutputConstraints {
                    constrained: true,
                    ..none
                },
                false,
            ),
            (r#""text":{"format":{"type":"text"}}"#, false, none, false),
            (
                r#""tools":[{"type":"function","name":"f"}]"#,
                false,
                OutputConstraints { tools, ..none },
                false,
            ),
            (
                r#""tools":[{"type":"function","name":"f"}],"tool_choice":"required""#,
                false,
                OutputConstraints {
                    tools,
                    required: true,
                    ..none
                },
                false,
            ),
        ] {
            let body = Bytes::from(format!(r#"{{"model":"{MODEL}","input":"a",{members}}}"#));
            let request = ResponsesRequest::recall(&body, &options, ResponsesMode::Chat).unwrap();
            let facts = EngineFacts {
                tells_reasoning,
                leaves_calls: false,
                ..EngineFacts::default()
            };
            let script = request.script(
                None,
                &Capabilities {
                    facts,
                    ..Capabilities::PLAIN
                },
                &options,
            );
            let facts = EngineFacts {
                tells_reasoning: hides,
                leaves_calls: false,
                ..EngineFacts::default()
            };
            let expected = TextFormat::of(&options, MODEL, constraints, facts);
            assert_eq!(format!("{script:?}"), format!("{expected:?}"), "{members}");
        }
    }

    /// The test before compares formats by their text.
    #[test]
    fn formats_are_told_apart() {
        let options = Options {
            parser: Parser::Auto,
            ..Options::default()
        };
        let none = OutputConstraints::default();
        let tools = TOOLS;
        let off = OutputConstraints {
            thinks: Some(false),
            ..none
        };
        let shown = |constraints, tells_reasoning| {
            let facts = EngineFacts {
                tells_reasoning,
                leaves_calls: false,
                ..EngineFacts::default()
            };
            format!("{:?}", TextFormat::of(&options, MODEL, constraints, facts))
        };
        let plain = shown(none, false);
        for other in [
            shown(none, true),
            shown(off, false),
            shown(
                OutputConstraints {
                    constrained: true,
                    ..none
                },
                false,
            ),
            shown(OutputConstraints { tools, ..none }, false),
        ] {
            assert_ne!(plain, other);
        }
        assert_ne!(
            shown(OutputConstraints { tools, ..none }, false),
            shown(
                OutputConstraints {
                    tools,
                    required: true,
                    ..none
                },
                false
            )
        );
    }
}
