//! Comparison of an engine's frame with the canonical frames made from it, field by field.
//!
//! Takes: the data of both. Gives: [`Effect`]s. Remembers: which fields are held back until a later frame decides
//! how they are written. Never: relies on a rule's description; only the bytes count.

use super::leaves::{Leaf, LeafReader, Value, is_envelope, is_text, name};
use serde::Serialize;
use std::fmt;

/// Kind of difference between the engine's frame and the canonical ones. The JSON output of `explain` contains its
/// name in snake case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A field has a different value.
    Replaced,
    /// A value is under another name, or under several.
    Renamed,
    /// A text is under another name, with a different value.
    Became,
    /// A field with a value was removed.
    Dropped,
    /// A null field was removed.
    DroppedNull,
    /// A field was added that the engine did not send.
    Added,
    /// A null field was added that the engine did not send.
    AddedNull,
    /// Fields of one engine frame were spread over several frames.
    Split,
    /// A frame was added for which the engine sent none.
    Inserted,
    /// The field is not written yet: a later frame decides how.
    Held,
    /// A field held back earlier is now written.
    Released,
    /// Change without a visible field; the rule's description stands in for it.
    Words,
}

/// Field of a difference: path, and the value where it matters to the reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Path of the field, as in `Leaf::path`.
    pub path: String,
    /// Value as JSON, cut short.
    pub value: Option<String>,
}

impl Field {
    fn named(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            value: None,
        }
    }

    /// Creates a field with its value, for differences in which the value matters.
    fn valued(leaf: &Leaf) -> Self {
        Self {
            path: leaf.path.clone(),
            value: Some(leaf.value.shown()),
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        self.value
            .as_ref()
            .map_or(Ok(()), |value| write!(f, " {value}"))
    }
}

/// Difference between the engine's frame and the frames that the client receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Kind of difference, which decides how the fields are to be read.
    pub kind: Kind,
    /// Fields as the engine sent them; for additions, the canonical fields.
    pub fields: Vec<Field>,
    /// Fields that now carry the value, where they differ from `fields`.
    pub into: Vec<Field>,
    /// Description by the rule, for a change without a visible field.
    pub words: &'static str,
}

impl Effect {
    fn of(kind: Kind, fields: Vec<Field>) -> Self {
        Self {
            kind,
            fields,
            into: Vec::new(),
            words: "",
        }
    }

    /// Returns true if the effect concerns only null or empty fields, which need no rule to explain them.
    pub(super) fn is_of_nothing(&self) -> bool {
        let is_empty = |field: &Field| {
            field
                .value
                .as_deref()
                .is_some_and(|value| ["\"\"", "[]", "{}"].contains(&value))
        };
        match self.kind {
            Kind::DroppedNull | Kind::AddedNull => true,
            Kind::Dropped | Kind::Added => self.fields.iter().all(is_empty),
            _ => false,
        }
    }

    fn into(kind: Kind, field: Field, into: Vec<Field>) -> Self {
        Self {
            kind,
            fields: vec![field],
            into,
            words: "",
        }
    }

