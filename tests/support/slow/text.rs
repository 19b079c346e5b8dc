//! Text that an engine left unparsed (wire-format 7), as the families `qwen3` and `hermes` write it. The whole text is
//! there, so each rule is a search in it.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Tool of a request: its parameters with the types of their schema.
#[derive(Clone, Debug)]
pub struct Tool {
    pub name: String,
    pub types: BTreeMap<String, String>,
}

/// Reasoning, content and calls that a client gets of a text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts {
    pub reasoning: String,
    pub content: String,
    pub calls: Vec<(String, Arguments)>,
}

/// Arguments of a call: a value, or its beginning if the text ends within it.
#[derive(Clone, Debug, PartialEq)]
pub enum Arguments {
    Complete(Value),
    Open(String),
}

/// Call at the beginning of a text, and the text after it.
struct Call<'t> {
    name: String,
    arguments: Arguments,
    after: &'t str,
}

const TURN: &str = "<|im_end|>";
const START: &str = "<think>";
const END: &str = "</think>";
/// Ends that close nothing after a call.
const ENDS: [&str; 5] = ["</parameter>", "</function>", "</tool_call>", END, TURN];

/// Reads a text. `opened`: the prompt has opened a block of reasoning.
pub fn read(text: &str, tools: &[Tool], opened: bool) -> Parts {
    let mut parts = Parts::default();
    let mut rest = text;
    if let Some((block, after)) = block(rest, tools, opened) {
        parts.reasoning += &block;
        rest = after;
    }
    rest = without_first(rest, &[END, TURN]);
    while let Some((at, call)) = first_call(rest, tools) {
        parts.content += spoken(&rest[..at], &parts);
        parts.calls.push((call.name, call.arguments));
        rest = without_first(call.after, &ENDS);
        if let Some((block, after)) = block(rest, tools, false) {
            parts.reasoning += &block;
            rest = without_first(after, &ENDS);
        }
    }
    let mut last = spoken(without_last(rest), &parts);
    // White space after the code of a call is none either.
    let fence = last.trim();
    if !parts.calls.is_empty()
        && fence.trim_matches('`').is_empty()
        && parts.content.trim_end().ends_with(fence)
    {
        last = last.trim_end();
    }
    parts.content += last;
    parts
}

/// Returns a text without the ends of turns at its end.
fn without_last(text: &str) -> &str {
    match text.trim_end().strip_suffix(TURN) {
        Some(before) => without_last(before),
        None => text,
    }
}

/// Returns a text without these marks at its beginning.
fn without_first<'t>(text: &'t str, marks: &[&str]) -> &'t str {
    let begin = text.trim_start();
    match marks.iter().find_map(|mark| begin.strip_prefix(mark)) {
        Some(after) => without_first(after, marks),
        None => text,
    }
}

/// Returns the part of a text that is content: white space after a call is none.
fn spoken<'t>(text: &'t str, parts: &Parts) -> &'t str {
    match parts.calls.is_empty() || !text.trim().is_empty() {
        true => text,
        false => "",
    }
}

/// Returns the block of reasoning that a text begins with, and the text after it.
fn block<'t>(text: &'t str, tools: &[Tool], opened: bool) -> Option<(String, &'t str)> {
    let (mut inner, mut white, mut is_begun) = (text, String::new(), false);
    // The tag may be repeated.
    while let Some(after) = inner.trim_start().strip_prefix(START) {
        if is_begun {
            white += &inner[..inner.len() - inner.trim_start().len()];
        }
        is_begun = true;
        inner = after;
    }
    if !opened && !is_begun {
        return None;
    }
    let end = inner.find(END);
    let call = first_call(inner, tools).map(|(at, _)| at);
    let (block, after) = match (end, call) {
        (_, Some(call)) if end.is_none_or(|end| call < end) => inner.split_at(call),
        (Some(end), _) => (&inner[..end], &inner[end + END.len()..]),
        (None, _) => (without_last(inner), ""),
    };
    Some((white + block, after))
}

