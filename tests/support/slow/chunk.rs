//! Reads an engine chunk, or a whole body, into plain fields.
//!
//! Reading fails as a whole if a field that reaches the client has the wrong type. A null always counts as absent.

use super::json::{Json, Out};
use super::{Case, is_chat, passes_unknown};

/// Extensions that the client requested, with their JSON.
pub type Extensions = Vec<(&'static str, String)>;

/// Content of a chunk. Empty texts and lists mean absent ones.
#[derive(Clone, Debug)]
pub struct Chunk {
    pub id: String,
    pub created: u64,
    pub model: String,
    pub service_tier: Option<String>,
    pub fingerprint: Option<String>,
    pub choices: Vec<Entry>,
    pub usage: Option<Usage>,
    pub asked: Extensions,
    /// Value of `x_upstream`.
    pub extra: Option<String>,
}

/// Part of a chunk for one choice: of a delta, of a message or of a completion's choice.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    pub index: usize,
    pub reasoning: String,
    /// Reasoning that continues the text of the last message, so that it is text (2.4).
    pub continued: String,
    /// Content of a chat delta, or text of a completion; `None` if the member is absent.
    pub content: Option<String>,
    pub refusal: Option<String>,
    pub calls: Vec<CallPiece>,
    pub function_call: Option<FunctionCall>,
    pub logprobs: Option<Logprobs>,
    pub finish: String,
    pub stop_reason: Option<String>,
    pub annotations: Option<String>,
    pub audio: Option<String>,
    pub asked: Extensions,
    pub extra: Option<String>,
}

/// Element of `tool_calls`: a whole call, or a fragment of one in a stream.
#[derive(Clone, Debug, Default)]
pub struct CallPiece {
    pub index: Option<u64>,
    pub id: String,
    pub name: String,
    pub arguments: String,
    /// Name and input of a custom tool call.
    pub custom: Option<(String, String)>,
    /// True for an entry of a whole body, which repeats nothing.
    pub whole: bool,
}

#[derive(Clone, Debug, Default)]
pub struct FunctionCall {
    pub name: Option<String>,
    pub arguments: Option<String>,
}

#[derive(Clone, Debug)]
pub enum Logprobs {
    /// Entries of `content` and of `refusal`, each as canonical JSON.
    Chat(Vec<String>, Vec<String>),
    /// Four lists of a completion, each as items.
    Completion([Vec<String>; 4]),
    /// Lists of a completion converted from a chat's entries, with offsets as if its first token were the first of
    /// all; and the number of characters in its tokens.
    FromChat([Vec<String>; 4], usize),
}

const COMPLETION_LISTS: [&str; 4] = ["tokens", "token_logprobs", "top_logprobs", "text_offset"];

/// Canonical usage counts (2.8), whichever members the engine used for them.
#[derive(Clone, Debug)]
pub struct Usage {
    pub completion: u64,
    out: Out,
}

impl Usage {
    pub fn out(&self) -> Out {
        self.out.clone()
    }
}

impl Entry {
    /// Returns true if the delta has content (2.3 rule 4).
    pub fn has_delta(&self) -> bool {
        let some = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        !self.reasoning.is_empty()
            || !self.continued.is_empty()
            || some(&self.content)
            || some(&self.refusal)
            || self.calls.iter().any(CallPiece::says_anything)
            || self
                .function_call
                .as_ref()
                .is_some_and(FunctionCall::says_anything)
    }
}

impl CallPiece {
    pub fn says_anything(&self) -> bool {
        !self.id.is_empty() || !self.name.is_empty() || !self.arguments.is_empty()
    }
}

impl FunctionCall {
    pub fn says_anything(&self) -> bool {
        self.name.is_some() || self.arguments.as_ref().is_some_and(|text| !text.is_empty())
    }

    pub fn out(&self) -> Out {
        let name = self.name.iter().map(|name| ("name", Out::text(name)));
        let arguments = self
            .arguments
            .iter()
            .map(|text| ("arguments", Out::text(text)));
        Out::Object(name.chain(arguments).collect())
    }
}

impl Logprobs {
    /// Shifts the offsets of converted logprobs by the characters before them, and adds its own characters to that
    /// number.
    pub fn place(self, before: &mut usize) -> Self {
        let Self::FromChat([tokens, logprobs, top, offsets], length) = self else {
            return self;
        };
        let moved = |at: &String| (at.parse::<usize>().unwrap() + *before).to_string();
        let offsets = offsets.iter().map(moved).collect();
        *before += length;
        Self::Completion([tokens, logprobs, top, offsets])
    }

