//! Rules of a stream (2.3, 2.5, 3.2, 3.3), applied to the complete list of its events.

use super::chunk::{self, CallPiece, Chunk, Entry, Extensions, FunctionCall, Logprobs, Usage};
use super::failure::Failure;
use super::json::Json;
use super::repair;
use super::{Case, Envelope, FinishWord};
use super::{
    call_id, fingerprint, finish_reason, forced_function, is_chat, option, service_tier, sse,
};

/// Event of the engine, decoded; the rules of a stream run over the complete list of these.
#[derive(Clone, Debug)]
pub enum EngineEvent {
    Chunk(Box<Chunk>),
    Failed(Failure),
    /// Data that is not a JSON object, or that has a wrong type in it.
    Nonsense,
    Done,
}

/// Frame for the client, before it is written as text by `frame`.
#[derive(Clone, Debug)]
pub struct Frame {
    pub choice: usize,
    pub part: Part,
    pub logprobs: Option<Logprobs>,
    /// Usage on a frame (`continuous_usage`), or in the usage frame.
    pub usage: Option<Usage>,
    pub service_tier: Option<String>,
    pub fingerprint: Option<String>,
    pub asked: Extensions,
    pub choice_asked: Extensions,
    pub extra: Option<String>,
    pub choice_extra: Option<String>,
    /// True if the frame's chunk also ends the choice, so that its count includes the finish.
    pub last: bool,
}

impl Frame {
    /// Returns true if this finish is written together with the frame before it, because they share a count.
    pub fn joins(&self, before: &Self) -> bool {
        let bare = self.asked.is_empty()
            && self.choice_asked.is_empty()
            && self.extra.is_none()
            && self.choice_extra.is_none();
        before.last
            && bare
            && before.choice == self.choice
            && matches!(self.part, Part::Finish { .. })
    }
}

/// Content of a frame: exactly one of the parts that a canonical frame may carry (2.3).
#[derive(Clone, Debug)]
pub enum Part {
    Role,
    Reasoning(String),
    Content(String),
    Refusal(String),
    CallHeader {
        index: usize,
        id: String,
        name: String,
    },
    CallArguments {
        index: usize,
        text: String,
    },
    FunctionCall(FunctionCall),
    /// Logprobs without text.
    Nothing,
    Finish {
        reason: &'static str,
        stop_reason: Option<String>,
    },
    Usage,
}

/// Result of a whole stream: its frames, and the failure that ended it, if there is one.
#[derive(Debug, Default)]
pub struct Run {
    /// Envelope; present as soon as there is a frame.
    pub envelope: Option<Envelope>,
    pub frames: Vec<Frame>,
    pub usage: Option<Usage>,
    pub failure: Option<Failure>,
    /// Extensions of the chunk with the usage, if no frame was made from it.
    pub usage_asked: Extensions,
    /// Service tier as known at the end.
    pub service_tier: Option<String>,
    pub fingerprint: Option<String>,
}

/// Decodes the engine's bytes into events.
pub fn decode(case: &Case) -> Vec<EngineEvent> {
    sse::events(&case.input)
        .into_iter()
        // llama.cpp begins a stream with a null.
        .filter(|event| {
            event.name == "error"
                || event
                    .data
                    .as_deref()
                    .is_none_or(|data| data.trim() != "null")
        })
        .map(|event| {
            let Some(data) = event.data else {
                return EngineEvent::Nonsense;
            };
            if data.trim() == "[DONE]" {
                return EngineEvent::Done;
            }
            if event.name == "error" {
                return EngineEvent::Failed(Failure::from_error_event(&data));
            }
            let Some(json) = Json::parse(&data) else {
                return EngineEvent::Nonsense;
            };
            if let Some(failure) = Failure::from_object(&json) {
                return EngineEvent::Failed(failure);
            }
            let Some(mut chunk) = chunk::read(case, &json) else {
                return EngineEvent::Nonsense;
            };
            // Reasoning that the client does not get is treated as absent.
            if option(case, "reasoning_field") == "none" {
                chunk
                    .choices
                    .iter_mut()
                    .for_each(|entry| entry.reasoning.clear());
            }
            EngineEvent::Chunk(Box::new(chunk))
        })
        .collect()
}

