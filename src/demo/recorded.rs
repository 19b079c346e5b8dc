//! Recorded traffic of vLLM and SGLang that is embedded in the binary at build time.

use crate::engine::named;
use crate::replay::{Recorded, Scenario};

macro_rules! file {
    ($engine:literal, $name:literal, $file:expr) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/fixtures/",
            $engine,
            "/",
            $name,
            "/",
            $file
        ))
    };
}

macro_rules! recorded {
    ($engine:literal, $name:literal, $kind:literal as $model:literal, $head:expr) => {
        Embedded {
            engine: $engine,
            name: $name,
            model: $model,
            recorded: Recorded {
                request: file!($engine, $name, "request.json"),
                head: $head,
                kind: $kind,
                body: file!($engine, $name, concat!("upstream.", $kind)).as_bytes(),
                reset: false,
            },
        }
    };
    ($engine:literal, $name:literal, $kind:literal as $model:literal) => {
        recorded!(
            $engine,
            $name,
            $kind as $model,
            Some(file!($engine, $name, "upstream.http"))
        )
    };
}

/// Scenario of the fixtures, embedded at build time.
struct Embedded {
    engine: &'static str,
    /// Name of the folder below that of the engine.
    name: &'static str,
    /// Model name, without the engine, where all scenarios are served together.
    model: &'static str,
    recorded: Recorded<'static>,
}

/// Embedded scenarios. A request that names none gets the first one that matches, so the most typical ones,
/// streamed and not, come first.
const ALL: &[Embedded] = &[
    recorded!("vllm", "reasoning-usage", "sse" as "reasoning"),
    recorded!("vllm", "reasoning-whole", "json" as "reasoning-whole"),
    recorded!("vllm", "tool", "sse" as "tool"),
    recorded!("vllm", "same-answer-length", "sse" as "same-answer"),
    recorded!("vllm", "same-answer-tool", "sse" as "same-answer-tool"),
    recorded!("vllm", "gptoss-published", "sse" as "gpt-oss-120b", None),
    recorded!("sglang", "reasoning-usage", "sse" as "reasoning"),
    recorded!("sglang", "reasoning-whole", "json" as "reasoning-whole"),
    recorded!("sglang", "tool", "sse" as "tool"),
    recorded!("sglang", "same-answer-length", "sse" as "same-answer"),
    recorded!("sglang", "same-answer-tool", "sse" as "same-answer-tool"),
    recorded!("sglang", "gptoss-published", "sse" as "gpt-oss-120b", None),
];

impl Embedded {
    fn scenario(&self, name: String) -> Option<Scenario> {
        Scenario::new(name, named(self.engine), &self.recorded).ok()
    }
}

/// Returns all scenarios, under names such as `vllm/reasoning`.
pub(super) fn all() -> Vec<Scenario> {
    let of = |one: &Embedded| one.scenario(format!("{}/{}", one.engine, one.model));
    ALL.iter().filter_map(of).collect()
}

/// Returns the model name of a scenario where all are served together.
pub(super) fn served(engine: &str, name: &str) -> String {
    let found = ALL
        .iter()
        .find(|one| one.engine == engine && one.name == name);
    found
        .map(|one| format!("{}/{}", one.engine, one.model))
        .unwrap_or_default()
}

/// Returns one scenario of an engine, under the model name in its request.
pub(super) fn one(engine: &str, name: &str, model: &str) -> Vec<Scenario> {
    let found = ALL
        .iter()
        .filter(|one| one.engine == engine && one.name == name);
    found
        .filter_map(|one| one.scenario(model.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recording_can_be_served() {
        let names: Vec<_> = all().into_iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), ALL.len(), "{names:?}");
        assert_eq!(one("sglang", "tool", "m").len(), 1);
    }
}
