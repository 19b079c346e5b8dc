"""Checks of the Helm chart: what it renders, and what it refuses. Called by tests/kubernetes.sh."""

import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile

import yaml

HELM, VALIDATE, SAMEWIRE = sys.argv[1:4]
CHART = "config/helm"
MODES = ("gateway", "services", "sidecar")
VALUES = pathlib.Path("tests/kubernetes")
# The least that each mode needs; everything else is a default.
LEAST = {
    "gateway": ["insecureNoAuth=true", "engines[0].name=vllm", "engines[0].url=http://vllm:8000"],
    "services": ["mode=services", "insecureNoAuth=true", "engines[0].name=vllm", "engines[0].service=vllm", "engines[0].port=8000"],
    "sidecar": ["mode=sidecar", "insecureNoAuth=true", "sidecar.image=vllm/vllm-openai:v0.21.0"],
}
# Values that are wrong, on top of the least of the mode, and what the refusal must name.
WRONG = [
    ("gateway", "mode=front", "mode"),
    ("gateway", "replica=3", "replica"),
    ("gateway", "replicas=-1", "replicas"),
    ("gateway", "drain=soon", "drain"),
    ("gateway", "engines[0].engine=vlm", "engine"),
    ("gateway", "engines[0].url=vllm:8000", "url"),
    ("gateway", "engines[0].uri=x", "uri"),
    ("gateway", "engines=null", "engines is empty"),
    ("gateway", "insecureNoAuth=false", "there are no keys"),
    ("gateway", "image.digest=sha256:0", "digest"),
    ("gateway", "service.port=0", "port"),
    ("gateway", "configSecret=a,config=b", "config and configSecret exclude each other"),
    ("gateway", "configSecret=a", "engines and configSecret exclude each other"),
    ("gateway", "networkPolicy.apiPorts[0]=70000", "apiPorts"),
    ("gateway", "serviceMonitor.interval=often", "interval"),
    ("services", "mode=gateway", "engines[0].service is only for mode services"),
    ("services", "engines[0].url=http://a", "engines"),
    ("sidecar", "sidecar.image=", "sidecar.image is empty"),
    ("sidecar", "autoscaling.enabled=true", "autoscaling"),
]


def run(*command, ok=True):
    done = subprocess.run(command, capture_output=True, text=True)
    if ok and done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done


def helm(*arguments, ok=True):
    return run(HELM, *arguments, ok=ok)


def render(*arguments):
    text = helm("template", "front", CHART, "--namespace", "inference", *arguments).stdout
    return text, [one for one in yaml.safe_load_all(text) if one]


def validate(text, name):
    """Reads all objects but the operator's own by the official schemas."""
    objects = [one for one in yaml.safe_load_all(text) if one and one["kind"] != "ServiceMonitor"]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(yaml.safe_dump_all(objects))
        file.flush()
        run(VALIDATE, "--strict", file.name)
    print(f"{name}: {len(objects)} objects keep to the official schemas")


def only(objects, kind, name="front-samewire"):
    found = [one for one in objects if one["kind"] == kind and one["metadata"]["name"] == name]
    assert len(found) == 1, (kind, name, len(found))
    return found[0]


def samewire_of(pod):
    every = pod.get("initContainers", []) + pod["containers"]
    return next(one for one in every if one["name"] == "samewire")


def check_pod(objects):
    """What holds for a pod in every mode."""
    deployment = only(objects, "Deployment")
    template = deployment["spec"]["template"]
    pod, selector = template["spec"], deployment["spec"]["selector"]["matchLabels"]
    assert selector.items() <= template["metadata"]["labels"].items()
    for kind, key in (("Service", ("spec", "selector")), ("NetworkPolicy", ("spec", "podSelector", "matchLabels"))):
        value = only(objects, kind)
        for step in key:
            value = value[step]
        assert value == selector, kind
    container = samewire_of(pod)
    assert container["securityContext"] == {
        "runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532, "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]},
    }
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    settings = {one["name"]: one.get("value") for one in container["env"]}
    settle, drain = int(settings["SAMEWIRE_TIMEOUTS__SETTLE"]), int(settings["SAMEWIRE_TIMEOUTS__DRAIN"])
    waits = int(container["lifecycle"]["preStop"]["exec"]["command"][-1].removesuffix("s"))
    # The process has a few seconds more, to tell clients whose answers it cuts.
    assert settle + drain < waits < pod["terminationGracePeriodSeconds"] - 10
    for engine in pod["containers"]:
        if engine["name"] != "samewire":
            assert engine["lifecycle"]["preStop"]["httpGet"] == {"path": "/drain/wait", "port": 9090}
    return pod, settings


