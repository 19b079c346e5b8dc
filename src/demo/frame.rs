//! Frame of a stream as a person should see it: its essential members, in words that can be wrapped, and the
//! changes that samewire makes.
//!
//! Takes: the chunks of a chat stream as sent. Gives: a [`Frame`] for each. Remembers: the id and the time of
//! earlier frames. Never: depends on the output, terminal or browser.

use crate::json::{self, Members, Raw, Text};
use crate::wire::rule::{NULL_FIELDS, Rule};

/// Changes that samewire makes to frames, in the order in which the page explains them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Id of the answer with a prefix other than OpenAI's.
    Id,
    /// Empty text next to the role, in the first frame.
    RoleContent,
    /// Reasoning text under one of two names, which half of the clients do not read.
    ReasoningName,
    /// Text in the frame with the finish reason, where many clients ignore it.
    FinishMerged,
    /// Time that differs from the one in the first frame.
    Envelope,
    /// Call ids with a prefix other than OpenAI's.
    ToolId,
    /// Id, type and name of a call, repeated in later frames.
    ToolRepeat,
    /// Members without a value: null, or an empty list.
    Empty,
    /// Members that the API does not define.
    Unknown,
    /// Stop reasons in fields of the engine's own.
    StopDetails,
    /// Build of the engine, in `system_fingerprint`.
    Fingerprint,
    /// Token counts without the details that the API defines.
    Usage,
}

impl Change {
    /// List of all changes, in the order of the page.
    pub const ALL: [Self; 12] = [
        Self::Id,
        Self::RoleContent,
        Self::ReasoningName,
        Self::FinishMerged,
        Self::Envelope,
        Self::ToolId,
        Self::ToolRepeat,
        Self::Empty,
        Self::Unknown,
        Self::StopDetails,
        Self::Fingerprint,
        Self::Usage,
    ];

    /// Returns the name of the rule that makes the change, as in metrics and in the documentation.
    pub fn rule(self) -> &'static str {
        let rule = match self {
            Self::Id => Rule::Id,
            Self::RoleContent => Rule::RoleContent,
            Self::ReasoningName => Rule::ReasoningName,
            Self::FinishMerged => Rule::FinishMerged,
            Self::Envelope => Rule::Envelope,
            Self::ToolId => Rule::ToolId,
            Self::ToolRepeat => Rule::ToolRepeat,
            Self::Unknown => Rule::UnknownField,
            Self::StopDetails => Rule::StopDetails,
            Self::Fingerprint => Rule::Fingerprint,
            Self::Usage => Rule::Usage,
            Self::Empty => return NULL_FIELDS,
        };
        rule.name()
    }

    /// Returns a sentence for the page that states what is changed, and why.
    pub fn explained(self) -> &'static str {
        match self {
            Self::Id => "Ids get the form of OpenAI's: chatcmpl-, and the engine's own behind it.",
            Self::RoleContent => "The first frame tells the role alone; the empty text beside it goes.",
            Self::ReasoningName => {
                "One engine says reasoning, the other reasoning_content; clients get both names from both."
            }
            Self::FinishMerged => {
                "The last token came in the frame that finishes, where many clients lose it; it gets a frame of its own."
            }
            Self::Envelope => "The time changed during the answer; the first one stays.",
            Self::ToolId => "Ids of calls begin with call_.",
            Self::ToolRepeat => {
                "Id, type and name of a call come once; repeated or null they break clients that join the pieces."
            }
            Self::Empty => "Fields without a value go: nothing was said.",
            Self::Unknown => {
                "Fields that the API does not have go (unknown_fields = \"pass\" keeps them apart)."
            }
            Self::StopDetails => "Why the engine stopped is in finish_reason; its own field beside it goes.",
            Self::Fingerprint => "The engine's build and topology are nobody's business; they go.",
            Self::Usage => "Token counts come complete, each under its official name.",
        }
    }
}

/// Phase of an answer that a frame belongs to, in the order in which phases occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Role of the message, usually in the first frame.
    Role,
    /// Reasoning text.
    Reasoning,
    /// Text of the answer.
    Text,
    /// Start of a call, with its id and its name.
    Call,
    /// Arguments of a call, in pieces.
    Arguments,
    /// Finish reason.
    Finish,
    /// Token counts.
    Usage,
    /// End of the stream: the data is `[DONE]`.
    Done,
}

