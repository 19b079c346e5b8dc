//! What became of a frame: the engine's compared with the canonical ones that were made of it, field by field.
//!
//! Takes: the data of both. Gives: [`Effect`]s. Remembers: which fields wait, because something that comes later decides what they
//! are. Never: knows of a rule what it does; the bytes say it.

use super::leaves::{Leaf, Reader, Value, is_envelope, is_text, name};
use std::fmt;

/// The kind of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A field has another value.
    Replaced,
    /// A value stands under another name, or under several.
    Renamed,
    /// A text stands under another name, and is another one.
    Became,
    /// A field is not there any more.
    Dropped,
    /// A field without a value is not there any more.
    DroppedNull,
    /// A field is there that the engine did not send.
    Added,
    /// A field without a value is there that the engine did not send.
    AddedNull,
    /// What came in one frame has frames of its own.
    Split,
    /// A frame is there for which the engine sent none.
    Inserted,
    /// Nothing is written yet: what comes later decides.
    Held,
    /// What was held back is written.
    Released,
    /// Something that no field shows; the words are the rule's.
    Words,
}

impl Kind {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Replaced => "replaced",
            Self::Renamed => "renamed",
            Self::Became => "became",
            Self::Dropped => "dropped",
            Self::DroppedNull => "dropped_null",
            Self::Added => "added",
            Self::AddedNull => "added_null",
            Self::Split => "split",
            Self::Inserted => "inserted",
            Self::Held => "held",
            Self::Released => "released",
            Self::Words => "words",
        }
    }
}

/// A field by its name, with its value where that matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its path.
    pub path: String,
    /// Its value as JSON, cut short.
    pub value: Option<String>,
}

impl Field {
    fn named(path: &str) -> Self {
        Self { path: path.to_owned(), value: None }
    }

    /// With its value.
    fn valued(leaf: &Leaf) -> Self {
        Self { path: leaf.path.clone(), value: Some(leaf.value.shown()) }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        self.value.as_ref().map_or(Ok(()), |value| write!(f, " {value}"))
    }
}

/// One difference between what the engine sent and what the client receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// What kind of difference.
    pub kind: Kind,
    /// The fields as the engine sent them; of what it did not send, the canonical ones.
    pub fields: Vec<Field>,
    /// The fields in which a value stands now, where they are others.
    pub into: Vec<Field>,
    /// The words of a rule, where no field shows what it did.
    pub words: &'static str,
}

impl Effect {
    fn of(kind: Kind, fields: Vec<Field>) -> Self {
        Self { kind, fields, into: Vec::new(), words: "" }
    }

    /// Whether it is about fields without a value alone.
    pub(super) fn is_of_nothing(&self) -> bool {
        let is_empty =
            |field: &Field| field.value.as_deref().is_some_and(|value| ["\"\"", "[]", "{}"].contains(&value));
        match self.kind {
            Kind::DroppedNull | Kind::AddedNull => true,
            Kind::Dropped | Kind::Added => self.fields.iter().all(is_empty),
            _ => false,
        }
    }

    fn into(kind: Kind, field: Field, into: Vec<Field>) -> Self {
        Self { kind, fields: vec![field], into, words: "" }
    }

    /// An effect that only these words tell.
    pub(super) fn words(words: &'static str) -> Self {
        Self { kind: Kind::Words, fields: Vec::new(), into: Vec::new(), words }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |fields: &[Field]| fields.iter().map(Field::to_string).collect::<Vec<_>>().join(", ");
        let (fields, into) = (list(&self.fields), list(&self.into));
        match self.kind {
            Kind::Replaced => {
                let after = self.into.first().and_then(|field| field.value.as_deref()).unwrap_or_default();
                write!(f, "{fields} → {after}")
            }
            Kind::Renamed | Kind::Became => write!(f, "{fields} → {into}"),
            Kind::Dropped => write!(f, "dropped: {fields}"),
            Kind::DroppedNull => write!(f, "dropped: null fields {fields}"),
            Kind::Added => write!(f, "added: {fields}"),
            Kind::AddedNull => write!(f, "added: null fields {fields}"),
            Kind::Split => write!(f, "moved to frames of their own: {fields}"),
            Kind::Inserted => write!(f, "a frame more: {fields}"),
            Kind::Held => write!(f, "held back: {fields}"),
            Kind::Released => write!(f, "no longer held back: {fields}"),
            Kind::Words => f.write_str(self.words),
        }
    }
}

