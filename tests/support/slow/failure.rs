//! Failures of every kind, and the error body of each (3.4).

use super::json::{Json, Out};

/// Error on its way to the client, with everything that its body and headers need.
#[derive(Clone, Debug)]
pub struct Failure {
    /// HTTP status, if the response has not begun.
    pub status: u16,
    pub message: String,
    pub kind: String,
    pub param: Option<String>,
    pub code: Option<String>,
    /// Members `plan_type` and `resets_at` of `usage_limit_reached`.
    pub limits: Vec<(&'static str, String)>,
}

impl Failure {
    pub fn incomplete() -> Self {
        Self::own(
            "Upstream connection closed before the answer was complete (stream ended without finish_reason).",
            "upstream_incomplete",
        )
    }

    pub fn aborted() -> Self {
        Self::own(
            "Server error: the upstream engine aborted the request before it was complete.",
            "upstream_aborted",
        )
    }

    pub fn invalid_event() -> Self {
        Self::own(
            "Server error: the upstream engine sent an event that cannot be read.",
            "upstream_invalid_event",
        )
    }

    pub fn nameless_call(streaming: bool) -> Self {
        let failure = Self::own(
            "Server error: the upstream engine sent a tool call without a function name.",
            "upstream_invalid_tool_call",
        );
        Self {
            status: if streaming { 502 } else { 500 },
            ..failure
        }
    }

    /// Returns the error for an answer that cannot be read.
    pub fn unreadable(status: u16) -> Self {
        let message = format!(
            "Server error: the upstream engine returned an invalid response (HTTP {status})."
        );
        let failure = Self::own(&message, "upstream_invalid_response");
        Self {
            status: if (500..600).contains(&status) {
                status
            } else {
                502
            },
            ..failure
        }
    }

    fn own(message: &str, code: &str) -> Self {
        Self {
            status: 502,
            message: message.to_owned(),
            kind: "server_error".to_owned(),
            param: None,
            code: Some(code.to_owned()),
            limits: Vec::new(),
        }
    }

    /// Reads the error in an engine's HTTP response.
    pub fn from_http(status: u16, body: &[u8]) -> Self {
        let said = std::str::from_utf8(body)
            .ok()
            .and_then(Json::parse)
            .and_then(|json| EngineError::read(&json));
        match said {
            Some(said) => said.judge(Some(status)),
            None => Self::unreadable(status),
        }
    }

    /// Reads the error in a JSON object, if it is one (3.2).
    pub fn from_object(json: &Json) -> Option<Self> {
        EngineError::read_event(json).map(|said| said.judge(None))
    }

    /// Reads the data of an event with the name `error`, which is an error in any case.
    pub fn from_error_event(data: &str) -> Self {
        let said = match Json::parse(data) {
            Some(json) => EngineError::read(&json).unwrap_or_else(|| EngineError::flat(&json)),
            None => EngineError {
                message: data.to_owned(),
                ..EngineError::default()
            },
        };
        said.judge(None)
    }

    /// Returns the error object.
    pub fn object(&self) -> Out {
        let mut members = vec![
            ("message", Out::text(&self.message)),
            ("type", Out::text(&self.kind)),
            ("param", Out::text_or_null(self.param.as_deref())),
            ("code", Out::text_or_null(self.code.as_deref())),
        ];
        for (key, raw) in &self.limits {
            members.push((key, Out::Raw(raw.clone())));
        }
        Out::Object(members)
    }

    /// Returns the body of an HTTP error.
    pub fn body(&self) -> String {
        Out::Object(vec![("error", self.object())]).write()
    }
}

/// Engine's error before it is mapped to a row of the table (3.4).
#[derive(Debug, Default)]
struct EngineError {
    message: String,
    kind: String,
    param: Option<String>,
    /// Code, if it is text.
    code: Option<String>,
    /// Code, if it is an HTTP status.
    number: Option<u16>,
    limits: Vec<(&'static str, String)>,
}

impl EngineError {
    fn read(json: &Json) -> Option<Self> {
        Self::read_event(json).or_else(|| Self::detail(json))
    }

