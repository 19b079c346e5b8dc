//! Content block: its frames in a stream, or its JSON in a whole message (messages 4.2–4.4, 5).
//!
//! Takes: the pieces of one block. Gives: `content_block_start`, `_delta` and `_stop`, or one object. Remembers: what
//! its end needs, a hash of the thinking or the arguments so far. Never: writes a delta of another kind than the block.

use super::foreign::ForeignBlock;
use super::{SignThinking, ThinkingDisplay, ThinkingProof};
use crate::json::{Raw, Text, quoted, write_compact, write_number, write_string};
use crate::wire::arguments::Arguments;
use bytes::{BufMut, BytesMut};
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use std::ops::Range;

const DELTA: &[u8] =
    b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":";
const DELTA_END: &[u8] = b"\"}}\n\n";

/// Form in which blocks are written.
pub(super) enum BlockForm {
    /// Server-sent events.
    Stream(Thinking),
    /// Elements of the list `content` of one object, collected until the message ends.
    Whole(Thinking, BytesMut),
}

/// Treatment of thinking: what of it the client sees, and the function that signs it.
pub(super) struct Thinking {
    pub(super) display: ThinkingDisplay,
    pub(super) sign: Option<SignThinking>,
}

impl BlockForm {
    pub(super) fn is_stream(&self) -> bool {
        matches!(self, Self::Stream(_))
    }

    pub(super) fn collected(&self) -> &[u8] {
        match self {
            Self::Stream(_) => &[],
            Self::Whole(_, content) => content,
        }
    }

    fn thinking(&self) -> &Thinking {
        match self {
            Self::Stream(thinking) | Self::Whole(thinking, _) => thinking,
        }
    }
}

/// Kind of a block, with what its start names.
#[derive(Clone, Debug)]
pub(super) enum BlockKind {
    Thinking,
    Text,
    /// Call of a tool: its position among the answer's calls, its id and the tool's name.
    Call {
        slot: u32,
        id: String,
        name: String,
    },
    /// Block of the engine that samewire does not model: its number, and the JSON of its start.
    Foreign {
        slot: Option<u32>,
        json: String,
    },
}

impl BlockKind {
    /// Returns true if text of the other kind continues a block of this one. A call is continued by nothing.
    pub(super) fn continues_with(&self, other: &Self) -> bool {
        matches!(
            (self, other),
            (Self::Thinking, Self::Thinking) | (Self::Text, Self::Text)
        )
    }

    pub(super) fn is_foreign(&self, expected: Option<u32>) -> bool {
        matches!(self, Self::Foreign { slot, .. } if *slot == expected)
    }

    pub(super) fn is_text(&self) -> bool {
        matches!(self, Self::Thinking | Self::Text)
    }

    pub(super) fn is_call(&self, expected: u32) -> bool {
        matches!(self, Self::Call { slot, .. } if *slot == expected)
    }
}

/// Block that is being written.
pub(super) struct OpenBlock {
    pub(super) kind: BlockKind,
    index: u32,
    /// Bytes of a delta's frame before its text; empty in a whole message.
    prefix: BytesMut,
    content: OpenContent,
    /// Engine's own signature of thinking, which takes the place of samewire's.
    signature: String,
}

/// Content of the open block, as far as its end depends on it.
enum OpenContent {
    Text,
    /// Unknown block, to which a whole message adds its deltas.
    Foreign(ForeignBlock),
    /// Thinking that the client sees: the hash of its canonical spelling, which the signature holds (messages 6).
    Shown(Sha256),
    /// Thinking that the client does not see: the text, which the signature carries.
    Omitted(String),
    Call {
        progress: Arguments,
        arguments: CallArguments,
    },
}

/// Arguments of a call, as far as they must be kept.
enum CallArguments {
    /// White space alone so far, in canonical JSON spelling. It waits, because the official libraries fail on
    /// white space alone.
    Blank(BytesMut),
    /// A JSON object, sent piece by piece.
    Object,
    /// Text kept until the block ends, in canonical JSON spelling: of a whole message, or no object.
    Kept(BytesMut),
}

impl OpenBlock {
    /// Begins a block: writes its start.
    pub(super) fn begin(
        kind: BlockKind,
        index: u32,
        form: &mut BlockForm,
        out: &mut BytesMut,
    ) -> Self {
        let content = match &kind {
            BlockKind::Text => OpenContent::Text,
            BlockKind::Foreign { json, .. } => OpenContent::Foreign(ForeignBlock::of(json)),
            BlockKind::Thinking if form.thinking().display == ThinkingDisplay::Omitted => {
                OpenContent::Omitted(String::new())
            }
            BlockKind::Thinking => OpenContent::Shown(Sha256::new()),
            BlockKind::Call { .. } => OpenContent::Call {
                progress: Arguments::default(),
                arguments: CallArguments::Blank(BytesMut::new()),
            },
        };
        let mut block = Self {
            kind,
            index,
            prefix: BytesMut::new(),
            content,
            signature: String::new(),
        };
        match form {
            BlockForm::Stream(_) => block.write_start(out),
            BlockForm::Whole(_, collected) => block.open_object(collected),
        }
        block
    }

