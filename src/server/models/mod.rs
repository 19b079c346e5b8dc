//! Models: which one a request is for, and the lists of the upstreams.

pub(super) mod lists;
pub(super) mod naming;
