//! Decoders: read one frame of an engine and report its content as events.
//!
//! Takes: a frame of one upstream API. Gives: events, in the order of the frame. Remembers: nothing of the stream,
//! except for Responses which item is which. Never: enforces the grammar; that is the normaliser's task.

mod chat;
mod checked;
mod completions;
mod members;
mod messages;
mod parts;
mod responses;

use super::event::{
    ChunkUsage, Delta, Event, Finish, FrameExtras, Head, Logprobs, PartName, Reason, TokenLogprob, ToolEntry,
    Usage,
};
use super::fault::{Failure, Fault, is_error_object};
use super::options::{PromoteReasoning, ResponsesDialect, UnknownFields};
use super::rule::Rule;
use super::sse::Frame;
use super::{Api, Extensions, Shape};
use crate::json::{
    Extras, Few, Raw, Read, Scanner, Text, integer, object, pass_part, read, read_into, read_with_null,
};
use std::borrow::Cow;

pub(super) use checked::Checks;

/// Receiver of decoded events, the next stage of the pipeline: the normaliser, or the parsers of unparsed text
/// before it.
pub trait EventSink {
    /// Receives an event of the whole answer.
    fn event(&mut self, event: Event<'_>);
    /// Receives an event of a choice. Returns the extras if no frame was made of it, so that the caller attaches
    /// them to the next event.
    fn delta<'a>(&mut self, choice: u32, delta: Delta<'_>, extras: FrameExtras<'a>) -> FrameExtras<'a>;
    /// Receives an entry of a choice's `tool_calls`. Returns extras as [`Self::delta`] does.
    fn tool<'a>(&mut self, choice: u32, entry: ToolEntry<'_>, extras: FrameExtras<'a>) -> FrameExtras<'a>;
    /// Announces that the next text of a choice is all that the model wrote before it stopped by itself. Called
    /// only where reasoning may become text ([`ReadOptions::promote_reasoning`]).
    fn only_text(&mut self, _choice: u32) {}
    /// Counts a departure from the format that the decoder has corrected.
    fn count_rule(&mut self, rule: Rule);
}

/// Decoder for one upstream API. Frames of a stream go to it one by one; it reports what they contain to a
/// [`EventSink`].
pub trait Decode: Send {
    /// Reads one frame of a stream, or a whole body as if it were the only frame. Reports an unreadable frame as a
    /// failure event.
    fn frame(&mut self, frame: Frame<'_>, to: &mut dyn EventSink);
}

/// Parameters of the request that a decoder needs: what the client asked for, and how to treat reasoning and
/// unknown fields.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOptions {
    /// True if the client asked for logprobs.
    pub logprobs: bool,
    /// Engine extensions that the client asked for.
    pub extensions: Extensions,
    /// True if usage stays on the client's frames.
    pub continuous_usage: bool,
    /// True if null fields outside the format are kept like the others.
    pub keep_null: bool,
    /// True if reasoning text is dropped (`reasoning_field = "none"`, or the client's `include_reasoning: false`).
    pub hide_reasoning: bool,
    /// Which reasoning becomes the text of an answer that has no other text and stopped by itself. Applies to
    /// whole answers only: a stream has sent its reasoning before that is known.
    pub promote_reasoning: PromoteReasoning,
    /// True if the answer continues a text: a parser of the engine that files it as reasoning is wrong.
    pub continues_text: bool,
    /// True if the request has switched thinking off, so that an answer that is nothing but reasoning is text.
    pub unthinking: bool,
    /// True if the client's dialect reports the engine's rate limits. Engines send them after the terminal event of
    /// a Responses stream, so the end waits for them, or for the end of the bytes (wire-format 4.9).
    pub limits: bool,
}

impl ReadOptions {
    pub(super) fn of(shape: &Shape) -> Self {
        Self {
            logprobs: shape.logprobs,
            extensions: shape.extensions,
            continuous_usage: shape.has_continuous_usage(),
            keep_null: shape.options.unknown_fields == UnknownFields::InPlace,
            hide_reasoning: shape.hide_reasoning,
            continues_text: shape.continues_text
                && shape.options.promote_reasoning != PromoteReasoning::Never,
            unthinking: shape.thinking_is_off
                && shape.upstream == Api::Chat
                && !shape.logprobs
                && shape.options.promote_reasoning != PromoteReasoning::Never,
            promote_reasoning: match shape.options.promote_reasoning {
                PromoteReasoning::Schema if !shape.is_constrained => PromoteReasoning::Never,
                option => option,
            },
            limits: shape.client == Api::Responses
                && shape.options.responses_dialect == ResponsesDialect::CodexLegacy,
        }
    }
}

/// Returns the decoder for an upstream API. It is the same for all engines; they differ in data only ([`Quirks`](super::Quirks)).
pub fn decoder(api: Api, reading: ReadOptions) -> Box<dyn Decode> {
    match api {
        Api::Chat => Box::new(ChunkDecoder { reading, pieces: chat::pieces, logprobs: LogprobShape::Chat }),
        Api::Completions => Box::new(ChunkDecoder {
            reading,
            pieces: completions::pieces,
            logprobs: LogprobShape::Completions,
        }),
        Api::Messages => Box::new(messages::MessagesDecoder::new(reading)),
        Api::Responses => Box::new(responses::ResponsesDecoder::new(reading)),
    }
}

/// Decoder of Chat Completions and Completions, whose chunks differ only in the content of a choice.
struct ChunkDecoder {
    reading: ReadOptions,
    pieces: for<'a> fn(&mut ChoiceBody<'a>, &mut ChoiceEmitter<'a, '_>) -> Result<(), BadField>,
    logprobs: LogprobShape,
}

