"""A scripted engine that plays the model of an agent. It speaks chat and nothing else.

    model.py SHAPE REQUESTS

SHAPE is `vllm` or `sglang`: whose habits its answers have. Every request is checked as a
strict engine and its chat template would, and appended to the file REQUESTS, one line of
JSON each. What the model says depends on the tools it is offered, and on how far it has
come since the last message of the user.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "clients"))

import engine as scripted  # noqa: E402
from engine import CREATED, DONE, Answer, data, stream, wants_usage, whole  # noqa: E402

# Answers have ids of their own, as a store behind the proxy expects of an engine.
COUNTER = itertools.count(1)
REASONING_KEY = {"vllm": "reasoning", "sglang": "reasoning_content"}
# What the tests look for again behind the proxy: more than ASCII, and a line that a careless reader splits.
THOUGHT = ["First I ", "look – at “everything”.", "\nThen\u2028I act."]
PATCH = "*** Begin Patch\n*** Update File: notes.txt\n@@\n first\n-second\n+edited: \"Zürich\" \\ done\n*** End Patch\n"
COMMAND = "sed -i 's/second/edited: \"Zürich\" done/' notes.txt && cat notes.txt"


# --- what the model says ----------------------------------------------------------


@dataclass
class Said:
    """One answer: reasoning, text, and calls of `(name, arguments)`."""

    reasoning: list[str] = field(default_factory=lambda: list(THOUGHT))
    text: list[str] = field(default_factory=list)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


def coder(offered: dict[str, Any], outputs: list[str], step: int) -> Said:
    """Reads a file, edits it with what it is offered, calls a tool inside a namespace, says what it has done."""
    edit = ("apply_patch", {"input": PATCH}) if "apply_patch" in offered else ("exec_command", {"cmd": COMMAND})
    inside = next((name for name in offered if name.endswith("__close_agent")), None)
    steps = [Said(text=["I read it."], calls=[("exec_command", {"cmd": "cat notes.txt"})]), Said(calls=[edit])]
    if inside is not None:
        steps.append(Said(calls=[(inside, {"target": "nobody"})]))
    return steps[step] if step < len(steps) else Said(text=["The file ", "is edited: ", "Zürich."])


def traveller(offered: dict[str, Any], outputs: list[str], step: int) -> Said:
    """Calls two tools at once, then one of them again, then repeats what they said."""
    if step == 0:
        return Said(calls=[("get_weather", {"city": "Zürich"}), ("get_time", {"zone": "Europe/Zurich"})])
    if step == 1:
        return Said(reasoning=["Once more."], text=["And Oslo? "], calls=[("get_weather", {"city": "Oslo"})])
    return Said(reasoning=["Enough."], text=["Outputs: ", "; ".join(outputs), "."])


def say(body: dict[str, Any]) -> Said:
    messages = body["messages"]
    last = max(at for at, message in enumerate(messages) if message["role"] == "user")
    behind = messages[last + 1 :]
    outputs = [message["content"] for message in behind if message["role"] == "tool"]
    offered = {tool["function"]["name"]: tool["function"] for tool in body.get("tools", [])}
    player = traveller if "get_weather" in offered else coder
    return player(offered, outputs, sum(message["role"] == "assistant" for message in behind))


# --- what a strict engine refuses --------------------------------------------------

PARAMETERS = {
    *("model", "messages", "stream", "stream_options", "tools", "tool_choice", "parallel_tool_calls", "temperature", "top_p"),
    *("max_completion_tokens", "max_tokens", "reasoning_effort", "user", "response_format"),
    # Codex sends it, and the Responses API does not name it.
    "client_metadata",
}
MEMBERS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls"},
    "tool": {"role", "content", "tool_call_id"},
}


def mistakes(body: dict[str, Any], shape: str) -> Iterator[str]:
    yield from (f"unknown parameter {key}" for key in body.keys() - PARAMETERS)
    yield from (f"{key} is null" for key, value in body.items() if value is None)
    names = [tool["function"]["name"] for tool in body.get("tools", [])]
    yield from (f"tool of type {tool['type']}" for tool in body.get("tools", []) if tool["type"] != "function")
    yield from (f"name of tool {name!r}" for name in names if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name))
    if len(set(names)) != len(names):
        yield f"tools of one name: {names}"
    waiting: list[str] = []
    for at, message in enumerate(body["messages"]):
        for mistake in mistakes_of(message, waiting, shape):
            yield f"messages[{at}]: {mistake}"
        waiting = [call for call in waiting if call != message.get("tool_call_id")]
        waiting += [call["id"] for call in message.get("tool_calls", [])]
    if waiting:
        yield f"calls without outputs: {waiting}"


def mistakes_of(message: dict[str, Any], waiting: list[str], shape: str) -> Iterator[str]:
    role = message["role"]
    if role not in MEMBERS:
        yield f"unknown role {role}"
        return
    allowed = MEMBERS[role] | ({REASONING_KEY[shape]} if role == "assistant" else set())
    yield from (f"unknown member {key}" for key in message.keys() - allowed)
    if not isinstance(message.get("content", ""), str):
        yield "content is not a string"
    if role == "tool" and message["tool_call_id"] not in waiting:
        yield f"an output for {message['tool_call_id']}, which was not called"
    if role != "tool" and waiting:
        yield f"{role} before the outputs of {waiting}"
    for call in message.get("tool_calls", []):
        if not isinstance(json.loads(call["function"]["arguments"]), dict):
            yield "arguments are not an object"


# --- how it is written ---------------------------------------------------------------

USAGE = {"prompt_tokens": 41, "total_tokens": 60, "completion_tokens": 19}


def pieces(text: str, size: int = 7) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def usage(shape: str) -> dict[str, Any]:
    if shape == "vllm":
        details = {"prompt_tokens_details": {"cached_tokens": 8}, "completion_tokens_details": {"reasoning_tokens": 5}}
        return {**USAGE, **details}
    return {**USAGE, "prompt_tokens_details": {"cached_tokens": 8}, "reasoning_tokens": 5}


def call_ids(shape: str, body: dict[str, Any], said: Said) -> list[str]:
    """Ids are new in each answer."""
    first = len(body["messages"])
    prefix = "chatcmpl-tool-" if shape == "vllm" else "call_"
    return [f"{prefix}{first:04x}{at:04x}aaaabbbbccccdddd" for at in range(len(said.calls))]


def arguments_of(call: tuple[str, dict[str, Any]]) -> str:
    return json.dumps(call[1], ensure_ascii=False)


def deltas(shape: str, body: dict[str, Any], said: Said) -> Iterator[dict[str, Any]]:
    key = REASONING_KEY[shape]
    yield {"role": "assistant", "content": ""}
    yield from ({key: piece} for piece in said.reasoning)
    yield from ({"content": piece} for piece in said.text)
    for at, (id, call) in enumerate(zip(call_ids(shape, body, said), said.calls)):
        head = {"index": at, "id": id, "type": "function", "function": {"name": call[0], "arguments": ""}}
        if shape == "vllm":
            yield {"tool_calls": [head]}
            yield from ({"tool_calls": [{"index": at, "function": {"arguments": piece}}]} for piece in pieces(arguments_of(call)))
            continue
        # Its chunks name everything, and what is not there is null.
        empty = {"role": None, "content": None, "reasoning_content": None}
        yield {**empty, "tool_calls": [head]}
        for piece in pieces(arguments_of(call)):
            function = {"name": None, "arguments": piece}
            yield {**empty, "tool_calls": [{"id": None, "index": at, "type": "function", "function": function}]}


def new_id(shape: str) -> str:
    return f"{'chatcmpl-' if shape == 'vllm' else ''}{next(COUNTER):032x}"


def streamed(shape: str, body: dict[str, Any], said: Said) -> Answer:
    stop = {"vllm": "stop_reason", "sglang": "matched_stop"}[shape]
    id = new_id(shape)
    frames = []

    def chunk(choices: list[dict[str, Any]], **more: Any) -> None:
        # SGLang looks at the clock anew for each chunk.
        created = CREATED + (len(frames) if shape == "sglang" else 0)
        head = {"id": id, "object": "chat.completion.chunk", "created": created, "model": body["model"]}
        frames.append(data({**head, "choices": choices, **more}))

    for delta in deltas(shape, body, said):
        chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, stop: None}])
    finish = "tool_calls" if said.calls else "stop"
    chunk([{"index": 0, "delta": {"content": ""}, "logprobs": None, "finish_reason": finish, stop: None}])
    if wants_usage(body):
        chunk([], usage=usage(shape))
    return stream([*frames, DONE])


def complete(shape: str, body: dict[str, Any], said: Said) -> Answer:
    calls = [
        {"id": id, "type": "function", "function": {"name": call[0], "arguments": arguments_of(call)}}
        for id, call in zip(call_ids(shape, body, said), said.calls)
    ]
    message = {"content": "".join(said.text) or None, REASONING_KEY[shape]: "".join(said.reasoning) or None, "tool_calls": calls}
    choice = scripted.answer_choice(message, finish="tool_calls" if calls else "stop")
    return whole({**scripted.completion(body["model"], [choice], usage(shape)), "id": new_id(shape)})


def main(shape: str, requests: str) -> None:
    lock = threading.Lock()

    def answer(path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
        wrong = [*mistakes(body, shape)]
        with lock, open(requests, "a", encoding="utf-8") as log:
            log.write(json.dumps({"body": body, "mistakes": wrong}) + "\n")
        if wrong:
            return whole({"object": "error", "message": "; ".join(wrong), "type": "BadRequestError", "code": 400}, 400)
        said = say(body)
        return streamed(shape, body, said) if body.get("stream") else complete(shape, body, said)

    for name in ("traveller", "local-coder", "gpt-5.5"):
        scripted.SCRIPTS[name] = answer
    scripted.main()


if __name__ == "__main__":
    main(*sys.argv[1:])
