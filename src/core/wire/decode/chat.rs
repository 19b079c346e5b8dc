//! Content of a choice of Chat Completions: the keys of a `delta`, or of a whole `message`.
//!
//! Evidence: fixtures `vllm/*` (reasoning, null and empty keys beside each other) and `sglang/*` (two chunk shapes
//! in one stream); older names from engines A.

use super::parts::Parts;
use super::{BadField, ChoiceBody, ChoiceEmitter, known_reason};
use crate::json::{Few, Raw, Text, object, read, write_compact};
use crate::wire::event::{self, CallSource, PartName, Reason, ToolEntry, ToolKind};
use crate::wire::options::PromoteReasoning;
use crate::wire::rule::Rule;
use bytes::BytesMut;

object! {
    /// Delta of a chunk or message of a whole object, under all known names of its keys.
    pub(super) struct DeltaBody<'a> {
        role: Text<'a> = "role",
        content: Raw<'a> = "content",
        reasoning_content: Text<'a> = "reasoning_content",
        reasoning: Raw<'a> = "reasoning",
        thinking: Text<'a> = "thinking",
        reasoning_text: Text<'a> = "reasoning_text",
        refusal: Text<'a> = "refusal",
        tool_calls: Few<CallBody<'a>> = "tool_calls",
        function_call: Function<'a> = "function_call",
        annotations: Raw<'a> = "annotations",
        audio: Raw<'a> = "audio",
    }
}

object! {
    /// Entry of `tool_calls`. Other keys that engines send in it (`index` of a whole call) have no meaning.
    pub(super) struct CallBody<'a> {
        index: u64 = "index",
        id: Text<'a> = "id",
        kind: Text<'a> = "type",
        function: Function<'a> = "function",
        custom: Function<'a> = "custom",
    }
}

object! {
    pub(super) struct Function<'a> {
        name: Text<'a> = "name",
        arguments: Raw<'a> = "arguments" | "input",
    }
}

object! {
    /// Reasoning as an object, as OpenRouter sends it.
    struct ReasoningBody<'a> {
        text: Text<'a> = "text",
        content: Text<'a> = "content",
    }
}

/// Name of a list that repeats the reasoning in parts, or has it alone. It may hold more than text (signatures,
/// encrypted content), so it stays an unknown field.
const REASONING_DETAILS: &str = "reasoning_details";

/// Emits the content of the choice's delta or message in canonical order (wire-format 2.3 rule 3). Fails if
/// content or reasoning has the wrong type, or if the choice has the text of a legacy completion in their place.
pub(super) fn pieces<'a>(
    choice: &mut ChoiceBody<'a>,
    emitter: &mut ChoiceEmitter<'a, '_>,
) -> Result<(), BadField> {
    let whole = choice.delta.is_none();
    let reason = known_reason(choice.finish_reason.filter(|_| whole));
    let may_promote = reason == Some(Reason::Stop);
    if reason == Some(Reason::Length) {
        emitter.to.cut_text(emitter.choice);
    }
    let Some(delta) = choice.delta.as_mut().or(choice.message.as_mut()) else {
        return if choice.text.is_none_or(|text| text.is_empty()) {
            Ok(())
        } else {
            Err(BadField)
        };
    };
    if !whole {
        // Streams have no frame for these parts of whole messages: they become unknown fields.
        for (key, part) in [
            ("annotations", delta.annotations.take()),
            ("audio", delta.audio.take()),
        ] {
            part.into_iter()
                .for_each(|part| delta.rest.keep(key.into(), part));
        }
    }
    let parts = delta.parts(emitter)?;
    emitter.attach_delta_extras(delta);
    let content = delta.content.and_then(Text::of).or_else(|| parts.text());
    let reasoning = delta.reasoning_text_of(&parts, emitter)?;
    let continues = emitter.reading.continues_text;
    let (continued, reasoning) = if continues {
        (reasoning, None)
    } else {
        (None, reasoning)
    };
    if continued.is_some() {
        emitter.to.count_rule(Rule::ReasoningPromoted);
    }
    let may_promote = may_promote && delta.has_only_text();
    let promotes = emitter.reading.promote_reasoning;
    let is_alone = may_promote && content.is_none_or(|text| text.is_empty());
    let unthinking = emitter.reading.unthinking;
    let promoted =
        reasoning.filter(|text| is_alone && (unthinking || promotes.takes(&text.decoded())));
    if may_promote && promotes == PromoteReasoning::Always && reasoning.is_none() {
        emitter.to.only_text(emitter.choice);
    }
    match promoted {
        Some(_) => emitter.to.count_rule(Rule::ReasoningPromoted),
        None => {
            // In a stream it may be text, which is not hidden.
            let may_be_text = unthinking || emitter.reading.answers_json;
            let hides = emitter.reading.hide_reasoning && (whole || !may_be_text);
            emitter.emit_text(reasoning.filter(|_| !hides), event::Delta::Reasoning)
        }
    }
    emitter.emit_text(continued, event::Delta::Content);
    match promoted.or(content) {
        Some(content) if content.is_empty() && whole && continued.is_none() => {
            emitter.emit_part(PartName::EmptyContent, None)
        }
        content => emitter.emit_text(content, event::Delta::Content),
    }
    emitter.emit_text(delta.refusal, event::Delta::Refusal);
    for (name, data) in [
        (PartName::Annotations, delta.annotations),
        (PartName::Audio, delta.audio),
    ] {
        if data.is_some() {
            emitter.emit_part(name, data);
        }
    }
    for call in delta.tool_calls.iter_mut().flat_map(Few::iter_mut) {
        emit_call(call, whole, emitter);
    }
    if let Some(function) = &delta.function_call {
        let (name, arguments) = (function.name, function.arguments.and_then(Text::of));
        if [name, arguments]
            .iter()
            .flatten()
            .any(|text| !text.is_empty())
        {
            emitter.emit(event::Delta::FunctionCall { name, arguments });
        }
    }
    if delta.role.is_some() && content.is_some_and(|content| content.is_empty()) {
        emitter.to.count_rule(Rule::RoleContent);
    }
    Ok(())
}

