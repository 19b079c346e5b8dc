//! Requests of the suite.

use super::row::Group;
use crate::exchange::Request;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Value, json};

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
    /// The same as one object.
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
/// Most tokens of a short answer, and of one that may reason before it calls a function.
const SHORT: u32 = 32;
const LONG: u32 = 256;

impl Ask {
    /// List of all requests, in the order in which they are sent.
    pub const ALL: [Self; 16] = [
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
            Self::BadJson => "error-bad-json",
            Self::UnknownModel => "error-unknown-model",
            Self::WrongType => "error-wrong-type",
            Self::UnknownRoute => "error-unknown-route",
        }
    }

    /// Returns the most tokens that the server may generate for it.
    pub fn tokens(self) -> u32 {
        match self {
            Self::Models | Self::BadJson | Self::UnknownModel | Self::WrongType | Self::UnknownRoute => 0,
            Self::ToolStream | Self::ToolWhole | Self::ResponsesTool => LONG,
            _ => SHORT,
        }
    }

    /// Returns true if a server need not have the route.
    pub(super) fn optional(self) -> bool {
        matches!(
            Group::of(self),
            Group::Completions | Group::ResponsesStream | Group::ResponsesWhole | Group::Messages
        )
    }

    /// Returns true if the request asks for a stream.
    pub(super) fn streams(self) -> bool {
        self.body("").get("stream").is_some_and(|stream| stream == true)
    }

    /// Returns the request, for a model.
    pub(super) fn request(self, model: Model<'_>) -> Request {
        let path = match Group::of(self) {
            Group::Models => "/models",
            Group::Completions => "/completions",
            Group::ResponsesStream | Group::ResponsesWhole => "/responses",
            Group::Messages => "/messages",
            _ if self == Self::UnknownRoute => "/samewire-conform/no-such-route",
            _ => "/chat/completions",
        };
        let mut headers = HeaderMap::new();
        if self == Self::MessagesStream {
            let version = HeaderName::from_static("anthropic-version");
            headers.insert(version, HeaderValue::from_static("2023-06-01"));
        }
        let (method, body) = match self {
            Self::Models => (Method::GET, Bytes::new()),
            Self::BadJson => (Method::POST, Bytes::from_static(b"{\"model\":\"m\",\"messages\":[")),
            _ => (Method::POST, Bytes::from(self.body(model.0).to_string())),
        };
        Request { method, path: path.to_owned(), headers, body }
    }

    fn body(self, model: &str) -> Value {
        let hello = "Say hello in one short sentence.";
        let weather = "What is the weather in Paris? Call the function get_weather.";
        let user = |text: &str| json!([{ "role": "user", "content": text }]);
        let schema = json!({
            "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"],
        });
        let function =
            json!({ "name": "get_weather", "description": "Weather of a city", "parameters": schema });
        let tools = json!([{ "type": "function", "function": function }]);
        let usage = json!({ "include_usage": true });
        let max = self.tokens();
        match self {
            Self::Models | Self::BadJson => json!({}),
            Self::ChatStream => json!({ "model": model, "messages": user(hello), "max_tokens": max,
                "stream": true, "stream_options": usage }),
            Self::ChatPlain => json!({ "model": model, "messages": user(hello), "max_tokens": max,
                "stream": true }),
            Self::ChatWhole => json!({ "model": model, "messages": user(hello), "max_tokens": max }),
            Self::ToolStream => json!({ "model": model, "messages": user(weather), "max_tokens": max,
                "tools": tools, "stream": true, "stream_options": usage }),
            Self::ToolWhole => json!({ "model": model, "messages": user(weather), "max_tokens": max,
                "tools": tools }),
            Self::CompletionsStream => json!({ "model": model, "prompt": "Hello", "max_tokens": max,
                "stream": true, "stream_options": usage }),
            Self::CompletionsWhole => json!({ "model": model, "prompt": "Hello", "max_tokens": max }),
            Self::ResponsesStream => json!({ "model": model, "input": hello, "max_output_tokens": max,
                "store": false, "stream": true }),
            Self::ResponsesTool => json!({ "model": model, "input": weather, "max_output_tokens": max,
                "store": false, "stream": true,
                "tools": [{ "type": "function", "name": "get_weather", "parameters": schema, "strict": false }] }),
            Self::ResponsesWhole => json!({ "model": model, "input": hello, "max_output_tokens": max,
                "store": false }),
            Self::MessagesStream => json!({ "model": model, "messages": user(hello), "max_tokens": max,
                "stream": true }),
            Self::UnknownModel => json!({ "model": NO_MODEL, "messages": user(hello), "max_tokens": 1 }),
            Self::WrongType => json!({ "model": model, "messages": hello, "max_tokens": 1 }),
            Self::UnknownRoute => json!({ "model": model }),
        }
    }
}
