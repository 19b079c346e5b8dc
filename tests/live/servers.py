"""Starts engines and samewire, and ends them."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# An engine imports for a minute or two; on a very busy machine for a quarter of an hour.
START_SECONDS = 1800
STOP_SECONDS = 30


# What makes an engine start its front end in Rust.
RUST = {"vllm": {"VLLM_USE_RUST_FRONTEND": "1"}, "sglang": {"SGLANG_RUST_SERVER": "1"}}


class Unfit(Exception):
    """This machine cannot do it; the text says what went wrong."""


class Server:
    """A process in its own group, with its output in a file."""

    def __init__(self, command: list[str], log: Path, environment: dict[str, str], folder: Path = HERE) -> None:
        self.log = log
        self.started = time.monotonic()
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def wait(self, ready, seconds: float) -> None:
        while not ready():
            if self.process.poll() is not None:
                raise Unfit(f"{self.log.name}: ended with {self.process.returncode} while starting\n{self.tail()}")
            if time.monotonic() - self.started > seconds:
                raise Unfit(f"{self.log.name}: not ready after {seconds} s\n{self.tail()}")
            time.sleep(0.1)

    def stop(self) -> None:
        """The polite way, then the whole group: engines have children."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def clean_environment() -> dict[str, str]:
    """Without proxies and keys of the present user."""
    strange = ("OPENAI_", "SAMEWIRE_", "PYTHON", "VLLM_", "SGLANG_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(strange)}
    for key in ("http_proxy", "https_proxy", "all_proxy"):
        kept.pop(key, None), kept.pop(key.upper(), None)
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return kept | offline | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "TOKENIZERS_PARALLELISM": "false"}


def free_port() -> int:
    """Below those that the system hands out: SGLang adds thousands to it for its other ports."""
    while True:
        port = random.randrange(20_000, 30_000)
        with contextlib.suppress(OSError), socket.socket() as free:
            free.bind(("127.0.0.1", port))
            return port


