"""Starts engines and proxies, runs the tests of each client library against them, ends everything.

    run.py BINARY FIXTURES [--python PYTHON] [--node NODE]

The suites of the languages that are named run side by side.

Engines, each behind a proxy: the scripted engine, the recorded traffic of real engines
(`samewire replay`), and for Anthropic's libraries a scripted engine of each shape. The
tests find them by environment:

    SAMEWIRE_SCRIPTED   base URL of the proxy in front of engine.py
    SAMEWIRE_RECORDED   base URL of the proxy in front of the recorded traffic
    SAMEWIRE_BATCHES    base URL of another one in front of engine.py, which serves batches
    SAMEWIRE_TOOLS      base URL of one in front of engine.py that runs tools (Python alone)
    SAMEWIRE_FIXTURES   the folder of the recorded traffic
    SAMEWIRE_MESSAGES_VLLM, SAMEWIRE_MESSAGES_SGLANG
                        URL of the proxy in front of messages.py of that shape
    SAMEWIRE_MESSAGES_KEYED
                        the same of the first shape, with keys (KEYS)
    SAMEWIRE_MESSAGES_PATIENT
                        the same, with pings after a second of silence
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Iterator

HERE = Path(__file__).resolve().parent
START_SECONDS = 20
STOP_SECONDS = 20
SUITE_SECONDS = 480

# Keys of the proxy that checks them, and what they may do. A suite that uses up a limit has its own key.
KEYS: dict[str, str] = {
    "sk-any": "",
    "sk-few-python": "requests_per_minute = 1",
    "sk-few-node": "requests_per_minute = 1",
    "sk-one-model": 'models_not_included = ["heard"]',
}


class Failed(Exception):
    """Something around the tests went wrong; the text says what."""


class Server:
    """A process that says on stderr, in JSON lines, where it listens."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        self.addresses: queue.Queue[tuple[str, str]] = queue.Queue()
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as said, self.log.open("wb") as log:
            for line in said:
                log.write(line)
                log.flush()
                with contextlib.suppress(ValueError):
                    entry = json.loads(line)
                    if listening := self.listening(entry):
                        self.addresses.put(listening)
        self.addresses.put(("", ""))

    def listening(self, entry: dict[str, str]) -> tuple[str, str] | None:
        """The name and the address of the listener that a line of the log tells of."""
        return (entry["listener"], entry["address"]) if entry.get("message") == "listening" else None

    def address(self, listener: str) -> str:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                found, address = self.addresses.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise Failed(f"{self.name}: no listener '{listener}' after {START_SECONDS} s\n{self.tail()}") from None
            if found == listener:
                return address
            if not found:
                raise Failed(f"{self.name}: ended while starting\n{self.tail()}")

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def terminate(self) -> None:
        if self.process.poll() is not None:
            raise Failed(f"{self.name}: ended by itself with {self.process.returncode}\n{self.tail()}")
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name}: still there {STOP_SECONDS} s after SIGTERM\n{self.tail()}") from None

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join(STOP_SECONDS)


def stop(running: list[Server]) -> None:
    """Ends all of them the polite way, engines last. What samewire answers to that is part of the test."""
    engines = [server for server in running if "engine" in server.name]
    ours = [server for server in running if server not in engines]
    for group in (ours, engines):
        for server in group:
            server.terminate()
        for server in group:
            code = server.wait()
            if group is ours and code != 0:
                raise Failed(f"{server.name}: exit code {code} after SIGTERM\n{server.tail()}")


def keys(folder: Path) -> Path:
    """A configuration that knows the keys."""
    path = folder / "keys.toml"
    entries = (f'[[auth.key]]\nhash = "{hashlib.sha256(key.encode()).hexdigest()}"\n{more}\n' for key, more in KEYS.items())
    path.write_text("\n".join(entries))
    return path


def batches(folder: Path) -> Path:
    """A configuration with batches."""
    path = folder / "batches.toml"
    path.write_text("[batch]\nenabled = true\n")
    return path


def tools(folder: Path, address: str, python: str) -> Path:
    """A configuration with the server of tools, over HTTP and as a program."""
    path = folder / "tools.toml"
    entries = {"http": f'url = "http://{address}/mcp"', "program": f'command = ["{python}", "{HERE / "tool_server.py"}", "stdio"]'}
    path.write_text("".join(f'[[tools.mcp]]\nlabel = "{label}"\n{place}\nrequire_approval = "never"\n' for label, place in entries.items()))
    return path


