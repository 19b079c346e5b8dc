//! Groups of rows.

/// Part of the API that a row belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// List of models.
    Models,
    /// Chat Completions as streams.
    ChatStream,
    /// Chat Completions as one object.
    ChatWhole,
    /// Function calls of Chat Completions.
    Tools,
    /// Completions.
    Completions,
    /// Responses as streams.
    ResponsesStream,
    /// Responses as one object.
    ResponsesWhole,
    /// Messages.
    Messages,
    /// Errors.
    Errors,
}

impl Group {
    /// List of all groups, in the order of the table.
    pub const ALL: [Self; 9] = [
        Self::Models,
        Self::ChatStream,
        Self::ChatWhole,
        Self::Tools,
        Self::Completions,
        Self::ResponsesStream,
        Self::ResponsesWhole,
        Self::Messages,
        Self::Errors,
    ];

    /// Returns the name, as `--only` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Models => "models",
            Self::ChatStream => "chat-stream",
            Self::ChatWhole => "chat-whole",
            Self::Tools => "tools",
            Self::Completions => "completions",
            Self::ResponsesStream => "responses-stream",
            Self::ResponsesWhole => "responses-whole",
            Self::Messages => "messages",
            Self::Errors => "errors",
        }
    }
}
