//! Questions: the requests that `doctor` sends, and what they may cost.

use crate::conform::{SuiteRequest, Template, templates};

/// Number of streams at once.
pub(super) const AT_ONCE: u16 = 8;
/// Pieces of a stream after which it is given up: of one that should have ended, and of one that is cut off.
pub(super) const LIMIT_PIECES: usize = 64;
pub(super) const CUT_PIECES: usize = 3;
/// Limit that the question about `max_completion_tokens` asks for.
pub(super) const LIMIT: u64 = 8;
/// String that stops the answer to the question about it.
pub(super) const STOP: &str = "5";
/// Function of the questions about tools.
pub(super) const FUNCTION: &str = "get_weather";

/// Returns a chat of one user message, whose temperature is 0 so that two runs come to the same findings.
macro_rules! chat {
    ($name:literal, $tokens:literal, $content:literal, $($more:literal),+) => {
        Template::new($name, $tokens, "/chat/completions", concat!(
            r#"{"model":$model,"messages":[{"role":"user","content":"#, $content, "}],", $($more),+, "}"))
    };
}

templates! {
    /// Question to a server: one request, or several alike at once.
    pub enum Question {
        /// List of models.
        Models = SuiteRequest::Models.template();
        /// Chat as a stream, with usage. Models that think only where it is worth it do so, too.
        Stream = chat!("chat-stream", 128, r#""Say hello in one short sentence, and think before you answer.""#,
            r#""max_tokens":128,"temperature":0,$usage"#);
        /// Chat as a stream, without usage.
        StreamPlain = chat!("chat-stream-without-usage", 16, "$hello",
            r#""max_tokens":16,"temperature":0,"stream":true"#);
        /// Chat as one object.
        Whole = chat!("chat-whole", 128, r#""Say hello in one short sentence, and think before you answer.""#,
            r#""max_tokens":128,"temperature":0"#);
        /// Eight streams at once.
        Eight = chat!("chat-eight-at-once", 128, "$hello",
            r#""max_tokens":16,"temperature":0,$usage"#);
        /// Function that fits the question, as a stream.
        ToolStream = chat!("tool-stream", 192, "$weather",
            r#""max_tokens":192,"temperature":0,$tools,$usage"#);
        /// Function that fits the question, as one object.
        ToolWhole = chat!("tool-whole", 192, "$weather",
            r#""max_tokens":192,"temperature":0,$tools"#);
        /// Function that must be called, by its name.
        ToolNamed = chat!("tool-named", 128, "$weather",
            r#""max_tokens":128,"temperature":0,$tools,"#,
                r#""tool_choice":{"type":"function","function":{"name":"get_weather"}},$usage"#);
        /// Some function must be called.
        ToolRequired = chat!("tool-required", 128, "$weather",
            r#""max_tokens":128,"temperature":0,$tools,"tool_choice":"required""#);
        /// Question that takes two calls.
        ToolParallel = chat!("tool-two-calls", 192,
                r#""Call get_weather twice: once for the weather in Paris, once for the weather in Rome.""#,
            r#""max_tokens":192,"temperature":0,$tools,$usage"#);
        /// System message after other messages.
        SystemLate = Template::new("system-late", 8, "/chat/completions", concat!(r#"{"model":$model,"messages":["#,
            r#"{"role":"user","content":"Hi."},{"role":"assistant","content":"Hello."},{"role":"system","content":"Be brief."},"#,
                r#"{"role":"user","content":$hello}],"max_tokens":8,"temperature":0}"#));
        /// Two system messages at the beginning.
        SystemTwice = Template::new("system-twice", 8, "/chat/completions", concat!(r#"{"model":$model,"messages":["#,
            r#"{"role":"system","content":"Be brief."},{"role":"system","content":"Be kind."},"#,
                r#"{"role":"user","content":$hello}],"max_tokens":8,"temperature":0}"#));
        /// Message of the role `developer`.
        Developer = Template::new("role-developer", 8, "/chat/completions", concat!(r#"{"model":$model,"messages":["#,
            r#"{"role":"developer","content":"Be brief."},"#,
                r#"{"role":"user","content":$hello}],"max_tokens":8,"temperature":0}"#));
        /// Empty list of tools.
        ToolsEmpty = chat!("tools-empty", 1, "$hello",
            r#""max_tokens":1,"temperature":0,"tools":[]"#);
        /// Optional members that are null.
        Nulls = chat!("null-members", 1, "$hello",
            r#""max_tokens":1,"temperature":0,"n":null,"stop":null,"stream":null,"tools":null,"#,
                r#""frequency_penalty":null,"logprobs":null"#);
        /// Members that only the service knows.
        ServiceFields = chat!("fields-of-the-service", 1, "$hello",
            r#""max_tokens":1,"temperature":0,"store":false,"metadata":{"a":"b"},"user":"u","#,
                r#""prompt_cache_key":"k","safety_identifier":"s","service_tier":"auto""#);
        /// Content as parts of the type `input_text`, as in Responses.
        InputText = chat!("part-input-text", 1, r#"[{"type":"input_text","text":$hello}]"#,
            r#""max_tokens":1,"temperature":0"#);
        /// String that stops the answer.
        Stop = chat!("stop-string", 48, r#""Count from 1 to 9, with a comma and a space between the numbers.""#,
            r#""max_tokens":48,"temperature":0,"stop":["5"]"#);
        /// Log probabilities.
        Logprobs = chat!("logprobs", 8, "$hello",
            r#""max_tokens":8,"temperature":0,"logprobs":true,"top_logprobs":2"#);
        /// Two choices. Some engines refuse several without chance.
        Choices = chat!("two-choices", 16, "$hello",
            r#""max_tokens":8,"temperature":1,"n":2"#);
        /// `max_completion_tokens`, as a stream that is given up when it goes on, after so many pieces.
        Limit = chat!("max-completion-tokens", 64, r#""Count from 1 to 9, with a comma and a space between the numbers.""#,
            r#""max_completion_tokens":8,"temperature":0,$usage"#);
        /// Output that keeps to a schema.
        Schema = chat!("json-schema", 64,
                r#""In which year did the first person stand on the moon? Answer as JSON with the key year.""#,
            r#""max_tokens":64,"temperature":0,"response_format":{"type":"json_schema","json_schema":{"#,
                r#""name":"year","strict":true,"schema":{"type":"object","properties":{"year":{"type":"integer"}},"#,
                r#""required":["year"],"additionalProperties":false}}}"#);
        /// Body that is no JSON.
        BadJson = Template::new("error-bad-json", 0, "/chat/completions", r#"{"model":$model,"messages":["#);
        /// Model that no server has.
        UnknownModel = Template::new("error-unknown-model", 1, "/chat/completions", concat!(
            r#"{"model":"samewire-doctor/no-such-model","messages":[{"role":"user","content":$hello}],"#,
                r#""max_tokens":1,"temperature":0}"#));
        /// Messages that are a string.
        WrongType = Template::new("error-wrong-type", 1, "/chat/completions",
            r#"{"model":$model,"messages":$hello,"max_tokens":1,"temperature":0}"#);
        /// Route that no server has.
        UnknownRoute = Template::new("error-unknown-route", 0, "/samewire-doctor/no-such-route", "{}");
        /// Completions as a stream, with usage.
        CompletionsStream = SuiteRequest::CompletionsStream.template();
        /// Completions as one object.
        CompletionsWhole = SuiteRequest::CompletionsWhole.template();
        /// Responses as a stream.
        ResponsesStream = SuiteRequest::ResponsesStream.template();
        /// Messages as a stream.
        MessagesStream = SuiteRequest::MessagesStream.template();
        /// Embedding of a word.
        Embeddings = Template::new("embeddings", 0, "/embeddings", r#"{"model":$model,"input":"hello"}"#);
        /// Long stream that is cut off.
        Cut = chat!("chat-cut-off", 320, r#""Count from 1 to 500 in words, one number on each line.""#,
            r#""max_tokens":320,"temperature":0,$usage"#);
    }
}

impl Question {
    /// Returns the number of requests.
    pub fn requests(self) -> u16 {
        if self == Self::Eight { AT_ONCE } else { 1 }
    }

    /// Returns the request of the conformance suite that asks this question, where the suite judges the answer.
    pub(super) fn contract(self) -> Option<SuiteRequest> {
        match self {
            Self::Models => Some(SuiteRequest::Models),
            Self::CompletionsStream => Some(SuiteRequest::CompletionsStream),
            Self::CompletionsWhole => Some(SuiteRequest::CompletionsWhole),
            Self::ResponsesStream => Some(SuiteRequest::ResponsesStream),
            Self::MessagesStream => Some(SuiteRequest::MessagesStream),
            _ => None,
        }
    }
}

/// Returns the most tokens that a server may generate for all questions.
pub fn tokens() -> u32 {
    Question::ALL.iter().map(|question| question.tokens()).sum()
}

/// Returns the number of requests of all questions, beside those of [`super::own_requests`].
pub fn requests() -> u16 {
    Question::ALL
        .iter()
        .map(|question| question.requests())
        .sum()
}

/// Returns about how many tokens all prompts have, at four bytes of a body for each.
pub fn prompt_tokens() -> usize {
    let bytes =
        |question: &Question| question.for_model("").body.len() * usize::from(question.requests());
    Question::ALL.iter().map(bytes).sum::<usize>() / 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{View, read};
    use std::collections::BTreeSet;

    #[test]
    fn questions_cost_at_most_2000_tokens() {
        assert!(tokens() <= 2000, "{}", tokens());
        assert!(prompt_tokens() < 3000, "{}", prompt_tokens());
    }

    /// The limit in each body times its choices must be what is announced.
    #[test]
    fn bodies_ask_for_no_more_than_is_announced() {
        for question in Question::ALL {
            let request = question.for_model("a\"b");
            let body = read(std::str::from_utf8(&request.body).unwrap());
            if matches!(
                question,
                Question::Models | Question::BadJson | Question::UnknownRoute
            ) {
                continue;
            }
            let model = body.text("/model");
            assert!(
                model == "a\"b"
                    || question == Question::UnknownModel && model.contains("no-such-model"),
                "{question:?}"
            );
            let temperature = body["temperature"].as_u64();
            let is_chat = question.contract().is_none() && question != Question::Embeddings;
            assert_eq!(
                temperature,
                is_chat.then_some(u64::from(question == Question::Choices)),
                "{question:?}"
            );
            let limits = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
            let limit = limits.iter().find_map(|name| body[name].as_u64());
            let choices = body["n"].as_u64().unwrap_or(1) * u64::from(question.requests());
            match (question, limit) {
                (Question::Embeddings, limit) => assert_eq!(limit, None),
                (Question::Limit, limit) => assert_eq!(limit, Some(LIMIT)),
                (_, limit) => {
                    assert_eq!(
                        limit.unwrap() * choices,
                        u64::from(question.tokens()),
                        "{question:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn names_are_folders_of_their_own() {
        let names: BTreeSet<_> = Question::ALL
            .iter()
            .map(|question| question.name())
            .collect();
        assert_eq!(names.len(), Question::ALL.len());
    }
}
