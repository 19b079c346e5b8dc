//! Failures outside the answer's bytes, in a form that serves both the client's error body and the log.
//!
//! Status, type and code are defined in one table, `wire::fault`. This module adds which side caused the failure,
//! its underlying error, and whether a retry is allowed.

use crate::wire::fault::{Failure, Fault};
use std::fmt;

/// Side that caused a failure: decides, for example, whether it counts against an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Client: the request is invalid, or its sender is too slow.
    Client,
    /// Upstream: the engine, or the network between it and the proxy.
    Upstream,
    /// Proxy: samewire itself, including its load limits and its shutdown.
    Proxy,
}

impl Side {
    /// Returns the side of a failure, by its fault and status: most 5xx are the upstream's, the rest the client's.
    pub fn of(failure: &Failure) -> Self {
        match (failure.fault, failure.status) {
            (Fault::Proxy | Fault::Overloaded | Fault::Draining, _) => Self::Proxy,
            (_, 500..) => Self::Upstream,
            _ => Self::Client,
        }
    }
}

/// Retry class of a failed request: tells if another upstream may get the same request (faults 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryClass {
    /// Engine has received nothing of the request, so a retry repeats no work.
    Unsent,
    /// Engine has rejected the request because it is overloaded (429, 503 or 529).
    Overloaded,
    /// The engine broke off, and the client has received nothing. The request itself may have crashed the engine.
    Reset,
    /// Engine may already have worked on the request, so a retry may repeat that work once.
    MaybeProcessed,
    /// Never to be retried: another engine would fail the same way, or the client already has part of the answer.
    Never,
}

impl RetryClass {
    /// Returns the class of a failure that does not come from an HTTP status of the engine.
    pub fn of(failure: &Failure) -> Self {
        match failure.fault {
            Fault::Unreachable => Self::Unsent,
            Fault::RateLimit | Fault::EngineOverloaded => Self::Overloaded,
            Fault::Reset => Self::Reset,
            Fault::Internal | Fault::Aborted | Fault::Timeout => Self::MaybeProcessed,
            _ => Self::Never,
        }
    }

    /// Returns the class of an engine's answer with this HTTP status. What it says of the request itself, another
    /// engine would say too, whatever the status.
    pub fn of_answer(status: u16, failure: &Failure) -> Self {
        match (failure.fault, status) {
            (Fault::InvalidRequest | Fault::ContextLength, _) => Self::Never,
            (_, 429 | 503 | 529) => Self::Overloaded,
            (_, 500 | 502 | 504) => Self::MaybeProcessed,
            _ => Self::Never,
        }
    }
}

/// Failure of a request: what the client receives, and what the log and the retry logic need besides.
#[derive(Debug)]
pub struct Error {
    /// Status, type, code and message that the client receives.
    pub public: Failure,
    /// Side that caused the failure, for health tracking, traces and the log.
    pub side: Side,
    /// True if the request may be sent once more on another connection: a reused connection failed before the answer
    /// began, or an HTTP/2 engine did not begin the request.
    pub stale: bool,
    /// Retry class, which the retry logic consults.
    pub class: RetryClass,
}

impl Error {
    /// Returns the same failure with another retry class.
    #[must_use]
    pub fn with_class(self, class: RetryClass) -> Self {
        Self { class, ..self }
    }

    /// Returns the same failure with the error of the system that caused it.
    #[must_use]
    pub fn with_source(self, source: &std::io::Error) -> Self {
        Self {
            public: self.public.with_cause(source.to_string()),
            ..self
        }
    }
}

impl From<Failure> for Error {
    fn from(public: Failure) -> Self {
        let side = Side::of(&public);
        let class = RetryClass::of(&public);
        Self {
            public,
            side,
            stale: false,
            class,
        }
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
        self.public
            .cause
            .as_ref()
            .map_or(Ok(()), |cause| write!(f, " ({cause})"))
    }
}

impl std::error::Error for Error {}

/// Returns the message of the innermost cause, such as a refused connection.
pub(crate) fn innermost_cause(error: &dyn std::error::Error) -> String {
    error
        .source()
        .map_or_else(|| error.to_string(), innermost_cause)
}
