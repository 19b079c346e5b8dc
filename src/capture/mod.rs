//! Capture: exchanges with clients and engines as they went over the wire, kept in a bounded ring for operators.
//!
//! ```text
//! request ──→ Recording ──→ Ring ──→ list, folder (a scenario of `fixtures/`)
//!                 ↑
//!   bytes of client and engine, with their times
//! ```
//!
//! Takes: heads and bytes of a request, of its attempts and of its answer. Gives: captured exchanges, and the files
//! of each in the form of a scenario. Remembers: as many exchanges and bytes as the configuration allows. Never:
//! keeps the value of a header that may be secret.

mod body_log;
mod exchange;
mod folder;
mod recording;
mod ring;

pub use exchange::{
    Captured, ExchangeOutcome, RecordedAttempt, RecordedMessage, RecordedPiece, RequestInfo,
    head_text, redacted_target,
};
pub use folder::{body_file, files, scenario};
pub use recording::{AnswerRecorder, AttemptRecorder, Recording};
pub use ring::{BodyLengths, CaptureLimits, Criteria, Recorded, Ring};
