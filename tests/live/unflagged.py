"""Engines started as nobody should start them, behind a samewire that finds out by itself what it has to read: clients get what the rightly
started engine gives them."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import ask
import judge
from answers import Answer
from judge import FORMS, Run
from questions import QUESTIONS, SILENT, Question
from servers import Engine, Samewire, Unfit, answers

READY_SECONDS = 30


@dataclass(frozen=True)
class Start:
    """A wrong way to start an engine: without the parsers that fit its model, and with further options. `also`: options of the right start,
    too; `opened`: both have a template that opens `<think>`; `silent`: they are also asked with thinking off."""

    how: str
    options: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    opened: bool = False
    silent: bool = True


NOT_THINKING = "no parsers, and thinking off by default"
OTHERS = "another family's parsers"

# A template that opens the block whatever a request says: where thinking is off, llama.cpp closes the block, and vLLM's parser leaves the
# reasoning in the text. Engines without parsers and without further options are asked all questions (run.py).
OPENED = Start("no parsers, and a template that opens <think>", opened=True, silent=False)
STARTS = {
    "llamacpp": (OPENED, Start(NOT_THINKING, also=("--no-thinking",))),
    "vllm": (
        OPENED,
        Start(NOT_THINKING, also=("--default-chat-template-kwargs", json.dumps({"enable_thinking": False}))),
        Start(OTHERS, ("--reasoning-parser", "deepseek_r1", "--enable-auto-tool-choice", "--tool-call-parser", "pythonic")),
    ),
    "sglang": (OPENED, Start(OTHERS, ("--reasoning-parser", "deepseek-r1", "--tool-call-parser", "llama3"))),
}


def check(run: Run, binary: str, work: Path, model: Path, only: str) -> None:
    for start in STARTS[run.engine]:
        questions = [one for one in QUESTIONS if one.raw and only in one.name and (start.silent or SILENT.keys().isdisjoint(one.fields))]
        try:
            wrong, right = told(run, start, binary, work, model, questions)
            results = [judge.compare(name, "parsers", way, wrong[name, way], right[name, way], strict=False) for name, way in right]
            failed = [result for result in judge.excused([run], results) if result.state == "failed"]
            failure = "; ".join(f"{result.question}, {result.what}: {result.why[:300]}" for result in failed)
        except (OSError, subprocess.TimeoutExpired, Unfit) as error:
            failure = f"{type(error).__name__}: {error}"
        run.other(f"with {start.how}, {run.engine}'s text is read as its right parsers read it", failure)


def told(
    run: Run, start: Start, binary: str, work: Path, model: Path, questions: list[Question]
) -> list[dict[tuple[str, str], Answer]]:
    """The answers of the engine as it is started, and as it should be, by question and way."""
    engines = []
    try:
        for parsers, options in ((False, (*start.options, *start.also)), (True, start.also)):
            how = f", {start.how}"
            engines.append(Engine(run.engine, run.version, parsers, work, model, opened=start.opened, options=options, how=how))
        for engine in engines:
            engine.wait()
        return [asked(engine, binary, work, questions) for engine in engines]
    finally:
        for engine in engines:
            engine.stop()


def asked(engine: Engine, binary: str, work: Path, questions: list[Question]) -> dict[tuple[str, str], Answer]:
    proxy = Samewire(binary, work / "logs" / f"samewire-{engine.stem}.log", {}, engine.upstream())
    try:
        proxy.server.wait(lambda: answers(proxy.admin, "/readyz"), READY_SECONDS)
        all_told = {}
        for question in questions:
            for stream in (True, False):
                bodies = {
                    "chat": question.chat(engine.model, stream),
                    "responses": question.responses(engine.model, stream),
                    "messages": question.message_request(engine.model, stream),
                }
                for api, body in bodies.items():
                    all_told[question.name, f"{api} {FORMS[0] if stream else FORMS[1]}"] = ask.through(proxy.address, api, body)
        return all_told
    finally:
        proxy.stop()
