//! Checks a client's answer against the plan: every token once, in order, in its place, and of this request.

use crate::latency::Latency;
use crate::plan::{Kind, Plan, TokenKind};
use crate::speech::now;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

const LANES: [TokenKind; 3] = [TokenKind::Reasoning, TokenKind::Content, TokenKind::Tool];

/// Outcome of an answer that came to an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Complete answer, with its regular end.
    Complete,
    /// Error with this status and code; status 200 if the error is in the stream.
    Error(u16, String),
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Vec<Choice<'a>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    index: u64,
    #[serde(borrow, alias = "message")]
    delta: Delta<'a>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    content: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    reasoning_content: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    reasoning: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    tool_calls: Option<Vec<Call<'a>>>,
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    function: Function<'a>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow, default)]
    arguments: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Event<'a> {
    sequence_number: u64,
    #[serde(borrow, default)]
    delta: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    code: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
}

/// Response object as read from the store, as far as its check needs it.
#[derive(Deserialize)]
pub(crate) struct Object {
    pub(crate) id: String,
    pub(crate) status: String,
    pub(crate) error: Option<Fault>,
    #[serde(default)]
    output: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    content: Option<Vec<Part>>,
    #[serde(default)]
    arguments: String,
}

#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    text: String,
}

#[derive(Deserialize)]
pub(crate) struct Fault {
    pub(crate) code: Option<String>,
    #[serde(default)]
    pub(crate) message: String,
}

#[derive(Deserialize)]
struct Faulty {
    error: Fault,
}

/// Returns the code of an error body.
pub(crate) fn code(body: &[u8]) -> Option<String> {
    let faulty: Faulty = serde_json::from_slice(body).ok()?;
    Some(faulty.error.code.unwrap_or_default())
}

/// Progress of one answer against its plan, fed event by event.
pub(crate) struct Check<'a> {
    plan: &'a Plan,
    latency: Option<&'a Latency>,
    /// Number of the next token expected in each lane, for each of two choices.
    next: [[u64; 2]; 3],
    partial: [[String; 2]; 3],
    sequence: u64,
    pub(crate) tokens: u64,
    end: Option<End>,
}

impl<'a> Check<'a> {
    pub(crate) fn new(plan: &'a Plan, latency: Option<&'a Latency>) -> Self {
        let (next, partial) = ([[0; 2]; 3], Default::default());
        Self {
            plan,
            latency,
            next,
            partial,
            sequence: 0,
            tokens: 0,
            end: None,
        }
    }

    /// Checks one SSE event or comment, given without its blank line. Fails with the mistake.
    pub(crate) fn event(&mut self, event: &str) -> Result<(), String> {
        if event == ": keepalive" {
            return Ok(());
        }
        if let Some(end) = &self.end
            && !(matches!(end, End::Error(..)) && event.starts_with("event: response.failed\n"))
        {
            return Err(format!("an event after the end: {}", head(event)));
        }
        match self.plan.kind {
            Kind::Responses | Kind::Background => self.response_event(event),
            Kind::Chat | Kind::Whole => self.chunk(event),
        }
    }

    fn chunk(&mut self, event: &str) -> Result<(), String> {
        if let Some(data) = event.strip_prefix("event: error\ndata: ") {
            let code =
                code(data.as_bytes()).ok_or_else(|| format!("an error frame: {}", head(data)))?;
            self.end = Some(End::Error(200, code));
            return Ok(());
        }
        let data = event
            .strip_prefix("data: ")
            .ok_or_else(|| format!("no event: {}", head(event)))?;
        if data == "[DONE]" {
            self.end = Some(End::Complete);
            return Ok(());
        }
        self.chat(data)
    }

    /// Checks a chat chunk or a whole chat completion.
    pub(crate) fn chat(&mut self, data: &str) -> Result<(), String> {
        let chunk: Chunk<'_> =
            serde_json::from_str(data).map_err(|error| format!("{error}: {}", head(data)))?;
        for choice in chunk.choices {
            let index = choice.index;
            // Both members must have the same text.
            if choice.delta.reasoning_content != choice.delta.reasoning {
                return Err(format!("two texts of reasoning: {}", head(data)));
            }
            if let Some(text) = choice.delta.reasoning_content {
                self.text(TokenKind::Reasoning, index, &text)?;
            }
            if let Some(text) = choice.delta.content {
                self.text(TokenKind::Content, index, &text)?;
            }
            for call in choice.delta.tool_calls.into_iter().flatten() {
                self.text(
                    TokenKind::Tool,
                    index,
                    &call.function.arguments.unwrap_or_default(),
                )?;
            }
        }
        Ok(())
    }

