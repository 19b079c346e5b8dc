//! Body of a replayed answer: one write per event, and the recorded connection error at its end, if any.

use bytes::Bytes;
use http_body::{Body, Frame};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// Body that yields the remaining frames, one at a time.
pub(super) struct PlayedBody {
    frames: std::vec::IntoIter<Bytes>,
    pace: Duration,
    reset: bool,
    pause: Pause,
}

/// Condition that must hold before the next frame is yielded.
enum Pause {
    None,
    /// Single poll that lets the server write the previous frame separately.
    Turn,
    Time(Pin<Box<Sleep>>),
}

impl PlayedBody {
    /// Creates a body. `pace`: pause between two frames. `reset`: end with a connection error.
    pub(super) fn new(frames: Vec<Bytes>, pace: Duration, reset: bool) -> Self {
        Self {
            frames: frames.into_iter(),
            pace,
            reset,
            pause: Pause::Turn,
        }
    }
}

impl Body for PlayedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        match &mut this.pause {
            Pause::None => {}
            Pause::Turn => {
                this.pause = Pause::None;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Pause::Time(sleep) => ready!(sleep.as_mut().poll(cx)),
        }
        this.pause = Pause::None;
        if let Some(frame) = this.frames.next() {
            let last = this.frames.len() == 0;
            this.pause = match this.pace {
                pace if pace.is_zero() || last => Pause::Turn,
                pace => Pause::Time(Box::pin(sleep(pace))),
            };
            return Poll::Ready(Some(Ok(Frame::data(frame))));
        }
        let cut = || {
            io::Error::new(
                io::ErrorKind::ConnectionReset,
                "the recorded connection broke here",
            )
        };
        Poll::Ready(std::mem::take(&mut this.reset).then(|| Err(cut())))
    }
}
