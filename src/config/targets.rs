//! Keys `to` and `fallbacks` of `[[model]]`: the models that a name stands for, and those that take its place.

use super::UpstreamConfig;
use super::mistakes::Mistakes;
use super::pool::{ModelConfig, ModelFile, TargetConfig, TargetFile};
use crate::model_name;
use crate::nearest::suggest;

/// Configuration against which an entry is checked: all entries, and the upstreams.
struct Names<'a> {
    models: &'a [ModelFile],
    upstreams: &'a [UpstreamConfig],
}

impl Names<'_> {
    /// Returns the index of the entry that has this name. Patterns do not count: they cover only what no engine lists,
    /// which is not known here.
    fn entry(&self, name: &str) -> Option<usize> {
        let is_called =
            |model: &ModelFile| model.name == name || model.aliases.iter().any(|one| one == name);
        self.models.iter().position(is_called)
    }

    /// Returns the index of an upstream, and reports a name that there is not.
    fn upstream(&self, path: &str, name: &str, mistakes: &mut Mistakes) -> Option<usize> {
        if name.is_empty() {
            return None;
        }
        let found = self
            .upstreams
            .iter()
            .position(|upstream| upstream.name == name);
        found.or_else(|| {
            let known = self.upstreams.iter().map(|upstream| upstream.name.as_str());
            mistakes.add_none(
                path,
                suggest(format!("there is no upstream \"{name}\""), name, known),
            )
        })
    }

    /// Reports a name that nothing serves, as far as the configuration alone tells: each upstream in question has a
    /// list of `models`, and none has this one.
    fn check_served(
        &self,
        path: &str,
        name: &str,
        upstream: Option<usize>,
        mistakes: &mut Mistakes,
    ) {
        let is_target = |at: usize| upstream.is_none_or(|only| only == at);
        let mut targets = self
            .upstreams
            .iter()
            .enumerate()
            .filter(|(at, _)| is_target(*at))
            .map(|(_, one)| one);
        let lacks = |one: &UpstreamConfig| {
            !one.models.is_empty()
                && !one
                    .models
                    .iter()
                    .any(|model| model_name::covers(model, name))
        };
        let is_covered = || {
            self.models
                .iter()
                .flat_map(|model| &model.aliases)
                .any(|one| model_name::covers(one, name))
        };
        if self.upstreams.is_empty() || !targets.all(lacks) || is_covered() {
            return;
        }
        let own = self.models.iter().map(|model| model.name.as_str());
        let served = self
            .upstreams
            .iter()
            .flat_map(|one| one.models.iter().map(String::as_str));
        let why = format!("there is no model \"{name}\" in [[model]] or in models of [[upstream]]");
        mistakes.add(path, suggest(why, name, own.chain(served)));
    }
}

/// Resolves `to` and `fallbacks` of all entries, in their order. Reports names that do not exist, weights that leave
/// nothing to ask, and circles.
pub(super) fn resolve(
    models: &[ModelFile],
    upstreams: &[UpstreamConfig],
    all: &mut [ModelConfig],
    mistakes: &mut Mistakes,
) {
    let names = Names { models, upstreams };
    for (at, (file, model)) in models.iter().zip(all.iter_mut()).enumerate() {
        let path = format!("model[{at}]");
        model.to = targets(&names, at, file, &path, mistakes);
        let fallbacks = file
            .fallbacks
            .iter()
            .filter_map(|name| fallback(&names, name, &path, mistakes));
        model.fallbacks = fallbacks.collect();
        if !file.to.is_empty() {
            check_route(file, &path, mistakes);
        }
    }
    for at in 0..all.len() {
        check_circle(all, at, mistakes);
    }
}

fn targets(
    names: &Names<'_>,
    own: usize,
    file: &ModelFile,
    path: &str,
    mistakes: &mut Mistakes,
) -> Vec<TargetConfig> {
    let mut found = Vec::new();
    for (nth, target) in file.to.iter().enumerate() {
        let path = |key: &str| format!("{path}.to[{nth}].{key}");
        let TargetFile {
            model,
            upstream,
            weight,
        } = target;
        if model.is_empty() {
            mistakes.add(path("model"), "missing; the model that is asked");
            continue;
        }
        let upstream = names.upstream(&path("upstream"), upstream, mistakes);
        // Its own name means the model that engines know by it: a canary beside it needs no other name.
        let entry = names
            .entry(model)
            .filter(|entry| *entry != own || *model != file.name);
        match entry.and_then(|entry| names.models.get(entry)) {
            Some(entry) if upstream.is_some() && !entry.to.is_empty() => {
                mistakes.add(
                    path("upstream"),
                    "the model has targets of its own, which name their upstreams",
                );
            }
            Some(_) => {}
            None => names.check_served(&path("model"), model, upstream, mistakes),
        }
        found.push(TargetConfig {
            model: model.clone(),
            upstream,
            weight: *weight,
            entry,
        });
    }
    found
}