/// Compares the frames of one answer.
#[derive(Debug, Default)]
pub(super) struct Comparer {
    /// The texts that wait: what comes later decides what they are.
    held: Vec<String>,
    /// The end of a choice and token counts of earlier frames: they are written when nothing can come before them any more.
    carried: Vec<Leaf>,
    /// Characters that the engine's model has said.
    pub(super) said: usize,
    /// Those that stand in the canonical frames.
    pub(super) told: usize,
}

impl Comparer {
    /// Whether something of an earlier frame has not been written yet.
    pub(super) fn is_waiting(&self) -> bool {
        !self.carried.is_empty()
    }

    /// Returns the differences between an engine's frame and the canonical ones that were written when it came. `is_whole`: each
    /// frame is written at once, so that nothing waits.
    pub(super) fn compare(&mut self, frame: &str, written: &[&str], is_whole: bool) -> Vec<Effect> {
        let own = Reader::default().read(frame);
        let is_carried = !self.carried.is_empty();
        let mut before = std::mem::take(&mut self.carried);
        before.retain(|leaf| !own.iter().any(|other| other.path == leaf.path && !other.value.is_null()));
        before.extend(
            own.iter()
                .filter(|leaf| !before.iter().any(|other| other.path == leaf.path))
                .cloned()
                .collect::<Vec<_>>(),
        );
        let mut reader = Reader::default();
        let frames: Vec<_> =
            written.iter().map(|data| reader.read(data)).filter(|all| !all.is_empty()).collect();
        self.said += characters(&own);
        self.told += frames.iter().map(|leaves| characters(leaves)).sum::<usize>();
        let is_end = own.is_empty();
        let kind = |leaves: &[Leaf]| {
            let find = |path: &str| leaves.iter().find(|leaf| leaf.path == path);
            find("object").or_else(|| find("type")).and_then(|leaf| leaf.value.text().map(str::to_owned))
        };
        let (own, others): (Vec<_>, Vec<_>) = match kind(&own) {
            Some(name) => {
                // An object can become the frames of a stream.
                let name = name.trim_end_matches(".chunk");
                let family = |other: Option<String>| {
                    other.is_none_or(|other| other.trim_end_matches(".chunk") == name)
                };
                frames.into_iter().partition(|leaves| family(kind(leaves)))
            }
            _ => (frames, Vec::new()),
        };
        if before.is_empty() {
            return own.iter().map(|leaves| Effect::of(Kind::Inserted, says(leaves))).collect();
        }
        let names: Vec<_> = others.iter().filter_map(|leaves| kind(leaves)).collect();
        if !own.is_empty() || others.is_empty() {
            let mut effects = self.fields(&before, &own, is_whole);
            if is_carried || is_end {
                // The frames are of another kind than the one that came.
                let is_of_them = |effect: &Effect| match effect.kind {
                    Kind::AddedNull => true,
                    Kind::Added => {
                        effect.fields.iter().all(|field| is_envelope(&field.path)) || effect.is_of_nothing()
                    }
                    _ => false,
                };
                effects.retain(|effect| !is_of_them(effect));
            }
            effects.extend(names.iter().map(|name| Effect::of(Kind::Inserted, vec![Field::named(name)])));
            return effects;
        }
        // Events of another API.
        let said = says(&before).into_iter().map(|field| Field::named(&field.path)).collect::<Vec<_>>();
        let into: Vec<_> = names.iter().map(|name| Field::named(name)).collect();
        let fields = if said.is_empty() { vec![Field::named("frame")] } else { said };
        vec![Effect { kind: Kind::Renamed, fields, into, words: "" }]
    }