/// Returns the first call of an offered tool that is not in code, with its place.
fn first_call<'t>(text: &'t str, tools: &[Tool]) -> Option<(usize, Call<'t>)> {
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if let Some(length) = code(text, at) {
            at += length;
        } else if let Some(call) = call(rest, Some(tools)) {
            return Some((at, call));
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    None
}

/// Returns the length of the Markdown code that begins at this place, if text follows it.
fn code(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    let ticks = rest.len() - rest.trim_start_matches('`').len();
    let fence = &rest[..ticks];
    if ticks == 0 || text[..at].ends_with('`') {
        return None;
    }
    let is_run = |place: &usize| {
        let (before, after) = (&rest[..*place], &rest[place + ticks..]);
        !before.ends_with('`') && !after.starts_with('`')
    };
    let ends = rest.match_indices(fence).map(|(place, _)| place);
    let end = ends.skip(1).find(is_run)? + ticks;
    Some(end).filter(|end| !without_last(&rest[*end..]).trim().is_empty())
}

/// Returns the call that a text begins with: of an offered tool, or of any where `tools` is absent.
fn call<'t>(text: &'t str, tools: Option<&[Tool]>) -> Option<Call<'t>> {
    let inner = text.strip_prefix("<tool_call>");
    let body = inner.map_or(text, str::trim_start);
    let mut call = match body.starts_with('{') && inner.is_some() {
        true => in_json(body, tools)?,
        false => in_tags(body, tools, inner.is_some())?,
    };
    let next = call.after.trim_start();
    if may_be(next, "</tool_call>") {
        call.after = next.strip_prefix("</tool_call>").unwrap_or("");
    }
    Some(call)
}

/// Returns true if a text begins with a mark, or is a beginning of it.
fn may_be(text: &str, mark: &str) -> bool {
    text.starts_with(mark) || mark.starts_with(text)
}

fn is_offered(tools: Option<&[Tool]>, name: &str) -> bool {
    tools.is_none_or(|tools| tools.iter().any(|tool| tool.name == name))
}

/// Reads `{"name": …, "arguments": …}`. If the end of the text cuts it, both are there, or a name and a beginning of arguments.
fn in_json<'t>(text: &'t str, tools: Option<&[Tool]>) -> Option<Call<'t>> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let call = match values.next()? {
        Ok(object) => of_object(&object, &text[values.byte_offset()..]),
        Err(why) if why.is_eof() => {
            let closed = serde_json::from_str::<Value>(&format!("{text}}}")).ok();
            let closed = closed.filter(|object| !object["arguments"].is_null());
            closed.map_or_else(|| open(text), |object| of_object(&object, ""))
        }
        Err(_) => None,
    };
    call.filter(|call| is_offered(tools, &call.name))
}

fn of_object<'t>(object: &Value, after: &'t str) -> Option<Call<'t>> {
    let name = object["name"].as_str()?.to_owned();
    let arguments = match &object["arguments"] {
        Value::Null => Map::new().into(),
        Value::String(text) if text.is_empty() => Map::new().into(),
        Value::String(text) => serde_json::from_str(text).ok()?,
        other => other.clone(),
    };
    arguments.is_object().then_some(Call {
        name,
        arguments: Arguments::Complete(arguments),
        after,
    })
}

fn open(text: &str) -> Option<Call<'_>> {
    let (name, arguments) = text
        .strip_prefix("{\"name\": \"")?
        .split_once("\", \"arguments\": ")?;
    let is_begun = arguments.starts_with('{');
    let (name, arguments) = (name.to_owned(), Arguments::Open(arguments.to_owned()));
    is_begun.then_some(Call {
        name,
        arguments,
        after: "",
    })
}

/// Reads `<function=NAME>`, its parameters and its end. `is_in_section`: `<tool_call>` precedes it.
fn in_tags<'t>(text: &'t str, tools: Option<&[Tool]>, is_in_section: bool) -> Option<Call<'t>> {
    let (name, mut rest) = text.strip_prefix("<function=")?.split_once('>')?;
    if !is_offered(tools, name) {
        return None;
    }
    let tool = tools.and_then(|tools| tools.iter().find(|tool| tool.name == name));
    let mut all = Map::new();
    let call = |arguments, after| {
        Some(Call {
            name: name.to_owned(),
            arguments,
            after,
        })
    };
    loop {
        let next = rest.trim_start();
        if let Some(after) = next.strip_prefix("</function>") {
            return call(Arguments::Complete(all.into()), after);
        }
        if next.starts_with("</tool_call>") {
            return call(Arguments::Complete(all.into()), next);
        }
        // The end of the text has cut the call.
        let is_key = next.starts_with("<parameter=") && !next.contains('>');
        if is_key || "<parameter=".starts_with(next) || "</function>".starts_with(next) {
            return call(Arguments::Open(unfinished(&all, "")), "");
        }
        let (key, after) = next.strip_prefix("<parameter=")?.split_once('>')?;
        let kind = tool
            .and_then(|tool| tool.types.get(key))
            .map_or("string", String::as_str);
        let strict = value(after, kind, tool, true).filter(|_| is_in_section);
        let Some((written, after)) = strict.or_else(|| value(after, kind, tool, false)) else {
            let text = after.strip_prefix('\n').unwrap_or(after);
            let mut text = text.to_owned();
            if kind == "string" {
                text = Value::from(text).to_string();
                text.pop();
            }
            return call(
                Arguments::Open(unfinished(&all, &format!("\"{key}\": {text}"))),
                "",
            );
        };
        all.insert(key.to_owned(), typed(written, kind));
        rest = after;
    }
}

