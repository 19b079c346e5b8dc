//! Admission of a request: its route family and headers, who sent it, what that caller may use, and its body.
//!
//! Every check here either lets a request pass or answers with an error from the table of faults. Never: contacts
//! an engine.

pub(super) mod auth;
pub(super) mod azure;
pub(super) mod batch_line;
pub(super) mod body;
pub(super) mod browsers;
pub(super) mod budget;
pub(super) mod memory;
pub(super) mod parse;
pub(super) mod quota;

use budget::Budget;
use quota::{Quotas, Usages};
use std::sync::Arc;

/// State of admission: the quotas of keys, and the memory for bodies.
#[derive(Clone)]
pub(super) struct AdmitState {
    pub(super) quotas: Arc<Quotas>,
    pub(super) usages: Arc<Usages>,
    pub(super) budget: Arc<Budget>,
}
