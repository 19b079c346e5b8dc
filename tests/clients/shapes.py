"""What a model says, written as vLLM or SGLang writes it: frames of a stream, or a whole answer.

SHAPE is `vllm` or `sglang`: whose habits the answer has.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import Any, Iterator, Optional

import engine as scripted
from engine import CREATED, DONE, Answer, data, stream, wants_usage, whole

# Answers have their own ids, as a store behind the proxy expects of an engine.
COUNTER = itertools.count(1)
REASONING_KEY = {"vllm": "reasoning", "sglang": "reasoning_content"}
STOP_KEY = {"vllm": "stop_reason", "sglang": "matched_stop"}
USAGE = {"prompt_tokens": 41, "total_tokens": 60, "completion_tokens": 19}


@dataclass
class Said:
    """One answer: reasoning, text, and calls of `(name, arguments)`."""

    reasoning: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    # Why it ends; `None`: with its calls, or by itself.
    finish: Optional[str] = None
    # The text of the request at which it stopped.
    stopped_at: Optional[str] = None

    def end(self) -> str:
        return self.finish or ("tool_calls" if self.calls else "stop")


def answer(shape: str, body: dict[str, Any], said: Said) -> Answer:
    return streamed(shape, body, said) if body.get("stream") else complete(shape, body, said)


def pieces(text: str, size: int = 7) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def usage(shape: str) -> dict[str, Any]:
    if shape == "vllm":
        details = {"prompt_tokens_details": {"cached_tokens": 8}, "completion_tokens_details": {"reasoning_tokens": 5}}
        return {**USAGE, **details}
    return {**USAGE, "prompt_tokens_details": {"cached_tokens": 8}, "reasoning_tokens": 5}


def call_ids(shape: str, said: Said) -> list[str]:
    """Ids are new in each answer, also in the second one to the same request."""
    prefix = "chatcmpl-tool-" if shape == "vllm" else "call_"
    return [f"{prefix}{next(COUNTER):024x}" for _ in said.calls]


def arguments_of(call: tuple[str, dict[str, Any]]) -> str:
    return json.dumps(call[1], ensure_ascii=False)


def deltas(shape: str, said: Said) -> Iterator[dict[str, Any]]:
    key = REASONING_KEY[shape]
    yield {"role": "assistant", "content": ""}
    yield from ({key: piece} for piece in said.reasoning)
    yield from ({"content": piece} for piece in said.text)
    for at, (id, call) in enumerate(zip(call_ids(shape, said), said.calls)):
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


def counts(body: dict[str, Any], tokens: int) -> dict[str, Any]:
    """The usage that a chunk has if the request wants it on each."""
    if not (body.get("stream_options") or {}).get("continuous_usage_stats"):
        return {}
    prompt = USAGE["prompt_tokens"]
    return {"usage": {"prompt_tokens": prompt, "total_tokens": prompt + tokens, "completion_tokens": tokens}}


def streamed(shape: str, body: dict[str, Any], said: Said) -> Answer:
    stop = STOP_KEY[shape]
    id = new_id(shape)
    frames: list[bytes] = []

    def chunk(choices: list[dict[str, Any]], **more: Any) -> None:
        # SGLang looks at the clock anew for each chunk.
        created = CREATED + (len(frames) if shape == "sglang" else 0)
        head = {"id": id, "object": "chat.completion.chunk", "created": created, "model": body["model"]}
        frames.append(data({**head, "choices": choices, **more}))

    for at, delta in enumerate(deltas(shape, said)):
        chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, stop: None}], **counts(body, at))
    last = {"index": 0, "delta": {"content": ""}, "logprobs": None, "finish_reason": said.end(), stop: said.stopped_at}
    chunk([last], **counts(body, USAGE["completion_tokens"]))
    if wants_usage(body):
        chunk([], usage=usage(shape))
    return stream([*frames, DONE])


def complete(shape: str, body: dict[str, Any], said: Said) -> Answer:
    calls = [
        {"id": id, "type": "function", "function": {"name": call[0], "arguments": arguments_of(call)}}
        for id, call in zip(call_ids(shape, said), said.calls)
    ]
    message = {"content": "".join(said.text) or None, REASONING_KEY[shape]: "".join(said.reasoning) or None, "tool_calls": calls}
    choice = scripted.answer_choice(message, finish=said.end())
    choice = {**{key: value for key, value in choice.items() if key != "stop_reason"}, STOP_KEY[shape]: said.stopped_at}
    return whole({**scripted.completion(body["model"], [choice], usage(shape)), "id": new_id(shape)})
