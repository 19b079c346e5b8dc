//! The Responses API: its objects, streams, WebSockets and stored state.

pub(crate) mod background;
mod codex;
mod compact;
mod conversations;
mod hold;
mod native;
pub(crate) mod over_chat;
mod published;
pub(crate) mod races;
mod server_tools;
pub(crate) mod socket;
mod socket_ends;
pub(crate) mod stored;
mod tool_outputs;
mod truncation;
