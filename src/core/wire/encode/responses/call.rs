//! Tool calls as output items, and the tools that the names in the engine's calls stand for (wire-format 4.2, 4.4).

use super::text_events::{self, TextEvents};
use crate::json::{Raw, Text, compacted, write_string};
use crate::wire::arguments::Arguments;
use crate::wire::event::ToolKind;
use crate::wire::{OutputBuffer, Rope, Spelled};
use bytes::BytesMut;
use std::collections::BTreeMap;

/// Tool that a name in an engine's call stands for. Engines get flat function names; the client named its tools
/// with a namespace or as custom tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameMeaning {
    /// Namespace in which the client declared the tool, if any.
    pub namespace: Option<String>,
    /// Name of the tool within its namespace.
    pub name: String,
    /// Kind of tool that the client declared. The engine knows a custom tool as a function with one string `input`.
    pub kind: ToolKind,
}

/// Table from the names that the engine uses to the client's tools. Names without an entry are plain functions.
#[derive(Clone, Debug, Default)]
pub struct OutputCalls(BTreeMap<String, NameMeaning>);

impl OutputCalls {
    /// Records that the engine knows the tool `called` under `name`.
    pub fn keep(&mut self, name: String, called: NameMeaning) {
        self.0.insert(name, called);
    }

    /// Returns the tool that `name` stands for; a plain function of that name if the table has no entry.
    pub fn meaning_of(&self, name: &str) -> NameMeaning {
        let plain = || NameMeaning {
            namespace: None,
            name: name.to_owned(),
            kind: ToolKind::Function,
        };
        self.0.get(name).cloned().unwrap_or_else(plain)
    }
}

/// Function or custom tool call, an item of the output. Its arguments may end before or after the next item begins.
#[derive(Debug)]
pub(super) struct CallItem {
    /// Index among the choice's calls, from 0; events of the engine refer to it.
    pub(super) slot: u32,
    id: String,
    called: NameMeaning,
    kind: ToolKind,
    /// Arguments or input in JSON spelling, as far as they have been sent to the client; a search's as JSON.
    text: Rope,
    /// Arguments of a custom tool, which wrap its input, or of a search, in JSON spelling. Buffered until the call ends.
    wrapped: Rope,
    /// Position in the JSON grammar of the arguments, which shows when they are complete.
    progress: Arguments,
}

/// Call of a client's tool in the output, whose output is a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputCall {
    /// Value of the item's `call_id`.
    pub call_id: String,
    /// True for a custom tool, whose input is free text.
    pub custom: bool,
}

impl CallItem {
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

    /// Appends a piece of arguments or input. Returns the bytes to send at once; `None` if they have to wait for the
    /// end of the arguments.
    pub(super) fn take(&mut self, piece: &Text<'_>) -> Option<&[u8]> {
        self.progress.read(piece);
        if self.waits() {
            self.wrapped.append(|out| piece.write(out));
            return None;
        }
        Some(self.text.append(|out| piece.write(out)))
    }

    /// Extracts the input of a custom tool from its complete arguments. Returns it if there is any to send; `None`
    /// for other calls. Arguments of another form become the input as they are.
    pub(super) fn unwrap(&mut self) -> Option<&Rope> {
        if !self.waits() {
            return None;
        }
        let spelled = std::mem::take(&mut self.wrapped).join();
        let wrapped = Text::json(&spelled).decoded();
        self.text = Rope::default();
        if self.is_search() {
            self.text.append(|out| match Raw::of(&wrapped) {
                Some(json) => out.extend_from_slice(compacted(json).as_bytes()),
                None if wrapped.trim().is_empty() => out.extend_from_slice(b"{}"),
                None => write_string(&wrapped, out),
            });
            self.text.close();
            return None;
        }
        // Arguments without a string `input` are sent unchanged, so that nothing is lost.
        let input = input(&wrapped).unwrap_or_else(|| Text::json(&spelled));
        self.text.append(|out| input.write(out));
        self.text.close();
        Some(&self.text).filter(|text| !text.is_empty())
    }

