//! Model answers, each written in the style of every engine (engines A.1, A.2; fixtures/vllm,
//! fixtures/sglang).

use crate::cases::Case;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

/// Content of one engine chunk, before a dialect gives it its shape.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Reasoning(String),
    /// Text with the tokens it consists of.
    Text(String, Vec<String>),
    Start {
        slot: usize,
        name: String,
    },
    Arguments {
        slot: usize,
        text: String,
    },
    /// Token without visible text.
    Nothing,
}

/// Answer of the model, independent of the engine that writes it.
#[derive(Clone, Debug)]
pub struct Reply {
    pub choices: Vec<Vec<Step>>,
    /// Order in which the choices send their chunks.
    picks: Vec<u8>,
    /// True if the token limit cuts the last call's arguments.
    truncated: bool,
    /// True if `tool_choice` names the function.
    named: bool,
    length: bool,
    logprobs: bool,
    tokens: usize,
}

/// Engine, version and front end, as far as they shape the chunks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Dialect {
    /// vLLM's Python front end, 0.16 and later.
    Python,
    /// vLLM's Python front end around 0.14: both names of reasoning, the arguments repeated in the finish chunk.
    OldPython,
    /// vLLM's Rust front end.
    Rust,
    /// SGLang 0.5.
    Sglang,
    /// SGLang up to 0.4.9: one shape of chunks, advancing times, the finish on the last text and again by itself.
    OldSglang,
}

const ID: &str = "0123456789abcdef0123456789abcdef";

impl Dialect {
    /// Returns the dialects that can write this answer.
    pub fn all_for(reply: &Reply) -> Vec<Self> {
        // The Rust front end gives only one choice.
        let rust = Some(Self::Rust).filter(|_| reply.choices.len() == 1);
        [Self::Python, Self::OldPython, Self::Sglang, Self::OldSglang]
            .into_iter()
            .chain(rust)
            .collect()
    }

    fn is_sglang(self) -> bool {
        matches!(self, Self::Sglang | Self::OldSglang)
    }

    fn merges_finish(self) -> bool {
        matches!(self, Self::Python | Self::OldPython | Self::OldSglang)
    }

    fn delta(self, step: &Step, choice: usize) -> Value {
        let mut delta = match step {
            Step::Reasoning(text) => match self {
                Self::Python | Self::Rust => json!({"reasoning": text}),
                Self::OldPython => json!({"reasoning": text, "reasoning_content": text}),
                Self::Sglang | Self::OldSglang => json!({"reasoning_content": text}),
            },
            Step::Text(text, _) => json!({"content": text}),
            Step::Nothing if self == Self::Rust => json!({}),
            Step::Nothing => json!({"content": ""}),
            Step::Start { slot, name } => {
                let mut function = json!({"name": name});
                if self.is_sglang() {
                    function["arguments"] = json!("");
                }
                json!({"tool_calls": [{"index": slot, "id": self.call_id(choice, *slot), "type": "function", "function": function}]})
            }
            Step::Arguments { slot, text } if self.is_sglang() => {
                json!({"tool_calls": [{"index": slot, "id": null,
                "type": "function", "function": {"name": null, "arguments": text}}]})
            }
            Step::Arguments { slot, text } => {
                json!({"tool_calls": [{"index": slot, "function": {"arguments": text}}]})
            }
        };
        self.add_nulls(&mut delta, step);
        delta
    }

    /// Adds the null members that an engine writes beside the content.
    fn add_nulls(self, delta: &mut Value, step: &Step) {
        let delta = delta.as_object_mut().unwrap();
        let is_tool = matches!(step, Step::Start { .. } | Step::Arguments { .. });
        let nulls: &[&str] = match self {
            Self::Rust => &[],
            Self::Python if is_tool => &["content"],
            Self::Python => &[],
            Self::OldPython => &["reasoning_content"],
            Self::Sglang if !is_tool => &["reasoning_content"],
            Self::Sglang | Self::OldSglang => {
                &["role", "content", "reasoning_content", "tool_calls"]
            }
        };
        for key in nulls {
            delta.entry(*key).or_insert(Value::Null);
        }
    }