fn fallback(
    names: &Names<'_>,
    name: &str,
    path: &str,
    mistakes: &mut Mistakes,
) -> Option<TargetConfig> {
    let path = format!("{path}.fallbacks");
    if name.is_empty() {
        return mistakes.add_none(&path, "a name without a character");
    }
    let entry = names.entry(name);
    if entry.is_none() {
        names.check_served(&path, name, None, mistakes);
    }
    Some(TargetConfig {
        model: name.to_owned(),
        upstream: None,
        weight: 1,
        entry,
    })
}

/// Reports keys that say nothing at a name that only stands for others, and weights of 0 alone.
fn check_route(file: &ModelFile, path: &str, mistakes: &mut Mistakes) {
    if file.to.iter().all(|target| target.weight == 0) {
        mistakes.add(
            format!("{path}.to"),
            "every weight is 0: no model would be asked",
        );
    }
    if !file.upstreams.is_empty() {
        mistakes.add(
            format!("{path}.upstreams"),
            "says nothing beside `to`; a target has `upstream`",
        );
    }
    if !file.wire.is_empty() {
        mistakes.add(
            format!("{path}.wire"),
            "says nothing beside `to`; write it at the models themselves",
        );
    }
}

/// Reports a circle that goes through this entry, once for each circle: at the first of its entries.
fn check_circle(all: &[ModelConfig], start: usize, mistakes: &mut Mistakes) {
    let Some(way) = way_back(all, start).filter(|way| way.iter().all(|at| *at >= start)) else {
        return;
    };
    let name = |at: &usize| all.get(*at).map_or("", |model| model.name.as_str());
    let names: Vec<_> = way.iter().chain([&start]).map(name).collect();
    let is_target =
        |model: &ModelConfig, next| model.to.iter().any(|target| target.entry == Some(next));
    let next = way.get(1).copied().unwrap_or(start);
    let key = if all.get(start).is_some_and(|model| is_target(model, next)) {
        "to"
    } else {
        "fallbacks"
    };
    let why = format!("goes round in a circle: {}", names.join(" → "));
    mistakes.add(format!("model[{start}].{key}"), why);
}

/// Returns the entries from `start` to the one that leads back to it; `None` if none does.
fn way_back(all: &[ModelConfig], start: usize) -> Option<Vec<usize>> {
    let mut visited = vec![start];
    let mut open = vec![vec![start]];
    while let Some(path) = open.pop() {
        let next = path.last().and_then(|last| all.get(*last)).into_iter();
        for entry in next
            .flat_map(|model| model.to.iter().chain(&model.fallbacks))
            .filter_map(|one| one.entry)
        {
            if entry == start {
                return Some(path);
            }
            if !visited.contains(&entry) {
                visited.push(entry);
                open.push(path.iter().copied().chain([entry]).collect());
            }
        }
    }
    None
}

