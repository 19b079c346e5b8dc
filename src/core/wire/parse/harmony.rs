//! Harmony, the format that gpt-oss models write (wire-format 6), read from text.
//!
//! ```text
//! between ──text that is no header──→ message ──marker──→ between
//!    └──<|start|>, <|channel|>──→ header ──<|message|>──→ message
//! ```
//!
//! Takes: text, cut anywhere. Gives: [`Piece`]s, cut where the input was cut (except for text found in a header).
//! Remembers: the current header, text that may begin a marker or a header, and the arguments of a call; each is
//! bounded. Never: loses text that is not markup, panics.

use super::browser;
use super::header::{Browser, CHANNEL, CONSTRAIN, Destination, Header, HeaderStart, unmarked_call};
use super::held_call::HeldCall;
use super::tokens::{Marker, TokenMeaning};
use super::{Emit, Piece, TextRoute};
use crate::json::{Raw, Text};
use crate::wire::arguments::Arguments;
use crate::wire::options::RepairArguments;
use crate::wire::repair::ArgumentsEnd;
use crate::wire::rule::Rule;
use crate::wire::tools::Tools;
use std::ops::Range;
use std::sync::Arc;

/// Size limit of a header in bytes, far above what names need. A longer one lacks its end, and the rest is text.
const HEADER: usize = 1024;
/// Size limit of a browser call's arguments in bytes. Longer ones are emitted as reasoning instead of a call.
const BROWSER: usize = 64 << 10;

/// Limit on how many possible beginnings of a marker are split off the end of one text; `<<` is common in programs.
const TAILS: usize = 16;

const MARKERS: [(&str, Marker); 7] = [
    (CHANNEL, Marker::Channel),
    ("<|message|>", Marker::Message),
    ("<|end|>", Marker::Stop),
    ("<|start|>", Marker::Start),
    ("<|return|>", Marker::Stop),
    ("<|call|>", Marker::Stop),
    (CONSTRAIN, Marker::Constrain),
];

/// Length of the longest marker in bytes.
const LONGEST: usize = CONSTRAIN.len();

/// Calls that an answer may have, the same for all choices.
#[derive(Clone, Debug, Default)]
pub(super) struct HarmonyCalls {
    /// True if browser calls become separate items; else they are reasoning.
    pub(super) items: bool,
    /// Functions that the request offers. If there are none, any name is a function's.
    pub(super) tools: Arc<Tools>,
    /// Repair of arguments that are no JSON, without which their call is text.
    pub(super) repair: RepairArguments,
}

/// Parser of one choice in Harmony.
#[derive(Debug)]
pub(super) struct Harmony {
    calls: HarmonyCalls,
    state: HarmonyState,
    /// Undecided text; `cuts` are the byte offsets at which its input chunks end.
    held: String,
    cuts: Vec<usize>,
}

#[derive(Debug)]
enum HarmonyState {
    /// Outside of any message. `blank`: a message has ended, so that white space belongs to nothing.
    Between { blank: bool },
    /// Inside a header. `text` includes its markers; `started`: it began with `<|start|>`.
    Header { text: String, started: bool },
    /// Inside the text of a message.
    Message(MessageKind),
}

/// Kind of the current message, which decides the piece its text becomes.
#[derive(Debug)]
enum MessageKind {
    Reasoning,
    Content,
    /// Arguments of a call that is held. `is_thought`: its text is reasoning if it turns out to be no call.
    /// `header`: a header without markers, which is text then, too.
    Call {
        call: HeldCall,
        is_thought: bool,
        header: String,
    },
    /// Arguments of a call that has been sent.
    Arguments,
    Browser(Browser, String),
    Dropped,
}

impl MessageKind {
    /// Returns the kind of a text for no recipient.
    fn of_text(is_thought: bool) -> Self {
        if is_thought {
            Self::Reasoning
        } else {
            Self::Content
        }
    }
}

/// Buffered text with the offsets at which its input chunks end.
#[derive(Clone, Copy)]
struct TakenText<'t> {
    text: &'t str,
    cuts: &'t [usize],
}

