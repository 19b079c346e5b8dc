//! Admission of a request: its route family and headers, who sent it, what that caller may use, and its body.
//!
//! Every check here either lets a request pass or answers with an error from the table of faults. Never: contacts
//! an engine.

pub(super) mod admission;
pub(super) mod auth;
pub(super) mod azure;
pub(super) mod body;
pub(super) mod browsers;
pub(super) mod budget;
pub(super) mod default_model;
pub(super) mod headers;
pub(super) mod memory;
pub(super) mod parse;
pub(super) mod quota;
