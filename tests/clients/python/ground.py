"""Basis of the tests of this folder: clients, and an answer in a form that can be compared."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Iterable, Optional

import openai
from openai.types.chat import ChatCompletion, ChatCompletionChunk

SCRIPTED = os.environ["SAMEWIRE_SCRIPTED"]
RECORDED = os.environ["SAMEWIRE_RECORDED"]
FIXTURES = Path(os.environ["SAMEWIRE_FIXTURES"])

# Without its own retries the library shows each answer as it came.
SETTINGS: dict[str, Any] = {"api_key": "sk-test", "max_retries": 0, "timeout": 30.0}

ASK: list[Any] = [{"role": "user", "content": "Hello"}]
USAGE: Any = {"include_usage": True}

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]},
        },
    }
    for name, key in (("get_weather", "city"), ("get_time", "zone"))
]
WEATHER = {"city": "Zürich", "days": 3}
TIME = {"zone": "Europe/Zurich"}


def client(base: str = SCRIPTED, **more: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=base, **{**SETTINGS, **more})


def extra(message: Any, name: str) -> Any:
    """A field the library has no attribute for in its types."""
    return (message.model_extra or {}).get(name)


def logprobs_of(choice: Any) -> Any:
    return None if choice.logprobs is None else choice.logprobs.to_dict()


def essence(completion: ChatCompletion) -> dict[str, Any]:
    """All that a caller reads from an answer, whole or put together from a stream.

    The library leaves `index` in calls it has put together, and `annotations` is no
    part of a stream; neither tells a caller anything.
    """
    return {
        "id": completion.id,
        "object": completion.object,
        "created": completion.created,
        "model": completion.model,
        "fingerprint": completion.system_fingerprint,
        "choices": [
            {
                "index": choice.index,
                "finish_reason": choice.finish_reason,
                "logprobs": logprobs_of(choice),
                "role": choice.message.role,
                "content": choice.message.content,
                "reasoning_content": extra(choice.message, "reasoning_content"),
                "refusal": choice.message.refusal,
                "tool_calls": [
                    (call.id, call.type, call.function.name, call.function.arguments)
                    for call in choice.message.tool_calls or []
                    if call.type == "function"
                ],
            }
            for choice in completion.choices
        ],
        "usage": completion.usage.to_dict() if completion.usage else None,
    }


class Read:
    """The chunks of one stream, read as the simplest of programs reads them."""

    def __init__(self, chunks: Iterable[ChatCompletionChunk] = ()) -> None:
        self.chunks: list[ChatCompletionChunk] = []
        self.error: Optional[openai.APIError] = None
        for chunk in chunks:
            self.chunks.append(chunk)

    @classmethod
    def until_error(cls, chunks: Iterable[ChatCompletionChunk]) -> "Read":
        read = cls()
        try:
            for chunk in chunks:
                read.chunks.append(chunk)
        except openai.APIError as error:
            read.error = error
        return read

    def deltas(self, index: int = 0) -> list[Any]:
        return [choice.delta for chunk in self.chunks for choice in chunk.choices if choice.index == index]

    def text(self, index: int = 0) -> str:
        return "".join(delta.content or "" for delta in self.deltas(index))

    def reasoning(self, index: int = 0) -> str:
        return "".join(extra(delta, "reasoning_content") or "" for delta in self.deltas(index))

    def refusal(self, index: int = 0) -> str:
        return "".join(delta.refusal or "" for delta in self.deltas(index))

    def finishes(self, index: int = 0) -> list[str]:
        reasons = [choice.finish_reason for chunk in self.chunks for choice in chunk.choices if choice.index == index]
        return [reason for reason in reasons if reason is not None]

    def calls(self, index: int = 0) -> list[dict[str, Any]]:
        """Tool calls by adding strings up, which shows a repeated id or name as a doubled one."""
        calls: list[dict[str, Any]] = []
        for delta in self.deltas(index):
            for part in delta.tool_calls or []:
                if part.index == len(calls):
                    calls.append({"id": "", "type": "", "name": "", "arguments": ""})
                call = calls[part.index]
                call["id"] += part.id or ""
                call["type"] += part.type or ""
                call["name"] += part.function.name or ""
                call["arguments"] += part.function.arguments or ""
        return calls

    def logprobs(self, index: int = 0) -> list[Any]:
        choices = [choice for chunk in self.chunks for choice in chunk.choices if choice.index == index]
        return [entry for choice in choices if choice.logprobs for entry in choice.logprobs.content or []]
