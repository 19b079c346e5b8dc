//! Tools of a request: functions offered to the engine, tools left out, and the mapping from the engine's calls
//! back to the client's tools.
//!
//! Takes: `tools` and `tool_choice`. Gives: functions with flat names, and the way back from these. Remembers:
//! both. Never: leaves a tool out without naming it.

use super::ResponsesMode;
use super::function_names::{LONGEST, flat_name, function_name, is_free};
use super::server_tools::{self, MCP, UsedServer};
use crate::json::{Raw, Text, compacted, write_string};
use crate::request::check::Checked;
use crate::request::object::RequestObject;
use crate::request::offered_tools::write_rest;
use crate::request::parts;
use crate::request::refusals::{invalid, unsupported_value};
use crate::wire::encode::ServerTool;
use crate::wire::event::ToolKind;
use crate::wire::fault::{Failure, Fault};
use crate::wire::options::UnsupportedTools;
use bytes::{BufMut, BytesMut};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Type of the tool with which a model searches for tools, and its name as a function.
pub(super) const TOOL_SEARCH: &str = "tool_search";

/// Tools of a request. Namespaced and custom tools become plain functions for the engine, and its calls are mapped
/// back.
#[derive(Clone, Debug, Default)]
pub struct ResponsesTools {
    /// Maximum number of tools.
    most: usize,
    offers: Vec<OfferedFunction>,
    /// Index of the first offer for each name on the wire.
    by_wire: HashMap<String, usize>,
    /// Index of the first offer for each namespace and name.
    by_name: HashMap<(Option<String>, String), usize>,
    hosted: Vec<Hosted>,
    /// Servers whose tools samewire runs.
    servers: Vec<UsedServer>,
    choice: ResponsesToolChoice,
}

/// Client's tool behind a call of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalledTool {
    /// Namespace of the tool, if it has one.
    pub namespace: Option<String>,
    /// Name of the tool within its namespace.
    pub name: String,
    /// Kind of call that the client receives.
    pub kind: ToolKind,
}

/// Function in the form offered to the engine.
#[derive(Clone, Debug)]
struct OfferedFunction {
    wire_name: String,
    tool: CalledTool,
    /// JSON after the name: `,"description":…`, without the closing braces.
    rest: String,
    /// Path of the tool in the request, for error messages.
    path: String,
    /// True if samewire runs the tool. Its namespace is then the server's label.
    is_server: bool,
}

/// Hosted tool: one that an engine runs itself, if it supports it.
#[derive(Clone, Debug)]
struct Hosted {
    path: String,
    kind: String,
    /// Index in `tools`, unless the tool is inside a namespace.
    place: Option<usize>,
    /// Tool as the client wrote it, if it is offered to the engine.
    offered: Option<String>,
}

/// Value of `tool_choice`, resolved to the tools that it names.
#[derive(Clone, Debug, Default)]
enum ResponsesToolChoice {
    #[default]
    Unset,
    Word(String),
    /// Index of the offer that must be called.
    One(usize),
    /// Choice of a hosted tool, as the client wrote it.
    Hosted(String),
    /// Restriction to these tools, with the mode.
    Only(Allowed, String),
}

/// Indices of the tools that may be called: offers, and hosted tools.
#[derive(Clone, Debug, Default)]
struct Allowed {
    offers: HashSet<usize>,
    hosted: HashSet<usize>,
}

