"""Serves a tiny model with real engines, puts samewire before them, sends every question in every way, and judges.

    run.py BINARY WORK [--only TEXT] ENGINE=VERSION…

WORK holds the engines, as tests/live.sh installed them. Exit code 1: a check fails; 3: an engine does not start here.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import anthropic
import openai

import ask
import doctored
import judge
import message_checks
import others
import unflagged
from answers import Answer
from judge import Run
from message_checks import Stage
from message_questions import MESSAGE_QUESTIONS
from questions import QUESTIONS, Question
from servers import HERE, Engine, Samewire, Unfit


def gather(engine: Engine, binary: str, work: Path, questions: list[Question]) -> Run:
    """All answers of one engine."""
    run = Run(engine.name, engine.version, engine.parsers, engine.start_seconds, engine.pools)
    logs, stem = work / "logs", engine.stem
    proxy = Samewire(binary, logs / f"samewire-{stem}.log", {}, engine.upstream())
    natives: dict[str, Samewire] = {}
    try:
        if engine.pools:
            run.skip("questions", "it gives vectors instead of text")
        for api, why in without_native(engine).items():
            if why:
                run.skip(f"native {api}", why)
            else:
                config = engine.upstream(f'{api} = "native"\n')
                natives[api] = Samewire(binary, logs / f"samewire-native-{api}-{stem}.log", {}, config)
        clients = Clients.of(proxy)
        asked = [question for question in questions if engine.parsers or question.bare]
        for question in asked:
            ask_all(run, engine, binary, proxy, natives, clients, question, work / "captures" / stem)
        if left := [question.name for question in questions if question not in asked]:
            run.skip(f"questions: {', '.join(left)}", "they need the engine's own parsers")
        others.ask(run, engine, proxy, clients.openai)
        message_checks.ask(Stage(run, engine, proxy, clients.anthropic))
        if native := natives.get("messages"):
            message_checks.ask(Stage(run, engine, native, Clients.of(native).anthropic, native=True))
    finally:
        for samewire in (proxy, *natives.values()):
            if (code := samewire.stop()) != 0:
                run.other("samewire ends with 0 after SIGTERM", f"exit code {code}")
    return run


@dataclass
class Clients:
    """The official libraries, before samewire."""

    openai: openai.OpenAI
    anthropic: anthropic.Anthropic

    @classmethod
    def of(cls, proxy: Samewire) -> Clients:
        return cls(
            openai.OpenAI(base_url=f"http://{proxy.address}/v1", api_key="none", max_retries=0, timeout=ask.SECONDS),
            anthropic.Anthropic(base_url=f"http://{proxy.address}", api_key="none", max_retries=0, timeout=ask.SECONDS),
        )


def without_native(engine: Engine) -> dict[str, str]:
    """Why the engine's own Responses and Messages get no questions; empty where they do."""
    if engine.pools:
        return {}
    if not engine.parsers:
        return dict.fromkeys(("responses", "messages"), "asked where the engine has its own parsers")
    without = {"responses": "", "messages": ""}
    if engine.name == "vllm" and engine.front_end:
        without["responses"] = "its front end in Rust has no Responses"
    if engine.name == "sglang":
        without["responses"] = "its Responses refuse functions, and their streams say nothing before their end"
    if ask.post(engine.address, ask.ROUTES["messages"], {})[0].status in (404, 405, 501):
        without["messages"] = "it has no Messages"
    return without


def ask_all(
    run: Run,
    engine: Engine,
    binary: str,
    proxy: Samewire,
    natives: dict[str, Samewire],
    clients: Clients,
    question: Question,
    record: Path,
) -> None:
    def note(way: str, call: Callable[..., Answer], *rest: Any) -> None:
        try:
            run.answers[question.name, way] = call(*rest)
        except Exception as error:  # noqa: BLE001: whatever goes wrong is this answer's failure
            run.answers[question.name, way] = Answer(error=f"{type(error).__name__}: {error}")

    model = engine.model
    for form, stream in (("stream", True), ("whole", False)):
        chat, message = question.chat(model, stream), question.message_request(model, stream)
        folder = record / (question.name + ("" if stream else "-whole"))
        note(f"engine {form}", ask.direct, engine.address, engine.heard(chat), folder)
        note(f"rewritten {form}", ask.rewritten, binary, engine.name, folder)
        note(f"rewritten messages {form}", ask.rewritten, binary, engine.name, folder, message)
        bodies = {"chat": chat, "messages": message}
        if question.message is None:
            bodies["responses"] = question.responses(model, stream)
        for api, body in bodies.items():
            note(f"{api} {form}", ask.through, proxy.address, api, body)
            if api == "messages":
                note(f"library {api} {form}", ask.library_messages, clients.anthropic, body)
            else:
                note(f"library {api} {form}", ask.library, clients.openai, api, body)
            if api in natives:
                note(f"native {api} {form}", ask.through, natives[api].address, api, body)
        if question.raw:
            note(f"completions {form}", ask.through, proxy.address, "completions", question.completions(model, stream))
    if question.raw:
        run.raw[question.name] = ask.raw(engine.address, model, question)


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("binary")
    arguments.add_argument("work", type=Path)
    arguments.add_argument("--only", default="")
    arguments.add_argument("engines", nargs="+")
    given = arguments.parse_args()
    # Servers are in separate groups: they must be ended, also when this is.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    started = time.monotonic()
    (given.work / "logs").mkdir(exist_ok=True)
    questions = [question for question in (*QUESTIONS, *MESSAGE_QUESTIONS) if given.only in question.name]
    runs: list[Run] = []
    unfit = ""
    for wanted in given.engines:
        name, _, version = wanted.partition("=")
        try:
            runs += both(name, version, given.binary, given.work, questions, given.only)
        except Unfit as reason:
            # What others said is told all the same.
            unfit = f"{unfit}{reason}\n"
    report = judge.report(runs, questions)
    report["seconds"] = round(time.monotonic() - started)
    (given.work / "live.json").write_text(json.dumps(report, ensure_ascii=False, indent=1))
    judge.show(report)
    print(f"{report['seconds']} s, {given.work / 'live.json'}\n{unfit}", end="")
    return 1 if report["failed"] else 3 if unfit else 0


def both(name: str, version: str, binary: str, work: Path, questions: list[Question], only: str) -> list[Run]:
    """An engine with parsers and without; they start together, as each imports for a minute or more, with one core."""
    engines = []
    try:
        for parsers in (True, False):
            engines.append(Engine(name, version, parsers, work, HERE / "tiny-qwen3"))
        if name == "vllm":
            engines.append(Engine(name, version, True, work, HERE / "tiny-qwen3", pools=True))
        for engine in engines:
            engine.wait()
            print(f"{engine.label}: ready after {engine.start_seconds} s", flush=True)
        # llama.cpp answers with one thread, so that the second engine has its own processor if there are two.
        with concurrent.futures.ThreadPoolExecutor(2 if name == "llamacpp" else 1) as pool:
            runs = list(pool.map(lambda engine: gather(engine, binary, work, [] if engine.pools else questions), engines))
    finally:
        for engine in engines:
            engine.stop()
    if name == "llamacpp":
        doctored.check(runs[0], binary, version, work, HERE / "tiny-qwen3")
    unflagged.check(runs[0], binary, work, HERE / "tiny-qwen3", only)
    return runs


if __name__ == "__main__":
    sys.exit(main())
