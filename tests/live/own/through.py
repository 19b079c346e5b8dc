"""A plugin for pytest: vLLM's own tests of its API get a real engine with the tiny model, each once directly and once through samewire.

Their module `tests.utils` starts an engine for each file of tests, with its own model and weights. Here a substitute does that,
with one model under all names, and what needs other weights or a GPU left out of its arguments.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Iterator

import openai
import pytest

LIVE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(LIVE))

from servers import Samewire, Server, answers, clean_environment, free_port  # noqa: E402

WAYS = ("directly", "through samewire")
MODEL = Path(os.environ["OWN_MODEL"])
BINARY = os.environ["OWN_BINARY"]
LOGS = Path(os.environ["OWN_LOGS"])
START_SECONDS = 900
# What the engine here does without: weights that are not there, several GPUs, more context than the model has.
LEFT_OUT = {
    **dict.fromkeys(("--max-lora-rank", "--max-cpu-loras", "--max-loras", "--gpu-memory-utilization", "--port", "--host"), 1),
    **dict.fromkeys(("--max-model-len", "--dtype", "--max-num-batched-tokens", "--tensor-parallel-size", "--attention-backend"), 1),
    **dict.fromkeys(("--enable-lora", "--enforce-eager"), 0),
}
FIXED = ["--max-model-len", "2048", "--dtype", "bfloat16", "--enforce-eager", "--host", "127.0.0.1"]
# What an operator of vLLM's own routes and extensions would say.
CONFIG = """
root_path = "/llm"

[[upstream]]
url = "http://{address}"

[wire]
unknown_fields = "in_place"
{usage}

[requests]
allowed_fields = ["kv_transfer_params", "chat_template"]

[relay]
paths = ["/v1/chat/completions/batch", "/v1/decisions"]
rewritten = ["/invocations"]
"""
USAGE = 'continuous_usage = "pass"'
USAGE_UNASKED = 'continuous_usage = "always"\nforce_usage = true'


def fitting(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The arguments without those that are left out, and the names of the adapters among them, which are the model's names here."""
    kept: list[str] = []
    names: list[str] = []
    rest = list(arguments)
    while rest:
        flag = rest.pop(0)
        if flag == "--lora-modules":
            while rest and not rest[0].startswith("-"):
                module = rest.pop(0)
                names.append(json.loads(module)["name"] if module.startswith("{") else module.partition("=")[0])
        elif flag.partition("=")[0] in LEFT_OUT:
            if "=" not in flag:
                del rest[: LEFT_OUT[flag]]
        else:
            kept.append(flag)
    return kept, names


class Remote:
    """In the place of `RemoteOpenAIServer`: an engine and samewire before it. Which of them gets the requests depends on the way."""

    DUMMY_API_KEY = "token-abc123"
    way = WAYS[0]
    count = 0

    def __init__(self, model: str, arguments: list[str], *, env_dict: dict[str, str] | None = None, seed: int = 0, **_: Any) -> None:
        kept, names = fitting(arguments)
        Remote.count += 1
        self.engine_address = f"127.0.0.1:{free_port()}"
        command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", MODEL.name, *FIXED, "--port", self.engine_address.rpartition(":")[2]]
        if "--served-model-name" not in kept:
            command += ["--served-model-name", model, *names]
        environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1"}
        environment |= {"VLLM_SERVER_DEV_MODE": "1", **(env_dict or {})}
        log = LOGS / f"own-engine-{Remote.count}.log"
        self.engine = Server([*command, "--seed", str(seed), *kept], log, clean_environment() | environment, MODEL.parent)
        self.samewire: Samewire | None = None
        try:
            self.engine.wait(lambda: answers(self.engine_address, "/health"), START_SECONDS)
            config = CONFIG.format(address=self.engine_address, usage=USAGE_UNASKED if "--enable-force-include-usage" in kept else USAGE)
            self.samewire = Samewire(BINARY, LOGS / f"own-samewire-{Remote.count}.log", {}, config)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self.samewire is not None:
            self.samewire.stop()
        self.engine.stop()

    @property
    def address(self) -> str:
        return self.engine_address if Remote.way == WAYS[0] or self.samewire is None else self.samewire.address

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def url_root(self) -> str:
        return f"http://{self.address}"

    def url_for(self, *parts: str) -> str:
        return "/".join([self.url_root, *(part.strip("/") for part in parts if part)])

    def settings(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"base_url": self.url_for("v1"), "api_key": self.DUMMY_API_KEY, "max_retries": 0, "timeout": 120, **given}

    def get_client(self, **given: Any) -> openai.OpenAI:
        return openai.OpenAI(**self.settings(given))

    def get_async_client(self, **given: Any) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(**self.settings(given))


def pytest_configure() -> None:
    import tests.utils

    tests.utils.RemoteOpenAIServer = Remote


@pytest.fixture(scope="module", autouse=True, params=WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    Remote.way = request.param
    yield request.param


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Only tests that use a server."""
    asking = [item for item in items if any("server" in name for name in getattr(item, "fixturenames", ()))]
    config.hook.pytest_deselected(items=[item for item in items if item not in asking])
    items[:] = asking


class Told:
    """What came of each test."""

    def __init__(self) -> None:
        self.outcomes: dict[str, tuple[str, str]] = {}
        self.unread: dict[str, str] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.unread[report.nodeid] = report.longreprtext.strip().splitlines()[-1]
        elif report.skipped:
            self.unread[report.nodeid] = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        before = self.outcomes.get(report.nodeid, ("", ""))[0]
        if report.when == "call" or report.outcome != "passed" or not before:
            why = report.longreprtext.strip() if report.outcome != "passed" else ""
            if report.when == "teardown" and before == "failed":
                return
            self.outcomes[report.nodeid] = (report.outcome, why)