impl ResponsesTools {
    /// Parses `tools` and `tool_choice`. `more` are tools introduced by input items. Only an engine with its own
    /// Responses API (`way`) is offered hosted tools. Fails on an invalid tool, a conflict of names or an
    /// unsupported tool, if the policy refuses those.
    pub(super) fn read(
        from: &Checked<'_>,
        more: &[RequestObject<'_>],
        policy: UnsupportedTools,
        way: ResponsesMode,
    ) -> Result<Self, Failure> {
        let most = from.caps().tools;
        let mut tools = Self {
            most,
            ..Self::default()
        };
        let all = from
            .limited("tools", most, "max_tools")?
            .unwrap_or_default();
        for (at, raw) in all.into_iter().enumerate() {
            let tool = RequestObject::of(format!("tools[{at}]"), raw)?;
            if way == ResponsesMode::Chat
                && let Some(server) = UsedServer::read(&tool, &from.rules.tools)?
            {
                tools.serve(server, tool.here())?;
                continue;
            }
            tools.add(&tool, Some(at))?;
            let last = tools
                .hosted
                .last_mut()
                .filter(|last| last.place == Some(at));
            if let Some(last) = last.filter(|_| way == ResponsesMode::Native) {
                let offered = parts::hosted(raw, &from.rules.media, tool.here())?;
                last.offered = Raw::of(&offered).map(compacted);
            }
        }
        tools.introduce(more, |other, offer| other == offer)?;
        if tools.offers.len() > most {
            return Err(invalid(
                "tools",
                &format!("it may have at most {most} tools, those of namespaces included"),
            ));
        }
        if let Some(left) = tools
            .left_out()
            .next()
            .filter(|_| policy == UnsupportedTools::Reject)
        {
            return Err(left.refused());
        }
        tools.assign_wire_names()?;
        tools.choice = tools.choose(from)?;
        Ok(tools)
    }

    /// Adds tools introduced earlier in the conversation that this request does not offer itself.
    pub(super) fn recall(&mut self, earlier: &[RequestObject<'_>]) -> Result<(), Failure> {
        let hosted = self.hosted.len();
        self.introduce(earlier, |other, offer| {
            (&other.namespace, &other.name) == (&offer.namespace, &offer.name)
        })?;
        self.hosted.truncate(hosted);
        self.assign_wire_names()
    }

    /// Adds tools that items introduce, each once: `same` compares one with a tool that is there already.
    fn introduce(
        &mut self,
        tools: &[RequestObject<'_>],
        same: impl Fn(&CalledTool, &CalledTool) -> bool,
    ) -> Result<(), Failure> {
        let known = self.offers.len();
        tools.iter().try_for_each(|tool| self.add(tool, None))?;
        for offer in self.offers.split_off(known) {
            if !self
                .offers
                .iter()
                .any(|other| same(&other.tool, &offer.tool))
            {
                self.offers.push(offer);
            }
        }
        Ok(())
    }

    fn add(&mut self, tool: &RequestObject<'_>, place: Option<usize>) -> Result<(), Failure> {
        match tool.required_text("type")?.decoded().as_ref() {
            "namespace" => self.namespace(tool),
            kind => self.tool(tool, kind, None, place),
        }
    }

    fn namespace(&mut self, tool: &RequestObject<'_>) -> Result<(), Failure> {
        let name = tool.required_name("name")?.decoded().into_owned();
        tool.required("tools")?;
        for inner in tool.objects("tools", self.most)? {
            let kind = inner.required_text("type")?.decoded();
            self.tool(&inner, &kind, Some(&name), None)?;
        }
        Ok(())
    }

    fn tool(
        &mut self,
        tool: &RequestObject<'_>,
        kind: &str,
        namespace: Option<&str>,
        place: Option<usize>,
    ) -> Result<(), Failure> {
        let (kind, rest) = match kind {
            "function" => (ToolKind::Function, function(tool)?),
            "custom" => (ToolKind::Custom, custom(tool)?),
            // Without `execution: "client"` the service would search.
            TOOL_SEARCH
                if namespace.is_none()
                    && tool.text("execution")?.is_some_and(|by| by == "client") =>
            {
                (ToolKind::Search, function(tool)?)
            }
            // The type appears in a response header: only the characters of API words are allowed.
            word if is_word(word) && word != "namespace" => {
                let (path, kind) = (tool.here().to_owned(), word.to_owned());
                self.hosted.push(Hosted {
                    path,
                    kind,
                    place,
                    offered: None,
                });
                return Ok(());
            }
            _ => return Err(invalid(tool.path("type"), "it must be the type of a tool")),
        };
        let name = match kind {
            ToolKind::Search => TOOL_SEARCH.to_owned(),
            _ => tool.required_name("name")?.decoded().into_owned(),
        };
        let called = CalledTool {
            namespace: namespace.map(ToOwned::to_owned),
            name,
            kind,
        };
        self.offers.push(OfferedFunction {
            wire_name: String::new(),
            tool: called,
            rest,
            path: tool.here().to_owned(),
            is_server: false,
        });
        Ok(())
    }

    /// Offers the tools of a server.
    fn serve(&mut self, server: UsedServer, path: &str) -> Result<(), Failure> {
        if self.servers.iter().any(|other| other.label == server.label) {
            let param = format!("{path}.server_label");
            return Err(invalid(param, "another tool has this label"));
        }
        let offers = server.tools.iter().map(|(listed, tool)| OfferedFunction {
            wire_name: String::new(),
            tool: CalledTool {
                namespace: Some(tool.label.to_string()),
                name: listed.name.clone(),
                kind: ToolKind::Function,
            },
            rest: server_tools::function(listed),
            path: path.to_owned(),
            is_server: true,
        });
        self.offers.extend(offers);
        self.servers.push(server);
        Ok(())
    }

    /// Leaves the choice to the model: a call that was required has been made.
    pub(super) fn release_choice(&mut self) {
        match &mut self.choice {
            ResponsesToolChoice::Word(word) | ResponsesToolChoice::Only(_, word)
                if word == "required" =>
            {
                "auto".clone_into(word);
            }
            ResponsesToolChoice::One(_) => self.choice = ResponsesToolChoice::Unset,
            _ => {}
        }
    }

    /// Returns true if the request names servers whose tools samewire runs.
    pub fn names_servers(&self) -> bool {
        !self.servers().is_empty()
    }

    /// Returns the tools that samewire runs, by the engine's names.
    pub fn server_tools(&self) -> HashMap<String, Arc<ServerTool>> {
        let own = |server: &UsedServer| server.tools.clone();
        let all = self.servers().iter().flat_map(own);
        all.map(|(_, tool)| (self.wire_name(Some(&tool.label), &tool.name), tool))
            .collect()
    }

    /// Returns the servers whose tools samewire runs.
    pub(super) fn servers(&self) -> &[UsedServer] {
        &self.servers
    }

    /// Assigns every offer its name on the wire: tools outside namespaces keep theirs.
    fn assign_wire_names(&mut self) -> Result<(), Failure> {
        self.by_wire.clear();
        self.by_name.clear();
        let outside = |offer: &OfferedFunction| offer.tool.namespace.is_none();
        for inside in [false, true] {
            for at in 0..self.offers.len() {
                let Some(offer) = self
                    .offers
                    .get_mut(at)
                    .filter(|offer| outside(offer) != inside)
                else {
                    continue;
                };
                let key = (offer.tool.namespace.clone(), offer.tool.name.clone());
                if let Some(first) = self.by_name.get(&key).copied() {
                    let first = self
                        .offers
                        .get(first)
                        .map(|first| (first.wire_name.clone(), first.tool.kind, first.is_server));
                    let Some(offer) = self.offers.get_mut(at) else {
                        continue;
                    };
                    match first {
                        Some((wire, kind, is_server))
                            if (kind, is_server) == (offer.tool.kind, offer.is_server) =>
                        {
                            offer.wire_name = wire
                        }
                        // Calls of the two tools would be indistinguishable.
                        _ => {
                            let param = format!("{}.name", offer.path);
                            return Err(invalid(param, "a tool of another type has this name"));
                        }
                    }
                    continue;
                }
                let wire = match &offer.tool.namespace {
                    None => offer.tool.name.clone(),
                    // Only names that clash need the label.
                    Some(_) if offer.is_server && is_free(&offer.tool.name, &self.by_wire) => {
                        offer.tool.name.clone()
                    }
                    Some(label) if offer.is_server => function_name(label, &offer.tool.name),
                    Some(namespace) => flat_name(namespace, &offer.tool.name, |name| {
                        self.by_wire.contains_key(name)
                    }),
                };
                offer.wire_name.clone_from(&wire);
                self.by_wire.entry(wire).or_insert(at);
                self.by_name.insert(key, at);
            }
        }
        Ok(())
    }

    fn choose(&self, from: &Checked<'_>) -> Result<ResponsesToolChoice, Failure> {
        let Some(field) = from.get("tool_choice") else {
            return Ok(ResponsesToolChoice::Unset);
        };
        if let Some(word) = Text::of(field.value) {
            return match word.decoded().as_ref() {
                "required" => self
                    .required()
                    .map(|()| ResponsesToolChoice::Word("required".to_owned())),
                word @ ("none" | "auto") => Ok(ResponsesToolChoice::Word(word.to_owned())),
                _ => Err(invalid(
                    "tool_choice",
                    "it must be none, auto, required or an object",
                )),
            };
        }
        let choice = RequestObject::of("tool_choice", field.value)?;
        if choice.required_text("type")? == "allowed_tools" {
            return self.allowed(&choice);
        }
        match self.chosen(&choice)? {
            ChosenTool::Offers(all) => all
                .first()
                .copied()
                .map(ResponsesToolChoice::One)
                .ok_or_else(|| unknown(&choice, "")),
            ChosenTool::Hosted(_, hosted) if hosted.offered.is_none() => Err(hosted.refused()),
            ChosenTool::Hosted(..) => Ok(ResponsesToolChoice::Hosted(compacted(field.value))),
        }
    }

    /// Fails if `required` leaves no tool to call.
    fn required(&self) -> Result<(), Failure> {
        let any =
            !self.offers.is_empty() || self.hosted.iter().any(|hosted| hosted.offered.is_some());
        match (!any, self.left_out().next()) {
            (false, _) => Ok(()),
            (true, Some(left)) => Err(left.refused()),
            (true, None) => Err(invalid(
                "tool_choice",
                "it requires a call, but the request has no tools",
            )),
        }
    }

    fn allowed(&self, choice: &RequestObject<'_>) -> Result<ResponsesToolChoice, Failure> {
        let mode = choice.word("mode", &["auto", "required"])?;
        let mode = mode.map_or_else(
            || choice.required("mode").map(|_| String::new()),
            |mode| Ok(mode.into_owned()),
        )?;
        choice.required("tools")?;
        let (mut allowed, mut missed) = (Allowed::default(), None);
        for tool in choice.objects("tools", self.most)? {
            match self.chosen(&tool)? {
                ChosenTool::Offers(all) => allowed.offers.extend(all),
                ChosenTool::Hosted(_, hosted) if hosted.offered.is_none() => {
                    missed = missed.or(Some(hosted))
                }
                ChosenTool::Hosted(at, _) => _ = allowed.hosted.insert(at),
            }
        }
        let none = allowed.offers.is_empty() && allowed.hosted.is_empty();
        match missed {
            Some(left) if none && mode == "required" => Err(left.refused()),
            None if none => Err(invalid("tool_choice.tools", "it must not be empty")),
            _ => Ok(ResponsesToolChoice::Only(allowed, mode)),
        }
    }

    /// Returns the tools that an object of `tool_choice` names. Fails if there are none.
    fn chosen(&self, choice: &RequestObject<'_>) -> Result<ChosenTool<'_>, Failure> {
        let kind = choice.required_text("type")?.decoded();
        let expected = match kind.as_ref() {
            "function" => ToolKind::Function,
            "custom" => ToolKind::Custom,
            "namespace" => {
                let name = choice.required_name("name")?.decoded();
                let of = |offer: &OfferedFunction| offer.tool.namespace.as_deref() == Some(&name);
                let all = self
                    .offers
                    .iter()
                    .enumerate()
                    .filter(|(_, offer)| of(offer))
                    .map(|(at, _)| at);
                let all: Vec<_> = all.collect();
                return if all.is_empty() {
                    Err(unknown(choice, &name))
                } else {
                    Ok(ChosenTool::Offers(all))
                };
            }
            TOOL_SEARCH if self.called(TOOL_SEARCH).kind == ToolKind::Search => {
                let at = self.by_wire.get(TOOL_SEARCH);
                return Ok(ChosenTool::Offers(at.copied().into_iter().collect()));
            }
            MCP if !self.servers.is_empty() => {
                let label = choice.required_name("server_label")?.decoded();
                let name = choice.text("name")?.map(|name| name.decoded());
                let is_meant = |offer: &OfferedFunction| {
                    offer.is_server
                        && offer.tool.namespace.as_deref() == Some(&label)
                        && name.as_ref().is_none_or(|name| *name == offer.tool.name)
                };
                let all = self.offers.iter().enumerate();
                let all: Vec<_> = all
                    .filter(|(_, offer)| is_meant(offer))
                    .map(|(at, _)| at)
                    .collect();
                return match all.is_empty() {
                    true => Err(unknown(choice, name.as_deref().unwrap_or(&label))),
                    false => Ok(ChosenTool::Offers(all)),
                };
            }
            kind => {
                let found = self
                    .hosted
                    .iter()
                    .enumerate()
                    .find(|(_, hosted)| hosted.kind == kind);
                return found
                    .map(|(at, hosted)| ChosenTool::Hosted(at, hosted))
                    .ok_or_else(|| unknown(choice, kind));
            }
        };
        let name = choice.required_name("name")?.decoded().into_owned();
        let namespace = choice
            .text("namespace")?
            .map(|namespace| namespace.decoded().into_owned());
        let found = self
            .by_name
            .get(&(namespace, name.clone()))
            .or_else(|| self.by_wire.get(&name));
        let fits = |at: &&usize| {
            self.offers
                .get(**at)
                .is_some_and(|offer| offer.tool.kind == expected)
        };
        match found.filter(fits) {
            Some(at) => Ok(ChosenTool::Offers(vec![*at])),
            None => Err(unknown(choice, &name)),
        }
    }
}

/// Tools named by an object of `tool_choice`.
enum ChosenTool<'a> {
    Offers(Vec<usize>),
    Hosted(usize, &'a Hosted),
}

impl Hosted {
    fn refused(&self) -> Failure {
        let param = format!("{}.type", self.path);
        unsupported_value(
            param,
            &format!("the engine does not serve tools of type {}", self.kind),
        )
    }
}

fn unknown(choice: &RequestObject<'_>, name: &str) -> Failure {
    let name: String = name.chars().take(LONGEST).collect();
    let message = format!("Tool choice '{name}' not found in 'tools' parameter.");
    Failure::from(Fault::InvalidRequest)
        .with_message(message)
        .with_param(choice.here())
}

impl ResponsesTools {
    /// Returns the tool behind a name on the wire; an unknown name is a function of that name.
    pub fn called(&self, wire_name: &str) -> CalledTool {
        let offer = self
            .by_wire
            .get(wire_name)
            .and_then(|at| self.offers.get(*at));
        let unknown = || CalledTool {
            namespace: None,
            name: wire_name.to_owned(),
            kind: ToolKind::Function,
        };
        offer.map_or_else(unknown, |offer| offer.tool.clone())
    }

    /// Iterates over the names on the wire, with the tool behind each.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &CalledTool)> {
        self.offers
            .iter()
            .map(|offer| (offer.wire_name.as_str(), &offer.tool))
    }

    /// Returns the wire name of the one function that the engine must call.
    pub fn forced(&self) -> Option<&str> {
        match &self.choice {
            ResponsesToolChoice::One(at) => {
                self.offers.get(*at).map(|offer| offer.wire_name.as_str())
            }
            _ => None,
        }
    }

    /// Returns the wire name of a tool, also of one that this request does not offer.
    pub(super) fn wire_name(&self, namespace: Option<&str>, name: &str) -> String {
        let key = (namespace.map(ToOwned::to_owned), name.to_owned());
        match (
            self.by_name.get(&key).and_then(|at| self.offers.get(*at)),
            namespace,
        ) {
            (Some(offer), _) => offer.wire_name.clone(),
            (None, Some(namespace)) => flat_name(namespace, name, |_| false),
            (None, None) => key.1,
        }
    }

    /// Returns what the model reads as the output of a search that found these tools: their names on the wire.
    pub(super) fn found(&self, tools: &[RequestObject<'_>]) -> String {
        let text = |tool: &RequestObject<'_>, key: &str| {
            tool.text(key)
                .ok()
                .flatten()
                .map(|text| text.decoded().into_owned())
        };
        let mut names = Vec::new();
        for tool in tools {
            let name = text(tool, "name").unwrap_or_default();
            if text(tool, "type").as_deref() == Some("namespace") {
                let inner = tool.objects("tools", self.most).unwrap_or_default();
                let inner = inner.iter().filter_map(|inner| text(inner, "name"));
                names.extend(inner.map(|inner| self.wire_name(Some(&name), &inner)));
            } else if !name.is_empty() {
                names.push(self.wire_name(None, &name));
            }
        }
        if names.is_empty() {
            "No tools were found.".to_owned()
        } else {
            format!("Tools found: {}", names.join(", "))
        }
    }

    fn left_out(&self) -> impl Iterator<Item = &Hosted> {
        self.hosted.iter().filter(|hosted| hosted.offered.is_none())
    }

    /// Iterates over the tools left out, with path and type: `tools[3].web_search`.
    pub(super) fn dropped(&self) -> impl Iterator<Item = String> {
        let ignored = self
            .servers
            .iter()
            .flat_map(|server| server.ignored.clone());
        self.left_out()
            .map(|left| format!("{}.{}", left.path, left.kind))
            .chain(ignored)
    }

    /// Returns the indices in `tools` of the tools left out.
    pub(super) fn dropped_places(&self) -> Vec<usize> {
        self.left_out().filter_map(|left| left.place).collect()
    }

    /// Returns the callable functions as the `tools` list of a chat request; empty if there are none.
    pub(super) fn offered_tools(&self) -> String {
        let mut out = BytesMut::with_capacity(self.length());
        let none = matches!(&self.choice, ResponsesToolChoice::Word(word) if word == "none");
        for offer in self.offered().filter(|_| !none) {
            out.extend_from_slice(if out.is_empty() { b"[" } else { b"," });
            out.extend_from_slice(b"{\"type\":\"function\",\"function\":{\"name\":");
            write_string(&offer.wire_name, &mut out);
            out.extend_from_slice(offer.rest.as_bytes());
            out.extend_from_slice(b"}}");
        }
        if !out.is_empty() {
            out.put_u8(b']');
        }
        String::from_utf8(out.into()).unwrap_or_default()
    }

    /// Returns an upper bound for the length of the written tools, in bytes.
    fn length(&self) -> usize {
        let offered = self
            .offered()
            .map(|offer| offer.wire_name.len() + offer.rest.len() + 64);
        offered
            .chain(self.offered_hosted().map(|tool| tool.len() + 1))
            .sum::<usize>()
            + 64
    }

    /// Returns true if the model must call a tool.
    pub(super) fn must_call(&self) -> bool {
        match &self.choice {
            ResponsesToolChoice::Word(word) | ResponsesToolChoice::Only(_, word) => {
                word == "required"
            }
            ResponsesToolChoice::One(_) => true,
            ResponsesToolChoice::Unset | ResponsesToolChoice::Hosted(_) => false,
        }
    }

    /// Appends the members `tools` and `tool_choice`; returns true if there are tools. Engines accept neither an
    /// empty list nor a choice without tools (engines E.2).
    pub(super) fn write(&self, way: ResponsesMode, out: &mut BytesMut) -> bool {
        let (before, after): (&[u8], &[u8]) = match way {
            ResponsesMode::Chat => (b"{\"type\":\"function\",\"function\":{\"name\":", b"}}"),
            ResponsesMode::Native => (b"{\"type\":\"function\",\"name\":", b"}"),
        };
        // One reservation, since tools may be most of the request.
        out.reserve(self.length());
        let start = out.len();
        for offer in self.offered() {
            out.extend_from_slice(if out.len() > start {
                b","
            } else {
                b",\"tools\":["
            });
            out.extend_from_slice(before);
            write_string(&offer.wire_name, out);
            out.extend_from_slice(offer.rest.as_bytes());
            out.extend_from_slice(after);
        }
        for tool in self.offered_hosted() {
            out.extend_from_slice(if out.len() > start {
                b","
            } else {
                b",\"tools\":["
            });
            out.extend_from_slice(tool.as_bytes());
        }
        if out.len() == start {
            return false;
        }
        out.put_u8(b']');
        match &self.choice {
            ResponsesToolChoice::Unset => {}
            ResponsesToolChoice::Word(word) | ResponsesToolChoice::Only(_, word) => {
                out.extend_from_slice(b",\"tool_choice\":");
                write_string(word, out);
            }
            ResponsesToolChoice::One(at) => {
                let wire = self
                    .offers
                    .get(*at)
                    .map_or("", |offer| offer.wire_name.as_str());
                out.extend_from_slice(b",\"tool_choice\":");
                out.extend_from_slice(before);
                write_string(wire, out);
                out.extend_from_slice(after);
            }
            ResponsesToolChoice::Hosted(choice) => {
                out.extend_from_slice(b",\"tool_choice\":");
                out.extend_from_slice(choice.as_bytes());
            }
        }
        true
    }

    fn offered(&self) -> impl Iterator<Item = &OfferedFunction> {
        let allowed = self.allowed_only();
        let is_allowed =
            move |at: &usize| allowed.is_none_or(|allowed| allowed.offers.contains(at));
        self.offers
            .iter()
            .enumerate()
            .filter(move |(at, _)| is_allowed(at))
            .map(|(_, offer)| offer)
    }

    fn offered_hosted(&self) -> impl Iterator<Item = &str> {
        let allowed = self.allowed_only();
        let is_allowed =
            move |at: &usize| allowed.is_none_or(|allowed| allowed.hosted.contains(at));
        let all = self
            .hosted
            .iter()
            .enumerate()
            .filter(move |(at, _)| is_allowed(at));
        all.filter_map(|(_, hosted)| hosted.offered.as_deref())
    }

    fn allowed_only(&self) -> Option<&Allowed> {
        match &self.choice {
            ResponsesToolChoice::Only(allowed, _) => Some(allowed),
            _ => None,
        }
    }
}

/// Returns the members after a function's name. The schema stays byte for byte.
fn function(tool: &RequestObject<'_>) -> Result<String, Failure> {
    let mut rest = BytesMut::new();
    write_rest(
        tool.text("description")?,
        tool.carried("parameters")?,
        tool.flag("strict")?,
        &mut rest,
    );
    Ok(String::from_utf8(rest.into()).unwrap_or_default())
}

/// Returns the members after a custom tool's name: one string parameter, described by the tool's grammar if it has
/// one.
fn custom(tool: &RequestObject<'_>) -> Result<String, Failure> {
    let mut rest = BytesMut::new();
    write_rest(tool.text("description")?, None, None, &mut rest);
    rest.extend_from_slice(
        br#","parameters":{"type":"object","properties":{"input":{"type":"string""#,
    );
    if let Some(format) = tool.object("format")?
        && format.word("type", &["text", "grammar"])?.as_deref() == Some("grammar")
    {
        let syntax = format.word("syntax", &["lark", "regex"])?;
        let syntax = syntax.map_or_else(|| format.required("syntax").map(|_| "".into()), Ok)?;
        rest.extend_from_slice(
            format!(",\"description\":\"It must match this grammar ({syntax}):\\n").as_bytes(),
        );
        format.required_text("definition")?.write(&mut rest);
        rest.put_u8(b'"');
    }
    rest.extend_from_slice(br#"}},"required":["input"],"additionalProperties":false}"#);
    Ok(String::from_utf8(rest.into()).unwrap_or_default())
}

fn is_word(word: &str) -> bool {
    (1..=LONGEST).contains(&word.len())
        && word
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Rules;
    use crate::request::responses::ResponsesRequest;
    use crate::wire::options::Options;
    use bytes::Bytes;
    use std::sync::Arc;

    fn tools(members: &str, way: ResponsesMode) -> ResponsesTools {
        let body = Bytes::from(format!(r#"{{"input":"a",{members}}}"#));
        let rules = Arc::new(Rules::ANSWERED);
        ResponsesRequest::read_for(&body, &Options::default(), way, None, &rules)
            .unwrap()
            .tools
    }

    #[test]
    fn a_call_is_required_by_every_form_of_the_choice_that_says_so() {
        let function = r#"{"type":"function","name":"f"}"#;
        let allowed = |mode: &str| {
            format!(r#"{{"type":"allowed_tools","mode":"{mode}","tools":[{function}]}}"#)
        };
        for (choice, must) in [
            ("null", false),
            (r#""auto""#, false),
            (r#""none""#, false),
            (r#""required""#, true),
            (function, true),
            (&allowed("auto"), false),
            (&allowed("required"), true),
        ] {
            let members = format!("\"tools\":[{function}],\"tool_choice\":{choice}");
            assert_eq!(
                tools(&members, ResponsesMode::Chat).must_call(),
                must,
                "{choice}"
            );
        }
    }

    #[test]
    fn an_engine_with_this_api_is_offered_hosted_tools_too() {
        for (offered, written) in [
            (
                r#"[{"type":"web_search"}]"#,
                r#","tools":[{"type":"web_search"}]"#,
            ),
            (
                r#"[{"type":"web_search"},{"type":"code_interpreter"}]"#,
                r#","tools":[{"type":"web_search"},{"type":"code_interpreter"}]"#,
            ),
            (
                r#"[{"type":"web_search"},{"type":"function","name":"f"}]"#,
                r#","tools":[{"type":"function","name":"f"},{"type":"web_search"}]"#,
            ),
            ("[]", ""),
        ] {
            let tools = tools(&format!("\"tools\":{offered}"), ResponsesMode::Native);
            let mut out = BytesMut::new();
            assert_eq!(
                tools.write(ResponsesMode::Native, &mut out),
                !written.is_empty(),
                "{offered}"
            );
            assert_eq!(std::str::from_utf8(&out).unwrap(), written);
        }
    }
}
