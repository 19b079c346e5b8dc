//! Options of the wire format in layers: for all answers, per upstream, per model and per key.

use super::file::File;
use super::mistakes::{Mistakes, explain};
use super::overlay;
use crate::wire::options::{Options, Parser};
use std::net::SocketAddr;
use std::sync::Arc;
use toml::Table;

/// Effective options of the wire format for every combination of upstream, model and key. They are merged once, at
/// load: a key's options override the model's, which override the upstream's, which override `[wire]`.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// Options indexed by upstream, then by model (0: none), then by key (0: none).
    all: Vec<Arc<Options>>,
    models: usize,
    keys: usize,
}

impl Layers {
    /// Merges the options of a file. `listen`: address for clients, which decides with the keys what
    /// `engine_errors = "auto"` means.
    pub(super) fn of(file: &File, listen: Option<SocketAddr>, mistakes: &mut Mistakes) -> Self {
        let is_private =
            !file.checks_keys() && listen.is_some_and(|listen| listen.ip().is_loopback());
        let resolved = |options: Options| {
            let engine_errors = options.engine_errors.resolved(is_private);
            Arc::new(Options {
                engine_errors,
                ..options
            })
        };
        let (models, keys) = (file.model.len() + 1, file.auth.key.len() + 1);
        let mut lay = |below: &Arc<Options>, over: &Table, path: &dyn Fn() -> String| {
            if over.is_empty() {
                return Arc::clone(below);
            }
            match overlay(below, over) {
                Ok(options) => resolved(options),
                Err(error) => {
                    mistakes.add(path(), explain(error.message(), "option"));
                    Arc::clone(below)
                }
            }
        };
        let none = Table::new();
        let mut all_answers = file.wire.clone();
        if !file.guard.is_default() {
            all_answers.guard = file.guard;
        }
        let all_answers = resolved(all_answers);
        let mut all = Vec::with_capacity(file.upstream.len() * models * keys);
        for (at, upstream) in file.upstream.iter().enumerate() {
            let of_upstream = lay(&all_answers, &upstream.wire, &|| {
                format!("upstream[{at}].wire")
            });
            let of_models =
                std::iter::once(&none).chain(file.model.iter().map(|model| &model.wire));
            for (at, wire) in of_models.enumerate() {
                let of_model = lay(&of_upstream, wire, &|| {
                    format!("model[{}].wire", at.saturating_sub(1))
                });
                all.push(Arc::clone(&of_model));
                for (at, key) in file.auth.key.iter().enumerate() {
                    all.push(lay(&of_model, &key.wire, &|| {
                        format!("auth.key[{at}].wire")
                    }));
                }
            }
        }
        Self { all, models, keys }
    }

    /// Returns the layers for another list of upstreams. `origins` has for each of them the index of one of the
    /// present upstreams, whose options it takes.
    pub(super) fn of_upstreams(&self, origins: &[usize]) -> Self {
        let each = self.models * self.keys;
        let of = |at: &usize| {
            self.all
                .get(at * each..(at + 1) * each)
                .into_iter()
                .flatten()
                .cloned()
        };
        Self {
            all: origins.iter().flat_map(of).collect(),
            ..*self
        }
    }

    /// Returns true if the text of some answers of this upstream is parsed.
    pub fn reads_text(&self, upstream: usize) -> bool {
        let each = self.models * self.keys;
        let mut all = self.all.iter().skip(upstream * each).take(each);
        all.any(|options| options.parser != Parser::Off)
    }

    /// Returns the options for an answer of this upstream. `model` and `key` are indices in the file.
    pub fn options(
        &self,
        upstream: usize,
        model: Option<usize>,
        key: Option<usize>,
    ) -> Arc<Options> {
        let place = |at: Option<usize>| at.map_or(0, |at| at + 1);
        let at = (upstream * self.models + place(model)) * self.keys + place(key);
        self.all.get(at).cloned().unwrap_or_default()
    }
}