/// Returns what names stand for, as TOML comments, for `samewire check`.
pub(super) fn summary(models: &[ModelConfig]) -> String {
    let mut lines = String::new();
    for model in models.iter().filter(|model| model.has_targets()) {
        let total: u32 = model.to.iter().map(|target| target.weight).sum();
        let share = |target: &TargetConfig| {
            format!(
                "{} ({:.1} %)",
                target.model,
                100.0 * f64::from(target.weight) / f64::from(total.max(1))
            )
        };
        let to = match model.to.is_empty() {
            true => "itself".to_owned(),
            false => model.to.iter().map(share).collect::<Vec<_>>().join(", "),
        };
        let fallbacks: String = model
            .fallbacks
            .iter()
            .map(|one| format!(", else {}", one.model))
            .collect();
        lines.push_str(&format!("# {} stands for {to}{fallbacks}.\n", model.name));
    }
    if !lines.is_empty() {
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, Overrides};

    fn read(text: &str) -> Result<Config, String> {
        let upstreams = "[[upstream]]\nname = \"a\"\nurl = \"http://a:1\"\nmodels = [\"big\", \"new\", \"small\"]\n";
        let config = Config::read(&format!("{upstreams}{text}"), &[&Overrides::default()]);
        config.map_err(|mistakes| mistakes.to_string())
    }

    #[test]
    fn targets_and_fallbacks_are_resolved() {
        let config = read(
            r#"
            [[model]]
            name = "chat"
            to = [{ model = "big", weight = 95 }, { model = "new", weight = 5, upstream = "a" }]
            fallbacks = ["other"]
            [[model]]
            name = "small"
            aliases = ["other"]
            [[model]]
            name = "big"
            to = [{ model = "big" }, { model = "new" }]
            "#,
        );
        let config = config.unwrap();
        let summary = "# chat stands for big (95.0 %), new (5.0 %), else other.\n# big stands for big (50.0 %), new (50.0 %).\n\n";
        assert!(config.shown().starts_with(summary), "{}", config.shown());
        let models = config.models;
        let told = |at: usize| -> Vec<_> {
            let all = models[at].to.iter().chain(&models[at].fallbacks);
            all.map(|one| (one.model.clone(), one.upstream, one.weight, one.entry))
                .collect()
        };
        let target =
            |name: &str, upstream, weight, entry| (name.to_owned(), upstream, weight, entry);
        assert_eq!(
            told(0),
            [
                target("big", None, 95, Some(2)),
                target("new", Some(0), 5, None),
                target("other", None, 1, Some(1))
            ]
        );
        assert_eq!(
            told(2),
            [target("big", None, 1, None), target("new", None, 1, None)],
            "its own name"
        );
    }

    /// A pattern covers what no engine lists, so that it takes no name from the engines.
    #[test]
    fn patterns_lead_nowhere() {
        let all =
            "name = \"big\"\naliases = [\"*\"]\nfallbacks = [\"small\", \"listed by an engine\"]\n";
        let config = read(&format!("[[model]]\n{all}")).unwrap();
        let found = config.models[0]
            .fallbacks
            .iter()
            .map(|one| (one.model.as_str(), one.entry));
        assert_eq!(
            found.collect::<Vec<_>>(),
            [("small", None), ("listed by an engine", None)]
        );
    }

    #[test]
    fn mistakes_name_their_key() {
        for (text, expected) in [
            (
                "to = [{ model = \"bog\" }]",
                "model[0].to[0].model: there is no model \"bog\" in [[model]] or in models of [[upstream]]; is big meant?",
            ),
            (
                "to = [{ weight = 1 }]",
                "model[0].to[0].model: missing; the model that is asked",
            ),
            (
                "to = [{ model = \"big\", upstream = \"b\" }]",
                "model[0].to[0].upstream: there is no upstream \"b\"",
            ),
            (
                "to = [{ model = \"big\", weight = 0 }]",
                "model[0].to: every weight is 0: no model would be asked",
            ),
            (
                "to = [{ model = \"big\", weight = 1001 }]",
                "model[0].to[0].weight: must be at most 1000",
            ),
            (
                "to = [{ model = \"big\" }]\nupstreams = [\"a\"]",
                "model[0].upstreams: says nothing beside `to`; a target has `upstream`",
            ),
            (
                "to = [{ model = \"big\" }]\nwire = { done_after_error = true }",
                "model[0].wire: says nothing beside `to`; write it at the models themselves",
            ),
            (
                "fallbacks = [\"\"]",
                "model[0].fallbacks: a name without a character",
            ),
            (
                "fallbacks = [\"chat\"]",
                "model[0].fallbacks: goes round in a circle: chat → chat",
            ),
            (
                "fallbacks = [\"big\"]\n[[model]]\nname = \"big\"\nto = [{ model = \"chat\" }]",
                "model[0].fallbacks: goes round in a circle: chat → big → chat",
            ),
            (
                "to = [{ model = \"x\" }]\n[[model]]\nname = \"x\"\nfallbacks = [\"y\"]\n[[model]]\nname = \"y\"\nfallbacks = [\"x\"]",
                "model[1].fallbacks: goes round in a circle: x → y → x",
            ),
            (
                "aliases = [\"c\"]\nto = [{ model = \"c\" }]",
                "model[0].to: goes round in a circle: chat → chat",
            ),
        ] {
            let told = read(&format!("[[model]]\nname = \"chat\"\n{text}\n")).unwrap_err();
            assert!(told.contains(expected), "{text}: {told}");
            assert_eq!(told.lines().count(), 1, "{text}: {told}");
        }
    }
}
