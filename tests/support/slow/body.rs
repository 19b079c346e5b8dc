//! Whole answers: a whole body rewritten, a whole body converted into a stream, a stream collected into a body
//! (2.1, 2.11).

use super::chunk::{self, CallPiece, Chunk, Entry, Extensions, FunctionCall, Logprobs};
use super::failure::Failure;
use super::frame;
use super::json::{Json, Out};
use super::machine::{self, EngineEvent, Part, Run};
use super::repair;
use super::{Case, Envelope, FinishWord};
use super::{call_id, fingerprint, finish_reason, forced_function, is_chat, service_tier, switch};

/// Reads the body of a whole answer. Fails with the error that the body is.
fn read(case: &Case) -> Result<Chunk, Failure> {
    let unreadable = || Failure::unreadable(case.upstream_status);
    let text = std::str::from_utf8(&case.input).map_err(|_| unreadable())?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let json = Json::parse(text).ok_or_else(unreadable)?;
    if let Some(failure) = Failure::from_object(&json) {
        return Err(failure);
    }
    let mut body = chunk::read(case, &json).ok_or_else(unreadable)?;
    let promoted = |choice: &&mut Entry| is_misfiled(choice) && promotes(case, &choice.reasoning);
    body.choices.iter_mut().filter(promoted).for_each(|choice| {
        choice.content = Some(std::mem::take(&mut choice.reasoning));
    });
    let limit = super::index_limit(case);
    let tokens = body.usage.as_ref().map_or(0, |usage| usage.completion);
    if loses_a_choice(&json, tokens) {
        return Err(unreadable());
    }
    if body.choices.is_empty() || body.choices.iter().any(|choice| choice.index >= limit) {
        return Err(unreadable());
    }
    Ok(body)
}

/// Returns true if a choice has no content, or occurs twice.
fn loses_a_choice(json: &Json, tokens: u64) -> bool {
    let choices = json
        .get("choices")
        .and_then(|list| list.items())
        .unwrap_or_default();
    let mut indices: Vec<u64> = choices
        .iter()
        .map(|choice| {
            choice
                .get("index")
                .and_then(|index| index.value().as_u64())
                .unwrap_or(0)
        })
        .collect();
    let count = indices.len();
    indices.sort_unstable();
    indices.dedup();
    let is_lost = |choice: &Json| match choice.get("message").or_else(|| choice.get("delta")) {
        Some(message) => {
            let members = message.members().unwrap_or_default();
            let is_blank = members.iter().all(|(_, value)| value.is_null());
            is_blank
                && tokens > 0
                && choice
                    .get("finish_reason")
                    .and_then(|word| word.string())
                    .is_some_and(|word| ends_itself(&word))
        }
        None => choice.get("text").is_none(),
    };
    indices.len() < count || choices.iter().any(is_lost)
}

/// Returns true for an answer that is only reasoning, although the model ended it by itself.
fn is_misfiled(choice: &Entry) -> bool {
    let silent = |text: &Option<String>| text.as_deref().unwrap_or_default().is_empty();
    !choice.reasoning.is_empty()
        && silent(&choice.content)
        && silent(&choice.refusal)
        && choice.calls.is_empty()
        && choice.function_call.is_none()
        && choice.audio.is_none()
        && ends_itself(&choice.finish)
}

/// Returns true if reasoning may become text: always, or JSON if the request has a format.
fn promotes(case: &Case, reasoning: &str) -> bool {
    let format = case.request["response_format"]["type"]
        .as_str()
        .unwrap_or("text");
    match case.options["promote_reasoning"].as_bool() {
        Some(always) => always,
        None => {
            format != "text"
                && reasoning.trim_start().starts_with(['{', '['])
                && serde_json::from_str::<serde_json::Value>(reasoning).is_ok()
        }
    }
}

/// Returns true for finish reasons by which the model ended an answer by itself.
fn ends_itself(word: &str) -> bool {
    let words = [
        "stop",
        "eos",
        "eos_token",
        "end_turn",
        "stop_sequence",
        "stop_token",
        "stop_str",
        "complete",
    ];
    words.contains(&word.to_ascii_lowercase().as_str())
}

