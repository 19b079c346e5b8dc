//! What frames and objects of both chat-like APIs are made of.

use crate::json::{Extras, Raw, write_compact, write_number, write_string};
use crate::wire::event::{Delta, Finish, Head, Logprobs, Riders, TokenLogprob, Usage};
use crate::wire::fault::Failure;
use crate::wire::options::{ErrorFrame, Options, UnknownFields};
use crate::wire::{Extensions, Shape, TOKEN_IDS};
use bytes::{BufMut, BytesMut};
use std::borrow::Cow;
use std::sync::Arc;

/// `[DONE]`, the last event of a complete stream.
pub(super) const DONE: &[u8] = b"data: [DONE]\n\n";

const DATA: &[u8] = b"data: ";

/// Bytes of an envelope, and of what is mostly written behind it: so much is made room for at once.
const ENVELOPE: usize = 256;
const REST: usize = 192;

/// The constant part of all frames of one stream, or of one object, rendered when it becomes known.
#[derive(Debug)]
pub(super) struct Envelope {
    object: &'static str,
    pub(super) options: Arc<Options>,
    /// `data: {"id":…,"object":…,"created":…,"model":…` up to `"choices":[`.
    rendered: BytesMut,
    /// Frames carry `"usage":null`.
    usage_key: bool,
}

impl Envelope {
    pub(super) fn new(object: &'static str, options: Arc<Options>, usage_key: bool) -> Self {
        Self { object, options, rendered: BytesMut::new(), usage_key }
    }

    pub(super) fn render(&mut self, head: &Head<'_>) {
        let out = &mut self.rendered;
        out.clear();
        out.reserve(ENVELOPE);
        out.extend_from_slice(DATA);
        out.extend_from_slice(b"{\"id\":\"");
        if let Some(id) = head.id {
            id.write(out);
        }
        out.extend_from_slice(b"\",\"object\":\"");
        out.extend_from_slice(self.object.as_bytes());
        out.extend_from_slice(b"\",\"created\":");
        write_number(head.created.unwrap_or(0), out);
        for (key, text) in
            [("model", head.model), ("service_tier", head.tier), ("system_fingerprint", head.fingerprint)]
        {
            if let Some(text) = text {
                out.extend_from_slice(b",\"");
                out.extend_from_slice(key.as_bytes());
                out.extend_from_slice(b"\":\"");
                text.write(out);
                out.put_u8(b'"');
            }
        }
        out.extend_from_slice(b",\"choices\":[");
    }

    /// Opens a frame, up to and with `"choices":[`.
    pub(super) fn open_frame(&self, out: &mut BytesMut) {
        out.reserve(self.rendered.len() + REST);
        out.extend_from_slice(&self.rendered);
    }

    /// Opens an object, up to and with `"choices":[`.
    pub(super) fn open_object(&self, out: &mut BytesMut) {
        out.extend_from_slice(self.rendered.get(DATA.len()..).unwrap_or_default());
    }

    /// Closes a frame after its choice: usage, padding, leftovers of the chunk.
    pub(super) fn close_frame(&self, riders: &Riders<'_>, padding: Option<&str>, out: &mut BytesMut) {
        out.put_u8(b']');
        match &riders.usage {
            Some(running) if self.usage_key => self.usage_member(&running.usage, out),
            _ if self.usage_key => out.extend_from_slice(b",\"usage\":null"),
            _ => {}
        }
        if let Some(padding) = padding {
            out.extend_from_slice(b",\"obfuscation\":\"");
            out.extend_from_slice(padding.as_bytes());
            out.put_u8(b'"');
        }
        write_extensions(&riders.chunk_extensions, out);
        self.chunk_leftovers(riders, out);
        out.extend_from_slice(b"}\n\n");
    }

    pub(super) fn usage_member(&self, usage: &Usage, out: &mut BytesMut) {
        out.extend_from_slice(b",\"usage\":");
        write_usage(usage, out);
    }

    /// The usage frame.
    pub(super) fn usage_frame(&self, usage: &Usage, riders: &Riders<'_>, out: &mut BytesMut) {
        self.open_frame(out);
        out.put_u8(b']');
        self.usage_member(usage, out);
        write_extensions(&riders.chunk_extensions, out);
        self.chunk_leftovers(riders, out);
        out.extend_from_slice(b"}\n\n");
    }

