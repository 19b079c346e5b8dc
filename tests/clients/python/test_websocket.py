"""The Responses API over a WebSocket, through openai for Python."""

from __future__ import annotations

import json
import unittest
from typing import Any

import openai
from openai.types.responses.responses_server_event import ResponseWsError

from ground import SCRIPTED, SETTINGS, TIME, WEATHER, client
from test_responses import GREETING, TOOLS

ENDS = {"response.completed", "response.incomplete", "response.failed"}


def response(connection: Any, model: str, **more: Any) -> list[Any]:
    """The events of one response, or the one that says why there is none."""
    connection.response.create(**{"model": model, "input": "Hello", **more})
    events: list[Any] = []
    for event in connection:
        events.append(event)
        if event.type in ENDS or event.type == "error" and event.sequence_number is None:
            return events
    raise AssertionError("the connection has ended")


class WebSocket(unittest.TestCase):
    def setUp(self) -> None:
        self.client = client()
        self.addCleanup(self.client.close)

    def test_one_after_the_other(self) -> None:
        with self.client.responses.connect() as connection:
            for model, text in (("stored-text", GREETING), ("stored-reasoning", "Four."), ("stored-limit", None)):
                with self.subTest(model=model):
                    events = response(connection, model)
                    self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
                    self.assertEqual((events[0].type, events[1].type), ("response.created", "response.in_progress"))
                    final = events[-1].response
                    if text is not None:
                        deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
                        self.assertEqual((deltas, final.output_text), (text, text))
                    stored = self.client.responses.retrieve(final.id)
                    self.assertEqual(stored.to_dict(), final.to_dict())

    def test_tools_without_a_store(self) -> None:
        arguments = {"get_weather": WEATHER, "get_time": TIME}
        answers = {"get_weather": "rain", "get_time": "noon"}
        with self.client.responses.connect() as connection:
            first = response(connection, "agent", tools=TOOLS, store=False)[-1].response
            calls = [item for item in first.output if item.type == "function_call"]
            self.assertEqual([json.loads(call.arguments) for call in calls], [arguments[call.name] for call in calls])
            outputs = [{"type": "function_call_output", "call_id": call.call_id, "output": answers[call.name]} for call in calls]
            second = response(connection, "agent", tools=TOOLS, store=False, previous_response_id=first.id, input=outputs)[-1]
            self.assertEqual(second.response.output_text, "rain and noon")
            third = response(connection, "echo", store=False, previous_response_id=second.response.id, input="And?")[-1]
            roles = [message["role"] for message in json.loads(third.response.output_text)]
            self.assertEqual(roles, ["user", "assistant", "tool", "tool", "assistant", "user"])
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve(first.id)

    def test_nothing_generated_yet(self) -> None:
        with self.client.responses.connect() as connection:
            noted = response(connection, "echo", generate=False, store=False)[-1].response
            self.assertEqual((noted.status, noted.output, noted.usage), ("completed", [], None))
            said = response(connection, "echo", previous_response_id=noted.id, input="And?")[-1].response
            self.assertEqual([message["content"] for message in json.loads(said.output_text)], ["Hello", "And?"])

    def test_errors(self) -> None:
        with self.client.responses.connect() as connection:
            for more, status, code, param in (
                ({"temperature": "warm"}, 400, "invalid_value", "temperature"),
                ({"stream": True}, 400, "unsupported_parameter", "stream"),
                ({"previous_response_id": "resp_none"}, 400, "previous_response_not_found", "previous_response_id"),
            ):
                (error,) = response(connection, "stored-text", **more)
                self.assertIsInstance(error, ResponseWsError)
                self.assertEqual((error.status, error.error.code, error.error.param), (status, code, param))
            (failed,) = response(connection, "status-429")
            self.assertEqual((failed.status, failed.error.code), (429, "rate_limit_exceeded"))
            self.assertEqual(response(connection, "stored-text")[-1].response.output_text, GREETING)

    def test_an_error_in_a_response(self) -> None:
        with self.client.responses.connect() as connection:
            events = response(connection, "cut")
            self.assertEqual([event.type for event in events[-2:]], ["error", "response.failed"])
            self.assertEqual(events[-2].error.code, "upstream_incomplete")
            self.assertEqual(response(connection, "stored-text")[-1].response.output_text, GREETING)


class Async(unittest.IsolatedAsyncioTestCase):
    async def test_many_wait_for_their_turn(self) -> None:
        async with openai.AsyncOpenAI(base_url=SCRIPTED, **SETTINGS) as asynchronous:
            async with asynchronous.responses.connect() as connection:
                for n in range(10):
                    await connection.response.create(model="stored-text", input="Hello", metadata={"n": str(n)})
                ended: list[str] = []
                async for event in connection:
                    if event.type == "response.completed":
                        ended.append(event.response.metadata["n"])
                        if len(ended) == 10:
                            break
                self.assertEqual(ended, [str(n) for n in range(10)])


if __name__ == "__main__":
    unittest.main()