/// API of the answer. Each API has its own shape of logprobs that its clients can read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LogprobShape {
    Chat,
    Completions,
}

impl LogprobShape {
    fn select(self, body: LogprobBody<'_>) -> Result<Option<Logprobs<'_>>, BadField> {
        match self {
            Self::Chat => body.tokens(),
            Self::Completions => body.of_completion(),
        }
    }

    /// Returns true if the client gets another shape than the engine sent, or a value that the engine left out.
    fn mends(self, found: &Logprobs<'_>) -> bool {
        let Logprobs::Tokens { content, refusal } = found else { return false };
        let lacks = |entry: &TokenLogprob<'_>| entry.logprob.is_none();
        let mut entries = [content, refusal].into_iter().flatten().flatten();
        self == Self::Completions || entries.any(|entry| lacks(entry) || entry.top.iter().any(lacks))
    }
}

/// Error: a field that samewire emits has the wrong type.
struct BadField;

impl Decode for ChunkDecoder {
    fn frame(&mut self, frame: Frame<'_>, to: &mut dyn EventSink) {
        let text = match classify(frame) {
            FrameText::Done => return to.event(Event::End),
            FrameText::Fail(failure) => {
                to.count_rule(Rule::ErrorShape);
                return to.event(Event::Fail(failure));
            }
            // llama.cpp begins a stream for several prompts with `null`
            // (fixtures/llamacpp/completions-prompt-list).
            FrameText::Chunk("null") if !frame.whole => return to.count_rule(Rule::EmptyChunk),
            FrameText::Chunk(text) => text,
        };
        if self.chunk(text, frame.whole, to).is_err() {
            to.event(Event::Fail(Fault::InvalidEvent.into()));
        }
    }
}

impl ChunkDecoder {
    fn chunk(&self, text: &str, whole: bool, to: &mut dyn EventSink) -> Result<(), BadField> {
        let mut chunk = ChunkBody::default();
        let read = if self.reading.keep_null { read_with_null } else { read_into };
        read(text, &mut chunk).map_err(|_| BadField)?;
        if let Some(failure) = chunk.failure(text) {
            to.count_rule(Rule::ErrorShape);
            to.event(Event::Fail(failure));
            return Ok(());
        }
        let usage = chunk.usage.as_ref().and_then(|usage| usage.counts(to));
        let empty = chunk.choices.as_ref().is_none_or(Few::is_empty);
        if empty && usage.is_none() {
            to.count_rule(Rule::EmptyChunk);
            return Ok(());
        }
        let mut extras = FrameExtras::default();
        chunk.move_extras(self.reading.extensions, &mut extras, to);
        to.event(Event::Head(chunk.head()));
        if let Some(usage) = usage.filter(|_| empty) {
            to.event(Event::Usage { usage, alone: true, extras });
            return Ok(());
        }
        if whole {
            let tokens = usage.map_or(0, |usage| usage.completion);
            check_whole(text, chunk.choices.as_ref(), tokens)?;
        }
        let kept = usage.filter(|_| self.reading.continuous_usage && !whole);
        for choice in chunk.choices.iter_mut().flat_map(Few::iter_mut) {
            let mut emitter = ChoiceEmitter {
                to: &mut *to,
                choice: choice.index.unwrap_or(0),
                reading: self.reading,
                extras: std::mem::take(&mut extras),
                usage: kept.map(|usage| Box::new(ChunkUsage { usage, last: choice.is_last() })),
                emitted: 0,
            };
            emitter.attach_extras(choice, self.logprobs)?;
            (self.pieces)(choice, &mut emitter)?;
            extras = emitter.finish(choice)?;
        }
        if let Some(usage) = usage {
            to.event(Event::Usage { usage, alone: false, extras: FrameExtras::default() });
        }
        Ok(())
    }
}

/// Fails on a whole answer that has lost content: a choice without any, an index that occurs twice, or `choices`
/// twice (faults U54). `tokens`: completion tokens that the engine reports.
fn check_whole(text: &str, choices: Option<&Few<ChoiceBody<'_>>>, tokens: u64) -> Result<(), BadField> {
    let mut lists = 0;
    let _ = pass_part(text, |from| {
        from.each_member(|from, key| {
            lists += usize::from(key.name()? == "choices");
            from.read::<Raw<'_>>().map(|_| ())
        })
    });
    let mut indices = Vec::new();
    for choice in choices.into_iter().flat_map(Few::iter) {
        let index = choice.index.unwrap_or(0);
        if indices.contains(&index) || choice.is_lost(tokens) {
            return Err(BadField);
        }
        indices.push(index);
    }
    if lists > 1 { Err(BadField) } else { Ok(()) }
}

object! {
    /// Element of `choices`, in a chunk (`delta`), a whole object (`message`) or a legacy completion (`text`).
    struct ChoiceBody<'a> {
        index: u32 = "index",
        delta: chat::DeltaBody<'a> = "delta",
        message: chat::DeltaBody<'a> = "message",
        text: Text<'a> = "text",
        logprobs: Raw<'a> = "logprobs",
        finish_reason: Raw<'a> = "finish_reason",
        stop_reason: Raw<'a> = "stop_reason",
        matched_stop: Raw<'a> = "matched_stop",
        x_upstream: Raw<'a> = "x_upstream",
    }
}

