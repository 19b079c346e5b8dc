"""Runs samewire with traffic of every kind, and the board and the alerts against a real Prometheus that scrapes it.

    run.py BINARY PROMETHEUS WORK

Checks that
- the board is well formed: ids, places, descriptions, and only its own variables,
- every query of the board, its variables and its annotations returns data, with the labels that its legend or table shows,
- the board shows every metric that samewire has,
- Prometheus evaluates every rule, and every series of a rule exists,
- every alert has a unit test that expects it to fire, with the labels that its texts use,
- the table of docs/watch.md has every alert, with its severity,
- an alert fires where its reason is real, and ends with it.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import math
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "clients"))

from run import Failed, Server  # noqa: E402

BOARD = ROOT / "config" / "grafana" / "samewire.json"
ALERTS = ROOT / "config" / "alerts.yaml"
DOCUMENT = ROOT / "docs" / "watch.md"
UNIT_TESTS = ROOT / "tests" / "dashboards" / "alerts-test.yaml"
# How long a condition may take to come true.
PATIENCE = 120

CONFIG = """
listen = "127.0.0.1:0"
admin_listen = "127.0.0.1:0"

[tls]
cert_file = "cert.pem"
key_file = "key.pem"

[store]
place = "sqlite:store.db"

[guard]
repeats = 8

[health]
interval = 1
engine_load = true

[[auth.key]]
name = "team-a"
hash = "{free}"
requests_per_day = 1000000

[[auth.key]]
name = "team-b"
hash = "{limited}"
requests_per_minute = 1

[[upstream]]
name = "gpu-0"
url = "http://{sound}"

[[upstream]]
name = "gpu-1"
url = "http://{broken}"
models = ["broken"]

[[upstream]]
name = "gpu-2"
url = "http://{busy}"
models = ["busy"]

# Nobody listens there.
[[upstream]]
name = "gpu-3"
url = "http://127.0.0.1:1"
models = ["away"]

[[model]]
name = "either"
to = [{{ model = "away" }}]
fallbacks = ["text"]

# Nor there: the API of a cluster, and the Service whose pods it would name.
[discovery]
kubernetes = "http://127.0.0.1:1"
namespace = "inference"

[[upstream]]
name = "gpu-4"
url = "http://127.0.0.1:1"
models = ["far"]
pods = "app=vllm"
"""


class Prometheus(Server):
    """Its log is JSON, too, with other words."""

    def listening(self, entry: dict[str, str]) -> tuple[str, str] | None:
        return ("web", entry["address"]) if entry.get("msg") == "Listening on" else None

    def ask(self, path: str, **parameters: Any) -> Any:
        """What the API answers; an error of a query is one of this test."""
        url = f"http://{self.address_of_web}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise Failed(f"{path} {parameters}: {error.read().decode(errors='replace')}") from None

    def ready(self) -> "Prometheus":
        """Waits until it answers. It listens some time before that."""
        self.address_of_web = self.address("web")

        def complaint() -> Optional[str]:
            try:
                urllib.request.urlopen(f"http://{self.address_of_web}/-/ready", timeout=10).close()
            except OSError as error:
                return f"Prometheus is not ready: {error}"
            return None

        wait(complaint)
        return self


def wait(what: Callable[[], Optional[str]]) -> None:
    """Waits until there is nothing to complain of."""
    deadline = time.monotonic() + PATIENCE
    while (complaint := what()) is not None:
        if time.monotonic() > deadline:
            raise Failed(f"after {PATIENCE} s: {complaint}")
        time.sleep(0.3)


# --- traffic ----------------------------------------------------------------------


class Traffic(threading.Thread):
    """Asks everything that a panel shows, again and again."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.over = threading.Event()
        self.context = ssl._create_unverified_context()
        self.error: Optional[BaseException] = None

    def ask(self, path: str, body: Any, key: str = "sk-free", read: bool = True) -> int:
        connection = http.client.HTTPSConnection(self.address, timeout=60, context=self.context)
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
        try:
            connection.request("POST", path, raw, headers)
            answer = connection.getresponse()
            answer.read() if read else answer.read(20)
            return answer.status
        finally:
            connection.close()

    def round(self) -> None:
        messages = [{"role": "user", "content": "?"}]
        chat = "/v1/chat/completions"
        for model in ("text", "reasoning", "tool"):
            for stream in (True, False):
                self.ask(chat, {"model": model, "messages": messages, "stream": stream, "stream_options": {"include_usage": True}} if stream else {"model": model, "messages": messages})
        self.ask("/v1/messages", {"model": "text", "messages": messages, "max_tokens": 9, "stream": True})
        self.ask("/v1/responses", {"model": "stored-text", "input": "?"})
        self.ask("/v1/responses", {"model": "stored-text", "input": "?", "stream": True})
        self.ask("/v1/embeddings", {"model": "embed", "input": "?"})
        for model in ("broken", "busy", "away", "either", "no-such-model"):
            self.ask(chat, {"model": model, "messages": messages})
        for model in ("cut", "error-mid-stream", "loop"):
            self.ask(chat, {"model": model, "messages": messages, "stream": True})
        self.ask(chat, b"{")
        self.ask(chat, {"model": "text", "messages": messages}, key="sk-limited")
        self.ask(chat, {"model": "text", "messages": messages}, key="sk-wrong")
        # A client that leaves in the middle of an answer.
        self.ask(chat, {"model": "slow", "messages": messages, "stream": True}, read=False)

    def run(self) -> None:
        try:
            while not self.over.is_set():
                self.round()
                self.over.wait(0.2)
        except BaseException as error:
            self.error = error

    def check(self) -> None:
        if self.error is not None:
            raise Failed(f"traffic: {self.error!r}")

    def stop(self) -> None:
        self.over.set()
        self.join(60)
        self.check()


