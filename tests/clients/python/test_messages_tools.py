"""Tools in Anthropic's Messages: calls, results, loops by hand and by the library's runner."""

from __future__ import annotations

import json
import unittest
from typing import Any

from anthropic import beta_async_tool, beta_tool
from messages_ground import (
    ASK, BASES, CALLS, REASONING_KEY, REQUEST, THINKING, THOUGHT, TOOLS, async_client, blocks, client, each_shape, heard, thoughts
)  # fmt: skip


def weather(city: str) -> str:
    """Tells the weather.

    Args:
        city: The city.
    """
    return f"{city}: sunny"


def time(zone: str) -> str:
    """Tells the time.

    Args:
        zone: The zone.
    """
    return f"12:00 in {zone}"


OUTPUTS = ["Zürich: sunny", "12:00 in Europe/Zurich", "Oslo: sunny"]
RUN = {"get_weather": weather, "get_time": time}


class Calls(unittest.TestCase):
    @each_shape
    def test_arguments(self, shape: str) -> None:
        with client(BASES[shape]) as asking, asking.messages.stream(model="thinks-and-calls", tools=TOOLS, **REQUEST) as stream:
            seen = [event for event in stream if event.type in ("input_json", "content_block_start")]
            message = stream.get_final_message()
        calls = [block for block in message.content if block.type == "tool_use"]
        self.assertEqual([(call.name, call.input) for call in calls], CALLS[:2])
        self.assertEqual(len({call.id for call in calls}), 2)
        pieces = [event.partial_json for event in seen if event.type == "input_json"]
        self.assertEqual("".join(pieces), json.dumps(CALLS[0][1], ensure_ascii=False) + json.dumps(CALLS[1][1]))
        starts = [event.content_block for event in seen if event.type == "content_block_start"][-2:]
        self.assertEqual([(start.name, start.input) for start in starts], [(name, {}) for name, _ in CALLS[:2]])

    @each_shape
    def test_no_arguments(self, shape: str) -> None:
        with client(BASES[shape]) as asking:
            whole = asking.messages.create(model="without-input", tools=TOOLS, **REQUEST)
            with asking.messages.stream(model="without-input", tools=TOOLS, **REQUEST) as stream:
                streamed = stream.get_final_message()
        self.assertEqual([block.input for message in (whole, streamed) for block in message.content], [{}, {}])

    @each_shape
    def test_habits_of_engines(self, shape: str) -> None:
        """Names that come late, numbers with gaps, arguments as an object (engine.py)."""
        for model in ("tool-gaps", "tool-object-arguments", "tool-late-name", "tool-parallel"):
            with self.subTest(model=model), client(BASES[shape]) as asking:
                whole = asking.messages.create(model=model, tools=TOOLS, **REQUEST)
                with asking.messages.stream(model=model, tools=TOOLS, **REQUEST) as stream:
                    streamed = stream.get_final_message()
                for message in (whole, streamed):
                    calls = [(block.name, block.input) for block in message.content if block.type == "tool_use"]
                    self.assertEqual(calls[0][0], "get_weather")
                    self.assertEqual(calls[0][1]["city"], "Zürich")
                    self.assertEqual(message.stop_reason, "tool_use")
                self.assertEqual(len(whole.content), len(streamed.content))

    @each_shape
    def test_choices(self, shape: str) -> None:
        asked: list[tuple[Any, Any, Any]] = [
            ({"type": "auto"}, "auto", None),
            ({"type": "any"}, "required", None),
            ({"type": "tool", "name": "get_time"}, {"type": "function", "function": {"name": "get_time"}}, None),
            ({"type": "auto", "disable_parallel_tool_use": True}, "auto", False),
        ]
        with client(BASES[shape]) as asking:
            for choice, told, parallel in asked:
                with self.subTest(choice=choice):
                    body = heard(asking.messages.create(model="heard", tools=TOOLS, tool_choice=choice, **REQUEST))
                    self.assertEqual((body["tool_choice"], body.get("parallel_tool_calls")), (told, parallel))
                    self.assertEqual(body["tools"][0]["function"]["parameters"], TOOLS[0]["input_schema"])
            body = heard(asking.messages.create(model="heard", tools=TOOLS, tool_choice={"type": "none"}, **REQUEST))
            # vLLM may call tools all the same: it is not shown any.
            self.assertEqual((body.get("tool_choice"), "tools" in body), {"vllm": (None, False), "sglang": ("none", True)}[shape])

    @each_shape
    def test_tools_of_the_service_are_left_out_and_named(self, shape: str) -> None:
        tools: Any = [TOOLS[0], {"type": "web_search_20250305", "name": "web_search"}]
        with client(BASES[shape]) as asking:
            raw = asking.messages.with_raw_response.create(model="heard", tools=tools, **REQUEST)
        self.assertIn("web_search_20250305", raw.headers["x-samewire-dropped"])
        self.assertEqual([tool["function"]["name"] for tool in heard(raw.parse())["tools"]], ["get_weather"])

    @each_shape
    def test_results(self, shape: str) -> None:
        """In any order, with text beside them, one of them an error."""
        with client(BASES[shape]) as asking:
            message = asking.messages.create(model="thinks-and-calls", tools=TOOLS, **REQUEST)
            first, second = (block.id for block in message.content if block.type == "tool_use")
            content: Any = [
                {"type": "text", "text": "There you are."},
                {"type": "tool_result", "tool_use_id": second, "content": "No such zone", "is_error": True},
                {"type": "tool_result", "tool_use_id": first, "content": [{"type": "text", "text": "rain"}, {"type": "text", "text": "wind"}]},
            ]
            messages = [*ASK, {"role": "assistant", "content": blocks(message)}, {"role": "user", "content": content}]
            said = heard(asking.messages.create(model="heard", max_tokens=1024, tools=TOOLS, messages=messages))["messages"]
        self.assertEqual([call["id"] for call in said[1]["tool_calls"]], [first, second])
        self.assertEqual(
            said[2:],
            [
                {"role": "tool", "tool_call_id": first, "content": "rain\nwind"},
                {"role": "tool", "tool_call_id": second, "content": "Error: No such zone"},
                {"role": "user", "content": "There you are."},
            ],
        )


    @each_shape
    def test_a_picture_in_a_result(self, shape: str) -> None:
        """Engines take text alone from tools: the picture follows in the user's message."""
        picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
        with client(BASES[shape]) as asking:
            message = asking.messages.create(model="without-input", tools=TOOLS, **REQUEST)
            result = {"type": "tool_result", "tool_use_id": message.content[0].id, "content": [{"type": "text", "text": "See:"}, picture]}
            messages: Any = [*ASK, {"role": "assistant", "content": blocks(message)}, {"role": "user", "content": [result]}]
            said = heard(asking.messages.create(model="heard", max_tokens=1024, tools=TOOLS, messages=messages))["messages"]
        self.assertEqual([said[2]["content"], said[3]["role"]], ["See:\n[image 1]", "user"])
        label, part = said[3]["content"]
        self.assertEqual((label["text"], part["image_url"]["url"]), ("[image 1]", "data:image/png;base64,iVBORw0KGgo="))