impl<'t> TakenText<'t> {
    fn get(self, range: Range<usize>) -> &'t str {
        self.text.get(range).unwrap_or("")
    }

    /// Splits a range of the text at the chunk ends inside it.
    fn parts(self, range: Range<usize>) -> impl Iterator<Item = &'t str> {
        let inner = self
            .cuts
            .iter()
            .copied()
            .filter(move |cut| range.start < *cut && *cut < range.end);
        let mut from = range.start;
        inner
            .chain(std::iter::once(range.end))
            .map(move |to| self.get(std::mem::replace(&mut from, to)..to))
    }
}

impl Harmony {
    /// Creates the parser for an answer with these calls.
    pub(super) fn new(calls: HarmonyCalls) -> Self {
        Self {
            calls,
            state: HarmonyState::Between { blank: false },
            held: String::new(),
            cuts: Vec::new(),
        }
    }

    /// Takes out the calls that the answer may have, for another parser.
    pub(super) fn take_calls(&mut self) -> HarmonyCalls {
        std::mem::take(&mut self.calls)
    }

    /// Parses the next text and emits what is certain; a possible marker or header at its end stays buffered.
    pub(super) fn read(&mut self, text: &str, emit: Emit<'_>) {
        let plain = self.held.is_empty() && memchr::memchr(b'<', text.as_bytes()).is_none();
        if plain && matches!(self.state, HarmonyState::Message(_)) {
            return self.say(text, emit);
        }
        let mut held = std::mem::take(&mut self.held);
        let mut cuts = std::mem::take(&mut self.cuts);
        held.push_str(text);
        cuts.push(held.len());
        let read = self.take(
            TakenText {
                text: &held,
                cuts: &cuts,
            },
            emit,
        );
        held.drain(..read);
        cuts.retain_mut(|cut| {
            *cut = cut.saturating_sub(read);
            *cut > 0
        });
        (self.held, self.cuts) = (held, cuts);
    }

    /// Returns how a text without `<` passes unchanged inside a message of reasoning or content; `None` if it has to
    /// be parsed.
    pub(super) fn route(&self, text: &str) -> Option<TextRoute> {
        let plain = self.held.is_empty() && memchr::memchr(b'<', text.as_bytes()).is_none();
        match self.state {
            HarmonyState::Message(MessageKind::Reasoning) if plain => Some(TextRoute::Reasoning),
            HarmonyState::Message(MessageKind::Content) if plain => Some(TextRoute::Content),
            _ => None,
        }
    }

    /// Parses the next text or marker where token ids decide which of the two it is.
    pub(super) fn read_token(&mut self, meant: TokenMeaning, emit: Emit<'_>) {
        let text = match meant {
            TokenMeaning::Marker(marker) => {
                let (held, cuts) = (
                    std::mem::take(&mut self.held),
                    std::mem::take(&mut self.cuts),
                );
                return self.marker(
                    TakenText {
                        text: &held,
                        cuts: &cuts,
                    },
                    0..held.len(),
                    marker,
                    emit,
                );
            }
            TokenMeaning::Text(text) => text,
        };
        self.held.push_str(&text);
        self.cuts.push(self.held.len());
        let may_begin = matches!(self.state, HarmonyState::Between { .. })
            && self.held.len() <= HEADER
            && HeaderStart::of(&self.held) != HeaderStart::No;
        if !may_begin {
            let (held, cuts) = (
                std::mem::take(&mut self.held),
                std::mem::take(&mut self.cuts),
            );
            self.text(
                TakenText {
                    text: &held,
                    cuts: &cuts,
                },
                0..held.len(),
                emit,
            );
        }
    }

    /// Ends the text and emits the buffered rest. `complete`: the model finished by itself, so that an open header
    /// or browser call ends as at a marker.
    pub(super) fn end(&mut self, complete: bool, emit: Emit<'_>) {
        let (held, cuts) = (
            std::mem::take(&mut self.held),
            std::mem::take(&mut self.cuts),
        );
        let blank =
            matches!(self.state, HarmonyState::Between { blank: true }) && held.trim().is_empty();
        if !held.is_empty() && !blank {
            self.text(
                TakenText {
                    text: &held,
                    cuts: &cuts,
                },
                0..held.len(),
                emit,
            );
        }
        match &self.state {
            HarmonyState::Header { .. } if complete => self.open_broken(emit),
            HarmonyState::Message(MessageKind::Browser(..)) if complete => self.close(emit),
            _ => {}
        }
        // The marker at the end of a call is a stop token, which engines leave out.
        self.end_call(complete.then_some(ArgumentsEnd::Said), emit);
    }