/// Applies the rules to the events and returns the frames.
pub fn run(case: &Case, said: Vec<EngineEvent>) -> Run {
    let mut machine = Machine {
        case,
        run: Run::default(),
        service_tier: None,
        fingerprint: None,
        usage_extra: Leftovers::default(),
        prompt_told: false,
        choices: vec![Choice::default(); super::index_limit(case)],
    };
    if let Err(failure) = machine.run_all(said) {
        machine.flush_before_error();
        machine.run.failure = Some(failure);
    }
    machine.run.service_tier = machine.service_tier;
    machine.run.fingerprint = machine.fingerprint;
    machine.run
}

struct Machine<'a> {
    case: &'a Case,
    run: Run,
    service_tier: Option<String>,
    fingerprint: Option<String>,
    /// Other members of the chunk with the usage.
    usage_extra: Leftovers,
    /// True once the tokens of the prompt have been sent.
    prompt_told: bool,
    choices: Vec<Choice>,
}

#[derive(Clone, Debug, Default)]
struct Choice {
    role_sent: bool,
    /// True once the engine has mentioned the choice.
    started: bool,
    calls: Vec<Call>,
    held: Option<HeldFinish>,
    finished: bool,
    /// Number of characters in tokens whose logprobs have no text offsets.
    characters: usize,
}

/// Finish that waits for the frames after it (2.3 rule 7).
#[derive(Clone, Debug)]
struct HeldFinish {
    word: FinishWord,
    stop_reason: Option<String>,
    usage: Option<Usage>,
    extra: Leftovers,
    choice_asked: Extensions,
    choice_extra: Option<String>,
}

/// Members of a chunk besides its choices, for the first frame made from it.
#[derive(Clone, Debug, Default)]
struct Leftovers {
    asked: Extensions,
    extra: Option<String>,
}

#[derive(Clone, Debug, Default)]
struct Call {
    engine_index: Option<u64>,
    id: String,
    /// True if another call has the same id.
    shares_id: bool,
    name: String,
    /// Arguments received so far, without repetitions.
    arguments: String,
    /// Index sent to the client in the header. Indices follow the order of headers, so that the output, read again,
    /// gives the same ones.
    sent: Option<usize>,
    /// Beginning of a second value that may be a repetition of the first.
    behind: String,
    /// True once something other than the first value has followed it: nothing is held back from then on.
    passes: bool,
    /// Arguments that came before the name.
    unsent: String,
    /// True for a custom tool, whose input is no JSON.
    custom: bool,
    /// Arguments held for repair: all of them, or those after the value.
    waiting: String,
    /// True once a repair has been tried before the end.
    tried: bool,
    /// True once nothing is held for repair any more.
    settled: bool,
}

/// State of the calls of a choice, which decides whether their held arguments can be sent or repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallState {
    Interrupted,
    Ended,
    Cut,
}

/// Members of one entry, for the frames made from it.
struct FrameExtras {
    logprobs: Option<Logprobs>,
    usage: Option<Usage>,
    choice_asked: Extensions,
    choice_extra: Option<String>,
    last: bool,
}