    /// The error frame, the last one (wire-format 3.2).
    pub(super) fn error_frame(&self, failure: &Failure, out: &mut BytesMut) {
        out.extend_from_slice(b"event: error\ndata: ");
        failure.write(self.options.error_frame == ErrorFrame::FlatNested, out);
        out.extend_from_slice(b"\n\n");
        if self.options.done_after_error {
            out.extend_from_slice(DONE);
        }
    }

    /// Fields at the top that the format does not have: under `x_upstream`, or in their place.
    pub(super) fn chunk_leftovers(&self, riders: &Riders<'_>, out: &mut BytesMut) {
        self.leftovers(
            Leftovers { given: riders.chunk_upstream, own: Some(&riders.chunk), inner: None },
            out,
        );
    }

    /// Appends the fields of a choice that the format does not have. `delta`: the name of the choice's inner object.
    pub(super) fn choice_leftovers(&self, riders: &Riders<'_>, delta: &str, out: &mut BytesMut) {
        let inner = Some((delta, &riders.delta)).filter(|(_, extras)| !extras.is_empty());
        self.leftovers(Leftovers { given: riders.choice_upstream, own: Some(&riders.choice), inner }, out);
    }

    fn leftovers(&self, mut leftovers: Leftovers<'_>, out: &mut BytesMut) {
        match self.options.unknown_fields {
            UnknownFields::Strip => return,
            UnknownFields::Pass => {}
            UnknownFields::InPlace => {
                leftovers.own.take().into_iter().for_each(|own| write_extensions(own, out));
            }
        }
        leftovers.write(out);
    }
}

/// Fields of one level that the format does not have.
struct Leftovers<'a> {
    /// The engine's own `x_upstream`, which then stands alone under that key.
    given: Option<Raw<'a>>,
    /// The fields of the level itself, unless they have been written.
    own: Option<&'a Extras<'a>>,
    /// The fields of the object in it, with its name.
    inner: Option<(&'a str, &'a Extras<'a>)>,
}

impl Leftovers<'_> {
    /// Appends `,"x_upstream":…`, if there is anything to be under it.
    fn write(&self, out: &mut BytesMut) {
        let own = self.own.filter(|own| !own.is_empty());
        if self.given.is_none() && own.is_none() && self.inner.is_none() {
            return;
        }
        out.extend_from_slice(b",\"x_upstream\":");
        if let Some(given) = self.given {
            return write_compact(given.get(), out);
        }
        out.put_u8(b'{');
        own.into_iter().for_each(|own| write_members(own, out));
        if let Some((name, inner)) = self.inner {
            if own.is_some() {
                out.put_u8(b',');
            }
            write_string(name, out);
            out.extend_from_slice(b":{");
            write_members(inner, out);
            out.put_u8(b'}');
        }
        out.put_u8(b'}');
    }
}

/// The last frame of a chunk that also ends its choice, where counts stay on the frames (option `continuous_usage`): the
/// count is of both, so it goes out with the finish, and is told once.
#[derive(Debug)]
pub(super) struct LastFrame {
    /// Counts stay on the frames.
    counts: bool,
    waiting: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    choice: u32,
    frame: BytesMut,
    /// The place of its finish reason, which is null.
    reason: usize,
}

impl LastFrame {
    /// Returns one for an answer of this shape.
    pub(super) fn new(shape: &Shape) -> Self {
        Self { counts: shape.include_usage && shape.has_continuous_usage(), waiting: None }
    }

    /// Whether no frame ever waits.
    pub(super) fn is_plain(&self) -> bool {
        !self.counts
    }

    /// Whether a frame waits.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Whether the frame of a delta is one that waits.
    pub(super) fn takes(&self, delta: &Delta<'_>, riders: &Riders<'_>) -> bool {
        let is_last = riders.usage.as_ref().is_some_and(|running| running.last);
        self.counts && is_last && !matches!(delta, Delta::Role | Delta::Finish(_))
    }

