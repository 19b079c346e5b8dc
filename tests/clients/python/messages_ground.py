"""Basis of the tests of Anthropic's Messages: clients, and messages in a form that can be compared."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import unittest
from typing import Any, Callable

import anthropic

BASES = {shape: os.environ[f"SAMEWIRE_MESSAGES_{shape.upper()}"] for shape in ("vllm", "sglang")}
KEYED = os.environ["SAMEWIRE_MESSAGES_KEYED"]
PATIENT = os.environ["SAMEWIRE_MESSAGES_PATIENT"]
# The member of a chat message in which each engine reads reasoning.
REASONING_KEY = {"vllm": "reasoning", "sglang": "reasoning_content"}

# Without its own retries the library shows each answer as it came.
SETTINGS: dict[str, Any] = {"api_key": "sk-test", "max_retries": 0, "timeout": 30.0}
ASK: list[Any] = [{"role": "user", "content": "Hello"}]
REQUEST: dict[str, Any] = {"max_tokens": 1024, "messages": ASK}
THINKING: Any = {"type": "enabled", "budget_tokens": 2048}

# What the scripted engine says (messages.py).
THOUGHT = "First I look – at “everything”.\nThen\u2028I act."
TEXT = "Grüße, wörld \U0001f30d\u2028."
CALLS = [("get_weather", {"city": "Zürich"}), ("get_time", {"zone": "Europe/Zurich"}), ("get_weather", {"city": "Oslo"})]

TOOLS: list[Any] = [
    {
        "name": name,
        "description": f"Tells the {name.removeprefix('get_')}.",
        "input_schema": {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]},
    }
    for name, key in (("get_weather", "city"), ("get_time", "zone"))
]


def client(base: str, **more: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=base, **{**SETTINGS, **more})


def async_client(base: str, **more: Any) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=base, **{**SETTINGS, **more})


def each_shape(test: Callable[[Any, str], Any]) -> Callable[[unittest.TestCase], None]:
    """Runs a test with an engine of each shape; the test gets its name."""

    def run(case: unittest.TestCase) -> None:
        for shape in BASES:
            with case.subTest(shape):
                result = test(case, shape)
                if inspect.isawaitable(result):
                    asyncio.run(result)

    # Not `functools.wraps`: the runner would take the test for what it wraps, a coroutine's function.
    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def thoughts(message: Any) -> list[str]:
    return [block.thinking for block in message.content if block.type == "thinking"]


def heard(message: Any) -> Any:
    """The engine's request, which the script `heard` returns (`loop`: the messages alone)."""
    return json.loads(text_of(message))


def blocks(message: Any) -> list[dict[str, Any]]:
    """The content as a request takes it. `model_dump` of the library would add nulls."""
    return [block.to_dict() for block in message.content]


def turns(*messages: Any, ask: str = "And now?") -> list[Any]:
    """A conversation that begins with the usual question and goes on after these messages."""
    history = list(ASK)
    for message in messages:
        history += [{"role": "assistant", "content": blocks(message)}, {"role": "user", "content": ask}]
    return history


def essence(message: Any) -> dict[str, Any]:
    """All that a caller reads from a message, without ids and signatures, which differ each time."""
    told = message.to_dict()
    told.pop("id")
    for block in told["content"]:
        block.pop("signature", None)
        if block["type"] == "tool_use":
            block.pop("id")
        # The library adds it to what it has parsed.
        block.pop("parsed_output", None)
    return told
