//! Text form of a route: by what the answer of a captured exchange was rewritten, so that it can be explained later as
//! it was.
//!
//! Takes: a route, or its text. Gives: the other. Never: writes the salt of fingerprints, which is secret, nor what
//! belongs to other requests as well: vocabulary and accepted names of models.

use super::Route;
use crate::engine::fallback::Fallbacks;
use crate::engine::{Engine, EngineIdentity, EngineVersion, Front, named};
use crate::request::messages::MessagesMode;
use crate::request::responses::ResponsesMode;
use crate::wire::TemplateFacts;
use crate::wire::options::Options;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct PlanRecord {
    #[serde(serialize_with = "write_engine", deserialize_with = "read_engine")]
    engine: &'static Engine,
    /// `null`: not known.
    #[serde(
        default,
        serialize_with = "write_version",
        deserialize_with = "read_version"
    )]
    version: Option<EngineVersion>,
    #[serde(
        default,
        serialize_with = "write_front",
        deserialize_with = "read_front"
    )]
    front_end: Front,
    /// Name of the model at the engine; `null`: the client's.
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    responses: ResponsesMode,
    #[serde(default)]
    messages: MessagesMode,
    #[serde(
        default,
        serialize_with = "write_fallbacks",
        deserialize_with = "read_fallbacks"
    )]
    fallbacks: Fallbacks,
    #[serde(default)]
    separates_reasoning: bool,
    #[serde(default)]
    template: TemplateFacts,
    #[serde(default)]
    shows_prompt: bool,
    max_event_bytes: usize,
    #[serde(default)]
    options: Options,
}

impl Route {
    /// Returns the route as text, as JSON; `None` if it cannot be written.
    pub fn record(&self) -> Option<String> {
        let record = PlanRecord {
            engine: self.identity.engine,
            version: self.identity.version,
            front_end: self.identity.front,
            model: self.model_alias.clone(),
            responses: self.responses,
            messages: self.messages,
            fallbacks: self.fallbacks,
            separates_reasoning: self.separates_reasoning,
            template: self.template,
            shows_prompt: self.shows_prompt,
            max_event_bytes: self.max_event_bytes,
            options: Options {
                fingerprint_salt: String::new(),
                ..(*self.options).clone()
            },
        };
        serde_json::to_string_pretty(&record)
            .ok()
            .map(|text| text + "\n")
    }

    /// Returns the route of such a text.
    ///
    /// # Errors
    /// Fails with the first mistake, and its line.
    pub fn of_record(text: &str) -> Result<Self, String> {
        let record: PlanRecord = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let identity = EngineIdentity {
            engine: record.engine,
            front: record.front_end,
            version: record.version,
        };
        Ok(Self {
            model_alias: record.model,
            responses: record.responses,
            messages: record.messages,
            fallbacks: record.fallbacks,
            separates_reasoning: record.separates_reasoning,
            template: record.template,
            shows_prompt: record.shows_prompt,
            ..Self::new(identity, Arc::new(record.options), record.max_event_bytes)
        })
    }
}

fn write_engine<S: Serializer>(engine: &&'static Engine, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(engine.name)
}

fn read_engine<'de, D: Deserializer<'de>>(from: D) -> Result<&'static Engine, D::Error> {
    let name = String::deserialize(from)?;
    named(&name).ok_or_else(|| D::Error::custom(format_args!("there is no engine {name}")))
}

#[expect(clippy::ref_option, reason = "serde passes the field so")]
fn write_version<S: Serializer>(version: &Option<EngineVersion>, to: S) -> Result<S::Ok, S::Error> {
    version.map(|version| version.to_string()).serialize(to)
}

fn read_version<'de, D: Deserializer<'de>>(from: D) -> Result<Option<EngineVersion>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    let version = text.map(|text| text.parse()).transpose();
    version.map_err(|_| D::Error::custom("a version must be a release such as 0.21.0"))
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes the field so"
)]
fn write_front<S: Serializer>(front: &Front, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(front.name())
}

fn read_front<'de, D: Deserializer<'de>>(from: D) -> Result<Front, D::Error> {
    let name = String::deserialize(from)?;
    let front = [Front::Own, Front::Rust]
        .into_iter()
        .find(|front| front.name() == name);
    front.ok_or_else(|| D::Error::custom("a front end must be own or rust"))
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes the field so"
)]
fn write_fallbacks<S: Serializer>(fallbacks: &Fallbacks, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(fallbacks)
}

fn read_fallbacks<'de, D: Deserializer<'de>>(from: D) -> Result<Fallbacks, D::Error> {
    let names = String::deserialize(from)?;
    Fallbacks::named(&names)
        .ok_or_else(|| D::Error::custom(format_args!("{names} are no fallbacks")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::fallback::Fallback;
    use crate::wire::options::{Parser, ReasoningField};

    #[test]
    fn a_route_is_what_its_record_says() {
        let options = Options {
            reasoning_field: ReasoningField::Reasoning,
            parser: Parser::Family("hermes".to_owned()),
            fingerprint_salt: "CANARY".to_owned(),
            ..Options::default()
        };
        let engine = named("vllm").unwrap();
        let identity = EngineIdentity {
            front: Front::Rust,
            version: "0.33.0".parse().ok(),
            engine,
        };
        let route = Route {
            model_alias: Some("org/m".to_owned()),
            responses: ResponsesMode::Native,
            fallbacks: Fallbacks::default()
                .with(Fallback::FanOut)
                .with(Fallback::SystemMerged),
            separates_reasoning: true,
            template: TemplateFacts::UNKNOWN.with_prompt(None, "<think>"),
            ..Route::new(identity, Arc::new(options.clone()), 1 << 20)
        };
        let text = route.record().unwrap();
        assert!(
            !text.contains("CANARY") && text.contains("\"fallbacks\": \"system_merged,fan_out\""),
            "{text}"
        );
        let read = Route::of_record(&text).unwrap();
        assert_eq!((read.identity, read.template), (identity, route.template));
        assert_eq!(
            *read.options,
            Options {
                fingerprint_salt: String::new(),
                ..options
            }
        );
        assert_eq!(read.record(), Some(text));
    }

    #[test]
    fn mistakes_have_their_line() {
        let least = "{\n\"engine\": \"vllm\",\n\"max_event_bytes\": 1";
        assert!(Route::of_record(&format!("{least}}}")).is_ok());
        for (more, expected) in [
            (",\n\"versoin\": \"1.0\"}", "unknown field `versoin`"),
            (
                ",\n\"version\": \"new\"}",
                "a version must be a release such as 0.21.0",
            ),
            (
                ",\n\"options\": {\"parser\": \"hermis\"}}",
                "must be off, auto or the name of a parser",
            ),
            (",\n\"fallbacks\": \"none\"}", "none are no fallbacks"),
        ] {
            let why = Route::of_record(&format!("{least}{more}")).unwrap_err();
            assert!(
                why.contains(expected) && why.contains("line 4"),
                "{more}: {why}"
            );
        }
        assert!(
            Route::of_record("{\"engine\":\"x\",")
                .unwrap_err()
                .contains("there is no engine x")
        );
    }
}