    /// Keeps a frame, in which the finish reason stands at `reason`.
    pub(super) fn keep(&mut self, choice: u32, frame: BytesMut, reason: usize) {
        self.waiting = Some(Waiting { choice, frame, reason });
    }

    /// Writes the waiting frame as it is: something else than the finish comes next.
    pub(super) fn release(&mut self, out: &mut BytesMut) {
        if let Some(waiting) = self.waiting.take() {
            out.extend_from_slice(&waiting.frame);
        }
    }

    /// Writes the waiting frame with the finish of its choice, and returns whether there was one. A finish with riders of its own
    /// has a frame of its own.
    pub(super) fn finish(
        &mut self,
        choice: u32,
        finish: &Finish<'_>,
        riders: &Riders<'_>,
        out: &mut BytesMut,
    ) -> bool {
        let is_it = |waiting: &mut Waiting| waiting.choice == choice && riders.is_empty();
        let Some(waiting) = self.waiting.take_if(is_it) else { return false };
        let (before, behind) = waiting.frame.split_at(waiting.reason);
        out.extend_from_slice(before);
        write_reason(Some(finish), out);
        out.extend_from_slice(behind.strip_prefix(b"null").unwrap_or(behind));
        true
    }
}

/// Appends the finish reason, behind its key, and what stopped the choice; null without a finish.
pub(super) fn write_reason(finish: Option<&Finish<'_>>, out: &mut BytesMut) {
    let Some(Finish { reason, stop }) = finish else { return out.extend_from_slice(b"null") };
    write_string(reason.word(), out);
    write_stop(*stop, out);
}

/// Appends an index, the choice's first member.
pub(super) fn write_index(choice: u32, out: &mut BytesMut) {
    out.extend_from_slice(b"\"index\":");
    write_number(choice, out);
}

/// Appends `,"stop_reason":…`, if there is one.
fn write_stop(stop: Option<Raw<'_>>, out: &mut BytesMut) {
    if let Some(stop) = stop {
        out.extend_from_slice(b",\"stop_reason\":");
        write_compact(stop.get(), out);
    }
}

/// Appends the extensions that the client asked for, each behind a comma.
pub(super) fn write_extensions(extras: &Extras<'_>, out: &mut BytesMut) {
    if !extras.is_empty() {
        out.put_u8(b',');
        write_members(extras, out);
    }
}

/// Extensions of one whole object or choice, to which several chunks contribute.
#[derive(Debug, Default)]
pub(super) struct ExtensionLists(Vec<(String, BytesMut)>);

impl ExtensionLists {
    /// Takes up what a chunk has: the tokens of its text behind those before, anything else if it is new.
    pub(super) fn add(&mut self, extras: &Extras<'_>) {
        for (key, raw) in extras.iter() {
            let mut list = BytesMut::new();
            write_compact(raw.get(), &mut list);
            match self.0.iter_mut().find(|(known, _)| known == key) {
                None => self.0.push((key.to_owned(), list)),
                Some((_, known)) if key == TOKEN_IDS => append_list(known, &list),
                Some(_) => {}
            }
        }
    }

    /// Appends them, in canonical order.
    pub(super) fn write(&self, out: &mut BytesMut) {
        let asked = Extensions { token_ids: true, prompt_logprobs: true };
        for (key, list) in asked.keys().filter_map(|key| self.0.iter().find(|(known, _)| known == key)) {
            out.put_u8(b',');
            write_string(key, out);
            out.put_u8(b':');
            out.extend_from_slice(list);
        }
    }
}

/// Appends the elements of one compact JSON list to another.
fn append_list(known: &mut BytesMut, list: &[u8]) {
    let inner = list.strip_prefix(b"[").and_then(|inner| inner.strip_suffix(b"]")).unwrap_or_default();
    if inner.is_empty() {
        return;
    }
    known.truncate(known.len().saturating_sub(1));
    if known.len() > 1 {
        known.put_u8(b',');
    }
    known.extend_from_slice(inner);
    known.put_u8(b']');
}

