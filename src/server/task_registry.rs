//! Tasks of this process that belong to no request, by the keys of their records, with what other tasks need of them.

use crate::store::Key;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Tasks that run, each with the signals to it.
pub(super) struct TaskRegistry<S>(Mutex<HashMap<Key, Arc<S>>>);

/// Entry of a task, removed when dropped, however the task ends.
pub(super) struct TaskEntry<S> {
    registry: Arc<TaskRegistry<S>>,
    key: Key,
    pub(super) signals: Arc<S>,
}

impl<S> Default for TaskRegistry<S> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<S> TaskRegistry<S> {
    /// Enters a task. Returns its entry, and the signals of the task whose entry it replaces.
    pub(super) fn begin(self: &Arc<Self>, key: &Key, signals: S) -> (TaskEntry<S>, Option<Arc<S>>) {
        let signals = Arc::new(signals);
        let before = self.0.lock().insert(key.clone(), Arc::clone(&signals));
        (
            TaskEntry {
                registry: Arc::clone(self),
                key: key.clone(),
                signals,
            },
            before,
        )
    }

    pub(super) fn get(&self, key: &Key) -> Option<Arc<S>> {
        self.0.lock().get(key).cloned()
    }

    pub(super) fn all(&self) -> Vec<(Key, Arc<S>)> {
        self.0
            .lock()
            .iter()
            .map(|(key, signals)| (key.clone(), Arc::clone(signals)))
            .collect()
    }

    pub(super) fn count(&self) -> usize {
        self.0.lock().len()
    }
}

impl<S> Drop for TaskEntry<S> {
    fn drop(&mut self) {
        let mut running = self.registry.0.lock();
        // A later task with the same key has its own entry.
        if running
            .get(&self.key)
            .is_some_and(|signals| Arc::ptr_eq(signals, &self.signals))
        {
            running.remove(&self.key);
        }
    }
}