impl Phase {
    /// List of all phases, in the order in which answers contain them.
    pub const ALL: [Self; 8] = [
        Self::Role,
        Self::Reasoning,
        Self::Text,
        Self::Call,
        Self::Arguments,
        Self::Finish,
        Self::Usage,
        Self::Done,
    ];
}

/// Piece of a frame's text, with the change that affects it, if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Text of the piece.
    pub text: String,
    /// Change that samewire makes to this piece, if any.
    pub change: Option<Change>,
}

/// Pieces of text that are never separated by a line break.
pub type Word = Vec<Piece>;

/// Frame of a stream, prepared for display: phases, shown text, and changes.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Data of the event as sent.
    pub data: String,
    /// Phases that the frame contains, sorted; most frames have one.
    pub phases: Vec<Phase>,
    /// Displayed text of the frame, in words that may be wrapped.
    pub words: Vec<Word>,
}

impl Frame {
    /// Returns the changes in this frame, one for each marked piece.
    pub fn changes(&self) -> impl Iterator<Item = Change> {
        self.words.iter().flatten().filter_map(|piece| piece.change)
    }
}

/// Returns true if no space follows, because the text ends with an opening bracket.
pub fn is_open(text: &str) -> bool {
    text.ends_with(['{', '['])
}

/// Returns the data of a stream's events, that is, of blocks that start with `data: `.
pub fn events(stream: &str) -> impl Iterator<Item = &str> {
    stream.split("\n\n").filter_map(|event| event.strip_prefix("data: "))
}

/// Parses the frames of one answer. `canonical`: the stream has been rewritten already, so no changes are marked.
pub fn read(stream: &str, canonical: bool) -> Vec<Frame> {
    let mut reader = Reader { canonical, created: None, named: false };
    events(stream).map(|data| reader.frame(data)).collect()
}

struct Reader {
    canonical: bool,
    /// Time in the first frame, which the later ones are compared with.
    created: Option<String>,
    /// True once the id has been shown; later frames repeat it.
    named: bool,
}

/// Builder of a frame. Marks no changes if the stream is canonical already.
#[derive(Default)]
struct Draft {
    phases: Vec<Phase>,
    words: Vec<Word>,
    canonical: bool,
}

impl Draft {
    fn word(&mut self) {
        self.words.push(Word::new());
    }

    fn push(&mut self, text: impl Into<String>, change: Option<Change>) {
        let piece = Piece { text: text.into(), change: change.filter(|_| !self.canonical) };
        match self.words.last_mut() {
            Some(word) => word.push(piece),
            None => self.words.push(vec![piece]),
        }
    }

    /// Appends a member, key and value, with the change that affects it.
    fn member(&mut self, key: &str, raw: Raw<'_>, change: Option<Change>) {
        self.word();
        self.push(format!("\"{key}\":{}", short(raw)), change);
    }

    /// Appends a long value as several words, so that it may be wrapped at its commas.
    fn spread(&mut self, value: &str) {
        for (at, part) in value.split_inclusive(',').enumerate() {
            if at > 0 {
                self.word();
            }
            self.push(part, None);
        }
    }

    fn add_phase(&mut self, phase: Phase) {
        if !self.phases.contains(&phase) {
            self.phases.push(phase);
        }
    }

    /// Starts the member at index `at` of an object.
    fn next(&mut self, at: usize) {
        if at > 0 {
            self.push(",", None);
        }
        self.word();
    }
}