impl ChoiceBody<'_> {
    /// Returns true if the content is missing, although the engine must have generated some. `tokens`: completion
    /// tokens that the engine reports.
    fn is_lost(&self, tokens: u64) -> bool {
        match self.message.as_ref().or(self.delta.as_ref()) {
            Some(message) => tokens > 0 && message.is_blank() && is_natural_stop(self.finish_reason),
            None => self.text.is_none(),
        }
    }

    /// Returns true if it carries a finish reason.
    fn is_last(&self) -> bool {
        self.finish_reason.is_some_and(|reason| reason.get() != "\"\"")
    }
}

/// Emitter of one choice's events. Sends them in canonical order and attaches the extras to the first.
struct ChoiceEmitter<'a, 'to> {
    to: &'to mut dyn EventSink,
    choice: u32,
    reading: ReadOptions,
    extras: FrameExtras<'a>,
    usage: Option<Box<ChunkUsage>>,
    emitted: u32,
}

impl<'a> ChoiceEmitter<'a, '_> {
    fn attach_extras(&mut self, choice: &mut ChoiceBody<'a>, shape: LogprobShape) -> Result<(), BadField> {
        self.extras.logprobs = logprobs(choice.logprobs, shape, self.reading, self.to)?;
        self.extras.choice_extensions = take_requested(self.reading.extensions, &mut choice.rest);
        note_unknown(&choice.rest, self.to);
        self.extras.choice = std::mem::take(&mut choice.rest);
        self.extras.choice_upstream = choice.x_upstream;
        Ok(())
    }

    /// Moves the unknown fields of the delta or message to the extras.
    fn attach_delta_extras(&mut self, delta: &mut chat::DeltaBody<'a>) {
        // Client libraries add up the values in deltas, so nulls there are dropped.
        delta.rest.drop_null();
        note_unknown(&delta.rest, self.to);
        self.extras.delta = std::mem::take(&mut delta.rest);
    }

    /// Emits a part of a whole message. Streams have no frame for it, so no extras go with it.
    fn emit_part(&mut self, name: PartName, data: Option<Raw<'a>>) {
        // The role frame comes first, and the extensions about the prompt belong on it.
        if !self.extras.chunk_extensions.is_empty() {
            let extras = std::mem::take(&mut self.extras);
            self.extras = self.to.delta(self.choice, Delta::Role, extras);
        }
        self.to.delta(self.choice, Delta::Part { name, data }, FrameExtras::default());
    }

    /// Takes the extras for the next event.
    fn take_extras(&mut self) -> FrameExtras<'a> {
        self.emitted += 1;
        FrameExtras { usage: self.usage.clone(), ..std::mem::take(&mut self.extras) }
    }

    fn emit(&mut self, delta: Delta<'_>) {
        let extras = self.take_extras();
        self.extras = self.to.delta(self.choice, delta, extras);
    }

    fn emit_tool(&mut self, entry: ToolEntry<'_>) {
        let extras = self.take_extras();
        self.extras = self.to.tool(self.choice, entry, extras);
    }

    /// Emits text, unless it is empty.
    fn emit_text<'t>(&mut self, text: Option<Text<'t>>, delta: impl FnOnce(Text<'t>) -> Delta<'t>) {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.emit(delta(text));
        }
    }

    /// Emits the choice's end, if it has one. Returns the extras of the chunk that no frame took, for the next
    /// choice. Fails if the finish reason is unreadable.
    fn finish(mut self, choice: &ChoiceBody<'a>) -> Result<FrameExtras<'a>, BadField> {
        let pieces = self.emitted;
        if self.extras.logprobs.is_some() {
            self.emit(Delta::Bare);
        }
        let (word, rules) = read_finish(choice.finish_reason)?;
        rules.iter().for_each(|rule| self.to.count_rule(*rule));
        match word {
            FinishWord::No => {
                if self.emitted == 0 && self.extras.choice_extensions.is_empty() {
                    self.emit(Delta::Role);
                }
                // The chunk has token ids, but no text was made of them.
                let extensions = [&self.extras.chunk_extensions, &self.extras.choice_extensions];
                if extensions.iter().any(|extras| !extras.is_empty()) {
                    self.emit(Delta::Bare);
                }
            }
            FinishWord::Aborted => self.to.event(Event::Fail(Fault::Aborted.into())),
            FinishWord::Finish(reason) => {
                if pieces > 0 {
                    self.to.count_rule(Rule::FinishMerged);
                }
                self.emit(Delta::Finish(Finish { reason, stop: choice.stop_reason.or(choice.matched_stop) }));
            }
        }
        if pieces > 1 {
            self.to.count_rule(Rule::Split);
        }
        Ok(FrameExtras {
            chunk: std::mem::take(&mut self.extras.chunk),
            chunk_upstream: self.extras.chunk_upstream,
            chunk_extensions: std::mem::take(&mut self.extras.chunk_extensions),
            ..FrameExtras::default()
        })
    }
}

