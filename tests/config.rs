//! The annotated example says the truth, and every mistake is found.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use samewire::config::{Config, File, Mistakes, Overrides, UpstreamFile};
use std::collections::BTreeSet;
use toml::{Table, Value};

const EXAMPLE: &str = include_str!("../config/samewire.toml");

fn read(text: &str, flags: &Overrides) -> Result<Config, Mistakes> {
    Config::read(text, &[flags])
}

/// A file with an engine and these lines before it.
fn with(lines: &str) -> String {
    format!("{lines}\n[[upstream]]\nurl = \"http://127.0.0.1:8000\"\n")
}

fn mistakes(text: &str) -> String {
    read(text, &Overrides::default()).map(|_| ()).expect_err(text).to_string()
}

fn keys(table: &Table, path: &str, found: &mut BTreeSet<String>) {
    for (key, value) in table {
        let path = format!("{path}{key}");
        match value {
            Value::Table(inner) => keys(inner, &format!("{path}."), found),
            Value::Array(items) if items.iter().any(Value::is_table) => {
                items
                    .iter()
                    .filter_map(Value::as_table)
                    .for_each(|inner| keys(inner, &format!("{path}."), found));
            }
            _ => {}
        }
        found.insert(path);
    }
}

fn keys_of(table: &Table) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    keys(table, "", &mut found);
    found
}

#[test]
fn the_example_is_the_defaults() {
    let config = read(EXAMPLE, &Overrides::default()).unwrap();
    let engine = UpstreamFile { url: "http://127.0.0.1:8000".to_owned(), ..UpstreamFile::default() };
    assert_eq!(config.file, File { upstream: vec![engine], ..File::default() });
}

#[test]
fn the_example_has_every_key_and_a_reason_for_each() {
    let all = File { upstream: vec![UpstreamFile::default()], ..File::default() };
    let written = toml::from_str::<Table>(EXAMPLE).unwrap();
    assert_eq!(keys_of(&written), keys_of(&Table::try_from(all).unwrap()));
    for line in EXAMPLE.lines().filter(|line| line.contains(" = ") && !line.starts_with('#')) {
        assert!(line.contains(" # "), "no reason: {line}");
    }
}

#[test]
fn what_is_shown_can_be_read_again() {
    let text =
        with("listen = \"127.0.0.1:1\"\n[wire]\nfingerprint_salt = \"grain\"\n[timeouts]\nconnect = 0.25");
    let config = read(&text, &Overrides::default()).unwrap();
    let shown = config.shown();
    assert!(!shown.contains("grain"), "{shown}");
    let again = read(&shown, &Overrides::default()).unwrap();
    assert_eq!(again.shown(), shown);
    assert_eq!(again.timeouts.connect.as_millis(), 250);
}

#[test]
fn every_mistake_is_told_with_its_path() {
    for (text, expected) in [
        ("", "upstream: no engine is named; give its address with --upstream http://HOST:PORT"),
        ("x", "the configuration, line 1: key with no value, expected `=`"),
        (&with("lisen = 1"), "lisen: unknown key; is listen meant?"),
        (&with("[colours]\nred = 1"), "colours.red: unknown key"),
        (
            &with("[limits]\nmax_body_bytes = \"1 MB\""),
            "limits.max_body_bytes: invalid type: string \"1 MB\", expected a whole number",
        ),
        (&with("[limits]\nmax_head_bytes = 1"), "limits.max_head_bytes: must be at least 8192"),
        (&with("[timeouts]\nconect = 1"), "timeouts.conect: unknown key; is connect meant?"),
        (&with("[timeouts]\nconnect = -1"), "timeouts.connect: must be seconds, from 0 to a year"),
        (&with("[timeouts]\nconnect = 0"), "timeouts.connect: must be more than 0"),
        (&with("[timeouts]\nconnect = nan"), "timeouts.connect: must be seconds, from 0 to a year"),
        (
            &with("[wire]\nreasoning_field = \"thoughts\""),
            "wire.reasoning_field: unknown variant `thoughts`, expected one of `reasoning_content`, `reasoning`, `both`, `none`",
        ),
        (&with("listen = \"here\""), "listen: \"here\" is not an address such as 127.0.0.1:8080"),
        (
            &with("listen = \"0.0.0.0:8080\""),
            "listen: 0.0.0.0:8080 can be reached from other machines and no keys are checked; listen on 127.0.0.1, or say --insecure-no-auth if everybody who can connect may use the engine",
        ),
        ("[[upstream]]\nname = \"a\"", "upstream[0].url: missing; an address such as http://127.0.0.1:8000"),
        (
            "[[upstream]]\nurl = \"https://a\"",
            "upstream[0].url: https is not supported by this version; use http",
        ),
        (
            "[[upstream]]\nurl = \"http://u:p@a\"",
            "upstream[0].url: must not carry a user name or password; use api_key_file",
        ),
        (
            "[[upstream]]\nurl = \"http://a\"\nengine = \"tgi\"",
            "upstream[0].engine: unknown engine \"tgi\"; one of auto, vllm, sglang, generic",
        ),
        (
            "[[upstream]]\nurl = \"http://a\"\n[upstream.wire]\nreasoning = 1",
            "upstream[0].wire.reasoning: unknown key; is reasoning_field meant?",
        ),
        (
            "[[upstream]]\nurl = \"http://a\"\nauth = \"own\"",
            "upstream[0].api_key_file: missing, although auth = \"own\"",
        ),
        (
            "[[upstream]]\nurl = \"http://a\"\napi_key_file = \"/nowhere/key\"",
            "upstream[0].api_key_file: /nowhere/key: No such file or directory (os error 2)",
        ),
        (
            "[[upstream]]\nurl = \"http://a\"\n[[upstream]]\nurl = \"http://b\"",
            "upstream: this version takes exactly one upstream",
        ),
        (
            "[[upstream]]\nurl = \"http://a\"\n[[upstream]]\nurll = \"http://b\"",
            "upstream[1].urll: unknown key; is url meant?",
        ),
    ] {
        assert_eq!(mistakes(text), expected, "{text}");
    }
}

