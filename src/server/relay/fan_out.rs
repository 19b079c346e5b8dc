//! Answers that are put together of several: an engine that gives one choice is asked once for each.
//!
//! The exchange whose turn it is stands where the only one does otherwise, and its rewriter is the pen's: what is done with
//! one is done with each of them in turn. All of them are polled by the client's connection, like the only one.

use super::exchange::{Exchange, after};
use super::{Class, Ending, Fault, Relay};
use crate::engine::fallback::{Fallback, Fallbacks};
use crate::server::attempt::{AttemptTarget, FanOut, FanOutPart, SentRequest, UpstreamSelection};
use crate::upstream::Pool;
use crate::wire::Rewriter;
use http::HeaderMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// The exchange for another choice.
pub(super) struct SiblingExchange {
    exchange: Exchange,
    rewriter: Rewriter,
    /// Who else may be asked for it.
    selection: Option<UpstreamSelection>,
}

impl Relay {
    /// The present exchange is for the first choice; the requests for the others go to the same upstream.
    pub(super) fn fan_out(&mut self, fan_out: FanOut, pause: Duration) {
        let FanOut { gather, others } = fan_out;
        self.buffer.gather_in(gather);
        let (upstream, again) = (Arc::clone(self.upstream()), self.again.as_ref());
        let fallbacks = self.exchange.fallbacks;
        let other = |(choice, (asking, rewriter))| SiblingExchange {
            exchange: Exchange::begin(Pool::again(&upstream), after(pause, asking), choice, fallbacks),
            rewriter,
            selection: again.map(|again| again.selection.clone()),
        };
        self.others = (1..).zip(others).map(other).collect();
    }

    /// The engine has ended fewer choices than were asked for, as engines do that know of one alone: each of the others is
    /// asked for by a request of its own, behind those that there are, and from now on at once.
    pub(super) fn asks_for_the_rest(&mut self) -> bool {
        let Some(given) = self.buffer.rewriter.lacks() else { return false };
        let Some(mut again) = self.again.take() else {
            self.buffer.lacks_for_good();
            return false;
        };
        let upstream = Arc::clone(self.upstream());
        let (model, fallback) = (self.record.app.pool.engine_name(again.selection.model()), Fallback::FanOut);
        upstream.answers_to(model, Fallbacks::default().with(fallback));
        self.told();
        self.give_back();
        let gather = self.buffer.gather_rest(given, fallback.rule().name);
        if given.asked - given.choices > 1 {
            again.request.at_once();
        }
        let (attempt, fallbacks) = (again.selection.attempts(), self.exchange.fallbacks);
        for choice in given.choices..given.asked {
            let part = Some(FanOutPart { choice, gather: &gather });
            let sent = again.request.send(&AttemptTarget { upstream: &upstream, attempt, part, fallbacks });
            let Ok(SentRequest { asking, rewriter, fallbacks, .. }) = sent else { continue };
            let exchange = Exchange::begin(Pool::again(&upstream), asking, choice, fallbacks);
            self.others.push(SiblingExchange {
                exchange,
                rewriter,
                selection: Some(again.selection.clone()),
            });
        }
        self.again = Some(again);
        self.clock.asks_again();
        if self.others.len() < (given.asked - given.choices) as usize {
            self.others.clear();
            gather.fail(Fault::Incomplete.into(), &mut self.buffer.out);
            return false;
        }
        // The one that is over gives its place to the first of them.
        self.turn(0);
        self.others.swap_remove(0);
        true
    }

    /// Reads on, in the only answer or in each of several.
    pub(super) fn poll_engines(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.buffer.is_of_several() {
            return self.poll_engine(cx);
        }
        let mut polled = Poll::Pending;
        self.each(|this| {
            if this.poll_engine(cx).is_ready() {
                polled = Poll::Ready(());
            }
            this.is_full()
        });
        polled
    }

    /// The engines take too long, each of them that has not ended.
    pub(super) fn time_out(&mut self) {
        let class = if self.clock.has_half() { Class::Perhaps } else { Class::Never };
        self.each(|this| {
            this.exchange.let_go();
            this.exchange.class = Some(class);
            this.buffer.finish(Ending::Timeout);
            false
        });
    }

    /// Does something with each exchange that is not over, until it says that it is enough or the answer has ended.
    fn each(&mut self, mut act: impl FnMut(&mut Self) -> bool) {
        let all = self.others.len();
        for at in 0..=all {
            // Each turn leaves in its place the one before: after the last, all of them have had theirs.
            if at > 0 {
                self.turn(at - 1);
            }
            let enough = act(self);
            self.settle();
            if self.buffer.ended() {
                break;
            }
            if enough {
                // Whoever had no turn has the next.
                self.others.rotate_left(at);
                break;
            }
        }
        self.sweep();
    }

    fn turn(&mut self, at: usize) {
        let Some(other) = self.others.get_mut(at) else { return };
        std::mem::swap(&mut self.exchange, &mut other.exchange);
        self.buffer.turn_to(&mut other.rewriter);
        if let (Some(again), Some(selection)) = (&mut self.again, &mut other.selection) {
            std::mem::swap(&mut again.selection, selection);
        }
    }

    /// Of several answers the one that is read may have ended: well, or with a failure that another engine may mend, or for
    /// all of them.
    pub(super) fn settle(&mut self) {
        if !self.buffer.is_of_several()
            || !self.buffer.rewriter.progress().ended
            || self.buffer.ended() && self.exchange.is_done()
        {
            return;
        }
        if self.buffer.rewriter.any_failure().is_none() {
            self.told();
            return self.give_back();
        }
        if !self.is_sent_again() {
            self.buffer.give_up();
            // Nobody waits for them any more.
            for other in std::mem::take(&mut self.others) {
                self.buffer.leave(&other.rewriter);
            }
        }
    }

    /// Lets go of those that are over; whoever has the turn is not, unless all are.
    fn sweep(&mut self) {
        let Self { others, buffer, .. } = self;
        others.retain(|other| {
            if other.exchange.is_done() {
                buffer.leave(&other.rewriter);
            }
            !other.exchange.is_done()
        });
        if self.exchange.is_done() && !self.others.is_empty() {
            self.turn(0);
            let over = self.others.swap_remove(0);
            self.buffer.leave(&over.rewriter);
        }
    }

    /// Headers of an engine's answer that pass: of several, one that has come.
    pub(super) fn passed(&self) -> &HeaderMap {
        let others = self.others.iter().map(|other| &other.exchange.passed);
        let mut all = std::iter::once(&self.exchange.passed).chain(others);
        all.find(|passed| !passed.is_empty()).unwrap_or(&self.exchange.passed)
    }
}
