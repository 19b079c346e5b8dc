"""LangChain over Responses: streamed calls, their outputs, reasoning."""

from __future__ import annotations

import unittest
from typing import Any

from ground import KEY, THOUGHT, TIMEOUT, Engine, each_shape
from langchain_ground import TOOLS, Loop, blocks, joined
from langchain_openai import ChatOpenAI


def model(base: str, **more: Any) -> Any:
    settings = {"reasoning": {"effort": "low", "summary": "auto"}, "use_responses_api": True, "stream_usage": True, **more}
    chat = ChatOpenAI(model="traveller", base_url=base, api_key=KEY, max_retries=0, timeout=TIMEOUT, **settings)
    return chat.bind_tools(list(TOOLS.values()))


class LangChain(Loop):
    def loop(self, ask: Any) -> list[Any]:
        said = super().loop(ask)
        self.assertEqual([message.usage_metadata["output_token_details"]["reasoning"] for message in said], [5] * 3)
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
