"""Anthropic's Messages through anthropic for Python: whole messages, raw events, the `stream` helper."""

from __future__ import annotations

import asyncio
import base64
import json
import unittest
from typing import Any, Iterable

from anthropic import BadRequestError, NotFoundError
from anthropic.types import ErrorResponse, Message, ModelInfo, RawMessageStreamEvent
from messages_ground import ASK, BASES, PATIENT, REQUEST, TEXT, THOUGHT, TOOLS, async_client, client, each_shape, essence, heard, text_of
from pydantic import BaseModel, TypeAdapter, ValidationError

# `usage` of shapes.py: 41 tokens of the prompt, 8 of them from the cache; 5 of the answer are thinking.
COUNTED = {
    "input_tokens": 33,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 8,
    "output_tokens": 19,
    "output_tokens_details": {"thinking_tokens": 5},
}
# Scripts of messages.py that end an answer each in its own way.
PLAYED = ("thinks", "thinks-and-calls", "without-input", "at-limit", "at-stop", "filtered", "says-nothing")
PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()


class Person(BaseModel):
    name: str
    born: int


class Whole(unittest.TestCase):
    @each_shape
    def test_each_member(self, shape: str) -> None:
        with client(BASES[shape]) as asking:
            message = asking.messages.create(model="thinks", **REQUEST)
        self.assertRegex(message.id, "^msg_")
        self.assertEqual((message.type, message.role, message.model), ("message", "assistant", "thinks"))
        self.assertEqual((message.stop_reason, message.stop_sequence, message.stop_details), ("end_turn", None, None))
        self.assertEqual([block.type for block in message.content], ["thinking", "text"])
        self.assertEqual((message.content[0].thinking, message.content[1].text), (THOUGHT, TEXT))
        self.assertTrue(message.content[0].signature)
        self.assertEqual(message.usage.to_dict(), COUNTED)

    @each_shape
    def test_stop_reasons(self, shape: str) -> None:
        expected = {
            "at-limit": ("max_tokens", None, TEXT),
            "thinks-to-limit": ("max_tokens", None, ""),
            "at-stop": ("stop_sequence", "END", TEXT),
            # The engine tells of every token at which it stops, also of those that no request named.
            "at-own-stop": ("end_turn", None, TEXT),
            "filtered": ("refusal", None, TEXT),
            "refusal": ("refusal", None, "I cannot help with that."),
            "says-nothing": ("end_turn", None, ""),
        }
        with client(BASES[shape]) as asking:
            for model, told in expected.items():
                # The engine has written 19 tokens, which is the limit.
                request: Any = {"model": model, "messages": ASK, "max_tokens": 19, "stop_sequences": ["END"]}
                with self.subTest(model=model, stream=False):
                    message = asking.messages.create(**request)
                    self.assertEqual((message.stop_reason, message.stop_sequence, text_of(message)), told)
                with self.subTest(model=model, stream=True), asking.messages.stream(**request) as stream:
                    message = stream.get_final_message()
                    self.assertEqual((message.stop_reason, message.stop_sequence, text_of(message)), told)

    @each_shape
    def test_a_context_that_is_full(self, shape: str) -> None:
        """The engine ended before the requested limit, hence at its own."""
        with client(BASES[shape]) as asking:
            message = asking.messages.create(model="at-limit", **REQUEST)
        self.assertEqual(message.stop_reason, "model_context_window_exceeded")