    fn fields(&mut self, before: &[Leaf], frames: &[Vec<Leaf>], is_whole: bool) -> Vec<Effect> {
        if frames.is_empty() {
            return self.unwritten(before, is_whole);
        }
        let after = joined(frames);
        let mut effects = Vec::new();
        let (mut dropped, mut nulls) = (Vec::new(), Vec::new());
        // Canonical fields for which the engine's frame has none of the same name.
        let mut new: Vec<&Leaf> =
            after.iter().filter(|leaf| !before.iter().any(|other| other.path == leaf.path)).collect();
        for leaf in before {
            let same = after.iter().find(|other| other.path == leaf.path);
            let is_said = leaf.is_text() && !leaf.value.is_empty();
            let copies = |others: &[&Leaf]| -> Vec<Field> {
                let equal =
                    others.iter().filter(|other| is_said && other.is_text() && other.value == leaf.value);
                equal.map(|other| Field::named(&other.path)).collect()
            };
            let copied = copies(&new);
            if !copied.is_empty() {
                let all: Vec<&Leaf> =
                    after.iter().filter(|other| other.path == leaf.path || new.contains(other)).collect();
                effects.push(Effect::into(Kind::Renamed, Field::named(&leaf.path), copies(&all)));
                new.retain(|other| !copied.iter().any(|field| field.path == other.path));
                continue;
            }
            match same {
                Some(same) if same.value == leaf.value => {}
                None if !is_whole && comes_later(leaf) => self.carried.push(leaf.clone()),
                Some(same) if !is_whole && comes_later(leaf) && same.value.is_null() => {
                    self.carried.push(leaf.clone());
                }
                Some(same) => {
                    effects.push(Effect::into(
                        Kind::Replaced,
                        Field::valued(leaf),
                        vec![Field::valued(same)],
                    ));
                }
                None if is_said && new.iter().any(|other| other.is_text()) => {
                    let into: Vec<_> =
                        new.iter().filter(|other| other.is_text()).map(|leaf| Field::valued(leaf)).collect();
                    effects.push(Effect::into(Kind::Became, Field::valued(leaf), into));
                    new.retain(|other| !other.is_text());
                }
                None if leaf.value.is_null() => {
                    // An object may have come in its place.
                    let within = format!("{}.", leaf.path);
                    if !after.iter().any(|other| other.path.starts_with(&within)) {
                        nulls.push(Field::named(&leaf.path));
                    }
                }
                None if is_said => dropped.push(Field::valued(leaf)),
                None if leaf.value.is_empty() => dropped.push(Field::valued(leaf)),
                None => dropped.push(Field::named(&leaf.path)),
            }
        }
        self.added(&new, before, &mut effects);
        let lists = [(Kind::Dropped, dropped), (Kind::DroppedNull, nulls)];
        effects.extend(lists.into_iter().flat_map(|(kind, fields)| each(kind, fields)));
        let mut apart: Vec<Field> = frames.iter().flat_map(|leaves| says(leaves)).collect();
        // The end of the choice gets its frame when nothing can come before it any more.
        let ends = self.carried.iter().filter(|leaf| name(&leaf.path) == "finish_reason").map(Field::valued);
        let count = apart.len();
        apart.extend(ends.filter(|_| count > 0));
        if frames.len() > 1 || apart.len() > count {
            effects.push(Effect::of(Kind::Split, apart));
        }
        effects
    }

    /// No canonical frame has come of it.
    fn unwritten(&mut self, before: &[Leaf], is_whole: bool) -> Vec<Effect> {
        if is_whole {
            return Vec::new();
        }
        let mut effects = Vec::new();
        let is_own = |leaf: &&Leaf| !leaf.is_envelope() || leaf.path == "system_fingerprint";
        for leaf in before.iter().filter(is_own).filter(|leaf| !leaf.value.is_empty()) {
            if comes_later(leaf) {
                self.carried.push(leaf.clone());
                continue;
            }
            if leaf.is_text() && !self.held.contains(&leaf.path) {
                self.held.push(leaf.path.clone());
            }
            effects.push(Effect::of(Kind::Held, vec![Field::valued(leaf)]));
        }
        effects
    }