/// Returns the beginning of an object: complete members, and one that is not.
fn unfinished(all: &Map<String, Value>, open: &str) -> String {
    let members = all.iter().map(|(key, value)| format!("\"{key}\": {value}"));
    let open = Some(open.to_owned()).filter(|open| !open.is_empty());
    let members: Vec<String> = members.chain(open).collect();
    format!("{{{}", members.join(", "))
}

/// Returns the value of a parameter, without the line breaks at its tags.
fn typed(text: &str, kind: &str) -> Value {
    let text = text.strip_prefix('\n').unwrap_or(text);
    let text = text.strip_suffix('\n').unwrap_or(text);
    match serde_json::from_str(text) {
        Ok(value) if is_of(&value, kind) => value,
        _ => text.into(),
    }
}

fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "integer" | "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

/// Splits a text at the end of the value that it begins with: the value, and the text after its closing tag.
///
/// `is_strict`: after the end of the call must come that of its section.
fn value<'t>(
    text: &'t str,
    kind: &str,
    tool: Option<&Tool>,
    is_strict: bool,
) -> Option<(&'t str, &'t str)> {
    const CLOSE: &str = "</parameter>";
    // JSON of the type ends where it ends, whatever tags it holds.
    let mut json = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let json = match json.next() {
        Some(Ok(value)) if is_of(&value, kind) => json.byte_offset(),
        _ => 0,
    };
    let mut at = json;
    while at < text.len() {
        let rest = &text[at..];
        if let Some(after) = rest.strip_prefix(CLOSE)
            && (json > 0 || ends(after, is_strict))
        {
            return Some((&text[..at], after));
        }
        let is_next = |rest: &str| {
            let key = rest
                .strip_prefix("\n<parameter=")
                .and_then(|rest| rest.split_once('>'));
            let known = |(key, _)| tool.is_some_and(|tool| tool.types.contains_key(key));
            key.is_some_and(known)
        };
        if is_next(rest) || is_end_of_all(rest) {
            return Some((&text[..at], rest));
        }
        // A whole call that a value quotes belongs to it.
        let quoted =
            call(rest, None).filter(|call| matches!(call.arguments, Arguments::Complete(_)));
        at += match quoted {
            Some(call) => rest.len() - call.after.len(),
            None => rest.chars().next().map_or(1, char::len_utf8),
        };
    }
    None
}

/// Returns true if what follows a closing tag shows that it ends a value.
fn ends(after: &str, is_strict: bool) -> bool {
    let next = after.trim_start();
    let ends_call = match next.strip_prefix("</function>") {
        Some(after) => !is_strict || may_be(after.trim_start(), "</tool_call>"),
        None => "</function>".starts_with(next),
    };
    ends_call || may_be(next, "<parameter=") || may_be(next, "</tool_call>")
}

/// Returns true if a call ends here, and all text with it, or another call in tags follows.
fn is_end_of_all(rest: &str) -> bool {
    let function = rest.strip_prefix("</function>").map(str::trim_start);
    let section = function
        .unwrap_or(rest)
        .strip_prefix("</tool_call>")
        .map(str::trim_start);
    let is_next = |next: &str| {
        next.strip_prefix("<tool_call>")
            .is_some_and(|next| next.trim_start().starts_with("<function="))
    };
    function == Some("") || section.is_some_and(|next| next.is_empty() || is_next(next))
}
