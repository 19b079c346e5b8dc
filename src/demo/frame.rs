//! Frame of a stream as a person should see it: its essential members, in words that can be wrapped, and the
//! changes that samewire makes.
//!
//! Takes: the chunks of a chat stream as sent. Gives: a [`Frame`] for each. Remembers: the id and the time of
//! earlier frames. Never: depends on the output, terminal or browser.

use crate::json::{self, Members, Raw, Text};
use crate::wire::rule::{NULL_FIELDS, Rule};

/// Change that samewire makes to frames: its rule, or none for fields without a value, which no rule counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change(Option<Rule>);

impl Change {
    const EMPTY: Self = Self(None);

    const fn by(rule: Rule) -> Self {
        Self(Some(rule))
    }

    /// List of all changes, each with a sentence that states what is changed, and why, in the order of the page.
    pub const ALL: [(Self, &str); 12] = [
        (
            Self::by(Rule::Id),
            "Ids get the form of OpenAI's: chatcmpl-, and the engine's own after it.",
        ),
        (
            Self::by(Rule::RoleContent),
            "The first frame tells the role alone; the empty text beside it goes.",
        ),
        (
            Self::by(Rule::ReasoningName),
            "One engine says reasoning, the other reasoning_content; clients get both names from both.",
        ),
        (
            Self::by(Rule::FinishMerged),
            "The last token came in the frame that finishes, where many clients lose it; it gets a frame of its own.",
        ),
        (
            Self::by(Rule::Envelope),
            "The time changed during the answer; the first one stays.",
        ),
        (Self::by(Rule::ToolId), "Ids of calls begin with call_."),
        (
            Self::by(Rule::ToolRepeat),
            "Id, type and name of a call come once; repeated or null they break clients that join the pieces.",
        ),
        (Self::EMPTY, "Fields without a value go: nothing was said."),
        (
            Self::by(Rule::UnknownField),
            "Fields that the API does not have go (unknown_fields = \"pass\" keeps them apart).",
        ),
        (
            Self::by(Rule::StopDetails),
            "Why the engine stopped is in finish_reason; its own field beside it goes.",
        ),
        (
            Self::by(Rule::Fingerprint),
            "The engine's build and topology are nobody's business; they go.",
        ),
        (
            Self::by(Rule::Usage),
            "Token counts come complete, each under its official name.",
        ),
    ];

    /// Returns the name of the rule that makes the change, as in metrics and in the documentation.
    pub fn rule(self) -> &'static str {
        self.0.map_or(NULL_FIELDS, Rule::name)
    }

    /// Returns a sentence for the page that states what is changed, and why.
    pub fn explained(self) -> &'static str {
        Self::ALL
            .into_iter()
            .find(|(change, _)| *change == self)
            .map_or("", |(_, why)| why)
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
    stream
        .split("\n\n")
        .filter_map(|event| event.strip_prefix("data: "))
}

