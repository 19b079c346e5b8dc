//! Choices of Chat Completions.
//!
//! Keys of a chunk: `id, object, created, model, service_tier?, system_fingerprint?, choices, usage?, obfuscation?,
//! x_upstream?`; of its choice: `index, delta, logprobs, finish_reason, stop_reason?, x_upstream?`. A whole object
//! has `message` for `delta`: `role, content, reasoning_content? / reasoning?, refusal, annotations, audio?,
//! function_call?, tool_calls?` (wire-format 2.1).

use super::frame::{LogprobLists, write_index, write_logprobs};
use super::stream::StreamChoice;
use super::whole::WholeChoice;
use crate::json::{Text, compacted, write_number, write_string};
use crate::wire::event::{Delta, FrameExtras, Logprobs, PartName, ToolKind};
use crate::wire::options::{Obfuscation, Options, ReasoningField, RoleFrame};
use crate::wire::{Shape, Stamp};
use bytes::{BufMut, BytesMut};
use std::sync::Arc;

/// Writer of a choice's members in a Chat Completions stream.
#[derive(Debug)]
pub(super) struct ChatChoices {
    options: Arc<Options>,
    padding: Option<Padding>,
    /// Custom-tool calls, as (choice, slot): their arguments go under `custom.input` instead of
    /// `function.arguments`.
    custom: Vec<(u32, u32)>,
}

impl ChatChoices {
    pub(super) fn new(shape: &Shape, stamp: &Stamp) -> Self {
        let options = shape.options.clone();
        let pads = options.obfuscation == Obfuscation::OnRequest && shape.include_obfuscation;
        Self {
            options,
            padding: pads.then_some(Padding(stamp.seed | 1)),
            custom: Vec::new(),
        }
    }

    fn write_delta(&mut self, choice: u32, delta: &Delta<'_>, out: &mut BytesMut) {
        match delta {
            Delta::Role => out.extend_from_slice(match self.options.role_frame {
                RoleFrame::Bare => b"\"role\":\"assistant\"",
                RoleFrame::Openai => b"\"role\":\"assistant\",\"content\":\"\",\"refusal\":null",
            }),
            Delta::Reasoning(text) | Delta::Summary(text) => {
                write_reasoning(self.options.reasoning_field, |out| text.write(out), out);
            }
            Delta::Content(text) => write_text(b"\"content\":\"", text, out),
            Delta::Refusal(text) => write_text(b"\"refusal\":\"", text, out),
            Delta::FunctionCall { name, arguments } => {
                out.extend_from_slice(b"\"function_call\":");
                write_function_call(name.as_ref(), arguments.as_ref(), out);
            }
            Delta::ToolStart {
                slot,
                id,
                name,
                kind,
                ..
            } => {
                if *kind == ToolKind::Custom {
                    self.custom.push((choice, *slot));
                }
                out.extend_from_slice(b"\"tool_calls\":[{\"index\":");
                write_number(*slot, out);
                out.put_u8(b',');
                write_call_start(id, name, *kind, out);
                out.extend_from_slice(b"\"}}]");
            }
            Delta::ToolArgs { slot, args } => {
                out.extend_from_slice(b"\"tool_calls\":[{\"index\":");
                write_number(*slot, out);
                let key: &[u8] = match self.custom.contains(&(choice, *slot)) {
                    true => b",\"custom\":{\"input\":\"",
                    false => b",\"function\":{\"arguments\":\"",
                };
                write_text(key, args, out);
                out.extend_from_slice(b"}}]");
            }
            // The others have no frame (`has_frame`), or one without content.
            _ => {}
        }
    }
}

impl StreamChoice for ChatChoices {
    const HAS_TIER: bool = true;

    fn has_frame(delta: &Delta<'_>) -> bool {
        !matches!(
            delta,
            Delta::Break
                | Delta::Done { .. }
                | Delta::Part { .. }
                | Delta::Sealed { .. }
                | Delta::Annotation(_)
                | Delta::Tokens(_)
        )
    }

    fn write(
        &mut self,
        choice: u32,
        delta: &Delta<'_>,
        extras: &FrameExtras<'_>,
        out: &mut BytesMut,
    ) -> Option<String> {
        out.put_u8(b'{');
        write_index(choice, out);
        out.extend_from_slice(b",\"delta\":{");
        let start = out.len();
        self.write_delta(choice, delta, out);
        let written = out.len() - start;
        out.extend_from_slice(b"},\"logprobs\":");
        write_logprobs(extras.logprobs.as_ref(), out);
        let padding = self
            .padding
            .as_mut()
            .filter(|_| !matches!(delta, Delta::Role | Delta::Finish(_)));
        padding.map(|padding| padding.fill(written))
    }

    fn is_plain(&self) -> bool {
        self.padding.is_none()
    }
}

fn write_text(key: &[u8], text: &Text<'_>, out: &mut BytesMut) {
    out.extend_from_slice(key);
    text.write(out);
    out.put_u8(b'"');
}

/// Appends the reasoning members that the option `reasoning_field` selects; `text` appends the text, once per
/// member.
fn write_reasoning(field: ReasoningField, text: impl Fn(&mut BytesMut), out: &mut BytesMut) {
    let keys: &[&[u8]] = match field {
        ReasoningField::ReasoningContent => &[b"\"reasoning_content\":\""],
        ReasoningField::Reasoning => &[b"\"reasoning\":\""],
        ReasoningField::Both => &[b"\"reasoning_content\":\"", b",\"reasoning\":\""],
        ReasoningField::None => &[],
    };
    for key in keys {
        out.extend_from_slice(key);
        text(out);
        out.put_u8(b'"');
    }
}

