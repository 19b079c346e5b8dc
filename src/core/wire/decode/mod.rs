//! Decoders: read one frame of an engine and report its content as events.
//!
//! Takes: a frame of one upstream API. Gives: events, in the order of the frame. Remembers: nothing of the stream,
//! except for Responses which item is which. Never: enforces the grammar; that is the normaliser's task.

mod chat;
mod checked;
mod completions;
mod finish_word;
mod logprobs;
mod members;
mod messages;
mod parts;
mod responses;
mod usage;

use super::event::{
    ChunkUsage, Delta, Event, Finish, FrameExtras, Head, PartName, Reason, ToolEntry,
};
use super::fault::{Failure, Fault, is_error_object};
use super::options::{PromoteReasoning, ResponsesDialect, UnknownFields};
use super::rule::Rule;
use super::sse::Frame;
use super::{Api, Extensions, PROMPT_TEXT, Shape};
use crate::json::{Extras, Few, Raw, Text, integer, object, pass_part, read_into, read_with_null};
use finish_word::{FinishWord, known_reason, read_finish};
use logprobs::read_logprobs;
use usage::UsageBody;

pub(super) use checked::Checks;

/// Receiver of decoded events, the next stage of the pipeline: the normaliser, or the parsers of unparsed text
/// before it.
pub trait EventSink {
    /// Receives an event of the whole answer.
    fn event(&mut self, event: Event<'_>);
    /// Receives an event of a choice. Returns the extras if no frame was made of it, so that the caller attaches
    /// them to the next event.
    fn delta<'a>(
        &mut self,
        choice: u32,
        delta: Delta<'_>,
        extras: FrameExtras<'a>,
    ) -> FrameExtras<'a>;
    /// Receives an entry of a choice's `tool_calls`. Returns extras as [`Self::delta`] does.
    fn tool<'a>(
        &mut self,
        choice: u32,
        entry: ToolEntry<'_>,
        extras: FrameExtras<'a>,
    ) -> FrameExtras<'a>;
    /// Announces that the next text of a choice is all that the model wrote before it stopped by itself. Called
    /// only where reasoning may become text ([`ReadOptions::promote_reasoning`]).
    fn only_text(&mut self, _choice: u32) {}
    /// Announces that the next text of a choice, which is whole, was cut by a limit.
    fn cut_text(&mut self, _choice: u32) {}
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
    /// True if JSON in the reasoning of a stream may be the answer, which the request binds to a format.
    pub answers_json: bool,
    /// True if the client's dialect reports the engine's rate limits. Engines send them after the terminal event of
    /// a Responses stream, so the end waits for them, or for the end of the bytes (wire-format 4.9).
    pub limits: bool,
}

impl ReadOptions {
    pub(super) fn of(shape: &Shape) -> Self {
        let may_hold = shape.upstream == Api::Chat
            && !shape.logprobs
            && shape.options.promote_reasoning != PromoteReasoning::Never;
        Self {
            logprobs: shape.logprobs,
            extensions: shape.extensions,
            continuous_usage: shape.has_continuous_usage(),
            keep_null: shape.options.unknown_fields == UnknownFields::InPlace,
            hide_reasoning: shape.hide_reasoning,
            continues_text: shape.continues_text
                && shape.options.promote_reasoning != PromoteReasoning::Never,
            unthinking: shape.thinking_is_off && may_hold,
            answers_json: shape.is_constrained && may_hold,
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
        Api::Chat | Api::Completions => Box::new(ChunkDecoder { reading, api }),
        Api::Messages => Box::new(messages::MessagesDecoder::new(reading)),
        Api::Responses => Box::new(responses::ResponsesDecoder::new(reading)),
    }
}

/// Decoder of Chat Completions and Completions, whose chunks differ only in the content of a choice.
struct ChunkDecoder {
    reading: ReadOptions,
    api: Api,
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
        let read = if self.reading.keep_null {
            read_with_null
        } else {
            read_into
        };
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
            to.event(Event::Usage {
                usage,
                alone: true,
                extras,
            });
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
                usage: kept.map(|usage| {
                    Box::new(ChunkUsage {
                        usage,
                        last: choice.is_last(),
                    })
                }),
                emitted: 0,
            };
            emitter.attach_extras(choice, self.api)?;
            match self.api {
                Api::Completions => completions::pieces(choice, &mut emitter)?,
                _ => chat::pieces(choice, &mut emitter)?,
            }
            extras = emitter.finish(choice)?;
        }
        if let Some(usage) = usage {
            to.event(Event::Usage {
                usage,
                alone: false,
                extras: FrameExtras::default(),
            });
        }
        Ok(())
    }
}