object! {
    /// Chunk of a stream, or a whole object.
    struct ChunkBody<'a> {
        choices: Few<ChoiceBody<'a>> = "choices",
        id: Text<'a> = "id",
        object: Raw<'a> = "object",
        created: Raw<'a> = "created",
        model: Text<'a> = "model",
        tier: Text<'a> = "service_tier",
        fingerprint: Text<'a> = "system_fingerprint",
        usage: UsageBody<'a> = "usage",
        obfuscation: Raw<'a> = "obfuscation",
        x_upstream: Raw<'a> = "x_upstream",
        error: Raw<'a> = "error",
        kind: Raw<'a> = "type",
    }
}

/// Converts a Unix time to seconds that may be in milliseconds or finer. Milliseconds since 1970 passed 10^11 in
/// 1973; seconds will in the year 5138.
fn seconds(mut created: u64) -> u64 {
    while created > 100_000_000_000 {
        created /= 1000;
    }
    created
}

/// Kind of a frame's data, determined before it is read as a chunk.
enum FrameText<'a> {
    Done,
    Chunk(&'a str),
    Fail(Failure),
}

/// Classifies a frame: `[DONE]`, an error (by the event's name, or because it is not UTF-8), or a chunk to read.
fn classify(frame: Frame<'_>) -> FrameText<'_> {
    let Ok(text) = std::str::from_utf8(frame.data) else {
        return FrameText::Fail(Fault::InvalidEvent.into());
    };
    match text.trim_matches([' ', '\t', '\n', '\r']) {
        "[DONE]" => FrameText::Done,
        text if frame.error => {
            FrameText::Fail(Failure::of_event(text, true).unwrap_or_else(|| Fault::Internal.into()))
        }
        text => FrameText::Chunk(text),
    }
}

impl<'a> ChunkBody<'a> {
    /// Returns the failure if the chunk is an error object.
    fn failure(&self, text: &str) -> Option<Failure> {
        let is_error = self.error.is_some() || is_error_object(self.object, self.kind);
        is_error.then(|| Failure::of_event(text, true).unwrap_or_else(|| Fault::Internal.into()))
    }

    fn head(&self) -> Head<'a> {
        Head {
            id: self.id,
            created: self.created.and_then(integer).map(seconds),
            model: self.model,
            tier: self.tier,
            fingerprint: self.fingerprint,
        }
    }

    /// Moves the chunk's extensions and unknown fields to the extras.
    fn move_extras(&mut self, extensions: Extensions, extras: &mut FrameExtras<'a>, to: &mut dyn EventSink) {
        extras.chunk_extensions = take_requested(extensions, &mut self.rest);
        note_unknown(&self.rest, to);
        extras.chunk = std::mem::take(&mut self.rest);
        extras.chunk_upstream = self.x_upstream;
    }
}

/// Moves the extensions that the client asked for out of the unknown fields, in canonical order.
fn take_requested<'a>(extensions: Extensions, rest: &mut Extras<'a>) -> Extras<'a> {
    let mut found = Extras::default();
    for key in extensions.keys() {
        let is_list = |(own, raw): (&str, Raw<'_>)| own == key && raw.get().starts_with('[');
        if rest.iter().any(is_list)
            && let Some(raw) = rest.take(key)
        {
            found.keep(key.into(), raw);
        }
    }
    found
}

fn note_unknown(rest: &Extras<'_>, to: &mut dyn EventSink) {
    for _ in rest.iter().filter(|(_, raw)| raw.get() != "null") {
        to.count_rule(Rule::UnknownField);
    }
}

object! {
    struct UsageBody<'a> {
        prompt: Raw<'a> = "prompt_tokens",
        input: Raw<'a> = "input_tokens",
        completion: Raw<'a> = "completion_tokens",
        output: Raw<'a> = "output_tokens",
        total: Raw<'a> = "total_tokens",
        cached: Raw<'a> = "cached_tokens",
        cache_hit: Raw<'a> = "prompt_cache_hit_tokens",
        reasoning: Raw<'a> = "reasoning_tokens",
        prompt_details: UsageDetails<'a> = "prompt_tokens_details",
        input_details: UsageDetails<'a> = "input_tokens_details",
        completion_details: UsageDetails<'a> = "completion_tokens_details",
        output_details: UsageDetails<'a> = "output_tokens_details",
    }
}

object! {
    struct UsageDetails<'a> {
        cached: Raw<'a> = "cached_tokens",
        audio: Raw<'a> = "audio_tokens",
        image: Raw<'a> = "image_tokens",
        text: Raw<'a> = "text_tokens",
        cache_write: Raw<'a> = "cache_write_tokens",
        reasoning: Raw<'a> = "reasoning_tokens",
        accepted: Raw<'a> = "accepted_prediction_tokens",
        rejected: Raw<'a> = "rejected_prediction_tokens",
    }
}

impl<'a> UsageDetails<'a> {
    fn counts(&self) -> [Option<Raw<'a>>; 8] {
        let Self { cached, audio, image, text, cache_write, reasoning, accepted, rejected, .. } = self;
        [*cached, *audio, *image, *text, *cache_write, *reasoning, *accepted, *rejected]
    }
}

