"""OpenAI Agents runs its loop of tools over Responses."""

from __future__ import annotations

import contextlib
import unittest
from typing import Any, AsyncIterator

from agents import Agent, ModelSettings, OpenAIResponsesModel, RunConfig, Runner, function_tool
from ground import ANSWER, CALLS, KEY, THOUGHT, TIMEOUT, Engine, each_shape
from openai import AsyncOpenAI
from openai.types.shared import Reasoning


@function_tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"{city}: sunny"


@function_tool
def get_time(zone: str) -> str:
    """The time in a zone."""
    return f"12:00 in {zone}"


@contextlib.asynccontextmanager
async def agent(engine: Engine, **settings: Any) -> AsyncIterator[Agent[Any]]:
    async with AsyncOpenAI(base_url=engine.base, api_key=KEY, max_retries=0, timeout=TIMEOUT) as client:
        yield Agent(
            name="Traveller",
            instructions="Use the tools.",
            model=OpenAIResponsesModel(model="traveller", openai_client=client),
            model_settings=ModelSettings(reasoning=Reasoning(effort="low", summary="auto"), **settings),
            tools=[get_weather, get_time],
        )


RUN = RunConfig(tracing_disabled=True)
ASK = "How is it there?"


def calls(items: list[Any]) -> list[str]:
    return [item.raw_item.name for item in items if item.type == "tool_call_item"]


def thoughts(items: list[Any]) -> list[str]:
    found = [item.raw_item for item in items if item.type == "reasoning_item"]
    return ["".join(part.text for part in item.content or []) for item in found]


class OpenAIAgents(unittest.TestCase):
    def check(self, result: Any, engine: Engine) -> None:
        self.assertEqual(result.final_output, ANSWER)
        self.assertEqual(calls(result.new_items), [name for name, _ in CALLS])
        self.assertEqual(thoughts(result.new_items), [THOUGHT, "Once more.", "Enough."])
        usage = result.context_wrapper.usage
        self.assertEqual((usage.requests, usage.input_tokens, usage.output_tokens), (3, 123, 57))
        self.assertEqual(usage.output_tokens_details.reasoning_tokens, 15)
        asked = engine.asked()
        self.assertEqual(len(asked), 3)
        self.assertEqual(asked[0]["messages"][0], {"role": "system", "content": "Use the tools."})
        self.assertEqual([body["reasoning_effort"] for body in asked], ["low"] * 3)

    @each_shape
    async def test_in_one_piece(self, engine: Engine) -> None:
        async with agent(engine) as player:
            result = await Runner.run(player, ASK, run_config=RUN)
        self.check(result, engine)
        self.assertEqual(engine.reasoning(engine.asked()[2]), [THOUGHT, "Once more."])

    @each_shape
    async def test_streamed(self, engine: Engine) -> None:
        async with agent(engine) as player:
            result = Runner.run_streamed(player, ASK, run_config=RUN)
            raw = [event.data async for event in result.stream_events() if event.type == "raw_response_event"]
        self.check(result, engine)
        self.assertEqual(engine.reasoning(engine.asked()[2]), [THOUGHT, "Once more."])
        text = "".join(event.delta for event in raw if event.type == "response.output_text.delta")
        self.assertEqual(text, f"And Oslo? {ANSWER}")

    @each_shape
    async def test_stored_responses(self, engine: Engine) -> None:
        """The loop sends only what is new, and continues the response before."""
        async with agent(engine) as player:
            first = await Runner.run(player, ASK, run_config=RUN, auto_previous_response_id=True)
            self.check(first, engine)
            second = await Runner.run(player, ASK, run_config=RUN, previous_response_id=first.last_response_id)
        self.assertEqual(second.final_output, ANSWER)
        asked = engine.asked()
        self.assertEqual(engine.reasoning(asked[2]), [THOUGHT, "Once more."])
        self.assertEqual(engine.reasoning(asked[5]), [THOUGHT, "Once more.", "Enough.", THOUGHT, "Once more."])

    @each_shape
    async def test_sealed_reasoning(self, engine: Engine) -> None:
        """Nothing is stored; the client keeps what it cannot read."""
        async with agent(engine, store=False, response_include=["reasoning.encrypted_content"]) as player:
            result = Runner.run_streamed(player, ASK, run_config=RUN)
            async for _ in result.stream_events():
                pass
        self.check(result, engine)
        self.assertEqual(engine.reasoning(engine.asked()[2]), [THOUGHT, "Once more."])


if __name__ == "__main__":
    unittest.main()
