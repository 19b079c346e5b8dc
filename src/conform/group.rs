//! Groups of rows.

use crate::named::named;

named! {
    /// Part of the API that a row belongs to.
    pub enum Group {
        /// List of models.
        Models = "models",
        /// Chat Completions as streams.
        ChatStream = "chat-stream",
        /// Chat Completions as one object.
        ChatWhole = "chat-whole",
        /// Function calls of Chat Completions.
        Tools = "tools",
        /// Completions.
        Completions = "completions",
        /// Responses as streams.
        ResponsesStream = "responses-stream",
        /// Responses as one object.
        ResponsesWhole = "responses-whole",
        /// Messages.
        Messages = "messages",
        /// Errors.
        Errors = "errors",
    }
}