impl UsageBody<'_> {
    /// Returns the counts, each from the first of its known places that has one. `None` if prompt, completion and
    /// total are all absent (an empty object is no usage), or if one of them is given and is no count.
    fn counts(&self, to: &mut dyn EventSink) -> Option<Usage> {
        let usage = self.read();
        if (usage.is_some() || self.is_wrong()) && !self.is_canonical() {
            to.count_rule(Rule::Usage);
        }
        usage
    }

    /// Returns the places of prompt, completion and total.
    fn first_counts(&self) -> [[Option<Raw<'_>>; 2]; 3] {
        [[self.prompt, self.input], [self.completion, self.output], [self.total, None]]
    }

    /// Returns true if prompt, completion or total is given, but nowhere as a whole number from 0 on. A 0 in its place
    /// would be a count that nobody has made.
    fn is_wrong(&self) -> bool {
        let is_wrong = |places: &[Option<Raw<'_>>; 2]| {
            let mut given = places.iter().flatten().peekable();
            given.peek().is_some() && given.all(|raw| integer(*raw).is_none())
        };
        self.first_counts().iter().any(is_wrong)
    }

    fn read(&self) -> Option<Usage> {
        if self.is_wrong() {
            return None;
        }
        let count = |raw: Option<Raw<'_>>| raw.and_then(integer);
        let first = |places: &[Option<Raw<'_>>]| places.iter().find_map(|raw| count(*raw));
        let (prompt, completion) =
            (first(&[self.prompt, self.input]), first(&[self.completion, self.output]));
        let total = count(self.total);
        prompt.or(completion).or(total)?;
        let none = UsageDetails::default();
        let details =
            [&self.prompt_details, &self.input_details, &self.completion_details, &self.output_details];
        let [of_prompt, of_input, of_completion, of_output] =
            details.map(|details| details.as_ref().unwrap_or(&none));
        let (prompt, completion) = (prompt.unwrap_or(0), completion.unwrap_or(0));
        let cached = [of_prompt.cached, self.cached, of_input.cached, self.cache_hit];
        let reasoning = [of_completion.reasoning, self.reasoning, of_output.reasoning];
        Some(Usage {
            prompt,
            completion,
            total: total.unwrap_or_else(|| prompt.saturating_add(completion)),
            cached: first(&cached).unwrap_or(0),
            prompt_audio: count(of_prompt.audio).unwrap_or(0),
            prompt_image: count(of_prompt.image),
            prompt_text: count(of_prompt.text),
            cache_write: count(of_prompt.cache_write),
            reasoning: first(&reasoning),
            completion_audio: count(of_completion.audio).unwrap_or(0),
            accepted: count(of_completion.accepted).unwrap_or(0),
            rejected: count(of_completion.rejected).unwrap_or(0),
        })
    }

    fn is_canonical(&self) -> bool {
        let other = [self.input, self.output, self.cached, self.cache_hit, self.reasoning];
        let details = [&self.prompt_details, &self.completion_details].into_iter().flatten();
        let of_details = details.flat_map(UsageDetails::counts);
        let mut counts = self.first_counts().into_iter().flatten().chain(of_details).flatten();
        if counts.any(|raw| integer(raw).is_none()) {
            return false;
        }
        self.prompt_details.is_some()
            && self.completion_details.is_some()
            && other.iter().all(Option::is_none)
            && self.rest.is_empty()
    }
}

/// Meaning of an engine's finish word (wire-format 2.6).
enum FinishWord {
    No,
    Finish(Reason),
    Aborted,
}

object! {
    /// SGLang's inner form of a finish, which leaks out on some aborts: `{"type":"abort","message":…}`.
    struct FinishBody<'a> { kind: Text<'a> = "type", }
}

/// Returns true if the model stopped by itself, by a known finish word.
fn is_natural_stop(finish_reason: Option<Raw<'_>>) -> bool {
    read_finish(finish_reason).is_ok_and(|(word, rules)| {
        matches!(word, FinishWord::Finish(Reason::Stop)) && !rules.contains(&Rule::FinishUnknown)
    })
}

