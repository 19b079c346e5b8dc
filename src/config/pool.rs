//! Tables `[[model]]`, `[affinity]` and `[retry]`: the choice between several upstreams, and the next choice after
//! a failure.

use super::UpstreamConfig;
use super::limits::WEIGHT;
use super::mistakes::Mistakes;
use super::rows::{self, table};
use crate::engine::efforts::{EFFORTS, Efforts};
use crate::model_name;
use crate::nearest::suggest;
use serde::{Deserialize, Serialize};
use toml::Table;

/// Members that define a request. Defaults for them are rejected, because they would turn it into a different
/// request.
const NO_DEFAULT: [&str; 4] = ["model", "messages", "prompt", "input"];

table! {
    /// Entry `[[model]]` as written: names, upstreams, defaults and options of one model.
    ModelFile {
        name: String;
        aliases: Vec<String>;
        upstreams: Vec<String>;
        context_length: u64;
        efforts: Vec<String>;
        fallbacks: Vec<String>;
        to: Vec<TargetFile>, table;
        defaults: Table;
        wire: Table;
    }
}

table! {
    /// Entry of `to` as written: one of the models that a name stands for.
    TargetFile {
        model: String;
        upstream: String;
        weight: u32 = 1, within(0, WEIGHT);
    }
}

/// Checked target of a name: a model of the engines, or another entry that stands for several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetConfig {
    /// Name of the model, as clients may ask for it.
    pub model: String,
    /// Index of the only entry `[[upstream]]` whose upstreams are used; `None`: each one that serves the model.
    pub upstream: Option<usize>,
    /// Share of the requests beside the other targets of the name; 0: none.
    pub weight: u32,
    /// Index of the entry of this model; `None`: the name is meant as the engines know it.
    pub entry: Option<usize>,
}

table! {
    /// Table `[affinity]` as written. Affinity sends the requests of a conversation to the engine that has its
    /// beginning in the cache.
    AffinityFile {
        by: By;
        header: String;
        prefix_blocks: usize = 1 << 17, from(1 << 10, 1 << 24);
    }
}

/// Property that requests must share to be sent to the same upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// Least load: each request goes to the upstream with the fewest requests in progress.
    #[default]
    None,
    /// Start of the conversation, which the engine's prefix cache may hold.
    Conversation,
    /// Value of the header that the key `header` names.
    Header,
    /// Longest beginning of the prompt that an engine has got lately.
    Prefix,
}

/// Checked affinity setting, with the header's name parsed. The pool applies it when it selects an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Affinity {
    /// Least load: no request depends on an earlier one.
    None,
    /// Start of the conversation, so that its prefix is in the cache of the engine.
    Conversation,
    /// Value of this header; requests without it go to the least loaded upstream.
    Header(http::HeaderName),
    /// Longest beginning of the prompt that an upstream has got lately, of at most this number of blocks in all.
    Prefix(usize),
}

impl Affinity {
    pub(super) fn resolve(file: &AffinityFile, mistakes: &mut Mistakes) -> Option<Self> {
        match file.by {
            By::None => Some(Self::None),
            By::Conversation => Some(Self::Conversation),
            By::Prefix => Some(Self::Prefix(file.prefix_blocks)),
            By::Header if file.header.is_empty() => {
                mistakes.add_none("affinity.header", "missing, although by = \"header\"")
            }
            By::Header => match file.header.parse() {
                Ok(name) => Some(Self::Header(name)),
                Err(_) => mistakes.add_none("affinity.header", "must be the name of a header"),
            },
        }
    }
}

table! {
    /// Table `[retry]`: the maximum number of attempts per request, and the retry budget of the process (faults 7).
    Retry {
        max_attempts: u32 = 2, from(1, 4);
        budget_percent: u32 = 20, within(0, 100);
        budget_per_second: u32 = 3, within(0, 1000);
    }
}