/// Parses the frames of one answer. `canonical`: the stream has been rewritten already, so no changes are marked.
pub fn read(stream: &str, canonical: bool) -> Vec<Frame> {
    let mut reader = Reader {
        canonical,
        created: None,
        named: false,
    };
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
struct FrameBuilder {
    phases: Vec<Phase>,
    words: Vec<Word>,
    canonical: bool,
}

impl FrameBuilder {
    fn word(&mut self) {
        self.words.push(Word::new());
    }

    fn push(&mut self, text: impl Into<String>, change: Option<Change>) {
        let piece = Piece {
            text: text.into(),
            change: change.filter(|_| !self.canonical),
        };
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
        let mut builder = FrameBuilder {
            canonical: self.canonical,
            ..FrameBuilder::default()
        };
        match json::read::<Members<'_>>(data) {
            Ok(Members(members)) => {
                builder.push("{…", None);
                members
                    .iter()
                    .for_each(|(key, raw)| self.envelope(key, *raw, &mut builder));
                let last = builder.words.len().saturating_sub(1);
                for (at, word) in builder.words.iter_mut().enumerate() {
                    // An opening brace needs no comma, and some words already have one.
                    let needs_none = word
                        .last()
                        .is_some_and(|piece| piece.text.ends_with([',', '{']));
                    let text = if at == last { "}" } else { "," };
                    if at > 0 && !needs_none {
                        word.push(Piece {
                            text: text.to_owned(),
                            change: None,
                        });
                    }
                }
            }
            Err(_) => {
                builder.add_phase(Phase::Done);
                builder.push(data, None);
            }
        }
        builder.phases.sort();
        Frame {
            data: data.to_owned(),
            phases: builder.phases,
            words: builder.words,
        }
    }

    fn envelope(&mut self, key: &str, raw: Raw<'_>, builder: &mut FrameBuilder) {
        let null = raw.get() == "null";
        match key {
            "object" | "model" => {}
            "id" => {
                if !std::mem::replace(&mut self.named, true) && !self.canonical {
                    let change =
                        (!raw.get().starts_with("\"chatcmpl-")).then_some(Change::by(Rule::Id));
                    builder.member(key, raw, change);
                }
            }
            "created" => {
                let first = self.created.get_or_insert_with(|| raw.get().to_owned());
                if *first != raw.get() {
                    builder.member(key, raw, Some(Change::by(Rule::Envelope)));
                }
            }
            "choices" => {
                let choices: Vec<Raw<'_>> = json::read(raw.get()).unwrap_or_default();
                choices.iter().for_each(|raw| choice(*raw, builder));
            }
            "usage" if null => {}
            "usage" => {
                builder.add_phase(Phase::Usage);
                builder.word();
                builder.push(
                    "\"usage\"",
                    (!is_complete(raw)).then_some(Change::by(Rule::Usage)),
                );
                builder.push(":", None);
                match self.canonical {
                    true => builder.spread(&without_zeros(raw)),
                    false => builder.spread(raw.get()),
                }
            }
            "system_fingerprint" => builder.member(key, raw, Some(Change::by(Rule::Fingerprint))),
            _ => builder.member(key, raw, Some(foreign(key, raw))),
        }
    }
}

/// Returns the change for a field that the API does not define.
fn foreign(key: &str, raw: Raw<'_>) -> Change {
    match key {
        _ if raw.get() == "null" => Change::EMPTY,
        "stop_reason" | "matched_stop" => Change::by(Rule::StopDetails),
        _ => Change::by(Rule::UnknownField),
    }
}

/// Returns true if the token counts include the details that the API defines.
fn is_complete(usage: Raw<'_>) -> bool {
    members(usage)
        .iter()
        .any(|(key, _)| key == "completion_tokens_details")
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
    json::read::<Members<'_>>(raw.get())
        .map(|Members(members)| members)
        .unwrap_or_default()
}

fn choice(raw: Raw<'_>, builder: &mut FrameBuilder) {
    for (key, raw) in members(raw) {
        let null = raw.get() == "null";
        match key.as_ref() {
            "index" => {}
            "logprobs" if null => {}
            "finish_reason" if null => {}
            "finish_reason" => {
                let merged = !builder.phases.is_empty();
                builder.add_phase(Phase::Finish);
                builder.member(&key, raw, merged.then_some(Change::by(Rule::FinishMerged)));
            }
            "delta" => delta(raw, builder),
            _ => builder.member(&key, raw, Some(foreign(&key, raw))),
        }
    }
}

fn delta(raw: Raw<'_>, builder: &mut FrameBuilder) {
    let members = members(raw);
    builder.word();
    builder.push("\"delta\":{", None);
    let has = |name: &str| {
        members
            .iter()
            .any(|(key, raw)| key == name && raw.get() != "null")
    };
    let has_role = has("role");
    for (at, (key, raw)) in members.iter().enumerate() {
        builder.next(at);
        let value = raw.get();
        match key.as_ref() {
            "tool_calls" if value.starts_with("[{") => calls(*raw, builder),
            _ if value == "null" || value == "[]" => {
                builder.push(format!("\"{key}\":{value}"), Some(Change::EMPTY));
            }
            "role" => {
                builder.add_phase(Phase::Role);
                builder.push(format!("\"role\":{value}"), None);
            }
            "content" if value == "\"\"" => {
                let change = if has_role {
                    Change::by(Rule::RoleContent)
                } else {
                    Change::EMPTY
                };
                builder.push("\"content\":\"\"", Some(change));
            }
            "reasoning" => {
                builder.add_phase(Phase::Reasoning);
                builder.push(
                    "\"reasoning\"",
                    (!has("reasoning_content")).then_some(Change::by(Rule::ReasoningName)),
                );
                builder.push(format!(":{}", short(*raw)), None);
            }
            _ => {
                builder.add_phase(if key == "reasoning_content" {
                    Phase::Reasoning
                } else {
                    Phase::Text
                });
                builder.push(format!("\"{key}\":{}", short(*raw)), None);
            }
        }
    }
    builder.push("}", None);
}

