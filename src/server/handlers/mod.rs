//! Handlers of all routes except those of Responses, files and batches.

pub(super) mod admin;
pub(super) mod chat;
pub(super) mod count_tokens;
pub(super) mod embeddings;
pub(super) mod messages;
pub(super) mod models;
pub(super) mod page;
pub(super) mod pass_through;
pub(super) mod readiness;
pub(super) mod relayed;
pub(super) mod usage;
