//! Checks of Dockerfile and .dockerignore: the shipped stage, its user, its files and its health check.

use super::{UID, assert_starts, flags, ports, read, root};
use crate::sim::prelude::*;
use crate::sim::tls::{Authority, Tunnel};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Returns the instructions of the Dockerfile, each as name and rest, with continued lines joined.
fn instructions() -> Vec<(String, String)> {
    let text = read("Dockerfile");
    let lines: Vec<_> = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .collect();
    let joined = lines.join("\n").replace("\\\n", " ");
    let instructions = joined.lines().filter(|line| !line.trim().is_empty());
    instructions
        .map(|line| line.split_once(' ').expect("a name and a rest"))
        .map(|(a, b)| (a.into(), b.trim().into()))
        .collect()
}

/// Returns the instructions of the stage that is shipped.
fn final_stage() -> Vec<(String, String)> {
    let all = instructions();
    let from = all
        .iter()
        .rposition(|(name, _)| name == "FROM")
        .expect("a stage");
    all[from..].to_vec()
}

fn only(stage: &[(String, String)], name: &str) -> String {
    let found: Vec<_> = stage.iter().filter(|(n, _)| n == name).collect();
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    found[0].1.clone()
}

fn words(json: &str) -> Vec<String> {
    serde_json::from_str(json)
        .unwrap_or_else(|_| panic!("not in the form that needs no shell: {json}"))
}

/// File of the certificate authorities that the image trusts.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

#[test]
fn the_image_holds_the_binary_and_what_it_trusts() {
    let stage = final_stage();
    assert_eq!(stage[0].1, "scratch", "an empty image has no shell");
    assert!(
        !stage.iter().any(|(name, _)| name == "RUN"),
        "nothing could run there"
    );
    let copies: Vec<_> = stage
        .iter()
        .filter(|(name, _)| name == "COPY")
        .map(|(_, rest)| rest)
        .collect();
    let targets: Vec<_> = copies
        .iter()
        .filter_map(|rest| rest.rsplit(' ').next())
        .collect();
    assert_eq!(targets, ["/samewire", "/LICENSE", AUTHORITIES]);
    assert_eq!(only(&stage, "USER"), format!("{UID}:{UID}"));
    assert_eq!(words(&only(&stage, "ENTRYPOINT")), ["/samewire"]);
}

/// Creates a root folder like the image's: the binary with its libraries, and a file of authorities.
fn empty_root(authorities: &str) -> Folder {
    let folder = Folder::new();
    let place = |path: &str| folder.path(path.trim_start_matches('/'));
    let copy = |from: &Path, to: &str| {
        std::fs::create_dir_all(place(to).parent().expect("a folder")).expect("writable");
        std::fs::copy(from, place(to)).expect("a copy");
    };
    let binary = Path::new(env!("CARGO_BIN_EXE_samewire"));
    copy(binary, "/samewire");
    // The image's binary is static; the tests' binary needs the system's libraries.
    let loaded = Command::new("ldd")
        .arg(binary)
        .output()
        .expect("ldd is there");
    let loaded = String::from_utf8(loaded.stdout).expect("UTF-8");
    for library in loaded
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
    {
        copy(Path::new(library), library);
    }
    std::fs::create_dir_all(place("/etc/ssl/certs")).expect("writable");
    std::fs::write(place(AUTHORITIES), authorities).expect("writable");
    folder
}

/// An engine is trusted exactly if its authority is in the image's file, tested in a root folder like the image's.
#[tokio::test]
async fn the_image_trusts_the_authorities_in_its_file() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let root = empty_root(&ours.pem());
    let enter = || {
        let mut command = Command::new("unshare");
        command
            .arg("-r")
            .arg("-R")
            .arg(root.folder())
            .arg("/samewire")
            .env_clear();
        command
    };
    if !Command::new("unshare")
        .args(["-r", "true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        eprintln!("skipped: `unshare -r` is not allowed here");
        return;
    }
    for (authority, is_trusted) in [(&ours, true), (&theirs, false)] {
        let engine = Engine::script(Script::answer("a", 3)).await;
        let tunnel =
            Tunnel::out_of_tls(engine.address, authority.sign("localhost", 9).server(None)).await;
        // There is no hosts file in this root, so an address is used.
        let url = format!("https://127.0.0.1:{}", tunnel.address.port());
        let args = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--admin-listen",
            "127.0.0.1:0",
        ];
        let upstream = [
            ("SAMEWIRE_UPSTREAM__0__URL", url.as_str()),
            ("SAMEWIRE_UPSTREAM__0__SERVER_NAME", "localhost"),
        ];
        let mut samewire = enter()
            .args(args)
            .envs(upstream)
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let lines = BufReader::new(samewire.stderr.take().expect("piped"))
            .lines()
            .map_while(Result::ok);
        let address = lines
            .filter_map(|line| serde_json::from_str::<Value>(&line).ok())
            .find(|line| line["message"] == "listening" && line["listener"] == "proxy")
            .and_then(|line| line["address"].as_str()?.parse().ok())
            .expect("it listens");
        let answer = Request::plain("").answer(address).await;
        samewire.kill().expect("it runs");
        samewire.wait().expect("a child");
        assert_eq!(answer.head.status == 200, is_trusted, "{}", answer.text());
    }
}