    pub fn out(&self) -> Out {
        let list =
            |items: &[String]| Out::List(items.iter().map(|item| Out::Raw(item.clone())).collect());
        let list_or_null = |items: &[String]| {
            if items.is_empty() {
                Out::Null
            } else {
                list(items)
            }
        };
        match self {
            Self::Chat(content, refusal) => Out::Object(vec![
                ("content", list_or_null(content)),
                ("refusal", list_or_null(refusal)),
            ]),
            Self::FromChat(lists, _) | Self::Completion(lists) => Out::Object(
                COMPLETION_LISTS
                    .iter()
                    .zip(lists)
                    .map(|(key, items)| (*key, list(items)))
                    .collect(),
            ),
        }
    }

    /// Concatenates two sets of logprobs.
    pub fn join(self, more: Self) -> Self {
        let cat = |first: Vec<String>, second: Vec<String>| [first, second].concat();
        match (self, more) {
            (Self::Chat(a, b), Self::Chat(c, d)) => Self::Chat(cat(a, c), cat(b, d)),
            (Self::Completion([a, b, c, d]), Self::Completion([e, f, g, h])) => {
                Self::Completion([cat(a, e), cat(b, f), cat(c, g), cat(d, h)])
            }
            (first, _) => first,
        }
    }
}

// === reading ===

/// Reads a chunk, or a whole body. Returns `None` if a type is wrong.
pub fn read(case: &Case, json: &Json) -> Option<Chunk> {
    json.members()?;
    let mut choices = Vec::new();
    if let Some(list) = json.get("choices") {
        for choice in list.items()? {
            choices.push(entry(case, &choice)?);
        }
    }
    let usage = match json.get("usage") {
        // A usage object without any count is ignored.
        Some(object) if object.members()?.is_empty() => None,
        // So is one in which a count is given, but nowhere as a number of tokens.
        Some(object) if has_wrong_count(&object) => None,
        Some(object) => Some(usage(&object)?),
        None => None,
    };
    // A tier or fingerprint of the wrong type is ignored.
    let word = |key: &str| json.get(key).and_then(|word| word.string());
    let known = [
        "id",
        "object",
        "created",
        "model",
        "service_tier",
        "system_fingerprint",
        "choices",
        "usage",
        "obfuscation",
    ];
    let created = match json.get("created") {
        Some(number) if number.value().is_number() => number.count().unwrap_or(0),
        Some(_) => return None,
        None => 0,
    };
    let (asked, unknown) = asked_of(case, unknown(json, &known));
    Some(Chunk {
        id: text(json, "id")?.unwrap_or_default(),
        created,
        model: text(json, "model")?.unwrap_or_default(),
        service_tier: word("service_tier"),
        fingerprint: word("system_fingerprint"),
        choices,
        usage,
        asked,
        extra: if passes_unknown(case) {
            extra(json, &unknown)
        } else {
            None
        },
    })
}

/// Reads a text: `None` if the type is wrong, `Some(None)` if it is absent.
fn text(json: &Json, key: &str) -> Option<Option<String>> {
    match json.get(key) {
        Some(value) => value.string().map(Some),
        None => Some(None),
    }
}

fn entry(case: &Case, choice: &Json) -> Option<Entry> {
    choice.members()?;
    let mut entry = Entry::default();
    if let Some(index) = choice.get("index") {
        entry.index = index.value().as_u64()? as usize;
    }
    let known = [
        "index",
        "delta",
        "message",
        "text",
        "logprobs",
        "finish_reason",
        "stop_reason",
        "matched_stop",
    ];
    let (asked, mut collected) = asked_of(case, unknown(choice, &known));
    entry.asked = asked;
    if is_chat(case) {
        for place in ["delta", "message"] {
            if let Some(delta) = choice.get(place) {
                read_delta(&mut entry, &delta)?;
                let is_promoted = case.options["promote_reasoning"] != false;
                if is_promoted && case.request["continue_final_message"] == true {
                    entry.continued = std::mem::take(&mut entry.reasoning);
                }
                let known = [
                    "role",
                    "content",
                    "reasoning_content",
                    "reasoning",
                    "thinking",
                    "reasoning_text",
                    "refusal",
                    "annotations",
                    "audio",
                    "function_call",
                    "tool_calls",
                ];
                let mut unknown = unknown(&delta, &known);
                // Details of reasoning may hold more than text, so they are also an unknown member.
                if super::option(case, "reasoning_field") == "none" {
                    unknown.retain(|(key, _)| key != "reasoning_details");
                }
                if !unknown.is_empty() {
                    collected.push((place.to_owned(), object_text(&unknown)));
                }
            }
        }
    } else {
        entry.content = text(choice, "text")?;
    }
    entry.logprobs = match choice.get("logprobs") {
        Some(object) if is_chat(case) => chat_logprobs(&object)?,
        Some(object) => completion_logprobs(&object)?,
        None => None,
    };
    entry.finish = match choice.get("finish_reason") {
        // SGLang's inner form: {"type":"abort", …}
        Some(finish) if finish.members().is_some() => text(&finish, "type")?.unwrap_or_default(),
        Some(finish) => finish.string()?,
        None => String::new(),
    };
    entry.stop_reason = choice
        .get("stop_reason")
        .or_else(|| choice.get("matched_stop"))
        .map(|stop| stop.compact());
    if passes_unknown(case) {
        entry.extra = extra(choice, &collected);
    }
    Some(entry)
}

