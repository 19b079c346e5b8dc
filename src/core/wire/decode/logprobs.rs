//! Reader of `logprobs` in both shapes: chat's lists of entries, and the legacy parallel arrays.

use super::{BadField, EventSink, ReadOptions};
use crate::json::{Raw, Read, Scanner, Text, object, read};
use crate::wire::Api;
use crate::wire::event::{Logprobs, TokenLogprob};
use crate::wire::rule::Rule;

/// Returns true if the client gets another shape than the engine sent, or a value that the engine left out.
fn are_mended(found: &Logprobs<'_>, api: Api) -> bool {
    let Logprobs::Tokens { content, refusal } = found else {
        return false;
    };
    let lacks = |entry: &TokenLogprob<'_>| entry.logprob.is_none();
    let mut entries = [content, refusal].into_iter().flatten().flatten();
    api == Api::Completions || entries.any(|entry| lacks(entry) || entry.top.iter().any(lacks))
}

object! {
    struct LogprobEntry<'a> {
        token: Text<'a> = "token",
        logprob: Raw<'a> = "logprob",
        bytes: Raw<'a> = "bytes",
        top: Vec<TokenLogprob<'a>> = "top_logprobs",
    }
}

impl<'a> Read<'a> for TokenLogprob<'a> {
    fn read(&mut self, from: &mut Scanner<'a>) -> Option<()> {
        let entry: LogprobEntry<'_> = from.read()?;
        let is_number = |raw: Raw<'_>| {
            raw.get()
                .starts_with(|c: char| c == '-' || c.is_ascii_digit())
        };
        if !entry.logprob.is_none_or(is_number)
            || !entry.bytes.is_none_or(|raw| raw.get().starts_with('['))
        {
            return None;
        }
        *self = Self {
            token: entry.token.unwrap_or_default(),
            logprob: entry.logprob,
            bytes: entry.bytes,
            top: entry.top.unwrap_or_default(),
        };
        Some(())
    }
}

object! {
    /// Both shapes of `logprobs`: chat's lists of entries and the legacy parallel arrays.
    struct LogprobBody<'a> {
        content: Vec<TokenLogprob<'a>> = "content",
        refusal: Vec<TokenLogprob<'a>> = "refusal",
        tokens: Raw<'a> = "tokens",
        token_logprobs: Raw<'a> = "token_logprobs",
        top_logprobs: Raw<'a> = "top_logprobs",
        text_offset: Raw<'a> = "text_offset",
    }
}

impl<'a> LogprobBody<'a> {
    fn tokens(self) -> Result<Option<Logprobs<'a>>, BadField> {
        let filled = |list: Option<Vec<TokenLogprob<'a>>>| list.filter(|list| !list.is_empty());
        let (content, refusal) = (filled(self.content), filled(self.refusal));
        Ok((content.is_some() || refusal.is_some())
            .then_some(Logprobs::Tokens { content, refusal }))
    }

    /// Returns the legacy arrays, or entries in chat's shape, which llama.cpp also writes in completions.
    fn of_completion(self) -> Result<Option<Logprobs<'a>>, BadField> {
        match self.tokens {
            Some(_) => self.legacy(),
            // Completions have no refusals.
            None => Ok(self.tokens()?.filter(|said| {
                matches!(
                    said,
                    Logprobs::Tokens {
                        content: Some(_),
                        ..
                    }
                )
            })),
        }
    }

    fn legacy(self) -> Result<Option<Logprobs<'a>>, BadField> {
        let lists = [
            self.tokens,
            self.token_logprobs,
            self.top_logprobs,
            self.text_offset,
        ];
        if !lists
            .iter()
            .flatten()
            .all(|list| list.get().starts_with('['))
        {
            return Err(BadField);
        }
        let said = self.tokens.is_some_and(|list| {
            !list
                .get()
                .trim_matches(['[', ']', ' ', '\n', '\r', '\t'])
                .is_empty()
        });
        Ok(said.then_some(Logprobs::Legacy(lists)))
    }
}

/// Reads `logprobs`, if the client asked for them. Fails if they have neither known shape. `api`: that of the answer, whose
/// clients read its own shape alone.
pub(super) fn read_logprobs<'a>(
    raw: Option<Raw<'a>>,
    api: Api,
    reading: ReadOptions,
    to: &mut dyn EventSink,
) -> Result<Option<Logprobs<'a>>, BadField> {
    let Some(raw) = raw else { return Ok(None) };
    let body: LogprobBody<'_> = read(raw.get()).map_err(|_| BadField)?;
    let found = if api == Api::Completions {
        body.of_completion()?
    } else {
        body.tokens()?
    };
    if found.is_some() && !reading.logprobs {
        to.count_rule(Rule::LogprobsUnasked);
        return Ok(None);
    }
    if found.as_ref().is_some_and(|found| are_mended(found, api)) {
        to.count_rule(Rule::Logprobs);
    }
    Ok(found)
}