fn write_members(extras: &Extras<'_>, out: &mut BytesMut) {
    for (at, (key, value)) in extras.iter().enumerate() {
        if at > 0 {
            out.put_u8(b',');
        }
        write_string(key, out);
        out.put_u8(b':');
        write_compact(value.get(), out);
    }
}

fn write_usage(usage: &Usage, out: &mut BytesMut) {
    let members = |out: &mut BytesMut, members: &[(&str, Option<u64>)]| {
        let mut comma = false;
        for (key, count) in members {
            let Some(count) = count else { continue };
            if std::mem::replace(&mut comma, true) {
                out.put_u8(b',');
            }
            write_string(key, out);
            out.put_u8(b':');
            write_number(*count, out);
        }
    };
    out.put_u8(b'{');
    members(
        out,
        &[
            ("prompt_tokens", Some(usage.prompt)),
            ("completion_tokens", Some(usage.completion)),
            ("total_tokens", Some(usage.total)),
        ],
    );
    out.extend_from_slice(b",\"prompt_tokens_details\":{");
    members(
        out,
        &[
            ("cached_tokens", Some(usage.cached)),
            ("audio_tokens", Some(usage.prompt_audio)),
            ("image_tokens", usage.prompt_image),
            ("text_tokens", usage.prompt_text),
            ("cache_write_tokens", usage.cache_write),
        ],
    );
    out.extend_from_slice(b"},\"completion_tokens_details\":{");
    members(
        out,
        &[
            ("reasoning_tokens", Some(usage.reasoning)),
            ("audio_tokens", Some(usage.completion_audio)),
            ("accepted_prediction_tokens", Some(usage.accepted)),
            ("rejected_prediction_tokens", Some(usage.rejected)),
        ],
    );
    out.extend_from_slice(b"}}");
}

/// Keys of the legacy logprobs, in canonical order.
const LEGACY: [&str; 4] = ["tokens", "token_logprobs", "top_logprobs", "text_offset"];

/// Logprobs of one frame, or of one whole choice, to which several chunks contribute.
#[derive(Debug, Default)]
pub(super) struct LogprobLists {
    content: Option<BytesMut>,
    refusal: Option<BytesMut>,
    legacy: [Option<BytesMut>; 4],
    /// The offset of the next token of a completion that is told in chat's shape, in characters.
    offset: usize,
}

impl LogprobLists {
    /// As [`Self::add`], for clients of Completions: what is told in chat's shape becomes parallel arrays
    /// (wire-format 2.11).
    pub(super) fn add_as_arrays(&mut self, logprobs: &Logprobs<'_>) {
        let Logprobs::Tokens { content, .. } = logprobs else { return self.add(logprobs) };
        for entry in content.iter().flatten() {
            let offset = self.offset;
            self.offset += entry.token.decoded().chars().count();
            let [tokens, logprobs, top, offsets] = self.legacy.each_mut().map(|list| {
                let list = list.get_or_insert_default();
                if !list.is_empty() {
                    list.put_u8(b',');
                }
                list
            });
            tokens.put_u8(b'"');
            entry.token.write(tokens);
            tokens.put_u8(b'"');
            write_logprob(entry, logprobs);
            write_alternatives(&entry.top, top);
            write_number(offset as u64, offsets);
        }
    }

    pub(super) fn add(&mut self, logprobs: &Logprobs<'_>) {
        match logprobs {
            Logprobs::Tokens { content, refusal } => {
                for (list, entries) in [(&mut self.content, content), (&mut self.refusal, refusal)] {
                    if let Some(entries) = entries {
                        write_entries(entries, list.get_or_insert_default());
                    }
                }
            }
            Logprobs::Legacy(arrays) => {
                for (list, array) in self.legacy.iter_mut().zip(arrays) {
                    let Some(array) = array else { continue };
                    let mut compact = BytesMut::new();
                    write_compact(array.get(), &mut compact);
                    let inner = compact.strip_prefix(b"[").and_then(|inner| inner.strip_suffix(b"]"));
                    let list = list.get_or_insert_default();
                    if let Some(inner) = inner.filter(|inner| !inner.is_empty()) {
                        if !list.is_empty() {
                            list.put_u8(b',');
                        }
                        list.extend_from_slice(inner);
                    }
                }
            }
        }
    }