fn read_delta(entry: &mut Entry, delta: &Json) -> Option<()> {
    delta.members()?;
    let (content, thoughts) = content(delta)?;
    let said = reasoning(delta)?;
    entry.reasoning = [said, thoughts, details(delta)]
        .into_iter()
        .find(|text| !text.is_empty())
        .unwrap_or_default();
    entry.content = content;
    entry.refusal = text(delta, "refusal")?;
    if let Some(list) = delta.get("tool_calls") {
        for call in list.items()? {
            if !call.is_null() {
                entry.calls.push(call_piece(&call)?);
            }
        }
    }
    if let Some(call) = delta.get("function_call") {
        call.members()?;
        entry.function_call = Some(FunctionCall {
            name: text(&call, "name")?.filter(|name| !name.is_empty()),
            arguments: call
                .get("arguments")
                .map(|arguments| arguments_text(&arguments)),
        });
    }
    entry.annotations = delta.get("annotations").map(|list| list.compact());
    entry.audio = delta.get("audio").map(|audio| audio.compact());
    Some(())
}

/// Returns content and the reasoning in it: a text, or the texts of a list of parts (2.3 rule 11).
fn content(delta: &Json) -> Option<(Option<String>, String)> {
    let Some(list) = delta.get("content").and_then(|content| content.items()) else {
        return Some((text(delta, "content")?, String::new()));
    };
    let (mut content, mut reasoning) = (String::new(), String::new());
    for part in list {
        part.members()?;
        let kind = part
            .get("type")
            .and_then(|kind| kind.string())
            .unwrap_or_default();
        let text = texts(&part, "text");
        if ["thinking", "reasoning"].contains(&kind.as_str()) {
            reasoning.push_str(&texts(&part, "thinking"));
            reasoning.push_str(&text);
        } else if part.get("text").and_then(|text| text.string()).is_some() {
            content.push_str(&text);
        }
    }
    Some((Some(content).filter(|text| !text.is_empty()), reasoning))
}

/// Returns the texts of `reasoning_details`; nothing if the list is unreadable.
fn details(delta: &Json) -> String {
    let list = delta
        .get("reasoning_details")
        .and_then(|list| list.items())
        .unwrap_or_default();
    if list.iter().any(|part| part.members().is_none()) {
        return String::new();
    }
    let said = list
        .iter()
        .flat_map(|part| [part.get("text"), part.get("summary")]);
    said.flatten().filter_map(|text| text.string()).collect()
}

/// Returns a member that is a text, or a list of objects with texts; nothing for any other value.
fn texts(part: &Json, key: &str) -> String {
    let Some(value) = part.get(key) else {
        return String::new();
    };
    let list = value
        .items()
        .filter(|list| list.iter().all(|part| part.members().is_some()));
    let of_list = || {
        list.unwrap_or_default()
            .iter()
            .filter_map(|part| part.get("text")?.string())
            .collect()
    };
    value.string().unwrap_or_else(of_list)
}

/// Returns the first reasoning member that has text (2.4).
fn reasoning(delta: &Json) -> Option<String> {
    let mut found = vec![text(delta, "reasoning_content")?];
    match delta.get("reasoning") {
        Some(object) if object.members().is_some() => {
            found.push(text(&object, "text")?);
            found.push(text(&object, "content")?);
        }
        _ => found.push(text(delta, "reasoning")?),
    }
    found.push(text(delta, "thinking")?);
    found.push(text(delta, "reasoning_text")?);
    Some(
        found
            .into_iter()
            .flatten()
            .find(|text| !text.is_empty())
            .unwrap_or_default(),
    )
}