class Loops(unittest.TestCase):
    """Three turns; in the last the engine says what messages it was sent."""

    def check(self, final: Any, shape: str) -> None:
        said = heard(final)
        self.assertEqual([message["role"] for message in said], ["user", "assistant", "tool", "tool", "assistant", "tool"])
        self.assertEqual([message["content"] for message in said if message["role"] == "tool"], OUTPUTS)
        assistants = [message for message in said if message["role"] == "assistant"]
        self.assertEqual([message[REASONING_KEY[shape]] for message in assistants], [THOUGHT, "Once more."])
        self.assertEqual([message["content"] for message in assistants], ["I ask.", "And Oslo? "])
        calls = [call["function"] for message in assistants for call in message["tool_calls"]]
        self.assertEqual([(call["name"], json.loads(call["arguments"])) for call in calls], CALLS)
        self.assertEqual((final.stop_reason, thoughts(final)), ("end_turn", ["Enough."]))

    def by_hand(self, ask: Any) -> Any:
        messages = list(ASK)
        for _ in range(5):
            message = ask({"model": "loop", "max_tokens": 3000, "messages": messages, "tools": TOOLS, "thinking": THINKING})
            if message.stop_reason != "tool_use":
                return message
            calls = [block for block in message.content if block.type == "tool_use"]
            results = [{"type": "tool_result", "tool_use_id": call.id, "content": RUN[call.name](**call.input)} for call in calls]
            messages += [{"role": "assistant", "content": blocks(message)}, {"role": "user", "content": results}]
        raise AssertionError("the loop has no end")

    @each_shape
    def test_by_hand(self, shape: str) -> None:
        with client(BASES[shape]) as asking:

            def streamed(request: dict[str, Any]) -> Any:
                with asking.messages.stream(**request) as stream:
                    return stream.get_final_message()

            self.check(self.by_hand(lambda request: asking.messages.create(**request)), shape)
            self.check(self.by_hand(streamed), shape)

    @each_shape
    def test_by_the_runner(self, shape: str) -> None:
        tools = [beta_tool(weather, name="get_weather"), beta_tool(time, name="get_time")]
        request: Any = {"model": "loop", "max_tokens": 3000, "messages": ASK, "tools": tools, "thinking": THINKING}
        with client(BASES[shape]) as asking:
            self.check(asking.beta.messages.tool_runner(**request).until_done(), shape)
            last: Any = None
            for stream in asking.beta.messages.tool_runner(stream=True, **request):
                last = stream.get_final_message()
            self.check(last, shape)

    @each_shape
    async def test_by_the_asynchronous_runner(self, shape: str) -> None:
        async def soon(city: str) -> str:
            return weather(city)

        async def now(zone: str) -> str:
            return time(zone)

        tools = [beta_async_tool(soon, name="get_weather"), beta_async_tool(now, name="get_time")]
        request: Any = {"model": "loop", "max_tokens": 3000, "messages": ASK, "tools": tools, "thinking": THINKING}
        async with async_client(BASES[shape]) as asking:
            self.check(await asking.beta.messages.tool_runner(**request).until_done(), shape)


if __name__ == "__main__":
    unittest.main()
