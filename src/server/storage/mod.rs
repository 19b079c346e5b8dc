//! Use of the store by the server: access to it, its objects as paths name them, the writer of an answer, and the count of
//! answers that are sent from it.

pub(super) mod objects;
pub(super) mod persist;
pub(super) mod store_handle;
pub(super) mod stored_answer;
