//! Answer to judge: views of an exchange that the rows share.

use super::verdict::Verdict;
use crate::exchange::{Ended, Exchange};
use crate::tree::{Value, View, read_within};
use crate::visible::{excerpt, tail};
use std::borrow::Cow;
use std::cell::Cell;

/// Most events and values of an answer.
const VALUES: usize = 50_000;
/// Most characters of `retry-after`.
const RETRY_AFTER: usize = 60;

/// Event of a stream with its data as JSON.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) name: Cow<'static, str>,
    pub(crate) raw: String,
    /// Null if the data is no JSON.
    pub(crate) json: Value,
}

impl Frame {
    pub(crate) fn is_done(&self) -> bool {
        self.raw == "[DONE]"
    }

    /// Returns the text at a path; empty if there is none.
    pub(crate) fn text(&self, path: &str) -> &str {
        self.json.text(path)
    }

    /// Returns the only choice, if there is one.
    pub(crate) fn choice(&self) -> Option<&Value> {
        self.json.pointer("/choices/0")
    }
}

/// Answer with its views.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) ended: Ended,
    pub(crate) raw: String,
    /// Body as one JSON value; null if it is none.
    pub(crate) whole: Value,
    /// Events; empty if the body is no stream.
    pub(crate) frames: Vec<Frame>,
    /// Reason why the stream cannot be read to its end, if so.
    pub(crate) unreadable: Option<String>,
    /// Status and address of a redirect, in plain words.
    pub(crate) redirect: Option<String>,
    /// Value of `retry-after`, cut and with every character visible.
    pub(crate) retry_after: Option<String>,
}

impl Answer {
    pub(crate) fn new(exchange: &Exchange) -> Self {
        Self::within(exchange, VALUES)
    }

    /// Reads an answer of so many events and values at most: they take more memory than the bytes of the body.
    pub(crate) fn within(exchange: &Exchange, most: usize) -> Self {
        let content_type = exchange.content_type().to_owned();
        let raw = String::from_utf8_lossy(&exchange.body).into_owned();
        let too_many = || format!("it has more than {most} values");
        let left = Cell::new(most);
        let whole = read_within(&raw, &left);
        let mut unreadable = (whole.is_null() && left.get() == 0).then(too_many);
        let mut frames = Vec::new();
        if whole.is_null() && unreadable.is_none() {
            left.set(most);
            unreadable = exchange.events(|event| {
                let json = read_within(&event.data, &left);
                left.set(left.get().checked_sub(1).ok_or_else(too_many)?);
                // Most servers name no event.
                let is_plain = event.event == "message";
                let name = if is_plain {
                    Cow::Borrowed("message")
                } else {
                    Cow::Owned(event.event)
                };
                frames.push(Frame {
                    name,
                    json,
                    raw: event.data,
                });
                Ok(())
            });
            frames.shrink_to_fit();
        }
        let retry_after = exchange.headers.get(http::header::RETRY_AFTER);
        Self {
            status: exchange.status.as_u16(),
            content_type,
            ended: exchange.ended,
            raw,
            whole,
            frames,
            unreadable,
            redirect: exchange.redirect(),
            retry_after: retry_after
                .map(|value| excerpt(&String::from_utf8_lossy(value.as_bytes()), RETRY_AFTER)),
        }
    }

    /// Returns why no more requests ought to be sent: the server has no room for requests, or takes only so many of
    /// them.
    pub(crate) fn busy(&self) -> Option<String> {
        let when = match &self.retry_after {
            Some(when) => format!("retry-after: {when}"),
            None => "without retry-after".to_owned(),
        };
        matches!(self.status, 429 | 503).then(|| {
            format!(
                "the server takes no more requests for now (status {}, {when})",
                self.status
            )
        })
    }

    /// Returns the frames but `[DONE]`.
    pub(crate) fn chunks(&self) -> impl DoubleEndedIterator<Item = &Frame> {
        self.frames.iter().filter(|frame| !frame.is_done())
    }

    /// Returns a pass if no chunk is bad, or else a failure with the first bad one.
    pub(crate) fn none(&self, mut bad: impl FnMut(&Frame) -> bool) -> Verdict {
        match self.chunks().find(|frame| bad(frame)) {
            Some(frame) => Verdict::fail(&frame.raw),
            None => Verdict::Pass,
        }
    }

