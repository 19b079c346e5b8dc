//! Checker of one answer: reads its frames, and has them judged by schema and grammar.

use super::chat::Chunks;
use super::frames::{Frame, frames};
use super::messages::Message;
use super::responses::Events;
use super::rule::Rule;
use super::schema::error;
use super::violation::{Broken, Form, Violation};
use crate::tree::Value;
use crate::wire::Api;

/// Checker of one answer.
#[derive(Debug)]
pub struct AnswerContract {
    form: Form,
    grammar: Grammar,
}

/// Grammar of a stream, by the client's API.
#[derive(Debug)]
enum Grammar {
    Chunks(Chunks),
    Events(Box<Events>),
    Message(Message),
}

impl AnswerContract {
    /// Creates the checker of an answer in this API and form.
    pub fn new(api: Api, form: Form) -> Self {
        let grammar = match api {
            Api::Chat => Grammar::Chunks(Chunks::chat()),
            Api::Completions => Grammar::Chunks(Chunks::completions()),
            Api::Responses => Grammar::Events(Box::default()),
            Api::Messages => Grammar::Message(Message::default()),
        };
        Self { form, grammar }
    }

    /// Checks bytes that follow those checked before: whole frames, or the object.
    pub fn check(&mut self, bytes: &[u8], violations: &mut Vec<Violation>) {
        let all = frames(self.form, bytes);
        let count = all.len();
        for (number, frame) in all.into_iter().enumerate() {
            let at = frame.map_or_else(|(at, _)| at, |frame| frame.at);
            let judged =
                frame.map_err(|(_, rule)| (rule, String::new())).and_then(|frame| self.frame(&frame));
            if let Err((rule, place)) = judged {
                violations.push(Violation { rule, place, at, frames: (count - number) as u64 });
            }
        }
    }

    /// Checks that the answer, which is complete, has its end. An object has none.
    pub fn end(&self, violations: &mut Vec<Violation>) {
        let has_ended = match &self.grammar {
            _ if self.form == Form::Whole => true,
            Grammar::Chunks(chunks) => chunks.has_ended(),
            Grammar::Events(events) => events.has_ended(),
            Grammar::Message(message) => message.has_ended(),
        };
        if !has_ended {
            violations.push(Violation { rule: Rule::EndMissing, place: String::new(), at: 0, frames: 0 });
        }
    }

    /// Checks the object of an answer that has ended, which its stream does not hold yet.
    pub fn check_object(api: Api, object: &[u8], violations: &mut Vec<Violation>) {
        Self::new(api, Form::Whole).check(object, violations);
    }

    /// Checks the body of an HTTP error.
    pub fn check_error(api: Api, body: &[u8], violations: &mut Vec<Violation>) {
        let judged = match std::str::from_utf8(body).ok().and_then(Value::parse) {
            None => Err((Rule::Framing, String::new())),
            Some(value) if api == Api::Messages => super::messages::error(&value),
            Some(value) => error(&value),
        };
        if let Err((rule, place)) = judged {
            violations.push(Violation { rule, place, at: 0, frames: 1 });
        }
    }

