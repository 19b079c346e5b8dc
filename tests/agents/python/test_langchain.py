"""LangChain over Responses: streamed calls, their outputs, reasoning."""

from __future__ import annotations

import unittest
from typing import Any, Iterable

from ground import ANSWER, CALLS, KEY, THOUGHT, TIMEOUT, Engine, each_shape
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"{city}: sunny"


@tool
def get_time(zone: str) -> str:
    """The time in a zone."""
    return f"12:00 in {zone}"


TOOLS = {"get_weather": get_weather, "get_time": get_time}


def model(base: str, **more: Any) -> Any:
    settings = {"reasoning": {"effort": "low", "summary": "auto"}, "use_responses_api": True, "stream_usage": True, **more}
    chat = ChatOpenAI(model="traveller", base_url=base, api_key=KEY, max_retries=0, timeout=TIMEOUT, **settings)
    return chat.bind_tools(list(TOOLS.values()))


def joined(chunks: Iterable[Any]) -> Any:
    first, *rest = chunks
    for chunk in rest:
        first = first + chunk
    return first


def blocks(message: AIMessage, kind: str) -> list[Any]:
    return [block for block in message.content_blocks if block["type"] == kind]


class LangChain(unittest.TestCase):
    def loop(self, ask: Any, continued: bool = False) -> list[AIMessage]:
        """A loop of tools; all it said."""
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
        self.assertEqual([part["output_token_details"]["reasoning"] for part in usage], [5] * 3)
        return said

    def check_history(self, engine: Engine) -> None:
        asked = engine.asked()
        self.assertEqual(len(asked), 3)
        self.assertEqual(engine.reasoning(asked[2]), [THOUGHT, "Once more."])

    @each_shape
    def test_in_one_piece(self, engine: Engine) -> None:
        self.loop(model(engine.base).invoke)
        self.check_history(engine)

    @each_shape
    def test_streamed(self, engine: Engine) -> None:
        """Of a stream it keeps no reasoning but summaries (below), and gives none back."""
        chat = model(engine.base)
        self.loop(lambda messages: joined(chat.stream(messages)))
        self.assertEqual(len(engine.asked()), 3)

    @each_shape
    def test_summaries(self, engine: Engine) -> None:
        """Where reasoning is written as a summary, it is shown."""
        chat = model(engine.summary_base, output_version="v1")
        said = self.loop(lambda messages: joined(chat.stream(messages)))
        self.assertEqual(["".join(block["reasoning"] for block in blocks(message, "reasoning")) for message in said], [THOUGHT, "Once more.", "Enough."])
        self.check_history(engine)

    @each_shape
    def test_stored_responses(self, engine: Engine) -> None:
        """It finds the response before in its own messages and sends what is new."""
        chat = model(engine.base, use_previous_response_id=True)
        self.loop(lambda messages: joined(chat.stream(messages)))
        self.check_history(engine)


if __name__ == "__main__":
    unittest.main()
