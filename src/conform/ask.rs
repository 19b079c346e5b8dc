//! Requests of the suite.

use super::group::Group;
use crate::exchange::Request;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

/// Request of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// List of models.
    Models,
    /// Chat as a stream, with usage.
    ChatStream,
    /// Chat as a stream, without usage.
    ChatPlain,
    /// Chat as one object.
    ChatWhole,
    /// Chat as a stream, with a function that fits the question.
    ToolStream,
    /// Chat as one object, with a function that fits the question.
    ToolWhole,
    /// Completions as a stream, with usage.
    CompletionsStream,
    /// Completions as one object.
    CompletionsWhole,
    /// Responses as a stream.
    ResponsesStream,
    /// Responses as a stream, with a function that fits the question.
    ResponsesTool,
    /// Responses as one object.
    ResponsesWhole,
    /// Messages as a stream.
    MessagesStream,
    /// Messages as a stream, with a function that fits the question.
    MessagesTool,
    /// Messages as one object.
    MessagesWhole,
    /// Messages as one object, with a function that fits the question.
    MessagesToolWhole,
    /// Body that is cut off.
    BadJson,
    /// Model that no server has.
    UnknownModel,
    /// Messages that are a string.
    WrongType,
    /// Route that no server has.
    UnknownRoute,
}

/// Name of the model to ask.
#[derive(Clone, Copy, Debug)]
pub struct Model<'a>(pub &'a str);

/// Model that no server has.
const NO_MODEL: &str = "samewire-conform/no-such-model";
/// Questions: one for a short text, and one for a call.
pub(crate) const HELLO: &str = "Say hello in one short sentence.";
pub(crate) const WEATHER: &str = "Call the function get_weather for the weather in Paris.";
/// Members of the function that fits the second question; Messages spell it otherwise.
pub(crate) const FUNCTION: &str = r#""name":"get_weather","description":"Weather of a city","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}"#;
const MESSAGES_FUNCTION: &str = r#""name":"get_weather","description":"Weather of a city","input_schema":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}"#;
/// Members of requests for streams.
const STREAM: &str = r#","stream":true"#;
const STREAM_USAGE: &str = r#","stream":true,"stream_options":{"include_usage":true}"#;
/// Most tokens of a short answer, and of one that may reason before it calls a function.
const SHORT: u32 = 32;
const LONG: u32 = 256;

impl Ask {
    /// List of all requests, in the order in which they are sent.
    pub const ALL: [Self; 19] = [
        Self::Models,
        Self::ChatStream,
        Self::ChatPlain,
        Self::ChatWhole,
        Self::ToolStream,
        Self::ToolWhole,
        Self::CompletionsStream,
        Self::CompletionsWhole,
        Self::ResponsesStream,
        Self::ResponsesTool,
        Self::ResponsesWhole,
        Self::MessagesStream,
        Self::MessagesTool,
        Self::MessagesWhole,
        Self::MessagesToolWhole,
        Self::BadJson,
        Self::UnknownModel,
        Self::WrongType,
        Self::UnknownRoute,
    ];

