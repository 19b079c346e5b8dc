//! Check of the answer against the API's contract, where `[contract] mode` asks for it: each frame before it is handed
//! over, and an answer that is stored before it is stored.

use super::Relay;
use super::answer_buffer::AnswerBuffer;
use crate::contract::{AnswerContract, Form, Mode, Violation};
use crate::telemetry::Route;
use crate::wire::fault::Fault;
use crate::wire::{Api, OutputBuffer};

/// Check of one answer.
pub(super) struct ContractCheck {
    mode: Mode,
    api: Api,
    answer: AnswerContract,
    /// Number of bytes at the front of the output that are checked already.
    checked: usize,
    /// True once the finished answer was checked.
    is_finished: bool,
    /// True once a violation was logged. Those that follow are mostly its consequences and only counted.
    is_told: bool,
}

impl ContractCheck {
    /// Returns the check of an answer; `None` if nothing is to be checked.
    pub(super) fn new(mode: Mode, route: Route, stream: bool) -> Option<Box<Self>> {
        let api = match route {
            Route::Responses => Api::Responses,
            Route::Messages => Api::Messages,
            Route::Completions => Api::Completions,
            _ => Api::Chat,
        };
        let form = if stream { Form::Stream } else { Form::Whole };
        let answer = AnswerContract::new(api, form);
        let this = Self { mode, api, answer, checked: 0, is_finished: false, is_told: false };
        (mode != Mode::Off).then(|| Box::new(this))
    }

    /// Notes that all output was handed over.
    pub(super) fn handed_over(&mut self) {
        self.checked = 0;
    }

    /// Checks the output that was written since the last check.
    fn check_output(&mut self, out: &OutputBuffer) -> Vec<Violation> {
        let mut found = Vec::new();
        if out.len() > self.checked {
            let bytes = out.to_vec();
            self.answer.check(bytes.get(self.checked..).unwrap_or_default(), &mut found);
            found.iter_mut().for_each(|violation| violation.at += self.checked);
            self.checked = bytes.len();
        }
        found
    }

    /// Checks an answer that has ended and whose end is written only after it is stored, when it is too late to fail.
    fn check_finished(&mut self, buffer: &AnswerBuffer) -> Vec<Violation> {
        let mut found = Vec::new();
        let is_due = buffer.ended() && buffer.rewriter.any_failure().is_none();
        if self.mode != Mode::Strict || !is_due || std::mem::replace(&mut self.is_finished, true) {
            return found;
        }
        if let Some(finished) = buffer.rewriter.encoder().finished() {
            AnswerContract::check_object(self.api, finished.object(true).as_bytes(), &mut found);
            // No frame of the end is written yet.
            found.iter_mut().for_each(|violation| (violation.at, violation.frames) = (self.checked, 0));
        }
        found
    }
}

impl Relay {
    /// Checks the output that may be sent. In strict mode the answer fails in place of a violation.
    pub(super) fn check_contract(&mut self) {
        let Self { contract, buffer, .. } = self;
        let is_due = buffer.is_due() && buffer.error_response().is_none();
        let Some(contract) = contract.as_mut().filter(|_| is_due) else { return };
        let mut found = contract.check_output(&buffer.out);
        if found.is_empty() {
            found = contract.check_finished(buffer);
        }
        let is_strict = contract.mode == Mode::Strict;
        if is_strict {
            // Those behind the first are not sent.
            found.truncate(1);
        }
        self.report(&found);
        if let Some(Violation { at, frames, .. }) = found.first().filter(|_| is_strict) {
            self.contract = None;
            self.exchange.cancel();
            self.buffer.withdraw(*at, *frames, Fault::ContractViolation.into());
        }
    }

    /// Checks the end of an answer, which its consumer has had written after it was stored. It is sent in any case:
    /// the store has the answer already.
    pub(super) fn check_end(&mut self, end: &OutputBuffer) {
        // An end that is written once more has been checked.
        let Some(contract) = self.contract.as_mut().filter(|_| self.end_bytes == 0) else { return };
        let mut found = Vec::new();
        contract.answer.check(&end.to_vec(), &mut found);
        self.report(&found);
    }

    /// Checks the body of an HTTP error. It is sent in any case: there is nothing better to send.
    pub(super) fn check_error_body(&mut self, body: &[u8]) {
        let Some(contract) = &self.contract else { return };
        let mut found = Vec::new();
        AnswerContract::check_error(contract.api, body, &mut found);
        self.report(&found);
    }

    /// Checks that an answer without an error has its end.
    pub(super) fn check_completeness(&mut self) {
        let is_whole = self.is_complete() && self.buffer.rewriter.any_failure().is_none();
        // The end of a response may be written elsewhere, or its stream pauses and another answer continues it.
        let has_end = |api: Api| api != Api::Responses;
        let contract = self.contract.as_ref().filter(|contract| is_whole && has_end(contract.api));
        let Some(contract) = contract else { return };
        let mut found = Vec::new();
        contract.answer.end(&mut found);
        self.report(&found);
    }

    /// Counts violations, and logs the first of the answer.
    fn report(&mut self, found: &[Violation]) {
        let Some(contract) = &mut self.contract else { return };
        let api = self.record.route.name();
        for violation in found {
            self.record.app.metrics.contract_violation(api, violation.rule.name());
        }
        if let Some(Violation { rule, place, .. }) = found.first().filter(|_| !contract.is_told) {
            contract.is_told = true;
            let request_id = &*self.record.request_id;
            let capture = self.record.recording.is_some().then_some(request_id);
            let (rule, upstream) = (rule.name(), &self.upstream().config.name);
            tracing::warn!(
                request_id,
                capture,
                api,
                rule,
                place,
                upstream,
                "an answer violates the contract of the API"
            );
        }
    }
}
