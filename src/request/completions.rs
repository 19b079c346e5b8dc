//! Parsing of legacy Completions requests.

use super::check::Checked;
use super::refusals::invalid;
use super::{ChatRequest, TextSpans};
use crate::json::{Text, elements};
use crate::wire::Api;
use crate::wire::fault::Failure;

/// Fields that the API names.
pub(super) const KNOWN: &[&str] = &[
    "model",
    "prompt",
    "stream",
    "stream_options",
    "n",
    "best_of",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "logit_bias",
    "logprobs",
    "stop",
    "seed",
    "suffix",
    "echo",
    "user",
];

/// Parses a Completions request. `complete`: missing required parameters are an error.
pub(super) fn read(from: &Checked<'_>, complete: bool) -> Result<ChatRequest, Failure> {
    // vLLM accepts `prompt_embeds` instead of the prompt.
    from.required("prompt", complete && from.get("prompt_embeds").is_none())?;
    let streaming = from.streaming()?;
    let n = from.answer_count("n")?.unwrap_or(1);
    // `best_of` is the number of candidates generated, not of choices returned (fixtures `completions-best-of*`).
    from.answer_count("best_of")?;
    from.sampling()?;
    from.stop()?;
    let prompts = prompts(from)?;
    let model = from.string("model")?.unwrap_or_default();
    let choices = u32::try_from(n.saturating_mul(prompts)).unwrap_or(u32::MAX);
    Ok(ChatRequest {
        api: Api::Completions,
        model,
        stream: streaming.stream,
        choices,
        include_usage: streaming.include_usage,
        continuous_usage: streaming.continuous_usage,
        include_obfuscation: streaming.include_obfuscation,
        logprobs: logprobs(from)?,
        extensions: from.extensions(),
        limit: from
            .tokens("max_completion_tokens", 0)?
            .or(from.tokens("max_tokens", 0)?),
        places: TextSpans {
            model: from.place("model"),
            prompt: from.place("prompt"),
            stream_options: from.place("stream_options"),
            ..TextSpans::default()
        },
        ..ChatRequest::default()
    })
}

/// Returns true if logprobs are requested: by a number, or by `true` as in Chat Completions (wire-format 2.11).
fn logprobs(from: &Checked<'_>) -> Result<bool, Failure> {
    match from.get("logprobs").map(|field| field.value.get()) {
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        said => from.top_logprobs("logprobs").map(|()| said.is_some()),
    }
}

/// Returns the number of prompts: a string or a list of tokens is one, a list of those is several. Fails on
/// another value.
fn prompts(from: &Checked<'_>) -> Result<u64, Failure> {
    let Some(field) = from.get("prompt") else {
        return Ok(1);
    };
    if Text::of(field.value).is_some() {
        return Ok(1);
    }
    let must = "it must be a string, a list of strings, a list of tokens or a list of those";
    let all = || elements(field.value.get()).into_iter().flatten();
    if !field.value.get().starts_with('[') {
        return Err(invalid("prompt", must));
    }
    match all()
        .next()
        .map(|first| first.get().as_bytes().first().copied())
    {
        None => Err(invalid("prompt", "it must not be empty")),
        Some(Some(b'"' | b'[')) => Ok(all().count() as u64),
        Some(Some(b'0'..=b'9')) => Ok(1),
        _ => Err(invalid("prompt", must)),
    }
}