impl Reader {
    fn frame(&mut self, data: &str) -> Frame {
        let mut draft = Draft { canonical: self.canonical, ..Draft::default() };
        match json::read::<Members<'_>>(data) {
            Ok(Members(members)) => {
                draft.push("{…", None);
                members.iter().for_each(|(key, raw)| self.envelope(key, *raw, &mut draft));
                let last = draft.words.len().saturating_sub(1);
                for (at, word) in draft.words.iter_mut().enumerate() {
                    // An opening brace needs no comma, and some words already have one.
                    let needs_none = word.last().is_some_and(|piece| piece.text.ends_with([',', '{']));
                    let text = if at == last { "}" } else { "," };
                    if at > 0 && !needs_none {
                        word.push(Piece { text: text.to_owned(), change: None });
                    }
                }
            }
            Err(_) => {
                draft.add_phase(Phase::Done);
                draft.push(data, None);
            }
        }
        draft.phases.sort();
        Frame { data: data.to_owned(), phases: draft.phases, words: draft.words }
    }

    fn envelope(&mut self, key: &str, raw: Raw<'_>, draft: &mut Draft) {
        let null = raw.get() == "null";
        match key {
            "object" | "model" => {}
            "id" => {
                if !std::mem::replace(&mut self.named, true) && !self.canonical {
                    let change = (!raw.get().starts_with("\"chatcmpl-")).then_some(Change::Id);
                    draft.member(key, raw, change);
                }
            }
            "created" => {
                let first = self.created.get_or_insert_with(|| raw.get().to_owned());
                if *first != raw.get() {
                    draft.member(key, raw, Some(Change::Envelope));
                }
            }
            "choices" => {
                let choices: Vec<Raw<'_>> = json::read(raw.get()).unwrap_or_default();
                choices.iter().for_each(|raw| choice(*raw, draft));
            }
            "usage" if null => {}
            "usage" => {
                draft.add_phase(Phase::Usage);
                draft.word();
                draft.push("\"usage\"", (!is_complete(raw)).then_some(Change::Usage));
                draft.push(":", None);
                match self.canonical {
                    true => draft.spread(&without_zeros(raw)),
                    false => draft.spread(raw.get()),
                }
            }
            "system_fingerprint" => draft.member(key, raw, Some(Change::Fingerprint)),
            _ => draft.member(key, raw, Some(foreign(key, raw))),
        }
    }
}

/// Returns the change for a field that the API does not define.
fn foreign(key: &str, raw: Raw<'_>) -> Change {
    match key {
        _ if raw.get() == "null" => Change::Empty,
        "stop_reason" | "matched_stop" => Change::StopDetails,
        _ => Change::Unknown,
    }
}

/// Returns true if the token counts include the details that the API defines.
fn is_complete(usage: Raw<'_>) -> bool {
    members(usage).iter().any(|(key, _)| key == "completion_tokens_details")
}

/// Returns the token counts without those that are zero, to keep them short on the page.
fn without_zeros(usage: Raw<'_>) -> String {
    let all = members(usage);
    let some = all.iter().filter(|(_, raw)| raw.get() != "0");
    let mut shown: Vec<_> = some
        .map(|(key, raw)| match raw.get().starts_with('{') {
            true => format!("\"{key}\":{}", without_zeros(*raw)),
            false => format!("\"{key}\":{}", raw.get()),
        })
        .collect();
    if shown.len() < all.len() {
        shown.push("…".to_owned());
    }
    format!("{{{}}}", shown.join(","))
}

fn members(raw: Raw<'_>) -> Vec<(std::borrow::Cow<'_, str>, Raw<'_>)> {
    json::read::<Members<'_>>(raw.get()).map(|Members(members)| members).unwrap_or_default()
}

fn choice(raw: Raw<'_>, draft: &mut Draft) {
    for (key, raw) in members(raw) {
        let null = raw.get() == "null";
        match key.as_ref() {
            "index" => {}
            "logprobs" if null => {}
            "finish_reason" if null => {}
            "finish_reason" => {
                let merged = !draft.phases.is_empty();
                draft.add_phase(Phase::Finish);
                draft.member(&key, raw, merged.then_some(Change::FinishMerged));
            }
            "delta" => delta(raw, draft),
            _ => draft.member(&key, raw, Some(foreign(&key, raw))),
        }
    }
}

fn delta(raw: Raw<'_>, draft: &mut Draft) {
    let members = members(raw);
    draft.word();
    draft.push("\"delta\":{", None);
    let has = |name: &str| members.iter().any(|(key, raw)| key == name && raw.get() != "null");
    let has_role = has("role");
    for (at, (key, raw)) in members.iter().enumerate() {
        draft.next(at);
        let value = raw.get();
        match key.as_ref() {
            "tool_calls" if value.starts_with("[{") => calls(*raw, draft),
            _ if value == "null" || value == "[]" => {
                draft.push(format!("\"{key}\":{value}"), Some(Change::Empty));
            }
            "role" => {
                draft.add_phase(Phase::Role);
                draft.push(format!("\"role\":{value}"), None);
            }
            "content" if value == "\"\"" => {
                let change = if has_role { Change::RoleContent } else { Change::Empty };
                draft.push("\"content\":\"\"", Some(change));
            }
            "reasoning" => {
                draft.add_phase(Phase::Reasoning);
                draft.push("\"reasoning\"", (!has("reasoning_content")).then_some(Change::ReasoningName));
                draft.push(format!(":{}", short(*raw)), None);
            }
            _ => {
                draft.add_phase(if key == "reasoning_content" { Phase::Reasoning } else { Phase::Text });
                draft.push(format!("\"{key}\":{}", short(*raw)), None);
            }
        }
    }
    draft.push("}", None);
}

