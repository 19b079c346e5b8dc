//! A whole answer as a Responses object (wire-format 4.4), from the events of a chat answer.
//!
//! Keys: `id, object, created_at, status, background, completed_at, error, frequency_penalty, incomplete_details,
//! instructions, max_output_tokens, max_tool_calls, model, output, parallel_tool_calls, presence_penalty,
//! previous_response_id, prompt_cache_key, reasoning, safety_identifier, service_tier, store, temperature, text,
//! tool_choice, tools, top_logprobs, top_p, truncation, usage, user, metadata`.

use super::Encode;
use crate::json::{Text, write_number, write_string};
use crate::wire::event::{Delta, Event, Head, Reason, ToolKind, Usage};
use crate::wire::{Stamp, ident};
use bytes::{BufMut, BytesMut};

/// What a Responses object repeats of its request: JSON texts in canonical form, by key.
#[derive(Clone, Debug, Default)]
pub struct Echo(Vec<(&'static str, String)>);

impl Echo {
    /// The request says this.
    pub fn keep(&mut self, key: &'static str, json: String) {
        self.0.push((key, json));
    }

    fn write(&self, members: &[(&'static str, &'static str)], out: &mut BytesMut) {
        for (key, default) in members {
            let said = self.0.iter().find(|(kept, _)| kept == key).map(|(_, json)| json.as_str());
            member(key, said.unwrap_or(default), out);
        }
    }
}

/// The object, written at the end. Only the first choice counts: the API has one.
#[derive(Debug)]
pub struct Response {
    echo: Echo,
    now: u64,
    /// The letters and digits of the answer's id, from which those of its items derive.
    id: String,
    created: u64,
    model: BytesMut,
    items: Vec<Item>,
    finish: Reason,
    usage: Option<Usage>,
}

/// An item of `output`.
#[derive(Debug)]
struct Item {
    kind: Kind,
    /// Text, arguments or input, in canonical spelling.
    text: BytesMut,
}

#[derive(Debug)]
enum Kind {
    Reasoning,
    /// A part of a message; `first` opens the message.
    Part {
        refusal: bool,
        first: bool,
    },
    Call {
        id: String,
        name: String,
        kind: ToolKind,
        slot: u32,
    },
}

impl Response {
    /// The encoder for a request of which `echo` is left.
    pub fn new(echo: Echo, stamp: &Stamp) -> Self {
        Self {
            echo,
            now: stamp.now,
            id: String::new(),
            created: 0,
            model: BytesMut::new(),
            items: Vec::new(),
            finish: Reason::Stop,
            usage: None,
        }
    }
}

impl Encode for Response {
    fn event(&mut self, event: Event<'_>, out: &mut BytesMut) {
        match event {
            Event::Head(head) => self.head(&head),
            Event::Delta { choice: 0, delta, .. } => self.delta(&delta),
            Event::Usage { usage, .. } => self.usage = Some(usage),
            // Before the end nothing has been written: a failure is the HTTP answer, which is not the encoder's.
            Event::Delta { .. } | Event::Foreign { .. } | Event::Fail(_) => {}
            Event::End => self.write(out),
        }
    }
}

impl Response {
    fn head(&mut self, head: &Head<'_>) {
        self.id = head.id.map(|id| ident::compact(&id.decoded())).unwrap_or_default();
        self.created = head.created.unwrap_or(0);
        self.model.clear();
        if let Some(model) = head.model {
            model.write(&mut self.model);
        }
    }

    fn delta(&mut self, delta: &Delta<'_>) {
        match delta {
            Delta::Reasoning(text) | Delta::Summary(text) => {
                self.say(|kind| matches!(kind, Kind::Reasoning), || Kind::Reasoning, text);
            }
            Delta::Content(text) => self.say_part(false, text),
            Delta::Refusal(text) => self.say_part(true, text),
            Delta::ToolStart { slot, id, name, kind } => {
                let kind = Kind::Call { id: (*id).into(), name: (*name).into(), kind: *kind, slot: *slot };
                self.items.push(Item { kind, text: BytesMut::new() });
            }
            Delta::ToolArgs { slot, args } => {
                let is_called =
                    |item: &&mut Item| matches!(&item.kind, Kind::Call { slot: own, .. } if own == slot);
                if let Some(call) = self.items.iter_mut().find(is_called) {
                    args.write(&mut call.text);
                }
            }
            Delta::Finish(finish) => self.finish = finish.reason,
            // Deprecated calls have no place among items; parts are none of a chat engine's.
            Delta::FunctionCall { .. } | Delta::Part { .. } | Delta::Role | Delta::Break | Delta::Bare => {}
        }
    }

    fn say_part(&mut self, refusal: bool, text: &Text<'_>) {
        let first = !matches!(self.items.last(), Some(Item { kind: Kind::Part { .. }, .. }));
        let same = |kind: &Kind| matches!(kind, Kind::Part { refusal: own, .. } if *own == refusal);
        self.say(same, || Kind::Part { refusal, first }, text);
    }

    /// Adds to the open item, if it is of this kind; else to a new one.
    fn say(&mut self, same: impl Fn(&Kind) -> bool, kind: impl Fn() -> Kind, text: &Text<'_>) {
        if !self.items.last().is_some_and(|item| same(&item.kind)) {
            self.items.push(Item { kind: kind(), text: BytesMut::new() });
        }
        if let Some(item) = self.items.last_mut() {
            text.write(&mut item.text);
        }
    }

    fn write(&self, out: &mut BytesMut) {
        let (status, details) = match self.finish {
            Reason::Length => ("\"incomplete\"", r#"{"reason":"max_output_tokens"}"#),
            Reason::ContentFilter => ("\"incomplete\"", r#"{"reason":"content_filter"}"#),
            Reason::Stop | Reason::ToolCalls | Reason::FunctionCall => ("\"completed\"", "null"),
        };
        let now = self.now.to_string();
        out.extend_from_slice(b"{\"id\":\"resp_");
        out.extend_from_slice(self.id.as_bytes());
        out.extend_from_slice(b"\",\"object\":\"response\",\"created_at\":");
        write_number(self.created, out);
        member("status", status, out);
        self.echo.write(&[("background", "false")], out);
        member("completed_at", if details == "null" { &now } else { "null" }, out);
        member("error", "null", out);
        self.echo.write(&[("frequency_penalty", "0.0")], out);
        member("incomplete_details", details, out);
        self.echo.write(
            &[("instructions", "null"), ("max_output_tokens", "null"), ("max_tool_calls", "null")],
            out,
        );
        out.extend_from_slice(b",\"model\":\"");
        out.extend_from_slice(&self.model);
        out.extend_from_slice(b"\",\"output\":[");
        self.write_output(status, out);
        out.put_u8(b']');
        self.echo.write(BEHIND_OUTPUT, out);
        out.extend_from_slice(b",\"usage\":");
        write_usage(self.usage.as_ref(), out);
        self.echo.write(&[("user", "null"), ("metadata", "{}")], out);
        out.put_u8(b'}');
    }

    fn write_output(&self, status: &str, out: &mut BytesMut) {
        let mut index = 0;
        for (at, item) in self.items.iter().enumerate() {
            // Parts of one message share its item: all but the first go on in it, and the last one closes it.
            let next = self.items.get(at + 1);
            let goes_on = matches!(next, Some(Item { kind: Kind::Part { first: false, .. }, .. }));
            let is_last = !self.items.iter().skip(at + 1).any(|item| item.opens());
            let status = if is_last { status } else { "\"completed\"" };
            if item.opens() {
                out.extend_from_slice(if index > 0 { b",{\"id\":\"" } else { b"{\"id\":\"" });
                out.extend_from_slice(item.prefix().as_bytes());
                out.extend_from_slice(
                    format!("_{}_{index}\",\"type\":\"{}\"", self.id, item.word()).as_bytes(),
                );
                member("status", status, out);
                index += 1;
            }
            item.write(goes_on, out);
        }
    }
}

/// What the request says, or its default, between `output` and `usage`.
const BEHIND_OUTPUT: &[(&str, &str)] = &[
    ("parallel_tool_calls", "true"),
    ("presence_penalty", "0.0"),
    ("previous_response_id", "null"),
    ("prompt_cache_key", "null"),
    ("reasoning", r#"{"effort":null,"summary":null}"#),
    ("safety_identifier", "null"),
    ("service_tier", "\"default\""),
    ("store", "true"),
    ("temperature", "1.0"),
    ("text", r#"{"format":{"type":"text"},"verbosity":"medium"}"#),
    ("tool_choice", "\"auto\""),
    ("tools", "[]"),
    ("top_logprobs", "0"),
    ("top_p", "1.0"),
    ("truncation", "\"disabled\""),
];

impl Item {
    fn opens(&self) -> bool {
        !matches!(self.kind, Kind::Part { first: false, .. })
    }

    fn prefix(&self) -> &'static str {
        match self.kind {
            Kind::Reasoning => "rs",
            Kind::Part { .. } => "msg",
            Kind::Call { kind: ToolKind::Function, .. } => "fc",
            Kind::Call { kind: ToolKind::Custom, .. } => "ctc",
        }
    }

    fn word(&self) -> &'static str {
        match self.kind {
            Kind::Reasoning => "reasoning",
            Kind::Part { .. } => "message",
            Kind::Call { kind: ToolKind::Function, .. } => "function_call",
            Kind::Call { kind: ToolKind::Custom, .. } => "custom_tool_call",
        }
    }

    /// Writes what stands behind `status`, and closes the item unless its message goes on.
    fn write(&self, goes_on: bool, out: &mut BytesMut) {
        match &self.kind {
            Kind::Reasoning => {
                out.extend_from_slice(
                    b",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":\"",
                );
                out.extend_from_slice(&self.text);
                out.extend_from_slice(b"\"}]}");
            }
            Kind::Part { refusal, first } => {
                let open: &[u8] = if *first { b",\"role\":\"assistant\",\"content\":[" } else { b"," };
                let (start, end): (&[u8], &[u8]) = match refusal {
                    true => (b"{\"type\":\"refusal\",\"refusal\":\"", b"\"}"),
                    false => {
                        (b"{\"type\":\"output_text\",\"text\":\"", b"\",\"annotations\":[],\"logprobs\":[]}")
                    }
                };
                for piece in [open, start, self.text.as_ref(), end] {
                    out.extend_from_slice(piece);
                }
                if !goes_on {
                    out.extend_from_slice(b"]}");
                }
            }
            Kind::Call { id, name, kind, .. } => {
                out.extend_from_slice(b",\"call_id\":");
                write_string(id, out);
                out.extend_from_slice(b",\"name\":");
                write_string(name, out);
                out.extend_from_slice(match kind {
                    ToolKind::Function => b",\"arguments\":\"",
                    ToolKind::Custom => b",\"input\":\"",
                });
                out.extend_from_slice(&self.text);
                out.extend_from_slice(b"\"}");
            }
        }
    }
}

fn member(key: &str, json: &str, out: &mut BytesMut) {
    out.put_u8(b',');
    write_string(key, out);
    out.put_u8(b':');
    out.extend_from_slice(json.as_bytes());
}

fn write_usage(usage: Option<&Usage>, out: &mut BytesMut) {
    let Some(usage) = usage else { return out.extend_from_slice(b"null") };
    let text = format!(
        "{{\"input_tokens\":{},\"input_tokens_details\":{{\"cached_tokens\":{},\"cache_write_tokens\":{}}},\
         \"output_tokens\":{},\"output_tokens_details\":{{\"reasoning_tokens\":{}}},\"total_tokens\":{}}}",
        usage.prompt,
        usage.cached,
        usage.cache_write.unwrap_or(0),
        usage.completion,
        usage.reasoning,
        usage.total
    );
    out.extend_from_slice(text.as_bytes());
}