    pub(super) fn write(&self, out: &mut BytesMut) {
        if self.legacy.iter().any(Option::is_some) {
            let mut comma = false;
            out.put_u8(b'{');
            for (key, list) in LEGACY.iter().zip(&self.legacy) {
                let Some(list) = list else { continue };
                if std::mem::replace(&mut comma, true) {
                    out.put_u8(b',');
                }
                write_string(key, out);
                out.extend_from_slice(b":[");
                out.extend_from_slice(list);
                out.put_u8(b']');
            }
            return out.put_u8(b'}');
        }
        if self.content.is_none() && self.refusal.is_none() {
            return out.extend_from_slice(b"null");
        }
        let list = |list: &Option<BytesMut>, out: &mut BytesMut| match list {
            Some(entries) => {
                out.put_u8(b'[');
                out.extend_from_slice(entries);
                out.put_u8(b']');
            }
            None => out.extend_from_slice(b"null"),
        };
        out.extend_from_slice(b"{\"content\":");
        list(&self.content, out);
        out.extend_from_slice(b",\"refusal\":");
        list(&self.refusal, out);
        out.put_u8(b'}');
    }
}

/// Appends the logprobs of one chunk of Completions, or null. `offset`: where its first token begins in the text, in
/// characters, if the engine has not said so; moved on to where the next one begins.
pub(super) fn write_arrays(logprobs: Option<&Logprobs<'_>>, offset: &mut usize, out: &mut BytesMut) {
    let Some(logprobs) = logprobs else { return out.extend_from_slice(b"null") };
    let mut lists = LogprobLists { offset: *offset, ..LogprobLists::default() };
    lists.add_as_arrays(logprobs);
    *offset = lists.offset;
    lists.write(out);
}

/// Appends the logprobs of one chunk, or null.
pub(super) fn write_logprobs(logprobs: Option<&Logprobs<'_>>, out: &mut BytesMut) {
    match logprobs {
        None => out.extend_from_slice(b"null"),
        Some(logprobs) => {
            let mut lists = LogprobLists::default();
            lists.add(logprobs);
            lists.write(out);
        }
    }
}

fn write_entries(entries: &[TokenLogprob<'_>], out: &mut BytesMut) {
    for entry in entries {
        if !out.is_empty() {
            out.put_u8(b',');
        }
        write_entry_start(entry, out);
        out.extend_from_slice(b",\"top_logprobs\":[");
        for (at, top) in entry.top.iter().enumerate() {
            if at > 0 {
                out.put_u8(b',');
            }
            write_entry_start(top, out);
            out.put_u8(b'}');
        }
        out.extend_from_slice(b"]}");
    }
}

/// Appends a token's log probability.
fn write_logprob(entry: &TokenLogprob<'_>, out: &mut BytesMut) {
    // -9999.0 is how the API spells "no value": some serialisers turn minus infinity into null.
    write_compact(entry.logprob.map_or("-9999.0", |raw| raw.get()), out);
}

/// Appends the alternatives to a token as an object of log probabilities by token, each token once.
fn write_alternatives(top: &[TokenLogprob<'_>], out: &mut BytesMut) {
    let mut seen: Vec<Cow<'_, str>> = Vec::new();
    out.put_u8(b'{');
    for entry in top {
        let token = entry.token.decoded();
        if seen.contains(&token) {
            continue;
        }
        if !seen.is_empty() {
            out.put_u8(b',');
        }
        out.put_u8(b'"');
        entry.token.write(out);
        out.extend_from_slice(b"\":");
        write_logprob(entry, out);
        seen.push(token);
    }
    out.put_u8(b'}');
}

/// `{"token":…,"logprob":…,"bytes":…`, without the closing brace.
fn write_entry_start(entry: &TokenLogprob<'_>, out: &mut BytesMut) {
    out.extend_from_slice(b"{\"token\":\"");
    entry.token.write(out);
    out.extend_from_slice(b"\",\"logprob\":");
    write_logprob(entry, out);
    out.extend_from_slice(b",\"bytes\":");
    write_compact(entry.bytes.map_or("null", |raw| raw.get()), out);
}
