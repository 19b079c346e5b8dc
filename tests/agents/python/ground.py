"""Basis of the tests of this folder: the engines, and their requests."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import shlex
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path
from typing import Any, Callable

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "clients"))

from run import Failed, Server, stop  # noqa: E402

SHAPES = os.environ["SAMEWIRE_SHAPES"].split()
KEY = "sk-test"
TIMEOUT = 30.0

# What the model thinks before its first call, and what it says when it has seen the tools' outputs (model.py).
THOUGHT = "First I look – at “everything”.\nThen\u2028I act."
ANSWER = "Outputs: Zürich: sunny; 12:00 in Europe/Zurich; Oslo: sunny."
CALLS = [("get_weather", {"city": "Zürich"}), ("get_time", {"zone": "Europe/Zurich"}), ("get_weather", {"city": "Oslo"})]


def setup(client: str, base: str) -> str:
    command = [os.environ["SAMEWIRE_BIN"], "env", client, "--url", base, "--model", "local-coder"]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT).stdout


def variables(text: str) -> dict[str, str]:
    """What `samewire env` prints as variables."""
    lines = [line.removeprefix("export ") for line in text.splitlines() if line.startswith("export ")]
    return dict(shlex.split(line)[0].split("=", 1) for line in lines)


def run_agent(command: list[str], seconds: float, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs a program whose children hold its pipes open."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        err += f"\nnot finished after {seconds} s"
    return subprocess.CompletedProcess(command, process.returncode, out, err)


class Engine:
    """One engine behind its proxy."""

    def __init__(self, shape: str) -> None:
        name = f"SAMEWIRE_{shape.upper()}"
        self.shape = shape
        self.name = name
        self.base = os.environ[name]
        # Clients of Anthropic add the version to the path themselves.
        self.root = self.base.removesuffix("/v1")
        self.summary_base = os.environ[f"{name}_SUMMARY"]
        self.reasoning_key = {"vllm": "reasoning", "sglang": "reasoning_content"}[shape]
        self.log = Path(os.environ[f"{name}_REQUESTS"])
        self.start = self.log.stat().st_size
        self.proxy_log = Path(os.environ[f"{name}_LOG"])
        self.proxy_start = self.proxy_log.stat().st_size

    def setup(self, client: str) -> str:
        """What `samewire env` prints for a client."""
        return setup(client, self.base)

    def asked(self) -> list[dict[str, Any]]:
        """The bodies of the requests since this object was made."""
        with self.log.open("rb") as log:
            log.seek(self.start)
            return [json.loads(line)["body"] for line in log]

    def told(self, count: int) -> list[dict[str, Any]]:
        """The lines of the proxy's log on requests since this object was made."""
        end = time.monotonic() + TIMEOUT
        while True:
            with self.proxy_log.open("rb") as log:
                log.seek(self.proxy_start)
                whole = [line for line in log if line.endswith(b"\n")]
            found = [line for line in map(json.loads, whole) if line.get("message") == "request"]
            if len(found) >= count or time.monotonic() >= end:
                return found
            time.sleep(0.05)

    def reasoning(self, body: dict[str, Any]) -> list[Any]:
        """What the assistant is said to have thought, message by message."""
        return [message.get(self.reasoning_key) for message in body["messages"] if message["role"] == "assistant"]


class Samewire:
    """A samewire of a test's own before an engine. It can restart, and finds again what it has stored."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.folder = folder
        self.ends: list[str] = []
        config = folder / "samewire.toml"
        models = Path(os.environ["SAMEWIRE_CONFIG"]).read_text()
        config.write_text(f'{models}[store]\nplace = "sqlite:{folder / "store.db"}"\n')
        upstream = f"http://{os.environ[f'{engine.name}_ENGINE']}"
        self.command = [os.environ["SAMEWIRE_BIN"], "serve", "--upstream", upstream, "--engine", engine.shape]
        self.command += ["--config", str(config), "--admin-listen", "127.0.0.1:0", "--insecure-no-auth"]
        self.address = self.start("127.0.0.1:0")

    def start(self, listen: str) -> str:
        clean = {key: value for key, value in os.environ.items() if not key.startswith("SAMEWIRE_")}
        self.server = Server("samewire", [*self.command, "--listen", listen], clean, self.folder / "samewire.log")
        try:
            return self.server.address("proxy")
        except Failed:
            self.server.kill()
            raise

    def stop(self) -> None:
        """Ends it the polite way, and notes how each request has ended."""
        stop([self.server])
        self.server.kill()
        lines = map(json.loads, self.server.log.read_text().splitlines())
        self.ends += [line["end"] for line in lines if line.get("message") == "request"]

    def restart(self) -> None:
        self.stop()
        self.start(self.address)


def each_shape(test: Callable[[Any, Engine], Any]) -> Callable[[unittest.TestCase], None]:
    """Runs a test with an engine of each shape that this suite is for."""

    def run(case: unittest.TestCase) -> None:
        for shape in SHAPES:
            with case.subTest(shape):
                result = test(case, Engine(shape))
                if inspect.isawaitable(result):
                    asyncio.run(result)

    # Not `functools.wraps`: the runner would take the test for what it wraps, a coroutine's function.
    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run