    /// Returns true if a delta is written from its text alone, apart from the hash of thinking.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.content, OpenContent::Text | OpenContent::Shown(_))
    }

    pub(super) fn is_text(&self) -> bool {
        self.kind.is_text()
    }

    /// Adds a piece of the engine's own signature.
    pub(super) fn sign(&mut self, signature: &str) {
        self.signature.push_str(signature);
    }

    /// Returns true for a call whose arguments are no complete JSON object or list yet.
    pub(super) fn is_incomplete_call(&self) -> bool {
        matches!(&self.content, OpenContent::Call { progress, .. } if !progress.is_closed())
    }

    /// Adds a text in canonical spelling to the hash of the thinking, if the block has one.
    pub(super) fn hash(&mut self, spelled: &[u8]) {
        if let OpenContent::Shown(hash) = &mut self.content {
            hash.update(spelled);
        }
    }

    /// Appends the frame of a delta with this text. Returns the place of the text in the output.
    pub(super) fn write_delta(&self, text: &Text<'_>, out: &mut BytesMut) -> Range<usize> {
        out.reserve(self.prefix.len() + text.length() + DELTA_END.len());
        out.extend_from_slice(&self.prefix);
        let written = write_text(text, out);
        out.extend_from_slice(DELTA_END);
        written
    }

    /// Adds a delta that samewire does not model: writes its frame, or keeps it for the end.
    pub(super) fn add_foreign_delta(
        &mut self,
        delta: Raw<'_>,
        form: &BlockForm,
        out: &mut BytesMut,
    ) {
        if let (OpenContent::Foreign(block), false) = (&mut self.content, form.is_stream()) {
            return block.add(delta);
        }
        out.extend_from_slice(DELTA);
        write_number(self.index, out);
        out.extend_from_slice(b",\"delta\":");
        write_compact(delta.get(), out);
        out.extend_from_slice(b"}\n\n");
    }

    /// Adds a piece: writes its delta, or keeps it for the end.
    pub(super) fn piece(&mut self, text: &Text<'_>, form: &mut BlockForm, out: &mut BytesMut) {
        let is_whole = !form.is_stream();
        match &mut self.content {
            OpenContent::Omitted(kept) => return kept.push_str(&text.decoded()),
            OpenContent::Call {
                progress,
                arguments,
            } => {
                progress.read(text);
                match arguments.take(text, is_whole) {
                    Taken::Kept => return,
                    Taken::Sent => {}
                    Taken::SentAs(joined) => {
                        self.write_delta(&Text::json(&String::from_utf8_lossy(&joined)), out);
                        return;
                    }
                }
            }
            OpenContent::Text | OpenContent::Foreign(_) | OpenContent::Shown(_) => {}
        }
        let (out, written) = match form {
            BlockForm::Stream(_) => {
                let written = self.write_delta(text, out);
                (out, written)
            }
            BlockForm::Whole(_, collected) => {
                let written = write_text(text, collected);
                (collected, written)
            }
        };
        self.hash(out.get(written).unwrap_or_default());
    }

    /// Ends the block: writes what was kept, the signature, and the stop.
    pub(super) fn end(self, form: &mut BlockForm, out: &mut BytesMut) {
        let signature = self.signature(form.thinking());
        match form {
            BlockForm::Stream(_) => self.write_stop(signature.as_deref(), out),
            BlockForm::Whole(_, collected) => self.close_object(signature.as_deref(), collected),
        }
    }

    fn signature(&self, thinking: &Thinking) -> Option<String> {
        let hides_text = matches!(&self.content, OpenContent::Omitted(text) if !text.is_empty());
        if !self.signature.is_empty() && !hides_text {
            return Some(self.signature.clone());
        }
        let sign = thinking.sign.as_ref()?;
        match &self.content {
            OpenContent::Shown(hash) => sign(ThinkingProof::Hash(
                &HEXLOWER.encode(&hash.clone().finalize()),
            )),
            OpenContent::Omitted(text) => sign(ThinkingProof::Text(text)),
            OpenContent::Text | OpenContent::Foreign(_) | OpenContent::Call { .. } => None,
        }
    }

    fn write_start(&mut self, out: &mut BytesMut) {
        let delta = match &self.kind {
            BlockKind::Foreign { .. } => "",
            BlockKind::Thinking => "\"thinking_delta\",\"thinking\":\"",
            BlockKind::Text => "\"text_delta\",\"text\":\"",
            BlockKind::Call { .. } => "\"input_json_delta\",\"partial_json\":\"",
        };
        self.prefix.extend_from_slice(DELTA);
        write_number(self.index, &mut self.prefix);
        self.prefix.extend_from_slice(b",\"delta\":{\"type\":");
        self.prefix.extend_from_slice(delta.as_bytes());
        out.extend_from_slice(
            b"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":",
        );
        write_number(self.index, out);
        out.extend_from_slice(b",\"content_block\":");
        match &self.kind {
            BlockKind::Thinking => {
                out.extend_from_slice(
                    b"{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}",
                );
            }
            BlockKind::Text => out.extend_from_slice(b"{\"type\":\"text\",\"text\":\"\"}"),
            BlockKind::Foreign { json, .. } => write_compact(json, out),
            BlockKind::Call { id, name, .. } => {
                write_call_start(id, name, out);
                out.extend_from_slice(b"{}}");
            }
        }
        out.extend_from_slice(b"}\n\n");
    }

    fn write_stop(&self, signature: Option<&str>, out: &mut BytesMut) {
        if let Some(signature) = signature {
            out.extend_from_slice(DELTA);
            write_number(self.index, out);
            out.extend_from_slice(b",\"delta\":{\"type\":\"signature_delta\",\"signature\":\"");
            Text::plain(signature).write(out);
            out.extend_from_slice(DELTA_END);
        }
        if let OpenContent::Call {
            arguments: CallArguments::Kept(kept),
            ..
        } = &self.content
        {
            let text = raw_arguments(&Text::json(&String::from_utf8_lossy(kept)).decoded());
            self.write_delta(&Text::plain(&text), out);
        }
        out.extend_from_slice(
            b"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":",
        );
        write_number(self.index, out);
        out.extend_from_slice(b"}\n\n");
    }

    fn open_object(&self, collected: &mut BytesMut) {
        if self.index > 0 {
            collected.put_u8(b',');
        }
        match &self.kind {
            BlockKind::Thinking => {
                collected.extend_from_slice(b"{\"type\":\"thinking\",\"thinking\":\"")
            }
            BlockKind::Text => collected.extend_from_slice(b"{\"type\":\"text\",\"text\":\""),
            BlockKind::Call { id, name, .. } => write_call_start(id, name, collected),
            BlockKind::Foreign { .. } => {}
        }
    }

    fn close_object(self, signature: Option<&str>, collected: &mut BytesMut) {
        match self.content {
            OpenContent::Foreign(block) => block.write(collected),
            OpenContent::Text => collected.extend_from_slice(b"\"}"),
            OpenContent::Shown(_) | OpenContent::Omitted(_) => {
                collected.extend_from_slice(b"\",\"signature\":\"");
                Text::plain(signature.unwrap_or("")).write(collected);
                collected.extend_from_slice(b"\"}");
            }
            OpenContent::Call {
                arguments: CallArguments::Kept(kept),
                ..
            } => {
                write_input(
                    &Text::json(&String::from_utf8_lossy(&kept)).decoded(),
                    collected,
                );
                collected.put_u8(b'}');
            }
            OpenContent::Call { .. } => collected.extend_from_slice(b"{}}"),
        }
    }
}

