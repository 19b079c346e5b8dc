//! Invalid configurations and environments, tested through the process: its messages and its exit codes.

use crate::sim::prelude::*;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use toml::{Table, Value};

/// Takes the place of every value. It could be a secret in the wrong place, so messages must never repeat it.
const CANARY: &str = "sk-CANARY-55b0";

/// Writes a file with this text and mode.
fn write(folder: &Folder, name: &str, text: &str, mode: u32) -> PathBuf {
    let path = folder.write(name, text);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path
}

/// Exit code and stderr of a process that must not start.
#[derive(Debug, PartialEq, Eq)]
struct ExitResult {
    code: Option<i32>,
    stderr: String,
}

/// Runs samewire to its end. A process that listens is killed, as is one that neither ends nor says anything, and has
/// no exit code.
fn run(args: &[&str], prepare: impl FnOnce(&mut Command)) -> ExitResult {
    let mut command = Command::new(env!("CARGO_BIN_EXE_samewire"));
    command
        .args(args)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    prepare(&mut command);
    let mut child = command.spawn().unwrap();
    let mut pipe = BufReader::new(child.stderr.take().unwrap());
    let (line, lines) = channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        while pipe.read_line(&mut text).is_ok_and(|length| length > 0) {
            let _ = line.send(std::mem::take(&mut text));
        }
    });
    let mut stderr = String::new();
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(text) => stderr.push_str(&text),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => child.kill().unwrap(),
        }
        if stderr.contains(r#""listener":"admin""#) {
            child.kill().unwrap();
        }
    }
    ExitResult {
        code: child.wait().unwrap().code(),
        stderr,
    }
}

/// Runs `serve` with this file, on free ports.
fn serve(config: &str, more: &[&str]) -> ExitResult {
    let folder = Folder::new();
    let file = folder.file("samewire.toml", config);
    let mut args = vec!["serve", "--config", &file];
    args.extend(more);
    let ended = run(&args, |_| {});
    // The folder's name differs from run to run.
    ExitResult {
        stderr: ended.stderr.replace(&file, "FILE"),
        ..ended
    }
}

fn check(config: &str) -> ExitResult {
    let folder = Folder::new();
    let file = folder.file("samewire.toml", config);
    let ended = run(&["check", "--config", &file], |_| {});
    ExitResult {
        stderr: ended.stderr.replace(&file, "FILE"),
        ..ended
    }
}

/// Returns every key of the annotated example by its path, with its default.
fn keys() -> Vec<(Vec<String>, Value)> {
    fn walk(table: &Table, path: &[String], found: &mut Vec<(Vec<String>, Value)>) {
        for (key, value) in table {
            let path = [path, std::slice::from_ref(key)].concat();
            match value {
                Value::Table(inner) if !inner.is_empty() => walk(inner, &path, found),
                Value::Array(items) if items.iter().any(Value::is_table) => {
                    items
                        .iter()
                        .filter_map(Value::as_table)
                        .for_each(|inner| walk(inner, &path, found));
                }
                value => found.push((path, value.clone())),
            }
        }
    }
    let text = include_str!("../../../config/samewire.toml");
    let plain = |line: &str| match line.strip_prefix('#') {
        Some(rest) if !rest.starts_with(' ') => format!("{rest}\n"),
        _ => format!("{line}\n"),
    };
    let table = toml::from_str::<Table>(&text.lines().map(plain).collect::<String>()).unwrap();
    let mut found = Vec::new();
    walk(&table, &[], &mut found);
    found
}

