"""llama.cpp started without its parsers, behind a samewire that finds out by itself what it has to read: clients get what the
rightly started engine gives them."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import ask
import judge
from answers import Answer
from judge import FORMS, Run
from questions import QUESTIONS, SILENT, Question
from servers import Samewire, Started, answers

READY_SECONDS = 30


@dataclass(frozen=True)
class Start:
    """A way to start the engine, the right one, and whether their prompts are the same where thinking is switched off."""

    how: str
    options: tuple[str, ...]
    right: tuple[str, ...]
    silent: bool = True


STARTS = (
    Start("no parsers", ("--bare",), ()),
    # With its parsers llama.cpp closes a block that the template has opened although thinking is off.
    Start("no parsers, and a template that opens <think>", ("--bare", "--opened"), ("--opened",), silent=False),
    Start("no parsers, and thinking off by default", ("--bare", "--no-thinking"), ("--no-thinking",)),
)


def check(run: Run, binary: str, version: str, work: Path, model: Path) -> None:
    for start in STARTS:
        try:
            questions = [one for one in QUESTIONS if one.raw and (start.silent or SILENT.keys().isdisjoint(one.fields))]
            wrong, right = (
                told(binary, version, work, model, options, questions) for options in (start.options, start.right)
            )
            results = [judge.compare(name, "parsers", way, wrong[name, way], right[name, way], strict=False) for name, way in right]
            failed = [result for result in judge.excused([run], results) if result.state == "failed"]
            failure = "; ".join(f"{result.question}, {result.what}: {result.why[:300]}" for result in failed)
        except (OSError, subprocess.TimeoutExpired) as error:
            failure = f"{type(error).__name__}: {error}"
        run.other(f"with {start.how}, llama.cpp's text is read as its parsers read it", failure)


def told(
    binary: str, version: str, work: Path, model: Path, options: tuple[str, ...], questions: list[Question]
) -> dict[tuple[str, str], Answer]:
    """The answers, by question and way."""
    log = work / "logs" / f"unflagged{''.join(options)}.log"
    engine = Started(str(work / f"llamacpp-{version}" / "bin" / "python"), model, list(options), log)
    try:
        engine.wait()
        proxy = Samewire(binary, log.with_suffix(".samewire.log"), {}, f'[[upstream]]\nurl = "http://{engine.address}"\n')
        try:
            proxy.server.wait(lambda: answers(proxy.admin, "/readyz"), READY_SECONDS)
            all_told = {}
            for question in questions:
                for stream in (True, False):
                    bodies = {
                        "chat": question.chat(model.name, stream),
                        "responses": question.responses(model.name, stream),
                        "messages": question.message_request(model.name, stream),
                    }
                    for api, body in bodies.items():
                        all_told[question.name, f"{api} {FORMS[0] if stream else FORMS[1]}"] = ask.through(proxy.address, api, body)
            return all_told
        finally:
            proxy.stop()
    finally:
        engine.stop()
