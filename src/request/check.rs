//! Checks of single parameters: each fails with the parameter's name, so that the client can locate the mistake.

use super::fields::{self, Field};
use super::refusals::{KEY, invalid, missing, shown};
use super::rules::{Caps, Ranges, Rules};
use super::{KeySet, RETURN_PROMPT_TEXT, RETURN_TOKEN_IDS};
use crate::json::{self, LongStrings, Raw, Text};
use crate::wire::Extensions;
use crate::wire::fault::{Failure, Fault};
use std::collections::HashSet;
use std::fmt::Display;
use std::ops::RangeInclusive;

/// Parameters of sampling that all APIs that generate text have, with their ranges in the API's reference.
pub(super) const SAMPLING: [(&str, RangeInclusive<f64>); 4] = [
    ("temperature", 0.0..=2.0),
    ("top_p", 0.0..=1.0),
    ("frequency_penalty", -2.0..=2.0),
    ("presence_penalty", -2.0..=2.0),
];

/// Maximum length of a metadata value, in characters.
const VALUE: usize = 512;

/// Fields reserved for traffic between engines and routers, refused in client requests (faults 11).
const FORBIDDEN: &[&str] = &[
    "request_id",
    "rid",
    "api_base",
    "base_url",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "kv_transfer_params",
    "data_parallel_rank",
    "chat_template",
    "return_hidden_states",
    "lora_path",
    "session_params",
];

/// Forbidden keys in `chat_template_kwargs`, which would override the template's own arguments.
const FORBIDDEN_TEMPLATE: &[&str] = &[
    "tokenize",
    "tokenizer",
    "conversation",
    "tools",
    "documents",
    "chat_template",
];

/// Objects that are searched for forbidden fields too: client libraries merge `extra_body` into the request, and
/// so do some engines.
const INNER: &[&str] = &["chat_template_kwargs", "extra_body"];

/// Fields of a request after the basic checks: no duplicates among the fields that samewire reads, and no
/// forbidden fields.
pub(super) struct Checked<'a> {
    pub(super) text: &'a str,
    /// Long strings of the text.
    pub(super) strings: LongStrings,
    fields: Vec<Field<'a>>,
    /// Keys of the fields: most fields that are looked for are not there.
    keys: KeySet,
    known: &'static [&'static str],
    pub(super) rules: &'a Rules,
}

fn forbidden(param: String) -> Failure {
    let message = format!(
        "The parameter '{param}' is not allowed. Who runs this service can allow it: allowed_fields = [\"{param}\"] in [requests]."
    );
    Failure::from(Fault::ForbiddenParameter)
        .with_message(message)
        .with_param(param)
}

pub(super) fn repeated(param: String) -> Failure {
    let message = format!("The key '{param}' occurs twice.");
    Failure::from(Fault::DuplicateKey)
        .with_message(message)
        .with_param(param)
}

/// Fails on a field reserved for engines and routers, unless the operator has allowed it.
pub(super) fn check_reserved_field(param: &str, rules: &Rules) -> Result<(), Failure> {
    if FORBIDDEN.contains(&param) && !rules.allows(param) {
        Err(forbidden(param.to_owned()))
    } else {
        Ok(())
    }
}

