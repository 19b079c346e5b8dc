//! Events of a stream, each with the time of the piece that completed it.

use super::Exchange;
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
    /// Returns the events of the body. The second value is the reason why reading stopped early, if it did.
    pub fn events(&self) -> (Vec<Event>, Option<String>) {
        let body = self.body();
        let mut ends = Vec::with_capacity(self.pieces.len());
        let mut size = 0;
        for (at, piece) in &self.pieces {
            size += piece.len();
            ends.push((size, *at));
        }
        let (mut read, mut piece) = (0, ends.iter().peekable());
        let now = Cell::new(Duration::ZERO);
        // Line by line: the reader copies what follows a line, so that a large piece would cost its square.
        let lines = lines(&body).map(|line| {
            read += line.len();
            while piece.next_if(|(end, _)| *end < read).is_some() {}
            if let Some((_, at)) = piece.peek() {
                now.set(*at);
            }
            Ok::<_, Infallible>(line)
        });
        let mut stream = EventStream::new(stream::iter(lines));
        let mut events = Vec::new();
        loop {
            match stream.next().now_or_never().flatten() {
                Some(Ok(event)) => events.push(Event { at: now.get(), name: event.event, data: event.data }),
                Some(Err(error)) => return (events, Some(error.to_string())),
                None => return (events, None),
            }
        }
    }
}

/// Splits bytes into lines, each with its end.
fn lines(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let end = rest.iter().enumerate().find_map(|(at, byte)| match byte {
            b'\n' => Some(at + 1),
            b'\r' if rest.get(at + 1) != Some(&b'\n') => Some(at + 1),
            _ => None,
        });
        let (line, after) = rest.split_at_checked(end.unwrap_or(rest.len()))?;
        rest = after;
        (!line.is_empty()).then_some(line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::{Ended, Request};
    use bytes::Bytes;
    use http::{HeaderMap, Method, StatusCode};

    #[test]
    fn events_have_the_time_of_the_piece_that_completes_them() {
        let pieces = ["data: a\n", "\ndata: b\r\n\r", "\nevent: x\ndata: c\n\ndata: cut"];
        let pieces = pieces.iter().zip(1..).map(|(text, at)| (Duration::from_secs(at), Bytes::from(*text)));
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
            pieces: pieces.collect(),
            ended: Ended::Clean,
        };
        let (events, stopped) = exchange.events();
        let told: Vec<_> = events
            .iter()
            .map(|event| (event.at.as_secs(), event.name.as_str(), event.data.as_str()))
            .collect();
        assert_eq!(told, [(2, "message", "a"), (3, "message", "b"), (3, "x", "c")]);
        assert_eq!(stopped, None);
    }
}