impl<'a> DeltaBody<'a> {
    /// Returns true if the message has nothing other than reasoning and content.
    fn has_only_text(&self) -> bool {
        self.refusal.is_none_or(|text| text.is_empty())
            && self.tool_calls.as_ref().is_none_or(Few::is_empty)
            && self.function_call.is_none()
            && self.audio.is_none()
    }

    /// Returns true if it has no members at all.
    pub(super) fn is_blank(&self) -> bool {
        let texts = [
            self.role,
            self.reasoning_content,
            self.thinking,
            self.reasoning_text,
        ];
        texts.iter().all(Option::is_none)
            && self.content.is_none()
            && self.refusal.is_none()
            && self.reasoning.is_none()
            && self.tool_calls.is_none()
            && self.function_call.is_none()
            && self.audio.is_none()
            && self.rest.is_empty()
    }

    /// Returns the texts that come in lists of parts. Removes the details of reasoning that the client does not get.
    /// Fails if `content` is neither text nor a list of parts.
    fn parts(&mut self, emitter: &mut ChoiceEmitter<'a, '_>) -> Result<Parts, BadField> {
        let list = self.content.filter(|raw| Text::of(*raw).is_none());
        let mut parts = list
            .map(|list| Parts::of_content(list, emitter.to))
            .transpose()?
            .unwrap_or_default();
        let details = self
            .rest
            .iter()
            .filter(|(key, _)| *key == REASONING_DETAILS)
            .last();
        parts.add_details(details.map(|(_, raw)| raw));
        if emitter.reading.hide_reasoning {
            self.rest.take(REASONING_DETAILS);
        }
        Ok(parts)
    }

    /// Returns the reasoning text: that of the first non-empty name in the order of wire-format 2.4. Copies under
    /// other names are ignored. Fails if `reasoning` is neither text nor an object.
    fn reasoning_text_of<'p>(
        &self,
        parts: &'p Parts,
        emitter: &mut ChoiceEmitter<'a, '_>,
    ) -> Result<Option<Text<'p>>, BadField>
    where
        'a: 'p,
    {
        let object: ReasoningBody<'_>;
        let (text, content) = match self.reasoning {
            Some(raw) => match Text::of(raw) {
                Some(text) => (Some(text), None),
                None => {
                    object = read(raw.get()).map_err(|_| BadField)?;
                    (object.text, object.content)
                }
            },
            None => (None, None),
        };
        let names = [
            self.reasoning_content,
            text,
            content,
            self.thinking,
            self.reasoning_text,
            parts.reasoning(),
        ];
        let found = names
            .iter()
            .flatten()
            .find(|text| !text.is_empty())
            .copied();
        if found.is_some() && self.reasoning_content.is_none_or(|text| text.is_empty()) {
            emitter.to.count_rule(Rule::ReasoningName);
        }
        Ok(found)
    }
}

fn emit_call<'a>(call: &CallBody<'a>, whole: bool, emitter: &mut ChoiceEmitter<'a, '_>) {
    let kind = match (&call.function, &call.custom) {
        (None, Some(_)) => ToolKind::Custom,
        _ => ToolKind::Function,
    };
    let called = call.function.as_ref().or(call.custom.as_ref());
    let name = called.and_then(|called| called.name);
    let mut serialised = BytesMut::new();
    let args = called.and_then(|called| called.arguments).and_then(|raw| {
        Text::of(raw).or_else(|| {
            // Arguments as a JSON value: serialised compactly, in their own order (wire-format 2.5 rule 6).
            emitter.to.count_rule(Rule::ToolArguments);
            write_compact(raw.get(), &mut serialised);
            None
        })
    });
    let args = args.or_else(|| std::str::from_utf8(&serialised).ok().map(Text::plain));
    let args = args.filter(|args| !args.is_empty());
    let identified = [call.id, name]
        .iter()
        .flatten()
        .any(|text| !text.is_empty());
    if identified || args.is_some() {
        let namespace = None;
        emitter.emit_tool(ToolEntry {
            index: call.index,
            id: call.id,
            name,
            namespace,
            args,
            kind,
            whole,
            source: CallSource::Engine,
        });
    }
}