class Requests(unittest.TestCase):
    @each_shape
    def test_settings(self, shape: str) -> None:
        with client(BASES[shape]) as asking:
            message = asking.messages.create(
                model="heard",
                system=[
                    {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
                    {"type": "text", "text": "Be kind."},
                ],
                # The newest models do not take them, nor does the library's method; engines do.
                extra_body={"temperature": 0.5, "top_p": 0.9, "top_k": 40},
                stop_sequences=["END"],
                metadata={"user_id": "someone"},
                output_config={"effort": "high"},
                **REQUEST,
            )
        body = heard(message)
        self.assertEqual(body["messages"], [{"role": "system", "content": "Be brief.\nBe kind."}, *ASK])
        self.assertEqual((body["temperature"], body["top_p"], body["top_k"], body["stop"]), (0.5, 0.9, 40, ["END"]))
        self.assertEqual((body["user"], body["reasoning_effort"]), ("someone", "high"))
        self.assertEqual(body.get("max_completion_tokens", body.get("max_tokens")), 1024)
        self.assertNotIn("cache_control", message.to_json())

    @each_shape
    def test_images(self, shape: str) -> None:
        content: Any = [
            {"type": "text", "text": "What is it?"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}},
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        ]
        with client(BASES[shape]) as asking:
            message = asking.messages.create(model="heard", max_tokens=1024, messages=[{"role": "user", "content": content}])
        (said,) = heard(message)["messages"]
        self.assertEqual([part["type"] for part in said["content"]], ["text", "image_url", "image_url"])
        addresses = [part["image_url"]["url"] for part in said["content"][1:]]
        self.assertEqual(addresses, [f"data:image/png;base64,{PICTURE}", "https://example.com/a.png"])

    @each_shape
    def test_structured_output(self, shape: str) -> None:
        with client(BASES[shape]) as asking:
            parsed = asking.messages.parse(model="person", output_format=Person, **REQUEST)
            self.assertEqual(parsed.parsed_output, Person(name="Ada", born=1815))
            with asking.messages.stream(model="person", output_format=Person, **REQUEST) as stream:
                self.assertEqual(stream.get_final_message().parsed_output, Person(name="Ada", born=1815))
            schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"], "additionalProperties": False}
            config: Any = {"format": {"type": "json_schema", "schema": schema}}
            format = heard(asking.messages.create(model="heard", output_config=config, **REQUEST))["response_format"]
            old = heard(asking.messages.create(model="heard", extra_body={"output_format": config["format"]}, **REQUEST))
            beta = asking.beta.messages.parse(model="person", output_format=Person, **REQUEST)
        self.assertEqual((format["type"], format["json_schema"]["schema"]), ("json_schema", schema))
        self.assertEqual(old["response_format"], format)
        self.assertEqual(beta.parsed_output, Person(name="Ada", born=1815))

    @each_shape
    def test_documents(self, shape: str) -> None:
        def asked(source: Any) -> Any:
            content = [{"type": "document", "title": "Minutes", "source": source}, {"type": "text", "text": "Sum up."}]
            return {"max_tokens": 1024, "messages": [{"role": "user", "content": content}]}

        with client(BASES[shape]) as asking:
            text = asked({"type": "text", "media_type": "text/plain", "data": "All agreed."})
            (said,) = heard(asking.messages.create(model="heard", **text))["messages"]
            self.assertEqual(said["content"], "Minutes\nAll agreed.\nSum up.")
            pdf = asked({"type": "base64", "media_type": "application/pdf", "data": PICTURE})
            with self.assertRaises(BadRequestError) as raised:
                asking.messages.create(model="heard", **pdf)
        error: Any = raised.exception
        self.assertTrue(error.api_message.startswith("messages.0.content.0."), error.api_message)


def grammar(case: unittest.TestCase, events: Iterable[RawMessageStreamEvent]) -> list[str]:
    """Checks the order of the events; the kinds of the blocks."""
    kinds: list[str] = []
    is_open = False
    first, *middle, delta, stop = events
    case.assertEqual((first.type, delta.type, stop.type), ("message_start", "message_delta", "message_stop"))
    for event in middle:
        if event.type == "content_block_start":
            case.assertFalse(is_open, "a block begins in another")
            case.assertEqual(event.index, len(kinds))
            kinds.append(event.content_block.type)
            is_open = True
            continue
        case.assertIn(event.type, ("content_block_delta", "content_block_stop"))
        case.assertEqual((is_open, event.index), (True, len(kinds) - 1))
        is_open = event.type == "content_block_delta"
    case.assertFalse(is_open, "a block has no end")
    return kinds