def check_configuration(objects, settings):
    """samewire takes the file and the variables that the chart writes."""
    file = pathlib.Path(tempfile.mkdtemp()) / "samewire.toml"
    file.write_text(only(objects, "ConfigMap")["data"]["samewire.toml"])
    environment = {key: value for key, value in settings.items() if value is not None} | {"SAMEWIRE_CONFIG": str(file)}
    done = subprocess.run([SAMEWIRE, "check"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_gateway(objects, checked):
    assert "replicas" not in only(objects, "Deployment")["spec"]
    scaler = only(objects, "HorizontalPodAutoscaler")["spec"]
    assert scaler["scaleTargetRef"]["name"] == "front-samewire"
    metric = scaler["metrics"][0]["pods"]
    assert metric["metric"]["name"] == "samewire_requests_in_flight" and metric["target"]["averageValue"] == "500"
    assert only(objects, "PodDisruptionBudget")["spec"]["maxUnavailable"] == "25%"
    pod = only(objects, "Deployment")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert [one["topologyKey"] for one in pod["topologySpreadConstraints"]] == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    store = next(one for one in samewire_of(pod)["env"] if one["name"] == "SAMEWIRE_STORE")
    assert store["valueFrom"] == {"secretKeyRef": {"name": "database", "key": "address"}}
    assert samewire_of(pod)["image"].startswith("registry.example/samewire@sha256:")
    monitor = only(objects, "ServiceMonitor")
    admin = only(objects, "Service", "front-samewire-admin")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= admin["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"] == [{"port": admin["spec"]["ports"][0]["name"], "path": "/metrics", "interval": "5s"}]
    assert monitor["spec"]["selector"]["matchLabels"].items() > only(objects, "Service")["spec"]["selector"].items()
    policy = only(objects, "NetworkPolicy")["spec"]
    assert [[port["port"] for port in rule["ports"]] for rule in policy["ingress"]] == [[8080], [9090]]
    for line in ('default_model = "qwen3"', 'by = "conversation"', 'url = "https://sglang.inference.svc:30000"', "weight = 2"):
        assert line in checked, line


def check_services(objects, checked):
    pod = only(objects, "Deployment")["spec"]["template"]["spec"]
    account = only(objects, "ServiceAccount")["metadata"]["name"]
    assert pod["serviceAccountName"] == account and pod["automountServiceAccountToken"] is True
    binding = only(objects, "RoleBinding")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": "inference"}]
    rules = only(objects, "Role", binding["roleRef"]["name"])["rules"]
    assert rules == [{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}]
    assert 'pods = "kubernetes.io/service-name=sglang"' in checked
    assert 'url = "http://sglang.inference.svc:30000"' in checked
    ports = [port["port"] for rule in only(objects, "NetworkPolicy")["spec"]["egress"] for port in rule.get("ports", [])]
    assert {443, 6443} <= set(ports)


def check_sidecar(objects, checked):
    deployment = only(objects, "Deployment")["spec"]
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    pod = deployment["template"]["spec"]
    [sidecar], [engine] = pod["initContainers"], pod["containers"]
    assert sidecar["name"] == "samewire" and sidecar["restartPolicy"] == "Always"
    assert "readinessProbe" not in engine and "ports" not in engine
    assert 'url = "http://127.0.0.1:8000"' in checked and 'engine = "vllm"' in checked
    assert engine["resources"]["limits"]["nvidia.com/gpu"] == "1"
    for probe in ("startupProbe", "livenessProbe"):
        assert "http://127.0.0.1:8000/health" in engine[probe]["exec"]["command"][-1]


def check_mode(mode):
    values = ["--values", str(VALUES / f"{mode}.yaml")]
    helm("lint", "--strict", CHART, *values)
    for name, arguments in ((f"{mode}, full", values), (f"{mode}, least", [part for one in LEAST[mode] for part in ("--set", one)])):
        text, objects = render(*arguments)
        validate(text, name)
        _, settings = check_pod(objects)
        checked = check_configuration(objects, settings)
        if name.endswith("full"):
            globals()[f"check_{mode}"](objects, checked)


def check_refusal(mode, wrong, told):
    sets = [part for one in [*LEAST[mode], wrong] for part in ("--set", one)]
    done = helm("template", "front", CHART, *sets, ok=False)
    assert done.returncode, f"{wrong} is taken"
    assert told in done.stderr, f"{wrong}: {told} is not named in {done.stderr}"


def main():
    # Each of them waits for programs.
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        checks = [pool.submit(check_mode, mode) for mode in MODES] + [pool.submit(check_refusal, *row) for row in WRONG]
        for check in checks:
            check.result()
    # Each value is in the schema, so that a misspelt one is refused.
    schema = json.loads(pathlib.Path(CHART, "values.schema.json").read_text())
    compare(yaml.safe_load(pathlib.Path(CHART, "values.yaml").read_text()), schema, "")
    print(f"{len(WRONG)} wrong values are refused, and named")


def compare(values, schema, path):
    """The schema knows the keys of the defaults and no others."""
    known = schema.get("properties")
    if not isinstance(values, dict) or known is None:
        return
    assert set(values) == set(known) - {"global"}, f"{path}: {set(values) ^ set(known)}"
    for key, value in values.items():
        compare(value, known[key], f"{path}.{key}")


main()
