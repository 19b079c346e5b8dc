"""The Responses API through openai for Python: whole, in events, by its helpers, stored, continued, in conversations."""

from __future__ import annotations

import json
import unittest
from typing import Any

import openai
import pydantic

from ground import SCRIPTED, SETTINGS, TIME, WEATHER, client
from test_errors import BEFORE

TOOLS: list[Any] = [
    {"type": "function", "name": name, "parameters": {"type": "object", "properties": {key: {"type": "string"}}}}
    for name, key in (("get_weather", "city"), ("get_time", "zone"))
]
GREETING = "Grüße, wörld \U0001f30d\u2028."


class Person(pydantic.BaseModel):
    name: str
    born: int


class Responses(unittest.TestCase):
    def setUp(self) -> None:
        self.client = client()
        self.addCleanup(self.client.close)

    def create(self, model: str, **more: Any) -> Any:
        return self.client.responses.create(**{"model": model, "input": "Hello", **more})

    def test_whole(self) -> None:
        response = self.create("stored-text", metadata={"a": "b"}, temperature=1)
        self.assertEqual((response.output_text, response.status, response.object), (GREETING, "completed", "response"))
        self.assertEqual((response.metadata, response.temperature, response.store), ({"a": "b"}, 1.0, True))
        self.assertEqual((response.usage.input_tokens, response.usage.output_tokens), (11, 7))

    def test_streamed(self) -> None:
        with self.create("stored-reasoning", stream=True) as stream:
            events = list(stream)
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        self.assertEqual((events[0].type, events[1].type), ("response.created", "response.in_progress"))
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        thought = "".join(event.delta for event in events if event.type == "response.reasoning_text.delta")
        self.assertEqual((text, thought), ("Four.", "Let me think."))
        final = events[-1].response
        self.assertEqual((final.status, final.output_text), ("completed", "Four."))
        self.assertEqual([item.type for item in final.output], ["reasoning", "message"])
        self.assertEqual(final.usage.output_tokens_details.reasoning_tokens, 4)

    def test_stream_helper(self) -> None:
        for model in ("stored-text", "stored-reasoning", "stored-tool-parallel", "stored-refusal"):
            with self.subTest(model=model):
                with self.client.responses.stream(model=model, input="Hello", tools=TOOLS) as stream:
                    kinds = [event.type for event in stream]
                    final = stream.get_final_response()
                self.assertEqual(kinds[-1], "response.completed")
                stored = self.client.responses.retrieve(final.id)
                self.assertEqual([item.id for item in final.output], [item.id for item in stored.output])
                self.assertEqual(final.output_text, stored.output_text)
                self.assertEqual(final.usage, stored.usage)

    def test_limit(self) -> None:
        response = self.create("stored-limit")
        self.assertEqual((response.status, response.incomplete_details.reason), ("incomplete", "max_output_tokens"))
        events = list(self.create("stored-limit", stream=True))
        self.assertEqual(events[-1].type, "response.incomplete")

    def test_parsed(self) -> None:
        parsed = self.client.responses.parse(model="stored-schema", input="Who?", text_format=Person)
        self.assertEqual(parsed.output_parsed, Person(name="Ada", born=1815))
        with self.client.responses.stream(model="stored-schema", input="Who?", text_format=Person) as stream:
            stream.until_done()
            self.assertEqual(stream.get_final_response().output_parsed, Person(name="Ada", born=1815))

    def test_tools_over_turns(self) -> None:
        answers = {"get_weather": "rain", "get_time": "noon"}
        arguments = {"get_weather": WEATHER, "get_time": TIME}
        for stream in (False, True):
            with self.subTest(stream=stream):
                first = self.create("agent", tools=TOOLS, stream=stream)
                if stream:
                    first = list(first)[-1].response
                calls = [item for item in first.output if item.type == "function_call"]
                self.assertEqual([json.loads(call.arguments) for call in calls], [arguments[call.name] for call in calls])
                outputs = [
                    {"type": "function_call_output", "call_id": call.call_id, "output": answers[call.name]} for call in calls
                ]
                second = self.create("agent", tools=TOOLS, previous_response_id=first.id, input=outputs)
                self.assertEqual(second.output_text, "rain and noon")
                self.assertEqual(second.previous_response_id, first.id)
                third = self.create("echo", previous_response_id=second.id, input="And?")
                roles = [message["role"] for message in json.loads(third.output_text)]
                self.assertEqual(roles, ["user", "assistant", "tool", "tool", "assistant", "user"])

    def test_output_as_input(self) -> None:
        first = self.create("stored-reasoning", store=False, include=["reasoning.encrypted_content"])
        self.assertTrue(first.output[0].encrypted_content.startswith("swr1."))
        kept = [item.model_dump(exclude_none=True) for item in first.output]
        kept[0].pop("content")
        second = self.create("echo", store=False, input=[{"role": "user", "content": "Hello"}, *kept, {"role": "user", "content": "?"}])
        said = json.loads(second.output_text)
        self.assertEqual([message["role"] for message in said], ["user", "assistant", "user"])
        self.assertEqual((said[1]["reasoning"], said[1]["content"]), ("Let me think.", "Four."))

    def test_stored(self) -> None:
        made = self.create("stored-text", input=[{"role": "user", "content": f"n{n}"} for n in range(25)])
        self.assertEqual(self.client.responses.retrieve(made.id).to_dict(), made.to_dict())
        listed = list(self.client.responses.input_items.list(made.id, order="asc", limit=10))
        self.assertEqual([item.content[0].text for item in listed], [f"n{n}" for n in range(25)])
        with self.assertRaises(openai.BadRequestError) as raised:
            self.client.responses.cancel(made.id)
        self.assertIn("Cannot cancel a synchronous response.", raised.exception.message)
        self.client.responses.delete(made.id)
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve(made.id)
        with self.assertRaises(openai.BadRequestError) as refused:
            self.create("stored-text", previous_response_id=made.id)
        self.assertEqual(
            (refused.exception.code, refused.exception.param), ("previous_response_not_found", "previous_response_id")
        )

    def test_background(self) -> None:
        responses = self.client.responses
        made = self.create("stored-text", background=True)
        self.assertEqual((made.status, made.background, made.output), ("queued", True, []))
        while made.status in ("queued", "in_progress"):
            made = responses.retrieve(made.id)
        self.assertEqual((made.status, made.output_text), ("completed", GREETING))
        with responses.retrieve(made.id, stream=True) as stream:
            events = list(stream)
        self.assertEqual([event.type for event in events[:3]], ["response.created", "response.queued", "response.in_progress"])
        self.assertEqual(events[-1].response.output_text, GREETING)
        # Read again from the middle; what has ended is not cancelled.
        with responses.retrieve(made.id, stream=True, starting_after=4) as stream:
            self.assertEqual([event.sequence_number for event in stream], list(range(5, len(events))))
        self.assertEqual(responses.cancel(made.id).status, "completed")

    def test_background_resumed_and_cancelled(self) -> None:
        responses = self.client.responses
        seen = []
        # The connection of the client is lost; the response continues.
        with self.create("slow", background=True, stream=True) as stream:
            for event in stream:
                seen.append(event)
                if event.type == "response.output_text.delta":
                    break
        id = seen[0].response.id
        with responses.retrieve(id, stream=True, starting_after=seen[-1].sequence_number) as stream:
            for event in stream:
                self.assertEqual(event.sequence_number, seen[-1].sequence_number + 1)
                seen.append(event)
                if len(seen) > 12:
                    break
        text = "".join(event.delta for event in seen if event.type == "response.output_text.delta")
        self.assertTrue("0 1 2 3 4 ".startswith(text[:10]) and len(text) > 6, text)
        ended = responses.cancel(id)
        self.assertEqual(ended.status, "cancelled")
        self.assertEqual(responses.cancel(id).to_dict(), ended.to_dict())
        self.assertEqual(responses.retrieve(id).status, "cancelled")


