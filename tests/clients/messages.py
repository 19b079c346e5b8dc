"""A scripted engine of one shape, for clients of Anthropic's Messages. It speaks chat and nothing else.

    messages.py SHAPE

SHAPE is `vllm` or `sglang`. The `model` of a request selects the script: those of engine.py, and those below, whose
answers have the habits of the shape. The script `heard` returns the engine's request, so that a test sees what has
become of its request.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Callable

import engine as scripted
import shapes
from engine import SCRIPTS, Answer, whole
from shapes import Said

# More than ASCII, and a line that a careless reader splits.
THOUGHT = ["First I ", "look – at “everything”.", "\nThen\u2028I act."]
TEXT = ["Grüße, ", "wörld \U0001f30d\u2028", "."]
PAUSE_SECONDS = 2.0


def heard(body: dict[str, Any]) -> Said:
    return Said(text=[json.dumps(body, ensure_ascii=False)])


def loop(body: dict[str, Any]) -> Said:
    """Calls two tools at once, then one of them again, then says what messages it was sent."""
    messages = body["messages"]
    last = max(at for at, message in enumerate(messages) if message["role"] == "user")
    step = sum(message["role"] == "assistant" for message in messages[last:])
    if step == 0:
        calls: list[tuple[str, dict[str, Any]]] = [("get_weather", {"city": "Zürich"}), ("get_time", {"zone": "Europe/Zurich"})]
        return Said(reasoning=THOUGHT, text=["I ask."], calls=calls)
    if step == 1:
        return Said(reasoning=["Once more."], text=["And Oslo? "], calls=[("get_weather", {"city": "Oslo"})])
    return Said(reasoning=["Enough."], text=[json.dumps(messages, ensure_ascii=False)])


def without_input(body: dict[str, Any]) -> Said:
    return Said(calls=[("get_time", {})])


PLAYERS: dict[str, Callable[[dict[str, Any]], Said]] = {
    "heard": heard,
    "loop": loop,
    "thinks": lambda body: Said(reasoning=THOUGHT, text=TEXT),
    "thinks-and-calls": lambda body: loop({"messages": body["messages"][-1:]}),
    "without-input": without_input,
    "at-limit": lambda body: Said(text=TEXT, finish="length"),
    "thinks-to-limit": lambda body: Said(reasoning=THOUGHT, finish="length"),
    "at-stop": lambda body: Said(text=TEXT, stopped_at=body["stop"][0]),
    "at-own-stop": lambda body: Said(text=TEXT, stopped_at="<|im_end|>"),
    "filtered": lambda body: Said(text=TEXT, finish="content_filter"),
    "person": lambda body: Said(reasoning=THOUGHT, text=['{"na', 'me": "Ada', '", "born": 18', "15}"]),
    "says-nothing": lambda body: Said(),
}


def register(shape: str) -> None:
    def player(said: Callable[[dict[str, Any]], Said]) -> scripted.Script:
        return lambda path, body, headers: shapes.answer(shape, body, said(body))

    SCRIPTS.update({name: player(said) for name, said in PLAYERS.items()})

    def slow(path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
        """Lets wait before its first word, and again before its last."""
        answer = shapes.answer(shape, body, Said(text=["Slow, ", "but sure."]))
        assert answer.frames is not None
        last = answer.frames[2:]
        answer.frames, answer.pause = [answer.frames[1], b"".join(last)], PAUSE_SECONDS
        return answer

    SCRIPTS["slow-to-speak"] = slow

    def breaking(part: str, ending: str) -> scripted.Script:
        """Ends inside of its reasoning, its text or the arguments of its call."""
        marks = {"thinking": THOUGHT[1], "text": "I ask.", "call": '"city'}

        def run(path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
            answer = shapes.streamed(shape, body, loop({"messages": body["messages"][-1:]}))
            assert answer.frames is not None
            mark = json.dumps(marks[part])[1:-1].encode()
            at = next(at for at, frame in enumerate(answer.frames) if mark in frame)
            answer.frames, answer.ending = answer.frames[: at + 1], ending
            return answer

        return run

    for part in ("thinking", "text", "call"):
        for ending in ("cut", "reset", "clean"):
            SCRIPTS[f"breaks-in-{part}-{ending}"] = breaking(part, ending)


def letters(body: dict[str, Any]) -> int:
    return sum(len(message["content"]) for message in body["messages"])


def tokenize(path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
    """vLLM's route: it takes messages and their tools, and applies the chat template."""
    if body["model"] not in SCRIPTS:
        return scripted.unknown_model(body["model"])
    if body.get("stream") is not None:
        return whole({"object": "error", "message": "stream: Extra inputs are not permitted", "type": "BadRequestError", "code": 400}, 400)
    count = letters(body) + 1000 * len(body.get("tools", []))
    return whole({"count": count, "max_model_len": 4096, "tokens": list(range(3)), "token_strs": None})


def main(shape: str) -> None:
    register(shape)
    if shape == "vllm":
        scripted.ROUTES["/tokenize"] = tokenize
    scripted.main()


if __name__ == "__main__":
    main(*sys.argv[1:])
