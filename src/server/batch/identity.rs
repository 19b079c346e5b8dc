//! Client on whose behalf the lines of a batch run.

use std::sync::Arc;

/// Client of a batch, by which its lines are authenticated in place of a key. An extension of the request, which no
/// client can set.
#[derive(Clone)]
pub(in crate::server) struct LineIdentity {
    /// Key of the client, as [`Hash::counters`](crate::auth::Hash::counters) names it; empty if keys were not checked
    /// when the batch was created.
    pub(in crate::server) caller: Arc<str>,
    /// Tenant of the batch.
    pub(in crate::server) tenant: Arc<str>,
}
