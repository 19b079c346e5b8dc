"""Chat Completions through openai for Python: raw chunks, the `stream` helper, whole answers."""

from __future__ import annotations

import json
import unittest
from typing import Any

import openai
from pydantic import BaseModel

from ground import ASK, SCRIPTED, SETTINGS, TIME, TOOLS, USAGE, WEATHER, Read, client, essence, extra

COUNTED = {
    "prompt_tokens": 11,
    "completion_tokens": 7,
    "total_tokens": 18,
    "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 0,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}


class Person(BaseModel):
    name: str
    born: int


class RawChunks(unittest.TestCase):
    """`create(stream=True)`, each chunk looked at."""

    def setUp(self) -> None:
        self.client = client()
        self.addCleanup(self.client.close)

    def read(self, model: str, **more: Any) -> Read:
        return Read(self.client.chat.completions.create(model=model, messages=ASK, stream=True, **more))

    def test_text_arrives_once_and_ends(self) -> None:
        read = self.read("text")
        self.assertEqual(read.text(), "Grüße, wörld \U0001f30d\u2028.")
        self.assertEqual(read.finishes(), ["stop"])
        self.assertEqual([delta.role for delta in read.deltas() if delta.role], ["assistant"])
        self.assertEqual(read.deltas()[0].role, "assistant")
        self.assertIsNone(read.deltas()[0].content, "the role frame opens no text part")
        self.assertEqual(read.chunks[-1].choices[0].delta.model_fields_set, set(), "the finish frame carries nothing else")

    def test_envelope_is_the_same_in_each_chunk(self) -> None:
        envelopes = {(chunk.id, chunk.object, chunk.created, chunk.model) for chunk in self.read("text").chunks}
        self.assertEqual(envelopes, {("chatcmpl-text", "chat.completion.chunk", 1_700_000_000, "text")})

    def test_reasoning_then_text(self) -> None:
        read = self.read("reasoning")
        self.assertEqual((read.reasoning(), read.text()), ("Let me think.", "Four."))
        self.assertEqual(read.finishes(), ["stop"])
        kinds = [next(iter(delta.to_dict())) for delta in read.deltas() if delta.to_dict()]
        self.assertEqual(kinds, ["role", "reasoning_content", "reasoning_content", "content", "content"])
        for delta in (delta.to_dict() for delta in read.deltas()):
            self.assertEqual(delta.pop("reasoning", None), delta.get("reasoning_content"))
            self.assertLessEqual(len(delta), 1)

    def test_one_tool_call(self) -> None:
        read = self.read("tool", tools=TOOLS)
        (call,) = read.calls()
        self.assertEqual((call["id"], call["type"], call["name"]), ("call_aa11", "function", "get_weather"))
        self.assertEqual(json.loads(call["arguments"]), WEATHER)
        self.assertEqual(read.finishes(), ["tool_calls"])
        self.assertIsNone(read.deltas()[0].content)

    def test_two_calls_in_one_delta(self) -> None:
        read = self.read("tool-parallel", tools=TOOLS)
        self.assertEqual(read.text(), "Looking.")
        self.check_both_calls(read)

    def test_engine_index_gaps_and_repeats(self) -> None:
        self.check_both_calls(self.read("tool-gaps", tools=TOOLS))

    def check_both_calls(self, read: Read) -> None:
        calls = read.calls()
        self.assertEqual([(call["id"], call["name"]) for call in calls], [("call_first", "get_weather"), ("call_second", "get_time")])
        self.assertEqual([json.loads(call["arguments"]) for call in calls], [WEATHER, TIME])
        self.assertTrue(all(len(delta.tool_calls or []) <= 1 for delta in read.deltas()))
        self.assertEqual(read.finishes(), ["tool_calls"])

    def test_arguments_sent_as_object(self) -> None:
        (call,) = self.read("tool-object-arguments", tools=TOOLS).calls()
        self.assertEqual((call["id"], call["name"]), ("call_object", "get_weather"))
        self.assertEqual(call["arguments"], '{"city":"Zürich","days":3}')

    def test_name_after_the_arguments(self) -> None:
        read = self.read("tool-late-name", tools=TOOLS)
        (call,) = read.calls()
        self.assertEqual((call["id"], call["name"]), ("call_late", "get_weather"))
        self.assertEqual(json.loads(call["arguments"]), WEATHER)
        header = next(delta.tool_calls[0] for delta in read.deltas() if delta.tool_calls)
        self.assertEqual(header.function.name, "get_weather", "the first delta of a call names it")

    def test_two_choices_that_start_with_the_second(self) -> None:
        read = self.read("n2", n=2)
        self.assertEqual((read.text(0), read.text(1)), ("first answer", "second answer"))
        self.assertEqual((read.finishes(0), read.finishes(1)), (["stop"], ["stop"]))
        roles = [choice.index for chunk in read.chunks for choice in chunk.choices if choice.delta.role]
        self.assertEqual(roles, [0, 1])
        self.assertTrue(all(len(chunk.choices) == 1 for chunk in read.chunks))

    def test_refusal(self) -> None:
        read = self.read("refusal")
        self.assertEqual((read.refusal(), read.text()), ("I cannot help with that.", ""))

    def test_logprobs_keep_tokens_without_text(self) -> None:
        read = self.read("logprobs", logprobs=True, top_logprobs=1)
        self.assertEqual([entry.token for entry in read.logprobs()], ["Yes", "\ufffd", "!"])
        self.assertEqual([entry.top_logprobs[0].logprob for entry in read.logprobs()], [-0.25, -1.5, -0.5])
        self.assertEqual(read.text(), "Yes!")

    def test_logprobs_only_for_who_asked(self) -> None:
        self.assertEqual(self.read("logprobs").logprobs(), [])


class Usage(unittest.TestCase):
    """Usage is on the last chunk for a client that requests it, and nowhere for others."""

    def setUp(self) -> None:
        self.client = client()
        self.addCleanup(self.client.close)

    def chunks(self, model: str, **more: Any) -> list[Any]:
        return Read(self.client.chat.completions.create(model=model, messages=ASK, stream=True, **more)).chunks

    def test_asked_for(self) -> None:
        for model in ("text", "usage-on-finish"):
            with self.subTest(model=model):
                chunks = self.chunks(model, stream_options=USAGE)
                self.assertTrue(all("usage" in chunk.model_fields_set for chunk in chunks))
                self.assertTrue(all(chunk.usage is None for chunk in chunks[:-1]))
                self.assertEqual(chunks[-1].choices, [])
                self.assertEqual(chunks[-1].usage.to_dict(), COUNTED)

    def test_not_asked_for(self) -> None:
        for model in ("text", "usage-on-finish"):
            with self.subTest(model=model):
                chunks = self.chunks(model)
                self.assertTrue(all("usage" not in chunk.model_fields_set for chunk in chunks))
                self.assertTrue(all(len(chunk.choices) == 1 for chunk in chunks))

    def test_details_of_the_engine(self) -> None:
        usage = self.chunks("reasoning", stream_options=USAGE)[-1].usage
        self.assertEqual(usage.prompt_tokens_details.cached_tokens, 8)
        self.assertEqual(usage.completion_tokens_details.reasoning_tokens, 4)

    def test_asked_for_and_never_received_is_not_made_up(self) -> None:
        chunks = self.chunks("no-usage", stream_options=USAGE)
        self.assertTrue(all(chunk.usage is None and chunk.choices for chunk in chunks))


class Helper(unittest.TestCase):
    """`chat.completions.stream()`, its events and what it has put together at the end."""

    def setUp(self) -> None:
        self.client = client()
        self.addCleanup(self.client.close)

    def test_put_together_equals_the_whole_answer(self) -> None:
        requests: dict[str, dict[str, Any]] = {
            "text": {},
            "reasoning": {},
            "tool": {"tools": TOOLS},
            "tool-parallel": {"tools": TOOLS},
            "tool-gaps": {"tools": TOOLS},
            "tool-object-arguments": {"tools": TOOLS},
            "tool-late-name": {"tools": TOOLS},
            "n2": {"n": 2},
            "refusal": {},
            "logprobs": {"logprobs": True, "top_logprobs": 1},
            "schema": {},
            "usage-on-finish": {},
            "no-usage": {},
        }
        for model, request in requests.items():
            with self.subTest(model=model):
                with self.client.chat.completions.stream(model=model, messages=ASK, stream_options=USAGE, **request) as stream:
                    streamed = stream.get_final_completion()
                whole = self.client.chat.completions.create(model=model, messages=ASK, **request)
                self.assertEqual(essence(streamed), essence(whole))

    def test_events_of_a_tool_call(self) -> None:
        with self.client.chat.completions.stream(model="tool-parallel", messages=ASK, tools=TOOLS) as stream:
            events = [event for event in stream if event.type != "chunk"]
        content = [event for event in events if event.type.startswith("content.")]
        self.assertEqual([event.type for event in content], ["content.delta", "content.done"])
        done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
        self.assertEqual([(event.index, event.name) for event in done], [(0, "get_weather"), (1, "get_time")])
        self.assertEqual([json.loads(event.arguments) for event in done], [WEATHER, TIME])

    def test_no_text_part_is_opened_before_a_call(self) -> None:
        with self.client.chat.completions.stream(model="tool", messages=ASK, tools=TOOLS) as stream:
            types = [event.type for event in stream]
            final = stream.get_final_completion()
        self.assertNotIn("content.delta", types)
        self.assertIsNone(final.choices[0].message.content)

    def test_logprob_and_refusal_events(self) -> None:
        with self.client.chat.completions.stream(model="logprobs", messages=ASK, logprobs=True) as stream:
            tokens = [event.content[0].token for event in stream if event.type == "logprobs.content.delta"]
        self.assertEqual(tokens, ["Yes", "\ufffd", "!"])
        with self.client.chat.completions.stream(model="refusal", messages=ASK) as stream:
            (refusal,) = [event.refusal for event in stream if event.type == "refusal.done"]
        self.assertEqual(refusal, "I cannot help with that.")

    def test_answer_in_a_schema(self) -> None:
        with self.client.chat.completions.stream(model="schema", messages=ASK, response_format=Person) as stream:
            streamed = stream.get_final_completion().choices[0].message.parsed
        whole = self.client.chat.completions.parse(model="schema", messages=ASK, response_format=Person)
        self.assertEqual(streamed, Person(name="Ada", born=1815))
        self.assertEqual(whole.choices[0].message.parsed, Person(name="Ada", born=1815))

    def test_cut_by_the_limit_is_told_by_the_library(self) -> None:
        with self.assertRaises(openai.LengthFinishReasonError):
            with self.client.chat.completions.stream(model="limit", messages=ASK, response_format=Person) as stream:
                stream.until_done()


class Whole(unittest.TestCase):
    """Answers that are no stream."""

    def setUp(self) -> None:
        self.client = client()
        self.addCleanup(self.client.close)

    def test_engine_fields_are_gone(self) -> None:
        completion = self.client.chat.completions.create(model="reasoning", messages=ASK)
        message = completion.choices[0].message
        self.assertEqual(completion.model_extra, {})
        self.assertEqual(completion.choices[0].model_extra, {})
        self.assertEqual(message.model_extra, {"reasoning_content": "Let me think.", "reasoning": "Let me think."})
        self.assertEqual(extra(message, "reasoning_content"), "Let me think.")
        self.assertEqual(message.annotations, [])
        self.assertIsNone(completion.system_fingerprint)

    def test_request_id_is_on_the_answer(self) -> None:
        completion = self.client.chat.completions.create(model="text", messages=ASK, extra_headers={"x-request-id": "req-mine.1"})
        self.assertEqual(completion._request_id, "req-mine.1")
        self.assertRegex(self.client.chat.completions.create(model="text", messages=ASK)._request_id or "", "^req_[0-9a-f]{32}$")

    def test_headers_of_a_stream(self) -> None:
        answer = self.client.chat.completions.with_raw_response.create(model="text", messages=ASK, stream=True)
        self.assertEqual(answer.headers["content-type"], "text/event-stream; charset=utf-8")
        self.assertEqual(answer.headers["cache-control"], "no-cache")
        self.assertRegex(answer.headers["x-request-id"], "^req_[0-9a-f]{32}$")
        self.assertEqual(Read(answer.parse()).finishes(), ["stop"])

    def test_the_key_reaches_an_engine_that_wants_one(self) -> None:
        with client(api_key="sk-right") as right:
            answer = right.chat.completions.create(model="locked", messages=ASK)
        self.assertEqual(answer.choices[0].message.content, "Come in.")
        with self.assertRaises(openai.AuthenticationError) as raised:
            self.client.chat.completions.create(model="locked", messages=ASK)
        self.assertEqual((raised.exception.code, raised.exception.type), ("invalid_api_key", "invalid_request_error"))


class Asynchronous(unittest.IsolatedAsyncioTestCase):
    """The same bytes through the library's asynchronous half."""

    async def test_text_tool_and_error(self) -> None:
        async with openai.AsyncOpenAI(base_url=SCRIPTED, **SETTINGS) as asynchronous:
            create = asynchronous.chat.completions.create
            read = Read([chunk async for chunk in await create(model="text", messages=ASK, stream=True, stream_options=USAGE)])
            self.assertEqual(read.text(), "Grüße, wörld \U0001f30d\u2028.")
            self.assertEqual(read.chunks[-1].usage.to_dict(), COUNTED)  # type: ignore[union-attr]
            async with asynchronous.chat.completions.stream(model="tool", messages=ASK, tools=TOOLS, stream_options=USAGE) as stream:
                streamed = await stream.get_final_completion()
            self.assertEqual(essence(streamed), essence(await create(model="tool", messages=ASK)))
            pieces: list[str] = []
            with self.assertRaises(openai.APIError) as raised:
                async for chunk in await create(model="error-mid-stream", messages=ASK, stream=True):
                    pieces.append(chunk.choices[0].delta.content or "")
            self.assertEqual("".join(pieces), "Half an answer")
            self.assertEqual((raised.exception.message, raised.exception.code), ("CUDA out of memory", "internal_error"))
            with self.assertRaises(openai.RateLimitError):
                await create(model="status-429", messages=ASK, stream=True)


if __name__ == "__main__":
    unittest.main()