    fn response_event(&mut self, event: &str) -> Result<(), String> {
        let (kind, data) = event
            .strip_prefix("event: ")
            .and_then(|rest| rest.split_once("\ndata: "))
            .ok_or_else(|| format!("no event: {}", head(event)))?;
        let read: Event<'_> =
            serde_json::from_str(data).map_err(|error| format!("{error}: {}", head(data)))?;
        if read.sequence_number != self.sequence {
            return Err(format!(
                "event {} instead of {}",
                read.sequence_number, self.sequence
            ));
        }
        self.sequence += 1;
        match kind {
            "response.output_text.delta" => {
                self.text(TokenKind::Content, 0, &read.delta.unwrap_or_default())?
            }
            "response.reasoning_text.delta" => {
                self.text(TokenKind::Reasoning, 0, &read.delta.unwrap_or_default())?
            }
            "response.function_call_arguments.delta" => {
                self.text(TokenKind::Tool, 0, &read.delta.unwrap_or_default())?;
            }
            "error" => self.end = Some(End::Error(200, read.code.unwrap_or_default().into_owned())),
            "response.failed" if self.end.is_none() => {
                return Err("response.failed without the error before it".to_owned());
            }
            "response.completed" => {
                // The final object repeats the whole answer.
                let object = read
                    .response
                    .ok_or("response.completed without a response")?
                    .get();
                let mut again = Check::new(self.plan, None);
                again.object(object)?;
                again.is_complete()?;
                self.end = Some(End::Complete);
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks the text of a response object and returns its other members.
    pub(crate) fn object(&mut self, object: &str) -> Result<Object, String> {
        let object: Object =
            serde_json::from_str(object).map_err(|error| format!("{error}: {}", head(object)))?;
        for item in &object.output {
            let lane = if item.kind == "reasoning" {
                TokenKind::Reasoning
            } else {
                TokenKind::Content
            };
            for part in item.content.iter().flatten() {
                self.text(lane, 0, &part.text)?;
            }
            self.text(TokenKind::Tool, 0, &item.arguments)?;
        }
        Ok(object)
    }

    fn text(&mut self, lane: TokenKind, choice: u64, text: &str) -> Result<(), String> {
        if text.is_empty() {
            return Ok(());
        }
        let place = usize::try_from(choice).unwrap_or(2);
        let at = lane as usize;
        let partial = self.partial[at]
            .get_mut(place)
            .ok_or_else(|| format!("an answer {choice}"))?;
        partial.push_str(text);
        let mut words = std::mem::take(partial);
        let mut start = 0;
        while let Some(length) = words[start..].find(' ') {
            self.word(lane, choice, &words[start..start + length])?;
            start += length + 1;
        }
        words.drain(..start);
        self.partial[at][place] = words;
        Ok(())
    }

    fn word(&mut self, lane: TokenKind, choice: u64, word: &str) -> Result<(), String> {
        if lane == TokenKind::Tool && word == r#"{"a":""# {
            return Ok(());
        }
        let mut parts = word.split('.');
        let mut part = || parts.next().ok_or_else(|| format!("no token: {word:?}"));
        let id = u64::from_str_radix(part()?, 16).map_err(|_| format!("no token: {word:?}"))?;
        if id != self.plan.id {
            return Err(format!(
                "a token of another request: {word}, not {:x}",
                self.plan.id
            ));
        }
        if part()? != format!("{}{choice}", lane.letter()) {
            return Err(format!("in lane {}{choice}: {word}", lane.letter()));
        }
        let n: u64 = part()?.parse().map_err(|_| format!("no token: {word:?}"))?;
        let time: u64 = part()?.parse().map_err(|_| format!("no token: {word:?}"))?;
        let next = &mut self.next[lane as usize][usize::try_from(choice).unwrap_or(0)];
        if n != *next {
            return Err(format!("token {n} where {next} comes next: {word}"));
        }
        *next += 1;
        self.tokens += 1;
        if let Some(latency) = self.latency {
            latency.note(now().saturating_sub(time));
        }
        Ok(())
    }

    /// Fails unless all tokens have arrived.
    pub(crate) fn is_complete(&self) -> Result<(), String> {
        for lane in LANES {
            for choice in 0..2 {
                let due = if (choice as u64) < self.plan.choices {
                    self.plan.of_lane(lane)
                } else {
                    0
                };
                let (got, rest) = (
                    self.next[lane as usize][choice],
                    &self.partial[lane as usize][choice],
                );
                let closing = if lane == TokenKind::Tool && due > 0 {
                    r#""}"#
                } else {
                    ""
                };
                if got != due || rest != closing {
                    return Err(format!(
                        "{got} of {due} tokens in {}{choice}, then {rest:?}",
                        lane.letter()
                    ));
                }
            }
        }
        Ok(())
    }

    /// Returns how the stream ended, once its body has. Fails if the stream was truncated.
    pub(crate) fn end(&mut self) -> Result<End, String> {
        match self.end.take() {
            Some(End::Complete) => self.is_complete().map(|()| End::Complete),
            Some(end) => Ok(end),
            None => Err(format!(
                "the body ends after {} tokens as if that were all",
                self.tokens
            )),
        }
    }

    pub(crate) fn has_end(&self) -> bool {
        self.end.is_some()
    }
}

/// Returns the beginning of a text, for messages to people.
pub(crate) fn head(text: &str) -> String {
    text.chars().take(200).collect()
}