    /// Reads the shapes that are an error in a stream whatever the event's name.
    fn read_event(json: &Json) -> Option<Self> {
        json.members()?;
        if let Some(error) = json.get("error") {
            if let Some(text) = error.string() {
                return Some(Self {
                    message: text,
                    ..Self::default()
                });
            }
            if error.members().is_some() {
                return Some(Self::flat(&error));
            }
        }
        let word = |key: &str| {
            json.get(key)
                .and_then(|word| word.string())
                .unwrap_or_default()
        };
        if word("object") == "error" {
            return Some(Self::flat(json));
        }
        if word("type") == "error" {
            return Some(Self {
                kind: String::new(),
                ..Self::flat(json)
            });
        }
        if word("type") == "response.failed" {
            let error = json
                .get("response")
                .and_then(|response| response.get("error"));
            return Some(Self::flat(&error.unwrap_or_else(|| json.clone())));
        }
        None
    }

    /// Reads `message`, `type`, `param` and `code` of an object.
    fn flat(error: &Json) -> Self {
        let text = |key: &str| error.get(key).and_then(|value| value.string());
        let message = match error.get("message") {
            Some(message) => message.string().unwrap_or_else(|| message.compact()),
            None => error.compact(),
        };
        let number = error.get("code").and_then(|code| code.count());
        let mut limits = Vec::new();
        if text("type").as_deref() == Some("usage_limit_reached") {
            for key in ["plan_type", "resets_at"] {
                limits.extend(error.get(key).map(|value| (key, value.compact())));
            }
        }
        Self {
            message,
            kind: text("type").unwrap_or_default(),
            param: text("param"),
            code: text("code"),
            number: number
                .filter(|number| (400..600).contains(number))
                .map(|number| number as u16),
            limits,
        }
    }

    /// Reads FastAPI's form: a text, or a list of fields and the mistake of each.
    fn detail(json: &Json) -> Option<Self> {
        let detail = json.get("detail")?;
        if let Some(text) = detail.string() {
            return Some(Self {
                message: text,
                ..Self::default()
            });
        }
        let mut param = None;
        let mut messages = Vec::new();
        for item in detail.items()? {
            let message = item
                .get("msg")
                .and_then(|message| message.string())
                .unwrap_or_default();
            let place = item
                .get("loc")
                .and_then(|place| place.items())
                .unwrap_or_default();
            let field = place
                .last()
                .map(|last| last.string().unwrap_or_else(|| last.compact()));
            messages.push(match &field {
                Some(field) => format!("{field}: {message}"),
                None => message,
            });
            param = param.or(field);
        }
        Some(Self {
            message: messages.join("; "),
            param,
            ..Self::default()
        })
    }