impl Machine<'_> {
    fn run_all(&mut self, said: Vec<EngineEvent>) -> Result<(), Failure> {
        let mut done = false;
        for one in said {
            match one {
                EngineEvent::Done => {
                    done = true;
                    break;
                }
                EngineEvent::Failed(failure) => return Err(failure),
                EngineEvent::Nonsense if option(self.case, "invalid_event") == "skip" => {}
                EngineEvent::Nonsense => return Err(Failure::invalid_event()),
                EngineEvent::Chunk(chunk) => self.chunk(*chunk)?,
            }
        }
        self.end(done)
    }

    fn chunk(&mut self, mut chunk: Chunk) -> Result<(), Failure> {
        // The prompt's tokens are sent only once.
        if self.prompt_told {
            chunk.asked.retain(|(key, _)| *key != "prompt_token_ids");
        }
        if chunk.choices.is_empty() && chunk.usage.is_none() {
            return Ok(());
        }
        if self.run.envelope.is_none() {
            self.run.envelope = Some(Envelope::of(
                self.case,
                &chunk.id,
                chunk.created,
                &chunk.model,
            ));
        }
        if chunk.usage.is_some() {
            self.run.usage = chunk.usage.clone();
            let leftovers = Leftovers {
                asked: chunk.asked.clone(),
                extra: chunk.extra.clone(),
            };
            self.usage_extra = if chunk.choices.is_empty() {
                leftovers
            } else {
                Leftovers::default()
            };
        }
        // A finish released by this chunk precedes the chunk's own frames, and does not have their fingerprint.
        match chunk.choices.first() {
            None => self.release_all_but(None)?,
            Some(first)
                if first.index < self.choices.len()
                    && self.speaks(first, !chunk.asked.is_empty()) =>
            {
                self.release_all_but(Some(first.index))?;
            }
            Some(_) => {}
        }
        if self.service_tier.is_none() {
            self.service_tier = service_tier(chunk.service_tier.as_deref());
        }
        if self.fingerprint.is_none() {
            self.fingerprint = fingerprint(self.case, chunk.fingerprint.as_deref());
        }
        let usage = chunk
            .usage
            .filter(|_| super::wants_continuous_usage(self.case));
        let mut extra = Leftovers {
            asked: chunk.asked,
            extra: chunk.extra,
        };
        for entry in chunk.choices {
            self.entry(entry, &usage, &mut extra)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        entry: Entry,
        usage: &Option<Usage>,
        extra: &mut Leftovers,
    ) -> Result<(), Failure> {
        let at = entry.index;
        if at >= self.choices.len() {
            return Err(Failure::invalid_event());
        }
        let logprobs = entry
            .logprobs
            .clone()
            .filter(|_| super::wants_logprobs(self.case));
        let characters = &mut self.choices[at].characters;
        let logprobs = logprobs.map(|logprobs| logprobs.place(characters));
        let has_delta = entry.has_delta();
        let word = Some(entry.finish.as_str())
            .filter(|word| !word.is_empty())
            .map(FinishWord::of);
        if word == Some(FinishWord::Abort) && !has_delta && logprobs.is_none() {
            // A lone error starts no choice, so that it can still be an HTTP error (3.4), and releases no finish.
            return Err(Failure::aborted());
        }
        if self.speaks(&entry, !extra.asked.is_empty()) {
            self.release_all_but(Some(at))?;
        }
        self.choices[at].started = true;
        self.roles_up_to(at, usage, extra);
        if self.choices[at].finished {
            return match word {
                _ if has_delta => Err(Failure::invalid_event()),
                Some(FinishWord::Abort) => Err(Failure::aborted()),
                _ => Ok(()),
            };
        }
        let stop_reason = entry.stop_reason.clone();
        let mut extras = FrameExtras {
            logprobs,
            usage: usage.clone(),
            choice_asked: entry.asked.clone(),
            choice_extra: entry.extra.clone(),
            last: word.is_some() && usage.is_some() && super::wants_usage(self.case),
        };
        self.parts(entry, &mut extras, extra);
        let tells_more = !extras.choice_asked.is_empty() || !extra.asked.is_empty();
        if extras.logprobs.is_some() || word.is_none() && tells_more {
            self.push(at, Part::Nothing, &mut extras, extra);
        }
        match word {
            Some(FinishWord::Abort) => return Err(Failure::aborted()),
            Some(word) if self.choices[at].held.is_none() => {
                let held = HeldFinish {
                    word,
                    stop_reason,
                    usage: extras.usage,
                    extra: std::mem::take(extra),
                    choice_asked: extras.choice_asked,
                    choice_extra: extras.choice_extra,
                };
                self.choices[at].held = Some(held);
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns true if an entry is an event of its choice. An empty entry is not, unless a role frame is made from
    /// it (2.3 rules 4 and 7).
    fn speaks(&self, entry: &Entry, chunk_tells_more: bool) -> bool {
        let logprobs = entry.logprobs.is_some() && super::wants_logprobs(self.case);
        let aborts = FinishWord::of(&entry.finish) == FinishWord::Abort;
        let begins_or_ends = !aborts
            && (!entry.finish.is_empty()
                || (is_chat(self.case) && !self.choices[entry.index].role_sent));
        let tells_more = !aborts && (chunk_tells_more || !entry.asked.is_empty());
        entry.has_delta() || logprobs || begins_or_ends || tells_more
    }

    /// Sends the role frames of this choice and of those below it that are still missing (2.3 rule 6).
    fn roles_up_to(&mut self, at: usize, usage: &Option<Usage>, extra: &mut Leftovers) {
        if !is_chat(self.case) {
            return;
        }
        for choice in 0..=at {
            if !self.choices[choice].role_sent {
                self.choices[choice].role_sent = true;
                // The role frame carries no logprobs, and only those extensions that were requested and belong to
                // the chunk.
                let mut extras = FrameExtras::only(usage.clone());
                let asked = std::mem::take(&mut extra.asked);
                self.push(
                    choice,
                    Part::Role,
                    &mut extras,
                    &mut Leftovers { asked, extra: None },
                );
            }
        }
    }

    /// Sends the frames of a delta in their order (2.3 rule 3).
    fn parts(&mut self, entry: Entry, extras: &mut FrameExtras, extra: &mut Leftovers) {
        let at = entry.index;
        let function_call = entry.function_call.filter(FunctionCall::says_anything);
        let texts = [
            entry.content.as_ref(),
            entry.refusal.as_ref(),
            Some(&entry.continued),
        ];
        let hidden = option(self.case, "reasoning_field") == "none";
        if !entry.reasoning.is_empty() && !hidden
            || texts.into_iter().flatten().any(|text| !text.is_empty())
        {
            self.pass_on(at, None, CallState::Interrupted);
        }
        if !entry.reasoning.is_empty() && option(self.case, "reasoning_field") != "none" {
            self.push(at, Part::Reasoning(entry.reasoning), extras, extra);
        }
        if !entry.continued.is_empty() {
            self.push(at, Part::Content(entry.continued), extras, extra);
        }
        if let Some(text) = entry.content.filter(|text| !text.is_empty()) {
            self.push(at, Part::Content(text), extras, extra);
        }
        if let Some(text) = entry.refusal.filter(|text| !text.is_empty()) {
            self.push(at, Part::Refusal(text), extras, extra);
        }
        for piece in entry.calls {
            if piece.says_anything() {
                self.call(at, piece, extras, extra);
            }
        }
        if let Some(call) = function_call {
            self.pass_on(at, None, CallState::Interrupted);
            self.push(at, Part::FunctionCall(call), extras, extra);
        }
    }

    // === tool calls (2.5) ===

    fn call(
        &mut self,
        at: usize,
        piece: CallPiece,
        extras: &mut FrameExtras,
        extra: &mut Leftovers,
    ) {
        let which = self.which_call(at, &piece);
        // A call without a name has no text yet that another call's text could follow.
        let is_named = self.choices[at].calls[which].sent.is_some() || !piece.name.is_empty();
        if is_named {
            self.pass_on(at, Some(which), CallState::Interrupted);
        }
        let calls = &mut self.choices[at].calls;
        let is_taken = calls
            .iter()
            .enumerate()
            .any(|(other, call)| other != which && call.id == piece.id);
        let begins = calls[which].id.is_empty() && !piece.id.is_empty();
        let call = &mut calls[which];
        if begins {
            call.id = piece.id;
            call.shares_id = is_taken;
        }
        if call.name.is_empty() {
            call.name = piece.name;
        }
        call.custom |= piece.custom.is_some();
        let repair = option(self.case, "repair_arguments");
        let texts = if piece.whole {
            call.all(&piece.arguments)
        } else {
            call.accept(&piece.arguments)
        };
        let texts: Vec<String> = texts
            .into_iter()
            .filter_map(|text| call.offer(&repair, text))
            .collect();
        match call.sent {
            Some(index) => {
                for text in texts.into_iter().filter(|text| !text.is_empty()) {
                    self.push(at, Part::CallArguments { index, text }, extras, extra);
                }
            }
            None if !call.name.is_empty() => {
                self.send_call(at, which, &texts.concat(), extras, extra)
            }
            None => call.unsent.push_str(&texts.concat()),
        }
    }

    /// Gives an empty object to the calls without arguments (2.5 rule 13). `cut`: not to the last one.
    fn complete(&mut self, at: usize, cut: bool) {
        let started = self.choices[at]
            .calls
            .iter()
            .filter(|call| call.sent.is_some())
            .count();
        for which in 0..self.choices[at].calls.len() {
            let call = &mut self.choices[at].calls[which];
            let is_absent = call
                .arguments
                .trim_matches([' ', '\t', '\r', '\n'])
                .is_empty();
            let Some(index) = call
                .sent
                .filter(|index| is_absent && !(cut && index + 1 == started))
            else {
                continue;
            };
            let text = "{}".to_owned();
            call.arguments.push_str(&text);
            let (mut extras, mut extra) = (FrameExtras::only(None), Leftovers::default());
            self.push(
                at,
                Part::CallArguments { index, text },
                &mut extras,
                &mut extra,
            );
        }
    }

    /// Sends the held part of the arguments of all calls but one: text after the first value that does not repeat it,
    /// and what waits for a repair.
    fn pass_on(&mut self, at: usize, but: Option<usize>, state: CallState) {
        let repair = option(self.case, "repair_arguments");
        for which in 0..self.choices[at].calls.len() {
            let call = &mut self.choices[at].calls[which];
            let Some(index) = call.sent.filter(|_| Some(which) != but) else {
                continue;
            };
            let behind = std::mem::take(&mut call.behind);
            call.passes |= !behind.is_empty();
            call.arguments.push_str(&behind);
            let texts = [call.offer(&repair, behind), call.settle(&repair, state)];
            for text in texts.into_iter().flatten() {
                let (mut extras, mut extra) = (FrameExtras::only(None), Leftovers::default());
                self.push(
                    at,
                    Part::CallArguments { index, text },
                    &mut extras,
                    &mut extra,
                );
            }
        }
    }

    /// Sends a call's header, the arguments held for it in one fragment, and those that came with it (2.5 rule 4).
    fn send_call(
        &mut self,
        at: usize,
        which: usize,
        fresh: &str,
        extras: &mut FrameExtras,
        extra: &mut Leftovers,
    ) {
        let envelope = self.run.envelope.clone().unwrap();
        let index = self.choices[at]
            .calls
            .iter()
            .filter(|call| call.sent.is_some())
            .count();
        let call = &mut self.choices[at].calls[which];
        call.sent = Some(index);
        let waited = std::mem::take(&mut call.unsent);
        let id = call_id(
            self.case,
            &envelope,
            at,
            index,
            if call.shares_id { "" } else { &call.id },
        );
        let name = call.name.clone();
        self.push(at, Part::CallHeader { index, id, name }, extras, extra);
        for text in [waited, fresh.to_owned()] {
            if !text.is_empty() {
                self.push(at, Part::CallArguments { index, text }, extras, extra);
            }
        }
    }

    /// Returns the call that a piece belongs to, and opens it if necessary (2.5 rule 2).
    fn which_call(&mut self, at: usize, piece: &CallPiece) -> usize {
        let calls = &mut self.choices[at].calls;
        let known = match piece.index {
            Some(index) => {
                let there = calls
                    .iter()
                    .rposition(|call| call.engine_index == Some(index));
                let another = there.is_some_and(|there| {
                    let recorded = &calls[there].id;
                    let differs =
                        !piece.id.is_empty() && !recorded.is_empty() && piece.id != *recorded;
                    (differs || calls[there].is_followed_by(&piece.arguments))
                        && !piece.name.is_empty()
                });
                if another { None } else { there }
            }
            None if !piece.id.is_empty() => calls.iter().rposition(|call| call.id == piece.id),
            None if !piece.name.is_empty() => None,
            None => calls.len().checked_sub(1),
        };
        known.unwrap_or_else(|| {
            calls.push(Call {
                engine_index: piece.index,
                ..Call::default()
            });
            calls.len() - 1
        })
    }

    // === ends ===

    /// Sends held finishes, except the one of the choice that has the current event.
    fn release_all_but(&mut self, speaking: Option<usize>) -> Result<(), Failure> {
        for at in 0..self.choices.len() {
            if Some(at) != speaking {
                self.release(at)?;
            }
        }
        Ok(())
    }

    fn release(&mut self, at: usize) -> Result<(), Failure> {
        let Some(mut held) = self.choices[at].held.take() else {
            return Ok(());
        };
        if !self.name_calls(at) {
            return Err(Failure::nameless_call(super::wants_stream(self.case)));
        }
        let completion = self.run.usage.as_ref().map(|usage| usage.completion);
        let cut = super::may_be_cut(self.case, held.word, completion);
        self.pass_on(
            at,
            None,
            if cut {
                CallState::Cut
            } else {
                CallState::Ended
            },
        );
        let mut calls = self.choices[at].calls.clone();
        calls.sort_by_key(|call| call.sent);
        let calls: Vec<String> = calls.into_iter().map(|call| call.arguments).collect();
        let reason = finish_reason(self.case, held.word, &calls, completion);
        self.complete(at, ["length", "content_filter"].contains(&reason));
        let part = Part::Finish {
            reason,
            stop_reason: held.stop_reason,
        };
        let mut extras = FrameExtras {
            choice_asked: held.choice_asked,
            choice_extra: held.choice_extra,
            ..FrameExtras::only(held.usage)
        };
        if self.prompt_told {
            held.extra
                .asked
                .retain(|(key, _)| *key != "prompt_token_ids");
        }
        self.push(at, part, &mut extras, &mut held.extra);
        self.choices[at].finished = true;
        Ok(())
    }

    /// Gives calls without a name the forced one. Returns false if a call remains without a name.
    fn name_calls(&mut self, at: usize) -> bool {
        for which in 0..self.choices[at].calls.len() {
            if self.choices[at].calls[which].name.is_empty() {
                let Some(name) = forced_function(self.case) else {
                    return false;
                };
                self.choices[at].calls[which].name = name;
                self.send_call(
                    at,
                    which,
                    "",
                    &mut FrameExtras::only(None),
                    &mut Leftovers::default(),
                );
            }
        }
        true
    }

    fn end(&mut self, done: bool) -> Result<(), Failure> {
        let expected = super::choices(self.case);
        let mut missing = Vec::new();
        for (at, choice) in self.choices.iter().enumerate() {
            let due = at < expected || choice.started;
            if due && !choice.finished && choice.held.is_none() {
                missing.push(at);
            }
        }
        if !missing.is_empty() {
            let supplied = done && option(self.case, "missing_finish") == "stop";
            if !supplied || missing.iter().any(|at| !self.choices[*at].started) {
                return Err(Failure::incomplete());
            }
        }
        self.release_all_but(None)?;
        for at in missing {
            let held = HeldFinish {
                word: FinishWord::Stop,
                stop_reason: None,
                usage: None,
                extra: Leftovers::default(),
                choice_asked: Extensions::new(),
                choice_extra: None,
            };
            self.choices[at].held = Some(held);
            self.release(at)?;
        }
        let mut extra = std::mem::take(&mut self.usage_extra);
        if self.prompt_told {
            extra.asked.retain(|(key, _)| *key != "prompt_token_ids");
        }
        self.run.usage_asked = extra.asked.clone();
        if super::wants_usage(self.case) && self.run.usage.is_some() {
            let mut extras = FrameExtras::only(self.run.usage.clone());
            self.push(0, Part::Usage, &mut extras, &mut extra);
        }
        Ok(())
    }

    /// Sends held arguments before an error, if they can have a header (3.2).
    fn flush_before_error(&mut self) {
        if self.run.envelope.is_some() {
            for at in 0..self.choices.len() {
                self.name_calls(at);
                self.pass_on(at, None, CallState::Cut);
            }
        }
    }

    fn push(&mut self, choice: usize, part: Part, extras: &mut FrameExtras, extra: &mut Leftovers) {
        let asked = std::mem::take(&mut extra.asked);
        self.prompt_told |= asked.iter().any(|(key, _)| *key == "prompt_token_ids");
        self.run.frames.push(Frame {
            choice,
            part,
            logprobs: extras.logprobs.take(),
            usage: extras.usage.clone(),
            service_tier: self.service_tier.clone(),
            fingerprint: self.fingerprint.clone(),
            asked,
            choice_asked: std::mem::take(&mut extras.choice_asked),
            extra: extra.extra.take(),
            choice_extra: extras.choice_extra.take(),
            last: extras.last,
        });
    }
}

impl FrameExtras {
    /// Returns extras with usage only.
    fn only(usage: Option<Usage>) -> Self {
        Self {
            logprobs: None,
            usage,
            choice_asked: Extensions::new(),
            choice_extra: None,
            last: false,
        }
    }
}

impl Call {
    /// Appends a piece of the arguments and returns the part to send, in pieces. Some engines send the whole
    /// arguments again at the end: a repetition of the first object or list is dropped.
    fn accept(&mut self, piece: &str) -> Vec<String> {
        let piece = self.new_part(piece);
        let before = self.arguments.len();
        let text = format!("{}{}{piece}", self.arguments, self.behind);
        let Some(end) = complete_value(&text).filter(|_| !self.passes) else {
            return self.all(piece);
        };
        // White space that has already been taken stays. Behind other text no second value is looked for.
        if !text[end.min(before)..before]
            .trim_matches([' ', '\t', '\r', '\n'])
            .is_empty()
        {
            return self.all(piece);
        }
        let end = end.max(before);
        let begins = |c: char| "{[\"-tfn".contains(c) || c.is_ascii_digit();
        if !text[end..]
            .trim_start_matches([' ', '\t', '\r', '\n'])
            .starts_with(begins)
        {
            return self.all(piece);
        }
        // If a piece holds both, the white space between them belongs to the second value.
        let cut = if self.behind.is_empty() { end } else { before };
        let fresh = text[before..cut].to_owned();
        let behind = text[cut..].to_owned();
        self.behind.clear();
        self.arguments = text[..cut].to_owned();
        let is_begun = super::may_continue(&behind);
        let spelled = |text: &str| {
            serde_json::from_str::<String>(text)
                .ok()
                .and_then(|text| Json::parse(&text))
        };
        let second = || Json::parse(&behind).into_iter().chain(spelled(&behind));
        let is_same = || second().any(|second| second.value() == self.first_value());
        if is_begun {
            self.behind = behind;
        } else if !is_same() {
            self.passes = true;
            self.arguments.push_str(&behind);
            return vec![fresh + &behind];
        }
        vec![fresh]
    }

    /// Returns a piece without the part that repeats an open value: a whole object that begins in the same way and could
    /// not continue it.
    fn new_part<'p>(&self, piece: &'p str) -> &'p str {
        let read = |text: &str| serde_json::from_str::<serde::de::IgnoredAny>(text);
        let is_broken = |text: &str| read(text).is_err() && !super::may_continue(text);
        let is_object = piece.trim_start().starts_with('{') && read(piece).is_ok();
        let repeats = super::is_open(&self.arguments)
            && is_object
            && is_broken(&format!("{}{piece}", self.arguments));
        piece
            .strip_prefix(self.arguments.as_str())
            .filter(|_| repeats)
            .unwrap_or(piece)
    }

    /// Returns the part of a further text to send now, if arguments may have to be repaired.
    fn offer(&mut self, repair: &str, text: String) -> Option<String> {
        if self.settled || self.custom || text.is_empty() || !["tail", "json"].contains(&repair) {
            return Some(text).filter(|text| !text.is_empty());
        }
        self.waiting.push_str(&text);
        if repair == "json" {
            return None;
        }
        let end = repair::value_end(&self.arguments).unwrap_or(self.arguments.len());
        let before = self.arguments.len() - self.waiting.len();
        let sent = self.waiting[..end.max(before) - before].to_owned();
        let tail = self.waiting[sent.len()..].to_owned();
        self.settled = tail.len() > 1024 || !repair::may_be_marks(&tail);
        self.waiting = if self.settled {
            String::new()
        } else {
            tail.clone()
        };
        Some(if self.settled { sent + &tail } else { sent }).filter(|text| !text.is_empty())
    }

    /// Returns the part of the waiting arguments to send, repaired if possible.
    fn settle(&mut self, repair: &str, state: CallState) -> Option<String> {
        if self.waiting.is_empty() {
            return None;
        }
        if repair == "tail" {
            self.settled = true;
            let tail = std::mem::take(&mut self.waiting);
            if repair::is_marks(&tail) {
                self.arguments.truncate(self.arguments.len() - tail.len());
                return None;
            }
            return Some(tail);
        }
        let is_json = Json::parse(&self.arguments).is_some();
        let tries = !(state == CallState::Interrupted && self.tried);
        self.tried = true;
        let found =
            repair::repaired(&self.waiting, repair, state == CallState::Ended).filter(|_| tries);
        if found.is_none() && !is_json && state == CallState::Interrupted {
            return None;
        }
        self.settled = true;
        let waiting = std::mem::take(&mut self.waiting);
        if let Some(found) = &found {
            self.arguments.clone_from(found);
        }
        Some(found.unwrap_or(waiting))
    }

    fn all(&mut self, piece: &str) -> Vec<String> {
        self.arguments.push_str(piece);
        vec![piece.to_owned()]
    }

    /// Returns the first object or list, if it is complete.
    fn first_value(&self) -> serde_json::Value {
        let end = complete_value(&self.arguments).unwrap_or(0);
        Json::parse(&self.arguments[..end]).map_or(serde_json::Value::Null, |json| json.value())
    }

    /// Returns true if these arguments, sent with a name, belong to another call: this call's are complete and
    /// differ.
    fn is_followed_by(&self, arguments: &str) -> bool {
        let own = self.first_value();
        let is_same = Json::parse(arguments).is_some_and(|json| json.value() == own);
        !own.is_null() && arguments.trim_start().starts_with('{') && !is_same
    }
}

/// Returns the end of the first complete object or list in a text.
fn complete_value(text: &str) -> Option<usize> {
    if !text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    let ends = text
        .char_indices()
        .filter(|(_, c)| *c == '}' || *c == ']')
        .map(|(at, _)| at + 1);
    ends.into_iter()
        .find(|end| Json::parse(&text[..*end]).is_some())
}
