//! Reader of token counts, from each of the places in which engines write them.

use super::EventSink;
use crate::json::{Raw, integer, object};
use crate::wire::event::Usage;
use crate::wire::rule::Rule;

object! {
    pub(super) struct UsageBody<'a> {
        prompt: Raw<'a> = "prompt_tokens",
        input: Raw<'a> = "input_tokens",
        completion: Raw<'a> = "completion_tokens",
        output: Raw<'a> = "output_tokens",
        total: Raw<'a> = "total_tokens",
        cached: Raw<'a> = "cached_tokens",
        cache_hit: Raw<'a> = "prompt_cache_hit_tokens",
        reasoning: Raw<'a> = "reasoning_tokens",
        prompt_details: UsageDetails<'a> = "prompt_tokens_details",
        input_details: UsageDetails<'a> = "input_tokens_details",
        completion_details: UsageDetails<'a> = "completion_tokens_details",
        output_details: UsageDetails<'a> = "output_tokens_details",
    }
}

object! {
    pub(super) struct UsageDetails<'a> {
        cached: Raw<'a> = "cached_tokens",
        audio: Raw<'a> = "audio_tokens",
        image: Raw<'a> = "image_tokens",
        text: Raw<'a> = "text_tokens",
        cache_write: Raw<'a> = "cache_write_tokens",
        reasoning: Raw<'a> = "reasoning_tokens",
        accepted: Raw<'a> = "accepted_prediction_tokens",
        rejected: Raw<'a> = "rejected_prediction_tokens",
    }
}

impl<'a> UsageDetails<'a> {
    fn counts(&self) -> [Option<Raw<'a>>; 8] {
        let Self {
            cached,
            audio,
            image,
            text,
            cache_write,
            reasoning,
            accepted,
            rejected,
            ..
        } = self;
        [
            *cached,
            *audio,
            *image,
            *text,
            *cache_write,
            *reasoning,
            *accepted,
            *rejected,
        ]
    }
}

impl UsageBody<'_> {
    /// Returns the counts, each from the first of its known places that has one. `None` if prompt, completion and
    /// total are all absent (an empty object is no usage), or if one of them is given and is no count.
    pub(super) fn counts(&self, to: &mut dyn EventSink) -> Option<Usage> {
        let usage = self.read();
        if (usage.is_some() || self.is_wrong()) && !self.is_canonical() {
            to.count_rule(Rule::Usage);
        }
        usage
    }

    /// Returns the places of prompt, completion and total.
    fn first_counts(&self) -> [[Option<Raw<'_>>; 2]; 3] {
        [
            [self.prompt, self.input],
            [self.completion, self.output],
            [self.total, None],
        ]
    }

    /// Returns true if prompt, completion or total is given, but nowhere as a whole number from 0 on. A 0 in its place
    /// would be a count that nobody has made.
    pub(super) fn is_wrong(&self) -> bool {
        let is_wrong = |places: &[Option<Raw<'_>>; 2]| {
            let mut given = places.iter().flatten().peekable();
            given.peek().is_some() && given.all(|raw| integer(*raw).is_none())
        };
        self.first_counts().iter().any(is_wrong)
    }

    pub(super) fn read(&self) -> Option<Usage> {
        if self.is_wrong() {
            return None;
        }
        let count = |raw: Option<Raw<'_>>| raw.and_then(integer);
        let first = |places: &[Option<Raw<'_>>]| places.iter().find_map(|raw| count(*raw));
        let (prompt, completion) = (
            first(&[self.prompt, self.input]),
            first(&[self.completion, self.output]),
        );
        let total = count(self.total);
        prompt.or(completion).or(total)?;
        let none = UsageDetails::default();
        let details = [
            &self.prompt_details,
            &self.input_details,
            &self.completion_details,
            &self.output_details,
        ];
        let [of_prompt, of_input, of_completion, of_output] =
            details.map(|details| details.as_ref().unwrap_or(&none));
        let (prompt, completion) = (prompt.unwrap_or(0), completion.unwrap_or(0));
        let cached = [
            of_prompt.cached,
            self.cached,
            of_input.cached,
            self.cache_hit,
        ];
        let reasoning = [of_completion.reasoning, self.reasoning, of_output.reasoning];
        Some(Usage {
            prompt,
            completion,
            total: total.unwrap_or_else(|| prompt.saturating_add(completion)),
            cached: first(&cached).unwrap_or(0),
            prompt_audio: count(of_prompt.audio).unwrap_or(0),
            prompt_image: count(of_prompt.image),
            prompt_text: count(of_prompt.text),
            cache_write: count(of_prompt.cache_write),
            reasoning: first(&reasoning),
            completion_audio: count(of_completion.audio).unwrap_or(0),
            accepted: count(of_completion.accepted).unwrap_or(0),
            rejected: count(of_completion.rejected).unwrap_or(0),
        })
    }

    fn is_canonical(&self) -> bool {
        let other = [
            self.input,
            self.output,
            self.cached,
            self.cache_hit,
            self.reasoning,
        ];
        let details = [&self.prompt_details, &self.completion_details]
            .into_iter()
            .flatten();
        let of_details = details.flat_map(UsageDetails::counts);
        let mut counts = self
            .first_counts()
            .into_iter()
            .flatten()
            .chain(of_details)
            .flatten();
        if counts.any(|raw| integer(raw).is_none()) {
            return false;
        }
        self.prompt_details.is_some()
            && self.completion_details.is_some()
            && other.iter().all(Option::is_none)
            && self.rest.is_empty()
    }
}
