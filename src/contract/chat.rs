//! Grammar of Chat Completions and Completions streams (wire-format 2.3, 2.5, 2.11, 3.2).

use super::rule::Rule;
use super::schema::{error, satisfies};
use super::violation::{Broken, keeps};
use crate::tree::{Members, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Stream of chunks, as far as it has come.
#[derive(Debug)]
pub(super) struct Chunks {
    /// Names of the schemas of a chunk and of a whole object.
    schemas: [&'static str; 2],
    /// True if choices begin with a role.
    has_roles: bool,
    /// Members that all chunks share.
    envelope: Option<[Value; 4]>,
    choices: BTreeMap<u64, Choice>,
    stage: Stage,
}

/// Part of the stream that is expected next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Chunks,
    /// After the usage frame.
    Counted,
    /// After an error frame.
    Failed,
    Done,
}

/// Choice, as far as it has come.
#[derive(Debug, Default)]
struct Choice {
    has_role: bool,
    is_finished: bool,
    calls: BTreeSet<u64>,
}

impl Chunks {
    pub(super) fn chat() -> Self {
        Self::of(["CreateChatCompletionStreamResponse", "CreateChatCompletionResponse"], true)
    }

    pub(super) fn completions() -> Self {
        Self::of(["CreateCompletionResponse"; 2], false)
    }

    fn of(schemas: [&'static str; 2], has_roles: bool) -> Self {
        Self { schemas, has_roles, envelope: None, choices: BTreeMap::new(), stage: Stage::Chunks }
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::Done | Stage::Failed)
    }

    /// Checks a whole object.
    pub(super) fn object(&self, mut value: Value) -> Result<(), Broken> {
        let [_, schema] = self.schemas;
        fill_first_logprobs(&mut value);
        satisfies(schema, &value)
    }

    /// Checks the end mark.
    pub(super) fn done(&mut self) -> Result<(), Broken> {
        let before = std::mem::replace(&mut self.stage, Stage::Done);
        keeps(before != Stage::Done, Rule::AfterEnd, "[DONE]")?;
        let is_finished = self.choices.values().all(|choice| choice.is_finished);
        keeps(before == Stage::Failed || is_finished, Rule::Finish, "[DONE] before the finish of a choice")
    }

    /// Checks a chunk or an error frame.
    pub(super) fn chunk(&mut self, name: &str, mut value: Value) -> Result<(), Broken> {
        if value.get("error").is_some() {
            keeps(!self.has_ended(), Rule::AfterEnd, "error")?;
            self.stage = Stage::Failed;
            return error(&value);
        }
        fill_first_logprobs(&mut value);
        let value = &value;
        keeps(name.is_empty(), Rule::Framing, "name")?;
        keeps(!self.has_ended(), Rule::AfterEnd, "chunk")?;
        let [schema, _] = self.schemas;
        satisfies(schema, value)?;
        self.same_envelope(value)?;
        let choices = value.member("choices").as_list().unwrap_or_default();
        keeps(self.stage == Stage::Chunks, Rule::Usage, "chunk after the usage frame")?;
        if choices.is_empty() && value.member("usage").is_object() {
            self.stage = Stage::Counted;
        }
        choices.iter().try_for_each(|choice| self.choice(choice))
    }

    fn same_envelope(&mut self, value: &Value) -> Result<(), Broken> {
        let this = ["id", "created", "model", "object"].map(|key| value.member(key).clone());
        let first = self.envelope.get_or_insert_with(|| this.clone());
        keeps(*first == this, Rule::Envelope, "id, created, model or object")
    }

    fn choice(&mut self, choice: &Value) -> Result<(), Broken> {
        let number = choice.member("index").as_whole().unwrap_or_default();
        let known = self.choices.entry(number).or_default();
        keeps(!known.is_finished, Rule::Finish, "choice after its finish")?;
        if !choice.member("finish_reason").is_null() {
            known.is_finished = true;
        }
        if !self.has_roles {
            return Ok(());
        }
        let has_role = choice.member("delta").member("role").is_text();
        keeps(has_role != known.has_role, Rule::Role, "delta.role")?;
        known.has_role = true;
        let calls = choice.member("delta").member("tool_calls").as_list();
        calls.into_iter().flatten().try_for_each(|call| known.call(call))
    }
}

/// Fills the log probability of the first token of a prompt that is echoed. The service sends null there, which its
/// published schema does not name (2.11).
fn fill_first_logprobs(value: &mut Value) {
    let Some(Value::List(choices)) = value.member_mut("choices") else { return };
    for logprobs in choices.iter_mut().filter_map(|choice| choice.member_mut("logprobs")) {
        for (key, valid) in
            [("token_logprobs", Value::Whole(0)), ("top_logprobs", Value::Object(Members::default()))]
        {
            let Some(Value::List(list)) = logprobs.member_mut(key) else { continue };
            if let Some(first) = list.first_mut().filter(|first| first.is_null()) {
                *first = valid;
            }
        }
    }
}

impl Choice {
    fn call(&mut self, call: &Value) -> Result<(), Broken> {
        let number = call.member("index").as_whole().unwrap_or_default();
        if self.calls.contains(&number) {
            let repeats = ["id", "type"].into_iter().any(|key| call.get(key).is_some());
            let names = call.at("/function/name").or_else(|| call.at("/custom/name"));
            return keeps(!repeats && names.is_none(), Rule::ToolCall, "id, type or name repeated");
        }
        keeps(number == self.calls.len() as u64, Rule::ToolCall, "index")?;
        self.calls.insert(number);
        let kind = call.member("type").as_text().unwrap_or_default();
        let is_complete = call.member("id").is_text() && call.member(kind).member("name").is_text();
        keeps(is_complete, Rule::ToolCall, "id, type or name missing")
    }
}