    fn call_id(self, choice: usize, slot: usize) -> String {
        let prefix = if self.is_sglang() {
            "call_"
        } else {
            "chatcmpl-tool-"
        };
        format!("{prefix}{choice}{slot}c0ffee")
    }

    fn chunk(
        self,
        choice: usize,
        delta: Value,
        logprobs: Value,
        finish: Value,
        count: usize,
    ) -> Value {
        let mut entry =
            json!({"index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": finish});
        match self {
            Self::Rust => entry
                .as_object_mut()
                .unwrap()
                .retain(|_, value| !value.is_null()),
            Self::Python => entry["token_ids"] = Value::Null,
            Self::OldPython => {}
            Self::Sglang | Self::OldSglang => entry["matched_stop"] = Value::Null,
        }
        if !finish.is_null() {
            match self {
                Self::Python | Self::OldPython => entry["stop_reason"] = Value::Null,
                Self::Rust => {}
                Self::Sglang | Self::OldSglang => entry["matched_stop"] = json!(151_645),
            }
        }
        let mut chunk = self.envelope(choice, count, "chat.completion.chunk");
        chunk["choices"] = json!([entry]);
        if self == Self::OldSglang {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    fn envelope(self, choice: usize, count: usize, object: &str) -> Value {
        let id = match self {
            // Each choice of SGLang has its own id; that of the first chunk becomes the answer's.
            Self::Sglang | Self::OldSglang if count > 0 && choice > 0 => {
                format!("{choice}{}", &ID[1..])
            }
            Self::Sglang | Self::OldSglang => ID.to_owned(),
            _ => format!("chatcmpl-{ID}"),
        };
        let running = if self == Self::OldSglang { count } else { 0 };
        json!({"id": id, "object": object, "created": 1_795_000_000 + running, "model": "m"})
    }

    fn usage(self, tokens: usize) -> Value {
        let mut usage = json!({"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens,
            "prompt_tokens_details": {"cached_tokens": 4}});
        match self {
            Self::Sglang | Self::OldSglang => usage["reasoning_tokens"] = json!(2),
            _ => usage["completion_tokens_details"] = json!({"reasoning_tokens": 2}),
        }
        usage
    }
}

impl Reply {
    /// Returns the case in which the engine streams this to a client that streams.
    pub fn stream(&self, dialect: Dialect) -> Case {
        self.case(dialect, true, self.events(dialect), true)
    }

    /// Returns the case in which the engine streams this to a client that does not.
    pub fn collected(&self, dialect: Dialect) -> Case {
        self.case(dialect, false, self.events(dialect), true)
    }

    /// Returns one stream for each choice, as an engine that gives one choice writes them, and the order of the
    /// choices.
    pub fn one_stream_per_choice(&self, dialect: Dialect) -> (Vec<Vec<u8>>, &[u8]) {
        let one = |(at, steps): (usize, &Vec<Step>)| {
            let (choices, tokens) = (vec![steps.clone()], steps.len() + usize::from(at == 0));
            let events = Self {
                choices,
                tokens,
                ..self.clone()
            }
            .events(dialect);
            // Ids count from choice 0.
            let text = String::from_utf8(events).unwrap();
            text.replace("chatcmpl-tool-0", &format!("chatcmpl-tool-{at}"))
                .into_bytes()
        };
        (
            self.choices.iter().enumerate().map(one).collect(),
            &self.picks,
        )
    }

    /// Returns the same tokens in fewer chunks.
    pub fn coarser(&self) -> Self {
        Self {
            choices: self.choices.iter().map(|steps| coarser(steps)).collect(),
            ..self.clone()
        }
    }

    /// Returns the case in which the engine answers with one object.
    pub fn whole(&self, dialect: Dialect) -> Case {
        let mut body = dialect.envelope(0, 0, "chat.completion");
        let choices = self
            .choices
            .iter()
            .enumerate()
            .map(|(at, steps)| self.message(dialect, at, steps));
        body["choices"] = choices.collect();
        body["usage"] = dialect.usage(self.tokens);
        self.case(dialect, false, body.to_string().into_bytes(), false)
    }

    fn case(&self, dialect: Dialect, stream: bool, input: Vec<u8>, events: bool) -> Case {
        let mut request = json!({"model": "m", "n": self.choices.len(), "stream": stream, "logprobs": self.logprobs});
        if stream {
            request["stream_options"] = json!({"include_usage": true});
        }
        if self.truncated {
            request["max_tokens"] = json!(self.tokens);
        }
        if self.named {
            request["tool_choice"] = json!({"type": "function", "function": {"name": "f0"}});
        }
        let engine = if dialect.is_sglang() {
            "sglang"
        } else {
            "vllm"
        }
        .to_owned();
        let name = format!("{dialect:?}");
        Case {
            name,
            engine,
            request,
            input,
            events,
            ..Case::default()
        }
    }

    fn finish(&self, dialect: Dialect, steps: &[Step]) -> &'static str {
        let called = steps.iter().any(|step| matches!(step, Step::Start { .. }));
        match dialect {
            _ if self.length && !self.truncated => "length",
            // A truncated call looks complete (up to 0.30); a forced one looks like text.
            Dialect::Python | Dialect::OldPython if called && self.truncated => "tool_calls",
            _ if self.length => "length",
            Dialect::Python | Dialect::Rust if called && self.named => "stop",
            _ if called => "tool_calls",
            _ => "stop",
        }
    }

    /// Returns the chunks in the order in which the choices send them.
    fn chunks(&self, dialect: Dialect) -> Vec<Value> {
        let mut chunks: Vec<Value> = Vec::new();
        let role = |dialect: Dialect| match dialect {
            Dialect::Rust => json!({"role": "assistant"}),
            Dialect::Python | Dialect::OldPython => json!({"role": "assistant", "content": ""}),
            _ => json!({"role": "assistant", "content": "", "reasoning_content": null}),
        };
        let mut spoken = vec![false; self.choices.len()];
        if !dialect.is_sglang() {
            for (choice, spoken) in spoken.iter_mut().enumerate() {
                chunks.push(dialect.chunk(choice, role(dialect), Value::Null, Value::Null, 0));
                *spoken = true;
            }
        }
        let mut at = vec![0; self.choices.len()];
        for choice in self.order() {
            if !std::mem::replace(&mut spoken[choice], true) {
                chunks.push(dialect.chunk(
                    choice,
                    role(dialect),
                    Value::Null,
                    Value::Null,
                    chunks.len(),
                ));
            }
            let steps = &self.choices[choice];
            let step = &steps[at[choice]];
            at[choice] += 1;
            let last = at[choice] == steps.len();
            let word = json!(self.finish(dialect, steps));
            let again = resent(dialect, steps, choice).filter(|_| last && !self.truncated);
            let merged = last && again.is_none() && dialect.merges_finish();
            let finish = if merged { word.clone() } else { Value::Null };
            let delta = dialect.delta(step, choice);
            chunks.push(dialect.chunk(choice, delta, self.tokens_of(step), finish, chunks.len()));
            if let Some(again) = again {
                chunks.push(dialect.chunk(choice, again, Value::Null, word, chunks.len()));
            }
        }
        // Separate finish chunks: at once from the Rust front end, after all text from SGLang.
        for (choice, steps) in self
            .choices
            .iter()
            .enumerate()
            .filter(|_| dialect == Dialect::Rust || dialect.is_sglang())
        {
            let delta = if dialect == Dialect::Sglang {
                json!({"reasoning_content": null})
            } else {
                json!({})
            };
            let finish = json!(self.finish(dialect, steps));
            chunks.push(dialect.chunk(choice, delta, Value::Null, finish, chunks.len()));
        }
        chunks
    }

    fn order(&self) -> Vec<usize> {
        let mut left: Vec<usize> = self.choices.iter().map(Vec::len).collect();
        let mut order = Vec::new();
        let mut picks = self.picks.iter().cycle();
        // Choice 0 sends the first chunk, whose id becomes the answer's.
        let mut choice = 0;
        while left.iter().any(|left| *left > 0) {
            if left[choice] > 0 {
                left[choice] -= 1;
                order.push(choice);
            }
            choice = usize::from(*picks.next().unwrap()) % left.len();
            if left[choice] == 0 {
                choice = left.iter().position(|left| *left > 0).unwrap_or(0);
            }
        }
        order
    }

    fn events(&self, dialect: Dialect) -> Vec<u8> {
        let mut chunks = self.chunks(dialect);
        let mut usage = dialect.envelope(0, 0, "chat.completion.chunk");
        usage["choices"] = json!([]);
        usage["usage"] = dialect.usage(self.tokens);
        chunks.push(usage);
        let events = chunks.iter().map(|chunk| format!("data: {chunk}\n\n"));
        (events.collect::<String>() + "data: [DONE]\n\n").into_bytes()
    }

    fn tokens_of(&self, step: &Step) -> Value {
        let tokens = match step {
            Step::Text(_, tokens) if self.logprobs => tokens,
            _ => return Value::Null,
        };
        json!({"content": tokens.iter().map(|token| entry(token)).collect::<Vec<_>>()})
    }

    fn message(&self, dialect: Dialect, choice: usize, steps: &[Step]) -> Value {
        let (mut content, mut reasoning) = (String::new(), String::new());
        let (mut calls, mut tokens): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Reasoning(text) => reasoning.push_str(text),
                Step::Text(text, said) => {
                    content.push_str(text);
                    tokens.extend(said.iter().map(|token| entry(token)));
                }
                Step::Start { slot, name } => calls
                    .push(json!({"id": dialect.call_id(choice, *slot),
                    "type": "function", "function": {"name": name, "arguments": ""}})),
                Step::Arguments { slot, text } => {
                    let so_far = calls[*slot]["function"]["arguments"]
                        .as_str()
                        .unwrap()
                        .to_owned();
                    calls[*slot]["function"]["arguments"] = json!(so_far + text);
                }
                Step::Nothing => {}
            }
        }
        let text = |text: String| {
            if text.is_empty() {
                Value::Null
            } else {
                Value::String(text)
            }
        };
        let mut message = Map::from_iter([
            ("role".to_owned(), json!("assistant")),
            ("content".to_owned(), text(content)),
        ]);
        let key = if dialect.is_sglang() {
            "reasoning_content"
        } else {
            "reasoning"
        };
        message.insert(key.to_owned(), text(reasoning));
        let none = if dialect.is_sglang() {
            Value::Null
        } else {
            json!([])
        };
        message.insert(
            "tool_calls".to_owned(),
            if calls.is_empty() {
                none
            } else {
                Value::Array(calls)
            },
        );
        if !dialect.is_sglang() {
            for key in ["refusal", "annotations", "audio", "function_call"] {
                message.insert(key.to_owned(), Value::Null);
            }
        }
        let logprobs = if self.logprobs && !tokens.is_empty() {
            json!({"content": tokens})
        } else {
            Value::Null
        };
        json!({"index": choice, "message": message, "logprobs": logprobs, "finish_reason": self.finish(dialect, steps)})
    }
}

