//! Count of answers that are read from the store and sent, such as downloads: they are requests under way, for which a drain
//! waits, but reach no engine and do not count towards `limits.requests`.

use crate::server::App;
use std::sync::Arc;

/// Answer that is read from the store and sent, until it is dropped.
pub(in crate::server) struct StoredAnswer {
    app: Arc<App>,
    /// Number of requests that it counts as beside a record: one or none.
    requests: i64,
}

impl StoredAnswer {
    fn begin(app: &Arc<App>, requests: i64) -> Self {
        app.running.requests.add(requests);
        app.running.stored_answers.add(1);
        Self {
            app: Arc::clone(app),
            requests,
        }
    }

    /// Counts an answer whose record lasts until its end.
    pub(in crate::server) fn of_record(app: &Arc<App>) -> Self {
        Self::begin(app, 0)
    }

    /// Counts an answer whose record may end before it.
    pub(in crate::server) fn beside_record(app: &Arc<App>) -> Self {
        Self::begin(app, 1)
    }
}

impl Drop for StoredAnswer {
    fn drop(&mut self) {
        self.app.running.requests.add(-self.requests);
        self.app.running.stored_answers.add(-1);
    }
}