/// Returns a configuration with one upstream, and with this value for one key.
fn with(path: &[String], value: &Value) -> String {
    let engine = Table::from_iter([("url".to_owned(), Value::from("http://127.0.0.1:1"))]);
    let mut file = Table::from_iter([(
        "upstream".to_owned(),
        Value::Array(vec![Value::Table(engine)]),
    )]);
    let (last, before) = path.split_last().unwrap();
    let mut place = &mut file;
    for step in before {
        let of_list = ["upstream", "key"].contains(&step.as_str());
        let empty = if of_list {
            Value::Array(vec![Value::Table(Table::new())])
        } else {
            Value::Table(Table::new())
        };
        place = match place.entry(step.clone()).or_insert(empty) {
            Value::Array(items) => items[0].as_table_mut().unwrap(),
            inner => inner.as_table_mut().unwrap(),
        };
    }
    if before.last().is_some_and(|list| list == "key") {
        place.insert("hash".to_owned(), Value::from("a".repeat(64)));
    }
    place.insert(last.clone(), value.clone());
    toml::to_string(&file).unwrap()
}

/// Returns the path of a key as messages write it.
fn path_text(path: &[String]) -> String {
    path.join(".")
        .replacen("upstream.", "upstream[0].", 1)
        .replacen("auth.key.", "auth.key[0].", 1)
}

/// Each key with values of the wrong type and with meaningless text: `check` and `serve` report every refused value
/// in one line that names the key and not the value, and no listener is opened.
#[test]
fn fault_o07_each_key_with_a_wrong_value() {
    let list = Value::Array(vec![Value::Array(vec![Value::from(CANARY)])]);
    let table = Value::Table(Table::from_iter([(CANARY.to_owned(), Value::from(CANARY))]));
    let mut wrong = 0;
    for (path, default) in keys() {
        let name = path_text(&path);
        let mut refused = 0;
        for value in [
            Value::from(CANARY),
            Value::from(4_815_162_342_i64),
            Value::from(-4_815_162_342_i64),
            list.clone(),
            table.clone(),
        ] {
            // A table in place of a table is valid; the keys in it are tried by themselves.
            if default.is_table() && value.is_table() {
                continue;
            }
            let text = with(&path, &value);
            let ended = check(&text);
            if ended.code == Some(0) {
                continue;
            }
            assert_eq!(ended.code, Some(2), "{text}{ended:?}");
            refused += 1;
            // If keys belong together, the message may name the missing one.
            let beside = |line: &str| line.contains(": missing, although ");
            let section = name.rsplit_once('.').map_or("", |(section, _)| section);
            let is_told = |line: &str| {
                let key = line.split_once(": ").map_or("", |(_, key)| key);
                key.starts_with(&name) || beside(line) && key.starts_with(section)
            };
            assert!(ended.stderr.lines().any(is_told), "{name}: {ended:?}");
            for line in ended.stderr.lines() {
                let (place, why) = line.split_once(": ").unwrap_or_else(|| panic!("{line}"));
                let number = place
                    .strip_prefix("FILE:")
                    .and_then(|line| line.parse::<usize>().ok());
                let is_line =
                    number.is_some_and(|number| (1..=text.lines().count()).contains(&number));
                assert!(
                    is_line && !why.is_empty() && line.len() < 250,
                    "{line}\n{text}"
                );
            }
            let in_value = ended.stderr.replace(&format!("{name}.{CANARY}"), "");
            assert!(
                !in_value.contains("CANARY") && !in_value.contains("4815162342"),
                "{name}: {ended:?}"
            );
            if refused == 1 {
                assert_eq!(serve(&text, &[]), ended, "{text}");
            }
        }
        assert!(refused >= 2, "{name} accepts a wrong value");
        wrong += refused;
    }
    assert!(wrong > 300, "{wrong} wrong files");
}