class Streams(unittest.TestCase):
    @each_shape
    def test_raw_events(self, shape: str) -> None:
        with client(BASES[shape]) as asking:
            events = list(asking.messages.create(model="thinks-and-calls", tools=TOOLS, stream=True, **REQUEST))
        self.assertEqual(grammar(self, events), ["thinking", "text", "tool_use", "tool_use"])
        start, end = events[0].message, events[-2]
        self.assertEqual((start.content, start.stop_reason, start.usage.output_tokens), ([], None, 0))
        # The engine has not told yet how long the prompt is.
        self.assertEqual(start.usage.input_tokens, 0)
        self.assertEqual((end.delta.stop_reason, end.usage.to_dict()), ("tool_use", COUNTED))
        deltas = [event.delta.type for event in events if event.type == "content_block_delta"]
        self.assertEqual(deltas[:4], ["thinking_delta"] * 3 + ["signature_delta"])

    @each_shape
    def test_the_stream_helper(self, shape: str) -> None:
        with client(BASES[shape]) as asking:
            with asking.messages.stream(model="thinks", **REQUEST) as stream:
                self.assertEqual("".join(stream.text_stream), TEXT)
                self.assertEqual(stream.get_final_text(), TEXT)
                self.assertTrue(stream.request_id)
                message = stream.get_final_message()
            self.assertEqual(message.usage.output_tokens, 19)
            with asking.messages.stream(model="thinks", **REQUEST) as stream:
                seen = list(stream)
        self.assertEqual("".join(event.thinking for event in seen if event.type == "thinking"), THOUGHT)
        self.assertEqual([event.snapshot for event in seen if event.type == "text"][-1], TEXT)
        self.assertEqual(essence(seen[-1].message), essence(message))

    def test_all_ways_and_both_engines_give_one_message(self) -> None:
        for model in ("thinks", "thinks-and-calls", "at-limit", "without-input"):
            found = []
            for base in BASES.values():
                with client(base) as asking:
                    request: Any = {"model": model, "tools": TOOLS, **REQUEST}
                    found.append(essence(asking.messages.create(**request)))
                    with asking.messages.stream(**request) as stream:
                        found.append(essence(stream.get_final_message()))
            with self.subTest(model=model):
                self.assertEqual(found[1:], found[:1] * 3)

    def test_pings_while_the_engine_is_silent(self) -> None:
        request: Any = {"model": "slow-to-speak", **REQUEST}

        async def names(asking: Any) -> list[str]:
            async with asking.messages.with_streaming_response.create(stream=True, **request) as response:
                return [line.removeprefix("event: ") async for line in response.iter_lines() if line.startswith("event: ")]

        async def text(asking: Any) -> str:
            async with asking.messages.stream(**request) as stream:
                return await stream.get_final_text()

        async def both() -> tuple[list[str], str]:
            async with async_client(PATIENT) as asking:
                return await asyncio.gather(names(asking), text(asking))

        seen, said = asyncio.run(both())
        self.check_pings(seen)
        self.assertEqual(said, "Slow, but sure.")

    def check_pings(self, names: list[str]) -> None:
        start, stop = names.index("content_block_delta"), names.index("message_stop")
        self.assertIn("ping", names[:start])
        self.assertIn("ping", names[start:stop])
        self.assertEqual(names[-1], "message_stop")


class Types(unittest.TestCase):
    """The library reads leniently: what it is sent is held against its types here."""

    @each_shape
    def test_answers_have_the_types_of_the_library(self, shape: str) -> None:
        events: Any = TypeAdapter(RawMessageStreamEvent)
        with client(BASES[shape]) as asking:
            for model in (*PLAYED, "refusal", "text"):
                request: Any = {"model": model, "tools": TOOLS, "stop_sequences": ["END"], **REQUEST}
                with self.subTest(model=model):
                    Message.model_validate_json(asking.messages.with_raw_response.create(**request).text())
                    with asking.messages.with_streaming_response.create(stream=True, **request) as response:
                        sent = [json.loads(line.removeprefix("data: ")) for line in response.iter_lines() if line.startswith("data: ")]
                    self.assertGreater(len(sent), 2)
                    for event in sent:
                        events.validate_python(event)
            ModelInfo.model_validate_json(asking.models.with_raw_response.retrieve("text").text())
            with self.assertRaises(NotFoundError) as raised:
                asking.models.retrieve("nope")
            ErrorResponse.model_validate(raised.exception.body)

    def test_they_would_notice(self) -> None:
        """A member that is missing, and a word that is none."""
        with client(BASES["vllm"]) as asking:
            told = json.loads(asking.messages.with_raw_response.create(model="text", **REQUEST).text())
        for wrong in ({key: value for key, value in told.items() if key != "usage"}, {**told, "stop_reason": "stop"}):
            with self.assertRaises(ValidationError):
                Message.model_validate(wrong)


class Async(unittest.TestCase):
    @each_shape
    async def test_whole_and_streamed(self, shape: str) -> None:
        async with async_client(BASES[shape]) as asking:
            whole = await asking.messages.create(model="thinks", **REQUEST)
            async with asking.messages.stream(model="thinks", **REQUEST) as stream:
                text = "".join([piece async for piece in stream.text_stream])
                streamed = await stream.get_final_message()
            raw = [event async for event in await asking.messages.create(model="thinks", stream=True, **REQUEST)]
            parsed = await asking.messages.parse(model="person", output_format=Person, **REQUEST)
        self.assertEqual((text, essence(streamed)), (TEXT, essence(whole)))
        self.assertEqual(grammar(self, raw), ["thinking", "text"])
        self.assertEqual(parsed.parsed_output, Person(name="Ada", born=1815))


if __name__ == "__main__":
    unittest.main()