class Conversations(unittest.TestCase):
    def setUp(self) -> None:
        self.client = client()
        self.addCleanup(self.client.close)

    def test_lives(self) -> None:
        conversations = self.client.conversations
        made = conversations.create(metadata={"a": "b"}, items=[{"role": "user", "content": "Hello"}])
        self.assertEqual((made.object, made.metadata), ("conversation", {"a": "b"}))
        self.assertEqual(conversations.retrieve(made.id), made)
        changed = conversations.update(made.id, metadata={"c": "d"})
        self.assertEqual((changed.id, changed.created_at, changed.metadata), (made.id, made.created_at, {"c": "d"}))
        deleted = conversations.delete(made.id)
        self.assertEqual((deleted.id, deleted.object, deleted.deleted), (made.id, "conversation.deleted", True))
        for gone in (
            lambda: conversations.retrieve(made.id),
            lambda: conversations.delete(made.id),
            lambda: conversations.items.list(made.id),
            lambda: self.client.responses.create(model="echo", input="?", conversation=made.id),
        ):
            with self.assertRaises(openai.NotFoundError) as raised:
                gone()
            self.assertIn(f"Conversation with id '{made.id}' not found.", raised.exception.message)
        with self.assertRaises(openai.BadRequestError) as refused:
            conversations.create(metadata={"a": "b" * 513})
        self.assertEqual((refused.exception.code, refused.exception.param), ("invalid_value", "metadata.a"))

    def test_items(self) -> None:
        made = self.client.conversations.create()
        items = self.client.conversations.items
        for start in (0, 15):
            added = items.create(made.id, items=[{"role": "user", "content": f"n{n}"} for n in range(start, start + 15)])
            self.assertEqual((len(added.data), added.has_more, added.last_id), (15, False, added.data[-1].id))
        listed = list(items.list(made.id, order="asc", limit=7, include=["message.input_image.image_url"]))
        self.assertEqual([item.content[0].text for item in listed], [f"n{n}" for n in range(30)])
        self.assertEqual({(item.type, item.status, item.role) for item in listed}, {("message", "completed", "user")})
        self.assertEqual([item.content[0].text for item in items.list(made.id, limit=2).data], ["n29", "n28"])
        item = items.retrieve(listed[3].id, conversation_id=made.id)
        self.assertEqual(item, listed[3])
        self.assertEqual(items.delete(item.id, conversation_id=made.id).id, made.id)
        with self.assertRaises(openai.NotFoundError):
            items.retrieve(item.id, conversation_id=made.id)
        with self.assertRaises(openai.BadRequestError) as refused:
            items.create(made.id, items=[{"role": "user", "content": "x"}] * 21)
        self.assertEqual(refused.exception.param, "items")

    def test_responses_in_it(self) -> None:
        made = self.client.conversations.create(items=[{"role": "system", "content": "Be brief."}])
        create = self.client.responses.create
        first = create(model="stored-tool-parallel", input="Both?", conversation=made.id, tools=TOOLS)
        self.assertEqual(first.conversation.id, made.id)
        calls = [item for item in first.output if item.type == "function_call"]
        outputs: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": call.name} for call in calls]
        with create(model="agent", input=outputs, conversation={"id": made.id}, tools=TOOLS, stream=True) as stream:
            last = list(stream)[-1].response
        self.assertEqual((last.conversation.id, last.output_text), (made.id, "get_weather and get_time"))
        created = create(model="stored-text", input="And?", conversation=made.id, background=True)
        self.assertEqual(list(self.client.responses.retrieve(created.id, stream=True))[-1].response.output_text, GREETING)
        echoed = create(model="echo", input="?", conversation=made.id, store=False)
        roles = [message["role"] for message in json.loads(echoed.output_text)]
        self.assertEqual(roles, ["system", "user", "assistant", "tool", "tool", "assistant", "user", "assistant", "user"])
        kept = list(self.client.conversations.items.list(made.id, order="asc"))
        kinds = [item.type for item in kept if item.type != "message"]
        self.assertEqual(kinds, ["function_call"] * 2 + ["function_call_output"] * 2)
        self.assertEqual((kept[-1].id, kept[-1].content[0].text), (echoed.output[0].id, echoed.output_text))
        self.assertEqual(self.client.responses.retrieve(last.id).conversation.id, made.id)


