"""Compares answers that must say the same, and tells the result."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Iterable, Iterator

import answers as read
from answers import Answer, meaning
from known import known
from message_answers import compact
from questions import TOOLS, Question

OFFERED = {tool["function"]["name"] for tool in TOOLS}

FORMS = ("stream", "whole")

# The columns of the table, and what each compares.
CHECKS = {
    "form": "there is an answer, in the canonical form",
    "library": "the official library reads what the bytes say",
    "whole": "a stream and a whole answer say the same",
    "apis": "Chat Completions, Responses and Messages say the same",
    "lossless": "samewire passes all that the engine says",
    "raw": "all of the model's raw text is there, and nothing else",
    "usage": "a message counts the tokens that the engine's own chat counts",
    "native": "the engine's own Responses and Messages, repaired, say the same",
    "parsers": "the engine's parsers and samewire's say the same",
    "engines": "the first engine and this one say the same",
}


class Skipped(Exception):
    """A check that does not fit an engine; the text says why."""


@dataclass
class Run:
    """All answers of one engine; without its own parsers, samewire reads the text."""

    engine: str
    version: str
    parsers: bool
    start_seconds: int
    # It gives vectors, and gets no questions.
    pools: bool = False
    answers: dict[tuple[str, str], Answer] = field(default_factory=dict)
    raw: dict[str, tuple[str, str]] = field(default_factory=dict)
    others: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def label(self) -> str:
        return f"{self.engine} {self.version}" + (" pooling" if self.pools else "" if self.parsers else " without parsers")

    def other(self, what: str, failure: str) -> None:
        """Notes a check of another kind; an empty failure is a success."""
        self.others.append((what, failure))

    def skip(self, what: str, why: str) -> None:
        """Notes what is not checked with this engine, and why."""
        self.skipped.append((what, why))


@dataclass
class Result:
    """`ok`, `blank` (but for white space around calls, and the spelling of arguments), `known` or `failed`."""

    question: str
    check: str
    what: str
    state: str
    why: str = ""
    # What failed lacks the end of a part, and differs in nothing else.
    tail: bool = False


def compare(question: str, check: str, what: str, one: Answer, other: Answer, *, strict: bool = True, finish: bool = True) -> Result:
    parts, mild = read.differences(one, other, form=finish)
    if not parts:
        return Result(question, check, what, "ok")
    if mild and not strict:
        return Result(question, check, what, "blank")
    pairs = [(part, one.said()[part], other.said()[part]) for part in parts]
    why = "; ".join(f"{part}: {ours!r} and {theirs!r}" for part, ours, theirs in pairs)
    return Result(question, check, what, "failed", why, all(is_cut(*pair) for pair in pairs))


def alike(run: Run, question: Question, one: Answer, other: Answer) -> bool:
    """Whether two streams of an engine say the same, but for what it is known for."""
    result = compare(question.name, "many", "stream", one, other, strict=not run.parsers)
    return all(told.state != "failed" for told in excused([run], [result]))


def is_cut(part: str, one: Any, other: Any) -> bool:
    if part not in ("reasoning", "content"):
        return False
    short, long = sorted((one.strip(), other.strip()), key=len)
    return bool(short) and long.startswith(short)


def within(run: Run, question: Question) -> Iterator[Result]:
    """What one engine's answers to one question must have in common."""
    name = question.name
    told = {way: answer for (asked, way), answer in run.answers.items() if asked == name}
    for way, answer in told.items():
        faults = [*answer.faults, *filter(None, [answer.error])]
        yield Result(name, "form", way, "failed" if faults else "ok", "; ".join(faults))
        if way.startswith("library "):
            theirs = told[way.removeprefix("library ")]
            if "messages" in way:
                answer, theirs = spelled(answer), spelled(theirs)
            yield compare(name, "library", way, answer, theirs, strict=not run.parsers)
    # What an engine parses in a stream it parses otherwise at once; and in a stream it depends on how tokens come together.
    strict = not run.parsers
    for api in ("chat", "responses", "messages", "native responses", "native messages", "completions"):
        if f"{api} stream" in told:
            one, other = told[f"{api} stream"], told[f"{api} whole"]
            if "messages" in api:
                one, other = spelled(one), spelled(other)
            yield compare(name, "whole", api, one, other, strict=strict or api == "completions")
    for form in FORMS:
        # Why it ended is judged elsewhere: engines say "tool_calls" without any, or "stop" after one.
        yield compare(name, "lossless", form, told[f"rewritten {form}"], told[f"engine {form}"], finish=False)
        if run.parsers:
            yield compare(name, "lossless", f"live {form}", told[f"chat {form}"], told[f"engine {form}"], strict=strict, finish=False)
        if f"responses {form}" in told:
            yield compare(name, "apis", form, told[f"chat {form}"], told[f"responses {form}"], strict=strict)
        if f"native responses {form}" in told:
            yield compare(name, "native", form, told[f"native responses {form}"], told[f"chat {form}"], strict=False)
        yield from of_messages(name, form, told, strict)
    if name in run.raw:
        text, finish = run.raw[name]
        whole = Answer(content=text, finish=finish)
        for form in FORMS:
            yield compare(name, "raw", f"completions {form}", told[f"completions {form}"], whole)
            wanted = read.reading(text, finish, OFFERED if question.tools else set())
            yield compare(name, "raw", f"chat {form}", told[f"chat {form}"], wanted, strict=False)