#[test]
fn all_mistakes_are_told_at_once() {
    let text = "listen = 8080\nthreads = -1\n[limits]\nrequests = 0\n[wire]\nrole_frame = 1\n[[upstream]]\nurl = \"x\"\nname = 5\n";
    let told = mistakes(text);
    for path in [
        "listen:",
        "threads:",
        "limits.requests:",
        "wire.role_frame:",
        "upstream[0].url:",
        "upstream[0].name:",
    ] {
        assert_eq!(told.lines().filter(|line| line.starts_with(path)).count(), 1, "{path} in {told}");
    }
}

#[test]
fn options_on_the_command_line() {
    let set = |set: &[&str]| {
        let flags =
            Overrides { set: set.iter().map(|&one| one.to_owned()).collect(), ..Overrides::default() };
        read(&with("[wire]\nkeepalive_seconds = 7"), &flags)
    };
    let config =
        set(&["reasoning_field=both", "wire.force_usage=true", "model_name=7", "fingerprint_salt=\"a b\""])
            .unwrap();
    let options = &config.upstream.options;
    assert_eq!(Value::try_from(options.reasoning_field).unwrap().as_str(), Some("both"));
    assert_eq!((options.force_usage, options.keepalive_seconds), (true, 7));
    assert_eq!((options.model_name.as_str(), options.fingerprint_salt.as_str()), ("7", "a b"));
    for (one, expected) in [
        ("reasoning_feld=both", "--set reasoning_feld: unknown option; is reasoning_field meant?"),
        ("wire.colour=red", "--set colour: unknown option"),
        (
            "keepalive_seconds=often",
            "--set keepalive_seconds: invalid type: string \"often\", expected a whole number",
        ),
        ("reasoning_field", "--set reasoning_field: must be OPTION=VALUE"),
    ] {
        assert_eq!(set(&[one]).map(|_| ()).expect_err(one).to_string(), expected);
    }
}

#[test]
fn flags_beat_the_environment_which_beats_the_file() {
    let upstream = |url: &str| vec![url.to_owned()];
    let environment = Overrides {
        listen: Some("127.0.0.1:2".to_owned()),
        admin_listen: Some("127.0.0.1:2".to_owned()),
        upstream: upstream("http://environment"),
        ..Overrides::default()
    };
    let flags = Overrides {
        listen: Some("127.0.0.1:3".to_owned()),
        upstream: upstream("http://flag/v1"),
        engine: Some("vllm".to_owned()),
        threads: Some(3),
        ..Overrides::default()
    };
    let text = with("listen = \"127.0.0.1:1\"\nadmin_listen = \"127.0.0.1:1\"\ninsecure_no_auth = true");
    let config = Config::read(&text, &[&environment, &flags]).unwrap();
    assert_eq!((config.listen.port(), config.admin_listen.port(), config.threads), (3, 2, 3));
    assert_eq!((config.upstream.host.as_str(), config.upstream.engine.name), ("flag", "vllm"));
    assert_eq!(config.upstream.name, "flag:80");
}

#[test]
fn options_of_one_upstream_lie_over_those_of_all() {
    let text = "[wire]\nkeepalive_seconds = 7\nforce_usage = true\n[[upstream]]\nurl = \"http://a\"\n[upstream.wire]\nkeepalive_seconds = 3\n";
    let config = read(text, &Overrides::default()).unwrap();
    assert_eq!((config.upstream.options.keepalive_seconds, config.upstream.options.force_usage), (3, true));
}

#[test]
fn a_key_of_ones_own_is_read_and_never_shown() {
    let path = std::env::temp_dir().join(format!("samewire-key-{}", std::process::id()));
    std::fs::write(&path, "sk-CANARY\n").unwrap();
    let text = format!("[[upstream]]\nurl = \"http://a\"\napi_key_file = {path:?}\n");
    let config = read(&text, &Overrides::default()).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(!format!("{config:?}").contains("CANARY"));
    assert!(!config.shown().contains("CANARY"));
    assert_eq!(format!("{:?}", config.upstream.auth), "own");
}
