"""Starts an engine of each shape and a proxy before it, runs agents against them, ends everything.

    stage.py BINARY NODE AIDER [OPTION OF UNITTEST …]

The tests find them by environment; SHAPE is VLLM or SGLANG:

    SAMEWIRE_SHAPE            base URL of the proxy
    SAMEWIRE_SHAPE_SUMMARY    the same, of one that writes reasoning as a summary
    SAMEWIRE_SHAPE_REQUESTS   file of the engine's requests
    SAMEWIRE_SHAPE_LOG        file of what the proxy says of it
    SAMEWIRE_SHAPE_ENGINE     address of the engine, for a proxy of a test's own
    SAMEWIRE_CONFIG           configuration with which agents find their models
    SAMEWIRE_AIDER            Aider, if it is there
    SAMEWIRE_BIN              samewire
    SAMEWIRE_NODE             Node
    SAMEWIRE_SHAPES           for the suites in Python: of which shape the engines are that they ask

Nothing is to leave this machine: what does not go to it is sent to a proxy that takes no connection.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from pathlib import Path
from typing import Iterator

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "clients"))

from run import Failed, Server, stop, suites  # noqa: E402

SHAPES = ("vllm", "sglang")


def patterns(folder: Path) -> Path:
    """A configuration with which Claude Code finds its models."""
    path = folder / "agents.toml"
    path.write_text('[[model]]\nname = "local-coder"\naliases = ["claude-*"]\ncontext_length = 100000\n')
    return path


@contextlib.contextmanager
def servers(binary: str, environment: dict[str, str], logs: Path) -> Iterator[dict[str, str]]:
    running: list[Server] = []

    def start(name: str, *command: str) -> Server:
        server = Server(name, list(command), environment, logs / f"{name}.log")
        running.append(server)
        return server

    def proxy(name: str, engine: str, upstream: str, *more: str) -> str:
        listen = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--insecure-no-auth"]
        server = start(name, binary, "serve", "--upstream", f"http://{upstream}", "--engine", engine, *listen, *more)
        return f"http://{server.address('proxy')}/v1"

    found = {"SAMEWIRE_CONFIG": str(patterns(logs))}
    try:
        for shape in SHAPES:
            requests = logs / f"agents-{shape}.requests"
            requests.write_text("")
            engine = start(f"agents-engine-{shape}", sys.executable, str(HERE / "model.py"), shape, str(requests)).address("engine")
            name = f"SAMEWIRE_{shape.upper()}"
            found[name] = proxy(f"agents-proxy-{shape}", shape, engine, "--config", found["SAMEWIRE_CONFIG"])
            found[f"{name}_SUMMARY"] = proxy(f"agents-summary-{shape}", shape, engine, "--set", "responses_reasoning=summary")
            found[f"{name}_REQUESTS"] = str(requests)
            found[f"{name}_ENGINE"] = engine
            found[f"{name}_LOG"] = str(logs / f"agents-proxy-{shape}.log")
        yield found
        stop(running)
    finally:
        for server in running:
            server.kill()


def clean_environment(nowhere: str) -> dict[str, str]:
    """Nothing of the user's own settings, and no way out."""
    kept = {key: os.environ[key] for key in ("PATH", "LANG", "LC_ALL", "TMPDIR", "TERM") if key in os.environ}
    home = Path.cwd() / "home"
    home.mkdir(exist_ok=True)
    switches = {
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "LANGSMITH_TRACING": "false",
        "LANGCHAIN_TRACING_V2": "false",
        "OTEL_SDK_DISABLED": "true",
        "AI_SDK_LOG_WARNINGS": "false",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    proxies = {name: nowhere for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")}
    local = {name: "127.0.0.1,localhost" for name in ("NO_PROXY", "no_proxy")}
    return {**kept, **switches, **proxies, **local, "HOME": str(home)}


def main(binary: str, node: str, aider: str, *options: str) -> int:
    logs = Path.cwd() / "logs"
    logs.mkdir(exist_ok=True)
    # Bound and never listening: what is sent there is refused at once.
    with socket.socket() as nowhere:
        nowhere.bind(("127.0.0.1", 0))
        clean = clean_environment(f"http://127.0.0.1:{nowhere.getsockname()[1]}")
        tests = sorted(str(path) for path in (HERE / "node").glob("*.test.mjs"))
        with servers(binary, clean, logs) as addresses:
            programs = {"SAMEWIRE_BIN": str(Path(binary).resolve()), "SAMEWIRE_NODE": node, "SAMEWIRE_AIDER": aider}
            environment = {**clean, **addresses, **programs}
            python = [sys.executable, "-m", "unittest", "discover", "-s", str(HERE / "python"), *options]
            # A suite reads the requests to its engine: those of two shapes may run side by side, but not two of one shape.
            name = "coding agents, OpenAI Agents, LangChain"
            results = [
                suites({f"{name}: {shape}": (python, {**environment, "SAMEWIRE_SHAPES": shape}) for shape in SHAPES}),
                suites({"AI SDK": ([node, "--test", "--test-reporter=spec", *tests], environment)}),
            ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except Failed as failure:
        print(failure, file=sys.stderr)
        sys.exit(1)
