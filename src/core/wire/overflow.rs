//! Refusal of a prompt that does not fit into the model's context, as engines word it (engines H.3).
//!
//! Takes: an engine's message. Gives: the figures in it. Never: guesses a figure that is not there.

use super::fault::{Failure, Fault};

/// Returns true for the refusal of a request whose prompt fits into the model's context, but not with the tokens that it
/// asks for.
pub fn exceeds_by_its_limit(failure: &Failure) -> bool {
    failure.fault == Fault::ContextLength
        && Overflow::of(failure.original()).is_some_and(|overflow| overflow.answer.is_some())
}

/// Figures of an engine's message about a prompt that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overflow {
    /// Tokens of the prompt.
    pub prompt: u64,
    /// Tokens requested beside the prompt, where only the sum of both is too much.
    pub answer: Option<u64>,
    /// Tokens that the context holds.
    pub most: u64,
}

impl Overflow {
    /// Reads the figures; `None` if the message has none that fit together (engines H.3).
    pub(crate) fn of(message: &str) -> Option<Self> {
        let numbers: Vec<_> = numbers(message).collect();
        let lower = message.to_ascii_lowercase();
        let after = |words: &str| {
            let at = lower.find(words)? + words.len();
            numbers
                .iter()
                .find(|(place, _)| *place >= at)
                .map(|(_, number)| *number)
        };
        let before = |words: &str| {
            let at = lower.find(words)?;
            numbers
                .iter()
                .rev()
                .find(|(place, _)| *place < at)
                .map(|(_, number)| *number)
        };
        let limit = [
            "maximum context length",
            "context length",
            "context size",
            "maximum model length",
            "maximum allowed length",
            ">=",
        ];
        let most = limit.iter().find_map(|words| after(words))?;
        let input = [
            " input tokens",
            " tokens from the input",
            " in the messages",
            "prompt contains at least",
        ];
        let prompt = input
            .iter()
            .find_map(|words| before(words))
            .or_else(|| after("input ("))
            .or_else(|| after("the input ("))
            .or_else(|| after("request ("))
            .or_else(|| after("(length "))
            .or_else(|| after("input length ("))
            .or_else(|| after("=>"))
            .or_else(|| {
                numbers
                    .iter()
                    .map(|(_, number)| *number)
                    .find(|number| *number != most)
            })?;
        if prompt > most {
            return Some(Self {
                prompt,
                answer: None,
                most,
            });
        }
        let answer = [
            " output tokens",
            " for the completion",
            " in the completion",
        ];
        let answer = answer
            .iter()
            .find_map(|words| before(words))
            .or_else(|| after("is too large: "))?;
        Some(Self {
            prompt,
            answer: Some(answer),
            most,
        })
    }
}

/// Returns the numbers in a text with their places.
fn numbers(text: &str) -> impl Iterator<Item = (usize, u64)> + '_ {
    let is_digit = |byte: u8| byte.is_ascii_digit();
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = text.as_bytes().get(at..)?;
        let start = at + rest.iter().position(|byte| is_digit(*byte))?;
        let length = text
            .as_bytes()
            .get(start..)?
            .iter()
            .take_while(|byte| is_digit(**byte))
            .count();
        at = start + length;
        Some((start, text.get(start..at)?.parse().ok()))
    })
    .filter_map(|(start, number)| Some((start, number?)))
}