#[test]
fn fault_o07_files_that_are_wrong_as_a_whole() {
    let engine = "\n[[upstream]]\nurl = \"http://127.0.0.1:1\"\n";
    let key = "[[auth.key]]\nhash = \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"\n";
    let rows = [
        (String::new(), 1),
        ("# nothing".to_owned(), 1),
        (CANARY.to_owned(), 1),
        (format!("= {CANARY}"), 1),
        (format!("listen = {CANARY}{engine}"), 1),
        (format!("listen = \"{CANARY}{engine}"), 1),
        (format!("listen = \"a\"\nlisten = \"{CANARY}\"{engine}"), 1),
        (format!("[log\n{engine}"), 1),
        (format!("[log]\n[log]{engine}"), 1),
        (format!("listen = \"\\x\"{engine}"), 1),
        (format!("'{CANARY}{engine}"), 1),
        (format!("lisen = \"{CANARY}\"{engine}"), 1),
        (format!("[logs]\nlevel = \"{CANARY}\"{engine}"), 1),
        (format!("log = \"{CANARY}\"{engine}"), 1),
        (format!("upstream = \"{CANARY}\""), 2),
        ("[[upstream]]".to_owned(), 1),
        (format!("[[upstream]]\nurl = \"{CANARY}\""), 1),
        (
            format!("[[upstream]]\nurl = \"http://{CANARY}:{CANARY}@a\""),
            1,
        ),
        (format!("[[upstream]]\nurl = \"ftp://{CANARY}\""), 1),
        (format!("{engine}api_key_file = \"/nowhere/{CANARY}\""), 1),
        (format!("listen = \"0.0.0.0:0\"{engine}"), 1),
        (format!("insecure_no_auth = true\n{key}{engine}"), 1),
        (format!("{key}{key}{engine}"), 1),
        (format!("{key}tenant = \"{CANARY} {CANARY}\"{engine}"), 1),
        (format!("[trace]\nendpoint = \"{CANARY}\"{engine}"), 1),
        (
            format!("[trace]\nendpoint = \"http://{CANARY}@a\"{engine}"),
            1,
        ),
        (format!("[trace]\nsample = 2\ntimeout = 0{engine}"), 2),
        (format!("[store]\nplace = \"{CANARY}:{CANARY}\"{engine}"), 1),
        (
            format!("[seal]\nkeys_file = \"/nowhere/{CANARY}\"{engine}"),
            1,
        ),
        (
            format!("[requests]\nmedia_urls = [\"https://{CANARY}\"]{engine}"),
            1,
        ),
        (
            format!(
                "threads = -1\nlisten = 8\n[limits]\nrequests = 0\n[wire]\nrole_frame = \"{CANARY}\"\n[[upstream]]\nurl = \"{CANARY}\"\nname = 5"
            ),
            6,
        ),
    ];
    for (text, mistakes) in rows {
        let ended = serve(&text, &[]);
        assert_eq!(ended.code, Some(2), "{text}: {ended:?}");
        assert_eq!(ended.stderr.lines().count(), mistakes, "{text}: {ended:?}");
        assert!(!ended.stderr.contains("CANARY"), "{text}: {ended:?}");
        assert_eq!(check(&text), ended, "{text}");
    }
    let ended = run(&["serve", "--config", "/nowhere/samewire.toml"], |_| {});
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (
            Some(2),
            "/nowhere/samewire.toml: No such file or directory (os error 2)\n"
        )
    );
}

/// A port in use, an address of another machine and, where IPv6 is missing, an IPv6 address.
#[test]
fn fault_o08_addresses_that_cannot_be_had() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let mut rows = vec![
        (taken.clone(), "127.0.0.1:0".to_owned(), taken.clone()),
        ("127.0.0.1:0".to_owned(), taken.clone(), taken),
        // Addresses reserved for documentation belong to no machine (RFC 5737, RFC 3849).
        (
            "192.0.2.1:8080".to_owned(),
            "127.0.0.1:0".to_owned(),
            "192.0.2.1:8080".to_owned(),
        ),
        (
            "[2001:db8::1]:8080".to_owned(),
            "127.0.0.1:0".to_owned(),
            "[2001:db8::1]:8080".to_owned(),
        ),
    ];
    if TcpListener::bind("[::1]:0").is_err() {
        rows.push((
            "[::1]:0".to_owned(),
            "127.0.0.1:0".to_owned(),
            "[::1]:0".to_owned(),
        ));
    }
    for (listen, admin, named) in rows {
        let more = [
            "--listen",
            &listen,
            "--admin-listen",
            &admin,
            "--insecure-no-auth",
        ];
        let ended = serve("[[upstream]]\nurl = \"http://127.0.0.1:1\"\n", &more);
        assert_eq!(ended.code, Some(3), "{listen}, {admin}: {ended:?}");
        let expected = format!("cannot listen on {named}: ");
        assert!(
            ended
                .stderr
                .lines()
                .last()
                .is_some_and(|line| line.starts_with(&expected)),
            "{expected}{ended:?}"
        );
    }
}