/// Returns the events that an engine would have sent had it streamed this body.
pub fn as_events(case: &Case) -> Result<Vec<EngineEvent>, Failure> {
    let mut body = read(case)?;
    for choice in &mut body.choices {
        choice.calls.retain(CallPiece::says_anything);
        // Each entry of a message is a separate call, whatever its index.
        for (position, call) in choice.calls.iter_mut().enumerate() {
            call.index = Some(position as u64);
            call.whole = true;
            if call.name.is_empty() {
                call.name = forced_function(case).unwrap_or_default();
            }
            if let Some((name, input)) = &call.custom {
                call.name.clone_from(name);
                call.arguments.clone_from(input);
            }
        }
    }
    let usage = Chunk {
        choices: Vec::new(),
        usage: body.usage.take(),
        extra: None,
        asked: Extensions::new(),
        ..body.clone()
    };
    let mut events = vec![EngineEvent::Chunk(Box::new(body))];
    if usage.usage.is_some() {
        events.push(EngineEvent::Chunk(Box::new(usage)));
    }
    events.push(EngineEvent::Done);
    Ok(events)
}

/// Rewrites a whole body as a whole body.
pub fn whole(case: &Case) -> Result<String, Failure> {
    let body = read(case)?;
    let envelope = Envelope::of(case, &body.id, body.created, &body.model);
    let run = Run {
        envelope: Some(envelope),
        usage: body.usage.clone(),
        ..Run::default()
    };
    let completion = body.usage.as_ref().map(|usage| usage.completion);
    // A stream of the same content would fail for the same reasons.
    if let Some(failure) = machine::run(case, as_events(case)?).failure {
        return Err(failure);
    }
    let mut choices = Vec::new();
    for entry in &body.choices {
        choices.push(whole_choice(case, &run, entry, completion)?);
    }
    let tier = service_tier(body.service_tier.as_deref());
    let fingerprint = fingerprint(case, body.fingerprint.as_deref());
    Ok(object(
        case,
        &run,
        tier.as_ref(),
        fingerprint.as_ref(),
        &choices,
        &body.asked,
        body.extra,
    ))
}

/// Choice of a whole answer, collected from a body or from the frames of a stream.
struct Choice {
    index: usize,
    content: Option<String>,
    reasoning: String,
    refusal: Option<String>,
    annotations: Option<String>,
    audio: Option<String>,
    function_call: Option<FunctionCall>,
    calls: Vec<Call>,
    logprobs: Option<Logprobs>,
    finish: &'static str,
    stop_reason: Option<String>,
    asked: Extensions,
    extra: Option<String>,
}

enum Call {
    Function {
        id: String,
        name: String,
        arguments: String,
    },
    Custom {
        id: String,
        name: String,
        input: String,
    },
}

fn whole_choice(
    case: &Case,
    run: &Run,
    entry: &Entry,
    completion: Option<u64>,
) -> Result<Choice, Failure> {
    let mut calls = Vec::new();
    for (index, piece) in entry
        .calls
        .iter()
        .filter(|piece| piece.says_anything())
        .enumerate()
    {
        calls.push(whole_call(case, run, entry.index, index, piece)?);
    }
    // A missing finish reason counts as `stop` where the option allows it.
    let said = FinishWord::of(&entry.finish);
    let ended = !super::may_be_cut(case, said, completion);
    for call in &mut calls {
        if let Call::Function { arguments, .. } = call
            && let Some(json) =
                repair::repaired(arguments, &super::option(case, "repair_arguments"), ended)
        {
            *arguments = json;
        }
    }
    // A custom call's input is free text, so it counts as complete.
    let arguments: Vec<String> = calls
        .iter()
        .map(|call| match call {
            Call::Function { arguments, .. } => arguments.clone(),
            Call::Custom { .. } => "{}".to_owned(),
        })
        .collect();
    let finish = finish_reason(case, said, &arguments, completion);
    // 2.5 rule 13: only the last call may be cut.
    let is_cut = ["length", "content_filter"].contains(&finish);
    let whole = calls.len() - usize::from(is_cut && !calls.is_empty());
    for call in calls.iter_mut().take(whole) {
        if let Call::Function { arguments, .. } = call
            && arguments.trim_matches([' ', '\t', '\r', '\n']).is_empty()
        {
            arguments.push_str("{}");
        }
    }
    Ok(Choice {
        index: entry.index,
        content: match entry.continued.as_str() {
            "" => entry.content.clone(),
            continued => Some(continued.to_owned() + entry.content.as_deref().unwrap_or_default()),
        },
        reasoning: entry.reasoning.clone(),
        refusal: entry.refusal.clone(),
        annotations: entry.annotations.clone(),
        audio: entry.audio.clone(),
        function_call: entry.function_call.clone(),
        calls,
        logprobs: entry
            .logprobs
            .clone()
            .filter(|_| super::wants_logprobs(case)),
        finish,
        // A supplied finish has no stop reason from the engine.
        stop_reason: entry
            .stop_reason
            .clone()
            .filter(|_| !entry.finish.is_empty()),
        asked: entry.asked.clone(),
        extra: entry.extra.clone(),
    })
}