fn call_piece(call: &Json) -> Option<CallPiece> {
    call.members()?;
    let mut piece = CallPiece {
        id: text(call, "id")?.unwrap_or_default(),
        ..CallPiece::default()
    };
    if let Some(index) = call.get("index") {
        piece.index = Some(index.value().as_u64()?);
    }
    if let Some(function) = call.get("function") {
        function.members()?;
        piece.name = text(&function, "name")?.unwrap_or_default();
        piece.arguments = function
            .get("arguments")
            .map(|given| arguments_text(&given))
            .unwrap_or_default();
    }
    if let Some(custom) = call.get("custom") {
        custom.members()?;
        let name = text(&custom, "name")?.unwrap_or_default();
        piece.custom = Some((name, text(&custom, "input")?.unwrap_or_default()));
    }
    Some(piece)
}

fn arguments_text(arguments: &Json) -> String {
    arguments.string().unwrap_or_else(|| arguments.compact())
}

fn chat_logprobs(object: &Json) -> Option<Option<Logprobs>> {
    object.members()?;
    let mut lists = [Vec::new(), Vec::new()];
    for (key, list) in ["content", "refusal"].into_iter().zip(&mut lists) {
        for entry in object
            .get(key)
            .map_or(Some(Vec::new()), |entries| entries.items())?
        {
            let mut top = Vec::new();
            for other in entry
                .get("top_logprobs")
                .map_or(Some(Vec::new()), |others| others.items())?
            {
                top.push(Out::Object(token(&other)?));
            }
            let mut members = token(&entry)?;
            members.push(("top_logprobs", Out::List(top)));
            list.push(Out::Object(members).write());
        }
    }
    let [content, refusal] = lists;
    let empty = content.is_empty() && refusal.is_empty();
    Some((!empty).then_some(Logprobs::Chat(content, refusal)))
}

/// Returns `token`, `logprob` and `bytes` of an entry.
fn token(entry: &Json) -> Option<Vec<(&'static str, Out)>> {
    entry.members()?;
    let logprob = entry.get("logprob");
    if logprob
        .as_ref()
        .is_some_and(|number| !number.value().is_number())
    {
        return None;
    }
    let bytes = entry.get("bytes");
    if bytes.as_ref().is_some_and(|bytes| bytes.items().is_none()) {
        return None;
    }
    Some(vec![
        (
            "token",
            Out::Text(text(entry, "token")?.unwrap_or_default()),
        ),
        (
            "logprob",
            Out::raw_or_null(logprob.map(|number| number.compact()).as_ref()),
        ),
        (
            "bytes",
            Out::raw_or_null(bytes.map(|bytes| bytes.compact()).as_ref()),
        ),
    ])
}

fn completion_logprobs(object: &Json) -> Option<Option<Logprobs>> {
    object.members()?;
    let mut lists: [Vec<String>; 4] = Default::default();
    for (key, list) in COMPLETION_LISTS.into_iter().zip(&mut lists) {
        let items = object
            .get(key)
            .map_or(Some(Vec::new()), |items| items.items())?;
        *list = items.iter().map(Json::compact).collect();
    }
    let empty = lists[0].is_empty();
    if object.get("tokens").is_none() {
        return chat_shaped(object);
    }
    Some((!empty).then_some(Logprobs::Completion(lists)))
}

/// Reads logprobs that a completion has in the form of a chat's. Their text offsets depend on earlier ones
/// ([`Logprobs::place`]).
fn chat_shaped(object: &Json) -> Option<Option<Logprobs>> {
    // A wrong type in either list makes the chunk invalid.
    chat_logprobs(object)?;
    let entries = object
        .get("content")
        .map_or(Some(Vec::new()), |entries| entries.items())?;
    let (mut all, mut at): ([Vec<String>; 4], usize) = Default::default();
    for entry in &entries {
        let token = text(entry, "token")?.unwrap_or_default();
        let number = |entry: &Json| {
            entry
                .get("logprob")
                .map_or_else(|| "-9999.0".to_owned(), |number| number.compact())
        };
        let mut top = Vec::new();
        for other in entry
            .get("top_logprobs")
            .map_or(Some(Vec::new()), |others| others.items())?
        {
            let name = super::json::quote(&text(&other, "token")?.unwrap_or_default());
            if top.iter().all(|(known, _)| *known != name) {
                top.push((name, number(&other)));
            }
        }
        let top: Vec<String> = top
            .into_iter()
            .map(|(name, number)| format!("{name}:{number}"))
            .collect();
        all[0].push(super::json::quote(&token));
        all[1].push(number(entry));
        all[2].push(format!("{{{}}}", top.join(",")));
        all[3].push(at.to_string());
        at += token.chars().count();
    }
    Some((!entries.is_empty()).then_some(Logprobs::FromChat(all, at)))
}