/// The same port for clients and operators is refused before any listener is opened.
#[test]
fn fault_o08_the_same_port_twice() {
    let config = "[[upstream]]\nurl = \"http://127.0.0.1:1\"\n";
    for (listen, admin) in [
        ("127.0.0.1:9000", "127.0.0.1:9000"),
        ("127.0.0.1:9000", "0.0.0.0:9000"),
    ] {
        let ended = serve(config, &["--listen", listen, "--admin-listen", admin]);
        let told = format!(
            "--admin-listen: takes the same port as listen ({listen}); give one of them another\n"
        );
        assert_eq!(
            ended,
            ExitResult {
                code: Some(2),
                stderr: told
            }
        );
    }
    let ended = serve(
        config,
        &["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"],
    );
    assert!(
        ended.code.is_none() && ended.stderr.contains("listening"),
        "{ended:?}"
    );
}

/// Every key can be set through the environment, and misspelt variables are reported.
#[test]
fn variables_of_the_environment() {
    let folder = Folder::new();
    let text =
        "listen = \"127.0.0.1:6\"\n[[upstream]]\nurl = \"http://127.0.0.1:1\"\nname = \"file\"\n";
    let file = folder.file("samewire.toml", text);
    let checked = |variables: &[(&str, &str)], more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_samewire"));
        command.args(["check", "--config", &file]).args(more);
        let output = command
            .env_clear()
            .envs(variables.iter().copied())
            .current_dir("/tmp")
            .output()
            .unwrap();
        let text = if output.status.success() {
            output.stdout
        } else {
            output.stderr
        };
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let hash = "a".repeat(64);
    let (code, shown) = checked(
        &[
            ("SAMEWIRE_LIMITS__MAX_BODY_BYTES", "64MiB"),
            ("SAMEWIRE_LOG__LEVEL", "debug"),
            ("SAMEWIRE_UPSTREAM__0__NAME", "variable"),
            ("SAMEWIRE_UPSTREAM__0__MODELS", "a, b"),
            ("SAMEWIRE_UPSTREAM__1__URL", "http://127.0.0.1:2/v1"),
            ("SAMEWIRE_UPSTREAM__1__WIRE", "{ parser = \"auto\" }"),
            ("SAMEWIRE_UPSTREAM__1__HTTP", "1.1"),
            ("SAMEWIRE_WIRE__THINK__MODE", "auto"),
            ("SAMEWIRE_TIMEOUTS__CONNECT", "0.5"),
            ("SAMEWIRE_ROOT_PATH", "/llm"),
            (
                "SAMEWIRE_CORS__ORIGINS",
                "https://a.example,https://b.example",
            ),
            ("SAMEWIRE_AUTH__KEY__0__HASH", &hash),
            ("SAMEWIRE_AUTH__KEY__0__NAME", "7"),
            ("SAMEWIRE_STORE__PLACE", "sqlite:state.db"),
            ("SAMEWIRE_ADMIN_LISTEN", "127.0.0.1:5"),
            ("SAMEWIRE_LISTEN", "127.0.0.1:3"),
            // Kubernetes sets these for a service of this name.
            ("SAMEWIRE_SERVICE_HOST", "10.0.0.1"),
            ("SAMEWIRE_PORT_8080_TCP_ADDR", "10.0.0.1"),
            ("SAMEWIRE_PORT", "tcp://10.0.0.1:8080"),
        ],
        &["--listen", "127.0.0.1:4"],
    );
    assert_eq!(code, Some(0), "{shown}");
    for line in [
        "max_body_bytes = 67108864\n",
        "level = \"debug\"\n",
        "name = \"variable\"\n",
        "models = [\"a\", \"b\"]\n",
        "url = \"http://127.0.0.1:2/v1\"\n",
        "parser = \"auto\"\n",
        "http = \"1.1\"\n",
        "mode = \"auto\"\n",
        "connect = 0.5\n",
        "root_path = \"/llm\"\n",
        "origins = [\"https://a.example\", \"https://b.example\"]\n",
        "hash = \"(hidden)\"\n",
        "name = \"7\"\n",
        "place = \"sqlite:/tmp/state.db\"\n",
        "admin_listen = \"127.0.0.1:5\"\n",
        "listen = \"127.0.0.1:4\"\n",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert!(!shown.contains("aaaa"), "{shown}");
    for (name, value, told) in [
        (
            "SAMEWIRE_UPSTRAEM",
            CANARY,
            "unknown variable; is SAMEWIRE_UPSTREAM meant?",
        ),
        ("SAMEWIRE_COLOUR", CANARY, "unknown variable"),
        (
            "SAMEWIRE_LOG_LEVL",
            CANARY,
            "unknown variable; is SAMEWIRE_LOG_LEVEL meant?",
        ),
        (
            "SAMEWIRE_LOG",
            "inf",
            "expected one of `off`, `error`, `warn`, `info`, `debug`, `trace`; is info meant?",
        ),
        (
            "SAMEWIRE_LOG_FORMAT",
            CANARY,
            "expected one of `auto`, `json`, `text`",
        ),
        (
            "SAMEWIRE_LIMITS__MAX_BODY_BYTE",
            CANARY,
            "unknown variable; is SAMEWIRE_LIMITS__MAX_BODY_BYTES meant?",
        ),
        (
            "SAMEWIRE_LIMIT__MAX_TOOLS",
            CANARY,
            "unknown variable; is SAMEWIRE_LIMITS__MAX_TOOLS meant?",
        ),
        (
            "SAMEWIRE_UPSTREAM__URL",
            CANARY,
            "unknown variable; is SAMEWIRE_UPSTREAM__0__URL meant?",
        ),
        (
            "SAMEWIRE_UPSTREAM__2__URL",
            CANARY,
            "there is no upstream[1]; count from 0, without a gap",
        ),
        (
            "SAMEWIRE_UPSTREAM__99999999999__URL",
            CANARY,
            "there is no upstream[99999999998]; count from 0, without a gap",
        ),
        ("SAMEWIRE_RELAY__PATHS__0", CANARY, "unknown variable"),
        (
            "SAMEWIRE_LIMITS",
            "{ max_tols = 5 }",
            "unknown key; is max_tools meant?",
        ),
        (
            "SAMEWIRE_LIMITS__MAX_TOOLS",
            CANARY,
            "expected a whole number, found a text",
        ),
        (
            "SAMEWIRE_LIMITS__MAX_TOOLS",
            "1000001",
            "must be at most 1000000",
        ),
        (
            "SAMEWIRE_AUTH__KEY__0__HASH",
            CANARY,
            "must be 64 hex digits, as samewire key new prints them",
        ),
        (
            "SAMEWIRE_LOG__CONTENT",
            "ture",
            "expected true or false, found a text; is true meant?",
        ),
        (
            "SAMEWIRE_LISTEN",
            CANARY,
            "must be an address such as 127.0.0.1:8080",
        ),
        (
            "SAMEWIRE_THREADS",
            "9999",
            "must be at most 1024; 0: one for each core",
        ),
        ("SAMEWIRE_THREADS", CANARY, "must be a whole number"),
    ] {
        assert_eq!(
            checked(&[(name, value)], &[]),
            (Some(2), format!("{name}: {told}\n"))
        );
    }
}

/// A privileged port is refused where the kernel refuses it: root may listen there, and some machines allow
/// everyone.
#[test]
fn fault_o08_ports_that_are_not_for_everybody() {
    let first = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap();
    let forbidden = first.trim().parse::<u16>().unwrap() > 79;
    let args = [
        "serve",
        "--upstream",
        "http://127.0.0.1:1",
        "--listen",
        "127.0.0.1:79",
        "--admin-listen",
        "127.0.0.1:0",
    ];
    let ended = run(&args, |command| _ = as_nobody(command));
    if forbidden {
        assert_eq!(ended.code, Some(3), "{ended:?}");
        assert!(
            ended
                .stderr
                .contains("cannot listen on 127.0.0.1:79: Permission denied"),
            "{ended:?}"
        );
    } else {
        // Listens at that port if permitted, or finds it taken; never listens at another one.
        assert!(
            ended.code.is_none() && ended.stderr.contains("127.0.0.1:79") || ended.code == Some(3),
            "{ended:?}"
        );
    }
}

/// Makes a command run as another user if this process is root. Returns the user id it will have.
fn as_nobody(command: &mut Command) -> u32 {
    let me = std::fs::metadata("/proc/self").unwrap().uid();
    if me != 0 {
        return me;
    }
    // No user has this id.
    command.uid(54_321).gid(54_321);
    54_321
}

/// Permissions of key files: which are refused and which accepted, for every setting that names one.
#[tokio::test]
async fn fault_o09_files_with_keys() {
    const SEAL: &str = "k1 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let folder = Folder::new();
    let broken = folder.path("broken-link");
    symlink(folder.path("nothing"), &broken).unwrap();
    let places = [
        ("upstream[0].api_key_file", CANARY, "the file holds no key"),
        ("seal.keys_file", SEAL, "there is no key"),
        (
            "trace.headers_file",
            "authorization: Bearer sk-CANARY-55b0",
            "must have lines of a header's name, a colon and its value",
        ),
    ];
    for (n, (place, good, empty)) in places.into_iter().enumerate() {
        let config = |path: &Path| match n {
            0 => format!("[[upstream]]\nurl = \"http://127.0.0.1:1\"\napi_key_file = {path:?}"),
            1 => {
                format!("[seal]\nkeys_file = {path:?}\n[[upstream]]\nurl = \"http://127.0.0.1:1\"")
            }
            _ => format!(
                "[trace]\nheaders_file = {path:?}\n[[upstream]]\nurl = \"http://127.0.0.1:1\""
            ),
        };
        let file =
            |name: &str, text: &str, mode: u32| write(&folder, &format!("{n}-{name}"), text, mode);
        let open = "everybody on this machine can read or change the file (mode ";
        let linked = folder.path(&format!("{n}-link"));
        let target = file("linked", good, 0o644);
        symlink(&target, &linked).unwrap();
        for (path, why) in [
            (
                folder.path("missing"),
                "the file cannot be read: No such file",
            ),
            (broken.clone(), "the file cannot be read: No such file"),
            (
                folder.folder().to_owned(),
                "the file cannot be read: Is a directory",
            ),
            (file("empty", "", 0o600), empty),
            (file("blank", " \n\n", 0o600), empty),
            (
                file("odd", "\u{0}\u{1}", 0o600),
                if n == 1 {
                    "line 1: an id and a key"
                } else {
                    empty
                },
            ),
            (file("open", good, 0o644), open),
            (file("open-to-change", good, 0o602), open),
            (linked.clone(), open),
        ] {
            let ended = serve(&config(&path), &[]);
            assert_eq!(ended.code, Some(2), "{path:?}: {ended:?}");
            let told = ended
                .stderr
                .split_once(": ")
                .filter(|(line, _)| line.starts_with("FILE:"));
            let is_told =
                told.is_some_and(|(_, told)| told.starts_with(&format!("{place}: {why}")));
            assert!(is_told, "{place} {why}: {ended:?}");
            assert!(
                ended.stderr.lines().count() == 1 && !ended.stderr.contains("CANARY"),
                "{ended:?}"
            );
            assert!(
                !ended.stderr.contains(folder.folder().to_str().unwrap()),
                "{ended:?}"
            );
        }
        let bytes = file("no-text", "", 0o600);
        std::fs::write(&bytes, [0xff, 0xfe]).unwrap();
        let ended = serve(&config(&bytes), &[]);
        assert!(
            ended.code == Some(2)
                && ended
                    .stderr
                    .contains(&format!(": {place}: the file cannot be read")),
            "{ended:?}"
        );
        // As Kubernetes mounts secrets: a symbolic link to a file that the group may read.
        std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o440)).unwrap();
        for path in [
            file("mine", good, 0o600),
            file("readable", good, 0o400),
            linked,
        ] {
            let ended = check(&config(&path));
            assert_eq!(
                (ended.code, ended.stderr.as_str()),
                (Some(0), ""),
                "{path:?}"
            );
        }
    }
}

