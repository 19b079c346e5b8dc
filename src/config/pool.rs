//! `[[model]]`, `[affinity]` and `[retry]`: which of several upstreams is asked, and which after that.

use super::file::File;
use super::mistakes::{Mistakes, explain};
use super::{UpstreamConfig, overlay};
use crate::nearest::suggest;
use crate::wire::options::Options;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use toml::Table;

/// Members that say what a request is; a default of theirs would make another one of it.
const NO_DEFAULT: [&str; 4] = ["model", "messages", "prompt", "input"];

/// One `[[model]]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
pub struct ModelFile {
    pub name: String,
    pub aliases: Vec<String>,
    pub upstreams: Vec<String>,
    pub context_length: u64,
    pub defaults: Table,
    pub wire: Table,
}

/// Requests of one conversation go where its beginning is in the engine's cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
pub struct AffinityFile {
    pub by: By,
    pub header: String,
}

/// What requests have in common that go to the same upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// Nothing: each goes where the fewest are under way.
    #[default]
    None,
    /// How their conversation begins.
    Conversation,
    /// A header's value.
    Header,
}

/// The same with the header's name read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Affinity {
    /// None.
    None,
    /// By how the conversation begins.
    Conversation,
    /// By this header.
    Header(http::HeaderName),
}

impl Affinity {
    pub(super) fn meant(file: &AffinityFile, mistakes: &mut Mistakes) -> Option<Self> {
        match file.by {
            By::None => Some(Self::None),
            By::Conversation => Some(Self::Conversation),
            By::Header if file.header.is_empty() => {
                mistakes.none("affinity.header", "missing, although by = \"header\"")
            }
            By::Header => match file.header.parse() {
                Ok(name) => Some(Self::Header(name)),
                Err(_) => mistakes.none("affinity.header", "must be the name of a header"),
            },
        }
    }
}

/// How often another upstream is asked (faults 7).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
pub struct Retry {
    pub max_attempts: u32,
    pub budget_percent: u32,
    pub budget_per_second: u32,
}

impl Default for Retry {
    fn default() -> Self {
        Self { max_attempts: 2, budget_percent: 20, budget_per_second: 3 }
    }
}

impl Retry {
    pub(super) fn check(&self, mistakes: &mut Mistakes) {
        if !(1..=4).contains(&self.max_attempts) {
            mistakes.add("retry.max_attempts", "must be from 1 to 4");
        }
        if self.budget_percent > 100 {
            mistakes.add("retry.budget_percent", "must be at most 100");
        }
        if self.budget_per_second > 1000 {
            mistakes.add("retry.budget_per_second", "must be at most 1000");
        }
    }
}

/// One model of which something is configured.
#[derive(Clone, Debug)]
pub struct ModelConfig {
    /// The engines' name for it.
    pub name: String,
    /// Other names under which clients ask for it.
    pub aliases: Vec<String>,
    /// The upstreams that serve it, by their places; empty: those that list it.
    pub upstreams: Vec<usize>,
    /// Tokens of a prompt and its answer, where the operator says so.
    pub context_length: Option<u64>,
    /// Members of a request that has none of that name: key, and JSON.
    pub defaults: Vec<(String, String)>,
}

impl ModelConfig {
    pub(super) fn all(file: &File, upstreams: &[UpstreamConfig], mistakes: &mut Mistakes) -> Vec<Self> {
        let mut known: Vec<(&str, usize)> = Vec::new();
        let mut all = Vec::new();
        for (at, model) in file.model.iter().enumerate() {
            let path = |key: &str| format!("model[{at}].{key}");
            if model.name.is_empty() {
                mistakes.add(path("name"), "missing; the name that the engines know the model by");
            }
            let names = std::iter::once(("name", &model.name))
                .chain(model.aliases.iter().map(|alias| ("aliases", alias)));
            for (key, name) in names.filter(|(_, name)| !name.is_empty()) {
                match known.iter().find(|(other, _)| other == name) {
                    Some((_, other)) => {
                        mistakes.add(path(key), format!("\"{name}\" is a name of model[{other}] already"));
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
            for key in NO_DEFAULT.iter().filter(|key| model.defaults.contains_key(**key)) {
                mistakes.add(format!("{}.{key}", path("defaults")), "has no default; clients say it");
            }
            let json = |value| serde_json::to_string(value).ok();
            let defaults = model.defaults.iter().filter_map(|(key, value)| Some((key.clone(), json(value)?)));
            all.push(Self {
                name: model.name.clone(),
                aliases: model.aliases.clone(),
                upstreams: places,
                context_length: Some(model.context_length).filter(|tokens| *tokens > 0),
                defaults: defaults.collect(),
            });
        }
        all
    }

    /// Whether clients may ask for it by this name.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }
}

/// Options of the wire format laid over each other: those of all answers, of an upstream, of a model, of a key; the later
/// beat the earlier.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// For each upstream, for no model and each model, for no key and each key.
    all: Vec<Arc<Options>>,
    models: usize,
    keys: usize,
}

impl Layers {
    pub(super) fn of(file: &File, mistakes: &mut Mistakes) -> Self {
        let (models, keys) = (file.model.len() + 1, file.auth.key.len() + 1);
        let mut lay = |below: &Arc<Options>, over: &Table, path: &dyn Fn() -> String| {
            if over.is_empty() {
                return Arc::clone(below);
            }
            match overlay(below, over) {
                Ok(options) => Arc::new(options),
                Err(error) => {
                    mistakes.add(path(), explain(error.message(), "option"));
                    Arc::clone(below)
                }
            }
        };
        let none = Table::new();
        let all_answers = Arc::new(file.wire.clone());
        let mut all = Vec::with_capacity(file.upstream.len() * models * keys);
        for (at, upstream) in file.upstream.iter().enumerate() {
            let of_upstream = lay(&all_answers, &upstream.wire, &|| format!("upstream[{at}].wire"));
            let of_models = std::iter::once(&none).chain(file.model.iter().map(|model| &model.wire));
            for (at, wire) in of_models.enumerate() {
                let of_model = lay(&of_upstream, wire, &|| format!("model[{}].wire", at.saturating_sub(1)));
                all.push(Arc::clone(&of_model));
                for (at, key) in file.auth.key.iter().enumerate() {
                    all.push(lay(&of_model, &key.wire, &|| format!("auth.key[{at}].wire")));
                }
            }
        }
        Self { all, models, keys }
    }

    /// The options for an answer of this upstream; `model` and `key` by their places in the file.
    pub fn options(&self, upstream: usize, model: Option<usize>, key: Option<usize>) -> Arc<Options> {
        let place = |at: Option<usize>| at.map_or(0, |at| at + 1);
        let at = (upstream * self.models + place(model)) * self.keys + place(key);
        self.all.get(at).cloned().unwrap_or_default()
    }
}