    /// Creates an effect described by a rule's text alone, for a rule whose work no field shows.
    pub(super) fn words(words: &'static str) -> Self {
        Self {
            kind: Kind::Words,
            fields: Vec::new(),
            into: Vec::new(),
            words,
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |fields: &[Field]| {
            fields
                .iter()
                .map(Field::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        };
        let (fields, into) = (list(&self.fields), list(&self.into));
        match self.kind {
            Kind::Replaced => {
                let after = self
                    .into
                    .first()
                    .and_then(|field| field.value.as_deref())
                    .unwrap_or_default();
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

/// Compares the frames of one answer with their canonical form, and counts the characters on both sides.
#[derive(Debug, Default)]
pub(super) struct Comparer {
    /// Paths of text fields held back until a later frame decides how they are written.
    held: Vec<String>,
    /// Finish reason and token counts of earlier frames, which are written only when no more content can precede
    /// them.
    carried: Vec<Leaf>,
    /// Characters of model output in the engine's frames.
    pub(super) engine_characters: usize,
    /// Characters of model output in the canonical frames.
    pub(super) canonical_characters: usize,
}

impl Comparer {
    /// Returns true if a field of an earlier frame has not been written yet.
    pub(super) fn is_waiting(&self) -> bool {
        !self.carried.is_empty()
    }

    /// Returns the differences between an engine's frame and the canonical frames written when it arrived.
    /// `is_whole`: the whole frame is written at once, so nothing is held back.
    pub(super) fn compare(&mut self, frame: &str, written: &[&str], is_whole: bool) -> Vec<Effect> {
        let own = LeafReader::default().read(frame);
        let is_carried = !self.carried.is_empty();
        let mut before = std::mem::take(&mut self.carried);
        before.retain(|leaf| {
            !own.iter()
                .any(|other| other.path == leaf.path && !other.value.is_null())
        });
        let is_new = |leaf: &&Leaf| !before.iter().any(|other| other.path == leaf.path);
        let new: Vec<_> = own.iter().filter(is_new).cloned().collect();
        before.extend(new);
        let mut reader = LeafReader::default();
        let frames: Vec<_> = written
            .iter()
            .map(|data| reader.read(data))
            .filter(|all| !all.is_empty())
            .collect();
        self.engine_characters += characters(&own);
        self.canonical_characters += frames
            .iter()
            .map(|leaves| characters(leaves))
            .sum::<usize>();
        let is_end = own.is_empty();
        let kind = |leaves: &[Leaf]| {
            find(leaves, "object")
                .or_else(|| find(leaves, "type"))?
                .value
                .text()
                .map(str::to_owned)
        };
        let (own, others): (Vec<_>, Vec<_>) = match kind(&own) {
            Some(name) => {
                // A single object may become stream frames, whose name ends in `.chunk`.
                let name = name.trim_end_matches(".chunk");
                let is_alike = |other: String| other.trim_end_matches(".chunk") == name;
                frames
                    .into_iter()
                    .partition(|leaves| kind(leaves).is_none_or(is_alike))
            }
            _ => (frames, Vec::new()),
        };
        if before.is_empty() {
            return own
                .iter()
                .map(|leaves| Effect::of(Kind::Inserted, distinguishing_fields(leaves)))
                .collect();
        }
        let names: Vec<_> = others.iter().filter_map(|leaves| kind(leaves)).collect();
        if !own.is_empty() || others.is_empty() {
            let mut effects = self.fields(&before, &own, is_whole);
            if is_carried || is_end {
                // Carried fields arrive in another kind of frame: its envelope and nulls are no changes.
                let is_of_them = |effect: &Effect| match effect.kind {
                    Kind::AddedNull => true,
                    Kind::Added => {
                        effect.fields.iter().all(|field| is_envelope(&field.path))
                            || effect.is_of_nothing()
                    }
                    _ => false,
                };
                effects.retain(|effect| !is_of_them(effect));
            }
            effects.extend(
                names
                    .iter()
                    .map(|name| Effect::of(Kind::Inserted, vec![Field::named(name)])),
            );
            return effects;
        }
        // The output consists of events of another API.
        let said = distinguishing_fields(&before);
        let mut fields: Vec<_> = said.iter().map(|field| Field::named(&field.path)).collect();
        if fields.is_empty() {
            fields.push(Field::named("frame"));
        }
        let into = names.iter().map(|name| Field::named(name)).collect();
        vec![Effect {
            kind: Kind::Renamed,
            fields,
            into,
            words: "",
        }]
    }

    fn fields(&mut self, before: &[Leaf], frames: &[Vec<Leaf>], is_whole: bool) -> Vec<Effect> {
        if frames.is_empty() {
            return self.unwritten(before, is_whole);
        }
        let after = joined(frames);
        let mut effects = Vec::new();
        let (mut dropped, mut nulls) = (Vec::new(), Vec::new());
        // Canonical fields without a namesake in the engine's frame.
        let mut new: Vec<&Leaf> = after
            .iter()
            .filter(|leaf| !before.iter().any(|other| other.path == leaf.path))
            .collect();
        for leaf in before {
            let same = find(&after, &leaf.path);
            let is_said = leaf.is_text() && !leaf.value.is_empty();
            let copies = |others: &[&Leaf]| -> Vec<Field> {
                let equal = others
                    .iter()
                    .filter(|other| is_said && other.is_text() && other.value == leaf.value);
                equal.map(|other| Field::named(&other.path)).collect()
            };
            let copied = copies(&new);
            if !copied.is_empty() {
                let all: Vec<&Leaf> = after
                    .iter()
                    .filter(|other| other.path == leaf.path || new.contains(other))
                    .collect();
                effects.push(Effect::into(
                    Kind::Renamed,
                    Field::named(&leaf.path),
                    copies(&all),
                ));
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
                    let into: Vec<_> = new
                        .iter()
                        .filter(|other| other.is_text())
                        .map(|leaf| Field::valued(leaf))
                        .collect();
                    effects.push(Effect::into(Kind::Became, Field::valued(leaf), into));
                    new.retain(|other| !other.is_text());
                }
                None if leaf.value.is_null() => {
                    // An object may have replaced the null.
                    let within = format!("{}.", leaf.path);
                    if !after.iter().any(|other| other.path.starts_with(&within)) {
                        nulls.push(Field::named(&leaf.path));
                    }
                }
                None if is_said || leaf.value.is_empty() => dropped.push(Field::valued(leaf)),
                None => dropped.push(Field::named(&leaf.path)),
            }
        }
        self.added(&new, before, &mut effects);
        let lists = [(Kind::Dropped, dropped), (Kind::DroppedNull, nulls)];
        effects.extend(
            lists
                .into_iter()
                .flat_map(|(kind, fields)| one_effect_each(kind, fields)),
        );
        let mut apart: Vec<Field> = frames
            .iter()
            .flat_map(|leaves| distinguishing_fields(leaves))
            .collect();
        // The finish reason gets its own frame once no more content can precede it.
        let ends = self
            .carried
            .iter()
            .filter(|leaf| name(&leaf.path) == "finish_reason")
            .map(Field::valued);
        let count = apart.len();
        apart.extend(ends.filter(|_| count > 0));
        if frames.len() > 1 || apart.len() > count {
            effects.push(Effect::of(Kind::Split, apart));
        }
        effects
    }

    /// Handles a frame that produced no canonical frame yet: its fields are carried or held back.
    fn unwritten(&mut self, before: &[Leaf], is_whole: bool) -> Vec<Effect> {
        if is_whole {
            return Vec::new();
        }
        let mut effects = Vec::new();
        let is_own = |leaf: &&Leaf| !leaf.is_envelope() || leaf.path == "system_fingerprint";
        for leaf in before
            .iter()
            .filter(is_own)
            .filter(|leaf| !leaf.value.is_empty())
        {
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
            let waited = self
                .held
                .iter()
                .any(|path| *path == leaf.path || is_text(path) && leaf.is_text());
            match &leaf.value {
                _ if leaf.value.is_null() => nulls.push(Field::named(&leaf.path)),
                _ if waited => {
                    self.held.retain(|path| *path != leaf.path);
                    effects.push(Effect::of(Kind::Released, vec![Field::valued(leaf)]));
                }
                Value::Text(_) => added.push(Field::valued(leaf)),
                Value::Other(_) => {
                    let field = Field::named(added_object(&leaf.path, before));
                    if !added.contains(&field) {
                        added.push(field);
                    }
                }
            }
        }
        let lists = [(Kind::Added, added), (Kind::AddedNull, nulls)];
        effects.extend(
            lists
                .into_iter()
                .flat_map(|(kind, fields)| one_effect_each(kind, fields)),
        );
    }
}

/// Returns the path of the enclosing token-count object if the object is new as a whole, else `path` itself.
fn added_object<'p>(path: &'p str, before: &[Leaf]) -> &'p str {
    let outer = path
        .rsplit_once('.')
        .map(|(outer, _)| outer)
        .filter(|outer| outer.starts_with("usage."));
    let is_new = |outer: &str| {
        let within = |leaf: &Leaf| {
            leaf.path
                .strip_prefix(outer)
                .is_some_and(|rest| rest.starts_with('.'))
        };
        !before.iter().any(within)
    };
    outer.filter(|outer| is_new(outer)).unwrap_or(path)
}

fn find<'l>(leaves: &'l [Leaf], path: &str) -> Option<&'l Leaf> {
    leaves.iter().find(|leaf| leaf.path == path)
}

/// Returns true for fields that are written only when no more content can precede them: finish reason and usage.
fn comes_later(leaf: &Leaf) -> bool {
    let path = leaf.path.as_str();
    !leaf.value.is_null()
        && (name(path) == "finish_reason" || path == "usage" || path.starts_with("usage."))
}

/// Creates one effect per field; effects of the same rule are merged later.
fn one_effect_each(kind: Kind, fields: Vec<Field>) -> impl Iterator<Item = Effect> {
    fields
        .into_iter()
        .map(move |field| Effect::of(kind, vec![field]))
}

/// Merges the fields of several frames: pieces of text are joined; for other values the first that is not null
/// wins.
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

/// Returns the fields that distinguish a frame, without the envelope. Of two fields with equal text the first
/// stays; objects appear by name only.
fn distinguishing_fields(leaves: &[Leaf]) -> Vec<Field> {
    let mut fields: Vec<Field> = Vec::new();
    for leaf in leaves
        .iter()
        .filter(|leaf| !leaf.is_envelope() && !leaf.value.is_null())
    {
        let first = leaf.path.split('.').next().unwrap_or_default();
        let field = match first {
            "usage" | "tool_calls" | "function_call" | "error" | "response" => Field::named(first),
            _ if first.starts_with("tool_calls[") => Field::named(first),
            _ => Field::valued(leaf),
        };
        let is_known = fields.iter().any(|known| {
            known.path == field.path || field.value.is_some() && known.value == field.value
        });
        if !is_known {
            fields.push(field);
        }
    }
    match find(leaves, "type") {
        Some(kind) if fields.is_empty() => vec![Field::valued(kind)],
        _ => fields,
    }
}

/// Counts the characters of model output in a frame. Reasoning under two names counts once; Responses events that
/// repeat a whole text count nothing.
fn characters(leaves: &[Leaf]) -> usize {
    let text = |path: &str| find(leaves, path).and_then(|leaf| leaf.value.text());
    if text("type").is_some_and(|kind| kind.starts_with("response.")) {
        return text("delta").map_or(0, |text| text.chars().count());
    }
    let has_both = |leaf: &Leaf| {
        name(&leaf.path) == "reasoning"
            && leaves
                .iter()
                .any(|other| name(&other.path) == "reasoning_content" && other.value == leaf.value)
    };
    let said = leaves
        .iter()
        .filter(|leaf| leaf.is_text() && !has_both(leaf));
    said.filter_map(|leaf| leaf.value.text())
        .map(|text| text.chars().count())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(comparer: &mut Comparer, frame: &str, written: &[&str]) -> Vec<String> {
        comparer
            .compare(frame, written, false)
            .iter()
            .map(Effect::to_string)
            .collect()
    }

    #[test]
    fn differences_are_told_by_field() {
        for (frame, written, expected) in [
            (
                r#"{"id":"a","choices":[{"delta":{"reasoning":"We"},"token_ids":[1],"matched_stop":null}]}"#,
                &[
                    r#"{"id":"chatcmpl-a","choices":[{"delta":{"reasoning_content":"We","reasoning":"We"}}]}"#,
                ][..],
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
                &[
                    r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
                    "[DONE]",
                ],
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
            assert_eq!(
                told(&mut Comparer::default(), frame, written),
                expected,
                "{frame}"
            );
        }
    }

    #[test]
    fn what_waits_is_told_twice() {
        let mut comparer = Comparer::default();
        let chunk = |field: &str, text: &str| {
            format!(r#"{{"choices":[{{"delta":{{"{field}":"{text}"}}}}]}}"#)
        };
        assert_eq!(
            told(&mut comparer, &chunk("content", "<th"), &[]),
            [r#"held back: content "<th""#]
        );
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
        assert_eq!(
            (comparer.engine_characters, comparer.canonical_characters),
            (3, 3)
        );
    }
}