#[test]
fn fault_o09_nobody_serves_everybody_by_accident() {
    let config = "[[upstream]]\nurl = \"http://127.0.0.1:1\"\n";
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let ended = serve(config, &["--listen", listen]);
        assert!(
            ended.code == Some(2) && ended.stderr.starts_with("--listen: "),
            "{listen}: {ended:?}"
        );
        assert!(ended.stderr.contains("--insecure-no-auth"), "{ended:?}");
    }
    let folder = Folder::new();
    let file = folder.file("samewire.toml", config);
    let args = [
        "serve",
        "--config",
        &file,
        "--listen",
        "0.0.0.0:0",
        "--admin-listen",
        "127.0.0.1:0",
    ];
    let variable = run(&args, |command| {
        _ = command.env("SAMEWIRE_INSECURE_NO_AUTH", "maybe")
    });
    assert_eq!(
        (variable.code, variable.stderr.lines().count()),
        (Some(2), 2),
        "{variable:?}"
    );
    let open = run(&[&args[..], &["--insecure-no-auth"]].concat(), |_| {});
    assert!(
        open.code.is_none() && open.stderr.contains("listening"),
        "{open:?}"
    );
}

/// Other processes of the same user cannot read the process's memory: its `/proc` files belong to root.
#[tokio::test]
async fn memory_is_hidden_from_other_processes() {
    let owner = |pid: u32| std::fs::metadata(format!("/proc/{pid}/environ")).map(|file| file.uid());
    let start = |command: &mut Command| {
        let who = as_nobody(command);
        let child = command
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        (child.unwrap(), who)
    };
    // Another program for comparison.
    let (mut other, who) = start(Command::new("/bin/sleep").arg("60"));
    assert_eq!(owner(other.id()).unwrap(), who);
    other.kill().unwrap();
    other.wait().unwrap();
    let args = [
        "serve",
        "--upstream",
        "http://127.0.0.1:1",
        "--listen",
        "127.0.0.1:0",
        "--admin-listen",
        "127.0.0.1:0",
    ];
    let (mut samewire, who) = start(Command::new(env!("CARGO_BIN_EXE_samewire")).args(args));
    let begun = Instant::now();
    // The files belong to the user until the process has disabled access.
    while owner(samewire.id()).unwrap() == who && begun.elapsed() < PATIENCE {
        assert!(samewire.try_wait().unwrap().is_none(), "it ended");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let seen = owner(samewire.id()).unwrap();
    samewire.kill().unwrap();
    samewire.wait().unwrap();
    assert_ne!(seen, who);
}

/// Environment variables that name a proxy.
const PROXIES: [&str; 6] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
];

