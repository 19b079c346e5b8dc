//! What goes wrong outside the answer's bytes: the same fault for two readers, the client and the log.
//!
//! Status, type and code stand in one table, `wire::fault`; this adds whose side it was on and what caused it.

use crate::wire::fault::{Failure, Fault};
use std::fmt;

/// Where a fault lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The request is wrong, or its sender slow.
    Client,
    /// The engine, or the way to it.
    Upstream,
    /// samewire itself.
    Proxy,
}

impl Side {
    /// The side on which a fault of this status lies.
    pub fn of(failure: &Failure) -> Self {
        match (failure.fault, failure.status) {
            (Fault::Proxy | Fault::Overloaded | Fault::Draining, _) => Self::Proxy,
            (_, 500..) => Self::Upstream,
            _ => Self::Client,
        }
    }
}

/// Whether a request that failed may be sent to another upstream (faults 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The engine did not get it.
    Unsent,
    /// The engine has too much to do.
    Pushed,
    /// The engine broke off before it said anything. It may have died of the request.
    Reset,
    /// The engine may have worked for it.
    Perhaps,
    /// Another one would say the same, or the client has part of the answer.
    Never,
}

impl Class {
    /// That of a failure which no status of the engine's tells.
    pub fn of(failure: &Failure) -> Self {
        match failure.fault {
            Fault::Unreachable => Self::Unsent,
            Fault::RateLimit | Fault::EngineOverloaded => Self::Pushed,
            Fault::Reset => Self::Reset,
            Fault::Internal | Fault::Aborted | Fault::Timeout => Self::Perhaps,
            _ => Self::Never,
        }
    }

    /// That of an engine's status.
    pub fn of_status(status: u16) -> Self {
        match status {
            429 | 503 => Self::Pushed,
            500 | 502 | 504 => Self::Perhaps,
            _ => Self::Never,
        }
    }
}

/// A fault with its cause.
#[derive(Debug)]
pub struct Error {
    /// What the client is told.
    pub public: Failure,
    /// Whose fault it is.
    pub side: Side,
    /// Nothing of the answer had come and the connection had served before: it died of old age, and a fresh one may be
    /// tried.
    pub aged: bool,
    /// Whether another upstream may be asked.
    pub class: Class,
    /// What the log is told besides.
    pub source: Option<std::io::Error>,
}

impl Error {
    /// The same of another class.
    #[must_use]
    pub fn classed(self, class: Class) -> Self {
        Self { class, ..self }
    }

    /// The same with its cause.
    #[must_use]
    pub fn because(mut self, source: std::io::Error) -> Self {
        self.source = Some(source);
        self
    }
}

impl From<Failure> for Error {
    fn from(public: Failure) -> Self {
        let side = Side::of(&public);
        let class = Class::of(&public);
        Self { public, side, aged: false, class, source: None }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Failure::from(fault).into()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.public.message)?;
        self.source.as_ref().map_or(Ok(()), |source| write!(f, " ({source})"))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