    fn frame(&mut self, frame: &Frame<'_>) -> Result<(), Broken> {
        if self.form != Form::Whole && frame.data == "[DONE]" {
            return match &mut self.grammar {
                Grammar::Chunks(chunks) => chunks.done(),
                Grammar::Events(events) => events.done(),
                Grammar::Message(_) => Err((Rule::Order, "[DONE]".to_owned())),
            };
        }
        let value = Value::parse(frame.data).ok_or_else(|| (Rule::Framing, "JSON".to_owned()))?;
        match &mut self.grammar {
            Grammar::Chunks(chunks) if self.form == Form::Whole => chunks.object(value),
            Grammar::Chunks(chunks) => chunks.chunk(frame.name.unwrap_or_default(), value),
            Grammar::Events(_) if self.form == Form::Whole => super::responses::object(value),
            Grammar::Events(events) => events.event(frame.name, value),
            Grammar::Message(_) if self.form == Form::Whole => super::messages::object(&value),
            Grammar::Message(message) => message.event(frame.name.unwrap_or_default(), &value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Members;
    use std::path::Path;

    /// Canonical answer of a test vector: its API, its form and its bytes.
    fn vector(name: &str) -> (Api, Form, u64, String) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/vectors/{name}.json"));
        let text = std::fs::read_to_string(path).unwrap();
        let vector = Value::read(&text);
        let api = match vector.text("/client_api") {
            "chat.completions" => Api::Chat,
            "completions" => Api::Completions,
            "responses" => Api::Responses,
            _ => Api::Messages,
        };
        let status = vector.member("expected_status").as_whole().unwrap_or(200);
        match vector.member("expected").as_list() {
            Some(lines) => {
                let lines = lines.iter().map(|line| format!("{}\n", line.as_text().unwrap()));
                (api, Form::Stream, status, lines.collect())
            }
            None => (
                api,
                Form::Whole,
                status,
                Members::of(&text).unwrap().get("expected_body").unwrap().get().to_owned(),
            ),
        }
    }

    fn violations(api: Api, form: Form, text: &str) -> Vec<Violation> {
        let (mut contract, mut found) = (AnswerContract::new(api, form), Vec::new());
        contract.check(text.as_bytes(), &mut found);
        contract.end(&mut found);
        found
    }

    #[test]
    fn canonical_answers_keep_the_contract() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/vectors");
        let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut count = 0;
        for name in names.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()) {
            let (api, form, status, text) = vector(&name);
            let mut found = Vec::new();
            match status {
                400.. => AnswerContract::check_error(api, text.as_bytes(), &mut found),
                _ => found = violations(api, form, &text),
            }
            assert_eq!(found, [], "{name}");
            count += 1;
        }
        assert!(count > 100, "{count}");
    }