    /// Maps the engine's error by the matching row of the table.
    fn judge(self, http: Option<u16>) -> Failure {
        let message = shorten(&self.message);
        let param = self
            .param
            .map(|param| param.strip_prefix("body.").unwrap_or(&param).to_owned());
        let own_kinds = [
            "invalid_request_error",
            "permission_error",
            "rate_limit_error",
            "server_error",
            "insufficient_quota",
            "usage_limit_reached",
            "usage_not_included",
        ];
        if own_kinds.contains(&self.kind.as_str())
            && let Some(code) = self.code
        {
            let status = http.unwrap_or_else(|| status_of_own(&self.kind, &code));
            return Failure {
                status,
                message,
                kind: self.kind,
                param,
                code: Some(code),
                limits: self.limits,
            };
        }
        let status = match (http, self.number) {
            (Some(status), _) | (None, Some(status)) => row(status),
            (None, None) => status_of_kind(&self.kind),
        };
        // An error about the request itself is a refusal, with any status.
        let is_refusal = speaks_of_context(&message) || speaks_of_request(&message);
        let status = match status {
            401 | 403 | 404 | 405 | 409 | 413 | 429 | 501 | 503 => status,
            _ if is_refusal => 400,
            other => other,
        };
        let (kind, code) = match status {
            400 => (
                "invalid_request_error",
                speaks_of_context(&message).then_some("context_length_exceeded"),
            ),
            401 => ("invalid_request_error", Some("invalid_api_key")),
            403 => ("permission_error", None),
            404 => {
                let model =
                    param.as_deref() == Some("model") || message.to_lowercase().contains("model");
                ("invalid_request_error", model.then_some("model_not_found"))
            }
            405 => ("invalid_request_error", Some("method_not_allowed")),
            409 => ("invalid_request_error", Some("conflict")),
            413 => ("invalid_request_error", Some("request_too_large")),
            429 => ("rate_limit_error", Some("rate_limit_exceeded")),
            501 => ("server_error", Some("not_implemented")),
            503 => ("server_error", Some("server_is_overloaded")),
            _ => ("server_error", Some("internal_error")),
        };
        let code = code.map(str::to_owned);
        Failure {
            status,
            message,
            kind: kind.to_owned(),
            param,
            code,
            limits: Vec::new(),
        }
    }
}

/// Returns the status of the table's row for an engine's status.
fn row(status: u16) -> u16 {
    match status {
        401 | 403 | 404 | 405 | 409 | 413 | 429 | 501 | 503 => status,
        529 => 503,
        400..=499 => 400,
        _ => 500,
    }
}

fn status_of_kind(kind: &str) -> u16 {
    match kind {
        "BadRequestError"
        | "ValidationError"
        | "ValueError"
        | "BAD_REQUEST"
        | "invalid_request_error" => 400,
        "AuthenticationError" => 401,
        "PermissionDeniedError" | "permission_error" => 403,
        "NotFoundError" => 404,
        "ConflictError" => 409,
        "RateLimitError" | "Too Many Requests" | "rate_limit_error" => 429,
        "NotImplementedError" => 501,
        "ServiceUnavailableError" | "SERVICE_UNAVAILABLE" | "overloaded_error" => 503,
        _ => 500,
    }
}

/// Returns the status of an error that is already canonical.
fn status_of_own(kind: &str, code: &str) -> u16 {
    match code {
        "invalid_api_key" => 401,
        "usage_not_included" => 403,
        "model_not_found" | "not_found" => 404,
        "method_not_allowed" => 405,
        "conflict" => 409,
        "request_too_large" => 413,
        "rate_limit_exceeded" | "insufficient_quota" | "usage_limit_reached" => 429,
        "not_implemented" => 501,
        "upstream_timeout" => 504,
        "server_is_overloaded" => 503,
        _ if code.starts_with("upstream_") => 502,
        _ => status_of_kind(kind),
    }
}

fn speaks_of_request(message: &str) -> bool {
    const WORDS: [&str; 13] = [
        "jinja",
        "chat template",
        "chat_template",
        "roles must alternate",
        "system message must be",
        "cannot pass both",
        "unexpected reasoning effort",
        "unexpected message role",
        "unexpected role",
        "image input is not supported",
        "audio input is not supported",
        "model does not support",
        "tool parsing is disabled by frontend configuration",
    ];
    WORDS
        .iter()
        .any(|words| message.to_lowercase().contains(words))
}

fn speaks_of_context(message: &str) -> bool {
    let message = message.to_lowercase();
    let exceeds = |what: &str| {
        message
            .find("exceeds")
            .is_some_and(|at| message[at..].contains(what))
    };
    exceeds("context length")
        || exceeds("context size")
        || message.contains("smaller than the model context length")
        || exceeds("maximum allowed length")
        || message.contains("maximum context length")
        || message.contains("context length is only")
        || message.contains("longer than the maximum model length")
        || message.contains("prompt is too long after expanding multimodal tokens")
        || message.contains("longer than the model's context")
        || message.contains("context size has been exceeded")
}

fn shorten(message: &str) -> String {
    // File names of the server are removed: only the quotes of `File "/usr/lib/x.py"` remain.
    let mut parts = message.split("File \"");
    let mut text = parts.next().unwrap_or("").to_owned();
    for part in parts {
        let rest = part.find('"').map_or("", |quote| &part[quote..]);
        text.push_str("File \"…");
        text.push_str(rest);
    }
    let message = text.as_str();
    if message.len() <= 2048 {
        return message.to_owned();
    }
    let mut end = 2048;
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &message[..end])
}