    /// Parses the buffered text and returns how many bytes of it are decided.
    fn take(&mut self, from: TakenText<'_>, emit: Emit<'_>) -> usize {
        let mut at = 0;
        loop {
            let (length, found) = next_marker(from.get(at..from.text.len()));
            let text = at..at + length;
            if let Some((marker, length)) = found {
                at = text.end + length;
                self.marker(from, text, marker, emit);
                continue;
            }
            if matches!(self.state, HarmonyState::Between { .. })
                && text.len() <= HEADER
                && HeaderStart::of(from.get(text.clone())) != HeaderStart::No
            {
                return at;
            }
            at = text.end;
            self.text(from, text, emit);
            return at;
        }
    }

    /// Handles text that precedes a marker or a possible marker: it extends the header or is emitted.
    fn text(&mut self, from: TakenText<'_>, range: Range<usize>, emit: Emit<'_>) {
        let mut range = range;
        if range.is_empty() {
            return;
        }
        match &mut self.state {
            HarmonyState::Between { .. } => {
                let own = unmarked_call(from.get(range.clone()));
                self.state = HarmonyState::Message(MessageKind::Content);
                if let Some(own) = own.filter(|own| self.offers_call(own)) {
                    range.start += own.len();
                    self.state = HarmonyState::Header {
                        text: own.to_owned(),
                        started: false,
                    };
                    self.open(emit);
                    if let HarmonyState::Message(MessageKind::Call { header, .. }) = &mut self.state
                    {
                        own.clone_into(header);
                    }
                }
            }
            HarmonyState::Header { text, .. } => {
                let own = from.get(range.clone());
                let room = own.floor_char_boundary(HEADER.saturating_sub(text.len()));
                text.push_str(own.get(..room).unwrap_or(""));
                if room == own.len() {
                    return;
                }
                range.start += room;
                self.open_broken(emit);
            }
            HarmonyState::Message(_) => {}
        }
        from.parts(range).for_each(|part| self.say(part, emit));
    }

    /// Returns true if a header names a function of the request.
    fn offers_call(&self, header: &str) -> bool {
        let header = Header::read(header, false);
        matches!(header.route(), Destination::Call(name) if self.calls.tools.contains(name))
    }

    fn marker(&mut self, from: TakenText<'_>, text: Range<usize>, marker: Marker, emit: Emit<'_>) {
        if matches!(self.state, HarmonyState::Between { .. }) {
            let own = from.get(text.clone());
            let begins = text.len() <= HEADER && HeaderStart::of(own) == HeaderStart::Yes;
            let heads = matches!(
                marker,
                Marker::Channel | Marker::Constrain | Marker::Message
            );
            let blank = own.trim().is_empty();
            if begins && heads {
                self.state = HarmonyState::Header {
                    text: own.to_owned(),
                    started: false,
                };
                return self.marker_in_header(marker, emit);
            }
            if blank {
                return self.marker_between(marker, emit);
            }
        }
        self.text(from, text, emit);
        match self.state {
            HarmonyState::Header { .. } => self.marker_in_header(marker, emit),
            HarmonyState::Message(_) | HarmonyState::Between { .. } => {
                self.close(emit);
                self.marker_between(marker, emit);
            }
        }
    }

    fn marker_between(&mut self, marker: Marker, emit: Emit<'_>) {
        self.state = match marker {
            Marker::Start => HarmonyState::Header {
                text: String::new(),
                started: true,
            },
            Marker::Channel => HarmonyState::Header {
                text: CHANNEL.to_owned(),
                started: false,
            },
            Marker::Message => {
                self.state = HarmonyState::Header {
                    text: String::new(),
                    started: false,
                };
                return self.marker_in_header(marker, emit);
            }
            Marker::Constrain | Marker::Stop => HarmonyState::Between { blank: true },
        };
    }

    fn marker_in_header(&mut self, marker: Marker, emit: Emit<'_>) {
        let HarmonyState::Header { text, started } = &mut self.state else {
            return;
        };
        let more = match marker {
            Marker::Channel => CHANNEL,
            Marker::Constrain => CONSTRAIN,
            Marker::Message => {
                self.open(emit);
                return;
            }
            Marker::Start | Marker::Stop => "",
        };
        // A second channel begins another header, unless only the first channel precedes it.
        let header = Header::read(text, *started);
        let another = marker == Marker::Channel && header.has_channel() && !header.rest.is_empty();
        if !more.is_empty() && !another && text.len() + more.len() <= HEADER {
            return text.push_str(more);
        }
        self.open_broken(emit);
        self.close(emit);
        self.marker_between(marker, emit);
    }

