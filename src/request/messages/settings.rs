//! Settings of a Messages request, and their counterparts in the chat request (messages 3.5).
//!
//! Takes: the fields beside the conversation and the tools. Gives: members of the chat request as JSON. Never: a limit
//! that the model's context cannot hold.

use super::{MessagesContext, Purpose, refuse, require};
use crate::json::{Text, compacted, quoted};
use crate::request::check::Checked;
use crate::request::object::RequestObject;
use crate::request::refusals::invalid;
use crate::wire::encode::ThinkingDisplay;
use crate::wire::fault::{Failure, Fault};

/// Budgets of thinking, in tokens, from which on an effort is requested; below the first it is `low`.
const MEDIUM: u64 = 4096;
const HIGH: u64 = 16_384;
/// Most tokens that a request may ask for.
const MOST_TOKENS: u64 = 100_000_000;

/// Settings after parsing.
pub(super) struct MessagesSettings {
    /// Limit of the answer that the client asked for.
    pub(super) limit: Option<u64>,
    pub(super) stop_sequences: Vec<String>,
    /// Share of the thinking that the client asked for.
    pub(super) display: ThinkingDisplay,
    /// Limit on the tokens of thinking that the client asked for.
    pub(super) budget: Option<u64>,
    /// Members of the chat request, as JSON.
    pub(super) members: Vec<(&'static str, String)>,
}

impl MessagesSettings {
    /// Reads the settings. `effort`: that of the last message that sets one for its turn.
    pub(super) fn read(
        from: &Checked<'_>,
        context: &MessagesContext<'_>,
        effort: Option<&str>,
    ) -> Result<Self, Failure> {
        let is_limited = context
            .defaults
            .iter()
            .any(|(key, _)| key == "max_tokens" || key == "max_completion_tokens");
        if context.purpose == Purpose::Answer && !is_limited {
            require(from, "max_tokens", context.purpose)?;
        }
        let limit = limit(from)?;
        let mut members = Vec::new();
        // A limit that the context cannot hold would be refused by most engines, and limits nothing. Counts have none.
        let holds = |limit: &u64| context.context_length.is_none_or(|length| *limit < length);
        let said = limit.filter(|limit| holds(limit) && context.purpose != Purpose::Count);
        // A limit of 0 asks for an empty answer (messages 3.5); engines refuse it, or take it for no limit.
        members.extend(said.map(|limit| ("max_completion_tokens", limit.max(1).to_string())));
        from.sampling()?;
        from.whole("top_k", 0..=MOST_TOKENS)?;
        for key in ["temperature", "top_p", "top_k"] {
            members.extend(
                from.get(key)
                    .map(|field| (key, field.value.get().to_owned())),
            );
        }
        let stop_sequences = stop_sequences(from)?;
        if let Some(field) = from
            .get("stop_sequences")
            .filter(|_| !stop_sequences.is_empty())
        {
            members.push(("stop", compacted(field.value)));
        }
        let thinking = thinking(from)?;
        let config = from
            .get("output_config")
            .map(|field| RequestObject::of("output_config", field.value))
            .transpose()?;
        let own = config
            .as_ref()
            .map(|config| config.text("effort"))
            .transpose()?
            .flatten();
        let own = own.map(|text| text.decoded().into_owned());
        let effort = match thinking.is_off {
            true => Some("none"),
            false => effort
                .or(own.as_deref())
                .map(word)
                .transpose()?
                .or_else(|| thinking.effort()),
        };
        members.extend(effort.map(|effort| ("reasoning_effort", quoted(effort))));
        members.extend(format(from, config.as_ref())?.map(|format| ("response_format", format)));
        if let Some(field) = from.get("metadata") {
            let user = RequestObject::of("metadata", field.value)?.text("user_id")?;
            members.extend(user.map(|user| ("user", quoted(&user.decoded()))));
        }
        for key in ["service_tier", "inference_geo", "speed"] {
            from.string(key)?;
        }
        Ok(Self {
            limit,
            stop_sequences,
            display: thinking.display,
            budget: thinking.budget,
            members,
        })
    }
}

/// Returns the maximum number of output tokens that the client asked for.
pub(super) fn limit(from: &Checked<'_>) -> Result<Option<u64>, Failure> {
    from.whole("max_tokens", 0..=MOST_TOKENS)
}

/// Returns the stop sequences that the client asked for.
pub(super) fn stop_sequences(from: &Checked<'_>) -> Result<Vec<String>, Failure> {
    let all = from
        .limited("stop_sequences", from.caps().stops, "max_stop_strings")?
        .unwrap_or_default();
    let read = |(at, raw)| {
        let text = Text::of(raw).map(|text| text.decoded().into_owned());
        text.ok_or_else(|| invalid(format!("stop_sequences.{at}"), "it must be a string"))
    };
    all.into_iter().enumerate().map(read).collect()
}

/// Settings of thinking.
#[derive(Default)]
pub(super) struct ThinkingSettings {
    is_off: bool,
    pub(super) display: ThinkingDisplay,
    /// Maximum number of tokens of thinking.
    budget: Option<u64>,
}

impl ThinkingSettings {
    /// Returns the effort for the budget (messages 3.5).
    fn effort(&self) -> Option<&'static str> {
        self.budget.map(|budget| match budget {
            HIGH.. => "high",
            MEDIUM.. => "medium",
            _ => "low",
        })
    }
}