/// Fails on a whole answer that has lost content: a choice without any, an index that occurs twice, or `choices`
/// twice (faults U54). `tokens`: completion tokens that the engine reports.
fn check_whole(
    text: &str,
    choices: Option<&Few<ChoiceBody<'_>>>,
    tokens: u64,
) -> Result<(), BadField> {
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
            Some(message) => {
                tokens > 0
                    && message.is_blank()
                    && known_reason(self.finish_reason) == Some(Reason::Stop)
            }
            None => self.text.is_none(),
        }
    }

    /// Returns true if it carries a finish reason.
    fn is_last(&self) -> bool {
        self.finish_reason
            .is_some_and(|reason| reason.get() != "\"\"")
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
    fn attach_extras(&mut self, choice: &mut ChoiceBody<'a>, api: Api) -> Result<(), BadField> {
        self.extras.logprobs = read_logprobs(choice.logprobs, api, self.reading, self.to)?;
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
        self.to.delta(
            self.choice,
            Delta::Part { name, data },
            FrameExtras::default(),
        );
    }

    /// Takes the extras for the next event.
    fn take_extras(&mut self) -> FrameExtras<'a> {
        self.emitted += 1;
        FrameExtras {
            usage: self.usage.clone(),
            ..std::mem::take(&mut self.extras)
        }
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
                let extensions = [
                    &self.extras.chunk_extensions,
                    &self.extras.choice_extensions,
                ];
                if extensions.iter().any(|extras| !extras.is_empty()) {
                    self.emit(Delta::Bare);
                }
            }
            FinishWord::Aborted => self.to.event(Event::Fail(Fault::Aborted.into())),
            FinishWord::Finish(reason) => {
                if pieces > 0 {
                    self.to.count_rule(Rule::FinishMerged);
                }
                self.emit(Delta::Finish(Finish {
                    reason,
                    stop: choice.stop_reason.or(choice.matched_stop),
                }));
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
    fn move_extras(
        &mut self,
        extensions: Extensions,
        extras: &mut FrameExtras<'a>,
        to: &mut dyn EventSink,
    ) {
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
        let first = if key == PROMPT_TEXT { '"' } else { '[' };
        let has_type = |(own, raw): (&str, Raw<'_>)| own == key && raw.get().starts_with(first);
        if rest.iter().any(has_type)
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
            for (level, raw) in [
                ("chunk", extras.chunk_upstream),
                ("choice", extras.choice_upstream),
            ] {
                line += &raw.map_or_else(String::new, |raw| format!(" {level}.x_upstream={raw}"));
            }
            self.lines.push(line);
            if self.makes_no_frame {
                extras
            } else {
                FrameExtras::default()
            }
        }
    }

    impl EventSink for Record {
        fn event(&mut self, event: Event<'_>) {
            self.lines.push(shown::event(&event));
        }

        fn delta<'a>(
            &mut self,
            choice: u32,
            delta: Delta<'_>,
            extras: FrameExtras<'a>,
        ) -> FrameExtras<'a> {
            let late = if matches!(delta, Delta::Sealed { late: true, .. }) {
                " late"
            } else {
                ""
            };
            let line = format!(
                "{choice} {}{}{late}",
                shown::delta(&delta),
                shown::extras(&extras)
            );
            self.add(line, extras)
        }

        fn tool<'a>(
            &mut self,
            choice: u32,
            entry: ToolEntry<'_>,
            extras: FrameExtras<'a>,
        ) -> FrameExtras<'a> {
            let kind = if entry.kind == ToolKind::Custom {
                "custom"
            } else {
                "tool"
            };
            let mut line = format!("{choice} {kind}");
            line += &entry
                .index
                .map_or_else(String::new, |index| format!(" {index}"));
            for (name, text) in [("id", entry.id), ("name", entry.name), ("args", entry.args)] {
                line +=
                    &text.map_or_else(String::new, |text| format!(" {name}={}", text.decoded()));
            }
            self.add(line + &shown::extras(&extras), extras)
        }

        fn count_rule(&mut self, rule: Rule) {
            self.lines.push(format!("rule {rule:?}"));
        }
    }

    /// Returns an event of a stream.
    pub(super) fn event(data: &str) -> Frame<'_> {
        Frame {
            error: false,
            name: b"",
            data: data.as_bytes(),
            whole: false,
        }
    }

    /// Returns the body of an answer that is no stream.
    pub(super) fn whole(data: &str) -> Frame<'_> {
        Frame {
            whole: true,
            ..event(data)
        }
    }

    /// Returns what a decoder reports of an answer.
    pub(super) fn decoded(api: Api, reading: ReadOptions, frames: &[Frame<'_>]) -> Vec<String> {
        let mut to = Record::default();
        let mut decoder = decoder(api, reading);
        frames
            .iter()
            .for_each(|frame| decoder.frame(*frame, &mut to));
        to.lines
    }

    pub(super) const INVALID: &str = r#"fail 502 upstream_invalid_event "Server error: the upstream engine sent an event that cannot be read.""#;
    /// Usage with every member that the format has.
    const USAGE: &str = r#""usage":{"prompt_tokens":1,"completion_tokens":3,"total_tokens":4,"prompt_tokens_details":{},"completion_tokens_details":{}}"#;
    const COUNTED: &str = "usage prompt=1 completion=3 total=4 cached=0 reasoning=0";

    #[test]
    fn a_whole_answer_that_has_lost_content_is_refused() {
        let choice = |message: &str, finish: &str| {
            format!(r#"{{"index":0,{message}"finish_reason":"{finish}"}}"#)
        };
        let said = choice(r#""message":{"content":"a"},"#, "stop");
        let blank = |finish: &str| choice(r#""message":{},"#, finish);
        for (choices, expected) in [
            (
                said.clone(),
                vec![
                    "head",
                    "0 content \"a\"",
                    "rule FinishMerged",
                    "0 finish stop",
                    COUNTED,
                ],
            ),
            // Choices that have lost their content.
            (blank("stop"), vec!["head", INVALID]),
            (blank("eos"), vec!["head", INVALID]),
            (choice("", "stop"), vec!["head", INVALID]),
            (format!("{said},{said}"), vec!["head", INVALID]),
            (
                format!("{said}],\"choices\":[{said}"),
                vec!["head", INVALID],
            ),
            // Choices that may be empty: the model reached a limit, or nobody knows why it stopped.
            (blank("length"), vec!["head", "0 finish length", COUNTED]),
            (
                blank("odd"),
                vec![
                    "head",
                    "rule FinishWord",
                    "rule FinishUnknown",
                    "0 finish stop",
                    COUNTED,
                ],
            ),
        ] {
            let body = format!("{{\"choices\":[{choices}],{USAGE}}}");
            assert_eq!(
                decoded(Api::Chat, ReadOptions::default(), &[whole(&body)]),
                expected,
                "{choices}"
            );
        }
        let nothing_generated = format!(
            r#"{{"choices":[{}],"usage":{{"prompt_tokens":1}}}}"#,
            blank("stop")
        );
        assert_eq!(
            decoded(
                Api::Chat,
                ReadOptions::default(),
                &[whole(&nothing_generated)]
            )[2..],
            [
                "0 finish stop",
                "usage prompt=1 completion=0 total=1 cached=0 reasoning=0"
            ]
        );
        assert_eq!(
            decoded(Api::Chat, ReadOptions::default(), &[whole("null")]),
            [INVALID]
        );
        assert_eq!(
            decoded(Api::Chat, ReadOptions::default(), &[event("null")]),
            ["rule EmptyChunk"]
        );
    }

    #[test]
    fn chunks_become_events() {
        let plain = ReadOptions::default();
        let running = ReadOptions {
            continuous_usage: true,
            ..plain
        };
        let ids = ReadOptions {
            extensions: Extensions {
                token_ids: true,
                ..Extensions::default()
            },
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
            (
                plain,
                r#"{"choices":[{"index":0,"delta":{"tool_calls":{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}}}]}"#.to_owned(),
                vec!["head", "0 tool 0 id=c name=f args={}"],
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
            (
                r#""usage":{"prompt_tokens":-1,"input_tokens":2}"#.to_owned(),
                Some(other),
            ),
            (
                with(
                    "prompt_tokens_details\":{",
                    "prompt_tokens_details\":{\"cached_tokens\":-1",
                ),
                Some(COUNTED),
            ),
        ] {
            let chunk = format!("{{\"choices\":[{text}],{usage}}}");
            let head = ["rule Usage", "head", "0 content \"a\""];
            let expected: Vec<_> = head.into_iter().chain(expected).collect();
            assert_eq!(
                decoded(Api::Chat, ReadOptions::default(), &[event(&chunk)]),
                expected,
                "{chunk}"
            );
        }
        // Without any count there is no usage either, and nothing was wrong.
        let chunk = format!("{{\"choices\":[{text}],\"usage\":{{\"prompt_tokens\":null}}}}");
        let empty = decoded(Api::Chat, ReadOptions::default(), &[event(&chunk)]);
        assert_eq!(empty, ["head", "0 content \"a\""]);
    }

    /// Checks that the extensions about the prompt come on the role frame, before any part of the message.
    #[test]
    fn the_prompts_ids_precede_an_empty_text() {
        let extensions = Extensions {
            token_ids: true,
            ..Extensions::default()
        };
        let reading = ReadOptions {
            extensions,
            ..ReadOptions::default()
        };
        let body = r#"{"prompt_token_ids":[7],"choices":[{"index":0,"message":{"content":""},"finish_reason":"stop"}]}"#;
        assert_eq!(
            decoded(Api::Chat, reading, &[whole(body)]),
            [
                "head",
                "0 role asked.chunk.prompt_token_ids=[7]",
                "0 part EmptyContent",
                "0 finish stop"
            ]
        );
    }

    #[test]
    fn what_belongs_to_the_chunk_goes_to_the_next_choice() {
        let chunk = r#"{"x":1,"x_upstream":{"y":2},"prompt_token_ids":[7],"choices":[{"index":0,"delta":{},"z":1},{"index":1,"delta":{"content":"b"}}]}"#;
        let extensions = Extensions {
            token_ids: true,
            ..Extensions::default()
        };
        let reading = ReadOptions {
            extensions,
            ..ReadOptions::default()
        };
        let mut to = Record {
            makes_no_frame: true,
            ..Record::default()
        };
        decoder(Api::Chat, reading).frame(event(chunk), &mut to);
        let second = to.lines.iter().find(|line| line.starts_with('1'));
        assert_eq!(
            second.map(String::as_str),
            Some(
                "1 content \"b\" asked.chunk.prompt_token_ids=[7] chunk.x=1 chunk.x_upstream={\"y\":2}"
            )
        );
    }
}