    /// Returns the status and the begin of the body as evidence, and of a redirect its address first.
    pub(crate) fn beginning(&self) -> String {
        let answer = format!("{} {} {}", self.status, self.content_type, self.raw);
        match &self.redirect {
            Some(redirect) => format!("{redirect} ({answer})"),
            None => answer,
        }
    }

    /// Returns a pass if the status is 200.
    pub(crate) fn succeeds(&self) -> Verdict {
        Verdict::check(self.status == 200, &self.beginning())
    }

    /// Returns a pass if the body ended as HTTP frames it.
    pub(crate) fn ends(&self) -> Verdict {
        match self.ended {
            Ended::Clean => Verdict::Pass,
            ended => Verdict::fail(&format!(
                "{}, behind: {}",
                ended.name(),
                tail(&self.raw, 80)
            )),
        }
    }

    /// Returns a pass if the content type is that of event streams.
    pub(crate) fn is_stream(&self) -> Verdict {
        Verdict::check(
            self.content_type.starts_with("text/event-stream"),
            &self.beginning(),
        )
    }

    /// Returns a pass if the content type is JSON, and the body one object.
    pub(crate) fn is_object(&self) -> Verdict {
        let json = self.content_type.starts_with("application/json");
        Verdict::check(json && self.whole.is_object(), &self.beginning())
    }

    /// Returns a pass if every event has one JSON object, but for `[DONE]`.
    pub(crate) fn is_framed(&self) -> Verdict {
        if let Some(why) = &self.unreadable {
            return Verdict::fail(why);
        }
        if self.frames.is_empty() {
            return Verdict::fail(&self.beginning());
        }
        self.none(|frame| !frame.json.is_object())
    }

    /// Returns a pass if every event has one JSON object, and none is `[DONE]`.
    pub(crate) fn is_framed_as_events(&self) -> Verdict {
        match self.frames.iter().find(|frame| frame.is_done()) {
            Some(frame) => Verdict::fail(&frame.raw),
            None => self.is_framed(),
        }
    }

    /// Returns a pass if values of the whole body have their shapes.
    pub(crate) fn fits(&self, shapes: &str) -> Verdict {
        Verdict::check(self.whole.fits(shapes), &self.raw)
    }

    /// Returns a pass if values of each chunk have their shapes.
    pub(crate) fn each_fits(&self, shapes: &str) -> Verdict {
        self.none(|frame| !frame.json.fits(shapes))
    }

    /// Returns a pass if the name of each event is its type.
    pub(crate) fn is_named(&self) -> Verdict {
        self.none(|frame| frame.name != frame.text("/type"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::Request;
    use bytes::Bytes;
    use http::{HeaderMap, Method, StatusCode};

    fn answer(body: &str, most: usize) -> Answer {
        let request = Request {
            method: Method::GET,
            path: String::new(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
        };
        let exchange = Exchange {
            request,
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            body: body.as_bytes().to_vec(),
            pieces: Vec::new(),
            ended: Ended::Clean,
        };
        Answer::within(&exchange, most)
    }

    /// Small events and values take far more memory than their bytes, so their number is bounded.
    #[test]
    fn floods_of_small_events_and_values_are_given_up() {
        for (event, kept) in [
            ("data: 1\n\n", 50),
            ("data: x\n\n", 50),
            ("data: [1,2]\n\n", 25),
        ] {
            let stream = answer(&event.repeat(1000), 100);
            assert!(
                stream.frames.len() <= kept,
                "{event:?}: {}",
                stream.frames.len()
            );
            assert_eq!(
                stream.unreadable.as_deref(),
                Some("it has more than 100 values"),
                "{event:?}"
            );
            let stream = answer(&event.repeat(20), 100);
            assert_eq!(
                (stream.frames.len(), stream.unreadable),
                (20, None),
                "{event:?}"
            );
        }
        let list = |count: usize| format!("[{}1]", "1,".repeat(count - 1));
        for (count, is_kept) in [(99, true), (100, false), (1000, false)] {
            let whole = answer(&list(count), 100);
            assert_eq!(
                (whole.whole.is_array(), whole.unreadable.is_none()),
                (is_kept, is_kept),
                "{count}"
            );
            assert!(whole.frames.is_empty());
        }
    }
}
