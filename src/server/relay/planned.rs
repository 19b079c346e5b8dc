//! Planned request: all that a [`Relay`] needs beside the record.

use super::Relay;
use super::attempt::{Attempt, UpstreamRequest, begin};
use super::rounds::Rounds;
use super::selection::UpstreamSelection;
use crate::server::admit::body::Body;
use crate::server::record::Record;
use crate::server::reply::ClientReply;
use crate::server::storage::persist::ResponseWriter;
use crate::wire::fault::Failure;
use crate::wire::options::Options;
use http::Response;
use std::sync::Arc;
use std::time::Instant;

/// Request whose first attempt is prepared, with the form in which its answer is wanted.
pub(in crate::server) struct Planned {
    pub(in crate::server) attempt: Attempt,
    /// Request and remaining upstreams for further attempts, if these are allowed.
    pub(in crate::server) resend: Option<(Box<dyn UpstreamRequest>, UpstreamSelection)>,
    pub(in crate::server) options: Arc<Options>,
    /// True if the answer is a stream.
    pub(in crate::server) stream: bool,
    /// Writer that stores the answer, if it is to be stored.
    pub(in crate::server) writer: Option<Box<ResponseWriter>>,
    /// Source of further rounds, for an answer that pauses after calls.
    pub(in crate::server) rounds: Option<Box<dyn Rounds>>,
}

impl Planned {
    /// Chooses the first upstream of a call and prepares its request there. Fails if no upstream qualifies, or if the call
    /// cannot be expressed for the chosen one.
    pub(in crate::server) fn begin(
        reply: &mut ClientReply,
        mut selection: UpstreamSelection,
        mut call: Box<dyn UpstreamRequest>,
        stream: bool,
    ) -> Result<Self, Failure> {
        let attempt = begin(reply, &mut selection, &mut *call)?;
        let options = call
            .sender()
            .options(attempt.chosen.upstream(), selection.served());
        let resend = Some((call, selection));
        Ok(Self {
            attempt,
            resend,
            options,
            stream,
            writer: None,
            rounds: None,
        })
    }

    /// Relays the answer to a client that waits for it. `since`: the time at which the request was complete. Not `async`,
    /// so that the future has the relay alone.
    pub(in crate::server) fn answer(
        self,
        record: Record,
        thread: usize,
        since: Instant,
    ) -> impl Future<Output = Response<Body>> + Send {
        let mut relay = Relay::new(self, record, thread);
        relay.planned(since.elapsed());
        relay.answer()
    }
}
