//! Events of a stream, each with the time of the piece that completed it.

use super::Exchange;
use crate::wire::sse::lines;
use eventsource_stream::EventStream;
use futures::{FutureExt, StreamExt, stream};
use std::cell::Cell;
use std::convert::Infallible;
use std::time::Duration;

/// Server-sent event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time from the request to the piece that completed the event.
    pub at: Duration,
    /// Name; `message` if the server gave none.
    pub name: String,
    /// Data, its lines joined.
    pub data: String,
}

impl Exchange {
    /// Gives each event of the body to `take`, until it fails. Returns the reason why reading stopped early, if it did.
    pub fn events(&self, mut take: impl FnMut(Event) -> Result<(), String>) -> Option<String> {
        let (mut read, mut piece) = (0, self.pieces.iter().peekable());
        let now = Cell::new(Duration::ZERO);
        // Line by line: the reader copies what follows a line, so that a large piece would cost its square.
        let lines = lines(&self.body).map(|line| {
            read += line.len();
            while piece.next_if(|piece| piece.end < read).is_some() {}
            if let Some(piece) = piece.peek() {
                now.set(piece.at);
            }
            Ok::<_, Infallible>(line)
        });
        let mut stream = EventStream::new(stream::iter(lines));
        loop {
            match stream.next().now_or_never().flatten() {
                Some(Ok(event)) => {
                    let event = Event { at: now.get(), name: event.event, data: event.data };
                    if let Err(why) = take(event) {
                        return Some(why);
                    }
                }
                Some(Err(error)) => return Some(error.to_string()),
                None => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::RecordedPiece;
    use crate::exchange::{Ended, Request};
    use bytes::Bytes;
    use http::{HeaderMap, Method, StatusCode};

    #[test]
    fn events_have_the_time_of_the_piece_that_completes_them() {
        let (mut body, mut pieces) = (Vec::new(), Vec::new());
        for (text, at) in ["data: a\n", "\ndata: b\r\n\r", "\nevent: x\ndata: c\n\ndata: cut"].iter().zip(1..)
        {
            body.extend_from_slice(text.as_bytes());
            pieces.push(RecordedPiece { at: Duration::from_secs(at), end: body.len() });
        }
        let request = Request {
            method: Method::GET,
            path: "/v1/a".to_owned(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
        };
        let exchange = Exchange {
            request,
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            head: Duration::ZERO,
            body,
            pieces,
            ended: Ended::Clean,
        };
        let mut events = Vec::new();
        let stopped = exchange.events(|event| {
            events.push(event);
            Ok(())
        });
        let told: Vec<_> = events
            .iter()
            .map(|event| (event.at.as_secs(), event.name.as_str(), event.data.as_str()))
            .collect();
        assert_eq!(told, [(2, "message", "a"), (3, "message", "b"), (3, "x", "c")]);
        assert_eq!(stopped, None);
    }
}