    /// Releases reserved memory: no text follows.
    pub(super) fn close(&mut self) {
        self.text.close();
    }

    /// Returns true if the client gets the arguments at their end, in another form.
    fn waits(&self) -> bool {
        self.called.kind != ToolKind::Function && self.kind == ToolKind::Function
    }

    fn is_custom(&self) -> bool {
        self.called.kind == ToolKind::Custom || self.kind == ToolKind::Custom
    }

    /// Returns true for a search for tools, whose arguments are JSON and come without their own events.
    pub(super) fn is_search(&self) -> bool {
        self.called.kind == ToolKind::Search && self.waits()
    }

    /// Returns true if a function's arguments break off.
    pub(super) fn is_cut(&self) -> bool {
        self.kind == ToolKind::Function && self.progress.is_open()
    }

    /// Returns true if no more arguments can follow. Free text of a custom tool has no visible end, so it returns
    /// false.
    pub(super) fn is_complete(&self) -> bool {
        self.kind == ToolKind::Function && self.progress.is_complete()
    }

    pub(super) fn prefix(&self) -> &'static str {
        match (self.is_search(), self.is_custom()) {
            (true, _) => "tsc",
            (_, true) => "ctc",
            _ => "fc",
        }
    }

    pub(super) fn item_type(&self) -> &'static str {
        match (self.is_search(), self.is_custom()) {
            (true, _) => "tool_search_call",
            (_, true) => "custom_tool_call",
            _ => "function_call",
        }
    }

    pub(super) fn text_events(&self) -> &'static TextEvents {
        if self.is_custom() {
            &text_events::INPUT
        } else {
            &text_events::ARGUMENTS
        }
    }

    pub(super) fn text(&self) -> Spelled<'_> {
        Spelled::Whole(&self.text)
    }

    /// Returns the id and the kind of the call; `None` for a search, whose output is a list of tools.
    pub(super) fn reference(&self) -> Option<OutputCall> {
        (!self.is_search()).then(|| OutputCall {
            call_id: self.id.clone(),
            custom: self.is_custom(),
        })
    }

    pub(super) fn write_id(&self, out: &mut BytesMut) {
        write_string(&self.id, out);
    }

    pub(super) fn write_name(&self, out: &mut BytesMut) {
        write_string(&self.called.name, out);
    }

    /// Appends the members after `status`. `text`: the arguments or the input.
    pub(super) fn write(&self, text: Spelled<'_>, out: &mut OutputBuffer) {
        out.extend_from_slice(b",\"call_id\":");
        self.write_id(out.open());
        if self.is_search() {
            out.extend_from_slice(b",\"execution\":\"client\",\"arguments\":");
            // There are none before the call has ended.
            return match self.text.is_empty() {
                true => out.extend_from_slice(b"{}"),
                false => out.push_text(text),
            };
        }
        out.extend_from_slice(b",\"name\":");
        self.write_name(out.open());
        if let Some(namespace) = &self.called.namespace {
            out.extend_from_slice(b",\"namespace\":");
            write_string(namespace, out.open());
        }
        out.extend_from_slice(if self.is_custom() {
            b",\"input\":\""
        } else {
            b",\"arguments\":\""
        });
        out.push_text(text);
        out.put_u8(b'"');
    }
}

/// Returns the string member `input` of a JSON object, the last one if it is repeated; `None` if `arguments` is no
/// object or has no such string. Custom tools are sent to engines as functions with this one argument (wire-format
/// 2.5 rule 9).
pub(in crate::wire::encode) fn input(arguments: &str) -> Option<Text<'_>> {
    let members = crate::json::read::<crate::json::Members<'_>>(arguments)
        .ok()?
        .0;
    let (_, value) = members.into_iter().rfind(|(key, _)| key == "input")?;
    Text::of(Raw::of(value.get())?)
}