    /// Opens the message of a completed header. Returns the header's remaining text.
    fn open(&mut self, emit: Emit<'_>) -> String {
        let HarmonyState::Header { text, started } = &self.state else {
            return String::new();
        };
        let header = Header::read(text, *started);
        emit(Piece::Recognised(Rule::Harmony));
        self.state = HarmonyState::Message(match header.route() {
            Destination::Reasoning => MessageKind::Reasoning,
            Destination::Content => MessageKind::Content,
            Destination::Call(name)
                if self.calls.tools.is_empty() || self.calls.tools.contains(name) =>
            {
                MessageKind::Call {
                    call: HeldCall::new(name, None),
                    is_thought: header.is_thought(),
                    header: String::new(),
                }
            }
            Destination::Call(_) => {
                emit(Piece::Recognised(Rule::ToolUnknown));
                MessageKind::of_text(header.is_thought())
            }
            Destination::Browser(tool) if self.calls.items => {
                MessageKind::Browser(tool, String::new())
            }
            Destination::Browser(_) => MessageKind::Reasoning,
            Destination::Dropped => MessageKind::Dropped,
        });
        header.rest
    }

    /// Opens the message of a header that lacks `<|message|>`; its remaining text is the message's first text.
    fn open_broken(&mut self, emit: Emit<'_>) {
        let text = self.open(emit);
        if !text.is_empty() {
            self.say(&text, emit);
        }
    }

    /// Sends the held call, if there is one. `end`: its arguments have ended, so that a call without a JSON object is
    /// text; `None` if they were cut.
    fn end_call(&mut self, end: Option<ArgumentsEnd>, emit: Emit<'_>) {
        let HarmonyState::Message(MessageKind::Call {
            call, is_thought, ..
        }) = &mut self.state
        else {
            return;
        };
        let mut read = Arguments::default();
        read.read(&Text::plain(call.arguments()));
        // Only a marker ends a value that is open. No value, and a value said twice, are the normaliser's business.
        let may_be_call = read.is_open() && end != Some(ArgumentsEnd::Marked)
            || read.is_absent()
            || ["null", "\"\""].contains(&call.arguments().trim())
            || is_said_twice(call.arguments());
        let is_call = may_be_call
            || call.is_too_long()
            || end.is_none_or(|end| call.check(self.calls.repair, end, &mut *emit));
        let other = if is_call {
            MessageKind::Arguments
        } else {
            MessageKind::of_text(*is_thought)
        };
        let state = std::mem::replace(&mut self.state, HarmonyState::Message(other));
        let HarmonyState::Message(MessageKind::Call { call, header, .. }) = state else {
            return;
        };
        if is_call {
            call.send(emit);
        } else {
            self.say(&(header + call.arguments()), emit);
        }
    }

    /// Closes the current message. A call is emitted here, because only now are its arguments complete.
    fn close(&mut self, emit: Emit<'_>) {
        self.end_call(Some(ArgumentsEnd::Marked), emit);
        let state = std::mem::replace(&mut self.state, HarmonyState::Between { blank: true });
        match state {
            HarmonyState::Message(MessageKind::Dropped)
            | HarmonyState::Between { .. }
            | HarmonyState::Header { .. } => return,
            HarmonyState::Message(MessageKind::Browser(tool, arguments)) => {
                match browser::item(tool, &arguments) {
                    Some(item) => emit(Piece::Item(&item)),
                    None if arguments.is_empty() => {}
                    None => emit(Piece::Reasoning(&arguments)),
                }
            }
            HarmonyState::Message(
                MessageKind::Reasoning
                | MessageKind::Content
                | MessageKind::Call { .. }
                | MessageKind::Arguments,
            ) => {}
        }
        emit(Piece::MessageEnd);
    }

