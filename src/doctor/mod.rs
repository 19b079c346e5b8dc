//! Examination of a running engine or gateway: what it is, what it does otherwise than the API, whom that affects and
//! what helps.
//!
//! Takes: a [`crate::exchange::Sender`]. Gives: a [`Report`], which is filled as answers come, so that there is one
//! also of a server that stalls, floods or lies. Never: uses samewire's own reader of streams, finds fault without
//! bytes that show it, or saves what an engine tells about its settings.

mod chat;
mod check;
mod cut;
mod outcome;
mod probe;
mod question;
mod run;
mod seen;
mod server;
mod stanza;

pub use check::{Check, Finding, Topic};
pub use outcome::{Found, Outcome, Remedy, Setting, Severity, Table};
pub use probe::checks;
pub use question::{Question, prompt_tokens, requests, tokens};
pub use run::{Limits, Report, own_requests, run};
pub use server::Server;
pub use stanza::{Advice, AdvisedFiles, advice};