fn entry(token: &str) -> Value {
    json!({"token": token, "logprob": -0.5, "bytes": token.as_bytes(), "top_logprobs": []})
}

/// Returns the finish chunk of vLLM up to 0.22: the last call's arguments again, in Python's spelling, with their
/// header.
fn resent(dialect: Dialect, steps: &[Step], choice: usize) -> Option<Value> {
    let Some(Step::Arguments { slot, .. }) = steps.last().filter(|_| dialect == Dialect::OldPython)
    else {
        return None;
    };
    let pieces = steps.iter().filter_map(|step| match step {
        Step::Arguments { slot: of, text } if of == slot => Some(text.as_str()),
        _ => None,
    });
    let arguments = pieces.collect::<String>().replace("\":", "\": ");
    Some(
        json!({"tool_calls": [{"index": slot, "id": dialect.call_id(choice, *slot), "type": "function",
        "function": {"name": format!("f{slot}"), "arguments": arguments}}]}),
    )
}

/// Returns the same steps in fewer chunks.
fn coarser(steps: &[Step]) -> Vec<Step> {
    let mut fewer: Vec<Step> = Vec::new();
    for step in steps {
        match (fewer.last_mut(), step) {
            (Some(Step::Reasoning(text)), Step::Reasoning(more)) => text.push_str(more),
            (Some(Step::Text(text, tokens)), Step::Text(more, others)) => {
                text.push_str(more);
                tokens.extend(others.iter().cloned());
            }
            (
                Some(Step::Arguments { slot, text }),
                Step::Arguments {
                    slot: of,
                    text: more,
                },
            ) if slot == of => text.push_str(more),
            _ => fewer.push(step.clone()),
        }
    }
    fewer
}

