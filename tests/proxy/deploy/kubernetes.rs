//! Checks of config/kubernetes.yaml: the pod's configuration, its probes, its times and its network rules.

use super::{UID, assert_pinned, assert_starts, assert_variable, ports, read, strings, yaml};
use crate::sim::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const FILE: &str = "config/kubernetes.yaml";

fn object(kind: &str) -> Value {
    let mut found: Vec<_> = yaml(FILE)
        .into_iter()
        .filter(|object| object["kind"] == kind)
        .collect();
    assert_eq!(found.len(), 1, "{kind}");
    found.remove(0)
}

fn pod() -> Value {
    object("Deployment")["spec"]["template"]["spec"].clone()
}

fn container(name: &str) -> Value {
    let pod = pod();
    let mut containers = pod["containers"].as_array().expect("containers").iter();
    containers
        .find(|container| container["name"] == name)
        .unwrap_or_else(|| panic!("no {name}"))
        .clone()
}

/// Returns the configuration file that samewire reads in the pod.
fn config() -> String {
    object("ConfigMap")["data"]["samewire.toml"]
        .as_str()
        .expect("a file")
        .to_owned()
}

#[test]
fn the_objects_belong_together() {
    let deployment = object("Deployment");
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    assert!(labels.as_object().is_some_and(|labels| !labels.is_empty()));
    assert_eq!(&deployment["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(&object("Service")["spec"]["selector"], labels);
    assert_eq!(
        &object("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        labels
    );
    let kinds: Vec<_> = yaml(FILE)
        .into_iter()
        .map(|object| object["kind"].clone())
        .collect();
    assert_eq!(
        kinds,
        ["ConfigMap", "Deployment", "Service", "NetworkPolicy"]
    );
    let map = &pod()["volumes"][0];
    assert_eq!(
        (&map["name"], &map["configMap"]["name"]),
        (&json!("samewire"), &object("ConfigMap")["metadata"]["name"])
    );
}

#[test]
fn samewire_runs_without_privileges() {
    let context = container("samewire")["securityContext"].clone();
    let expected = json!({
        "runAsNonRoot": true, "runAsUser": UID, "runAsGroup": UID, "readOnlyRootFilesystem": true,
        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
    });
    assert_eq!(context, expected);
    let mounts = json!([{"name": "samewire", "mountPath": "/etc/samewire", "readOnly": true}]);
    assert_eq!(
        container("samewire")["volumeMounts"],
        mounts,
        "nothing to write to"
    );
    let engine = container("vllm")["securityContext"].clone();
    assert_eq!(
        engine,
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})
    );
    let pod = pod();
    assert_eq!(
        pod["securityContext"]["seccompProfile"]["type"],
        "RuntimeDefault"
    );
    assert_eq!(pod["automountServiceAccountToken"], false);
    for key in ["hostNetwork", "hostPID", "hostIPC"] {
        assert!(pod.get(key).is_none(), "{key}");
    }
}

#[test]
fn samewire_starts_with_the_variables_given() {
    let samewire = container("samewire");
    assert_pinned(samewire["image"].as_str().expect("an image"));
    let variables = samewire["env"].as_array().expect("variables").iter();
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    let mut variables: BTreeMap<_, _> = variables
        .map(|v| (text(&v["name"]), text(&v["value"])))
        .collect();
    variables.keys().for_each(|name| assert_variable(name));

    assert_eq!(variables["SAMEWIRE_CONFIG"], "/etc/samewire/samewire.toml");
    let folder = Folder::new();
    variables.insert(
        "SAMEWIRE_CONFIG".to_owned(),
        folder.file("samewire.toml", &config()),
    );
    assert_starts(&strings(&samewire["args"]), &variables);

    let (listen, admin) = ports();
    assert_eq!(variables["SAMEWIRE_LISTEN"], format!("0.0.0.0:{listen}"));
    assert_eq!(
        variables["SAMEWIRE_ADMIN_LISTEN"],
        format!("0.0.0.0:{admin}")
    );
    let named = json!([{"name": "proxy", "containerPort": listen}, {"name": "admin", "containerPort": admin}]);
    assert_eq!(samewire["ports"], named);
}

#[test]
fn only_samewire_can_be_reached() {
    let (listen, _) = ports();
    let service = object("Service");
    assert_eq!(
        service["spec"]["ports"],
        json!([{"name": "http", "port": 80, "targetPort": "proxy"}])
    );

    let policy = object("NetworkPolicy");
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    let rules = policy["spec"]["ingress"].as_array().expect("rules");
    let open: Vec<_> = rules
        .iter()
        .flat_map(|rule| rule["ports"].as_array().expect("ports named"))
        .collect();
    assert_eq!(open, [&json!({"protocol": "TCP", "port": listen})]);

    let engine = container("vllm");
    assert_pinned(engine["image"].as_str().expect("an image"));
    assert!(engine.get("ports").is_none());
    let args = strings(&engine["args"]);
    let upstream = args.iter().any(|arg| arg == "--host=127.0.0.1")
        && args.iter().any(|arg| arg == "--port=8000");
    assert!(upstream, "{args:?}");
}

/// The old pod must end before the new one can start, because a node may have only one GPU.
#[test]
fn an_update_needs_no_second_gpu() {
    let strategy = object("Deployment")["spec"]["strategy"].clone();
    assert_eq!(
        strategy["rollingUpdate"],
        json!({"maxSurge": 0, "maxUnavailable": 1})
    );
}

/// Gated models need a token from a Secret, as in the compose file; without the Secret the pod still starts.
#[test]
fn the_engine_gets_the_token_of_gated_models() {
    let engine = container("vllm");
    let variables = engine["env"].as_array().expect("variables");
    let token = variables
        .iter()
        .find(|variable| variable["name"] == "HF_TOKEN")
        .expect("HF_TOKEN");
    let secret = json!({"name": "huggingface", "key": "token", "optional": true});
    assert_eq!(token["valueFrom"]["secretKeyRef"], secret);
}

/// The commented-out rules are valid once their `# ` is removed.
#[test]
fn the_optional_rules_are_rules() {
    let text = read(FILE);
    let rules = text.lines().map(|line| {
        let rest = line
            .strip_prefix("    # ")
            .filter(|rest| rest.starts_with("- to:") || rest.starts_with("  "));
        rest.map_or_else(|| line.to_owned(), |rest| format!("    {rest}"))
    });
    let text = rules.collect::<Vec<_>>().join("\n");
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
    let policy = documents
        .iter()
        .find(|object| object["kind"] == "NetworkPolicy")
        .expect("a policy");
    let rules = policy["spec"]["egress"].as_array().expect("rules");
    let ports = |rule: &Value| {
        let ports = rule["ports"].as_array().expect("ports").iter();
        ports
            .map(|port| port["port"].as_u64().expect("a number"))
            .collect::<Vec<_>>()
    };
    let all: Vec<_> = rules.iter().map(ports).collect();
    assert_eq!(
        all,
        [
            vec![53, 53],
            vec![53, 53],
            vec![4318],
            vec![5432],
            vec![443]
        ]
    );
    assert_eq!(rules[1]["to"][0]["ipBlock"]["cidr"], "169.254.20.10/32");
}

/// Probes and hooks use existing routes, and the grace period exceeds the settle time and the drain together.
#[test]
fn probes_and_times_agree() {
    let samewire = container("samewire");
    for probe in ["readinessProbe", "livenessProbe"] {
        assert_eq!(samewire[probe]["httpGet"]["port"], "admin", "{probe}");
    }
    let engine = container("vllm");
    assert!(
        engine.get("readinessProbe").is_none(),
        "samewire's says it for both"
    );
    for probe in ["startupProbe", "livenessProbe"] {
        let command = strings(&engine[probe]["exec"]["command"]);
        assert_eq!(command[0], "python3", "{probe}");
        assert!(
            command[2].contains("http://127.0.0.1:8000/health"),
            "{probe}"
        );
    }
    let (_, admin) = ports();
    assert_eq!(
        engine["lifecycle"]["preStop"]["httpGet"],
        json!({"path": "/drain/wait", "port": admin})
    );
    let drain = strings(&samewire["lifecycle"]["preStop"]["exec"]["command"]);
    assert_eq!(drain[..3], ["/samewire", "drain", "--wait"]);
    let file: toml::Table = config().parse().expect("TOML");
    let seconds = |key: &str| file["timeouts"][key].as_integer().expect("seconds");
    let grace = pod()["terminationGracePeriodSeconds"]
        .as_i64()
        .expect("seconds");
    assert!(seconds("settle") >= 5 && seconds("drain") >= 300);
    let waits: i64 = drain[3]
        .strip_suffix('s')
        .and_then(|wait| wait.parse().ok())
        .expect("seconds");
    assert!(waits > seconds("settle") + seconds("drain") + 3 && waits < grace);
    assert!(
        grace >= seconds("settle") + seconds("drain") + 3 + 2,
        "3 s to flush, and some air"
    );
}

#[tokio::test]
async fn the_probes_are_answered() {
    let world = World::plain(Setup::new()).await;
    let samewire = container("samewire");
    let path = |probe: &str| {
        samewire[probe]["httpGet"]["path"]
            .as_str()
            .expect("a path")
            .to_owned()
    };
    let paths = BTreeSet::from([path("readinessProbe"), path("livenessProbe")]);
    assert_eq!(
        paths,
        BTreeSet::from(["/livez".to_owned(), "/readyz".to_owned()])
    );
    assert_eq!(world.samewire.admin("/livez").await.head.status, 200);
    world.samewire.admin_becomes("/readyz", 200).await;
    world.end().await;
}

/// Fault O04: hooks may wait at the admin port, so it must stay open as long as an answer runs.
#[tokio::test]
async fn fault_o04_the_admin_port_closes_only_after_the_last_answer() {
    let gate = Gate::default();
    let script = Script::stream()
        .text("before ")
        .wait(&gate)
        .text("after")
        .stop();
    let engine = Engine::script(script).await;
    let setup = Setup::before(&engine);
    let mut samewire = Samewire::start(&setup.config("[timeouts]\nsettle = 0")).await;
    let mut client = Request::stream("")
        .begin_until(samewire.proxy, "before")
        .await;

    samewire.signal("TERM");
    samewire.admin_becomes("/readyz", 503).await;
    assert_eq!(samewire.admin("/livez").await.head.status, 200);
    assert!(samewire.running());

    gate.open();
    let rest = String::from_utf8(client.rest().await).expect("UTF-8");
    assert!(
        rest.contains("after") && rest.ends_with("data: [DONE]\n\n"),
        "{rest}"
    );
    assert_eq!(samewire.exit(PATIENCE).await.code(), Some(0));
    let closed = || std::net::TcpStream::connect(samewire.admin).is_err();
    until("the admin port closed", closed).await;
}
