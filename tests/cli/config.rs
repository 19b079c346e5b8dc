//! The annotated example configuration is accurate, and every mistake in a configuration is reported.

use crate::folder::Folder;
use samewire::config::{
    AuthFile, Config, File, KeyFile, McpFile, Mistakes, ModelFile, Overrides, ToolsFile,
    UpstreamConfig, UpstreamFile, admin_address,
};
use samewire::engine::{ENGINES, EngineIdentity, named};
use samewire::wire::options::{EngineErrors, Options, Parser};
use std::collections::BTreeSet;
use toml::{Table, Value};

const EXAMPLE: &str = include_str!("../../config/samewire.toml");

fn read(text: &str, flags: &Overrides) -> Result<Config, Mistakes> {
    Config::read(text, &[flags])
}

/// Returns a key entry whose hash consists of this digit.
fn key(digit: char, lines: &str) -> String {
    format!(
        "[[auth.key]]\nhash = \"{}\"\n{lines}\n",
        digit.to_string().repeat(64)
    )
}

/// Returns a file with an engine, preceded by these lines.
fn with(lines: &str) -> String {
    format!("{lines}\n[[upstream]]\nurl = \"http://127.0.0.1:8000\"\n")
}

/// Returns the names of all engines, as a mistake lists them.
fn engines() -> String {
    ENGINES
        .iter()
        .map(|engine| engine.name)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns the table of tools with one server.
fn tools() -> ToolsFile {
    ToolsFile {
        mcp: vec![McpFile::default()],
        ..ToolsFile::default()
    }
}

fn mistakes(text: &str) -> String {
    read(text, &Overrides::default())
        .map(|_| ())
        .expect_err(text)
        .to_string()
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

/// Returns the example with its commented-out lines enabled: those without a space after the `#`.
fn uncommented() -> String {
    let plain = |line: &str| match line.strip_prefix('#') {
        Some(rest) if !rest.starts_with(' ') => format!("{rest}\n"),
        _ => format!("{line}\n"),
    };
    EXAMPLE.lines().map(plain).collect()
}

#[test]
fn the_example_is_the_defaults() {
    let config = read(EXAMPLE, &Overrides::default()).unwrap();
    let engine = UpstreamFile {
        url: "http://127.0.0.1:8000".to_owned(),
        ..UpstreamFile::default()
    };
    assert_eq!(
        config.file,
        File {
            upstream: vec![engine],
            ..File::default()
        }
    );
    let more = toml::from_str::<File>(&uncommented()).unwrap();
    let (auth, model) = (
        AuthFile {
            key: vec![KeyFile::default()],
        },
        vec![ModelFile::default()],
    );
    assert_eq!(
        more,
        File {
            auth,
            model,
            tools: tools(),
            ..config.file
        }
    );
}

#[test]
fn the_example_has_every_key_and_a_reason_for_each() {
    let auth = AuthFile {
        key: vec![KeyFile::default()],
    };
    let (upstream, model) = (vec![UpstreamFile::default()], vec![ModelFile::default()]);
    let all = File {
        upstream,
        model,
        auth,
        tools: tools(),
        ..File::default()
    };
    let written = toml::from_str::<Table>(&uncommented()).unwrap();
    assert_eq!(keys_of(&written), keys_of(&Table::try_from(all).unwrap()));
    for line in uncommented()
        .lines()
        .filter(|line| line.contains(" = ") && !line.starts_with('#'))
    {
        assert!(line.contains(" # "), "no reason: {line}");
    }
}

#[test]
fn what_is_shown_can_be_read_again() {
    let text = with(
        "listen = \"127.0.0.1:1\"\n[wire]\nfingerprint_salt = \"grain\"\n[timeouts]\nconnect = 0.25\n[limits]\nmax_tools = 7\n[requests]\nmedia_urls = [\"a.example\"]\nallowed_fields = [\"rid\"]",
    );
    let config = read(&text, &Overrides::default()).unwrap();
    let shown = config.shown();
    for line in [
        "max_tools = 7\n",
        "media_urls = [\"a.example\"]\n",
        "allowed_fields = [\"rid\"]\n",
    ] {
        assert!(shown.contains(line), "{line} in {shown}");
    }
    assert!(!shown.contains("grain"), "{shown}");
    let again = read(&shown, &Overrides::default()).unwrap();
    assert_eq!(again.shown(), shown);
    assert_eq!(again.timeouts.connect.as_millis(), 250);
}

/// Configured facts about an engine take precedence over detected ones.
#[test]
fn an_engine_is_what_the_file_says() {
    let text = "[[upstream]]\nurl = \"http://a\"\nengine = \"vllm\"\nengine_version = \"0.21\"\nfront_end = \"rust\"";
    let config = read(text, &Overrides::default()).unwrap();
    let found = EngineIdentity {
        version: "0.32.0".parse().ok(),
        ..EngineIdentity::from(named("vllm").unwrap())
    };
    assert_eq!(
        config.upstreams[0].identity(found).to_string(),
        "vllm 0.21.0 (front end in Rust)"
    );
    let shown = config.shown();
    assert!(
        shown.contains("engine_version = \"0.21\"\nfront_end = \"rust\"\n"),
        "{shown}"
    );
    let open = read("[[upstream]]\nurl = \"http://a\"", &Overrides::default()).unwrap();
    assert_eq!(open.upstreams[0].identity(found), found);
}

#[test]
fn every_mistake_is_told_with_its_path() {
    for (line, wrong) in [
        ("lisen = 1", "unknown key; is listen meant?"),
        ("colours.red = 1", "unknown key"),
        (
            "contract.mode = \"count\"",
            "unknown key: [contract] is gone; `samewire conform` tests a server from outside",
        ),
        (
            "limits.max_body_bytes = \"1 parsec\"",
            "must be bytes, or a size such as 64KiB, 32MB or 1GiB",
        ),
        (
            "limits.max_body_bytes = true",
            "expected bytes or a size such as \"64MiB\", found boolean",
        ),
        (
            "limits.max_body_bytes = -1",
            "expected bytes or a size such as \"64MiB\", found one that is below 0 or too large",
        ),
        (
            "limits.max_body_bytes = \"2TB\"",
            "must be at most 1099511627776",
        ),
        (
            "limits.max_tools = \"1KB\"",
            "expected a whole number, found a text",
        ),
        ("limits.relay_body_bytes = 0", "must be at least 1"),
        ("relay.paths = \"/a\"", "expected a list, found a text"),
        (
            "relay.paths = [\"/a\", \"!/b\"]",
            "[1]: '/b' is not relayed, so it cannot be removed",
        ),
        (
            "relay.paths = [\"/v1/chat/completions\"]",
            "[0]: samewire answers '/v1/chat/completions' by itself",
        ),
        ("cors.origins = \"*\"", "expected a list, found a text"),
        (
            "cors.origins = [\"*\", \"https://app.example/\"]",
            "[1]: must be an origin such as https://app.example or http://localhost:3000 (scheme, host and port, without a path or a slash at its end), or \"*\" for all",
        ),
        (
            "cors.origins = [\"null\"]",
            "[0]: any page can have the origin 'null', from a sandboxed frame: say \"*\" if that is meant",
        ),
        (
            "cors.origins = [\"https://*.example\"]",
            "[0]: a '*' within an origin is not supported: list each origin, or say \"*\" for all",
        ),
        (
            "admin.hosts = [\"a\", \"http://b\"]",
            "[1]: must be the name of a host, such as samewire.internal, without a scheme, a port or a path",
        ),
        ("limits.max_head_bytes = 1", "must be at least 8192"),
        ("limits.max_headers = 1001", "must be at most 1000"),
        ("limits.max_uri_bytes = 65535", "must be at most 65534"),
        ("limits.connections = 0", "must be at least 1"),
        ("limits.background_running = 0", "must be at least 1"),
        ("timeouts.client_body_window = 0", "must be more than 0"),
        (
            "timeouts.client_body_rate = 1000001",
            "must be at most 1000000",
        ),
        ("limits.max_json_depth = 4", "must be at least 8"),
        ("limits.max_json_depth = 129", "must be at most 128"),
        ("limits.max_messages = 0", "must be at least 1"),
        ("limits.max_choices = 0", "must be at least 1"),
        (
            "requests.media_urls = \"private\"",
            "must be \"public\", \"data\" or a list of hosts",
        ),
        (
            "requests.media_urls = true",
            "expected \"public\", \"data\" or a list of hosts, found boolean",
        ),
        (
            "requests.media_urls = [\"a.example\", \"https://b.example\"]",
            "must be hosts such as images.example.com, without scheme and port",
        ),
        ("requests.allowed_fields = [\"\"]", "a field without a name"),
        (
            "requests.allow_fields = []",
            "unknown key; is allowed_fields meant?",
        ),
        ("timeouts.conect = 1", "unknown key; is connect meant?"),
        ("timeouts.connect = -1", "must be seconds, from 0 to a year"),
        ("timeouts.connect = 0", "must be more than 0"),
        (
            "timeouts.connect = \"366d\"",
            "must be seconds, from 0 to a year",
        ),
        ("timeouts.connect = \"0ms\"", "must be more than 0"),
        (
            "timeouts.connect = \"soon\"",
            "must be seconds, or a time such as 250ms, 90s, 5m or 1h30m",
        ),
        (
            "timeouts.connect = true",
            "expected seconds or a time such as \"5m\", found boolean",
        ),
        (
            "wire.keepalive_seconds = \"1500ms\"",
            "must be whole seconds",
        ),
        (
            "threads = 1025",
            "must be at most 1024; 0: one for each core",
        ),
        (
            "threads = \"many\"",
            "expected a whole number, found a text",
        ),
        (
            "log.level = \"infos\"",
            "expected one of `off`, `error`, `warn`, `info`, `debug`, `trace`; is info meant?",
        ),
        (
            "log.content = \"ture\"",
            "expected true or false, found a text; is true meant?",
        ),
        (
            "wire.reasoning_field = \"resoning\"",
            "expected one of `reasoning_content`, `reasoning`, `both`, `none`; is reasoning meant?",
        ),
        (
            "requests.media_urls = \"publik\"",
            "must be \"public\", \"data\" or a list of hosts; is public meant?",
        ),
        (
            "capture.bytes = 0",
            "must be at least 1; enabled = false captures nothing",
        ),
        ("capture.bytes = \"2TB\"", "must be at most 1099511627776"),
        ("capture.exchanges = 1000001", "must be at most 1000000"),
        ("health.path = \"ping\"", "must be a path such as /ping"),
        ("capture.key = \"a\"", "no key in [auth] has this name"),
        (
            "store.place = \"memroy\"",
            "a store is `memory`, `sqlite:PATH`, `postgres://…` or `off`; is memory meant?",
        ),
        (
            "listen = \"127.0.0.1:9090\"",
            "takes the same port as admin_listen (127.0.0.1:9090); give one of them another",
        ),
        (
            "timeouts.connect = nan",
            "must be seconds, from 0 to a year",
        ),
        (
            "wire.reasoning_field = \"thoughts\"",
            "expected one of `reasoning_content`, `reasoning`, `both`, `none`",
        ),
        (
            "wire.harmony = \"bytes\"",
            "expected one of `off`, `text`, `tokens`",
        ),
        (
            "wire.think.mode = \"on\"",
            "expected one of `off`, `auto`, `forced`, `anywhere`",
        ),
        (
            "harmony.vocabulary_file = \"/nowhere/vocabulary\"",
            "the file cannot be read: No such file or directory (os error 2)",
        ),
        (
            "harmony.vocabulary_file = \"/dev/zero\"",
            "the file cannot be read: larger than 32 MiB",
        ),
        (
            "harmony.vocabulary_file = \"Cargo.toml\"",
            "line 1: must be a token in base64, a space and its rank",
        ),
        (
            "listen = \"here\"",
            "must be an address such as 127.0.0.1:8080",
        ),
        (
            "listen = \"0.0.0.0:8080\"",
            "0.0.0.0:8080 can be reached from other machines and no keys are checked; listen on 127.0.0.1, make keys with samewire key new, or say --insecure-no-auth if everybody who can connect may use the engine",
        ),
        ("auth.key = \"sk-1\"", "expected a list, found a text"),
        (
            "auth = \"sk-1\"",
            "expected a table; begin each key with [[auth.key]], found a text",
        ),
        (
            "store.place = \"postgres://u:secret.host/d\"",
            "must be an address such as postgres://USER:PASSWORD@HOST/DATABASE",
        ),
        ("auth.keys = []", "unknown key; is key meant?"),
        ("tls.min_version = \"1.1\"", "expected `1.2` or `1.3`"),
        ("tls.handshake = 0", "must be more than 0"),
        ("tls.max_handshakes = 0", "must be from 1 to 65535"),
        ("timeouts.dns = 0", "must be more than 0"),
        (
            "timeouts.background_lease = 9",
            "must be at least twice timeouts.background_heartbeat: one may come late",
        ),
        ("timeouts.handshake = 0", "must be more than 0"),
        (
            "tls = 1",
            "expected a table; say cert_file = \"…\" under [tls], found integer",
        ),
        ("model = 1", "expected a list, found integer"),
        (
            "model = [1]",
            "expected a table; begin each model with [[model]], found integer",
        ),
        (
            "affinity.by = \"user\"",
            "expected one of `none`, `conversation`, `header`, `prefix`",
        ),
        ("retry.max_attempts = 5", "must be from 1 to 4"),
        ("retry.max_attempts = 0", "must be from 1 to 4"),
        ("retry.budget_percent = 101", "must be at most 100"),
        ("retry.budget_per_second = 1001", "must be at most 1000"),
    ] {
        let path = line.split(" = ").next().unwrap();
        let expected = if wrong.starts_with('[') {
            format!("{path}{wrong}")
        } else {
            format!("{path}: {wrong}")
        };
        assert_eq!(mistakes(&with(line)), expected, "{line}");
    }
    let engines = engines();
    for (text, expected) in [
        (
            "",
            "upstream: no engine is named; give its address with --upstream http://HOST:PORT",
        ),
        (
            "x",
            "the configuration, line 1: key with no value, expected `=`",
        ),
        (
            &with("[capture]\nbytes = \"8MiB\"\nexchange_bytes = \"9MiB\""),
            "capture.exchange_bytes: must be at most capture.bytes (8388608): one exchange cannot hold more than all",
        ),
        (
            "[[upstream]]\nurl = \"http://a\"\nengine = \"vlm\"",
            &format!("upstream[0].engine: unknown engine; one of {engines}; is vllm meant?"),
        ),
        (
            &with(
                "[[model]]\nname = \"a\"\nupstreams = [\"127.0.0.1:800\"]\n[[upstream]]\nname = \"east\"\nurl = \"http://b\"\n[[model]]\nname = \"b\"\nupstreams = [\"eats\"]",
            ),
            "model[0].upstreams: there is no upstream \"127.0.0.1:800\"\nmodel[1].upstreams: there is no upstream \"eats\"; is east meant?",
        ),
        (
            &with("listen = \"127.0.0.1:9000\"\nadmin_listen = \"127.0.0.1:9000\""),
            "admin_listen: takes the same port as listen (127.0.0.1:9000); give one of them another",
        ),
        (
            &with("listen = \"127.0.0.1:9000\"\nadmin_listen = \"0.0.0.0:9000\""),
            "admin_listen: takes the same port as listen (127.0.0.1:9000); give one of them another",
        ),
        (
            &with("listen = \"127.0.0.1:9000\"\nadmin_listen = \"[::]:9000\""),
            "admin_listen: takes the same port as listen (127.0.0.1:9000); give one of them another",
        ),
        (
            "[[upstream]]\nurl = \"http://127.0.0.1:8000/v1/chat/completions\"",
            "upstream[0].url: must not name a route, which samewire adds: write http://127.0.0.1:8000/v1",
        ),
        (
            "[[upstream]]\nurl = \"localhost:8000\"",
            "upstream[0].url: http:// is missing: write http://localhost:8000",
        ),
        (
            &with(&format!("insecure_no_auth = true\n{}", key('a', ""))),
            "insecure_no_auth: there are keys in [auth], and they are checked; take one of the two out",
        ),
        (
            &with("[[auth.key]]"),
            "auth.key[0].hash: missing; the 64 hex digits that samewire key new prints",
        ),
        (
            &with("[[auth.key]]\nhash = \"sk-CANARY\""),
            "auth.key[0].hash: must be 64 hex digits, as samewire key new prints them",
        ),
        (
            &with(
                "[[auth.key]]\nhash = \"0000000000000000000000000000000000000000000000000000000000000000\"\nname = \"a\"\n[[auth.key]]\n\
                 hash = \"1111111111111111111111111111111111111111111111111111111111111111\"\nname = \"a\"",
            ),
            "auth.key[1].name: the same as that of auth.key[0]",
        ),
        // A key in the wrong place is not repeated.
        (
            "store = \"postgres://u:p@h/d\"\n[[upstream]]\nurl = \"http://127.0.0.1:8000\"",
            "store: expected a table; say place = \"memory\" under [store], found a text",
        ),
        // Text without its at sign may be a password.
        (
            &with("[[auth.key]]\nhash = 5"),
            "auth.key[0].hash: expected a text in quotes, found integer",
        ),
        (
            &with(&(key('a', "") + &key('b', "") + &key('a', ""))),
            "auth.key[2].hash: the same as that of auth.key[0]",
        ),
        (
            &with(&key('a', "tenant = \"a b\"\nname = \"ä\"")),
            "auth.key[0].name: must be 1 to 64 letters, digits, dots, dashes and underscores\nauth.key[0].tenant: must be 1 to 64 letters, digits, dots, dashes and underscores",
        ),
        (
            &with(&key('a', "models = [\"m\", \"\"]")),
            "auth.key[0].models: a model without a name",
        ),
        (
            &with(&key('a', "priority = -1001")),
            "auth.key[0].priority: must be from -1000 to 1000",
        ),
        (
            &with(&key('a', "priority = \"high\"")),
            "auth.key[0].priority: expected a whole number, found a text",
        ),
        (
            &with("[[model]]\nname = \"a\"\nto = [\"b\"]"),
            "model[0].to: expected a table such as { model = \"…\", weight = 95 }, found a text",
        ),
        (
            &with(&key(
                'a',
                "models = [\"m\"]\nmodels_not_included = [\"m\", \"\"]\nplan = \"a b\"",
            )),
            "auth.key[0].plan: must be 1 to 64 letters, digits, dots, dashes and underscores\nauth.key[0].models_not_included: `m` stands in models, too\nauth.key[0].models_not_included: a model without a name",
        ),
        (
            &with(&key('a', "when_used_up = \"quota_exceeded\"")),
            "auth.key[0].when_used_up: expected `insufficient_quota` or `usage_limit_reached`",
        ),
        (
            &with(&key('a', "tokens_per_day = -1")),
            "auth.key[0].tokens_per_day: expected a whole number, found one that is below 0 or too large",
        ),
        (
            &with(&key('a', "limit = 1")),
            "auth.key[0].limit: unknown key",
        ),
        (
            &with(&key('a', "[auth.key.limits]\nrequests = 1")),
            "auth.key[0].limits.requests: unknown key",
        ),
        (
            &with(
                &(key('a', "")
                    + &key(
                        'b',
                        "[auth.key.wire]\nresponses_dialect = \"azure\"\nreasoning = 1",
                    )),
            ),
            "auth.key[1].wire.reasoning: unknown key; is reasoning_field meant?\nauth.key[1].wire.responses_dialect: expected one of `openai`, `openresponses`, `codex-legacy`",
        ),
        (
            "[[upstream]]\nname = \"a\"",
            "upstream[0].url: missing; an address such as http://127.0.0.1:8000",
        ),
        (
            "[[upstream]]\nurl = \"https://a\"\nca_file = \"/nowhere/ca\"",
            "upstream[0].ca_file: the file cannot be read: No such file or directory (os error 2)",
        ),
        (
            "[[upstream]]\nurl = \"https://a\"\nca_file = \"Cargo.toml\"",
            "upstream[0].ca_file: it holds no certificate",
        ),
        (
            "[[upstream]]\nurl = \"https://a\"\ndanger_accept_invalid_certs = true\nserver_name = \"a b\"",
            "upstream[0].server_name: must be a host name or an address",
        ),
        (
            "[[upstream]]\nurl = \"https://a\"\ndanger_accept_invalid_certs = true\nclient_key_file = \"k\"",
            "upstream[0].client_cert_file: missing, although there is a client_key_file",
        ),
        (
            "[[upstream]]\nurl = \"http://a\"\nca_file = \"ca\"\nserver_name = \"b\"",
            "upstream[0].ca_file: the engine's address does not begin with https://\nupstream[0].server_name: the engine's address does not begin with https://",
        ),
        (
            &with("[tls]\ncert_file = \"c\""),
            "tls.key_file: missing, although there is a cert_file",
        ),
        (
            &with("[tls]\nkey_file = \"k\""),
            "tls.cert_file: missing, although there is a key_file",
        ),
        (
            &with("[tls]\nclient_ca_file = \"ca\""),
            "tls.cert_file: missing, although there is a client_ca_file\ntls.key_file: missing, although there is a client_ca_file",
        ),
        (
            &with("[tls]\ncert_file = \"Cargo.toml\"\nkey_file = \"Cargo.toml\""),
            "tls.cert_file: it holds no certificate",
        ),
        (
            "[[upstream]]\nurl = \"http://a\"\nhttp = \"3\"",
            "upstream[0].http: expected `1.1` or `2`",
        ),
        (
            "[[upstream]]\nurl = \"http://u:p@a\"",
            "upstream[0].url: must not carry a user name or password; use api_key_file",
        ),
        (
            "[[upstream]]\nurl = \"http://a\"\nengine = \"tgi\"",
            &format!("upstream[0].engine: unknown engine; one of {engines}"),
        ),
        (
            "[[upstream]]\nurl = \"http://a\"\nengine_version = \"0.21.0\"",
            "upstream[0].engine_version: says nothing while engine = \"auto\"; name the engine",
        ),
        (
            "[[upstream]]\nurl = \"http://a\"\nengine = \"vllm\"\nengine_version = \"new\"",
            "upstream[0].engine_version: must be a release such as 0.21.0",
        ),
        (
            "[[upstream]]\nurl = \"http://a\"\nengine = \"sglang\"\nfront_end = \"rust\"",
            "upstream[0].front_end: only vllm has one in Rust; name it as the engine",
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
            "upstream[0].api_key_file: the file cannot be read: No such file or directory (os error 2)",
        ),
        (
            "[[upstream]]\nurl = \"http://a\"\n[[upstream]]\nurl = \"http://a/v1\"",
            "upstream[1].name: \"a:80\" is the name of upstream[0] already",
        ),
        (
            "[[upstream]]\nurl = \"http://a\"\nweight = 0",
            "upstream: every weight is 0: no engine would be asked",
        ),
        (
            "[[upstream]]\nurl = \"http://a\"\nweight = 1001",
            "upstream[0].weight: must be at most 1000",
        ),
        (
            &with("[[model]]\naliases = [\"a\"]"),
            "model[0].name: missing; the name that the engines know the model by",
        ),
        (
            &with("[[model]]\nname = \"a\"\n[[model]]\nname = \"b\"\naliases = [\"c\", \"a\"]"),
            "model[1].aliases: \"a\" is a name of model[0] already",
        ),
        (
            &with("[[model]]\nname = \"a\"\nupstreams = [\"x\"]"),
            "model[0].upstreams: there is no upstream \"x\"",
        ),
        (
            &with("[[model]]\nname = \"a\"\ndefaults = { messages = [] }"),
            "model[0].defaults.messages: has no default; clients say it",
        ),
        (
            &with("[[model]]\nname = \"a\"\nwire.rolle_frame = 1"),
            "model[0].wire.rolle_frame: unknown key; is role_frame meant?",
        ),
        (
            &with("[affinity]\nby = \"header\""),
            "affinity.header: missing, although by = \"header\"",
        ),
        (
            &with("[affinity]\nby = \"header\"\nheader = \"a b\""),
            "affinity.header: must be the name of a header",
        ),
        (
            "[[upstream]]\nurl = \"http://a\"\n[[upstream]]\nurll = \"http://b\"",
            "upstream[1].urll: unknown key; is url meant?",
        ),
    ] {
        assert_eq!(mistakes(text), expected, "{text}");
    }
}

/// Configuration file in a folder of its own.
struct Written {
    folder: Folder,
    path: String,
}

impl Written {
    fn new(text: &str) -> Self {
        let folder = Folder::new();
        Self {
            path: folder.file("samewire.toml", text),
            folder,
        }
    }

    fn load(&self, flags: Overrides) -> Result<Config, Mistakes> {
        Config::load(&Overrides {
            config: Some(self.path.clone().into()),
            ..flags
        })
    }

    /// Returns the reported mistakes, without the folder's path.
    fn mistakes(&self, flags: Overrides) -> String {
        let told = self.load(flags).map(|_| ()).unwrap_err().to_string();
        told.replace(&format!("{}/", self.folder.folder().display()), "")
    }
}

#[test]
fn every_mistake_of_a_file_has_its_line() {
    let engine = "[[upstream]]\nurl = \"http://a\"\n";
    for (text, expected) in [
        (
            "listen = \"a\"\nx",
            "samewire.toml:2: key with no value, expected `=`",
        ),
        (
            "",
            "samewire.toml: upstream: no engine is named; give its address with --upstream http://HOST:PORT",
        ),
        (
            &format!("# a\n\n[limits]\n  max_tools = 1000001\n{engine}"),
            "samewire.toml:4: limits.max_tools: must be at most 1000000",
        ),
        (
            &format!("{engine}urll = 1"),
            "samewire.toml:3: upstream[0].urll: unknown key; is url meant?",
        ),
        (
            &format!("{engine}[upstream.wire]\nparser = \"herms\""),
            "samewire.toml:4: upstream[0].wire.parser: must be off, auto or the name of a parser: qwen3, hermes, qwen3_coder, deepseek_r1, deepseek_v31, kimi_k2, glm45, mistral, llama3_json, pythonic, gemma4, \u{2026}; is hermes meant?",
        ),
        // A missing key is reported with the line of its table.
        (
            &format!("{engine}\n[[upstream]]\nname = \"b\""),
            "samewire.toml:4: upstream[1].url: missing; an address such as http://127.0.0.1:8000",
        ),
        (
            &format!("[tls]\ncert_file = \"c\"\n{engine}"),
            "samewire.toml:1: tls.key_file: missing, although there is a cert_file",
        ),
        // The message names one entry of a list that spans several lines.
        (
            &format!("[cors]\norigins = [\n  \"*\",\n  \"null\",\n]\n{engine}"),
            "samewire.toml:4: cors.origins[1]: any page can have the origin 'null', from a sandboxed frame: say \"*\" if that is meant",
        ),
        // Mistakes are sorted by line, not by name.
        (
            &format!("[retry]\nmax_attempts = 5\n[health]\ninterval = 0\n{engine}"),
            "samewire.toml:2: retry.max_attempts: must be from 1 to 4\nsamewire.toml:4: health.interval: must be more than 0",
        ),
    ] {
        assert_eq!(
            Written::new(text).mistakes(Overrides::default()),
            expected,
            "{text}"
        );
    }
}

#[test]
fn mistakes_of_flags_and_variables_name_them() {
    let file = Written::new(&with("threads = 1\n[tls]\nhandshake = 0"));
    let flags = Overrides {
        engine: Some("vlm".to_owned()),
        upstream: vec!["localhost:8000".to_owned(), "http://a".to_owned()],
        ..Overrides::default()
    };
    let told = file.mistakes(flags.with("listen", "here").with("threads", 5000));
    let engines = engines();
    let lines = [
        "samewire.toml:3: tls.handshake: must be more than 0".to_owned(),
        "--threads: must be at most 1024; 0: one for each core".to_owned(),
        "--listen: must be an address such as 127.0.0.1:8080".to_owned(),
        "--upstream: http:// is missing: write http://localhost:8000".to_owned(),
        format!("--engine: unknown engine; one of {engines}; is vllm meant?"),
    ];
    assert_eq!(told, lines.join("\n"));
    let variables = [
        ("SAMEWIRE_LISTEN", "here"),
        ("SAMEWIRE_THREADS", "5000"),
        ("SAMEWIRE_ENGINE", "vlm"),
        ("SAMEWIRE_UPSTREAM", "localhost:8000, http://a"),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let (variables, _) = Overrides::of_variables(&variables.into());
    let told = Config::read(&with(""), &[&variables])
        .map(|_| ())
        .unwrap_err()
        .to_string();
    for line in [
        "SAMEWIRE_THREADS: must",
        "SAMEWIRE_LISTEN: must",
        "SAMEWIRE_UPSTREAM: http",
        "SAMEWIRE_ENGINE: un",
    ] {
        assert_eq!(
            told.lines().filter(|told| told.starts_with(line)).count(),
            1,
            "{line}: {told}"
        );
    }
}

#[test]
fn times_and_sizes_are_taken_in_words() {
    let text = with(
        "[limits]\nmax_body_bytes = \"64MiB\"\nrelay_body_bytes = \"32MB\"\n[timeouts]\nconnect = \"250ms\"\ndrain = \"1h30m\"\n\
         client_body_rate = \"2KiB\"\n[store]\nttl = \"7d\"\nmax_bytes = \"1GiB\"\n[tls]\nhandshake = \"5s\"\n[wire]\nkeepalive_seconds = \"5m\"\n\
         [health]\nidentify = \"2m\"\n[trace]\ntimeout = \"300ms\"",
    );
    let config = read(&text, &Overrides::default()).unwrap();
    assert_eq!(
        (config.limits.max_body_bytes, config.limits.relay_body_bytes),
        (64 << 20, 32_000_000)
    );
    assert_eq!(
        (
            config.timeouts.connect.as_millis(),
            config.timeouts.drain.as_secs()
        ),
        (250, 5400)
    );
    assert_eq!(config.timeouts.client_body_rate, 2048);
    assert_eq!(
        (config.store.caps.ttl, config.store.caps.bytes),
        (7 * 86_400_000, 1 << 30)
    );
    assert_eq!(
        (
            config.file.tls.handshake.as_secs(),
            config.file.health.identify.as_secs()
        ),
        (5, 120)
    );
    assert_eq!(config.file.trace.timeout.as_millis(), 300);
    assert_eq!(config.layers.options(0, None, None).keepalive_seconds, 300);
    let shown = config.shown();
    assert_eq!(read(&shown, &Overrides::default()).unwrap().shown(), shown);
}

#[test]
fn paths_in_a_file_are_relative_to_its_folder() {
    let text = "[store]\nplace = \"sqlite:state.db\"\n[[upstream]]\nurl = \"http://a\"\napi_key_file = \"key\"\n";
    let file = Written::new(text);
    file.folder.write("key", "sk-1");
    let config = file.load(Overrides::default()).unwrap();
    assert_eq!(format!("{:?}", config.upstreams[0].auth), "Own((hidden))");
    let shown = config.shown();
    let here = file.folder.folder().display();
    for line in [
        format!("place = \"sqlite:{here}/state.db\""),
        format!("api_key_file = \"{here}/key\""),
    ] {
        assert!(shown.contains(&line), "{line}: {shown}");
    }
    // Paths in flags are relative to the current directory.
    let here = std::env::current_dir().unwrap();
    let flags = Overrides::default().with("store.place", "sqlite:other.db");
    let shown = file.load(flags).unwrap().shown();
    assert!(
        shown.contains(&format!("place = \"sqlite:{}/other.db\"", here.display())),
        "{shown}"
    );
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
        assert_eq!(
            told.lines().filter(|line| line.starts_with(path)).count(),
            1,
            "{path} in {told}"
        );
    }
}

#[test]
fn options_on_the_command_line() {
    let set = |set: &[&str]| {
        let flags = Overrides {
            set: set.iter().map(|&one| one.to_owned()).collect(),
            ..Overrides::default()
        };
        read(&with("[wire]\nkeepalive_seconds = 7"), &flags)
    };
    let config = set(&[
        "reasoning_field=both",
        "wire.force_usage=true",
        "model_name=7",
        "fingerprint_salt=\"a b\"",
    ])
    .unwrap();
    let options = config.layers.options(0, None, None);
    assert_eq!(
        Value::try_from(options.reasoning_field).unwrap().as_str(),
        Some("both")
    );
    assert_eq!((options.force_usage, options.keepalive_seconds), (true, 7));
    assert_eq!(
        (
            options.model_name.as_str(),
            options.fingerprint_salt.as_str()
        ),
        ("7", "a b")
    );
    for (one, expected) in [
        (
            "reasoning_feld=both",
            "--set reasoning_feld: unknown option; is reasoning_field meant?",
        ),
        ("wire.colour=red", "--set colour: unknown option"),
        (
            "keepalive_seconds=often",
            "--set keepalive_seconds: must be seconds, or a time such as 250ms, 90s, 5m or 1h30m",
        ),
        (
            "obfuscation=of",
            "--set obfuscation: expected `off` or `on_request`; is off meant?",
        ),
        ("reasoning_field", "--set: must be OPTION=VALUE"),
    ] {
        assert_eq!(
            set(&[one]).map(|_| ()).expect_err(one).to_string(),
            expected
        );
    }
}

#[test]
fn flags_beat_the_environment_which_beats_the_file() {
    let upstream = |url: &str| vec![url.to_owned()];
    let environment = Overrides {
        upstream: upstream("http://environment"),
        ..Overrides::default()
    };
    let environment = environment
        .with("listen", "127.0.0.1:2")
        .with("admin_listen", "127.0.0.1:2");
    let flags = Overrides {
        upstream: upstream("http://flag/v1"),
        engine: Some("vllm".to_owned()),
        ..Overrides::default()
    };
    let flags = flags.with("listen", "127.0.0.1:3").with("threads", 3);
    let text =
        with("listen = \"127.0.0.1:1\"\nadmin_listen = \"127.0.0.1:1\"\ninsecure_no_auth = true");
    let config = Config::read(&text, &[&environment, &flags]).unwrap();
    assert_eq!(
        (
            config.listen.port(),
            config.admin_listen.port(),
            config.threads
        ),
        (3, 2, 3)
    );
    let upstream = &config.upstreams[0];
    assert_eq!(
        (upstream.host.as_str(), upstream.engine.name),
        ("flag", "vllm")
    );
    assert_eq!(
        (upstream.name.as_str(), config.upstreams.len()),
        ("flag:80", 1)
    );
}

#[test]
fn options_of_one_upstream_lie_over_those_of_all() {
    let text = "[wire]\nkeepalive_seconds = 7\nforce_usage = true\n[[upstream]]\nurl = \"http://a\"\n[upstream.wire]\nkeepalive_seconds = 3\n";
    let config = read(text, &Overrides::default()).unwrap();
    let options = config.layers.options(0, None, None);
    assert_eq!((options.keepalive_seconds, options.force_usage), (3, true));
}

#[test]
fn a_key_of_ones_own_is_read_and_never_shown() {
    let folder = Folder::new();
    let text = format!(
        "[[upstream]]\nurl = \"http://a\"\n{}\n",
        folder.key("sk-CANARY\n")
    );
    let config = read(&text, &Overrides::default()).unwrap();
    assert!(!format!("{config:?}").contains("CANARY"));
    assert!(!config.shown().contains("CANARY"));
    assert_eq!(format!("{:?}", config.upstreams[0].auth), "Own((hidden))");
}

#[test]
fn what_is_checked_decides_who_may_connect_and_what_the_engine_sees() {
    let auth = |text: &str| {
        format!(
            "{:?}",
            read(text, &Overrides::default()).unwrap().upstreams[0].auth
        )
    };
    let keys = format!("listen = \"0.0.0.0:1\"\n{}", key('a', "disabled = true"));
    assert_eq!(
        (auth(&with("")).as_str(), auth(&with(&keys)).as_str()),
        ("Pass", "None")
    );
    assert_eq!(auth(&(with(&keys) + "auth = \"pass\"")), "Pass");
    // A disabled key still counts as a key: no request is allowed without a valid one.
    let config = read(&with(&keys), &Overrides::default()).unwrap();
    assert!(config.auth.is_some_and(|ring| ring.caller(b"").is_none()));
    assert!(
        read(&with(""), &Overrides::default())
            .unwrap()
            .auth
            .is_none()
    );
}

/// `engine_errors = "auto"` shows more to clients that are on the same machine and need no key.
#[test]
fn engine_errors_depend_on_who_can_connect() {
    let policy = |text: &str| {
        let text = format!("{text}\n[[upstream]]\nurl = \"http://engine:8000\"\n");
        let config = Config::read(&text, &[]).unwrap();
        config.layers.options(0, None, None).engine_errors
    };
    let key = format!("[[auth.key]]\nhash = \"{}\"", "a".repeat(64));
    let (open, near) = (
        "listen = \"0.0.0.0:80\"\ninsecure_no_auth = true",
        "listen = \"[::1]:80\"",
    );
    for (text, expected) in [
        ("", EngineErrors::Redact),
        (near, EngineErrors::Redact),
        (open, EngineErrors::Redact4xx),
        (&key, EngineErrors::Redact4xx),
        (
            &format!("{open}\n[wire]\nengine_errors = \"redact\""),
            EngineErrors::Redact,
        ),
        (
            &format!("{near}\n[wire]\nengine_errors = \"mask\""),
            EngineErrors::Mask,
        ),
    ] {
        assert_eq!(policy(text), expected, "{text}");
    }
    let overlaid = "[wire]\nengine_errors = \"pass\"\n[[model]]\nname = \"m\"\nwire = { engine_errors = \"auto\" }\n[[upstream]]\nurl = \"http://engine:8000\"";
    let config = Config::read(overlaid, &[]).unwrap();
    assert_eq!(
        config.layers.options(0, Some(0), None).engine_errors,
        EngineErrors::Redact
    );
    // A reload cannot change the address, so it does not change who can connect.
    let before = Config::read(
        &format!("{open}\n[[upstream]]\nurl = \"http://engine:8000\""),
        &[],
    )
    .unwrap();
    let mut config = Config::read(
        "insecure_no_auth = true\n[[upstream]]\nurl = \"http://engine:8000\"",
        &[],
    )
    .unwrap();
    assert_eq!(config.restore_fixed(&before).unwrap(), ["listen"]);
    assert_eq!(
        config.layers.options(0, None, None).engine_errors,
        EngineErrors::Redact4xx
    );
}

#[test]
fn options_of_a_key_lie_over_those_of_the_upstream() {
    let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let text = format!(
        "[wire]\nkeepalive_seconds = 7\nforce_usage = true\nresponses_dialect = \"codex-legacy\"\n\
         [[auth.key]]\nhash = \"{hash}\"\ntenant = \"acme\"\nwire.responses_dialect = \"openresponses\"\n\
         [[upstream]]\nurl = \"http://a\"\nwire = {{ keepalive_seconds = 3 }}\n"
    );
    let config = read(&text, &Overrides::default()).unwrap();
    let ring = config.auth.unwrap();
    let caller = ring.caller(b"abc").unwrap();
    assert_eq!(
        (
            &*caller.tenant,
            caller.has_named_tenant,
            caller.may_use("m")
        ),
        ("acme", true, true)
    );
    let dialect = |options: &Options| {
        Value::try_from(options.responses_dialect)
            .unwrap()
            .as_str()
            .map(str::to_owned)
    };
    let options = config.layers.options(0, None, Some(caller.index));
    assert_eq!(dialect(&options).as_deref(), Some("openresponses"));
    assert_eq!(
        dialect(&config.layers.options(0, None, None)).as_deref(),
        Some("codex-legacy")
    );
    assert_eq!((options.keepalive_seconds, options.force_usage), (3, true));
}

#[test]
fn a_drain_finds_the_operators_side() {
    let folder = Folder::new();
    let path = folder.path("samewire.toml");
    let found = |told: Option<&str>, text: &str| {
        std::fs::write(&path, text).unwrap();
        let flags = Overrides {
            config: Some(path.clone()),
            ..Overrides::default()
        };
        let flags = match told {
            Some(address) => flags.with("admin_listen", address),
            None => flags,
        };
        admin_address(&flags)
            .map(|address| address.to_string())
            .map_err(|mistakes| mistakes.to_string())
    };
    for (told, text, expected) in [
        (None, "", "127.0.0.1:9090"),
        (None, "admin_listen = \"0.0.0.0:7\"", "127.0.0.1:7"),
        (None, "admin_listen = \"[::]:7\"\nupstream = 1", "[::1]:7"),
        (
            Some("127.0.0.1:8"),
            "admin_listen = \"0.0.0.0:7\"",
            "127.0.0.1:8",
        ),
    ] {
        assert_eq!(
            found(told, text).as_deref(),
            Ok(expected),
            "{told:?} {text}"
        );
    }
    assert!(found(Some("nine"), "").is_err_and(|why| why.starts_with("--admin-listen: ")));
    let line = format!("{}:2: admin_listen: ", path.display());
    assert!(found(None, "\nadmin_listen = \"nine\"").is_err_and(|why| why.starts_with(&line)));
    std::fs::remove_file(&path).unwrap();
    let flags = Overrides {
        config: Some(path),
        ..Overrides::default()
    };
    assert!(
        admin_address(&flags).is_err_and(|mistakes| mistakes.to_string().contains("No such file"))
    );
}

#[test]
fn options_lie_over_each_other_in_order() {
    let text = format!(
        "[wire]\nkeepalive_seconds = 1\ncommit_after_seconds = 1\nmodel_name = \"all\"\nforce_usage = true\n{}{}\
         [[upstream]]\nurl = \"http://a\"\n\
         [[upstream]]\nurl = \"http://b\"\nwire = {{ keepalive_seconds = 2, commit_after_seconds = 2, model_name = \"upstream\" }}\n\
         [[model]]\nname = \"m\"\n\
         [[model]]\nname = \"n\"\nwire = {{ keepalive_seconds = 3, commit_after_seconds = 3 }}\n",
        key('a', ""),
        key('b', "wire.keepalive_seconds = 4"),
    );
    let config = read(&text, &Overrides::default()).unwrap();
    let told = |upstream, model, key| {
        let options = config.layers.options(upstream, model, key);
        assert!(options.force_usage);
        (
            options.keepalive_seconds,
            options.commit_after_seconds,
            options.model_name.clone(),
        )
    };
    for (upstream, model, key, expected) in [
        (0, None, None, (1, 1, "all")),
        (1, None, None, (2, 2, "upstream")),
        (0, Some(0), Some(0), (1, 1, "all")),
        (0, Some(1), None, (3, 3, "all")),
        (1, Some(1), Some(0), (3, 3, "upstream")),
        (1, Some(1), Some(1), (4, 3, "upstream")),
        (0, None, Some(1), (4, 1, "all")),
    ] {
        let (keepalive, commit, name) = told(upstream, model, key);
        assert_eq!(
            (keepalive, commit, name.as_str()),
            expected,
            "{upstream} {model:?} {key:?}"
        );
    }
    let upstreams: Vec<_> = config
        .upstreams
        .iter()
        .map(|upstream: &UpstreamConfig| upstream.name.as_str())
        .collect();
    assert_eq!(upstreams, ["a:80", "b:80"]);
}

#[test]
fn keys_are_counted_and_their_hashes_never_shown() {
    let salt = "wire.fingerprint_salt = \"grain\"";
    let keys = [
        key(
            'a',
            &format!("tenant = \"acme\"\nname = \"laptop\"\n{salt}"),
        ),
        key('b', "tenant = \"acme\"\nmodels = [\"m\"]"),
        key('c', "disabled = true"),
    ];
    let config = read(&(with(&keys.concat()) + salt), &Overrides::default()).unwrap();
    let shown = config.shown();
    let start = "# Keys: 3, 1 disabled; tenants: acme (2), 1 without a tenant's name, each for itself.\n# 127.0.0.1:8000 sees no key.\n";
    assert!(shown.starts_with(start), "{shown}");
    for part in [
        "hash = \"(hidden)\"",
        "name = \"laptop\"",
        "models = [\"m\"]",
        "disabled = true",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let all = shown + &format!("{config:?}");
    for digit in ["aaaa", "bbbb", "cccc", "170, 170"] {
        assert!(!all.contains(digit), "{digit}: {all}");
    }
    assert!(!config.shown().contains("grain"), "{}", config.shown());
    assert!(
        !read(&with(""), &Overrides::default())
            .unwrap()
            .shown()
            .contains("Keys")
    );
}

/// The shipped example lists every parser, in the parsers' own order, and an error message suggests only existing
/// ones.
#[test]
fn every_parser_is_told() {
    let start = EXAMPLE.find("# Parsers: ").expect("the list");
    let end = start + EXAMPLE[start..].find(".\n").expect("its end");
    let list = EXAMPLE[start..end]
        .replace("# Parsers:", "")
        .replace('#', "");
    let told: Vec<_> = list.split(',').map(str::trim).collect();
    let names: Vec<_> = Parser::names().collect();
    assert_eq!(told, names);
    let found = mistakes(&with("[wire]\nparser = \"x\""));
    let (_, examples) = found
        .split_once("the name of a parser: ")
        .expect("examples");
    for example in examples
        .lines()
        .next()
        .expect("a line")
        .split(", ")
        .filter(|word| *word != "\u{2026}")
    {
        assert!(names.contains(&example), "{example}");
    }
}

/// Parsers have the names that vLLM and SGLang give to theirs, wherever options are set.
#[test]
fn parsers_have_names() {
    for name in [
        "off",
        "auto",
        "hermes",
        "qwen25",
        "qwen3_coder",
        "deepseekv31",
        "kimi_k2",
        "llama4_pythonic",
    ] {
        let text = with(&format!("[wire]\nparser = \"{name}\""));
        assert!(read(&text, &Overrides::default()).is_ok(), "{name}");
    }
    let found = mistakes(&with("[wire]\nparser = \"CANARY\""));
    let said = "wire.parser: must be off, auto or the name of a parser: ";
    assert!(
        found.contains(said) && found.contains(", hermes, ") && !found.contains("CANARY"),
        "{found}"
    );
    let found = mistakes("[[upstream]]\nurl = \"http://a\"\nwire = { parser = \"x\" }");
    assert!(
        found.contains("upstream[0].wire.parser: must be off, auto or the name of a parser: "),
        "{found}"
    );
}

/// Checks that the time to read a file grows with its length, and that the length has a limit.
#[test]
fn large_files_are_read_in_time() {
    let upstream = |n: usize| {
        format!(
            "[[upstream]]\nname = \"e{n}\"\nurl = \"http://10.0.0.1:{}\"\n",
            1000 + n
        )
    };
    let file: String = (0..10_000).map(upstream).collect();
    let start = std::time::Instant::now();
    assert_eq!(
        read(&file, &Overrides::default()).unwrap().upstreams.len(),
        10_000
    );
    assert!(
        start.elapsed() < std::time::Duration::from_secs(100),
        "{:?}",
        start.elapsed()
    );
    let folder = Folder::new();
    let path = folder.file("large.toml", &"#".repeat((16 << 20) + 1));
    let mut samewire = std::process::Command::new(env!("CARGO_BIN_EXE_samewire"));
    let ran = samewire
        .args(["check", "--config"])
        .arg(&path)
        .output()
        .unwrap();
    let errors = String::from_utf8(ran.stderr).unwrap();
    assert!(
        errors.contains("large.toml: larger than 16 MiB"),
        "{errors}"
    );
}

/// The schema of the chart's values has every engine, wherever it has one.
#[test]
fn the_chart_knows_every_engine() {
    let schema = include_str!("../../config/helm/values.schema.json");
    let names: Vec<_> = ENGINES
        .iter()
        .map(|engine| format!("\"{}\"", engine.name))
        .collect();
    let told: Vec<_> = schema
        .lines()
        .filter(|line| line.contains("\"engine\": { \"enum\""))
        .collect();
    assert!(!told.is_empty());
    assert!(
        told.iter()
            .all(|line| line.contains(&format!("[{}]", names.join(", ")))),
        "{told:?}"
    );
}
