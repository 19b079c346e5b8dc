//! Questions: the requests that `doctor` sends, and what they may cost.

use crate::conform::{self, HELLO, WEATHER};
use crate::exchange::Request;
use bytes::Bytes;
use http::{HeaderMap, Method};

/// Question to a server: one request, or several alike at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Question {
    /// List of models.
    Models,
    /// Chat as a stream, with usage.
    Stream,
    /// Chat as a stream, without usage.
    StreamPlain,
    /// Chat as one object.
    Whole,
    /// Eight streams at once.
    Eight,
    /// Function that fits the question, as a stream.
    ToolStream,
    /// Function that fits the question, as one object.
    ToolWhole,
    /// Function that must be called, by its name.
    ToolNamed,
    /// Some function must be called.
    ToolRequired,
    /// Question that takes two calls.
    ToolParallel,
    /// System message behind other messages.
    SystemLate,
    /// Two system messages at the beginning.
    SystemTwice,
    /// Message of the role `developer`.
    Developer,
    /// Empty list of tools.
    ToolsEmpty,
    /// Optional members that are null.
    Nulls,
    /// Members that only the service knows.
    ServiceFields,
    /// Content as parts of the type `input_text`, as in Responses.
    InputText,
    /// String that stops the answer.
    Stop,
    /// Log probabilities.
    Logprobs,
    /// Two choices.
    Choices,
    /// `max_completion_tokens`, as a stream that is given up when it goes on.
    Limit,
    /// Output that keeps to a schema.
    Schema,
    /// Body that is no JSON.
    BadJson,
    /// Model that no server has.
    UnknownModel,
    /// Messages that are a string.
    WrongType,
    /// Route that no server has.
    UnknownRoute,
    /// Completions as a stream, with usage.
    CompletionsStream,
    /// Completions as one object.
    CompletionsWhole,
    /// Responses as a stream.
    ResponsesStream,
    /// Messages as a stream.
    MessagesStream,
    /// Embedding of a word.
    Embeddings,
    /// Long stream that is cut off.
    Cut,
}

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
/// Model that no server has.
const NO_MODEL: &str = "samewire-doctor/no-such-model";

/// Question of the answers that show reasoning: models that think only where it is worth it do so, too.
const GREETING: &str = "Say hello in one short sentence, and think before you answer.";
const TWO: &str = "Call get_weather twice: once for the weather in Paris, once for the weather in Rome.";
const COUNT: &str = "Count from 1 to 9, with a comma and a space between the numbers.";
const LONG: &str = "Count from 1 to 500 in words, one number on each line.";
const YEAR: &str = "In which year did the first person stand on the moon? Answer as JSON with the key year.";
const SCHEMA: &str = r#""response_format":{"type":"json_schema","json_schema":{"name":"year","strict":true,"schema":{"type":"object","properties":{"year":{"type":"integer"}},"required":["year"],"additionalProperties":false}}}"#;
const USAGE: &str = r#""stream":true,"stream_options":{"include_usage":true}"#;

impl Question {
    /// List of all questions, in the order in which they are asked.
    pub const ALL: [Self; 32] = [
        Self::Models,
        Self::Stream,
        Self::StreamPlain,
        Self::Whole,
        Self::Eight,
        Self::ToolStream,
        Self::ToolWhole,
        Self::ToolNamed,
        Self::ToolRequired,
        Self::ToolParallel,
        Self::SystemLate,
        Self::SystemTwice,
        Self::Developer,
        Self::ToolsEmpty,
        Self::Nulls,
        Self::ServiceFields,
        Self::InputText,
        Self::Stop,
        Self::Logprobs,
        Self::Choices,
        Self::Limit,
        Self::Schema,
        Self::BadJson,
        Self::UnknownModel,
        Self::WrongType,
        Self::UnknownRoute,
        Self::CompletionsStream,
        Self::CompletionsWhole,
        Self::ResponsesStream,
        Self::MessagesStream,
        Self::Embeddings,
        Self::Cut,
    ];