/// Checked settings of one model that the configuration mentions. Other models need no entry.
#[derive(Clone, Debug)]
pub struct ModelConfig {
    /// Name of the model at the engines, which requests to them contain.
    pub name: String,
    /// Further names that clients may use for the model, of which some are patterns.
    pub aliases: Vec<String>,
    /// Indices of the upstreams that serve the model; empty: all upstreams that list it.
    pub upstreams: Vec<usize>,
    /// Maximum number of tokens of prompt and answer together, if configured.
    pub context_length: Option<u64>,
    /// Efforts that the model takes; none: those of the engine, until it refuses one.
    pub efforts: Efforts,
    /// Members that are added to requests without them: key, and value as JSON.
    pub defaults: Vec<(String, String)>,
    /// Models that the name stands for; empty: the engines' model of this name. Resolved once all entries are read.
    pub to: Vec<TargetConfig>,
    /// Models that are requested, in this order, where no upstream can answer for the model itself.
    pub fallbacks: Vec<TargetConfig>,
}

impl ModelConfig {
    /// Checks all entries, but for their targets and fallbacks.
    pub(super) fn all(
        models: &[ModelFile],
        upstreams: &[UpstreamConfig],
        mistakes: &mut Mistakes,
    ) -> Vec<Self> {
        let mut known: Vec<(&str, usize)> = Vec::new();
        let mut all = Vec::new();
        for (at, model) in models.iter().enumerate() {
            let path = |key: &str| format!("model[{at}].{key}");
            if model.name.is_empty() {
                mistakes.add(
                    path("name"),
                    "missing; the name that the engines know the model by",
                );
            }
            if model_name::is_pattern(&model.name) {
                mistakes.add(
                    path("name"),
                    "a name has no `*`; patterns belong into aliases",
                );
            }
            if model.aliases.iter().any(String::is_empty) {
                mistakes.add(path("aliases"), "a name without a character");
            }
            let names = std::iter::once(("name", &model.name))
                .chain(model.aliases.iter().map(|alias| ("aliases", alias)));
            for (key, name) in names.filter(|(_, name)| !name.is_empty()) {
                match known.iter().find(|(other, _)| other == name) {
                    Some((_, other)) => {
                        mistakes.add(
                            path(key),
                            format!("\"{name}\" is a name of model[{other}] already"),
                        );
                    }
                    None => known.push((name, at)),
                }
            }
            let mut places = Vec::new();
            for name in &model.upstreams {
                match upstreams.iter().position(|upstream| upstream.name == *name) {
                    Some(place) => places.push(place),
                    None => {
                        let known = upstreams.iter().map(|upstream| upstream.name.as_str());
                        let why = format!("there is no upstream \"{name}\"");
                        mistakes.add(path("upstreams"), suggest(why, name, known));
                    }
                }
            }
            for key in NO_DEFAULT
                .iter()
                .filter(|key| model.defaults.contains_key(**key))
            {
                mistakes.add(
                    format!("{}.{key}", path("defaults")),
                    "has no default; clients say it",
                );
            }
            for (place, word) in model
                .efforts
                .iter()
                .enumerate()
                .filter(|(_, word)| !EFFORTS.contains(&word.as_str()))
            {
                let why = suggest(
                    format!("expected {}", EFFORTS.join(", ")),
                    word,
                    EFFORTS.iter().copied(),
                );
                mistakes.add(format!("{}[{place}]", path("efforts")), why);
            }
            let json = |value| serde_json::to_string(value).ok();
            let defaults = model
                .defaults
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), json(value)?)));
            all.push(Self {
                name: model.name.clone(),
                aliases: model.aliases.clone(),
                upstreams: places,
                context_length: Some(model.context_length).filter(|tokens| *tokens > 0),
                efforts: Efforts::of(model.efforts.iter().map(String::as_str)).unwrap_or_default(),
                defaults: defaults.collect(),
                to: Vec::new(),
                fallbacks: Vec::new(),
            });
        }
        all
    }

    /// Returns true if the name is the model's own name or one of its aliases.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }

    /// Returns true if requests for the model may go to another one.
    pub fn has_targets(&self) -> bool {
        !self.to.is_empty() || !self.fallbacks.is_empty()
    }

    /// Returns true if one of the aliases is a pattern that covers the name.
    pub fn covers(&self, name: &str) -> bool {
        !name.is_empty()
            && self
                .aliases
                .iter()
                .any(|alias| model_name::covers(alias, name))
    }

    /// Returns the aliases that are names.
    pub fn alias_names(&self) -> impl Iterator<Item = &String> {
        self.aliases
            .iter()
            .filter(|alias| !model_name::is_pattern(alias))
    }
}
