//! Open files: raises the system's limit to what the configuration needs, or lowers the configured limits to fit
//! it (faults O10). Also keeps a reserve for the admin listener.

use crate::config::Limits;
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{DupFlags, dup3};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use tokio::net::TcpListener;

/// Descriptors besides those of connections and requests: of the process itself, of operators and of the store.
const OWN: u64 = 256;
/// Descriptors that are reserved for operators.
const RESERVED: usize = 4;

/// Raises the limit on open files as far as possible, and lowers the configured limits to fit it.
pub(in crate::server) fn fit_limits(limits: &mut Limits) {
    let Some(most) = raise() else { return };
    let own = OWN.min(most / 2);
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    // Each request has a connection on both sides.
    let requests = limits.requests.min(number((most - own) / 2).max(1));
    let connections = limits
        .connections
        .min(number(most - own).saturating_sub(requests).max(1));
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

/// Raises the limit on open files and returns it; `None` if there is no limit.
fn raise() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum
        || setrlimit(
            Resource::Nofile,
            Rlimit {
                current: maximum,
                maximum,
            },
        )
        .is_err()
    {
        return current;
    }
    maximum
}

/// Returns true if a connection waits to be accepted. If descriptors have run out, `accept()` fails even if none
/// waits, so this tells the two cases apart.
pub(in crate::server) fn has_pending_connection(listener: &TcpListener) -> bool {
    let mut listeners = [PollFd::new(listener, PollFlags::IN)];
    poll(&mut listeners, Some(&Timespec::default())) == Ok(1)
}

/// Reserve of descriptors for the admin listener, for when clients have taken all others.
pub(in crate::server) struct Reserve {
    /// File from which the reserved descriptors are duplicated.
    null: Option<OwnedFd>,
    kept: Mutex<Vec<OwnedFd>>,
}

impl Reserve {
    pub(in crate::server) fn new() -> Self {
        let this = Self {
            null: File::open("/dev/null").ok().map(Into::into),
            kept: Mutex::default(),
        };
        this.refill();
        this
    }

    fn kept(&self) -> MutexGuard<'_, Vec<OwnedFd>> {
        self.kept.lock()
    }

    /// Refills the reserve as far as descriptors can be had.
    pub(in crate::server) fn refill(&self) {
        let mut kept = self.kept();
        while kept.len() < RESERVED
            && let Some(Ok(another)) = self.null.as_ref().map(OwnedFd::try_clone)
        {
            kept.push(another);
        }
    }

    /// Releases one descriptor if `error` means that none is left; returns true if it did.
    pub(in crate::server) fn release_one(&self, error: &io::Error) -> bool {
        let is_exhausted = error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error());
        is_exhausted && self.kept().pop().is_some()
    }

    /// Closes `used`. If the reserve is not full, the descriptor is put into it atomically: a descriptor that is
    /// free for a moment would be taken by a client.
    pub(in crate::server) fn close_into_reserve(&self, mut used: OwnedFd) {
        let mut kept = self.kept();
        if kept.len() < RESERVED
            && let Some(null) = &self.null
            && dup3(null, &mut used, DupFlags::CLOEXEC).is_ok()
        {
            kept.push(used);
        }
    }
}