# --- the board ----------------------------------------------------------------------

VARIABLES = {"job": ".+", "instance": ".+", "upstream": ".+", "__rate_interval": "10s", "__range": "60s"}


def filled(expression: str) -> str:
    """Puts values in the place of variables, as Grafana does."""

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if name not in VARIABLES:
            raise Failed(f"there is no variable ${name}: {expression}")
        return VARIABLES[name]

    return re.sub(r"\$\{?(\w+)\}?", value, expression)


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def well_formed(board: dict[str, Any]) -> None:
    ids = [panel["id"] for panel in board["panels"]]
    if len(ids) != len(set(ids)):
        raise Failed("two panels have one id")
    taken: dict[tuple[int, int], str] = {}
    for panel in board["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                if x >= 24 or (x, y) in taken:
                    raise Failed(f"{panel['title']}: lies on {taken.get((x, y), 'the edge')}")
                taken[x, y] = panel["title"]
    for panel in panels(board):
        if len(panel["description"]) < 20 or not panel["targets"]:
            raise Failed(f"{panel['title']}: needs a description and a query")
        for holder in (panel, *panel["targets"]):
            if holder["datasource"] != {"type": "prometheus", "uid": "${datasource}"}:
                raise Failed(f"{panel['title']}: its data source is not the variable")
    names = [variable["name"] for variable in board["templating"]["list"]]
    if names != ["datasource", "job", "instance", "upstream"]:
        raise Failed(f"variables: {names}")


@dataclass
class Query:
    name: str
    text: str
    # Asked for one moment alone.
    instant: bool = False
    # Labels that the legend or the columns of a table show.
    labels: frozenset[str] = frozenset()

    def complaint(self, prometheus: Prometheus) -> Optional[str]:
        """What is wrong, if there is not at least one number, or no series with the labels. NaN, which a quantile or a share
        of nothing is, is no number; nor is the 0 that replaces a missing series, since the traffic makes each."""
        text, now = self.text.replace(" or vector(0)", ""), time.time()
        if self.instant:
            found = prometheus.ask("query", query=text, time=now)["result"]
        else:
            found = prometheus.ask("query_range", query=text, start=now - 30, end=now, step=1)["result"]
        points = [value for series in found for _, value in series.get("values", [series.get("value")])]
        if not any(math.isfinite(float(value)) for value in points):
            return f"{self.name}: no data: {self.text}"
        if not any(self.labels <= series["metric"].keys() for series in found):
            return f"{self.name}: no series with {sorted(self.labels)}: {self.text}"
        return None


def queries(board: dict[str, Any]) -> Iterator[Query]:
    for panel in panels(board):
        for target in panel["targets"]:
            shown = re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
            if panel["type"] == "table":
                shown = re.findall(r"\w+", re.search(r"by \(([^)]*)\)", target["expr"])[1])
            name = f"{panel['title']} {target['refId']}"
            yield Query(name, filled(target["expr"]), target.get("instant", False), frozenset(shown))
    for note in board["annotations"]["list"]:
        yield Query(f"annotation {note['name']}", filled(note["target"]["expr"]))


def variables_have_values(prometheus: Prometheus, board: dict[str, Any]) -> None:
    for variable in board["templating"]["list"]:
        if variable["type"] != "query":
            continue
        selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"]).groups()
        found = prometheus.ask(f"label/{label}/values", **{"match[]": filled(selector)})
        if not found:
            raise Failed(f"the variable {variable['name']} has no values")


# --- the rules ----------------------------------------------------------------------


def selectors(expression: str) -> set[str]:
    """The selectors of series in a query, without their ranges."""
    return set(re.findall(r"\b(?:(?:samewire|process)_\w+|up\b)(?:\{[^}]*\})?", re.sub(r"(?<![{,])\b(by|on) \([^)]*\)", "", expression)))


def metrics_of(text: str) -> set[str]:
    """Metrics that a query names or a scrape has, a histogram by its name alone."""
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\b(?:samewire|process)_\w+", text)}


def rules(prometheus: Prometheus) -> list[dict[str, Any]]:
    return [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]


def rules_are_healthy(prometheus: Prometheus, names: list[str]) -> Optional[str]:
    found = rules(prometheus)
    if sorted(rule["name"] for rule in found) != sorted(names):
        return f"other rules are loaded: {[rule['name'] for rule in found]}"
    for rule in found:
        if rule["health"] == "err":
            raise Failed(f"{rule['name']}: {rule['lastError']}")
        if rule["health"] != "ok":
            return f"{rule['name']} has not been evaluated"
    return None


def rules_find_their_series(prometheus: Prometheus) -> None:
    for rule in rules(prometheus):
        found = selectors(rule["query"])
        if not found:
            raise Failed(f"{rule['name']}: no selector in {rule['query']}")
        for selector in found:
            if not prometheus.ask("series", **{"match[]": selector}):
                raise Failed(f"{rule['name']}: there is no series {selector}")


def rules_say_what_to_do(prometheus: Prometheus) -> None:
    for rule in rules(prometheus):
        lacking = [part for part in ("summary", "description", "action") if not rule["annotations"].get(part)]
        if lacking or rule["labels"].get("severity") not in ("critical", "warning", "info"):
            raise Failed(f"{rule['name']}: lacks {lacking or 'a severity'}")


def every_alert_has_a_unit_test(names: list[str]) -> None:
    """The texts of an alert use no label but those that its test expects it to have."""
    text = UNIT_TESTS.read_text()
    for name, alert in zip(names, ALERTS.read_text().split("- alert: ")[1:]):
        expected = re.search(rf"""labels: 'ALERTS\{{alertname="{name}",(.*)\}}'$""", text, re.MULTILINE)
        if not expected:
            raise Failed(f"{name}: no test in {UNIT_TESTS.name} expects it to fire")
        unknown = set(re.findall(r"\$labels\.(\w+)", alert)) - set(re.findall(r'(\w+)="', expected[1]))
        if unknown:
            raise Failed(f"{name}: its texts use the labels {sorted(unknown)}, which it does not have")


def the_document_has_every_alert(prometheus: Prometheus) -> None:
    rows = re.findall(r"^\| `(Samewire\w+)` \| (\w+) \|", DOCUMENT.read_text(), re.MULTILINE)
    there = [(rule["name"], rule["labels"]["severity"]) for rule in rules(prometheus)]
    if sorted(rows) != sorted(there):
        raise Failed(f"{DOCUMENT.name} and {ALERTS.name} differ: {sorted(set(rows) ^ set(there))}")


def state(prometheus: Prometheus, name: str) -> list[tuple[str, dict[str, str]]]:
    alerts = prometheus.ask("alerts")["alerts"]
    return [(alert["state"], alert["labels"]) for alert in alerts if alert["labels"]["alertname"] == name]


# --- the run ------------------------------------------------------------------------


def certificate(work: Path) -> None:
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj", "/CN=localhost"]
    subprocess.run([*made, "-keyout", work / "key.pem", "-out", work / "cert.pem"], check=True, capture_output=True)
    (work / "key.pem").chmod(0o600)


def scrape_config(work: Path, admin: str) -> Path:
    path = work / "prometheus.yml"
    path.write_text(
        f"""global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{json.dumps(str(ALERTS))}]
scrape_configs: [{{job_name: samewire, static_configs: [{{targets: [{json.dumps(admin)}]}}]}}]
"""
    )
    return path


@contextlib.contextmanager
def servers(binary: str, program: str, work: Path) -> Iterator[tuple[Server, Traffic, Prometheus]]:
    """samewire between engines and traffic, and a Prometheus that scrapes it; all of them end with this."""
    clean = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy") and not name.startswith("SAMEWIRE_")}
    running: list[Server] = []

    def start(kind: type[Server], name: str, *command: str) -> Any:
        running.append(kind(name, [str(part) for part in command], clean, work / f"{name}.log"))
        return running[-1]

    try:
        script = ROOT / "tests" / "dashboards" / "engine.py"
        engines = {
            kind: start(Server, f"engine-{kind}", sys.executable, script, kind).address("engine")
            for kind in ("sound", "broken", "busy")
        }
        keys = {kind: hashlib.sha256(f"sk-{kind}".encode()).hexdigest() for kind in ("free", "limited")}
        (work / "samewire.toml").write_text(CONFIG.format(**engines, **keys))
        samewire = start(Server, "samewire", binary, "serve", "--config", work / "samewire.toml")
        traffic = Traffic(samewire.address("proxy"))
        scraping = scrape_config(work, samewire.address("admin"))
        options = [f"--config.file={scraping}", f"--storage.tsdb.path={work / 'data'}", "--web.listen-address=127.0.0.1:0", "--log.format=json"]
        prometheus = start(Prometheus, "prometheus", program, *options).ready()
        traffic.start()
        yield samewire, traffic, prometheus
        traffic.stop()
    finally:
        for server in reversed(running):
            server.kill()


def queries_return_data(prometheus: Prometheus, traffic: Traffic, board: dict[str, Any]) -> int:
    open_ones = list(queries(board))
    count = len(open_ones)

    def complaint() -> Optional[str]:
        traffic.check()
        found = [(query, query.complaint(prometheus)) for query in open_ones]
        open_ones[:] = [query for query, wrong in found if wrong]
        return "\n".join(wrong for _, wrong in found if wrong) or None

    wait(complaint)
    return count


def board_shows_every_metric(prometheus: Prometheus, board: dict[str, Any]) -> int:
    there = metrics_of(" ".join(prometheus.ask("label/__name__/values")))
    shown = metrics_of(" ".join(query.text for query in queries(board)))
    if there != shown:
        raise Failed(f"not on the board: {sorted(there - shown)}; not there: {sorted(shown - there)}")
    return len(there)


def a_real_failure_fires(samewire: Server, prometheus: Prometheus, work: Path) -> Callable[[], None]:
    """Has samewire read a wrong configuration, and waits for the alert. Gives what ends it."""
    path = work / "samewire.toml"
    good = path.read_text()

    def reload(text: str, expected: Callable[[], bool], complaint: str) -> None:
        path.write_text(text)
        samewire.process.send_signal(signal.SIGHUP)
        wait(lambda: None if expected() else complaint)

    name = "SamewireReloadFailed"
    reload("no_such_key = 1\n", lambda: any(now == "firing" for now, _ in state(prometheus, name)), f"{name} does not fire")
    return lambda: reload(good, lambda: not state(prometheus, name), f"{name} does not end")


def only_what_is_down_is_reported(prometheus: Prometheus) -> Optional[str]:
    down = sorted(labels["upstream"] for _, labels in state(prometheus, "SamewireEngineDown"))
    return None if down == ["gpu-3", "gpu-4"] else f"SamewireEngineDown is about {down}, and gpu-3 and gpu-4 are down"


def main(binary: str, program: str, folder: str) -> None:
    work = Path(folder).resolve()
    board = json.loads(BOARD.read_text())
    names = re.findall(r"^ *- alert: (\w+)$", ALERTS.read_text(), re.MULTILINE)
    well_formed(board)
    every_alert_has_a_unit_test(names)
    certificate(work)
    with servers(binary, program, work) as (samewire, traffic, prometheus):
        end = a_real_failure_fires(samewire, prometheus, work)
        count = queries_return_data(prometheus, traffic, board)
        variables_have_values(prometheus, board)
        metrics = board_shows_every_metric(prometheus, board)
        wait(lambda: rules_are_healthy(prometheus, names))
        rules_find_their_series(prometheus)
        rules_say_what_to_do(prometheus)
        the_document_has_every_alert(prometheus)
        wait(lambda: only_what_is_down_is_reported(prometheus))
        end()
    print(f"{count} queries of the board returned data, which show all {metrics} metrics; {len(names)} alerts are evaluated")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Failed as failure:
        print(failure, file=sys.stderr)
        sys.exit(1)
