//! Open files: as many as the limits of the configuration need, or limits that fit them (faults O10).

use crate::config::Limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::io;

/// What is open besides connections and the way of each request to its engine: the process's own, operators', the
/// store's.
const OWN: u64 = 256;
/// Descriptors that are kept for operators.
const SPARE: usize = 4;

/// Takes as many as the system gives, and lowers the limits to what they suffice for.
pub(super) fn provide(limits: &mut Limits) {
    let Some(most) = raise() else { return };
    let own = OWN.min(most / 2);
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    // Each request has a connection on both sides.
    let requests = limits.requests.min(number((most - own) / 2).max(1));
    let connections = limits.connections.min(number(most - own).saturating_sub(requests).max(1));
    if (requests, connections) != (limits.requests, limits.connections) {
        tracing::warn!(
            open_files = most,
            requests,
            connections,
            "too few open files are allowed (ulimit -n): the limits are lowered"
        );
        (limits.requests, limits.connections) = (requests, connections);
    }
}

/// The number of open files that is allowed from now on; `None`: any.
fn raise() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum || setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_err() {
        return current;
    }
    maximum
}

/// Some descriptors that can be had when there are no others.
pub(super) struct Spare(Vec<File>);

impl Spare {
    pub(super) fn new() -> Self {
        let mut this = Self(Vec::new());
        this.refill();
        this
    }

    /// As many as there should be, if that many can be had.
    pub(super) fn refill(&mut self) {
        while self.0.len() < SPARE
            && let Ok(file) = File::open("/dev/null")
        {
            self.0.push(file);
        }
    }

    /// Lets go of one, if `error` says that it is wanted.
    pub(super) fn lend(&mut self, error: &io::Error) -> bool {
        let wanted = error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error());
        wanted && self.0.pop().is_some()
    }
}