/// The health check runs the binary, because the image contains nothing else.
#[test]
fn the_image_checks_its_health_by_itself() {
    let check = only(&final_stage(), "HEALTHCHECK");
    let (_, command) = check.split_once("CMD ").expect("a command");
    let command = words(command);
    assert_eq!(command, ["/samewire", "ready"]);
    let help = Command::new(env!("CARGO_BIN_EXE_samewire"))
        .args([&command[1], "--help"])
        .output()
        .expect("it starts");
    assert!(help.status.success(), "{help:?}");
}

#[test]
fn the_image_starts_with_nothing_but_an_upstream() {
    let stage = final_stage();
    let (listen, admin) = ports();
    assert_eq!(only(&stage, "EXPOSE"), format!("{listen} {admin}"));
    let args = words(&only(&stage, "CMD"));
    assert_eq!(
        args,
        [
            "serve",
            "--listen",
            &format!("0.0.0.0:{listen}"),
            "--admin-listen",
            &format!("0.0.0.0:{admin}")
        ]
    );
    let known = flags();
    for flag in args.iter().filter_map(|arg| arg.strip_prefix("--")) {
        assert!(
            known.iter().any(|known| known == flag),
            "serve has no --{flag}"
        );
    }
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let variables = [
        variable("SAMEWIRE_UPSTREAM", "http://vllm:8000"),
        variable("SAMEWIRE_INSECURE_NO_AUTH", "true"),
    ];
    assert_starts(&args, &BTreeMap::from(variables));
}

#[test]
fn the_build_is_static_and_locked() {
    let all = instructions();
    let builds: Vec<_> = all
        .iter()
        .filter(|(name, rest)| name == "RUN" && rest.contains("cargo build"))
        .collect();
    assert_eq!(builds.len(), 2, "the dependencies, then samewire");
    for (_, rest) in builds {
        assert!(
            rest.contains("--release") && rest.contains("--locked") && rest.contains("--target"),
            "{rest}"
        );
    }
    assert!(
        all.iter()
            .any(|(name, rest)| name == "ENV" && rest.contains("+crt-static"))
    );
    let manifest: toml::Table = read("Cargo.toml").parse().expect("TOML");
    let wanted = manifest["workspace"]["package"]["rust-version"]
        .as_str()
        .expect("a version");
    assert!(
        all[0].1.starts_with(&format!("rust:{wanted}-slim ")),
        "{} builds with {}",
        all[0].1,
        wanted
    );
}

/// Cargo refuses a manifest that names a bench whose file is missing, so the empty crate must have them all.
#[test]
fn the_dependency_layer_has_every_target_of_the_manifest() {
    let all = instructions();
    let (_, layer) = all
        .iter()
        .find(|(name, rest)| name == "RUN" && rest.contains("cargo build"))
        .expect("a layer");
    let manifest: toml::Table = read("Cargo.toml").parse().expect("TOML");
    for (kind, folder) in [
        ("bench", "benches"),
        ("test", "tests"),
        ("example", "examples"),
        ("bin", "src/bin"),
    ] {
        for target in manifest
            .get(kind)
            .and_then(toml::Value::as_array)
            .into_iter()
            .flatten()
        {
            let name = target["name"].as_str().expect("a name");
            let path = target.get("path").and_then(toml::Value::as_str);
            let path = path.map_or_else(|| format!("{folder}/{name}.rs"), str::to_owned);
            assert!(
                layer.split([' ', ';']).any(|word| word == path),
                "{path} is not in the dependency layer"
            );
        }
    }
}

/// Files excluded from the build context cannot be compiled in.
#[test]
fn the_builder_gets_every_file_that_is_compiled_in() {
    let admitted: Vec<_> = read(".dockerignore")
        .lines()
        .filter_map(|l| l.strip_prefix('!'))
        .map(str::to_owned)
        .collect();
    for name in ["Cargo.toml", "Cargo.lock", "LICENSE", "src", "benches"] {
        assert!(admitted.iter().any(|a| a == name), "{name}");
        assert!(root().join(name).exists(), "{name}");
    }
    let mut folders = vec![root().join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            // The image is built without tests.
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or("");
            let included = ["include!(", "include_str!(", "include_bytes!("];
            for rest in included.iter().flat_map(|name| text.split(name).skip(1)) {
                // The path relative to the root may follow the variable that names the root.
                let mut literals = rest.split('"').skip(1).step_by(2);
                let Some(literal) = literals.find(|literal| *literal != "CARGO_MANIFEST_DIR")
                else {
                    continue;
                };
                let climbs = literal.split('/').filter(|part| *part == "..").count();
                let depth = path
                    .strip_prefix(root())
                    .expect("below the root")
                    .components()
                    .count()
                    - 1;
                let from_root = literal.starts_with('/') || climbs >= depth;
                let first = literal
                    .split('/')
                    .find(|part| !part.is_empty() && *part != "..")
                    .expect("a name");
                let inside = !from_root || admitted.iter().any(|a| a == first);
                assert!(
                    inside,
                    "{}: {literal} is not admitted by .dockerignore",
                    path.display()
                );
            }
        }
    }
}
