//! Parts of frames and objects that Chat Completions and Completions share.

use crate::json::{Extras, Raw, separated, write_compact, write_number, write_string};
use crate::wire::event::{FrameExtras, Head, Logprobs, TokenLogprob, Usage};
use crate::wire::fault::Failure;
use crate::wire::options::{ErrorFrame, Options, UnknownFields};
use crate::wire::sse::DONE;
use crate::wire::{Extensions, TOKEN_IDS};
use bytes::{BufMut, BytesMut};
use std::borrow::Cow;
use std::sync::Arc;

const DATA: &[u8] = b"data: ";

/// Bytes reserved for an envelope, and for what usually follows it in a frame.
const ENVELOPE: usize = 256;
const REST: usize = 192;

/// Envelope: the constant part of all frames of a stream, or of one object. Rendered when the head becomes known,
/// then copied into each frame.
#[derive(Debug)]
pub(super) struct Envelope {
    object: &'static str,
    /// True if the object has the member `service_tier`, when the engine sends one.
    has_tier: bool,
    pub(super) options: Arc<Options>,
    /// Bytes `data: {"id":…,"object":…,"created":…,"model":…` up to and including `"choices":[`.
    rendered: BytesMut,
    /// True if the frames carry a `usage` member, which is null unless usage is continuous.
    usage_key: bool,
}