    fn added(&mut self, new: &[&Leaf], before: &[Leaf], effects: &mut Vec<Effect>) {
        let (mut added, mut nulls) = (Vec::new(), Vec::new());
        for leaf in new {
            let waited = self.held.iter().any(|path| *path == leaf.path || is_text(path) && leaf.is_text());
            match &leaf.value {
                _ if leaf.value.is_null() => nulls.push(Field::named(&leaf.path)),
                _ if waited => {
                    self.held.retain(|path| *path != leaf.path);
                    effects.push(Effect::of(Kind::Released, vec![Field::valued(leaf)]));
                }
                Value::Text(_) => added.push(Field::valued(leaf)),
                Value::Other(_) => {
                    let field = Field::named(whole(&leaf.path, before));
                    if !added.contains(&field) {
                        added.push(field);
                    }
                }
            }
        }
        let lists = [(Kind::Added, added), (Kind::AddedNull, nulls)];
        effects.extend(lists.into_iter().flat_map(|(kind, fields)| each(kind, fields)));
    }
}

/// The object that an added field of token counts is of, if all of it was added.
fn whole<'p>(path: &'p str, before: &[Leaf]) -> &'p str {
    let outer = path.rsplit_once('.').map(|(outer, _)| outer).filter(|outer| outer.starts_with("usage."));
    let is_new = |outer: &str| {
        let within = |leaf: &Leaf| leaf.path.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.'));
        !before.iter().any(within)
    };
    outer.filter(|outer| is_new(outer)).unwrap_or(path)
}

/// Whether a field is written when it is certain that nothing comes before it any more.
fn comes_later(leaf: &Leaf) -> bool {
    let path = leaf.path.as_str();
    !leaf.value.is_null() && (name(path) == "finish_reason" || path == "usage" || path.starts_with("usage."))
}

/// One effect for each field: those of one rule are put together later.
fn each(kind: Kind, fields: Vec<Field>) -> impl Iterator<Item = Effect> {
    fields.into_iter().map(move |field| Effect::of(kind, vec![field]))
}

/// The fields of several frames as if they were one: pieces of text are joined, and of other values the first that is not null
/// counts.
fn joined(frames: &[Vec<Leaf>]) -> Vec<Leaf> {
    let mut all: Vec<Leaf> = Vec::new();
    for leaf in frames.iter().flatten() {
        match all.iter_mut().find(|known| known.path == leaf.path) {
            None => all.push(leaf.clone()),
            Some(known) => match (&mut known.value, &leaf.value) {
                (Value::Text(text), Value::Text(more)) if leaf.is_text() => text.push_str(more),
                (known, value) if known.is_null() => *known = value.clone(),
                _ => {}
            },
        }
    }
    all
}

/// What a frame says beside what all say; of two names of the same text the first, of an object its name.
fn says(leaves: &[Leaf]) -> Vec<Field> {
    let mut fields: Vec<Field> = Vec::new();
    for leaf in leaves.iter().filter(|leaf| !leaf.is_envelope() && !leaf.value.is_null()) {
        let first = leaf.path.split('.').next().unwrap_or_default();
        let field = match first {
            "usage" | "tool_calls" | "function_call" | "error" | "response" => Field::named(first),
            _ if first.starts_with("tool_calls[") => Field::named(first),
            _ => Field::valued(leaf),
        };
        let is_known = fields
            .iter()
            .any(|known| known.path == field.path || field.value.is_some() && known.value == field.value);
        if !is_known {
            fields.push(field);
        }
    }
    match leaves.iter().find(|leaf| leaf.path == "type") {
        Some(kind) if fields.is_empty() => vec![Field::valued(kind)],
        _ => fields,
    }
}