fn whole_call(
    case: &Case,
    run: &Run,
    choice: usize,
    index: usize,
    piece: &CallPiece,
) -> Result<Call, Failure> {
    let id = call_id(
        case,
        run.envelope.as_ref().unwrap(),
        choice,
        index,
        &piece.id,
    );
    if let Some((name, input)) = &piece.custom {
        return Ok(Call::Custom {
            id,
            name: name.clone(),
            input: input.clone(),
        });
    }
    let named = Some(piece.name.clone()).filter(|name| !name.is_empty());
    match named.or_else(|| forced_function(case)) {
        Some(name) => Ok(Call::Function {
            id,
            name,
            arguments: piece.arguments.clone(),
        }),
        None => Err(Failure::nameless_call(false)),
    }
}

/// Collects a stream into one object.
pub fn collected(case: &Case, run: &Run) -> String {
    let mut indices: Vec<usize> = run.frames.iter().map(|frame| frame.choice).collect();
    indices.sort_unstable();
    indices.dedup();
    let choices: Vec<Choice> = indices
        .into_iter()
        .map(|index| collect(run, index))
        .collect();
    let mut asked = Extensions::new();
    for frame in &run.frames {
        join_asked(&mut asked, &frame.asked);
    }
    join_asked(&mut asked, &run.usage_asked);
    object(
        case,
        run,
        run.service_tier.as_ref(),
        run.fingerprint.as_ref(),
        &choices,
        &asked,
        None,
    )
}

fn collect(run: &Run, index: usize) -> Choice {
    let mut choice = Choice {
        index,
        content: None,
        reasoning: String::new(),
        refusal: None,
        annotations: None,
        audio: None,
        function_call: None,
        calls: Vec::new(),
        logprobs: None,
        finish: "stop",
        stop_reason: None,
        asked: Extensions::new(),
        extra: None,
    };
    for frame in run.frames.iter().filter(|frame| frame.choice == index) {
        match &frame.part {
            Part::Role | Part::Nothing | Part::Usage => {}
            Part::Reasoning(text) => choice.reasoning.push_str(text),
            Part::Content(text) => choice.content.get_or_insert_default().push_str(text),
            Part::Refusal(text) => choice.refusal.get_or_insert_default().push_str(text),
            Part::CallHeader { id, name, .. } => {
                choice.calls.push(Call::Function {
                    id: id.clone(),
                    name: name.clone(),
                    arguments: String::new(),
                });
            }
            Part::CallArguments { index, text } => {
                if let Some(Call::Function { arguments, .. }) = choice.calls.get_mut(*index) {
                    arguments.push_str(text);
                }
            }
            Part::FunctionCall(more) => {
                let call = choice.function_call.get_or_insert_default();
                call.name = call.name.take().or_else(|| more.name.clone());
                if let Some(text) = &more.arguments {
                    call.arguments.get_or_insert_default().push_str(text);
                }
            }
            Part::Finish {
                reason,
                stop_reason,
            } => {
                choice.finish = reason;
                choice.stop_reason = stop_reason.clone();
            }
        }
        join_asked(&mut choice.asked, &frame.choice_asked);
        if let Some(more) = frame.logprobs.clone() {
            choice.logprobs = Some(match choice.logprobs.take() {
                Some(so_far) => so_far.join(more),
                None => more,
            });
        }
    }
    choice
}

