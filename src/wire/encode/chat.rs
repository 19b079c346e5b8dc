//! Encoder for Chat Completions.
//!
//! Keys of a chunk: `id, object, created, model, service_tier?, system_fingerprint?, choices, usage?, obfuscation?,
//! x_upstream?`; of its choice: `index, delta, logprobs, finish_reason, stop_reason?, x_upstream?`. A whole object
//! has `message` for `delta`: `role, content, reasoning_content? / reasoning?, refusal, annotations, audio?,
//! function_call?, tool_calls?` (wire-format 2.1).

use super::Encode;
use super::frame::{
    Envelope, ExtensionLists, LastFrame, LogprobLists, write_extensions, write_index, write_logprobs,
    write_reason,
};
use crate::json::{Text, compacted, write_number, write_string};
use crate::wire::event::{Delta, Event, PartName, Riders, ToolKind};
use crate::wire::options::{Obfuscation, ReasoningField, RoleFrame};
use crate::wire::sse::DONE;
use crate::wire::{OutputBuffer, Shape, Stamp};
use bytes::{BufMut, BytesMut};

/// Streaming encoder: writes one SSE frame for each delta, then the usage frame and `[DONE]`.
#[derive(Debug)]
pub(super) struct ChatStream {
    envelope: Envelope,
    last: LastFrame,
    padding: Option<Padding>,
    /// Custom-tool calls, as (choice, slot): their arguments go under `custom.input` instead of
    /// `function.arguments`.
    custom: Vec<(u32, u32)>,
}

impl ChatStream {
    pub(super) fn new(shape: &Shape, stamp: &Stamp) -> Self {
        let options = shape.options.clone();
        let pads = options.obfuscation == Obfuscation::OnRequest && shape.include_obfuscation;
        Self {
            envelope: Envelope::new("chat.completion.chunk", options, shape.include_usage),
            last: LastFrame::new(shape),
            padding: pads.then_some(Padding(stamp.seed | 1)),
            custom: Vec::new(),
        }
    }
}

impl Encode for ChatStream {
    fn event(&mut self, event: Event<'_>, out: &mut OutputBuffer) {
        let out = out.open();
        if matches!(event, Event::Usage { .. } | Event::Fail(_) | Event::End) {
            self.last.release(out);
        }
        match event {
            Event::Head(head) => self.envelope.render(&head),
            Event::Delta { choice, delta, riders } => self.delta(choice, &delta, &riders, out),
            Event::Usage { usage, riders, .. } => self.envelope.usage_frame(&usage, &riders, out),
            Event::Foreign { .. } | Event::Limits(_) => {}
            Event::Fail(failure) => self.envelope.error_frame(&failure, out),
            Event::End => out.extend_from_slice(DONE),
        }
    }

    fn is_waiting(&self) -> bool {
        self.last.is_waiting()
    }

    fn is_plain(&self) -> bool {
        self.padding.is_none() && self.last.is_plain()
    }
}

impl ChatStream {
    fn delta(&mut self, choice: u32, delta: &Delta<'_>, riders: &Riders<'_>, out: &mut BytesMut) {
        if matches!(
            delta,
            Delta::Break
                | Delta::Done { .. }
                | Delta::Part { .. }
                | Delta::Sealed { .. }
                | Delta::Annotation(_)
                | Delta::Tokens(_)
        ) {
            return;
        }
        if let Delta::ToolStart { slot, kind: ToolKind::Custom, .. } = delta {
            self.custom.push((choice, *slot));
        }
        if let Delta::Finish(finish) = delta
            && self.last.finish(choice, finish, riders, out)
        {
            return;
        }
        self.last.release(out);
        match self.last.must_wait(delta, riders) {
            true => {
                let mut frame = BytesMut::new();
                let reason = self.frame(choice, delta, riders, &mut frame);
                self.last.keep(choice, frame, reason);
            }
            false => {
                self.frame(choice, delta, riders, out);
            }
        }
    }