/// Outcome of a piece of arguments.
enum Taken {
    /// The piece waits for more, or for the end of the block.
    Kept,
    /// The piece is sent at once.
    Sent,
    /// The piece is sent at once, after the white space that waited for it.
    SentAs(BytesMut),
}

impl CallArguments {
    /// Takes a piece. `is_whole`: the message is one object, in which all arguments wait.
    fn take(&mut self, piece: &Text<'_>, is_whole: bool) -> Taken {
        if let Self::Blank(blank) = self {
            let mut first = None;
            piece.each_ascii(|byte| {
                if !byte.is_ascii_whitespace() {
                    first.get_or_insert(byte);
                }
            });
            let is_blank = first.is_none() && piece.decoded().trim().is_empty();
            if is_blank && !is_whole {
                piece.write(blank);
                return Taken::Kept;
            }
            let mut waited = std::mem::take(blank);
            if first == Some(b'{') && !is_whole {
                *self = Self::Object;
                if waited.is_empty() {
                    return Taken::Sent;
                }
                piece.write(&mut waited);
                return Taken::SentAs(waited);
            }
            *self = Self::Kept(waited);
        }
        match self {
            Self::Kept(kept) => {
                piece.write(kept);
                Taken::Kept
            }
            Self::Blank(_) | Self::Object => Taken::Sent,
        }
    }
}

/// Appends a text in canonical spelling. Returns its place.
fn write_text(text: &Text<'_>, out: &mut BytesMut) -> Range<usize> {
    let start = out.len();
    text.write(out);
    start..out.len()
}

/// Appends a `tool_use` block up to and including the key `input`.
fn write_call_start(id: &str, name: &str, out: &mut BytesMut) {
    out.extend_from_slice(b"{\"type\":\"tool_use\",\"id\":");
    write_string(id, out);
    out.extend_from_slice(b",\"name\":");
    write_string(name, out);
    out.extend_from_slice(b",\"input\":");
}

/// Appends `input`: the arguments if they are a JSON object, else an object that holds them as text.
fn write_input(arguments: &str, out: &mut BytesMut) {
    let trimmed = arguments.trim();
    if trimmed.is_empty() {
        out.extend_from_slice(b"{}");
    } else if trimmed.starts_with('{') && Raw::of(trimmed).is_some() {
        write_compact(trimmed, out);
    } else {
        out.extend_from_slice(raw_arguments(arguments).as_bytes());
    }
}

/// Returns an object that holds arguments as text, which are no JSON object themselves.
fn raw_arguments(text: &str) -> String {
    format!("{{\"raw_arguments\":{}}}", quoted(text))
}
