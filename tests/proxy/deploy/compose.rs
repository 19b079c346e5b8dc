//! Checks of config/compose.yaml: images, ports, health checks and flags agree with the binary.

use super::{UID, assert_pinned, assert_starts, assert_variable, ports, strings, yaml};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const ENGINES: [&str; 2] = ["vllm", "sglang"];

fn compose() -> Value {
    yaml("config/compose.yaml").remove(0)
}

fn seconds(duration: &Value) -> u64 {
    let text = duration.as_str().expect("a duration");
    let unit = if text.ends_with('m') { 60 } else { 1 };
    text.trim_end_matches(['s', 'm'])
        .parse::<u64>()
        .expect("one number and one unit")
        * unit
}

#[test]
fn each_engine_has_a_samewire_in_front_and_no_port_of_its_own() {
    let file = compose();
    let services: BTreeSet<_> = file["services"]
        .as_object()
        .expect("services")
        .keys()
        .cloned()
        .collect();
    let expected = ENGINES
        .iter()
        .flat_map(|engine| [(*engine).to_owned(), format!("samewire-{engine}")]);
    assert_eq!(services, expected.collect());
    let (listen, _) = ports();
    let mut published = BTreeSet::new();
    for name in ENGINES {
        let engine = &file["services"][name];
        let samewire = &file["services"][format!("samewire-{name}")];
        assert!(
            engine.get("ports").is_none(),
            "{name} is reachable past samewire"
        );
        assert_eq!(samewire["depends_on"][name]["condition"], "service_healthy");
        assert_eq!(samewire["profiles"], engine["profiles"]);
        assert_eq!(
            samewire["environment"]["SAMEWIRE_UPSTREAM"],
            format!("http://{name}:8000")
        );
        assert_eq!(samewire["environment"]["SAMEWIRE_ENGINE"], name);
        for port in strings(&samewire["ports"]) {
            let parts: Vec<_> = port.split(':').collect();
            assert_eq!(
                (parts[0], parts[2]),
                ("127.0.0.1", listen.to_string().as_str()),
                "{port}"
            );
            assert!(published.insert(parts[1].to_owned()), "{port} twice");
        }
    }
}

#[test]
fn engines_are_pinned_listen_where_they_are_asked_and_have_a_gpu() {
    let file = compose();
    for name in ENGINES {
        let engine = &file["services"][name];
        assert_pinned(engine["image"].as_str().expect("an image"));
        let command = strings(&engine["command"]).join(" ");
        assert!(command.contains("--host 0.0.0.0 --port 8000"), "{command}");
        let check = &engine["healthcheck"];
        let test = strings(&check["test"]);
        assert_eq!(test[0], "CMD");
        assert!(
            test.last()
                .expect("a command")
                .contains("http://127.0.0.1:8000/health")
        );
        // SGLang's answer to the health check is one generated token.
        assert!(seconds(&check["timeout"]) >= if name == "sglang" { 26 } else { 5 });
        assert!(
            seconds(&check["start_period"]) >= 600,
            "weights load slowly"
        );
        assert_eq!(engine["cap_drop"], serde_json::json!(["ALL"]));
        assert_eq!(
            engine["security_opt"],
            serde_json::json!(["no-new-privileges:true"])
        );
        let device = &engine["deploy"]["resources"]["reservations"]["devices"][0];
        assert_eq!(device["capabilities"], serde_json::json!(["gpu"]), "{name}");
    }
}

#[test]
fn samewire_runs_without_privileges() {
    let file = compose();
    for name in ENGINES {
        let samewire = &file["services"][format!("samewire-{name}")];
        assert_pinned(samewire["image"].as_str().expect("an image"));
        assert_eq!(samewire["build"]["context"], "..");
        assert_eq!(samewire["user"], format!("{UID}:{UID}"));
        assert_eq!(samewire["read_only"], true);
        assert_eq!(samewire["cap_drop"], serde_json::json!(["ALL"]));
        assert_eq!(
            samewire["security_opt"],
            serde_json::json!(["no-new-privileges:true"])
        );
        assert!(samewire.get("volumes").is_none(), "nothing to write to");
        assert!(samewire.get("privileged").is_none());
        assert!(
            seconds(&samewire["stop_grace_period"]) >= 20 + 3 + 2,
            "the default drain, 3 s to flush, and some air"
        );
        assert!(
            samewire.get("healthcheck").is_none(),
            "the image brings its own"
        );
    }
}

#[test]
fn samewire_starts_with_the_variables_given() {
    let file = compose();
    let (listen, admin) = ports();
    // The compose file keeps the image's own command.
    let args = [
        "serve".into(),
        format!("--listen=0.0.0.0:{listen}"),
        format!("--admin-listen=0.0.0.0:{admin}"),
    ];
    for name in ENGINES {
        let samewire = &file["services"][format!("samewire-{name}")];
        assert!(samewire.get("command").is_none());
        let variables = samewire["environment"].as_object().expect("a map");
        let variables = variables
            .iter()
            .map(|(k, v)| (k.clone(), v.as_str().expect("a string").to_owned()));
        let variables: BTreeMap<_, _> = variables.collect();
        variables.keys().for_each(|name| assert_variable(name));
        assert_starts(&args, &variables);
    }
}