def of_messages(name: str, form: str, told: dict[str, Answer], strict: bool) -> Iterator[Result]:
    """What the answers of Messages must have in common with those of chat."""
    chat, engine, ours = (spelled(told[f"{api} {form}"]) for api in ("chat", "engine", "messages"))
    yield compare(name, "apis", f"messages {form}", ours, chat, strict=strict)
    yield compare(name, "lossless", f"messages {form}", spelled(told[f"rewritten messages {form}"]), engine, finish=False)
    for way in ("messages", "native messages"):
        if counted := told.get(f"{way} {form}"):
            one, other = ((answer.prompt, answer.tokens) for answer in (counted, engine))
            why = "" if one == other else f"{one} and {other} tokens of prompt and answer"
            yield Result(name, "usage", f"{way} {form}", "failed" if why else "ok", why)
    if native := told.get(f"native messages {form}"):
        yield compare(name, "native", f"native messages {form}", spelled(native), chat, strict=False)


def spelled(answer: Answer) -> Answer:
    """The same answer with arguments in compact JSON, as whole messages have them."""
    calls = [(name, text if isinstance(value, str) else compact(value)) for (name, text), (_, value) in zip(answer.calls, meaning(answer))]
    return replace(answer, calls=calls)


def between(one: Run, other: Run, check: str, questions: list[Question]) -> Iterator[Result]:
    """What two engines' answers must have in common: all of it, where neither parses."""
    strict = not (one.parsers or other.parsers)
    for question in questions:
        for way in (f"{api} {form}" for api in ("chat", "responses", "messages") for form in FORMS):
            pair = [run.answers.get((question.name, way)) for run in (one, other)]
            if all(pair):
                yield compare(question.name, check, way, *pair, strict=strict)


def excused(runs: list[Run], results: Iterable[Result]) -> list[Result]:
    """What engines are known for is no failure."""
    told = list(results)
    engines = [(f"{run.engine} {run.version}", run.parsers) for run in runs]
    for result in told:
        if result.state == "failed" and (why := known(engines, result)):
            result.state, result.why = "known", f"{why} ({result.why})"
    return told


def report(runs: list[Run], questions: list[Question]) -> dict[str, Any]:
    told = []
    for run in runs:
        asked = [question for question in questions if (question.name, "chat stream") in run.answers]
        results = excused([run], [result for question in asked for result in within(run, question)])
        twin = next((one for one in runs if (one.engine, one.version, one.parsers) == (run.engine, run.version, True)), None)
        if twin and not run.parsers:
            results += excused([twin], between(twin, run, "parsers", questions))
        elif not run.pools:
            run.skip("parsers", "only text that samewire read is compared with what the engine's parsers read")
        first = next(one for one in runs if one.parsers == run.parsers and one.pools == run.pools)
        if first is not run:
            results += excused([first, run], between(first, run, "engines", questions))
        elif not run.pools:
            run.skip("engines", "no other engine was asked before it")
        if bare := [question.name for question in asked if not question.raw]:
            run.skip(f"raw of {', '.join(bare)}", "the model's text does not follow from the keyword alone")
        told.append(
            {
                "engine": run.label(),
                "start_seconds": run.start_seconds,
                "parser": "the engine's" if run.parsers else "samewire's",
                "results": [vars(result) for result in results],
                "others": [{"what": what, "failure": failure} for what, failure in run.others],
                "skipped": [{"what": what, "why": why} for what, why in run.skipped],
            }
        )
    failed = sum(result["state"] == "failed" for run in told for result in run["results"])
    failed += sum(bool(other["failure"]) for run in told for other in run["others"])
    return {"checks": CHECKS, "runs": told, "failed": failed}


def show(told: dict[str, Any]) -> None:
    for run in told["runs"]:
        print(f"\n== {run['engine']} (ready after {run['start_seconds']} s; parser: {run['parser']})")
        if run["results"]:
            print(f"{'':22}" + "".join(f"{check:>9}" for check in CHECKS))
        for question in dict.fromkeys(result["question"] for result in run["results"]):
            cells = [cell(run["results"], question, check) for check in CHECKS]
            print(f"{question:22}" + "".join(f"{text:>9}" for text in cells))
        for other in run["others"]:
            print(f"{'FAILED' if other['failure'] else 'ok':8}{other['what']}{': ' if other['failure'] else ''}{other['failure']}")
        for skipped in run["skipped"]:
            print(f"skipped {skipped['what']}: {skipped['why']}")
        for result in run["results"]:
            if result["state"] in ("failed", "known"):
                print(f"{result['state']:8}{result['question']}, {result['check']}, {result['what']}: {result['why'][:600]}")
    states = Counter(result["state"] for run in told["runs"] for result in run["results"])
    print(
        f"\n{states.total()} comparisons: {states['ok']} the same, {states['blank']} (~) but for white space around calls or the spelling"
        f" of their arguments, {states['known']} known, {states['failed']} failed; and"
        f" {sum(len(run['others']) for run in told['runs'])} other checks; {told['failed']} failed in all;"
        f" {sum(len(run['skipped']) for run in told['runs'])} skipped"
    )


def cell(results: list[dict[str, str]], question: str, check: str) -> str:
    states = {result["state"] for result in results if (result["question"], result["check"]) == (question, check)}
    for state, text in (("failed", "FAILED"), ("known", "known"), ("blank", "~"), ("ok", "ok")):
        if state in states:
            return text
    return "-"
