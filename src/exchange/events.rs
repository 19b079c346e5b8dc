//! Events of a stream, as a client reads them.

use super::Exchange;
use crate::wire::sse::lines;
use eventsource_stream::{Event, EventStream};
use futures::{FutureExt, StreamExt, stream};
use std::convert::Infallible;

impl Exchange {
    /// Gives each event of the body to `take`, until it fails. Returns the reason why reading stopped early, if it did.
    pub fn events(&self, mut take: impl FnMut(Event) -> Result<(), String>) -> Option<String> {
        // Line by line: the reader copies what follows a line, so that a large piece would cost its square.
        let mut stream = EventStream::new(stream::iter(lines(&self.body).map(Ok::<_, Infallible>)));
        while let Some(event) = stream.next().now_or_never().flatten() {
            if let Err(why) = event.map_err(|error| error.to_string()).and_then(&mut take) {
                return Some(why);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::{Ended, Request};
    use bytes::Bytes;
    use http::{HeaderMap, Method, StatusCode};

    #[test]
    fn complete_events_are_read() {
        let body = b"data: a\n\ndata: b\r\n\r\nevent: x\ndata: c\n\ndata: cut".to_vec();
        let (path, headers) = ("/v1/a".to_owned(), HeaderMap::new());
        let request = Request {
            method: Method::GET,
            path,
            headers: headers.clone(),
            body: Bytes::new(),
        };
        let (status, pieces, ended) = (StatusCode::OK, Vec::new(), Ended::Clean);
        let exchange = Exchange {
            request,
            status,
            headers,
            body,
            pieces,
            ended,
        };
        let mut events = Vec::new();
        let stopped = exchange.events(|event| {
            events.push((event.event, event.data));
            Ok(())
        });
        let expected = [("message", "a"), ("message", "b"), ("x", "c")];
        assert_eq!(
            events,
            expected.map(|(name, data)| (name.to_owned(), data.to_owned()))
        );
        assert_eq!(stopped, None);
    }
}