    #[test]
    fn changed_answers_violate_their_rule() {
        let (chat, tools, response, message) = (
            "chat-002-sglang-capture",
            "chat-020-tools-vllm",
            "resp-003-tool-calls",
            "msg-005-reasoning-text-tool",
        );
        let first = r#""delta":{"role":"assistant"}"#;
        for (name, from, to, rule) in [
            (chat, "\n\ndata: [DONE]\n", "\ndata: [DONE]\n", Rule::Framing),
            (chat, "data: {", "data: [{", Rule::Framing),
            (chat, "\"created\":1779866808", "\"created\":\"now\"", Rule::Schema),
            (chat, "\"finish_reason\":\"length\"", "\"finish_reason\":\"abort\"", Rule::Schema),
            (chat, first, r#""delta":{"content":"a"}"#, Rule::Role),
            (chat, r#""delta":{"reasoning_content":" need"}"#, r#""delta":{"role":"assistant"}"#, Rule::Role),
            (
                chat,
                r#""delta":{"reasoning_content":"We"},"logprobs":null,"finish_reason":null"#,
                r#""delta":{},"logprobs":null,"finish_reason":"stop""#,
                Rule::Finish,
            ),
            (chat, "\"finish_reason\":\"length\"", "\"finish_reason\":null", Rule::Finish),
            (chat, "data: [DONE]\n\n", "data: [DONE]\n\ndata: [DONE]\n\n", Rule::AfterEnd),
            (chat, "data: [DONE]\n\n", "", Rule::EndMissing),
            (
                tools,
                "\"tool_calls\":[{\"index\":0,\"id\"",
                "\"tool_calls\":[{\"index\":1,\"id\"",
                Rule::ToolCall,
            ),
            (response, "\"sequence_number\":4", "\"sequence_number\":5", Rule::Numbering),
            (response, "\"output_index\":1,\"item\"", "\"output_index\":2,\"item\"", Rule::Order),
            (response, "\"arguments\":\"{}\"}\n", "\"arguments\":\"{ }\"}\n", Rule::Text),
            (response, "event: response.completed\n", "event: response.done\n", Rule::Framing),
            (response, "\"output\":[{", "\"output\":[{\"a\":1,", Rule::Output),
            (message, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n", "", Rule::EndMissing),
            (message, "\"index\":1,\"content_block\"", "\"index\":2,\"content_block\"", Rule::Order),
            (message, "\"stop_reason\":\"tool_use\"", "\"stop_reason\":null", Rule::Schema),
        ] {
            let (api, form, _, text) = vector(name);
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text, "{name}: {from}");
            let found = violations(api, form, &changed);
            assert_eq!(found.first().map(|one| one.rule), Some(rule), "{name}: {from} {found:?}");
        }
    }

    #[test]
    fn the_envelope_and_the_last_figures_are_checked() {
        let (api, form, _, text) = vector("chat-002-sglang-capture");
        let (front, rest) = text.split_at(text.find("data: {").unwrap() + 300);
        let changed = format!("{front}{}", rest.replacen("\"created\":1779866808", "\"created\":1", 1));
        assert_eq!(violations(api, form, &changed)[0].rule, Rule::Envelope);
        let usage = text.rfind("data: {").unwrap();
        let (front, rest) = text.split_at(usage);
        let (frame, end) = rest.split_at(rest.find("data: [DONE]").unwrap());
        let found = violations(api, form, &format!("{front}{frame}{frame}{end}"));
        assert_eq!(found[0].rule, Rule::Usage);
    }

    #[test]
    fn a_violation_has_its_place() {
        let (api, form, _, text) = vector("chat-002-sglang-capture");
        let second = text[1..].find("data: ").unwrap() + 1;
        let changed = format!("{}data: 1\n\n{}", &text[..second], &text[second..]);
        let frames = text.matches("data: ").count() as u64;
        let found = violations(api, form, &changed);
        assert_eq!((found.len(), found[0].at, found[0].frames), (1, second, frames));
    }

    #[test]
    fn an_echoed_prompt_has_no_probability_of_its_first_token() {
        let (api, form, _, text) = vector("cmpl-002-usage");
        let logprobs = |first: &str, second: &str| {
            let logprobs = format!(
                r#""logprobs":{{"tokens":["a","b"],"token_logprobs":[{first},{second}],"top_logprobs":[null,{{}}],"text_offset":[0,1]}}"#
            );
            let changed = text.replacen(r#""logprobs":null"#, &logprobs, 1);
            assert_ne!(changed, text);
            changed
        };
        assert_eq!(violations(api, form, &logprobs("null", "-1")), []);
        assert_eq!(violations(api, form, &logprobs("null", "null"))[0].rule, Rule::Schema);
    }

    #[test]
    fn what_repeats_the_request_is_not_judged() {
        let (api, form, _, text) = vector("resp-003-tool-calls");
        for (from, to) in [
            (r#""reasoning":{"effort":null"#, r#""reasoning":{"effort":1"#),
            (r#""tool_choice":"auto""#, r#""tool_choice":1"#),
            (r#""temperature":1.0"#, r#""temperature":9"#),
        ] {
            let changed = text.replace(from, to);
            assert_ne!(changed, text, "{from}");
            assert_eq!(violations(api, form, &changed), [], "{from}");
        }
    }

    #[test]
    fn a_stream_may_continue_another_in_any_form() {
        let (api, form, _, text) = vector("resp-003-tool-calls");
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let lines: Vec<String> = data.map(|data| format!("{data}\n")).collect();
        assert_eq!(violations(api, form, &lines.concat()), []);
        for start in [2, 7, lines.len() - 1] {
            assert_eq!(violations(api, form, &lines[start..].concat()), [], "{start}");
        }
        assert_eq!(violations(api, form, &lines[3..].concat())[0].rule, Rule::Order);
    }
}
