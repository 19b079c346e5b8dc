//! `samewire env` as users run it: against a running samewire, and where there is none.

use crate::clients::keys::entry;
use crate::conform::{Outcome, run};
use crate::sim::prelude::*;
use crate::sim::refusing;
use std::process::Command;

/// Runs the command with these arguments and variables.
async fn env(arguments: &[&str], variables: &[(&str, &str)]) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_samewire"));
    command
        .arg("env")
        .args(arguments)
        .env_remove("SAMEWIRE_KEY")
        .envs(variables.iter().copied());
    run(command).await
}

/// Starts a samewire in front of an engine that lists these models.
async fn world(models: Value, setup: Setup) -> World {
    let engine = Engine::answering(|_| Script::answer("a", 1)).await;
    engine.set_models(Script::ok(json!({"object": "list", "data": models})));
    World::start(engine, setup).await
}

/// Returns the output for a client of this samewire.
async fn printed(world: &World, arguments: &[&str]) -> String {
    let url = format!("http://{}", world.proxy());
    let outcome = env(&[arguments, &["--url", &url]].concat(), &[]).await;
    assert_eq!(
        (outcome.code, outcome.err.as_str()),
        (0, ""),
        "{arguments:?}"
    );
    outcome.out
}

/// Returns a variable as bash has it after it has read the text.
fn sourced(text: &str, name: &str) -> String {
    let mut bash = Command::new("bash");
    bash.args(["-c", "eval \"$1\"; printf %s \"${!2}\"", "-", text, name])
        .env_remove("SAMEWIRE_KEY");
    let output = bash.output().unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the JSON of a text whose first lines are comments.
fn without_comments(text: &str) -> Value {
    let lines: Vec<_> = text
        .lines()
        .filter(|line| !line.starts_with("//"))
        .collect();
    serde_json::from_str(&lines.join("\n")).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[tokio::test]
async fn claude_code_is_told_in_variables() {
    let world = world(
        json!([{"id": "local/coder-30b", "max_model_len": 131_072}]),
        Setup::new(),
    )
    .await;
    let text = printed(&world, &["claude"]).await;
    let expected = format!(
        "# Claude Code: source <(samewire env claude)
export ANTHROPIC_BASE_URL=http://{}
export ANTHROPIC_AUTH_TOKEN=\"${{SAMEWIRE_KEY:-none}}\"
export ANTHROPIC_MODEL=local/coder-30b
export ANTHROPIC_DEFAULT_OPUS_MODEL=local/coder-30b
export ANTHROPIC_DEFAULT_SONNET_MODEL=local/coder-30b
export ANTHROPIC_DEFAULT_HAIKU_MODEL=local/coder-30b
export ANTHROPIC_DEFAULT_FABLE_MODEL=local/coder-30b
export ANTHROPIC_SMALL_FAST_MODEL=local/coder-30b
export CLAUDE_CODE_SUBAGENT_MODEL=local/coder-30b
export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1
export CLAUDE_CODE_MAX_CONTEXT_TOKENS=131072
export CLAUDE_CODE_MAX_OUTPUT_TOKENS=32000
# To sum conversations up earlier, from 100,000 tokens on: export CLAUDE_CODE_AUTO_COMPACT_WINDOW=100000
# low, medium, high, xhigh or max: export CLAUDE_CODE_EFFORT_LEVEL=medium
",
        world.proxy()
    );
    assert_eq!(text, expected);
    assert_eq!(sourced(&text, "ANTHROPIC_AUTH_TOKEN"), "none");
    world.end().await;
}

#[tokio::test]
async fn names_are_text_to_every_reader() {
    let name = r#"a'b"c $(exit 1)\d`e"#;
    let world = world(json!([{"id": name, "max_model_len": 32_768}]), Setup::new()).await;
    let base = format!("http://{}/v1", world.proxy());
    let claude = printed(&world, &["claude"]).await;
    assert_eq!(sourced(&claude, "ANTHROPIC_SMALL_FAST_MODEL"), name);
    assert_eq!(sourced(&claude, "CLAUDE_CODE_MAX_OUTPUT_TOKENS"), "8192");
    let openai = printed(&world, &["openai"]).await;
    assert_eq!(sourced(&openai, "OPENAI_MODEL"), name);
    assert_eq!(sourced(&openai, "OPENAI_BASE_URL"), base);
    let codex: toml::Table = printed(&world, &["codex"]).await.parse().unwrap();
    let provider = &codex["model_providers"]["samewire"];
    assert_eq!(
        (
            codex["model"].as_str(),
            codex["model_context_window"].as_integer()
        ),
        (Some(name), Some(32_768))
    );
    assert_eq!(provider["base_url"].as_str(), Some(base.as_str()));
    assert_eq!(
        provider["model_catalog_url"].as_str(),
        Some(format!("{base}/models").as_str())
    );
    assert_eq!(provider["env_key"].as_str(), Some("SAMEWIRE_KEY"));
    let opencode = without_comments(&printed(&world, &["opencode"]).await);
    assert_eq!(opencode["model"], format!("samewire/{name}"));
    let provider = &opencode["provider"]["samewire"];
    assert_eq!(
        provider["options"],
        json!({"baseURL": base, "apiKey": "{env:SAMEWIRE_KEY}"})
    );
    assert_eq!(
        provider["models"][name]["limit"],
        json!({"context": 32_768, "output": 8192})
    );
    let qwen = without_comments(&printed(&world, &["qwen"]).await);
    assert_eq!(qwen["model"]["name"], name);
    assert_eq!(
        qwen["modelProviders"]["openai"],
        json!([{
            "id": name, "name": name, "envKey": "SAMEWIRE_KEY", "baseUrl": base,
            "generationConfig": {"contextWindowSize": 32_768, "samplingParams": {"max_tokens": 8192}},
        }])
    );
    world.end().await;
}

/// A context that no engine reports is a comment, not a guess.
#[tokio::test]
async fn a_context_that_nobody_knows() {
    let world = world(json!([{"id": "m"}]), Setup::new()).await;
    for client in ["claude", "codex", "opencode", "qwen", "openai"] {
        let text = printed(&world, &[client]).await;
        let lines = text.lines().filter(|line| !line.starts_with(['#', '/']));
        for part in ["TOKENS", "window", "limit", "Window", "max_tokens"] {
            assert!(
                lines.clone().all(|line| !line.contains(part)),
                "{client}: {text}"
            );
        }
    }
    world.end().await;
}

/// The key is nowhere in the output: it stays in its file or its variable.
#[tokio::test]
async fn a_key_asks_and_is_not_printed() {
    let setup = Setup::new().config(&entry(KEY, ""));
    let world = world(json!([{"id": "m", "max_model_len": 4096}]), setup).await;
    let url = format!("http://{}/v1", world.proxy());
    let folder = Folder::new();
    let file = folder.write("a key.txt", KEY);
    let file = file.to_str().unwrap();
    let by_file = env(&["claude", "--url", &url, "--key-file", file], &[]).await;
    assert_eq!(by_file.code, 0, "{}", by_file.err);
    assert_eq!(sourced(&by_file.out, "ANTHROPIC_AUTH_TOKEN"), KEY);
    let by_variable = env(&["codex", "--url", &url], &[("SAMEWIRE_KEY", KEY)]).await;
    assert_eq!(by_variable.code, 0, "{}", by_variable.err);
    let without = env(&["claude", "--url", &url], &[]).await;
    assert_eq!((without.code, without.out.as_str()), (3, ""));
    assert!(
        without.err.contains("--key-file") && without.err.contains("SAMEWIRE_KEY"),
        "{}",
        without.err
    );
    for Outcome { out, err, .. } in [by_file, by_variable, without] {
        assert!(!format!("{out}{err}").contains(KEY));
    }
    world.end().await;
}

#[tokio::test]
async fn one_of_several_has_to_be_named() {
    let models = json!([
        {"id": "coder", "root": "/c", "parent": null, "max_model_len": 8192},
        {"id": "also-coder", "root": "/c", "parent": null, "max_model_len": 8192},
        {"id": "writer", "root": "/w", "parent": null},
    ]);
    let world = world(models, Setup::new()).await;
    let url = format!("http://{}", world.proxy());
    for (model, expected) in [
        (None, "name one with --model: coder, writer"),
        (Some("codr"), "does not list codr; is coder meant?"),
    ] {
        let named = model.map_or_else(Vec::new, |model| vec!["--model", model]);
        let outcome = env(&[&["claude", "--url", &url], &named[..]].concat(), &[]).await;
        assert_eq!((outcome.code, outcome.out.as_str()), (2, ""), "{model:?}");
        assert!(outcome.err.contains(expected), "{}", outcome.err);
    }
    for model in ["writer", "also-coder"] {
        let text = printed(&world, &["claude", "--model", model]).await;
        assert_eq!(sourced(&text, "ANTHROPIC_MODEL"), model);
    }
    world.end().await;
}

#[tokio::test]
async fn who_is_not_there_is_told_of() {
    let (nobody, _reserved) = refusing();
    let world = world(json!([]), Setup::new()).await;
    let (none, page) = (format!("http://{}", world.proxy()), world.engine.url());
    world
        .engine
        .set_models(Script::ok(r#"{"object":"list","data":[]}"#));
    for (url, expected) in [(nobody, "no samewire answers"), (none, "lists no model")] {
        let outcome = env(&["claude", "--url", &url], &[]).await;
        assert_eq!((outcome.code, outcome.out.as_str()), (3, ""), "{url}");
        assert!(outcome.err.contains(expected), "{}", outcome.err);
    }
    world.engine.set_models(Script::ok(r#"{"hello":"you"}"#));
    let outcome = env(&["claude", "--url", &page], &[]).await;
    assert_eq!(outcome.code, 3, "{}", outcome.err);
    assert!(outcome.err.contains("no list of models"), "{}", outcome.err);
    let outcome = env(&["emacs"], &[]).await;
    assert_eq!(outcome.code, 2);
    assert!(
        outcome.err.contains("opencode"),
        "the clients that there are: {}",
        outcome.err
    );
    world.end().await;
}

/// The address is that of the configuration, from the file or the environment.
#[tokio::test]
async fn the_address_is_as_configured() {
    let world = world(json!([{"id": "m"}]), Setup::new()).await;
    let listen = world.proxy().to_string();
    let folder = Folder::new();
    let lines = format!("listen = \"0.0.0.0:{}\"\n", world.proxy().port());
    let by_file = env(
        &["openai", "--config", &folder.file("samewire.toml", &lines)],
        &[],
    )
    .await;
    let by_variable = env(&["openai"], &[("SAMEWIRE_LISTEN", &listen)]).await;
    for outcome in [by_file, by_variable] {
        assert_eq!(outcome.code, 0, "{}", outcome.err);
        assert_eq!(
            sourced(&outcome.out, "OPENAI_BASE_URL"),
            format!("http://127.0.0.1:{}/v1", world.proxy().port())
        );
    }
    world.end().await;
}