    /// Returns the name, which is also that of the folder of a saved exchange.
    pub fn name(self) -> &'static str {
        match self {
            Self::Models => "models",
            Self::ChatStream => "chat-stream",
            Self::ChatPlain => "chat-stream-without-usage",
            Self::ChatWhole => "chat-whole",
            Self::ToolStream => "chat-tool-stream",
            Self::ToolWhole => "chat-tool-whole",
            Self::CompletionsStream => "completions-stream",
            Self::CompletionsWhole => "completions-whole",
            Self::ResponsesStream => "responses-stream",
            Self::ResponsesTool => "responses-tool-stream",
            Self::ResponsesWhole => "responses-whole",
            Self::MessagesStream => "messages-stream",
            Self::MessagesTool => "messages-tool-stream",
            Self::MessagesWhole => "messages-whole",
            Self::MessagesToolWhole => "messages-tool-whole",
            Self::BadJson => "error-bad-json",
            Self::UnknownModel => "error-unknown-model",
            Self::WrongType => "error-wrong-type",
            Self::UnknownRoute => "error-unknown-route",
        }
    }

    /// Returns the group of the rows that judge the answer.
    pub(super) fn group(self) -> Group {
        match self {
            Self::Models => Group::Models,
            Self::ChatStream | Self::ChatPlain => Group::ChatStream,
            Self::ChatWhole => Group::ChatWhole,
            Self::ToolStream | Self::ToolWhole => Group::Tools,
            Self::CompletionsStream | Self::CompletionsWhole => Group::Completions,
            Self::ResponsesStream | Self::ResponsesTool => Group::ResponsesStream,
            Self::ResponsesWhole => Group::ResponsesWhole,
            Self::MessagesStream | Self::MessagesTool | Self::MessagesWhole | Self::MessagesToolWhole => {
                Group::Messages
            }
            Self::BadJson | Self::UnknownModel | Self::WrongType | Self::UnknownRoute => Group::Errors,
        }
    }

    /// Returns the most tokens that the server may generate for it.
    pub fn tokens(self) -> u32 {
        match self {
            Self::Models | Self::BadJson => 0,
            // A server that should refuse them may answer.
            Self::UnknownModel | Self::WrongType | Self::UnknownRoute => 1,
            _ if self.has_function() => LONG,
            _ => SHORT,
        }
    }

    /// Returns true if the request has a function, and a question that fits it.
    fn has_function(self) -> bool {
        matches!(
            self,
            Self::ToolStream
                | Self::ToolWhole
                | Self::ResponsesTool
                | Self::MessagesTool
                | Self::MessagesToolWhole
        )
    }

    /// Returns true if a server need not have the route.
    pub(super) fn optional(self) -> bool {
        matches!(
            self.group(),
            Group::Completions | Group::ResponsesStream | Group::ResponsesWhole | Group::Messages
        )
    }

    /// Returns true if it is a plain chat, which every server answers.
    pub(super) fn is_chat(self) -> bool {
        matches!(self, Self::ChatStream | Self::ChatPlain | Self::ChatWhole)
    }

    /// Returns true if the request asks for a stream.
    pub(super) fn streams(self) -> bool {
        matches!(
            self,
            Self::ChatStream
                | Self::ChatPlain
                | Self::ToolStream
                | Self::CompletionsStream
                | Self::ResponsesStream
                | Self::ResponsesTool
                | Self::MessagesStream
                | Self::MessagesTool
        )
    }

    /// Returns the request, for a model.
    pub fn request(self, model: Model<'_>) -> Request {
        let path = match self.group() {
            Group::Models => "/models",
            Group::Completions => "/completions",
            Group::ResponsesStream | Group::ResponsesWhole => "/responses",
            Group::Messages => "/messages",
            _ if self == Self::UnknownRoute => "/samewire-conform/no-such-route",
            _ => "/chat/completions",
        };
        let mut headers = HeaderMap::new();
        if self.group() == Group::Messages {
            let version = HeaderName::from_static("anthropic-version");
            headers.insert(version, HeaderValue::from_static("2023-06-01"));
        }
        let (method, body) = match self {
            Self::Models => (Method::GET, Bytes::new()),
            Self::BadJson => (Method::POST, Bytes::from_static(b"{\"model\":\"m\",\"messages\":[")),
            _ => {
                let name = if self == Self::UnknownModel { NO_MODEL } else { model.0 };
                // Text is always JSON.
                let name = serde_json::to_string(name).unwrap_or_default();
                (Method::POST, Bytes::from(self.body(&name)))
            }
        };
        Request { method, path: path.to_owned(), headers, body }
    }

    /// Returns the body, with the name of the model as JSON text.
    fn body(self, model: &str) -> String {
        let max = self.tokens();
        let ends = match self {
            Self::ChatStream | Self::CompletionsStream => STREAM_USAGE.to_owned(),
            Self::ChatPlain | Self::MessagesStream => STREAM.to_owned(),
            Self::ToolStream => {
                format!("{STREAM_USAGE},\"tools\":[{{\"type\":\"function\",\"function\":{{{FUNCTION}}}}}]")
            }
            Self::ToolWhole => format!(",\"tools\":[{{\"type\":\"function\",\"function\":{{{FUNCTION}}}}}]"),
            Self::ResponsesStream => format!("{STREAM},\"store\":false"),
            Self::ResponsesTool => format!(
                "{STREAM},\"store\":false,\"tools\":[{{\"type\":\"function\",\"strict\":false,{FUNCTION}}}]"
            ),
            Self::ResponsesWhole => ",\"store\":false".to_owned(),
            Self::MessagesTool => format!("{STREAM},\"tools\":[{{{MESSAGES_FUNCTION}}}]"),
            Self::MessagesToolWhole => format!(",\"tools\":[{{{MESSAGES_FUNCTION}}}]"),
            _ => String::new(),
        };
        let text = if self.has_function() { WEATHER } else { HELLO };
        match self {
            Self::CompletionsStream | Self::CompletionsWhole => {
                format!("{{\"model\":{model},\"prompt\":\"Hello\",\"max_tokens\":{max}{ends}}}")
            }
            Self::ResponsesStream | Self::ResponsesTool | Self::ResponsesWhole => {
                format!("{{\"model\":{model},\"input\":\"{text}\",\"max_output_tokens\":{max}{ends}}}")
            }
            Self::WrongType => format!("{{\"model\":{model},\"messages\":\"{text}\",\"max_tokens\":{max}}}"),
            _ => format!(
                "{{\"model\":{model},\"messages\":[{{\"role\":\"user\",\"content\":\"{text}\"}}],\"max_tokens\":{max}{ends}}}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Members;

    #[test]
    fn bodies_are_objects_with_the_model() {
        for ask in Ask::ALL.into_iter().filter(|ask| !matches!(ask, Ask::Models | Ask::BadJson)) {
            let request = ask.request(Model("a\"b"));
            let body = std::str::from_utf8(&request.body).unwrap();
            let members = Members::of(body).unwrap_or_else(|| panic!("{ask:?}: {body}"));
            let model = members.get("model").unwrap().get();
            assert!(model == r#""a\"b""# || ask == Ask::UnknownModel && model.contains(NO_MODEL), "{model}");
            let stream = members.get("stream").is_some_and(|stream| stream.get() == "true");
            assert_eq!(stream, ask.streams(), "{ask:?}");
        }
    }
}