    /// Emits text of the current message as its kind requires.
    fn say(&mut self, text: &str, emit: Emit<'_>) {
        let HarmonyState::Message(voice) = &mut self.state else {
            return;
        };
        let piece: fn(&str) -> Piece<'_> = match voice {
            MessageKind::Dropped => return,
            MessageKind::Browser(_, arguments) => {
                arguments.push_str(text);
                if arguments.len() > BROWSER {
                    let arguments = std::mem::take(arguments);
                    *voice = MessageKind::Reasoning;
                    emit(Piece::Reasoning(&arguments));
                }
                return;
            }
            MessageKind::Call { call, .. } => {
                call.push(text);
                if call.is_too_long() {
                    self.end_call(None, emit);
                }
                return;
            }
            MessageKind::Reasoning => |text| Piece::Reasoning(text),
            MessageKind::Content => |text| Piece::Content(text),
            MessageKind::Arguments => |text| Piece::Arguments(text),
        };
        // A possible beginning of a marker becomes a separate piece, so that parsing the output again yields the
        // same pieces (wire-format 1.3).
        let mut end = text.len();
        let mut tails = Vec::new();
        while let Some(start) =
            prefix_at_end(text.get(..end).unwrap_or("")).filter(|_| tails.len() < TAILS)
        {
            tails.push(start..end);
            end = start;
        }
        for part in std::iter::once(0..end).chain(tails.into_iter().rev()) {
            let part = text.get(part).unwrap_or("");
            if !part.is_empty() {
                emit(piece(part));
            }
        }
    }
}

/// Returns true if a closed value follows itself, as it is or as a JSON string (wire-format 2.5 rule 11).
fn is_said_twice(arguments: &str) -> bool {
    let end = Arguments::default().read_value(arguments);
    let Some((value, rest)) = end.and_then(|end| arguments.split_at_checked(end)) else {
        return false;
    };
    let rest = rest.trim();
    let quoted = Raw::of(rest).and_then(Text::of);
    rest == value.trim() || quoted.is_some_and(|text| text.decoded() == value.trim())
}

/// Returns how many bytes precede the next marker, and the marker with its length; `None` in its place if the text
/// ends first or within a possible marker.
fn next_marker(text: &str) -> (usize, Option<(Marker, usize)>) {
    for at in memchr::memchr_iter(b'<', text.as_bytes()) {
        let rest = text.get(at..).unwrap_or("");
        for (spelling, marker) in MARKERS {
            if rest.starts_with(spelling) {
                return (at, Some((marker, spelling.len())));
            }
            if spelling.starts_with(rest) {
                return (at, None);
            }
        }
    }
    (text.len(), None)
}