impl Envelope {
    pub(super) fn new(
        object: &'static str,
        has_tier: bool,
        options: Arc<Options>,
        usage_key: bool,
    ) -> Self {
        Self {
            object,
            has_tier,
            options,
            rendered: BytesMut::new(),
            usage_key,
        }
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
        let tier = head.tier.filter(|_| self.has_tier);
        for (key, text) in [
            ("model", head.model),
            ("service_tier", tier),
            ("system_fingerprint", head.fingerprint),
        ] {
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

    /// Opens a frame, up to and including `"choices":[`.
    pub(super) fn open_frame(&self, out: &mut BytesMut) {
        out.reserve(self.rendered.len() + REST);
        out.extend_from_slice(&self.rendered);
    }

    /// Opens an object, up to and including `"choices":[`.
    pub(super) fn open_object(&self, out: &mut BytesMut) {
        out.extend_from_slice(self.rendered.get(DATA.len()..).unwrap_or_default());
    }

    /// Closes a frame after its choice: usage, padding, extensions and unknown fields of the chunk.
    pub(super) fn close_frame(
        &self,
        extras: &FrameExtras<'_>,
        padding: Option<&str>,
        out: &mut BytesMut,
    ) {
        out.put_u8(b']');
        match &extras.usage {
            Some(running) if self.usage_key => self.usage_member(&running.usage, out),
            _ if self.usage_key => out.extend_from_slice(b",\"usage\":null"),
            _ => {}
        }
        if let Some(padding) = padding {
            out.extend_from_slice(b",\"obfuscation\":\"");
            out.extend_from_slice(padding.as_bytes());
            out.put_u8(b'"');
        }
        write_extensions(&extras.chunk_extensions, out);
        self.chunk_unknown_fields(extras, out);
        out.extend_from_slice(b"}\n\n");
    }

    pub(super) fn usage_member(&self, usage: &Usage, out: &mut BytesMut) {
        out.extend_from_slice(b",\"usage\":");
        write_usage(usage, out);
    }

    /// Appends the usage frame, whose `choices` is empty.
    pub(super) fn usage_frame(&self, usage: &Usage, extras: &FrameExtras<'_>, out: &mut BytesMut) {
        self.open_frame(out);
        out.put_u8(b']');
        self.usage_member(usage, out);
        write_extensions(&extras.chunk_extensions, out);
        self.chunk_unknown_fields(extras, out);
        out.extend_from_slice(b"}\n\n");
    }

    /// Appends the error frame, the last of a stream (wire-format 3.2), and `[DONE]` if the option
    /// `done_after_error` is set.
    pub(super) fn error_frame(&self, failure: &Failure, out: &mut BytesMut) {
        out.extend_from_slice(b"event: error\ndata: ");
        failure.write(self.options.error_frame == ErrorFrame::FlatNested, out);
        out.extend_from_slice(b"\n\n");
        if self.options.done_after_error {
            out.extend_from_slice(DONE);
        }
    }

    /// Appends the chunk's fields that the format does not define: under `x_upstream` or in place, as the option
    /// `unknown_fields` says.
    pub(super) fn chunk_unknown_fields(&self, extras: &FrameExtras<'_>, out: &mut BytesMut) {
        self.unknown_fields(extras.chunk_upstream, &extras.chunk, None, out);
    }

    /// Appends the choice's fields that the format does not define. `delta`: name of the choice's inner object
    /// (`delta` or `message`).
    pub(super) fn choice_unknown_fields(
        &self,
        extras: &FrameExtras<'_>,
        delta: &str,
        out: &mut BytesMut,
    ) {
        let inner = Some((delta, &extras.delta)).filter(|(_, extras)| !extras.is_empty());
        self.unknown_fields(extras.choice_upstream, &extras.choice, inner, out);
    }

    /// Appends the fields of one level (chunk or choice) that the format does not define. `given`: value of the
    /// engine's own `x_upstream`, which replaces the other fields under that key. `inner`: fields of the inner object,
    /// with its name.
    fn unknown_fields(
        &self,
        given: Option<Raw<'_>>,
        own: &Extras<'_>,
        inner: Option<(&str, &Extras<'_>)>,
        out: &mut BytesMut,
    ) {
        let in_place = match self.options.unknown_fields {
            UnknownFields::Strip => return,
            UnknownFields::Pass => false,
            UnknownFields::InPlace => true,
        };
        if in_place {
            write_extensions(own, out);
        }
        let own = Some(own).filter(|own| !in_place && !own.is_empty());
        if given.is_none() && own.is_none() && inner.is_none() {
            return;
        }
        out.extend_from_slice(b",\"x_upstream\":");
        if let Some(given) = given {
            return write_compact(given.get(), out);
        }
        out.put_u8(b'{');
        own.into_iter().for_each(|own| write_members(own, out));
        if let Some((name, inner)) = inner {
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

/// Appends the member `index` of a choice.
pub(super) fn write_index(choice: u32, out: &mut BytesMut) {
    out.extend_from_slice(b"\"index\":");
    write_number(choice, out);
}

/// Appends the extensions that the client asked for, each preceded by a comma.
pub(super) fn write_extensions(extras: &Extras<'_>, out: &mut BytesMut) {
    if !extras.is_empty() {
        out.put_u8(b',');
        write_members(extras, out);
    }
}

/// Extensions of a whole object or choice, merged from several chunks: the stored value of each key.
#[derive(Debug, Default)]
pub(super) struct ExtensionLists(Vec<(String, BytesMut)>);

impl ExtensionLists {
    /// Adds the extensions of a chunk. Token ids are appended to those before; of any other key the first value is
    /// kept.
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

    /// Appends the extensions in canonical order, each preceded by a comma.
    pub(super) fn write(&self, out: &mut BytesMut) {
        let extensions = Extensions {
            token_ids: true,
            prompt_logprobs: true,
            prompt_text: true,
            ..Extensions::default()
        };
        self.write_keys(extensions.keys(), out);
    }

    /// Appends the extensions of these keys in their order, each preceded by a comma.
    pub(super) fn write_keys<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k str>,
        out: &mut BytesMut,
    ) {
        let found = |key| self.0.iter().find(|(known, _)| known == key);
        for (key, list) in keys.into_iter().filter_map(found) {
            out.put_u8(b',');
            write_string(key, out);
            out.put_u8(b':');
            out.extend_from_slice(list);
        }
    }
}

/// Appends the elements of one compact JSON list to another.
fn append_list(known: &mut BytesMut, list: &[u8]) {
    let inner = list
        .strip_prefix(b"[")
        .and_then(|inner| inner.strip_suffix(b"]"))
        .unwrap_or_default();
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
    separated(extras.iter(), out, |(key, value), out| {
        write_string(key, out);
        out.put_u8(b':');
        write_compact(value.get(), out);
    });
}

/// Writes usage. Its names are constants of JSON with their colon: to escape them would cost more than to write the numbers.
fn write_usage(usage: &Usage, out: &mut BytesMut) {
    let members = |out: &mut BytesMut, members: &[(&str, Option<u64>)]| {
        let mut comma = false;
        for (name, count) in members {
            let Some(count) = count else { continue };
            if std::mem::replace(&mut comma, true) {
                out.put_u8(b',');
            }
            out.extend_from_slice(name.as_bytes());
            write_number(*count, out);
        }
    };
    out.put_u8(b'{');
    members(
        out,
        &[
            (r#""prompt_tokens":"#, Some(usage.prompt)),
            (r#""completion_tokens":"#, Some(usage.completion)),
            (r#""total_tokens":"#, Some(usage.total)),
        ],
    );
    out.extend_from_slice(b",\"prompt_tokens_details\":{");
    members(
        out,
        &[
            (r#""cached_tokens":"#, Some(usage.cached)),
            (r#""audio_tokens":"#, Some(usage.prompt_audio)),
            (r#""image_tokens":"#, usage.prompt_image),
            (r#""text_tokens":"#, usage.prompt_text),
            (r#""cache_write_tokens":"#, usage.cache_write),
        ],
    );
    out.extend_from_slice(b"},\"completion_tokens_details\":{");
    members(
        out,
        &[
            (r#""reasoning_tokens":"#, Some(usage.reasoning.unwrap_or(0))),
            (r#""audio_tokens":"#, Some(usage.completion_audio)),
            (r#""accepted_prediction_tokens":"#, Some(usage.accepted)),
            (r#""rejected_prediction_tokens":"#, Some(usage.rejected)),
        ],
    );
    out.extend_from_slice(b"}}");
}

/// Keys of the legacy logprobs, in canonical order.
const LEGACY_KEYS: [&str; 4] = ["tokens", "token_logprobs", "top_logprobs", "text_offset"];

/// Logprobs of one frame, or of a whole choice, merged from several chunks.
#[derive(Debug, Default)]
pub(super) struct LogprobLists {
    content: Option<BytesMut>,
    refusal: Option<BytesMut>,
    legacy: [Option<BytesMut>; 4],
    /// Character offset of the next token of a completion whose logprobs come in chat's shape.
    offset: usize,
}

impl LogprobLists {
    /// Adds logprobs for clients of Completions. Entries in chat's shape become parallel arrays (wire-format 2.11);
    /// others are added as by [`Self::add`].
    pub(super) fn add_as_arrays(&mut self, logprobs: &Logprobs<'_>) {
        let Logprobs::Tokens { content, .. } = logprobs else {
            return self.add(logprobs);
        };
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

    /// Adds the logprobs of a chunk in the shape in which the engine sent them.
    pub(super) fn add(&mut self, logprobs: &Logprobs<'_>) {
        match logprobs {
            Logprobs::Tokens { content, refusal } => {
                for (list, entries) in [(&mut self.content, content), (&mut self.refusal, refusal)]
                {
                    if let Some(entries) = entries {
                        let list = list.get_or_insert_default();
                        if !list.is_empty() && !entries.is_empty() {
                            list.put_u8(b',');
                        }
                        write_entries(entries, list, begin_entry);
                    }
                }
            }
            Logprobs::Legacy(arrays) => {
                for (list, array) in self.legacy.iter_mut().zip(arrays) {
                    let Some(array) = array else { continue };
                    let mut compact = BytesMut::new();
                    write_compact(array.get(), &mut compact);
                    let inner = compact
                        .strip_prefix(b"[")
                        .and_then(|inner| inner.strip_suffix(b"]"));
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

    /// Appends the merged logprobs: parallel arrays if there are any, otherwise lists of entries; null if there are
    /// none.
    pub(super) fn write(&self, out: &mut BytesMut) {
        if self.legacy.iter().any(Option::is_some) {
            let mut comma = false;
            out.put_u8(b'{');
            for (key, list) in LEGACY_KEYS.iter().zip(&self.legacy) {
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

/// Appends the logprobs of one chunk of Completions, or null. `offset`: character offset of its first token, used
/// if the engine sends none; advanced to that of the next chunk.
pub(super) fn write_arrays(
    logprobs: Option<&Logprobs<'_>>,
    offset: &mut usize,
    out: &mut BytesMut,
) {
    let Some(logprobs) = logprobs else {
        return out.extend_from_slice(b"null");
    };
    let mut lists = LogprobLists {
        offset: *offset,
        ..LogprobLists::default()
    };
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

/// Appends entries of `logprobs`, with commas between. `begin` appends the members of an entry up to `top_logprobs`.
pub(super) fn write_entries(
    entries: &[TokenLogprob<'_>],
    out: &mut BytesMut,
    begin: impl Fn(&TokenLogprob<'_>, &mut BytesMut),
) {
    separated(entries, out, |entry, out| {
        begin(entry, out);
        out.extend_from_slice(b",\"top_logprobs\":[");
        separated(&entry.top, out, |top, out| {
            begin(top, out);
            out.put_u8(b'}');
        });
        out.extend_from_slice(b"]}");
    });
}

/// Appends a token's log probability.
pub(super) fn write_logprob(entry: &TokenLogprob<'_>, out: &mut BytesMut) {
    // -9999.0 is how the API spells "no value": some serialisers turn minus infinity into null.
    write_compact(entry.logprob.map_or("-9999.0", |raw| raw.get()), out);
}

/// Appends the alternatives to a token as an object from token to log probability. Of equal tokens only the first
/// is written.
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

/// Appends `{"token":…,"logprob":…`, without the closing brace.
#[inline]
pub(super) fn begin_plain_entry(entry: &TokenLogprob<'_>, out: &mut BytesMut) {
    out.extend_from_slice(b"{\"token\":\"");
    entry.token.write(out);
    out.extend_from_slice(b"\",\"logprob\":");
    write_logprob(entry, out);
}

/// Appends `{"token":…,"logprob":…,"bytes":…`, without the closing brace.
fn begin_entry(entry: &TokenLogprob<'_>, out: &mut BytesMut) {
    begin_plain_entry(entry, out);
    out.extend_from_slice(b",\"bytes\":");
    write_compact(entry.bytes.map_or("null", |raw| raw.get()), out);
}