fn calls(raw: Raw<'_>, builder: &mut FrameBuilder) {
    builder.push("\"tool_calls\":[{", None);
    let calls: Vec<Raw<'_>> = json::read(raw.get()).unwrap_or_default();
    for call in calls {
        let members = members(call);
        let starts = members
            .iter()
            .any(|(key, raw)| key == "id" && raw.get() != "null");
        builder.add_phase(if starts {
            Phase::Call
        } else {
            Phase::Arguments
        });
        for (at, (key, raw)) in members.iter().enumerate() {
            builder.next(at);
            match key.as_ref() {
                "function" => function(*raw, starts, builder),
                "id" if starts => {
                    let change = raw
                        .get()
                        .starts_with("\"chatcmpl-tool-")
                        .then_some(Change::by(Rule::ToolId));
                    builder.push(format!("\"id\":{}", short(*raw)), change);
                }
                "id" | "type" if !starts => {
                    builder.push(
                        format!("\"{key}\":{}", short(*raw)),
                        Some(Change::by(Rule::ToolRepeat)),
                    );
                }
                _ => builder.push(format!("\"{key}\":{}", short(*raw)), None),
            }
        }
    }
    builder.push("}]", None);
}

fn function(raw: Raw<'_>, starts: bool, builder: &mut FrameBuilder) {
    builder.push("\"function\":{", None);
    for (at, (key, raw)) in members(raw).iter().enumerate() {
        builder.next(at);
        let repeated = (key == "name" && !starts).then_some(Change::by(Rule::ToolRepeat));
        builder.push(format!("\"{key}\":{}", short(*raw)), repeated);
    }
    builder.push("}", None);
}

/// Returns the JSON of a value; shortens a string of more than 26 characters in the middle.
fn short(raw: Raw<'_>) -> String {
    const LONGEST: usize = 26;
    let value = raw.get();
    let text = Text::of(raw)
        .map(|_| value)
        .filter(|text| text.chars().count() > LONGEST);
    let Some(text) = text else {
        return value.to_owned();
    };
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
                    text.push_str(&format!("<{}>", change.rule()));
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
                r#"{… "id":"chatcmpl-1", "delta":{"reasoning"<reasoning_name>:"We"}, "token_ids":null<null_fields>}"#,
            ),
            (
                r#"{"id":"d3b4","choices":[{"delta":{"reasoning_content":null,"role":"assistant","content":""}}]}"#,
                r#"{… "id":"d3b4"<id>, "delta":{"reasoning_content":null<null_fields>, "role":"assistant", "content":""<role_content>}}"#,
            ),
            (
                r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#,
                r#"{… "delta":{"content":"a"}, "finish_reason":"stop"<finish_merged>}"#,
            ),
            (
                r#"{"choices":[{"delta":{"tool_calls":[{"id":null,"index":0,"function":{"name":null,"arguments":"{"}}]}}]}"#,
                r#"{… "delta":{"tool_calls":[{"id":null<tool_repeat>, "index":0, "function":{"name":null<tool_repeat>, "arguments":"{"}}]}}"#,
            ),
            (
                r#"{"choices":[],"usage":{"prompt_tokens":1,"total_tokens":2},"system_fingerprint":"vllm-0.1.dev1+gc06ff9ec0-tp2"}"#,
                r#"{… "usage"<usage>:{"prompt_tokens":1, "total_tokens":2}, "system_fingerprint":"vllm-0.1.dev1+gc0…-tp2"<fingerprint>}"#,
            ),
            ("[DONE]", "[DONE]"),
        ] {
            assert_eq!(shown(data), expected);
        }
    }
}