/// Returns the offset at which a possible beginning of a marker at the end of the text starts.
fn prefix_at_end(text: &str) -> Option<usize> {
    let from = text.len().saturating_sub(LONGEST - 1);
    let at = from + memchr::memrchr(b'<', text.as_bytes().get(from..)?)?;
    let rest = text.get(at..)?;
    MARKERS
        .iter()
        .any(|(spelling, _)| spelling.starts_with(rest))
        .then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Collects the pieces, each with its kind; pieces of one kind in a row are joined.
    #[derive(Default)]
    struct Said(Vec<(&'static str, String)>);

    impl Said {
        fn add(&mut self, piece: Piece<'_>) {
            let (kind, text) = match piece {
                Piece::Recognised(_) | Piece::Opened => return,
                Piece::Reasoning(text) => ("reasoning", text),
                Piece::Content(text) => ("content", text),
                Piece::Call { name, .. } => ("call", name),
                Piece::Arguments(text) => ("arguments", text),
                Piece::Item(json) => ("item", json),
                Piece::MessageEnd => ("end", ""),
            };
            match self.0.last_mut() {
                Some((last, all)) if *last == kind && kind != "end" => all.push_str(text),
                _ => self.0.push((kind, text.to_owned())),
            }
        }

        fn list(&self) -> Vec<String> {
            self.0
                .iter()
                .map(|(kind, text)| format!("{kind} {text}").trim_end().to_owned())
                .collect()
        }
    }

    fn parser(items: bool) -> Harmony {
        Harmony::new(HarmonyCalls {
            items,
            ..HarmonyCalls::default()
        })
    }

    /// Returns what a text is parsed to, in one piece and character by character.
    fn said(text: &str, complete: bool) -> Vec<String> {
        let parse = |pieces: &mut dyn Iterator<Item = &str>| {
            let (mut harmony, mut said) = (parser(true), Said::default());
            pieces.for_each(|piece| harmony.read(piece, &mut |piece| said.add(piece)));
            harmony.end(complete, &mut |piece| said.add(piece));
            said.list()
        };
        let whole = parse(&mut std::iter::once(text));
        assert_eq!(
            parse(&mut text.split_inclusive(|_: char| true)),
            whole,
            "{text}"
        );
        whole
    }

    #[test]
    fn what_has_no_end() {
        let search = r#"<|channel|>commentary to=browser.search<|message|>{"query":"q"}"#;
        for (text, complete, expected) in [
            (
                "<|channel|>analysis<|message|>r<|end|>",
                true,
                &["reasoning r", "end"][..],
            ),
            ("<|channel|>analysis<|message|>r", true, &["reasoning r"]),
            (
                "<|channel|>final<|message|>a < b <|",
                true,
                &["content a < b <|"],
            ),
            // A browser call counts only if the model has finished it.
            (search, false, &[]),
            // White space between two messages belongs to none.
            (
                "<|channel|>final<|message|>a<|end|> \n",
                true,
                &["content a", "end"],
            ),
            // Text without a header is the answer.
            ("plain", true, &["content plain"]),
            ("a<|constrain|>b", true, &["content a", "end", "content b"]),
            // The type of the content may be the first word of a header, and its only one.
            ("<|constrain|>json<|message|>x", true, &["content x"]),
            (
                "<|channel|>final<|message|>a<|end|><|constrain|>json<|message|>x",
                true,
                &["content a", "end", "content x"],
            ),
            (
                "<|constrain|>json to=functions.f<|message|>{}",
                true,
                &["call f", "arguments {}"],
            ),
            ("<|constrain|>b", true, &["content b"]),
        ] {
            assert_eq!(said(text, complete), expected, "{text}");
        }
        assert_eq!(said(search, true)[0].split(' ').next(), Some("item"));
    }

    #[test]
    fn text_inside_a_message_passes_unchanged() {
        let mut harmony = parser(false);
        let mut route = |text: &str, next: &str| {
            harmony.read(text, &mut |_| {});
            harmony.route(next)
        };
        assert_eq!(route("", "a"), None);
        assert_eq!(
            route("<|channel|>analysis<|message|>", "a"),
            Some(TextRoute::Reasoning)
        );
        assert_eq!(route("b", "a<"), None);
        assert_eq!(route("b<", "a"), None);
        assert_eq!(
            route(" b<|end|><|channel|>final<|message|>", "a"),
            Some(TextRoute::Content)
        );
        assert_eq!(route("b", "a<"), None);
        assert_eq!(route("b<|", "a"), None);
        assert_eq!(
            route("<|end|><|start|>assistant to=functions.f<|message|>", "a"),
            None
        );
    }

    #[test]
    fn browser_calls_have_a_limit() {
        let call = |length: usize| {
            format!(
                "<|channel|>commentary to=browser.search<|message|>{}<|call|>",
                "a".repeat(length)
            )
        };
        let kinds = |text: &str| {
            let (mut harmony, mut said) = (parser(true), Said::default());
            harmony.read(text, &mut |piece| said.add(piece));
            (said.0.len(), said.0[0].0, said.0[0].1.len())
        };
        assert_eq!(kinds(&call(65536)), (2, "reasoning", 65536));
        assert_eq!(kinds(&call(65537)), (2, "reasoning", 65537));
    }

    #[test]
    fn tokens_decide_what_is_a_marker() {
        let (mut harmony, mut said) = (parser(false), Said::default());
        let text = |text: &str| TokenMeaning::Text(text.to_owned());
        for meant in [
            text("plain <|end|>"),
            TokenMeaning::Marker(Marker::Stop),
            TokenMeaning::Marker(Marker::Start),
            text("assistant"),
            TokenMeaning::Marker(Marker::Channel),
            text("analysis"),
            TokenMeaning::Marker(Marker::Message),
            text("r"),
        ] {
            harmony.read_token(meant, &mut |piece| said.add(piece));
        }
        assert_eq!(said.list(), ["content plain <|end|>", "end", "reasoning r"]);
        // Text that may begin a header is held; once it cannot, it is the answer.
        let (mut harmony, mut said) = (parser(false), Said::default());
        harmony.read_token(text("assist"), &mut |piece| said.add(piece));
        assert_eq!(said.list(), Vec::<String>::new());
        harmony.read_token(text("ance"), &mut |piece| said.add(piece));
        assert_eq!(said.list(), ["content assistance"]);
    }
}