/// The characters that a model said in a frame; reasoning counts once, whatever names it has. Events of Responses that repeat a
/// whole text count nothing.
fn characters(leaves: &[Leaf]) -> usize {
    let of_type = leaves.iter().find(|leaf| leaf.path == "type").and_then(|leaf| leaf.value.text());
    if of_type.is_some_and(|kind| kind.starts_with("response.")) {
        let delta = leaves.iter().find(|leaf| leaf.path == "delta").and_then(|leaf| leaf.value.text());
        return delta.map_or(0, |text| text.chars().count());
    }
    let has_both = |leaf: &Leaf| {
        name(&leaf.path) == "reasoning"
            && leaves
                .iter()
                .any(|other| name(&other.path) == "reasoning_content" && other.value == leaf.value)
    };
    let said = leaves.iter().filter(|leaf| leaf.is_text() && !has_both(leaf));
    said.filter_map(|leaf| leaf.value.text()).map(|text| text.chars().count()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(comparer: &mut Comparer, frame: &str, written: &[&str]) -> Vec<String> {
        comparer.compare(frame, written, false).iter().map(Effect::to_string).collect()
    }

    #[test]
    fn differences_are_told_by_field() {
        for (frame, written, expected) in [
            (
                r#"{"id":"a","choices":[{"delta":{"reasoning":"We"},"token_ids":[1],"matched_stop":null}]}"#,
                &[r#"{"id":"chatcmpl-a","choices":[{"delta":{"reasoning_content":"We","reasoning":"We"}}]}"#]
                    [..],
                &[
                    r#"id "a" → "chatcmpl-a""#,
                    "reasoning → reasoning_content, reasoning",
                    "dropped: token_ids",
                    "dropped: null fields matched_stop",
                ][..],
            ),
            (
                r#"{"choices":[{"delta":{"content":"4"},"finish_reason":"eos"}]}"#,
                &[
                    r#"{"choices":[{"delta":{"content":"4"},"finish_reason":null}]}"#,
                    r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
                ],
                &[
                    r#"finish_reason "eos" → "stop""#,
                    r#"moved to frames of their own: content "4", finish_reason "stop""#,
                ],
            ),
            (
                r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
                &[r#"{"choices":[{"delta":{"role":"assistant"},"logprobs":null}]}"#],
                &["added: null fields logprobs", r#"dropped: content """#],
            ),
            (
                r#"{"usage":{"prompt_tokens":1,"prompt_tokens_details":null}}"#,
                &[r#"{"usage":{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":0}}}"#],
                &["added: usage.prompt_tokens_details"],
            ),
            (
                r#"{"choices":[{"delta":{"content":"a</think>b"}}]}"#,
                &[r#"{"choices":[{"delta":{"content":"b"}}]}"#],
                &[r#"content "a</think>b" → "b""#],
            ),
            (
                "[DONE]",
                &[r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#, "[DONE]"],
                &[r#"a frame more: finish_reason "stop""#],
            ),
            (
                r#"{"object":"chat.completion.chunk","choices":[{"delta":{"content":"a"}}]}"#,
                &[
                    r#"{"type":"response.created","response":{"id":"b"}}"#,
                    r#"{"type":"response.output_text.delta","delta":"a"}"#,
                ],
                &["content → response.created, response.output_text.delta"],
            ),
            (
                r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"a"}]}}]}"#,
                &[r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"call_a"}]}}]}"#],
                &["tool_calls.index 1 → 0", r#"tool_calls.id "a" → "call_a""#],
            ),
        ] {
            assert_eq!(told(&mut Comparer::default(), frame, written), expected, "{frame}");
        }
    }

    #[test]
    fn what_waits_is_told_twice() {
        let mut comparer = Comparer::default();
        let chunk =
            |field: &str, text: &str| format!(r#"{{"choices":[{{"delta":{{"{field}":"{text}"}}}}]}}"#);
        assert_eq!(told(&mut comparer, &chunk("content", "<th"), &[]), [r#"held back: content "<th""#]);
        let written = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
        let text = chunk("content", "<th");
        let finish = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
        assert_eq!(
            told(&mut comparer, finish, &[&text, written]),
            [
                r#"no longer held back: content "<th""#,
                r#"moved to frames of their own: content "<th", finish_reason "stop""#
            ]
        );
        assert_eq!((comparer.said, comparer.told), (3, 3));
    }
}
