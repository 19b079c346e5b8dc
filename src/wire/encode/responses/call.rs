//! Tool calls as items, and what the names in them stand for (wire-format 4.2, 4.4).

use super::event::{self, TextEvents};
use crate::json::{Raw, Text, write_string};
use crate::wire::arguments::Arguments;
use crate::wire::event::ToolKind;
use crate::wire::{OutputBuffer, Rope, Spelled};
use bytes::BytesMut;
use std::collections::BTreeMap;

/// What a name in an engine's call stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameMeaning {
    /// The namespace that the tool was given in.
    pub namespace: Option<String>,
    /// The tool's own name.
    pub name: String,
    /// The engine knows it as a function with one string `input`; to the client it is a custom tool.
    pub custom: bool,
}

/// Names that stand for something else than a function of that name.
#[derive(Clone, Debug, Default)]
pub struct Calls(BTreeMap<String, NameMeaning>);

impl Calls {
    /// The engine knows `called` by this name.
    pub fn keep(&mut self, name: String, called: NameMeaning) {
        self.0.insert(name, called);
    }

    /// What this name stands for.
    pub fn named(&self, name: &str) -> NameMeaning {
        let plain = || NameMeaning { namespace: None, name: name.to_owned(), custom: false };
        self.0.get(name).cloned().unwrap_or_else(plain)
    }
}

/// A call.
#[derive(Debug)]
pub(super) struct Call {
    /// Its place among the choice's calls.
    pub(super) slot: u32,
    id: String,
    called: NameMeaning,
    kind: ToolKind,
    /// Arguments or input in JSON spelling, as far as the client has them.
    text: Rope,
    /// Arguments that hold the input of a custom tool, in JSON spelling.
    wrapped: Rope,
    progress: Arguments,
}

impl Call {
    pub(super) fn new(slot: u32, id: &str, called: NameMeaning, kind: ToolKind) -> Self {
        Self {
            slot,
            id: id.to_owned(),
            called,
            kind,
            text: Rope::default(),
            wrapped: Rope::default(),
            progress: Arguments::default(),
        }
    }

    /// A piece of arguments or input; gives what the client is to have of it at once.
    pub(super) fn take(&mut self, piece: &Text<'_>) -> Option<&[u8]> {
        self.progress.read(piece);
        if self.is_wrapped() {
            self.wrapped.append(|out| piece.write(out));
            return None;
        }
        Some(self.text.append(|out| piece.write(out)))
    }

    /// The input of a custom tool that came as arguments, once they are all there.
    pub(super) fn unwrap(&mut self) -> Option<&Rope> {
        if !self.is_wrapped() {
            return None;
        }
        let spelled = std::mem::take(&mut self.wrapped).join();
        let wrapped = Text::json(&spelled).decoded();
        self.text = Rope::default();
        // What is not as it was agreed upon is not lost either.
        let input = input(&wrapped).unwrap_or_else(|| Text::json(&spelled));
        self.text.append(|out| input.write(out));
        self.text.close();
        Some(&self.text).filter(|text| !text.is_empty())
    }

    /// Nothing more comes.
    pub(super) fn close(&mut self) {
        self.text.close();
    }

    fn is_wrapped(&self) -> bool {
        self.called.custom && self.kind == ToolKind::Function
    }

    fn is_custom(&self) -> bool {
        self.called.custom || self.kind == ToolKind::Custom
    }

    /// Nothing more can come. Of free text one never knows.
    pub(super) fn is_complete(&self) -> bool {
        self.kind == ToolKind::Function && self.progress.is_complete()
    }

    pub(super) fn prefix(&self) -> &'static str {
        if self.is_custom() { "ctc" } else { "fc" }
    }

    pub(super) fn word(&self) -> &'static str {
        if self.is_custom() { "custom_tool_call" } else { "function_call" }
    }

    pub(super) fn voice(&self) -> &'static TextEvents {
        if self.is_custom() { &event::INPUT } else { &event::ARGUMENTS }
    }

    pub(super) fn text(&self) -> Spelled<'_> {
        Spelled::Whole(&self.text)
    }

    pub(super) fn write_id(&self, out: &mut BytesMut) {
        write_string(&self.id, out);
    }

    pub(super) fn write_name(&self, out: &mut BytesMut) {
        write_string(&self.called.name, out);
    }

    /// The members behind `status`; `text`: arguments or input.
    pub(super) fn write(&self, text: Spelled<'_>, out: &mut OutputBuffer) {
        out.extend_from_slice(b",\"call_id\":");
        self.write_id(out.open());
        out.extend_from_slice(b",\"name\":");
        self.write_name(out.open());
        if let Some(namespace) = &self.called.namespace {
            out.extend_from_slice(b",\"namespace\":");
            write_string(namespace, out.open());
        }
        out.extend_from_slice(if self.is_custom() { b",\"input\":\"" } else { b",\"arguments\":\"" });
        out.push_text(text);
        out.put_u8(b'"');
    }
}

/// The string `input` of a JSON object.
pub(in crate::wire::encode) fn input(arguments: &str) -> Option<Text<'_>> {
    let members = crate::json::read::<crate::json::Members<'_>>(arguments).ok()?.0;
    let (_, value) = members.into_iter().rfind(|(key, _)| key == "input")?;
    Text::of(Raw::of(value.get())?)
}