@contextlib.contextmanager
def servers(binary: str, fixtures: Path, environment: dict[str, str], logs: Path, python: str | None) -> Iterator[dict[str, str]]:
    running: list[Server] = []

    def start(name: str, *command: str) -> Server:
        server = Server(name, list(command), environment, logs / f"{name}.log")
        running.append(server)
        return server

    def proxy(name: str, upstream: str, engine: str, *more: str) -> str:
        listen = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", *(more or ["--insecure-no-auth"])]
        # The libraries are to raise errors with the engine's own words.
        said = ["--set", "engine_errors=pass"]
        server = start(name, binary, "serve", "--upstream", f"http://{upstream}", "--engine", engine, *said, *listen)
        return f"http://{server.address('proxy')}"

    try:
        scripted = start("engine", sys.executable, str(HERE / "engine.py")).address("engine")
        folders = [str(fixtures / engine) for engine in ("vllm", "sglang")]
        recorded = start("replay", binary, "replay", *folders, "--listen", "127.0.0.1:0").address("replay")
        messages = {
            shape: start(f"engine-{shape}", sys.executable, str(HERE / "messages.py"), shape).address("engine")
            for shape in ("vllm", "sglang")
        }
        ran = {}
        if python:
            address = start("engine-tools", python, str(HERE / "tool_server.py"), "http").address("tools")
            ran["SAMEWIRE_TOOLS"] = proxy("proxy-tools", scripted, "vllm", "--config", str(tools(logs, address, python)), "--insecure-no-auth") + "/v1"
        early = ["--set", "keepalive_seconds=1", "--set", "commit_after_seconds=1", "--insecure-no-auth"]
        # What the libraries read is compared with what the engines sent.
        unparsed = ["--set", "parser=off", "--insecure-no-auth"]
        yield ran | {
            "SAMEWIRE_SCRIPTED": proxy("proxy-scripted", scripted, "vllm") + "/v1",
            "SAMEWIRE_RECORDED": proxy("proxy-recorded", recorded, "auto", *unparsed) + "/v1",
            "SAMEWIRE_BATCHES": proxy("proxy-batches", scripted, "vllm", "--config", str(batches(logs)), "--insecure-no-auth") + "/v1",
            "SAMEWIRE_FIXTURES": str(fixtures),
            "SAMEWIRE_MESSAGES_VLLM": proxy("proxy-vllm", messages["vllm"], "vllm"),
            "SAMEWIRE_MESSAGES_SGLANG": proxy("proxy-sglang", messages["sglang"], "sglang"),
            "SAMEWIRE_MESSAGES_KEYED": proxy("proxy-keyed", messages["vllm"], "vllm", "--config", str(keys(logs))),
            "SAMEWIRE_MESSAGES_PATIENT": proxy("proxy-patient", messages["vllm"], "vllm", *early),
        }
        stop(running)
    finally:
        for server in running:
            server.kill()


def suites(commands: dict[str, tuple[list[str], dict[str, str]]]) -> bool:
    """Runs suites side by side, each with its environment, and prints what each has said when it has ended."""
    printing = threading.Lock()

    def run(name: str) -> bool:
        command, environment = commands[name]
        started = time.monotonic()
        # Not a pipe, which a process that is left over would hold open.
        with tempfile.TemporaryFile() as said:
            try:
                good = subprocess.run(command, env=environment, stdout=said, stderr=said, timeout=SUITE_SECONDS, check=False).returncode == 0
                how = f"{time.monotonic() - started:.0f} s"
            except subprocess.TimeoutExpired:
                good, how = False, f"not finished after {SUITE_SECONDS} s"
            said.seek(0)
            with printing:
                print(f"\n== {name}: {how}\n{said.read().decode(errors='replace')}", flush=True)
        return good

    with concurrent.futures.ThreadPoolExecutor(len(commands)) as pool:
        return all(list(pool.map(run, commands)))


def main(binary: str, fixtures: str, *suites_of: str) -> int:
    logs = Path.cwd() / "logs"
    logs.mkdir(exist_ok=True)
    tests = sorted(str(path) for path in (HERE / "node").glob("*.test.mjs"))
    programs = dict(zip(suites_of[::2], suites_of[1::2]))
    # Proxies of the environment have no business between a test and its own machine.
    clean = {key: value for key, value in os.environ.items() if key.lower() not in ("http_proxy", "https_proxy", "all_proxy")}
    clean = {key: value for key, value in clean.items() if not key.startswith(("OPENAI_", "ANTHROPIC_", "SAMEWIRE_"))}
    with servers(binary, Path(fixtures).resolve(), clean, logs, programs.get("--python")) as addresses:
        environment = {**clean, **addresses, "PYTHONDONTWRITEBYTECODE": "1"}
        commands = {}
        if python := programs.get("--python"):
            command = [python, "-m", "unittest", "discover", "-s", str(HERE / "python")]
            commands["openai and anthropic for Python"] = (command, environment)
        if node := programs.get("--node"):
            commands["openai and anthropic for Node"] = ([node, "--test", "--test-reporter=spec", *tests], environment)
        good = suites(commands)
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except Failed as failure:
        print(failure, file=sys.stderr)
        sys.exit(1)