/// Requests, probes and traces go to the configured addresses, never through a proxy of the environment.
#[tokio::test]
async fn fault_o28_proxies_of_the_environment_are_not_used() {
    let recording = Engine::script(Script::answer("CANARY-PROXY", 1)).await;
    let collector = Engine::script(Script::new().whole("200 OK", "text/plain", "")).await;
    let mut setup = Setup::new().config("[health]\ninterval = 0.1");
    if cfg!(feature = "otlp") {
        setup = setup.config(&format!("[trace]\nendpoint = \"{}\"", collector.url()));
    }
    for name in PROXIES {
        setup = setup.environment(name, &recording.url());
    }
    setup = setup
        .environment("NO_PROXY", "")
        .environment("no_proxy", "");
    let world = World::plain(setup).await;
    assert_eq!(world.stream("").await.head.status, 200);
    assert_eq!(world.get("/v1/models").await.head.status, 200);
    until("three probes and spans", || {
        world.engine.probes().len() >= 3
            && !(cfg!(feature = "otlp") && collector.attempt_count() == 0)
    })
    .await;
    assert_eq!(
        (
            recording.attempt_count(),
            recording.probes().len(),
            recording.open_connections()
        ),
        (0, 0, 0)
    );
    world.end().await;
}

/// The process needs no temporary folder, no home, no writable file and no entry for its user.
#[tokio::test]
async fn fault_o28_nothing_is_written_and_nobody_need_be_known() {
    let engine = Engine::script(Script::answer("a", 1)).await;
    let mut command = Command::new("/bin/sh");
    // The kernel kills a process that writes to a file; writing to a pipe is allowed.
    let line = format!(
        "ulimit -f 0; exec {} serve --upstream {} --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0",
        env!("CARGO_BIN_EXE_samewire"),
        engine.url()
    );
    command
        .args(["-c", &line])
        .env_clear()
        .env("TMPDIR", "/nowhere")
        .env("HOME", "/nowhere")
        .env("SAMEWIRE_TIMEOUTS__SETTLE", "0")
        .current_dir("/");
    as_nobody(&mut command);
    let mut samewire = Samewire::spawn_as(command);
    samewire.wait_until_it_listens().await;
    assert_eq!(
        within("an answer", Request::stream("").answer(samewire.proxy))
            .await
            .head
            .status,
        200
    );
    let response = Request::post("/v1/responses", r#"{"model":"m","input":"a"}"#);
    response.answer(samewire.proxy).await.with_status(200);
    assert!(
        samewire.metrics().await.contains("process_open_fds"),
        "it may look at itself"
    );
    samewire.signal("TERM");
    assert_eq!(
        samewire.exit(PATIENCE).await.code(),
        Some(0),
        "{:#?}",
        samewire.logs()
    );
}

/// llama.cpp listens by default on the port that samewire uses, so an upstream can be samewire itself.
#[test]
fn fault_u55_an_upstream_where_samewire_itself_listens() {
    let file = |listen: &str, url: &str| {
        format!("listen = \"{listen}\"\ninsecure_no_auth = true\n[[upstream]]\nurl = \"{url}\"\n")
    };
    for (listen, url) in [
        ("127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("127.0.0.1:8080", "http://localhost:8080/v1"),
        ("0.0.0.0:8080", "http://127.0.0.1:8080"),
        ("0.0.0.0:8080", "http://127.0.0.7:8080"),
        ("[::]:8080", "http://[::1]:8080"),
        ("127.0.0.1:8080", "http://127.0.0.1:9090"),
    ] {
        let ended = check(&file(listen, url));
        assert_eq!(ended.code, Some(2), "{listen} {url}: {}", ended.stderr);
        let said = "upstream[0].url: samewire itself listens there";
        assert!(
            ended.stderr.contains(said),
            "{listen} {url}: {}",
            ended.stderr
        );
    }
    for (listen, url) in [
        ("127.0.0.1:8080", "http://127.0.0.1:8081"),
        ("127.0.0.1:8080", "http://127.0.0.2:8080"),
        ("10.0.0.1:8080", "http://127.0.0.1:8080"),
        ("127.0.0.1:8080", "http://engine:8080"),
    ] {
        let ended = check(&file(listen, url));
        assert_eq!(ended.code, Some(0), "{listen} {url}: {}", ended.stderr);
    }
}
