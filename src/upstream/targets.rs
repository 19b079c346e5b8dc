//! Targets of a model: the models that a name of the configuration stands for, in the order in which they are tried.
//!
//! Takes: the entries `[[model]]`, and a seed. Gives: a list without repetitions. Never: checks which upstreams are well.

use crate::config::{ModelConfig, TargetConfig};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Model that may answer a request, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelTarget {
    /// Name of the model, as clients may request it.
    pub model: Arc<str>,
    /// Index of the only entry `[[upstream]]` whose upstreams are used; `None`: each one that serves the model.
    pub upstream: Option<usize>,
}

/// Returns the targets of an entry: one of `to`, which the weights and the seed choose, then the others of `to`, then
/// the fallbacks. An entry among them brings its own. The configuration has no circles.
pub(super) fn in_order(models: &[ModelConfig], entry: &ModelConfig, seed: u64) -> Vec<ModelTarget> {
    let mut found = Vec::new();
    add_entry(models, entry, None, seed, &mut found);
    found
}

fn add_entry(
    models: &[ModelConfig],
    entry: &ModelConfig,
    upstream: Option<usize>,
    seed: u64,
    found: &mut Vec<ModelTarget>,
) {
    if entry.to.is_empty() {
        push(found, &entry.name, upstream);
    }
    for target in drawn(&entry.to, seed).into_iter().chain(&entry.fallbacks) {
        match target.entry.and_then(|at| models.get(at)) {
            Some(entry) => add_entry(models, entry, target.upstream, seed, found),
            None => push(found, &target.model, target.upstream),
        }
    }
}

fn push(found: &mut Vec<ModelTarget>, model: &str, upstream: Option<usize>) {
    if !found
        .iter()
        .any(|known| *known.model == *model && known.upstream == upstream)
    {
        found.push(ModelTarget {
            model: model.into(),
            upstream,
        });
    }
}

/// Returns the targets in the order of their draws: over many seeds, each comes first in proportion to its weight
/// (rendezvous hashing). A changed weight moves no more requests than it must. Weight 0 is left out.
fn drawn(to: &[TargetConfig], seed: u64) -> Vec<&TargetConfig> {
    let key = |target: &TargetConfig| {
        let mut hasher = DefaultHasher::new();
        ("model", seed, &target.model, target.upstream).hash(&mut hasher);
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
        let number = (hasher.finish() >> 11) as f64 / (1_u64 << 53) as f64;
        number.max(f64::MIN_POSITIVE).ln() / f64::from(target.weight)
    };
    let mut all: Vec<_> = to
        .iter()
        .filter(|target| target.weight > 0)
        .map(|one| (key(one), one))
        .collect();
    all.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    all.into_iter().map(|(_, target)| target).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Overrides};

    fn models(text: &str) -> Vec<ModelConfig> {
        let text = format!("[[upstream]]\nurl = \"http://a:1\"\n{text}");
        Config::read(&text, &[&Overrides::default()])
            .unwrap()
            .models
    }

    fn names(models: &[ModelConfig], seed: u64) -> Vec<String> {
        in_order(models, &models[0], seed)
            .iter()
            .map(|target| target.model.to_string())
            .collect()
    }

    #[test]
    fn weights_are_shares_and_a_seed_says_always_the_same() {
        let models = models(
            "[[model]]\nname = \"chat\"\nto = [{ model = \"a\", weight = 90 }, { model = \"b\", weight = 10 }, { model = \"off\", weight = 0 }]\n",
        );
        let all: Vec<_> = (0..2_000).map(|seed| names(&models, seed)).collect();
        let canaries = all.iter().filter(|names| names[0] == "b").count();
        assert!((120..280).contains(&canaries), "a tenth: {canaries}");
        assert!(
            all.iter()
                .all(|names| names.len() == 2 && !names.contains(&"off".to_owned())),
            "the others follow"
        );
        assert!((0..2_000).all(|seed| names(&models, seed) == all[usize::try_from(seed).unwrap()]));
    }

    #[test]
    fn entries_bring_their_own() {
        let models = models(
            r#"
            [[model]]
            name = "chat"
            to = [{ model = "big" }]
            fallbacks = ["small", "last"]
            [[model]]
            name = "big"
            fallbacks = ["medium", "small"]
            [[model]]
            name = "last"
            to = [{ model = "last", upstream = "a:1" }, { model = "big" }]
            "#,
        );
        let all = in_order(&models, &models[0], 7);
        assert_eq!(names(&models, 7), ["big", "medium", "small", "last"]);
        assert_eq!(all[3].upstream, Some(0));
        let own = in_order(&models, &models[1], 7);
        let own: Vec<_> = own.iter().map(|target| &*target.model).collect();
        assert_eq!(
            own,
            ["big", "medium", "small"],
            "the model itself comes first"
        );
    }
}
