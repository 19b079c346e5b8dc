//! Tools of a Messages request as functions of a chat (messages 3.4).
//!
//! Takes: `tools` and `tool_choice`. Gives: the members `tools`, `tool_choice` and `parallel_tool_calls`. Remembers:
//! the tools on offer. Never: offers a tool that the service would have to run.

use super::blocks::Block;
use super::refuse;
use crate::json::{Raw, Text, quoted};
use crate::request::check::Checked;
use crate::request::object::RequestObject;
use crate::request::offered_tools::write_rest;
use crate::request::refusals::{invalid, shown};
use crate::wire::fault::{Failure, Fault};
use crate::wire::options::{Options, UnsupportedTools};
use bytes::{BufMut, BytesMut};
use std::collections::{HashMap, HashSet};

/// Tools on offer, and how the model may choose among them.
pub(super) struct MessagesTools<'a> {
    offered: Vec<MessagesTool<'a>>,
    /// Value of `tool_choice` in chat, as JSON.
    choice: Option<String>,
    /// True if the model may call at most one tool.
    one_call: bool,
}

struct MessagesTool<'a> {
    name: Text<'a>,
    description: Option<Text<'a>>,
    schema: Option<Raw<'a>>,
    strict: Option<Raw<'a>>,
}

/// Change of the tools on offer in the course of a conversation. Engines get one list for the whole conversation, so the
/// state at its end counts.
pub(super) enum ToolChange<'a> {
    /// The tool of this name is on offer.
    Offer(String),
    /// This tool is on offer.
    Define(RequestObject<'a>),
    /// The tool of this name is no longer on offer.
    Withdraw(String),
}

impl<'a> ToolChange<'a> {
    /// Reads a block of a system message; `None` if it changes no tools.
    pub(super) fn of(block: &Block<'a>) -> Result<Option<Self>, Failure> {
        let adds = match block.kind.as_ref() {
            "tool_addition" => true,
            "tool_removal" => false,
            _ => return Ok(None),
        };
        block.object.required("tool")?;
        let Some(tool) = block.object.object("tool")? else {
            return Ok(None);
        };
        if adds && let Some(definition) = tool.object("definition")? {
            return Ok(Some(Self::Define(definition)));
        }
        // References to tools of servers have other names; samewire has none of these.
        let name = tool
            .text("name")?
            .map(|name| name.decoded().into_owned())
            .unwrap_or_default();
        Ok(Some(if adds {
            Self::Offer(name)
        } else {
            Self::Withdraw(name)
        }))
    }
}

/// Reader of the tools.
struct ToolsReader<'r, 'a> {
    options: &'r Options,
    dropped: &'r mut Vec<String>,
    /// Tools that engines can have, each with whether it is on offer.
    known: Vec<(MessagesTool<'a>, bool)>,
    /// Places of the tools in `known`, by name; the last one of a name counts for changes.
    places: HashMap<String, usize>,
    /// Maximum number of tools.
    most: usize,
    /// Names of the tools that were left out.
    left_out: HashSet<String>,
}

impl<'a> ToolsReader<'_, 'a> {
    /// Reads a tool. `place`: its name in the list of what was dropped.
    fn tool(&mut self, tool: &RequestObject<'a>, place: &str) -> Result<(), Failure> {
        let kind = tool.text("type")?.map(|kind| shown(&kind.decoded()));
        if let Some(kind) = kind.filter(|kind| kind != "custom") {
            if self.options.unsupported_tools == UnsupportedTools::Reject {
                let why = format!("`{kind}` tools are not supported");
                return Err(refuse(Fault::UnsupportedValue, tool.path("type"), &why));
            }
            self.dropped.push(format!("{place}.{kind}"));
            self.left_out
                .extend(tool.text("name")?.map(|name| name.decoded().into_owned()));
            return Ok(());
        }
        let name = tool.required_name("name")?;
        tool.required("input_schema")?;
        let is_deferred = tool
            .flag("defer_loading")?
            .is_some_and(|flag| flag.get() == "true");
        let known = MessagesTool {
            name,
            description: tool.text("description")?,
            schema: tool.carried("input_schema")?,
            strict: tool.flag("strict")?,
        };
        self.places
            .insert(name.decoded().into_owned(), self.known.len());
        self.known.push((known, !is_deferred));
        Ok(())
    }

    fn change(&mut self, change: &ToolChange<'a>) -> Result<(), Failure> {
        let (name, on_offer) = match change {
            ToolChange::Offer(name) => (name, true),
            ToolChange::Withdraw(name) => (name, false),
            ToolChange::Define(tool) => return self.define(tool),
        };
        self.set(name, on_offer);
        Ok(())
    }

    fn set(&mut self, name: &str, on_offer: bool) {
        if let Some((_, state)) = self.places.get(name).and_then(|at| self.known.get_mut(*at)) {
            *state = on_offer;
        }
    }

