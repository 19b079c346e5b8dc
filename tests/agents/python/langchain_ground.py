"""Basis of the tests of LangChain: tools, and a loop of them."""

from __future__ import annotations

import unittest
from typing import Any, Iterable

from ground import ANSWER, CALLS
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"{city}: sunny"


@tool
def get_time(zone: str) -> str:
    """The time in a zone."""
    return f"12:00 in {zone}"


TOOLS = {"get_weather": get_weather, "get_time": get_time}


def joined(chunks: Iterable[Any]) -> Any:
    first, *rest = chunks
    for chunk in rest:
        first = first + chunk
    return first


def blocks(message: AIMessage, kind: str) -> list[Any]:
    return [block for block in message.content_blocks if block["type"] == kind]


class Loop(unittest.TestCase):
    """A loop of tools, whatever API it goes over."""

    def loop(self, ask: Any) -> list[AIMessage]:
        """Asks until no tool is called; all that was said."""
        messages: list[BaseMessage] = [HumanMessage("How is it there?")]
        said: list[AIMessage] = []
        while not said or said[-1].tool_calls:
            self.assertLess(len(said), 5)
            answer = ask(messages)
            said.append(answer)
            outputs = [ToolMessage(TOOLS[call["name"]].invoke(call["args"]), tool_call_id=call["id"]) for call in answer.tool_calls]
            messages += [answer, *outputs]
        self.assertEqual([(call["name"], call["args"]) for message in said for call in message.tool_calls], CALLS)
        self.assertEqual([message.text for message in said], ["", "And Oslo? ", ANSWER])
        usage = [message.usage_metadata for message in said]
        self.assertEqual([(part["input_tokens"], part["output_tokens"]) for part in usage], [(41, 19)] * 3)
        return said
