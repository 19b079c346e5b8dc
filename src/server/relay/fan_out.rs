//! Answers assembled from several: an engine that gives only one choice is sent one request for each.
//!
//! The buffer's rewriter merges the answers. The current exchange takes the place of the only one, and the rewriter
//! reads its answer. An action on the relay is repeated with each exchange as the current one. All of them are polled
//! by the client's connection, like a single one.

use super::attempt::{AttemptTarget, PendingRequest};
use super::exchange::{Exchange, send_after};
use super::selection::UpstreamSelection;
use super::{Ending, Relay, RetryClass};
use crate::engine::fallback::{Fallback, Fallbacks};
use crate::server::net::pending_answer::PendingAnswer;
use crate::upstream::Pool;
use crate::wire::AnswerReader;
use http::HeaderMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Exchange for a choice other than the current one, with the reader of its answer.
pub(super) struct SiblingExchange {
    exchange: Exchange,
    reader: AnswerReader,
    /// Upstreams to which its request may be sent again.
    selection: Option<UpstreamSelection>,
}

impl SiblingExchange {
    /// Returns the number of events that have been read of its answer.
    pub(super) fn events(&self) -> u64 {
        self.reader.events()
    }
}

impl Relay {
    /// Begins the exchanges for all choices but the first, whose exchange is the current one, at the same upstream.
    pub(super) fn begin_others(&mut self, others: Vec<(PendingAnswer, AnswerReader)>, pause: Duration) {
        let (upstream, fallbacks) = (Arc::clone(self.upstream()), self.exchange.fallbacks);
        let resend = self.resend.as_ref();
        let other = |(choice, (answer, reader))| SiblingExchange {
            exchange: Exchange::begin(
                Pool::same_upstream(&upstream),
                send_after(pause, answer),
                choice,
                fallbacks,
            ),
            reader,
            selection: resend.map(|resend| resend.selection.clone()),
        };
        self.others = (1..).zip(others).map(other).collect();
    }

    /// Requests the missing choices one by one if the engine has given fewer than were requested, as engines do
    /// that support only one. From now on requests to this upstream are split at once. Returns false if nothing
    /// more is to come.
    pub(super) fn request_missing_choices(&mut self) -> bool {
        let Some(missing) = self.buffer.rewriter.missing_choices() else { return false };
        let Some(mut resend) = self.resend.take() else {
            self.buffer.end_without_missing();
            return false;
        };
        let (upstream, served) = (Arc::clone(self.upstream()), Arc::clone(resend.selection.served()));
        let (model, fallback) = (self.record.app.pool.engine_name(&served), Fallback::FanOut);
        upstream.answers_to(model, Fallbacks::default().with(fallback));
        if missing.requested - missing.choices > 1 {
            resend.request.at_once();
        }
        let (attempt, fallbacks) = (resend.selection.attempts(), self.exchange.fallbacks);
        let send = |choice| {
            let choice_of = AttemptTarget::first(&upstream, &served);
            let to = AttemptTarget { attempt, choice: Some(choice), fallbacks, ..choice_of };
            let PendingRequest { answer, rewriter, fallbacks, .. } = resend.request.send(&to).ok()?;
            let exchange = Exchange::begin(Pool::same_upstream(&upstream), answer, choice, fallbacks);
            let selection = Some(resend.selection.clone());
            Some(SiblingExchange { exchange, reader: rewriter.into_reader(), selection })
        };
        let others: Option<Vec<_>> = (missing.choices..missing.requested).map(send).collect();
        self.resend = Some(resend);
        let Some(others) = others else {
            self.buffer.end_without_missing();
            return false;
        };
        self.finish_attempt();
        self.give_back();
        self.buffer.rewriter.merge_missing(missing, fallback.rule().name);
        self.others = others;
        self.clock.asks_again();
        // The first of the new exchanges replaces the ended one.
        self.make_current(0);
        self.others.swap_remove(0);
        true
    }

    /// Reads from the only engine answer, or from each of several.
    pub(super) fn poll_exchanges(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.buffer.rewriter.is_merged() {
            return self.poll_exchange(cx);
        }
        let mut polled = Poll::Pending;
        self.each(|this| {
            if this.poll_exchange(cx).is_ready() {
                polled = Poll::Ready(());
            }
            this.is_full()
        });
        polled
    }

    /// Ends each unfinished exchange with a timeout.
    pub(super) fn time_out(&mut self) {
        self.tell_time();
        let class = if self.clock.has_half() { RetryClass::MaybeProcessed } else { RetryClass::Never };
        self.each(|this| {
            this.exchange.cancel();
            this.exchange.class = Some(class);
            this.buffer.finish(Ending::Timeout);
            false
        });
    }

    /// Runs an action with each unfinished exchange as the current one, until the action returns true or the
    /// answer has ended.
    fn each(&mut self, mut act: impl FnMut(&mut Self) -> bool) {
        let all = self.others.len();
        for at in 0..=all {
            // Each turn swaps the exchange with the previous one, so after the last all of them have been current.
            if at > 0 {
                self.make_current(at - 1);
            }
            let enough = act(self);
            self.finish_current_choice();
            if self.buffer.ended() {
                break;
            }
            if enough {
                // Exchanges that had no turn come first next time.
                self.others.rotate_left(at);
                break;
            }
        }
        self.remove_finished();
    }

    fn make_current(&mut self, at: usize) {
        let Some(other) = self.others.get_mut(at) else { return };
        std::mem::swap(&mut self.exchange, &mut other.exchange);
        self.buffer.rewriter.swap_reader(&mut other.reader);
        if let (Some(resend), Some(selection)) = (&mut self.resend, &mut other.selection) {
            std::mem::swap(&mut resend.selection, selection);
        }
    }

    /// Handles the end of the current choice's answer: success, a failure that is retried elsewhere, or a failure
    /// of all choices.
    pub(super) fn finish_current_choice(&mut self) {
        if !self.buffer.rewriter.is_merged()
            || !self.buffer.rewriter.reader().progress().ended
            || self.buffer.ended() && self.exchange.is_done()
        {
            return;
        }
        if self.buffer.rewriter.any_failure().is_none() {
            self.finish_attempt();
            return self.give_back();
        }
        if !self.try_resend() {
            self.buffer.give_up();
            // The remaining exchanges are not needed.
            for other in std::mem::take(&mut self.others) {
                self.buffer.rewriter.add_summary_of(&other.reader);
            }
        }
    }

    /// Removes finished exchanges; the current one stays unfinished while there is any such.
    fn remove_finished(&mut self) {
        let Self { others, buffer, .. } = self;
        others.retain(|other| {
            if other.exchange.is_done() {
                buffer.rewriter.add_summary_of(&other.reader);
            }
            !other.exchange.is_done()
        });
        if self.exchange.is_done() && !self.others.is_empty() {
            self.make_current(0);
            let over = self.others.swap_remove(0);
            self.buffer.rewriter.add_summary_of(&over.reader);
        }
    }

    /// Returns the headers to pass to the client; with several answers those of one that has arrived.
    pub(super) fn forwarded_headers(&self) -> &HeaderMap {
        let others = self.others.iter().map(|other| &other.exchange.passed);
        let mut all = std::iter::once(&self.exchange.passed).chain(others);
        all.find(|passed| !passed.is_empty()).unwrap_or(&self.exchange.passed)
    }
}
