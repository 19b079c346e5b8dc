//! Open files: as many as the limits of the configuration need, or limits that fit them (faults O10).

use crate::config::Limits;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{DupFlags, dup3};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::net::TcpListener;

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

/// Whether a connection waits to be accepted. Where no descriptor is left, trying to accept fails either way.
pub(super) fn is_wanted(listener: &TcpListener) -> bool {
    let mut listeners = [PollFd::new(listener, PollFlags::IN)];
    poll(&mut listeners, Some(&Timespec::default())) == Ok(1)
}

/// Some descriptors that can be had when there are no others.
pub(super) struct Spare {
    /// What they are descriptors of.
    null: Option<OwnedFd>,
    kept: Mutex<Vec<OwnedFd>>,
}

impl Spare {
    pub(super) fn new() -> Self {
        let this = Self { null: File::open("/dev/null").ok().map(Into::into), kept: Mutex::default() };
        this.refill();
        this
    }

    fn kept(&self) -> MutexGuard<'_, Vec<OwnedFd>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As many as there should be, if that many can be had.
    pub(super) fn refill(&self) {
        let mut kept = self.kept();
        while kept.len() < SPARE
            && let Some(Ok(another)) = self.null.as_ref().map(OwnedFd::try_clone)
        {
            kept.push(another);
        }
    }

    /// Lets go of one, if `error` says that it is wanted.
    pub(super) fn lend(&self, error: &io::Error) -> bool {
        let wanted = error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error());
        wanted && self.kept().pop().is_some()
    }

    /// Closes `used`. If one is missing, its descriptor becomes that one in the same moment: one that was free for a
    /// moment would be some client's.
    pub(super) fn close(&self, mut used: OwnedFd) {
        let mut kept = self.kept();
        if kept.len() < SPARE
            && let Some(null) = &self.null
            && dup3(null, &mut used, DupFlags::CLOEXEC).is_ok()
        {
            kept.push(used);
        }
    }
}