    /// Puts a tool on offer that the conversation defines, in the place of an earlier one of its name.
    fn define(&mut self, tool: &RequestObject<'a>) -> Result<(), Failure> {
        if self.known.len() >= self.most {
            let why = format!(
                "with this one, the request has more than {} tools (`limits.max_tools`)",
                self.most
            );
            return Err(invalid(tool.here(), &why));
        }
        if let Some(name) = tool.text("name")? {
            self.set(&name.decoded(), false);
        }
        self.tool(tool, tool.here())
    }
}

impl<'a> MessagesTools<'a> {
    /// Reads the tools. `changes`: what the conversation has changed. `dropped` receives the tools that are left out.
    pub(super) fn read(
        from: &'a Checked<'_>,
        options: &Options,
        changes: &[ToolChange<'a>],
        dropped: &mut Vec<String>,
    ) -> Result<Self, Failure> {
        let most = from.caps().tools;
        let all = from
            .limited("tools", most, "max_tools")?
            .unwrap_or_default();
        let (known, places, left_out) = (Vec::new(), HashMap::new(), HashSet::new());
        let mut reader = ToolsReader {
            options,
            dropped,
            known,
            places,
            most,
            left_out,
        };
        for (at, raw) in all.into_iter().enumerate() {
            reader.tool(
                &RequestObject::of(format!("tools.{at}"), raw)?,
                &format!("tools[{at}]"),
            )?;
        }
        for change in changes {
            reader.change(change)?;
        }
        let ToolsReader {
            known, left_out, ..
        } = reader;
        let offered: Vec<_> = known
            .into_iter()
            .filter(|(_, state)| *state)
            .map(|(tool, _)| tool)
            .collect();
        let (choice, one_call) = choice(from, &offered, &left_out)?;
        Ok(Self {
            offered,
            choice,
            one_call,
        })
    }

    /// Appends the members for the tools; nothing if there are none.
    pub(super) fn write(&self, out: &mut BytesMut) {
        if self.offered.is_empty() {
            return;
        }
        for (at, tool) in self.offered.iter().enumerate() {
            out.extend_from_slice(if at > 0 { b"," } else { b",\"tools\":[" });
            tool.write(out);
        }
        out.put_u8(b']');
        if let Some(choice) = &self.choice {
            out.extend_from_slice(b",\"tool_choice\":");
            out.extend_from_slice(choice.as_bytes());
        }
        if self.one_call {
            out.extend_from_slice(b",\"parallel_tool_calls\":false");
        }
    }
}

/// Reads `tool_choice`, and whether the model may call at most one tool.
fn choice(
    from: &Checked<'_>,
    offered: &[MessagesTool<'_>],
    left_out: &HashSet<String>,
) -> Result<(Option<String>, bool), Failure> {
    let Some(field) = from.get("tool_choice") else {
        return Ok((None, false));
    };
    let object = RequestObject::of("tool_choice", field.value)?;
    object.required("type")?;
    let one_call = object
        .flag("disable_parallel_tool_use")?
        .is_some_and(|flag| flag.get() == "true");
    let choice = match object
        .word("type", &["auto", "any", "tool", "none"])?
        .as_deref()
    {
        Some("any") => "\"required\"".to_owned(),
        Some("none") => "\"none\"".to_owned(),
        Some("tool") => {
            let name = object.required_name("name")?.decoded().into_owned();
            if !offered.iter().any(|tool| tool.name == name.as_str()) {
                return Err(not_on_offer(&object, &name, left_out.contains(&name)));
            }
            format!(
                "{{\"type\":\"function\",\"function\":{{\"name\":{}}}}}",
                quoted(&name)
            )
        }
        _ => "\"auto\"".to_owned(),
    };
    Ok((Some(choice), one_call))
}

/// Returns the refusal of a choice that no engine can make. An answer without the tool would pass for one that has used
/// it.
fn not_on_offer(choice: &RequestObject<'_>, name: &str, is_left_out: bool) -> Failure {
    let (path, name) = (choice.path("name"), shown(name));
    match is_left_out {
        true => {
            let why = format!("Tool '{name}' was left out: only Anthropic's service has it");
            refuse(Fault::UnsupportedValue, path, &why)
        }
        false => refuse(
            Fault::InvalidValue,
            path,
            &format!("Tool '{name}' not found in provided tools"),
        ),
    }
}

impl MessagesTool<'_> {
    fn write(&self, out: &mut BytesMut) {
        out.extend_from_slice(b"{\"type\":\"function\",\"function\":{\"name\":\"");
        self.name.write(out);
        out.put_u8(b'"');
        write_rest(self.description, self.schema, self.strict, out);
        out.extend_from_slice(b"}}");
    }
}