/// Reads `finish_reason`. Returns its meaning, and the rules by which it departs from the format. Fails if it is
/// neither a string nor an object with a type.
fn read_finish(raw: Option<Raw<'_>>) -> Result<(FinishWord, &'static [Rule]), BadField> {
    const OTHER: &[Rule] = &[Rule::FinishWord];
    let Some(raw) = raw else { return Ok((FinishWord::No, &[])) };
    let word = match Text::of(raw) {
        Some(word) => word,
        None => {
            let body: FinishBody<'_> = read(raw.get()).map_err(|_| BadField)?;
            body.kind.ok_or(BadField)?
        }
    };
    let decoded = word.decoded();
    let has_capitals = decoded.bytes().any(|byte| byte.is_ascii_uppercase());
    let lower = if has_capitals { decoded.to_ascii_lowercase().into() } else { Cow::Borrowed(&*decoded) };
    let known = match &*lower {
        "" => return Ok((FinishWord::No, &[])),
        "abort" | "aborted" | "cancelled" | "canceled" | "unknown" | "insufficient_system_resource" => {
            return Ok((FinishWord::Aborted, OTHER));
        }
        // Words such as `network_error` name a failure.
        word if word.ends_with("error") => return Ok((FinishWord::Aborted, OTHER)),
        "stop" | "eos" | "eos_token" | "end_turn" | "stop_sequence" | "stop_token" | "stop_str" | "complete" => {
            Some(Reason::Stop)
        }
        "length"
        | "max_tokens"
        | "max_new_tokens"
        | "model_length"
        | "model_context_window_exceeded"
        // vLLM cuts an answer that repeats itself.
        | "repetition"
        // The turn is to be continued, so it must not look finished.
        | "pause_turn" => Some(Reason::Length),
        "tool_calls" | "tool_call" | "tool_use" => Some(Reason::ToolCalls),
        "function_call" => Some(Reason::FunctionCall),
        "content_filter" | "content-filter" | "safety" | "sensitive" | "refusal" => Some(Reason::ContentFilter),
        _ => None,
    };
    let reason = known.unwrap_or(Reason::Stop);
    let rules: &[Rule] = match known {
        Some(reason) if reason.as_str() == decoded => &[],
        Some(_) => OTHER,
        None => &[Rule::FinishWord, Rule::FinishUnknown],
    };
    Ok((FinishWord::Finish(reason), rules))
}

object! {
    struct LogprobEntry<'a> {
        token: Text<'a> = "token",
        logprob: Raw<'a> = "logprob",
        bytes: Raw<'a> = "bytes",
        top: Vec<TokenLogprob<'a>> = "top_logprobs",
    }
}

impl<'a> Read<'a> for TokenLogprob<'a> {
    fn read(&mut self, from: &mut Scanner<'a>) -> Option<()> {
        let entry: LogprobEntry<'_> = from.read()?;
        let is_number = |raw: Raw<'_>| raw.get().starts_with(|c: char| c == '-' || c.is_ascii_digit());
        if !entry.logprob.is_none_or(is_number) || !entry.bytes.is_none_or(|raw| raw.get().starts_with('[')) {
            return None;
        }
        *self = Self {
            token: entry.token.unwrap_or_default(),
            logprob: entry.logprob,
            bytes: entry.bytes,
            top: entry.top.unwrap_or_default(),
        };
        Some(())
    }
}

object! {
    /// Both shapes of `logprobs`: chat's lists of entries and the legacy parallel arrays.
    struct LogprobBody<'a> {
        content: Vec<TokenLogprob<'a>> = "content",
        refusal: Vec<TokenLogprob<'a>> = "refusal",
        tokens: Raw<'a> = "tokens",
        token_logprobs: Raw<'a> = "token_logprobs",
        top_logprobs: Raw<'a> = "top_logprobs",
        text_offset: Raw<'a> = "text_offset",
    }
}

impl<'a> LogprobBody<'a> {
    fn tokens(self) -> Result<Option<Logprobs<'a>>, BadField> {
        let filled = |list: Option<Vec<TokenLogprob<'a>>>| list.filter(|list| !list.is_empty());
        let (content, refusal) = (filled(self.content), filled(self.refusal));
        Ok((content.is_some() || refusal.is_some()).then_some(Logprobs::Tokens { content, refusal }))
    }

    /// Returns the legacy arrays, or entries in chat's shape, which llama.cpp also writes in completions.
    fn of_completion(self) -> Result<Option<Logprobs<'a>>, BadField> {
        match self.tokens {
            Some(_) => self.legacy(),
            // Completions have no refusals.
            None => {
                Ok(self.tokens()?.filter(|said| matches!(said, Logprobs::Tokens { content: Some(_), .. })))
            }
        }
    }

    fn legacy(self) -> Result<Option<Logprobs<'a>>, BadField> {
        let lists = [self.tokens, self.token_logprobs, self.top_logprobs, self.text_offset];
        if !lists.iter().flatten().all(|list| list.get().starts_with('[')) {
            return Err(BadField);
        }
        let said = self
            .tokens
            .is_some_and(|list| !list.get().trim_matches(['[', ']', ' ', '\n', '\r', '\t']).is_empty());
        Ok(said.then_some(Logprobs::Legacy(lists)))
    }
}

