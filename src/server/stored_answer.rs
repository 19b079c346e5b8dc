//! Count of answers that are read from the store and sent, such as downloads: they are requests under way, for which a drain
//! waits, but ask no engine and do not count towards `limits.requests`.

use super::App;
use std::sync::Arc;

/// Answer that is read from the store and sent, until it is dropped.
pub(super) struct StoredAnswer {
    app: Arc<App>,
    /// Number of requests that it counts as beside a record: one or none.
    requests: i64,
}

impl StoredAnswer {
    fn begin(app: &Arc<App>, requests: i64) -> Self {
        app.requests.add(requests);
        app.stored_answers.add(1);
        Self { app: Arc::clone(app), requests }
    }

    /// Counts an answer whose record lasts until its end.
    pub(super) fn of_record(app: &Arc<App>) -> Self {
        Self::begin(app, 0)
    }

    /// Counts an answer whose record may end before it.
    pub(super) fn beside_record(app: &Arc<App>) -> Self {
        Self::begin(app, 1)
    }
}

impl Drop for StoredAnswer {
    fn drop(&mut self) {
        self.app.requests.add(-self.requests);
        self.app.stored_answers.add(-1);
    }
}