/// Fails if a key of `keys` (at most 128) occurs twice in `fields`; `prefix` is the path of the object in the
/// error.
pub(super) fn no_duplicates(
    fields: &[Field<'_>],
    keys: &[&str],
    prefix: impl Display,
) -> Result<(), Failure> {
    // A bit for each of the keys.
    let mut seen = 0_u128;
    for field in fields {
        let Some(place) = keys.iter().position(|key| field.key == *key) else {
            continue;
        };
        let bit = u32::try_from(place)
            .ok()
            .and_then(|place| 1_u128.checked_shl(place))
            .unwrap_or(0);
        if seen & bit != 0 {
            return Err(repeated(format!("{prefix}{}", field.key)));
        }
        seen |= bit;
    }
    Ok(())
}

impl<'a> Checked<'a> {
    /// Reads and checks the fields of a body.
    pub(super) fn of(
        body: &'a [u8],
        known: &'static [&'static str],
        rules: &'a Rules,
    ) -> Result<Self, Failure> {
        Self::new(fields::utf8(body)?, known, rules)
    }

    /// Reads and checks the fields of a body, given as its text.
    pub(super) fn new(
        text: &'a str,
        known: &'static [&'static str],
        rules: &'a Rules,
    ) -> Result<Self, Failure> {
        let (fields, strings) = fields::read_body(text, rules.caps.depth)?;
        no_duplicates(&fields, known, "")?;
        let keys = fields.iter().fold(KeySet::NONE, |keys, field| {
            keys.with(KeySet::of(&field.key))
        });
        let checked = Self {
            text,
            strings,
            fields,
            keys,
            known,
            rules,
        };
        checked.check_reserved(&checked.fields, "")?;
        Ok(checked)
    }

    /// Fails on a reserved field here or in a nested object, unless the operator has allowed it; `prefix` is the
    /// path of the object in the error.
    fn check_reserved(&self, fields: &[Field<'_>], prefix: &str) -> Result<(), Failure> {
        let not_allowed = |param: &str| !self.rules.allows(param);
        for field in fields {
            let key = field.key.as_ref();
            let param = || format!("{prefix}{key}");
            if FORBIDDEN.contains(&key) && not_allowed(&param()) {
                return Err(forbidden(param()));
            }
            let extra = key == "extra_body";
            if !INNER.contains(&key)
                || field.value.get() == "null"
                || extra && !field.value.get().starts_with('{')
            {
                continue;
            }
            no_duplicates(fields, &[key], prefix)?;
            let inner = self.object(&param(), field)?;
            if extra {
                self.check_reserved(&inner, &format!("{}.", param()))?;
                continue;
            }
            let steers = |inner: &&Field<'_>| {
                FORBIDDEN_TEMPLATE.contains(&inner.key.as_ref())
                    && not_allowed(&format!("{}.{}", param(), inner.key))
            };
            if let Some(inner) = inner.iter().find(steers) {
                return Err(forbidden(format!("{}.{}", param(), inner.key)));
            }
        }
        Ok(())
    }

    /// Returns all fields.
    pub(super) fn all(&self) -> &[Field<'a>] {
        &self.fields
    }

    /// Returns the limits on the size of a request.
    pub(super) fn caps(&self) -> &Caps {
        &self.rules.caps
    }

    /// Iterates over the keys that neither the API nor the operator names.
    pub(super) fn unknown(&self) -> impl Iterator<Item = &str> {
        self.extras()
            .map(|field| field.key.as_ref())
            .filter(|key| !self.rules.allows(key))
    }

    /// Fails on a field that neither the API nor the operator names.
    pub(super) fn only_known(&self) -> Result<(), Failure> {
        let Some(key) = self.unknown().next() else {
            return Ok(());
        };
        let message = format!("Unsupported parameter: '{key}'.");
        Err(Failure::from(Fault::UnsupportedParameter)
            .with_message(message)
            .with_param(key))
    }

    /// Iterates over the fields that the API does not name.
    pub(super) fn extras(&self) -> impl Iterator<Item = &Field<'a>> {
        self.fields
            .iter()
            .filter(|field| !self.known.contains(&field.key.as_ref()))
    }

    /// Returns a field unless it is absent or null.
    pub(super) fn get(&self, key: &str) -> Option<&Field<'a>> {
        if !self.keys.may_share(KeySet::of(key)) {
            return None;
        }
        self.fields
            .iter()
            .find(|field| field.key == key)
            .filter(|field| field.value.get() != "null")
    }

    pub(super) fn required(
        &self,
        key: &str,
        complete: bool,
    ) -> Result<Option<&Field<'a>>, Failure> {
        match self.get(key) {
            None if complete => Err(missing(key)),
            found => Ok(found),
        }
    }

    pub(super) fn object(&self, param: &str, field: &Field<'a>) -> Result<Vec<Field<'_>>, Failure> {
        if !field.value.get().starts_with('{') {
            return Err(invalid(param, "it must be an object"));
        }
        self.members(field.value)
    }

    /// Returns the members of an object in the body.
    pub(super) fn members<'s>(&'s self, object: Raw<'s>) -> Result<Vec<Field<'s>>, Failure> {
        fields::read_known(&self.strings, object.get())
    }

    pub(super) fn string(&self, key: &str) -> Result<Option<String>, Failure> {
        let Some(field) = self.get(key) else {
            return Ok(None);
        };
        let text = Text::of(field.value).ok_or_else(|| invalid(key, "it must be a string"))?;
        Ok(Some(text.decoded().into_owned()))
    }

    pub(super) fn flag(&self, key: &str) -> Result<bool, Failure> {
        self.get(key)
            .map_or(Ok(false), |field| flag(key, field.value))
    }

    pub(super) fn whole(
        &self,
        key: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, Failure> {
        let Some(field) = self.get(key) else {
            return Ok(None);
        };
        let number = field
            .value
            .get()
            .parse::<u64>()
            .ok()
            .filter(|number| range.contains(number));
        let must = || {
            format!(
                "it must be an integer from {} to {}",
                range.start(),
                range.end()
            )
        };
        number.map(Some).ok_or_else(|| invalid(key, &must()))
    }

    /// Returns true if the ranges of the published API are enforced.
    fn keeps_to_api(&self) -> bool {
        self.rules.ranges == Ranges::Api
    }

    /// Reads a count of generated answers (`n`, `best_of`): from 1 to `limits.max_choices`.
    pub(super) fn answer_count(&self, key: &str) -> Result<Option<u64>, Failure> {
        let Some(field) = self.get(key) else {
            return Ok(None);
        };
        let most = self.caps().choices;
        let number = field
            .value
            .get()
            .parse::<u64>()
            .ok()
            .filter(|number| (1..=most).contains(number));
        let must = || format!("it must be an integer from 1 to {most} (`limits.max_choices`)");
        number.map(Some).ok_or_else(|| invalid(key, &must()))
    }

    /// Reads a token limit; `least` is the API's minimum. Engines also accept 0 for scoring alone and -1 for no
    /// limit, both of which return `None`.
    pub(super) fn tokens(&self, key: &str, least: u64) -> Result<Option<u64>, Failure> {
        if self.keeps_to_api() {
            return self.whole(key, least..=100_000_000);
        }
        let Some(field) = self.get(key) else {
            return Ok(None);
        };
        let number = field
            .value
            .get()
            .parse::<i64>()
            .map_err(|_| invalid(key, "it must be an integer"))?;
        Ok(u64::try_from(number).ok().filter(|number| *number > 0))
    }

    /// Checks the number of top logprobs. Engines accept more than the API's 20, and -1 for the whole vocabulary
    /// (vLLM, `--max-logprobs`).
    pub(super) fn top_logprobs(&self, key: &str) -> Result<(), Failure> {
        const OF_API: u64 = 20;
        let most = self.caps().logprobs;
        if self.keeps_to_api() {
            return self.whole(key, 0..=most.min(OF_API)).map(drop);
        }
        let Some(field) = self.get(key) else {
            return Ok(());
        };
        let number = field
            .value
            .get()
            .parse::<i64>()
            .ok()
            .filter(|number| *number >= -1);
        let number = number.ok_or_else(|| invalid(key, "it must be an integer, -1 or more"))?;
        match u64::try_from(number).unwrap_or(Caps::PLAIN.logprobs) {
            number if number <= most => Ok(()),
            _ => Err(invalid(
                key,
                &format!("it must be at most {most} (`limits.max_logprobs`)"),
            )),
        }
    }

    /// Checks the parameters of sampling.
    pub(super) fn sampling(&self) -> Result<(), Failure> {
        SAMPLING
            .into_iter()
            .try_for_each(|(key, range)| self.number(key, range))
    }

    /// Checks that a field, if present, is a number, and within the API's range where that is enforced.
    fn number(&self, key: &str, range: RangeInclusive<f64>) -> Result<(), Failure> {
        let Some(field) = self.get(key) else {
            return Ok(());
        };
        let text = field.value.get();
        let number = text
            .parse::<f64>()
            .ok()
            .filter(|_| !text.starts_with(['"', 't', 'f', '{', '[']));
        match number.filter(|number| number.is_finite()) {
            Some(number) if !self.keeps_to_api() || range.contains(&number) => Ok(()),
            _ if !self.keeps_to_api() => Err(invalid(key, "it must be a number")),
            _ => Err(invalid(
                key,
                &format!(
                    "it must be a number from {} to {}",
                    range.start(),
                    range.end()
                ),
            )),
        }
    }

    /// Returns the elements of a list, if the field is present. Fails above `most` elements.
    pub(super) fn list(&self, key: &str, most: usize) -> Result<Option<Vec<Raw<'a>>>, Failure> {
        self.get(key)
            .map(|field| list(key, field.value, most))
            .transpose()
    }

    /// Returns the elements of a list whose maximum length is the `[limits]` setting `option`, which the error
    /// names.
    pub(super) fn limited(
        &self,
        key: &str,
        most: usize,
        option: &str,
    ) -> Result<Option<Vec<Raw<'_>>>, Failure> {
        let limited = |field: &Field<'a>| {
            let all = self.strings.elements(field.value.get());
            elements(key, all, most, || format!(" (`limits.{option}`)"))
        };
        self.get(key).map(limited).transpose()
    }

    /// Checks `stop`: a string or a short list of strings.
    pub(super) fn stop(&self) -> Result<(), Failure> {
        let Some(field) = self.get("stop") else {
            return Ok(());
        };
        if Text::of(field.value).is_some() {
            return Ok(());
        }
        const OF_API: usize = 4;
        let most = if self.keeps_to_api() {
            self.caps().stops.min(OF_API)
        } else {
            self.caps().stops
        };
        let all = self
            .limited("stop", most, "max_stop_strings")?
            .unwrap_or_default();
        match all.iter().position(|stop| Text::of(*stop).is_none()) {
            Some(at) => Err(invalid(format!("stop[{at}]"), "it must be a string")),
            None => Ok(()),
        }
    }

    /// Checks `metadata`, if present: a few short strings under short keys.
    pub(super) fn metadata(&self) -> Result<(), Failure> {
        let Some(field) = self.get("metadata") else {
            return Ok(());
        };
        let pairs = self.object("metadata", field)?;
        self.check_pair_count(&pairs)?;
        let mut seen = HashSet::new();
        for pair in &pairs {
            let param = || format!("metadata.{}", shown(&pair.key));
            if !seen.insert(pair.key.as_ref()) {
                return Err(repeated(param()));
            }
            if pair.key.chars().count() > KEY {
                return Err(invalid(
                    "metadata",
                    &format!("its keys may have at most {KEY} characters"),
                ));
            }
            let value =
                Text::of(pair.value).ok_or_else(|| invalid(param(), "it must be a string"))?;
            if value.decoded().chars().count() > VALUE {
                return Err(invalid(
                    param(),
                    &format!("it may have at most {VALUE} characters"),
                ));
            }
        }
        Ok(())
    }

    /// Checks the number of metadata pairs.
    pub(super) fn check_pair_count(&self, pairs: &[Field<'_>]) -> Result<(), Failure> {
        let most = self.caps().pairs;
        if pairs.len() > most {
            let must = format!("it may have at most {most} pairs (`limits.max_metadata_pairs`)");
            return Err(invalid("metadata", &must));
        }
        Ok(())
    }

    /// Reads which engine extensions the client asks for. The engine checks their values.
    pub(super) fn extensions(&self) -> Extensions {
        let says = |key: &str| {
            self.get(key)
                .is_some_and(|field| field.value.get() != "false")
        };
        Extensions {
            token_ids: says(RETURN_TOKEN_IDS),
            prompt_logprobs: says("prompt_logprobs"),
            prompt_text: says(RETURN_PROMPT_TEXT),
            response_messages: says("enable_response_messages"),
        }
    }

    /// Reads `stream` and `stream_options`. Fails on options without `stream`.
    pub(super) fn streaming(&self) -> Result<Streaming, Failure> {
        let stream = self.flag("stream")?;
        let mut streaming = Streaming {
            stream,
            ..Streaming::default()
        };
        let Some(field) = self.get("stream_options") else {
            return Ok(streaming);
        };
        let options = self.object("stream_options", field)?;
        if !stream {
            return Err(invalid(
                "stream_options",
                "it is only allowed together with stream",
            ));
        }
        no_duplicates(
            &options,
            &[
                "include_usage",
                "include_obfuscation",
                "continuous_usage_stats",
            ],
            "stream_options.",
        )?;
        for option in options.iter().filter(|option| option.value.get() != "null") {
            let slot = match option.key.as_ref() {
                "include_usage" => &mut streaming.include_usage,
                "include_obfuscation" => &mut streaming.include_obfuscation,
                "continuous_usage_stats" => &mut streaming.continuous_usage,
                _ => continue,
            };
            *slot = flag(&format!("stream_options.{}", option.key), option.value)?;
        }
        Ok(streaming)
    }

    /// Returns the range of a field's value in the body's text.
    pub(super) fn place(&self, key: &str) -> Option<std::ops::Range<usize>> {
        let field = self.fields.iter().find(|field| field.key == key);
        field.map(|field| fields::place(self.text, field.value.get()))
    }
}

