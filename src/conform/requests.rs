//! Requests of the suite, and the form in which `doctor` has its own.

use super::group::Group;
use crate::exchange::Request;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

/// Request to any server, for a model whose name is not yet known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Template {
    /// Name, which is also that of the folder of a saved exchange.
    pub(crate) name: &'static str,
    /// Most tokens that the server may generate for it.
    pub(crate) tokens: u32,
    path: &'static str,
    /// Body in which words with a `$` stand for what several have; empty for a GET.
    body: &'static str,
}

/// Values of the words in bodies, beside `$model`.
const WORDS: [(&str, &str); 5] = [
    ("$hello", r#""Say hello in one short sentence.""#),
    (
        "$weather",
        r#""Call the function get_weather for the weather in Paris.""#,
    ),
    (
        "$usage",
        r#""stream":true,"stream_options":{"include_usage":true}"#,
    ),
    (
        "$tools",
        r#""tools":[{"type":"function","function":{$function,"parameters":$schema}}]"#,
    ),
    (
        "$function",
        r#""name":"get_weather","description":"Weather of a city""#,
    ),
];
const SCHEMA: &str =
    r#"{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}"#;

impl Template {
    pub(crate) const fn new(
        name: &'static str,
        tokens: u32,
        path: &'static str,
        body: &'static str,
    ) -> Self {
        Self {
            name,
            tokens,
            path,
            body,
        }
    }

    /// Returns the request, for a model.
    pub(crate) fn for_model(self, model: &str) -> Request {
        let mut body = self.body.to_owned();
        for (word, value) in WORDS {
            body = body.replace(word, value);
        }
        // Text is always JSON.
        let model = serde_json::to_string(model).unwrap_or_default();
        let body = body.replace("$schema", SCHEMA).replace("$model", &model);
        let mut headers = HeaderMap::new();
        if self.path == "/messages" {
            let version = HeaderName::from_static("anthropic-version");
            headers.insert(version, HeaderValue::from_static("2023-06-01"));
        }
        let method = if body.is_empty() {
            Method::GET
        } else {
            Method::POST
        };
        Request {
            method,
            path: self.path.to_owned(),
            headers,
            body: Bytes::from(body),
        }
    }
}

/// Makes an enum of requests, each with its template.
macro_rules! templates {
    ($(#[$meta:meta])* pub enum $Name:ident { $($(#[doc = $doc:literal])+ $one:ident = $template:expr;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $Name { $($(#[doc = $doc])+ $one,)* }

        impl $Name {
            /// List of all, in the order in which they are sent.
            pub const ALL: [Self; { [$(Self::$one,)*].len() }] = [$(Self::$one,)*];

            pub(crate) fn template(self) -> $crate::conform::Template {
                match self { $(Self::$one => $template,)* }
            }

            /// Returns the name, which is also that of the folder of a saved exchange.
            pub fn name(self) -> &'static str {
                self.template().name
            }

            /// Returns the most tokens that the server may generate for it.
            pub fn tokens(self) -> u32 {
                self.template().tokens
            }

            /// Returns the request, for a model.
            pub fn for_model(self, model: &str) -> $crate::exchange::Request {
                self.template().for_model(model)
            }
        }
    };
}
pub(crate) use templates;

templates! {
    /// Request of the suite.
    pub enum SuiteRequest {
        /// List of models.
        Models = Template::new("models", 0, "/models", "");
        /// Chat as a stream, with usage.
        ChatStream = Template::new("chat-stream", 32, "/chat/completions",
            r#"{"model":$model,"messages":[{"role":"user","content":$hello}],"max_tokens":32,$usage}"#);
        /// Chat as a stream, without usage.
        ChatPlain = Template::new("chat-stream-without-usage", 32, "/chat/completions",
            r#"{"model":$model,"messages":[{"role":"user","content":$hello}],"max_tokens":32,"stream":true}"#);
        /// Chat as one object.
        ChatWhole = Template::new("chat-whole", 32, "/chat/completions",
            r#"{"model":$model,"messages":[{"role":"user","content":$hello}],"max_tokens":32}"#);
        /// Chat as a stream, with a function that fits the question. It may reason before it calls it.
        ToolStream = Template::new("chat-tool-stream", 256, "/chat/completions",
            r#"{"model":$model,"messages":[{"role":"user","content":$weather}],"max_tokens":256,$usage,$tools}"#);
        /// Chat as one object, with a function that fits the question.
        ToolWhole = Template::new("chat-tool-whole", 256, "/chat/completions",
            r#"{"model":$model,"messages":[{"role":"user","content":$weather}],"max_tokens":256,$tools}"#);
        /// Completions as a stream, with usage.
        CompletionsStream = Template::new("completions-stream", 32, "/completions",
            r#"{"model":$model,"prompt":"Hello","max_tokens":32,$usage}"#);
        /// Completions as one object.
        CompletionsWhole = Template::new("completions-whole", 32, "/completions",
            r#"{"model":$model,"prompt":"Hello","max_tokens":32}"#);
        /// Responses as a stream.
        ResponsesStream = Template::new("responses-stream", 32, "/responses",
            r#"{"model":$model,"input":$hello,"max_output_tokens":32,"stream":true,"store":false}"#);
        /// Responses as a stream, with a function that fits the question.
        ResponsesTool = Template::new("responses-tool-stream", 256, "/responses",
            concat!(r#"{"model":$model,"input":$weather,"max_output_tokens":256,"stream":true,"store":false,"#,
                r#""tools":[{"type":"function","strict":false,$function,"parameters":$schema}]}"#));
        /// Responses as one object.
        ResponsesWhole = Template::new("responses-whole", 32, "/responses",
            r#"{"model":$model,"input":$hello,"max_output_tokens":32,"store":false}"#);
        /// Messages as a stream.
        MessagesStream = Template::new("messages-stream", 32, "/messages",
            r#"{"model":$model,"messages":[{"role":"user","content":$hello}],"max_tokens":32,"stream":true}"#);
        /// Messages as a stream, with a function that fits the question.
        MessagesTool = Template::new("messages-tool-stream", 256, "/messages",
            concat!(r#"{"model":$model,"messages":[{"role":"user","content":$weather}],"max_tokens":256,"#,
                r#""stream":true,"tools":[{$function,"input_schema":$schema}]}"#));
        /// Messages as one object.
        MessagesWhole = Template::new("messages-whole", 32, "/messages",
            r#"{"model":$model,"messages":[{"role":"user","content":$hello}],"max_tokens":32}"#);
        /// Messages as one object, with a function that fits the question.
        MessagesToolWhole = Template::new("messages-tool-whole", 256, "/messages",
            concat!(r#"{"model":$model,"messages":[{"role":"user","content":$weather}],"max_tokens":256,"#,
                r#""tools":[{$function,"input_schema":$schema}]}"#));
        /// Body that is cut off.
        BadJson = Template::new("error-bad-json", 0, "/chat/completions", r#"{"model":"m","messages":["#);
        /// Model that no server has. A server that should refuse this or the next ones may answer.
        UnknownModel = Template::new("error-unknown-model", 1, "/chat/completions",
            concat!(r#"{"model":"samewire-conform/no-such-model","#,
                r#""messages":[{"role":"user","content":$hello}],"max_tokens":1}"#));
        /// Messages that are a string.
        WrongType = Template::new("error-wrong-type", 1, "/chat/completions",
            r#"{"model":$model,"messages":$hello,"max_tokens":1}"#);
        /// Route that no server has.
        UnknownRoute = Template::new("error-unknown-route", 1, "/samewire-conform/no-such-route",
            r#"{"model":$model,"messages":[{"role":"user","content":$hello}],"max_tokens":1}"#);
    }
}

impl SuiteRequest {
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
            Self::MessagesStream
            | Self::MessagesTool
            | Self::MessagesWhole
            | Self::MessagesToolWhole => Group::Messages,
            Self::BadJson | Self::UnknownModel | Self::WrongType | Self::UnknownRoute => {
                Group::Errors
            }
        }
    }

    /// Returns true if a server need not have the route.
    pub(super) fn optional(self) -> bool {
        matches!(
            self.template().path,
            "/completions" | "/responses" | "/messages"
        )
    }

    /// Returns true if it is a plain chat, which every server answers.
    pub(super) fn is_chat(self) -> bool {
        matches!(self, Self::ChatStream | Self::ChatPlain | Self::ChatWhole)
    }

    /// Returns true if the request asks for a stream.
    pub(super) fn streams(self) -> bool {
        let body = self.template().body;
        body.contains("$usage") || body.contains("\"stream\":true")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Members;

    #[test]
    fn bodies_are_objects_with_the_model() {
        for request in SuiteRequest::ALL
            .into_iter()
            .filter(|request| !matches!(request, SuiteRequest::Models | SuiteRequest::BadJson))
        {
            let sent = request.for_model("a\"b");
            let body = std::str::from_utf8(&sent.body).unwrap();
            let members = Members::of(body).unwrap_or_else(|| panic!("{request:?}: {body}"));
            let model = members.get("model").unwrap().get();
            let is_unknown =
                request == SuiteRequest::UnknownModel && model.contains("no-such-model");
            assert!(model == r#""a\"b""# || is_unknown, "{model}");
            let stream = members
                .get("stream")
                .is_some_and(|stream| stream.get() == "true");
            assert_eq!(
                (stream, body.contains('$')),
                (request.streams(), false),
                "{request:?}"
            );
            let limit = ["max_tokens", "max_output_tokens"]
                .iter()
                .find_map(|name| members.get(name))
                .unwrap();
            assert_eq!(limit.get(), request.tokens().to_string(), "{request:?}");
        }
    }
}