    /// Appends a frame. Returns the position of its finish reason, counted from the start of `out`.
    fn frame(&mut self, choice: u32, delta: &Delta<'_>, riders: &Riders<'_>, out: &mut BytesMut) -> usize {
        self.envelope.open_frame(out);
        out.put_u8(b'{');
        write_index(choice, out);
        out.extend_from_slice(b",\"delta\":{");
        let start = out.len();
        self.write_delta(choice, delta, out);
        let written = out.len() - start;
        out.extend_from_slice(b"},\"logprobs\":");
        write_logprobs(riders.logprobs.as_ref(), out);
        out.extend_from_slice(b",\"finish_reason\":");
        let reason = out.len();
        let (finish, pads) = match delta {
            Delta::Finish(finish) => (Some(finish), false),
            delta => (None, !matches!(delta, Delta::Role)),
        };
        write_reason(finish, out);
        let padding = self.padding.as_mut().filter(|_| pads).map(|padding| padding.fill(written));
        write_extensions(&riders.choice_extensions, out);
        self.envelope.choice_leftovers(riders, "delta", out);
        out.put_u8(b'}');
        self.envelope.close_frame(riders, padding.as_deref(), out);
        reason
    }

    fn write_delta(&self, choice: u32, delta: &Delta<'_>, out: &mut BytesMut) {
        match delta {
            Delta::Role => out.extend_from_slice(match self.envelope.options.role_frame {
                RoleFrame::Bare => b"\"role\":\"assistant\"",
                RoleFrame::Openai => b"\"role\":\"assistant\",\"content\":\"\",\"refusal\":null",
            }),
            Delta::Reasoning(text) | Delta::Summary(text) => {
                write_reasoning(self.envelope.options.reasoning_field, |out| text.write(out), out);
            }
            Delta::Content(text) => write_text(b"\"content\":\"", text, out),
            Delta::Refusal(text) => write_text(b"\"refusal\":\"", text, out),
            Delta::FunctionCall { name, arguments } => {
                out.extend_from_slice(b"\"function_call\":");
                write_function_call(name.as_ref(), arguments.as_ref(), out);
            }
            Delta::ToolStart { slot, id, name, kind, .. } => {
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
            Delta::Bare
            | Delta::Finish(_)
            | Delta::Break
            | Delta::Done { .. }
            | Delta::Part { .. }
            | Delta::Sealed { .. }
            | Delta::Annotation(_)
            | Delta::Tokens(_) => {}
        }
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
        ToolKind::Function => (b",\"type\":\"function\",\"function\":{\"name\":", b",\"arguments\":\""),
        ToolKind::Custom => (b",\"type\":\"custom\",\"custom\":{\"name\":", b",\"input\":\""),
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
        let wanted = 32 - written % 32;
        let mut padding = String::with_capacity(wanted);
        while padding.len() < wanted {
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

/// Whole-object encoder: collects the message of each choice and writes one object when the answer ends.
#[derive(Debug)]
pub(super) struct ChatWhole {
    envelope: Envelope,
    choices: Vec<Message>,
    usage: Option<crate::wire::event::Usage>,
    extensions: ExtensionLists,
    leftovers: BytesMut,
}

/// Collected message of one choice of a whole object; texts are in canonical JSON spelling.
#[derive(Debug, Default)]
struct Message {
    content: Option<BytesMut>,
    reasoning: BytesMut,
    refusal: Option<BytesMut>,
    annotations: Option<String>,
    audio: Option<String>,
    function_call: Option<(BytesMut, BytesMut)>,
    calls: Vec<BytesMut>,
    logprobs: LogprobLists,
    finish: Option<&'static str>,
    stop: Option<String>,
    extensions: ExtensionLists,
    leftovers: BytesMut,
}

impl ChatWhole {
    pub(super) fn new(shape: &Shape) -> Self {
        Self {
            envelope: Envelope::new("chat.completion", shape.options.clone(), false),
            choices: Vec::new(),
            usage: None,
            extensions: ExtensionLists::default(),
            leftovers: BytesMut::new(),
        }
    }
}

impl Encode for ChatWhole {
    fn event(&mut self, event: Event<'_>, out: &mut OutputBuffer) {
        let out = out.open();
        match event {
            Event::Head(head) => self.envelope.render(&head),
            Event::Delta { choice, delta, riders } => self.delta(choice, &delta, &riders),
            Event::Usage { usage, riders, .. } => {
                self.usage = Some(usage);
                self.keep_chunk_riders(&riders);
            }
            Event::Foreign { .. } | Event::Limits(_) => {}
            // Before the end nothing has been written, so the server answers a failure with an HTTP error instead.
            Event::Fail(_) => {}
            Event::End => self.write(out),
        }
    }
}

impl ChatWhole {
    fn keep_chunk_riders(&mut self, riders: &Riders<'_>) {
        self.extensions.add(&riders.chunk_extensions);
        if self.leftovers.is_empty() {
            self.envelope.chunk_leftovers(riders, &mut self.leftovers);
        }
    }

    fn delta(&mut self, choice: u32, delta: &Delta<'_>, riders: &Riders<'_>) {
        self.keep_chunk_riders(riders);
        let index = choice as usize;
        self.choices.resize_with(self.choices.len().max(index + 1), Message::default);
        let Some(message) = self.choices.get_mut(index) else { return };
        message.extensions.add(&riders.choice_extensions);
        if message.leftovers.is_empty() {
            self.envelope.choice_leftovers(riders, "message", &mut message.leftovers);
        }
        if let Some(logprobs) = &riders.logprobs {
            message.logprobs.add(logprobs);
        }
        message.add(delta);
    }

    fn write(&self, out: &mut BytesMut) {
        self.envelope.open_object(out);
        for (at, message) in self.choices.iter().enumerate() {
            out.extend_from_slice(if at > 0 { b",{" } else { b"{" });
            write_index(u32::try_from(at).unwrap_or(u32::MAX), out);
            out.extend_from_slice(b",\"message\":");
            message.write(self.envelope.options.reasoning_field, out);
            out.extend_from_slice(b",\"logprobs\":");
            message.logprobs.write(out);
            out.extend_from_slice(b",\"finish_reason\":");
            write_string(message.finish.unwrap_or("stop"), out);
            if let Some(stop) = &message.stop {
                out.extend_from_slice(b",\"stop_reason\":");
                out.extend_from_slice(stop.as_bytes());
            }
            message.extensions.write(out);
            out.extend_from_slice(&message.leftovers);
            out.put_u8(b'}');
        }
        out.put_u8(b']');
        if let Some(usage) = &self.usage {
            self.envelope.usage_member(usage, out);
        }
        self.extensions.write(out);
        out.extend_from_slice(&self.leftovers);
        out.put_u8(b'}');
    }
}

impl Message {
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
            Delta::Part { name: PartName::EmptyContent, .. } => {
                self.content.get_or_insert_default();
            }
            Delta::Part { name: PartName::Annotations, data } => self.annotations = data.map(compacted),
            Delta::Part { name: PartName::Audio, data } => self.audio = data.map(compacted),
            Delta::Finish(finish) => {
                self.finish = Some(finish.reason.as_str());
                self.stop = finish.stop.map(compacted);
            }
            Delta::Role
            | Delta::Break
            | Delta::Done { .. }
            | Delta::Sealed { .. }
            | Delta::Annotation(_)
            | Delta::Tokens(_)
            | Delta::Bare => {}
        }
    }

    fn write(&self, field: ReasoningField, out: &mut BytesMut) {
        let string = |text: Option<&BytesMut>, out: &mut BytesMut| match text {
            Some(text) => {
                out.put_u8(b'"');
                out.extend_from_slice(text);
                out.put_u8(b'"');
            }
            None => out.extend_from_slice(b"null"),
        };
        out.extend_from_slice(b"{\"role\":\"assistant\",\"content\":");
        string(self.content.as_ref().filter(|text| self.calls.is_empty() || !text.is_empty()), out);
        if !self.reasoning.is_empty() {
            out.put_u8(b',');
            write_reasoning(field, |out| out.extend_from_slice(&self.reasoning), out);
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