/// Reads `logprobs`, if the client asked for them. Fails if they have neither known shape.
fn logprobs<'a>(
    raw: Option<Raw<'a>>,
    shape: LogprobShape,
    reading: ReadOptions,
    to: &mut dyn EventSink,
) -> Result<Option<Logprobs<'a>>, BadField> {
    let Some(raw) = raw else { return Ok(None) };
    let body: LogprobBody<'_> = read(raw.get()).map_err(|_| BadField)?;
    let found = shape.select(body)?;
    if found.is_some() && !reading.logprobs {
        to.count_rule(Rule::LogprobsUnasked);
        return Ok(None);
    }
    if found.as_ref().is_some_and(|found| shape.mends(found)) {
        to.count_rule(Rule::Logprobs);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::event::ToolKind;
    use crate::wire::shown;

    /// Sink that writes down what it receives, one line each.
    #[derive(Default)]
    struct Record {
        lines: Vec<String>,
        /// True if the sink makes no frame of anything, and so returns all extras.
        makes_no_frame: bool,
    }

    impl Record {
        fn add<'a>(&mut self, mut line: String, extras: FrameExtras<'a>) -> FrameExtras<'a> {
            if let Some(running) = &extras.usage {
                line += &format!(" running={}", running.usage.completion);
                line += if running.last { " last" } else { "" };
            }
            for (level, raw) in [("chunk", extras.chunk_upstream), ("choice", extras.choice_upstream)] {
                line += &raw.map_or_else(String::new, |raw| format!(" {level}.x_upstream={raw}"));
            }
            self.lines.push(line);
            if self.makes_no_frame { extras } else { FrameExtras::default() }
        }
    }

    impl EventSink for Record {
        fn event(&mut self, event: Event<'_>) {
            self.lines.push(shown::event(&event));
        }

        fn delta<'a>(&mut self, choice: u32, delta: Delta<'_>, extras: FrameExtras<'a>) -> FrameExtras<'a> {
            let late = if matches!(delta, Delta::Sealed { late: true, .. }) { " late" } else { "" };
            let line = format!("{choice} {}{}{late}", shown::delta(&delta), shown::extras(&extras));
            self.add(line, extras)
        }

        fn tool<'a>(
            &mut self,
            choice: u32,
            entry: ToolEntry<'_>,
            extras: FrameExtras<'a>,
        ) -> FrameExtras<'a> {
            let kind = if entry.kind == ToolKind::Custom { "custom" } else { "tool" };
            let mut line = format!("{choice} {kind}");
            line += &entry.index.map_or_else(String::new, |index| format!(" {index}"));
            for (name, text) in [("id", entry.id), ("name", entry.name), ("args", entry.args)] {
                line += &text.map_or_else(String::new, |text| format!(" {name}={}", text.decoded()));
            }
            self.add(line + &shown::extras(&extras), extras)
        }

        fn count_rule(&mut self, rule: Rule) {
            self.lines.push(format!("rule {rule:?}"));
        }
    }

    /// Returns an event of a stream.
    pub(super) fn event(data: &str) -> Frame<'_> {
        Frame { error: false, name: b"", data: data.as_bytes(), whole: false }
    }

    /// Returns the body of an answer that is no stream.
    pub(super) fn whole(data: &str) -> Frame<'_> {
        Frame { whole: true, ..event(data) }
    }

    /// Returns what a decoder reports of an answer.
    pub(super) fn decoded(api: Api, reading: ReadOptions, frames: &[Frame<'_>]) -> Vec<String> {
        let mut to = Record::default();
        let mut decoder = decoder(api, reading);
        frames.iter().for_each(|frame| decoder.frame(*frame, &mut to));
        to.lines
    }

    pub(super) const INVALID: &str = r#"fail 502 upstream_invalid_event "Server error: the upstream engine sent an event that cannot be read.""#;
    /// Usage with every member that the format has.
    const USAGE: &str = r#""usage":{"prompt_tokens":1,"completion_tokens":3,"total_tokens":4,"prompt_tokens_details":{},"completion_tokens_details":{}}"#;
    const COUNTED: &str = "usage prompt=1 completion=3 total=4 cached=0 reasoning=0";

    #[test]
    fn a_whole_answer_that_has_lost_content_is_refused() {
        let choice =
            |message: &str, finish: &str| format!(r#"{{"index":0,{message}"finish_reason":"{finish}"}}"#);
        let said = choice(r#""message":{"content":"a"},"#, "stop");
        let blank = |finish: &str| choice(r#""message":{},"#, finish);
        for (choices, expected) in [
            (said.clone(), vec!["head", "0 content \"a\"", "rule FinishMerged", "0 finish stop", COUNTED]),
            // Choices that have lost their content.
            (blank("stop"), vec!["head", INVALID]),
            (blank("eos"), vec!["head", INVALID]),
            (choice("", "stop"), vec!["head", INVALID]),
            (format!("{said},{said}"), vec!["head", INVALID]),
            (format!("{said}],\"choices\":[{said}"), vec!["head", INVALID]),
            // Choices that may be empty: the model reached a limit, or nobody knows why it stopped.
            (blank("length"), vec!["head", "0 finish length", COUNTED]),
            (blank("odd"), vec!["head", "rule FinishWord", "rule FinishUnknown", "0 finish stop", COUNTED]),
        ] {
            let body = format!("{{\"choices\":[{choices}],{USAGE}}}");
            assert_eq!(decoded(Api::Chat, ReadOptions::default(), &[whole(&body)]), expected, "{choices}");
        }
        let nothing_generated = format!(r#"{{"choices":[{}],"usage":{{"prompt_tokens":1}}}}"#, blank("stop"));
        assert_eq!(
            decoded(Api::Chat, ReadOptions::default(), &[whole(&nothing_generated)])[2..],
            ["0 finish stop", "usage prompt=1 completion=0 total=1 cached=0 reasoning=0"]
        );
        assert_eq!(decoded(Api::Chat, ReadOptions::default(), &[whole("null")]), [INVALID]);
        assert_eq!(decoded(Api::Chat, ReadOptions::default(), &[event("null")]), ["rule EmptyChunk"]);
    }

    #[test]
    fn chunks_become_events() {
        let plain = ReadOptions::default();
        let running = ReadOptions { continuous_usage: true, ..plain };
        let ids = ReadOptions {
            extensions: Extensions { token_ids: true, ..Extensions::default() },
            ..ReadOptions::default()
        };
        let text = r#"{"index":0,"delta":{"content":"a"}"#;
        for (reading, chunk, expected) in [
            // Usage stays on each chunk; the last one is that of the finish.
            (
                running,
                format!(r#"{{"choices":[{text}}}],{USAGE}}}"#),
                vec!["head", "0 content \"a\" running=3", COUNTED],
            ),
            (
                running,
                format!(r#"{{"choices":[{text},"finish_reason":"stop"}}],{USAGE}}}"#),
                vec![
                    "head",
                    "0 content \"a\" running=3 last",
                    "rule FinishMerged",
                    "0 finish stop running=3 last",
                    COUNTED,
                ],
            ),
            // Usage without the details of either side is completed.
            (
                plain,
                format!(
                    r#"{{"choices":[{text}}}],"usage":{{"prompt_tokens":1,"completion_tokens":3,"total_tokens":4,"prompt_tokens_details":{{}}}}}}"#
                ),
                vec!["rule Usage", "head", "0 content \"a\"", COUNTED],
            ),
            (
                plain,
                r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#.to_owned(),
                vec!["head", "0 tool 0 id=c name=f args={}", "rule FinishMerged", "0 finish tool_calls"],
            ),
            // Extensions are lists; another value under their name is an unknown field.
            (
                ids,
                format!(r#"{{"choices":[{text},"token_ids":[1]}}]}}"#),
                vec!["head", "0 content \"a\" asked.choice.token_ids=[1]"],
            ),
            (
                ids,
                format!(r#"{{"choices":[{text},"token_ids":"x"}}]}}"#),
                vec!["head", "rule UnknownField", "0 content \"a\" choice.token_ids=\"x\""],
            ),
            (
                plain,
                format!(r#"{{"created":1700000000123,"choices":[{text}}}]}}"#),
                vec!["head created=1700000000", "0 content \"a\""],
            ),
        ] {
            assert_eq!(decoded(Api::Chat, reading, &[event(&chunk)]), expected, "{chunk}");
        }
    }

    /// A count that is given but is no count makes no usage: 0 would be a count that nobody has made.
    #[test]
    fn usage_consists_of_counts() {
        let text = r#"{"index":0,"delta":{"content":"a"}}"#;
        let with = |from: &str, to: &str| USAGE.replace(from, to);
        let other = "usage prompt=2 completion=0 total=2 cached=0 reasoning=0";
        for (usage, expected) in [
            (with("\"prompt_tokens\":1", "\"prompt_tokens\":-1"), None),
            (with("4,", "2.5,"), None),
            (with("3,", "\"3\","), None),
            (r#""usage":{"prompt_tokens":-1,"input_tokens":2}"#.to_owned(), Some(other)),
            (
                with("prompt_tokens_details\":{", "prompt_tokens_details\":{\"cached_tokens\":-1"),
                Some(COUNTED),
            ),
        ] {
            let chunk = format!("{{\"choices\":[{text}],{usage}}}");
            let head = ["rule Usage", "head", "0 content \"a\""];
            let expected: Vec<_> = head.into_iter().chain(expected).collect();
            assert_eq!(decoded(Api::Chat, ReadOptions::default(), &[event(&chunk)]), expected, "{chunk}");
        }
        // Without any count there is no usage either, and nothing was wrong.
        let chunk = format!("{{\"choices\":[{text}],\"usage\":{{\"prompt_tokens\":null}}}}");
        let empty = decoded(Api::Chat, ReadOptions::default(), &[event(&chunk)]);
        assert_eq!(empty, ["head", "0 content \"a\""]);
    }

    /// Checks that the extensions about the prompt come on the role frame, before any part of the message.
    #[test]
    fn the_prompts_ids_precede_an_empty_text() {
        let extensions = Extensions { token_ids: true, ..Extensions::default() };
        let reading = ReadOptions { extensions, ..ReadOptions::default() };
        let body = r#"{"prompt_token_ids":[7],"choices":[{"index":0,"message":{"content":""},"finish_reason":"stop"}]}"#;
        assert_eq!(
            decoded(Api::Chat, reading, &[whole(body)]),
            ["head", "0 role asked.chunk.prompt_token_ids=[7]", "0 part EmptyContent", "0 finish stop"]
        );
    }

    #[test]
    fn what_belongs_to_the_chunk_goes_to_the_next_choice() {
        let chunk = r#"{"x":1,"x_upstream":{"y":2},"prompt_token_ids":[7],"choices":[{"index":0,"delta":{},"z":1},{"index":1,"delta":{"content":"b"}}]}"#;
        let extensions = Extensions { token_ids: true, ..Extensions::default() };
        let reading = ReadOptions { extensions, ..ReadOptions::default() };
        let mut to = Record { makes_no_frame: true, ..Record::default() };
        decoder(Api::Chat, reading).frame(event(chunk), &mut to);
        let second = to.lines.iter().find(|line| line.starts_with('1'));
        assert_eq!(
            second.map(String::as_str),
            Some("1 content \"b\" asked.chunk.prompt_token_ids=[7] chunk.x=1 chunk.x_upstream={\"y\":2}")
        );
    }
}