fn words() -> impl Strategy<Value = String> {
    select(vec![
        "a", " word", "\n\n", "é", "世界", "🎉", "\"q\"", "\\", "\u{2028}", "</think>", "{", "0",
    ])
    .prop_map(str::to_owned)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let text = || {
        prop_oneof![
            6 => vec(words(), 1..3).prop_map(|tokens| Step::Text(tokens.concat(), tokens)),
            1 => Just(Step::Nothing),
        ]
    };
    let arguments = select(vec![
        "{}",
        "{\"city\":\"Zürich\"}",
        "{\"a\":{\"b\":[1,2.50,\"}\"]},\"c\":null}",
    ]);
    let calls = vec((arguments, vec(any::<u8>(), 0..4)), 0..3);
    (
        vec(words().prop_map(Step::Reasoning), 0..4),
        vec(text(), 0..4),
        calls,
    )
        .prop_map(|(reasoning, text, calls)| {
            let mut steps: Vec<Step> = reasoning.into_iter().chain(text).collect();
            for (slot, (arguments, cuts)) in calls.into_iter().enumerate() {
                steps.push(Step::Start {
                    slot,
                    name: format!("f{slot}"),
                });
                let mut ends: Vec<usize> = cuts
                    .iter()
                    .map(|cut| usize::from(*cut) % arguments.len())
                    .collect();
                ends.retain(|end| *end > 0 && arguments.is_char_boundary(*end));
                ends.push(arguments.len());
                ends.sort_unstable();
                ends.dedup();
                let mut start = 0;
                for end in ends {
                    steps.push(Step::Arguments {
                        slot,
                        text: arguments[start..end].to_owned(),
                    });
                    start = end;
                }
            }
            if steps.is_empty() {
                steps.push(Step::Nothing);
            }
            steps
        })
}

pub fn reply() -> impl Strategy<Value = Reply> {
    let flags = any::<[bool; 4]>();
    (
        prop_oneof![3 => vec(steps(), 1), 2 => vec(steps(), 2..4)],
        vec(any::<u8>(), 1..9),
        flags,
    )
        .prop_map(|(mut choices, picks, [cut, named, length, logprobs])| {
            let mut truncated = false;
            // The limit cuts a call only in answers with one choice, because all choices share the limit.
            if let ([steps], true) = (choices.as_mut_slice(), cut)
                && let Some(Step::Arguments { text, .. }) = steps.last_mut()
            {
                text.pop();
                truncated = true;
                if text.is_empty() {
                    steps.pop();
                }
            }
            let tokens = choices.iter().map(Vec::len).sum::<usize>() + 1;
            Reply {
                choices,
                picks,
                truncated,
                named,
                length: length || truncated,
                logprobs,
                tokens,
            }
        })
}