def answers(address: str, path: str = "/v1/models") -> bool:
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class Engine:
    """A real engine with a tiny model, with the parsers that fit it or without; `pools`: vLLM that gives vectors instead of text; `opened`:
    with a template that opens `<think>`; `options`: more of the command line; `how`: these in words, for the label."""

    def __init__(
        self,
        name: str,
        version: str,
        parsers: bool,
        work: Path,
        model: Path,
        *,
        pools: bool = False,
        opened: bool = False,
        options: tuple[str, ...] = (),
        how: str = "",
    ) -> None:
        self.name, self.version, self.parsers, self.pools = name, version, parsers, pools
        self.model = model.name
        self.label = f"{name} {version}" + (" pooling" if pools else "" if parsers else " without parsers") + how
        self.stem = re.sub(r"[^\w.+-]+", "-", self.label)
        self.address = f"127.0.0.1:{free_port()}"
        # A version with +rust has its front end in Rust, one with +http2 gets requests over HTTP/2.
        release, _, serves = version.partition("+")
        self.front_end, self.http2 = "rust" if serves == "rust" else "", serves == "http2"
        python = str(work / f"{name}-{release}" / "bin" / "python")
        log = work / "logs" / f"{self.stem}.log"
        command, extra = getattr(self, name)(python, model)
        command += [*options, *(("--chat-template", str(opened_template(model, log.parent))) if opened else ())]
        if self.front_end:
            extra |= RUST[name]
        self.server = Server(command, log, clean_environment() | extra, model.parent)
        self.start_seconds = 0

    def wait(self) -> None:
        self.server.wait(lambda: answers(self.address), START_SECONDS)
        self.start_seconds = round(time.monotonic() - self.server.started)

    def heard(self, chat: dict[str, Any]) -> dict[str, Any]:
        """A chat request as this engine takes it: vLLM without parsers refuses to let the model choose a tool."""
        return chat | {"tool_choice": "none"} if "tools" in chat and self.name == "vllm" and not self.parsers else chat

    def upstream(self, keys: str = "") -> str:
        """samewire's configuration for it, with further keys."""
        http = 'http = "2"\n' if self.http2 else ""
        return f'[[upstream]]\nurl = "http://{self.address}"\n{http}{keys}'

    def port(self) -> str:
        return self.address.rpartition(":")[2]

    def vllm(self, python: str, model: Path) -> tuple[list[str], dict[str, str]]:
        command = [python, "-m", "vllm.entrypoints.cli.main", "serve", model.name, "--host", "127.0.0.1", "--port", self.port()]
        command += ["--max-model-len", "2048", "--enforce-eager"]
        # An old engine's grammars want numbers of the processor's own kind, and it wants to know its cores. With the others, one that
        # pools dies of an illegal instruction in its attention where the processor has AMX (0.33.0 with the kernels of 0.32.0).
        old = self.version.startswith("0.11.")
        command += ["--dtype", "float32" if old or self.pools else "bfloat16"]
        gptoss = "gpt-oss" in model.name
        if self.pools:
            command += ["--runner", "pooling"]
        elif self.parsers:
            reasoning, calls = ("openai_gptoss", "openai") if gptoss else ("qwen3", "hermes")
            command += ["--reasoning-parser", reasoning, "--enable-auto-tool-choice", "--tool-call-parser", calls]
        bind = f"0-{(os.cpu_count() or 1) - 1}" if old else "nobind"
        return command, {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": bind, "VLLM_NO_USAGE_STATS": "1"}

    def sglang(self, python: str, model: Path) -> tuple[list[str], dict[str, str]]:
        command = [python, "-m", "sglang.launch_server", "--model-path", model.name, "--served-model-name", model.name]
        command += ["--host", "127.0.0.1", "--port", self.port(), "--device", "cpu", "--attention-backend", "torch_native"]
        command += ["--disable-overlap-schedule", "--mem-fraction-static", "0.2", "--max-total-tokens", "65536"]
        command += ["--max-running-requests", "16", "--skip-server-warmup", "--sleep-on-idle", "--enable-metrics"]
        if self.parsers:
            command += ["--reasoning-parser", "qwen3", "--tool-call-parser", "qwen25"]
        if self.http2:
            command += ["--enable-http2"]
        return command, {"SGLANG_USE_CPU_ENGINE": "1", "PYTHONPATH": str(HERE / "sglang"), "SGLANG_EXTERNAL_MODEL_PACKAGE": "without_cuda"}

    def llamacpp(self, python: str, model: Path) -> tuple[list[str], dict[str, str]]:
        command = [python, str(HERE / "llamacpp.py"), str(model), self.port()]
        return (command if self.parsers else [*command, "--bare"]), {}

    def stop(self) -> None:
        self.server.stop()


class Samewire:
    """The proxy before an engine."""

    def __init__(self, binary: str, log: Path, options: dict[str, str], config: str) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        file = log.with_suffix(".toml")
        file.write_text(config)
        command = [binary, "serve", "--config", str(file), "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]
        for option, value in options.items():
            command += ["--set", f"{option}={value}"]
        self.server = Server(command, log, clean_environment())
        self.addresses: dict[str, str] = {}
        try:
            self.server.wait(self.listens, 20)
        except BaseException:
            self.server.stop()
            raise
        self.address, self.admin = self.addresses["proxy"], self.addresses["admin"]

    def listens(self) -> bool:
        for line in self.server.log.read_text().splitlines():
            with contextlib.suppress(ValueError):
                told = json.loads(line)
                if told.get("message") == "listening":
                    self.addresses[told["listener"]] = told["address"]
        return {"proxy", "admin"} <= set(self.addresses)

    def stop(self) -> int:
        """Its exit code; negative if it had to be killed."""
        self.server.stop()
        return self.server.process.returncode


def opened_template(model: Path, folder: Path) -> Path:
    """A file with the model's template, but that it begins an answer within its reasoning, as those of Qwen3-Thinking-2507 and DeepSeek R1."""
    template = json.loads((model / "tokenizer_config.json").read_text())["chat_template"]
    begin = template.rindex("{%- if add_generation_prompt %}")
    file = folder / f"{model.name}-opened.jinja"
    file.write_text(template[:begin] + "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n<think>\n' }}{%- endif %}")
    return file
