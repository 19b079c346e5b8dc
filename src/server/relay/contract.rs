//! Check of the answer against the API's contract, where `[contract] mode` asks for it: each frame before it is handed
//! over, and an answer that is stored before it is stored.

use super::Relay;
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
}

impl Relay {
    /// Checks the output that may be sent. In strict mode the answer fails in place of a violation.
    pub(super) fn check_contract(&mut self) {
        let Some(contract) = &mut self.contract else { return };
        if !self.buffer.is_due() || self.buffer.error_response().is_some() {
            return;
        }
        let mut found = Vec::new();
        let out = self.buffer.out.to_vec();
        if let Some(new) = out.get(contract.checked..).filter(|new| !new.is_empty()) {
            contract.answer.check(new, &mut found);
            found.iter_mut().for_each(|violation| violation.at += contract.checked);
            contract.checked = out.len();
        }
        if found.is_empty() {
            found = self.check_finished(out.len());
        }
        if self.contract.as_ref().is_some_and(|contract| contract.mode == Mode::Strict) {
            // Those behind the first are not sent.
            found.truncate(1);
        }
        let Some(first) = found.first().cloned() else { return };
        if self.report(&found) == Mode::Strict {
            self.contract = None;
            let kept = out.get(..first.at).unwrap_or_default();
            self.exchange.cancel();
            self.buffer.withdraw(kept, first.frames, Fault::ContractViolation.into());
        }
    }

    /// Checks an answer that has ended and whose end is written only after it is stored, when it is too late to fail.
    fn check_finished(&mut self, written: usize) -> Vec<Violation> {
        let mut found = Vec::new();
        let is_due = self.buffer.ended() && self.buffer.rewriter.any_failure().is_none();
        let is_wanted =
            |contract: &&mut Box<ContractCheck>| contract.mode == Mode::Strict && !contract.is_finished;
        let Some(contract) = self.contract.as_mut().filter(is_wanted).filter(|_| is_due) else {
            return found;
        };
        contract.is_finished = true;
        if let Some(finished) = self.buffer.rewriter.encoder().finished() {
            AnswerContract::check_object(contract.api, finished.object(true).as_bytes(), &mut found);
            found.iter_mut().for_each(|violation| violation.at = written);
        }
        found
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
        let may_lack_end = |contract: &&Box<ContractCheck>| contract.api == Api::Responses;
        let contract = self.contract.as_ref().filter(|contract| is_whole && !may_lack_end(contract));
        let Some(contract) = contract else { return };
        let mut found = Vec::new();
        contract.answer.end(&mut found);
        self.report(&found);
    }

    /// Counts violations, logs the first of the answer, and returns the mode.
    fn report(&mut self, found: &[Violation]) -> Mode {
        let Some(contract) = &mut self.contract else { return Mode::Off };
        for violation in found {
            self.record.app.metrics.contract_violation(contract.api.name(), violation.rule.name());
        }
        if let Some(Violation { rule, place, .. }) = found.first().filter(|_| !contract.is_told) {
            contract.is_told = true;
            let request_id = &self.record.request_id;
            let capture = self.record.recording.is_some().then_some(request_id.as_str());
            let (api, rule, upstream) = (contract.api.name(), rule.name(), &self.upstream().config.name);
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
        self.contract.as_ref().map_or(Mode::Off, |contract| contract.mode)
    }
}