    /// Returns the name, which is also that of the folder of a saved exchange.
    pub fn name(self) -> &'static str {
        match self {
            Self::Models => "models",
            Self::Stream => "chat-stream",
            Self::StreamPlain => "chat-stream-without-usage",
            Self::Whole => "chat-whole",
            Self::Eight => "chat-eight-at-once",
            Self::ToolStream => "tool-stream",
            Self::ToolWhole => "tool-whole",
            Self::ToolNamed => "tool-named",
            Self::ToolRequired => "tool-required",
            Self::ToolParallel => "tool-two-calls",
            Self::SystemLate => "system-late",
            Self::SystemTwice => "system-twice",
            Self::Developer => "role-developer",
            Self::ToolsEmpty => "tools-empty",
            Self::Nulls => "null-members",
            Self::ServiceFields => "fields-of-the-service",
            Self::InputText => "part-input-text",
            Self::Stop => "stop-string",
            Self::Logprobs => "logprobs",
            Self::Choices => "two-choices",
            Self::Limit => "max-completion-tokens",
            Self::Schema => "json-schema",
            Self::BadJson => "error-bad-json",
            Self::UnknownModel => "error-unknown-model",
            Self::WrongType => "error-wrong-type",
            Self::UnknownRoute => "error-unknown-route",
            Self::CompletionsStream => "completions-stream",
            Self::CompletionsWhole => "completions-whole",
            Self::ResponsesStream => "responses-stream",
            Self::MessagesStream => "messages-stream",
            Self::Embeddings => "embeddings",
            Self::Cut => "chat-cut-off",
        }
    }

    /// Returns the number of requests.
    pub fn requests(self) -> u16 {
        if self == Self::Eight { AT_ONCE } else { 1 }
    }

    /// Returns the most tokens that the server may generate for it.
    pub fn tokens(self) -> u32 {
        match self {
            Self::Models | Self::BadJson | Self::Embeddings | Self::UnknownRoute => 0,
            Self::Eight => u32::from(AT_ONCE) * self.max_tokens(),
            Self::Choices => 2 * self.max_tokens(),
            // A server that ignores the limit is cut off after so many pieces.
            Self::Limit => 64,
            _ => self.contract().map_or_else(|| self.max_tokens(), conform::Ask::tokens),
        }
    }

    /// Returns `max_tokens` of one choice of one request.
    fn max_tokens(self) -> u32 {
        match self {
            Self::Stream | Self::Whole => 128,
            Self::Schema => 64,
            Self::Eight | Self::StreamPlain => 16,
            Self::ToolStream | Self::ToolWhole | Self::ToolParallel => 192,
            Self::ToolNamed | Self::ToolRequired => 128,
            Self::SystemLate | Self::SystemTwice | Self::Developer | Self::Logprobs | Self::Choices => 8,
            Self::Stop => 48,
            Self::Cut => 320,
            _ => 1,
        }
    }

    /// Returns the request of the conformance suite that asks this question, where the suite judges the answer.
    pub(super) fn contract(self) -> Option<conform::Ask> {
        match self {
            Self::Models => Some(conform::Ask::Models),
            Self::CompletionsStream => Some(conform::Ask::CompletionsStream),
            Self::CompletionsWhole => Some(conform::Ask::CompletionsWhole),
            Self::ResponsesStream => Some(conform::Ask::ResponsesStream),
            Self::MessagesStream => Some(conform::Ask::MessagesStream),
            _ => None,
        }
    }

    /// Returns the request, for a model.
    pub(super) fn request(self, model: &str) -> Request {
        if let Some(ask) = self.contract() {
            return ask.request(conform::Model(model));
        }
        let model = if self == Self::UnknownModel { NO_MODEL } else { model };
        // Text is always JSON.
        let model = serde_json::to_string(model).unwrap_or_default();
        let (path, body) = match self {
            Self::Embeddings => ("/embeddings", format!(r#"{{"model":{model},"input":"hello"}}"#)),
            Self::UnknownRoute => ("/samewire-doctor/no-such-route", "{}".to_owned()),
            Self::BadJson => ("/chat/completions", format!(r#"{{"model":{model},"messages":["#)),
            _ => ("/chat/completions", self.chat(&model)),
        };
        Request {
            method: Method::POST,
            path: path.to_owned(),
            headers: HeaderMap::new(),
            body: Bytes::from(body),
        }
    }

    /// Returns the body of a chat request, with the name of the model as JSON text.
    fn chat(self, model: &str) -> String {
        let limit = match self {
            Self::Limit => format!(r#""max_completion_tokens":{LIMIT}"#),
            _ => format!(r#""max_tokens":{}"#, self.max_tokens()),
        };
        // Two runs ought to come to the same findings. Some engines refuse several choices without chance.
        let temperature = u8::from(self == Self::Choices);
        let more = self.members();
        let comma = if more.is_empty() { "" } else { "," };
        format!(
            r#"{{"model":{model},"messages":{},{limit},"temperature":{temperature}{comma}{more}}}"#,
            self.messages()
        )
    }

    fn messages(self) -> String {
        let user = |text: &str| format!(r#"[{{"role":"user","content":"{text}"}}]"#);
        match self {
            Self::ToolStream | Self::ToolWhole | Self::ToolNamed | Self::ToolRequired => user(WEATHER),
            Self::Stream | Self::Whole => user(GREETING),
            Self::ToolParallel => user(TWO),
            Self::Stop | Self::Limit => user(COUNT),
            Self::Cut => user(LONG),
            Self::Schema => user(YEAR),
            Self::WrongType => format!(r#""{HELLO}""#),
            Self::SystemLate => format!(
                r#"[{{"role":"user","content":"Hi."}},{{"role":"assistant","content":"Hello."}},{{"role":"system","content":"Be brief."}},{{"role":"user","content":"{HELLO}"}}]"#
            ),
            Self::SystemTwice => format!(
                r#"[{{"role":"system","content":"Be brief."}},{{"role":"system","content":"Be kind."}},{{"role":"user","content":"{HELLO}"}}]"#
            ),
            Self::Developer => format!(
                r#"[{{"role":"developer","content":"Be brief."}},{{"role":"user","content":"{HELLO}"}}]"#
            ),
            Self::InputText => {
                format!(r#"[{{"role":"user","content":[{{"type":"input_text","text":"{HELLO}"}}]}}]"#)
            }
            _ => user(HELLO),
        }
    }

    /// Returns the members of the body beside model, messages and limit.
    fn members(self) -> String {
        let tools = format!(r#""tools":[{{"type":"function","function":{{{}}}}}]"#, conform::FUNCTION);
        match self {
            Self::Stream | Self::Eight | Self::Limit | Self::Cut => USAGE.to_owned(),
            Self::StreamPlain => r#""stream":true"#.to_owned(),
            Self::ToolStream | Self::ToolParallel => format!("{tools},{USAGE}"),
            Self::ToolWhole => tools,
            Self::ToolNamed => format!(
                r#"{tools},"tool_choice":{{"type":"function","function":{{"name":"{FUNCTION}"}}}},{USAGE}"#
            ),
            Self::ToolRequired => format!(r#"{tools},"tool_choice":"required""#),
            Self::ToolsEmpty => r#""tools":[]"#.to_owned(),
            Self::Nulls => {
                r#""n":null,"stop":null,"stream":null,"tools":null,"frequency_penalty":null,"logprobs":null"#
                    .to_owned()
            }
            Self::ServiceFields => {
                r#""store":false,"metadata":{"a":"b"},"user":"u","prompt_cache_key":"k","safety_identifier":"s","service_tier":"auto""#
                    .to_owned()
            }
            Self::Stop => format!(r#""stop":["{STOP}"]"#),
            Self::Logprobs => r#""logprobs":true,"top_logprobs":2"#.to_owned(),
            Self::Choices => r#""n":2"#.to_owned(),
            Self::Schema => SCHEMA.to_owned(),
            _ => String::new(),
        }
    }
}

/// Returns the most tokens that a server may generate for all questions.
pub fn tokens() -> u32 {
    Question::ALL.iter().map(|question| question.tokens()).sum()
}

/// Returns the number of requests of all questions, beside those of [`super::own_requests`].
pub fn requests() -> u16 {
    Question::ALL.iter().map(|question| question.requests()).sum()
}

/// Returns about how many tokens all prompts have, at four bytes of a body for each.
pub fn prompt_tokens() -> usize {
    let bytes = |question: &Question| question.request("").body.len() * usize::from(question.requests());
    Question::ALL.iter().map(bytes).sum::<usize>() / 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Value;
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
            let request = question.request("a\"b");
            let body = Value::read(std::str::from_utf8(&request.body).unwrap());
            if matches!(question, Question::Models | Question::BadJson | Question::UnknownRoute) {
                continue;
            }
            let model = body.text("/model");
            assert!(
                model == "a\"b" || model == NO_MODEL && question == Question::UnknownModel,
                "{question:?}"
            );
            let temperature = body.member("temperature").as_whole();
            let is_chat = question.contract().is_none() && question != Question::Embeddings;
            assert_eq!(
                temperature,
                is_chat.then_some(u64::from(question == Question::Choices)),
                "{question:?}"
            );
            let limits = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
            let limit = limits.iter().find_map(|name| body.member(name).as_whole());
            let choices = body.member("n").as_whole().unwrap_or(1) * u64::from(question.requests());
            match (question, limit) {
                (Question::Embeddings, limit) => assert_eq!(limit, None),
                (Question::Limit, limit) => assert_eq!(limit, Some(LIMIT)),
                (_, limit) => {
                    assert_eq!(limit.unwrap() * choices, u64::from(question.tokens()), "{question:?}");
                }
            }
        }
    }

    #[test]
    fn names_are_folders_of_their_own() {
        let names: BTreeSet<_> = Question::ALL.iter().map(|question| question.name()).collect();
        assert_eq!(names.len(), Question::ALL.len());
    }
}