// === usage (2.8) ===

fn has_wrong_count(object: &Json) -> bool {
    let counts = [
        &["prompt_tokens", "input_tokens"][..],
        &["completion_tokens", "output_tokens"],
        &["total_tokens"],
    ];
    counts.iter().any(|places| {
        let given: Vec<Json> = places
            .iter()
            .filter_map(|place| object.get(place))
            .collect();
        !given.is_empty() && given.iter().all(|count| count.count().is_none())
    })
}

fn usage(object: &Json) -> Option<Usage> {
    object.members()?;
    // Returns the first of several members that holds a count.
    let at = |places: &[&str]| {
        places.iter().find_map(|place| {
            let mut found = Some(object.clone());
            for key in place.split('.') {
                found = found.and_then(|object| object.get(key));
            }
            found.and_then(|count| count.count())
        })
    };
    let number = |places: &[&str]| Out::Number(at(places).unwrap_or(0));
    let prompt = at(&["prompt_tokens", "input_tokens"]).unwrap_or(0);
    let completion = at(&["completion_tokens", "output_tokens"]).unwrap_or(0);
    let cached = [
        "prompt_tokens_details.cached_tokens",
        "cached_tokens",
        "input_tokens_details.cached_tokens",
        "prompt_cache_hit_tokens",
    ];
    let reasoning = [
        "completion_tokens_details.reasoning_tokens",
        "reasoning_tokens",
        "output_tokens_details.reasoning_tokens",
    ];
    let mut prompt_details = vec![
        ("cached_tokens", number(&cached)),
        (
            "audio_tokens",
            number(&["prompt_tokens_details.audio_tokens"]),
        ),
    ];
    for key in ["image_tokens", "text_tokens", "cache_write_tokens"] {
        let place = format!("prompt_tokens_details.{key}");
        prompt_details.extend(at(&[&place]).map(|count| (key, Out::Number(count))));
    }
    let completion_details = vec![
        ("reasoning_tokens", number(&reasoning)),
        (
            "audio_tokens",
            number(&["completion_tokens_details.audio_tokens"]),
        ),
        (
            "accepted_prediction_tokens",
            number(&["completion_tokens_details.accepted_prediction_tokens"]),
        ),
        (
            "rejected_prediction_tokens",
            number(&["completion_tokens_details.rejected_prediction_tokens"]),
        ),
    ];
    let out = Out::Object(vec![
        ("prompt_tokens", Out::Number(prompt)),
        ("completion_tokens", Out::Number(completion)),
        (
            "total_tokens",
            Out::Number(at(&["total_tokens"]).unwrap_or(prompt + completion)),
        ),
        ("prompt_tokens_details", Out::Object(prompt_details)),
        ("completion_tokens_details", Out::Object(completion_details)),
    ]);
    Some(Usage { completion, out })
}

// === unknown fields (1.6) ===

/// Returns the members that are neither known nor null.
fn unknown(object: &Json, known: &[&str]) -> Vec<(String, String)> {
    let members = object.members().unwrap_or_default();
    let unknown = members.into_iter().filter(|(key, value)| {
        !known.contains(&key.as_str()) && key != "x_upstream" && !value.is_null()
    });
    unknown.map(|(key, value)| (key, value.compact())).collect()
}

/// Splits unknown members into extensions that the client requested, and others.
fn asked_of(case: &Case, unknown: Vec<(String, String)>) -> (Extensions, Vec<(String, String)>) {
    let mut asked = Extensions::new();
    let mut others = unknown;
    for key in super::wanted_extensions(case) {
        if others
            .iter()
            .any(|(own, value)| own == key && value.starts_with('['))
        {
            let first = others.iter().find(|(own, _)| own == key).unwrap().1.clone();
            others.retain(|(own, _)| own != key);
            asked.push((key, first));
        }
    }
    (asked, others)
}

/// Returns `x_upstream` of a level: the engine's own if present, else the collected members.
fn extra(object: &Json, collected: &[(String, String)]) -> Option<String> {
    if let Some(given) = object
        .get("x_upstream")
        .filter(|given| given.members().is_some())
    {
        return Some(given.compact());
    }
    (!collected.is_empty()).then(|| object_text(collected))
}

fn object_text(members: &[(String, String)]) -> String {
    let members: Vec<String> = members
        .iter()
        .map(|(key, value)| format!("{}:{value}", super::json::quote(key)))
        .collect();
    format!("{{{}}}", members.join(","))
}