class Errors(unittest.TestCase):
    def setUp(self) -> None:
        self.client = client()
        self.addCleanup(self.client.close)

    def test_before_the_stream(self) -> None:
        for key, (exception, status, kind, code, param, message) in BEFORE.items():
            for model, stream in ((f"status-{key}", False), (f"status-{key}", True), (f"event-{key}", True)):
                with self.subTest(model=model, stream=stream), self.assertRaises(exception) as raised:
                    self.client.responses.create(model=model, input="Hello", stream=stream)
                error: Any = raised.exception
                self.assertEqual((error.status_code, error.type, error.code, error.param), (status, kind, code, param))
                self.assertIn(message, error.message)

    def test_inside_the_stream(self) -> None:
        for model in ("error-mid-stream", "error-flat", "cut", "reset", "no-finish", "garbage"):
            with self.subTest(model=model):
                events: list[Any] = []
                with self.assertRaises(openai.APIError) as raised:
                    for event in self.client.responses.create(model=model, input="Hello", stream=True, store=False):
                        events.append(event)
                self.assertNotIsInstance(raised.exception, openai.APIStatusError)
                deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
                self.assertEqual("".join(deltas), "Half an answer")
                with self.assertRaises(openai.APIError):
                    with self.client.responses.stream(model=model, input="Hello", store=False) as stream:
                        stream.get_final_response()


class Azure(unittest.TestCase):
    def test_responses(self) -> None:
        endpoint = SCRIPTED.removesuffix("/v1")
        with openai.AzureOpenAI(azure_endpoint=endpoint, api_version="2025-04-01-preview", **SETTINGS) as azure:
            made = azure.responses.create(model="stored-text", input="Hello")
            self.assertEqual(made.output_text, GREETING)
            self.assertEqual(azure.responses.retrieve(made.id).output_text, GREETING)
            events = list(azure.responses.create(model="stored-text", input="Hello", previous_response_id=made.id, stream=True))
            self.assertEqual(events[-1].response.output_text, GREETING)
            azure.responses.delete(made.id)
            talk = azure.conversations.create(items=[{"role": "user", "content": "Hello"}])
            self.assertEqual(azure.responses.create(model="stored-text", conversation=talk.id).output_text, GREETING)
            self.assertEqual(len(azure.conversations.items.list(talk.id).data), 2)
            self.assertTrue(azure.conversations.delete(talk.id).deleted)


if __name__ == "__main__":
    unittest.main()
