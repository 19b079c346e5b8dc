"""LangChain over Anthropic's Messages: streamed calls, their outputs, thinking."""

from __future__ import annotations

import unittest
from typing import Any

from ground import KEY, THOUGHT, TIMEOUT, Engine, each_shape
from langchain_anthropic import ChatAnthropic
from langchain_ground import TOOLS, Loop, blocks, joined


def model(engine: Engine) -> Any:
    thinking = {"type": "enabled", "budget_tokens": 2048}
    chat: Any = ChatAnthropic(
        model="traveller", base_url=engine.root, api_key=KEY, max_tokens=3000, thinking=thinking, max_retries=0, timeout=TIMEOUT
    )
    return chat.bind_tools(list(TOOLS.values()))


class LangChainAnthropic(Loop):
    def check(self, said: list[Any], engine: Engine) -> None:
        """It shows what was thought, and gives it back."""
        thoughts = ["".join(block["reasoning"] for block in blocks(message, "reasoning")) for message in said]
        self.assertEqual(thoughts, [THOUGHT, "Once more.", "Enough."])
        self.assertEqual([message.response_metadata["stop_reason"] for message in said], ["tool_use", "tool_use", "end_turn"])
        self.assertEqual([message.usage_metadata["input_token_details"]["cache_read"] for message in said], [8] * 3)
        asked = engine.asked()
        self.assertEqual(len(asked), 3)
        self.assertEqual(engine.reasoning(asked[2]), [THOUGHT, "Once more."])
        self.assertEqual([body["reasoning_effort"] for body in asked], ["low"] * 3)

    @each_shape
    def test_in_one_piece(self, engine: Engine) -> None:
        self.check(self.loop(model(engine).invoke), engine)

    @each_shape
    def test_streamed(self, engine: Engine) -> None:
        chat = model(engine)
        self.check(self.loop(lambda messages: joined(chat.stream(messages))), engine)


if __name__ == "__main__":
    unittest.main()
