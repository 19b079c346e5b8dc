//! Warnings about options that read reasoning and calls from text: they have no effect on an engine's own Responses.

use super::Config;
use crate::model_name;
use crate::request::responses::ResponsesMode;
use crate::wire::options::{Harmony, Options, Parser, ThinkMode};

impl Config {
    /// Returns one warning for each upstream with `responses = "native"` that has such options (wire-format 4.8), and one
    /// for each model and key whose options differ from the upstream's.
    pub fn unread_text(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (at, upstream) in self.upstreams.iter().enumerate() {
            if upstream.responses != ResponsesMode::Native {
                continue;
            }
            let options = |model, key| readers(&self.layers.options(at, model, key));
            let own = options(None, None);
            let mut warn = |of: &str, found: &str| {
                if !found.is_empty() {
                    let name = &upstream.name;
                    warnings.push(format!("{found}{of}: no effect on Responses of upstream \"{name}\", whose text nothing reads with responses = \"native\"; start the engine with parsers, or take \"chat\""));
                }
            };
            warn("", &own);
            for (place, model) in self.models.iter().enumerate() {
                let found = options(Some(place), None);
                let is_served = model.upstreams.is_empty() || model.upstreams.contains(&at);
                let is_listed = upstream.models.is_empty()
                    || upstream
                        .models
                        .iter()
                        .any(|one| model_name::covers(one, &model.name));
                if found != own && is_served && is_listed {
                    warn(&format!(" of model \"{}\"", model.name), &found);
                }
            }
            for (place, key) in self.file.auth.key.iter().enumerate() {
                let found = options(None, Some(place));
                if found != own {
                    warn(&format!(" of key \"{}\"", key.name), &found);
                }
            }
        }
        warnings
    }
}

/// Returns the names of the options that would read text.
fn readers(options: &Options) -> String {
    let all = [
        ("parser", matches!(options.parser, Parser::Family(_))),
        ("harmony", options.harmony != Harmony::Off),
        ("think.mode", options.think.mode != ThinkMode::Off),
    ];
    let named: Vec<_> = all
        .into_iter()
        .filter(|(_, is_on)| *is_on)
        .map(|(name, _)| name)
        .collect();
    named.join(", ")
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, Overrides};

    fn check(text: &str, expected: &[(&str, &str)]) {
        let config = Config::read(text, &[&Overrides::default()]).unwrap();
        let expected: Vec<_> = expected
            .iter()
            .map(|(of, upstream)| format!("{of}: no effect on Responses of upstream \"{upstream}\", whose text nothing reads with responses = \"native\"; start the engine with parsers, or take \"chat\""))
            .collect();
        assert_eq!(config.unread_text(), expected);
    }

    #[test]
    fn each_layer_is_named_once() {
        check(
            r#"
            [[upstream]]
            name = "a"
            url = "http://a:1"
            responses = "native"
            models = ["m", "n"]
            wire = { parser = "qwen3" }
            [[upstream]]
            name = "b"
            url = "http://b:1"
            responses = "native"
            models = ["o"]
            [[upstream]]
            name = "c"
            url = "http://c:1"
            messages = "native"
            models = ["o"]
            wire = { parser = "auto" }
            [[model]]
            name = "m"
            wire = { think = { mode = "auto" } }
            [[model]]
            name = "n"
            wire = { parser = "off" }
            [[model]]
            name = "o"
            wire = { harmony = "text" }
            "#,
            &[
                ("parser", "a"),
                ("parser, think.mode of model \"m\"", "a"),
                ("harmony of model \"o\"", "b"),
            ],
        );
    }

    #[test]
    fn keys_are_named_too() {
        let [yes, no] = ["0", "1"].map(|digit| digit.repeat(64));
        let text = format!(
            r#"
            [[upstream]]
            name = "a"
            url = "http://a:1"
            responses = "native"
            [[auth.key]]
            name = "k"
            hash = "{yes}"
            wire = {{ parser = "qwen3" }}
            [[auth.key]]
            name = "l"
            hash = "{no}"
            "#
        );
        check(&text, &[("parser of key \"k\"", "a")]);
    }
}