/// Settings from `stream` and `stream_options`.
#[derive(Debug, Default)]
pub(super) struct Streaming {
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    pub(super) include_obfuscation: bool,
    pub(super) continuous_usage: bool,
}

fn flag(param: &str, value: Raw<'_>) -> Result<bool, Failure> {
    match value.get() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(invalid(param, "it must be true or false")),
    }
}

pub(super) fn list<'a>(param: &str, value: Raw<'a>, most: usize) -> Result<Vec<Raw<'a>>, Failure> {
    elements(param, json::elements(value.get()), most, String::new)
}

/// Collects the elements of a list; `None` is no list. `option` returns an addition to the error.
fn elements<'a>(
    param: &str,
    all: Option<json::Elements<'a>>,
    most: usize,
    option: impl Fn() -> String,
) -> Result<Vec<Raw<'a>>, Failure> {
    let mut all = all.ok_or_else(|| invalid(param, "it must be a list"))?;
    // An overlong list takes no more memory than the longest one that is allowed.
    let kept = all.by_ref().take(most).collect();
    match all.next() {
        None => Ok(kept),
        Some(_) => Err(invalid(
            param,
            &format!("it may have at most {most} elements{}", option()),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::ChatRequest;
    use crate::wire::Api;
    use bytes::Bytes;

    /// Reads a request with these members, beside those that its API requires.
    fn read(api: Api, members: &str, rules: &Rules) -> Result<ChatRequest, Failure> {
        let required = match api {
            Api::Completions => r#""prompt":"a""#,
            _ => r#""messages":[{"role":"user","content":"a"}]"#,
        };
        ChatRequest::read_for(
            api,
            &Bytes::from(format!("{{{required},{members}}}")),
            None,
            rules,
        )
    }

    /// Returns the parameter that the failure names; `None` if there is no failure.
    fn refused(members: &str, rules: &Rules) -> Option<String> {
        read(Api::Chat, members, rules)
            .err()
            .map(|failure| failure.param.unwrap_or_default())
    }

    #[test]
    fn reserved_fields_are_refused_at_every_depth() {
        for (members, param) in [
            (r#""rid":"x""#, "rid"),
            (
                r#""chat_template_kwargs":{"enable_thinking":true,"tokenize":true}"#,
                "chat_template_kwargs.tokenize",
            ),
            (r#""extra_body":{"top_k":1,"rid":"x"}"#, "extra_body.rid"),
            (
                r#""extra_body":{"chat_template_kwargs":{"tools":[]}}"#,
                "extra_body.chat_template_kwargs.tools",
            ),
        ] {
            assert_eq!(
                refused(members, &Rules::default()).as_deref(),
                Some(param),
                "{members}"
            );
            let rules = Rules {
                allowed: vec![param.to_owned()],
                ..Rules::default()
            };
            assert_eq!(refused(members, &rules), None, "{members}");
        }
        for members in [
            r#""chat_template_kwargs":null"#,
            r#""chat_template_kwargs":{"enable_thinking":false}"#,
            r#""extra_body":null"#,
            r#""extra_body":"rid""#,
            r#""extra_body":{"top_k":1}"#,
        ] {
            assert_eq!(refused(members, &Rules::default()), None, "{members}");
        }
        let failure = read(
            Api::Chat,
            r#""chat_template_kwargs":"x""#,
            &Rules::default(),
        )
        .unwrap_err();
        assert_eq!(
            failure.message,
            "Invalid value for 'chat_template_kwargs': it must be an object."
        );
    }

    #[test]
    fn numbers_keep_to_the_ranges_of_the_api_where_those_are_enforced() {
        let (engine, published) = (
            Rules::default(),
            Rules {
                ranges: Ranges::Api,
                ..Rules::default()
            },
        );
        for api in [Api::Chat, Api::Completions] {
            for (key, least, most) in [
                ("temperature", 0, 2),
                ("top_p", 0, 1),
                ("frequency_penalty", -2, 2),
                ("presence_penalty", -2, 2),
            ] {
                let member = |value: &str| format!("\"{key}\":{value}");
                let message = |value: &str, rules: &Rules| {
                    let failure = read(api, &member(value), rules).unwrap_err();
                    assert_eq!(failure.param.as_deref(), Some(key));
                    failure.message.into_owned()
                };
                let range = format!(
                    "Invalid value for '{key}': it must be a number from {least} to {most}."
                );
                for value in [least.to_string(), most.to_string(), "0.5".to_owned()] {
                    assert!(read(api, &member(&value), &engine).is_ok(), "{key} {value}");
                    assert!(
                        read(api, &member(&value), &published).is_ok(),
                        "{key} {value}"
                    );
                }
                for value in [format!("{}", least - 1), format!("{most}.01")] {
                    assert!(read(api, &member(&value), &engine).is_ok(), "{key} {value}");
                    assert_eq!(message(&value, &published), range);
                }
                for value in ["\"1\"", "true", "[1]"] {
                    assert_eq!(
                        message(value, &engine),
                        format!("Invalid value for '{key}': it must be a number.")
                    );
                    assert_eq!(message(value, &published), range);
                }
            }
        }
    }

    #[test]
    fn limits_of_the_operator_hold() {
        let caps = Caps {
            choices: 2,
            logprobs: 5,
            stops: 2,
            tools: 1,
            pairs: 1,
            ..Caps::PLAIN
        };
        let rules = Rules {
            caps,
            ..Rules::default()
        };
        let tool = r#"{"type":"function","function":{"name":"f"}}"#;
        for members in [
            r#""n":2"#,
            r#""top_logprobs":5"#,
            r#""stop":["a","b"]"#,
            r#""stop":"a""#,
            r#""metadata":{"a":"b"}"#,
            &format!("\"tools\":[{tool}]"),
        ] {
            assert_eq!(refused(members, &rules), None, "{members}");
        }
        for (members, param) in [
            (r#""n":3"#, "n"),
            (r#""top_logprobs":6"#, "top_logprobs"),
            // The whole vocabulary.
            (r#""top_logprobs":-1"#, "top_logprobs"),
            (r#""top_logprobs":-2"#, "top_logprobs"),
            (r#""stop":["a","b","c"]"#, "stop"),
            (r#""stop":["a",1]"#, "stop[1]"),
            (r#""stop":1"#, "stop"),
            (r#""metadata":{"a":"b","c":"d"}"#, "metadata"),
            (&format!("\"tools\":[{tool},{tool}]"), "tools"),
        ] {
            assert_eq!(
                refused(members, &rules).as_deref(),
                Some(param),
                "{members}"
            );
        }
        assert_eq!(refused(r#""top_logprobs":-1"#, &Rules::default()), None);
    }

    /// Engines take 0 for scoring alone, and -1 for no limit: neither limits the answer.
    #[test]
    fn only_a_positive_number_limits_the_answer() {
        for (api, key) in [
            (Api::Chat, "max_tokens"),
            (Api::Chat, "max_completion_tokens"),
            (Api::Completions, "max_tokens"),
            (Api::Completions, "max_completion_tokens"),
        ] {
            for (value, limit) in [(-1, None), (0, None), (1, Some(1)), (5, Some(5))] {
                let request = read(api, &format!("\"{key}\":{value}"), &Rules::default()).unwrap();
                assert_eq!(request.limit, limit, "{key} {value}");
            }
        }
    }
}