fn calls(raw: Raw<'_>, draft: &mut Draft) {
    draft.push("\"tool_calls\":[{", None);
    let calls: Vec<Raw<'_>> = json::read(raw.get()).unwrap_or_default();
    for call in calls {
        let members = members(call);
        let starts = members.iter().any(|(key, raw)| key == "id" && raw.get() != "null");
        draft.add_phase(if starts { Phase::Call } else { Phase::Arguments });
        for (at, (key, raw)) in members.iter().enumerate() {
            draft.next(at);
            match key.as_ref() {
                "function" => function(*raw, starts, draft),
                "id" if starts => {
                    let change = raw.get().starts_with("\"chatcmpl-tool-").then_some(Change::ToolId);
                    draft.push(format!("\"id\":{}", short(*raw)), change);
                }
                "id" | "type" if !starts => {
                    draft.push(format!("\"{key}\":{}", short(*raw)), Some(Change::ToolRepeat));
                }
                _ => draft.push(format!("\"{key}\":{}", short(*raw)), None),
            }
        }
    }
    draft.push("}]", None);
}

fn function(raw: Raw<'_>, starts: bool, draft: &mut Draft) {
    draft.push("\"function\":{", None);
    for (at, (key, raw)) in members(raw).iter().enumerate() {
        draft.next(at);
        let repeated = (key == "name" && !starts).then_some(Change::ToolRepeat);
        draft.push(format!("\"{key}\":{}", short(*raw)), repeated);
    }
    draft.push("}", None);
}

/// Returns the JSON of a value; shortens a string of more than 26 characters in the middle.
fn short(raw: Raw<'_>) -> String {
    const LONGEST: usize = 26;
    let value = raw.get();
    let text = Text::of(raw).map(|_| value).filter(|text| text.chars().count() > LONGEST);
    let Some(text) = text else { return value.to_owned() };
    let head: String = text.chars().take(18).collect();
    let count = text.chars().count();
    let tail: String = text.chars().skip(count.saturating_sub(5)).collect();
    format!("{head}…{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(data: &str) -> String {
        let stream = format!("data: {data}\n\n");
        let frames = read(&stream, false);
        let mut text = String::new();
        for word in &frames[0].words {
            if !text.is_empty() && !is_open(&text) {
                text.push(' ');
            }
            for piece in word {
                text.push_str(&piece.text);
                if let Some(change) = piece.change {
                    text.push_str(&format!("<{change:?}>"));
                }
            }
        }
        text
    }

    #[test]
    fn what_changes_is_marked_where_it_stands() {
        for (data, expected) in [
            (
                r#"{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"reasoning":"We"},"logprobs":null,"finish_reason":null,"token_ids":null}]}"#,
                r#"{… "id":"chatcmpl-1", "delta":{"reasoning"<ReasoningName>:"We"}, "token_ids":null<Empty>}"#,
            ),
            (
                r#"{"id":"d3b4","choices":[{"delta":{"reasoning_content":null,"role":"assistant","content":""}}]}"#,
                r#"{… "id":"d3b4"<Id>, "delta":{"reasoning_content":null<Empty>, "role":"assistant", "content":""<RoleContent>}}"#,
            ),
            (
                r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#,
                r#"{… "delta":{"content":"a"}, "finish_reason":"stop"<FinishMerged>}"#,
            ),
            (
                r#"{"choices":[{"delta":{"tool_calls":[{"id":null,"index":0,"function":{"name":null,"arguments":"{"}}]}}]}"#,
                r#"{… "delta":{"tool_calls":[{"id":null<ToolRepeat>, "index":0, "function":{"name":null<ToolRepeat>, "arguments":"{"}}]}}"#,
            ),
            (
                r#"{"choices":[],"usage":{"prompt_tokens":1,"total_tokens":2},"system_fingerprint":"vllm-0.1.dev1+gc06ff9ec0-tp2"}"#,
                r#"{… "usage"<Usage>:{"prompt_tokens":1, "total_tokens":2}, "system_fingerprint":"vllm-0.1.dev1+gc0…-tp2"<Fingerprint>}"#,
            ),
            ("[DONE]", "[DONE]"),
        ] {
            assert_eq!(shown(data), expected);
        }
    }
}