fn write_function_call(name: Option<&Text<'_>>, arguments: Option<&Text<'_>>, out: &mut BytesMut) {
    out.put_u8(b'{');
    if let Some(name) = name {
        write_text(b"\"name\":\"", name, out);
    }
    if let Some(arguments) = arguments {
        if name.is_some() {
            out.put_u8(b',');
        }
        write_text(b"\"arguments\":\"", arguments, out);
    }
    out.put_u8(b'}');
}

/// Appends `"id":…,"type":…,"function":{"name":…,"arguments":"`. The caller appends the arguments and closes the
/// string.
fn write_call_start(id: &str, name: &str, kind: ToolKind, out: &mut BytesMut) {
    out.extend_from_slice(b"\"id\":");
    write_string(id, out);
    let (open, text): (&[u8], &[u8]) = match kind {
        ToolKind::Function | ToolKind::Search => (
            b",\"type\":\"function\",\"function\":{\"name\":",
            b",\"arguments\":\"",
        ),
        ToolKind::Custom => (
            b",\"type\":\"custom\",\"custom\":{\"name\":",
            b",\"input\":\"",
        ),
    };
    out.extend_from_slice(open);
    write_string(name, out);
    out.extend_from_slice(text);
}

/// Obfuscation padding: random letters that bring the length of a delta up to a multiple of 32 bytes, so that its
/// length does not reveal the text (wire-format 2.9). Holds the generator's state.
#[derive(Debug)]
struct Padding(u64);

impl Padding {
    fn fill(&mut self, written: usize) -> String {
        const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        let length = 32 - written % 32;
        let mut padding = String::with_capacity(length);
        while padding.len() < length {
            // xorshift64: its quality does not matter, the letters only hide lengths.
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            let at = (self.0 >> 32) as usize % LETTERS.len();
            padding.push(LETTERS.get(at).copied().map_or('x', char::from));
        }
        padding
    }
}

/// Collected message of one choice of a whole object; texts are in canonical JSON spelling.
#[derive(Debug, Default)]
pub(super) struct ChatMessage {
    content: Option<BytesMut>,
    reasoning: BytesMut,
    refusal: Option<BytesMut>,
    annotations: Option<String>,
    audio: Option<String>,
    function_call: Option<(BytesMut, BytesMut)>,
    calls: Vec<BytesMut>,
}

impl WholeChoice for ChatMessage {
    const HAS_TIER: bool = true;
    const INNER: &'static str = "message";

    fn add(&mut self, delta: &Delta<'_>) {
        match delta {
            Delta::Reasoning(text) | Delta::Summary(text) => text.write(&mut self.reasoning),
            Delta::Content(text) => text.write(self.content.get_or_insert_default()),
            Delta::Refusal(text) => text.write(self.refusal.get_or_insert_default()),
            Delta::FunctionCall { name, arguments } => {
                let call = self.function_call.get_or_insert_default();
                if let Some(name) = name.filter(|_| call.0.is_empty()) {
                    name.write(&mut call.0);
                }
                if let Some(arguments) = arguments {
                    arguments.write(&mut call.1);
                }
            }
            Delta::ToolStart { id, name, kind, .. } => {
                let mut call = BytesMut::new();
                call.put_u8(b'{');
                write_call_start(id, name, *kind, &mut call);
                self.calls.push(call);
            }
            Delta::ToolArgs { slot, args } => {
                if let Some(call) = self.calls.get_mut(*slot as usize) {
                    args.write(call);
                }
            }
            Delta::Part {
                name: PartName::EmptyContent,
                ..
            } => {
                self.content.get_or_insert_default();
            }
            Delta::Part {
                name: PartName::Annotations,
                data,
            } => self.annotations = data.map(compacted),
            Delta::Part {
                name: PartName::Audio,
                data,
            } => self.audio = data.map(compacted),
            // The others have nothing that a message has a place for.
            _ => {}
        }
    }

    fn add_logprobs(logprobs: &Logprobs<'_>, lists: &mut LogprobLists) {
        lists.add(logprobs);
    }

    fn write(&self, index: u32, options: &Options, out: &mut BytesMut) {
        let string = |text: Option<&BytesMut>, out: &mut BytesMut| match text {
            Some(text) => {
                out.put_u8(b'"');
                out.extend_from_slice(text);
                out.put_u8(b'"');
            }
            None => out.extend_from_slice(b"null"),
        };
        write_index(index, out);
        out.extend_from_slice(b",\"message\":{\"role\":\"assistant\",\"content\":");
        string(
            self.content
                .as_ref()
                .filter(|text| self.calls.is_empty() || !text.is_empty()),
            out,
        );
        if !self.reasoning.is_empty() {
            out.put_u8(b',');
            write_reasoning(
                options.reasoning_field,
                |out| out.extend_from_slice(&self.reasoning),
                out,
            );
        }
        out.extend_from_slice(b",\"refusal\":");
        string(self.refusal.as_ref(), out);
        out.extend_from_slice(b",\"annotations\":");
        out.extend_from_slice(self.annotations.as_deref().unwrap_or("[]").as_bytes());
        if let Some(audio) = &self.audio {
            out.extend_from_slice(b",\"audio\":");
            out.extend_from_slice(audio.as_bytes());
        }
        if let Some((name, arguments)) = &self.function_call {
            out.extend_from_slice(b",\"function_call\":{\"name\":");
            string(Some(name), out);
            out.extend_from_slice(b",\"arguments\":");
            string(Some(arguments), out);
            out.put_u8(b'}');
        }
        for (at, call) in self.calls.iter().enumerate() {
            out.extend_from_slice(if at == 0 { b",\"tool_calls\":[" } else { b"," });
            out.extend_from_slice(call);
            out.extend_from_slice(b"\"}}");
        }
        out.extend_from_slice(if self.calls.is_empty() { b"}" } else { b"]}" });
    }
}