/// Reads the settings of thinking.
pub(super) fn thinking(from: &Checked<'_>) -> Result<ThinkingSettings, Failure> {
    let Some(field) = from.get("thinking") else {
        return Ok(ThinkingSettings::default());
    };
    let object = RequestObject::of("thinking", field.value)?;
    object.required("type")?;
    let display = match object
        .text("display")?
        .map(|text| text.decoded())
        .as_deref()
    {
        Some("omitted") => ThinkingDisplay::Omitted,
        _ => ThinkingDisplay::Shown,
    };
    let settings = |is_off, display, budget| {
        Ok(ThinkingSettings {
            is_off,
            display,
            budget,
        })
    };
    match object
        .word(
            "type",
            &["enabled", "adaptive", "between_tools", "disabled"],
        )?
        .as_deref()
    {
        Some("disabled") => settings(true, ThinkingDisplay::Hidden, None),
        // The model does not think, but what it writes between calls as thinking is shown.
        Some("between_tools") => settings(true, display, None),
        Some("enabled") => {
            let budget = object
                .required("budget_tokens")?
                .get()
                .parse::<u64>()
                .ok()
                .filter(|budget| *budget > 0);
            let budget = budget.ok_or_else(|| {
                invalid(
                    object.path("budget_tokens"),
                    "it must be a positive integer",
                )
            })?;
            settings(false, display, Some(budget))
        }
        _ => settings(false, display, None),
    }
}

/// Efforts that the API knows. Each engine's rules turn those that it does not know into ones that it knows.
const EFFORTS: [&str; 5] = ["low", "medium", "high", "xhigh", "max"];

/// Returns an effort as chat knows it; fails on a word that the API does not know.
fn word(effort: &str) -> Result<&'static str, Failure> {
    let known = EFFORTS.iter().find(|known| **known == effort).copied();
    known.ok_or_else(|| {
        invalid(
            "output_config.effort",
            "it must be low, medium, high, xhigh or max",
        )
    })
}

/// Returns `response_format` for a structured output. The older field `output_format` means the same.
fn format(
    from: &Checked<'_>,
    config: Option<&RequestObject<'_>>,
) -> Result<Option<String>, Failure> {
    let old = from
        .get("output_format")
        .map(|field| RequestObject::of("output_format", field.value))
        .transpose()?;
    let new = config
        .map(|config| config.object("format"))
        .transpose()?
        .flatten();
    let Some(format) = new.or(old) else {
        return Ok(None);
    };
    format.required("type")?;
    let kind = format
        .text("type")?
        .map(|kind| kind.decoded())
        .unwrap_or_default();
    if kind != "json_schema" {
        return Err(refuse(
            Fault::UnsupportedValue,
            format.path("type"),
            "it must be json_schema",
        ));
    }
    format.required("schema")?;
    let schema = format.carried("schema")?.unwrap_or_default();
    Ok(Some(format!(
        "{{\"type\":\"json_schema\",\"json_schema\":{{\"name\":\"schema\",\"schema\":{},\"strict\":true}}}}",
        schema.get()
    )))
}