/// Merges extensions: the tokens of a text are concatenated over all chunks; other extensions are kept once.
fn join_asked(known: &mut Extensions, more: &Extensions) {
    for (key, json) in more {
        match known.iter_mut().find(|(own, _)| own == key) {
            None => known.push((key, json.clone())),
            Some((_, own)) if *key == "token_ids" => {
                let inner = |json: &str| json[1..json.len() - 1].to_owned();
                let both: Vec<String> = [inner(own), inner(json)]
                    .into_iter()
                    .filter(|items| !items.is_empty())
                    .collect();
                *own = format!("[{}]", both.join(","));
            }
            Some(_) => {}
        }
    }
    let order = ["token_ids", "prompt_logprobs", "prompt_token_ids"];
    known.sort_by_key(|(key, _)| order.iter().position(|own| own == key));
}

// === writing ===

fn object(
    case: &Case,
    run: &Run,
    tier: Option<&String>,
    fingerprint: Option<&String>,
    choices: &[Choice],
    asked: &Extensions,
    extra: Option<String>,
) -> String {
    let name = if is_chat(case) {
        "chat.completion"
    } else {
        "text_completion"
    };
    let mut members = frame::envelope(case, run, name, tier, fingerprint);
    members.push((
        "choices",
        Out::List(choices.iter().map(|choice| choice.out(case)).collect()),
    ));
    members.extend(run.usage.iter().map(|usage| ("usage", usage.out())));
    members.extend(frame::asked(asked));
    members.extend(extra.map(|extra| ("x_upstream", Out::Raw(extra))));
    Out::Object(members).write()
}

impl Choice {
    fn out(&self, case: &Case) -> Out {
        let index = ("index", Out::Number(self.index as u64));
        let mut members = if is_chat(case) {
            vec![index, ("message", self.message(case))]
        } else {
            vec![
                (
                    "text",
                    Out::text(self.content.as_deref().unwrap_or_default()),
                ),
                index,
            ]
        };
        members.push((
            "logprobs",
            self.logprobs
                .as_ref()
                .map_or(Out::Null, |logprobs| logprobs.out()),
        ));
        members.push(("finish_reason", Out::text(self.finish)));
        if switch(case, "stop_details") {
            members.push(("stop_reason", Out::raw_or_null(self.stop_reason.as_ref())));
        }
        members.extend(frame::asked(&self.asked));
        members.extend(
            self.extra
                .iter()
                .map(|extra| ("x_upstream", Out::Raw(extra.clone()))),
        );
        Out::Object(members)
    }

    fn message(&self, case: &Case) -> Out {
        let content = self
            .content
            .as_deref()
            .filter(|text| !text.is_empty() || self.calls.is_empty());
        let mut members = vec![
            ("role", Out::text("assistant")),
            ("content", Out::text_or_null(content)),
        ];
        if !self.reasoning.is_empty() {
            members.extend(frame::reasoning(case, &self.reasoning));
        }
        members.push(("refusal", Out::text_or_null(self.refusal.as_deref())));
        members.push((
            "annotations",
            self.annotations
                .clone()
                .map_or_else(|| Out::List(Vec::new()), Out::Raw),
        ));
        members.extend(
            self.audio
                .iter()
                .map(|audio| ("audio", Out::Raw(audio.clone()))),
        );
        members.extend(
            self.function_call
                .iter()
                .map(|call| ("function_call", call.out())),
        );
        if !self.calls.is_empty() {
            members.push((
                "tool_calls",
                Out::List(self.calls.iter().map(Call::out).collect()),
            ));
        }
        Out::Object(members)
    }
}

impl Call {
    fn out(&self) -> Out {
        match self {
            Self::Function {
                id,
                name,
                arguments,
            } => Out::Object(vec![
                ("id", Out::text(id)),
                ("type", Out::text("function")),
                (
                    "function",
                    Out::Object(vec![
                        ("name", Out::text(name)),
                        ("arguments", Out::text(arguments)),
                    ]),
                ),
            ]),
            Self::Custom { id, name, input } => Out::Object(vec![
                ("id", Out::text(id)),
                ("type", Out::text("custom")),
                (
                    "custom",
                    Out::Object(vec![("name", Out::text(name)), ("input", Out::text(input))]),
                ),
            ]),
        }
    }
}
