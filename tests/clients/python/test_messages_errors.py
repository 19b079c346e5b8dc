"""Failures of Anthropic's Messages: the right exception, with what a caller needs in it, at the right time."""

from __future__ import annotations

import unittest
from typing import Any, Optional

import anthropic
from messages_ground import ASK, BASES, KEYED, REQUEST, TEXT, async_client, client, each_shape, text_of

# status of the engine -> exception, status, type, code, a piece of the message
BEFORE: dict[int, tuple[type[anthropic.APIStatusError], int, str, Optional[str], str]] = {
    400: (anthropic.BadRequestError, 400, "invalid_request_error", None, "temperature must be non-negative"),
    401: (anthropic.AuthenticationError, 401, "authentication_error", "invalid_api_key", "Invalid credentials"),
    403: (anthropic.PermissionDeniedError, 403, "permission_error", None, "Not for you"),
    404: (anthropic.NotFoundError, 404, "not_found_error", "model_not_found", "The model `nope` does not exist."),
    422: (anthropic.BadRequestError, 400, "invalid_request_error", None, "messages is too short"),
    429: (anthropic.RateLimitError, 429, "rate_limit_error", "rate_limit_exceeded", "The request queue is full."),
    500: (anthropic.InternalServerError, 500, "api_error", "internal_error", "EngineCore encountered an issue."),
    503: (anthropic.OverloadedError, 529, "overloaded_error", "server_is_overloaded", "Service is shutting down."),
}


class BeforeTheStream(unittest.TestCase):
    """Nothing has been sent: an HTTP status, hence a typed exception."""

    def failure(self, asking: Any, model: str, stream: bool, **more: Any) -> Any:
        with self.assertRaises(anthropic.APIStatusError) as raised:
            asking.messages.create(model=model, stream=stream, **{**REQUEST, **more})
        error: Any = raised.exception
        self.assertEqual((set(error.body), error.body["type"]), ({"type", "error", "request_id"}, "error"))
        self.assertTrue(error.request_id, "an error names its request")
        self.assertEqual(error.body["request_id"], error.request_id)
        self.assertEqual(error.response.headers["content-type"].partition(";")[0], "application/json")
        return error

    @each_shape
    def test_status_of_the_engine(self, shape: str) -> None:
        with client(BASES[shape]) as asking:
            for status, (exception, seen, kind, code, message) in BEFORE.items():
                for model, stream in ((f"status-{status}", False), (f"status-{status}", True), (f"event-{status}", True)):
                    with self.subTest(model=model, stream=stream):
                        error = self.failure(asking, model, stream)
                        self.assertIs(type(error), exception)
                        self.assertEqual((error.status_code, error.type, error.error_code), (seen, kind, code))
                        self.assertIn(message, error.api_message)

    @each_shape
    def test_retry_after(self, shape: str) -> None:
        with client(BASES[shape]) as asking:
            for model in ("status-429", "status-503"):
                with self.subTest(model=model):
                    self.assertEqual(self.failure(asking, model, True).response.headers["retry-after"], "7")

    @each_shape
    def test_a_prompt_that_is_too_long(self, shape: str) -> None:
        with client(BASES[shape]) as asking:
            error = self.failure(asking, "context-length", True)
        self.assertIs(type(error), anthropic.BadRequestError)
        self.assertEqual(error.api_message, "prompt is too long: 5000 tokens > 4096 maximum")

    @each_shape
    def test_requests_that_are_refused(self, shape: str) -> None:
        """The message begins with the path of the field."""
        asked: dict[str, dict[str, Any]] = {
            "temperature: ": {"extra_body": {"temperature": "warm"}},
            "messages: ": {"messages": []},
            "messages.0.content.0.": {"messages": [{"role": "user", "content": [{"type": "poem", "text": "x"}]}]},
            "tools.0.input_schema": {"tools": [{"name": "a"}]},
            "max_tokens: Field required": {"max_tokens": anthropic.omit},
        }
        with client(BASES[shape]) as asking:
            for message, more in asked.items():
                with self.subTest(message):
                    error = self.failure(asking, "text", False, **more)
                    self.assertIs(type(error), anthropic.BadRequestError)
                    self.assertEqual(error.api_message[: len(message)], message)

    @each_shape
    def test_answers_that_are_none(self, shape: str) -> None:
        with client(BASES[shape]) as asking:
            for model in ("html", "aborted", "tool-no-name"):
                with self.subTest(model=model):
                    error = self.failure(asking, model, False)
                    self.assertIs(type(error), anthropic.InternalServerError)
                    self.assertEqual((error.status_code, error.type), (500, "api_error"))
                    self.assertNotIn("<", error.api_message)

    @each_shape
    def test_the_library_tries_again_by_itself(self, shape: str) -> None:
        with client(BASES[shape], max_retries=3) as patient:
            metadata: Any = {"user_id": f"anthropic-python-{shape}"}
            message = patient.messages.create(model="busy-once", metadata=metadata, **REQUEST)
        self.assertEqual(text_of(message), TEXT)

    def test_each_try_of_the_library_is_answered_on_its_own(self) -> None:
        seen: list[Any] = []
        with anthropic.DefaultHttpxClient(event_hooks={"response": [seen.append]}) as http:
            with client(BASES["vllm"], max_retries=2, http_client=http) as patient, self.assertRaises(anthropic.InternalServerError):
                patient.messages.create(model="status-500", **REQUEST)
        self.assertEqual([answer.status_code for answer in seen], [500] * 3)
        self.assertEqual(len({answer.headers["request-id"] for answer in seen}), 3)


class Keys(unittest.TestCase):
    def test_both_places_of_a_key(self) -> None:
        for settings in ({"api_key": "sk-any"}, {"api_key": None, "auth_token": "sk-any"}):
            with self.subTest(**settings), client(KEYED, **settings) as asking:
                self.assertEqual(text_of(asking.messages.create(model="text", **REQUEST)), TEXT)

    def test_wrong_ones(self) -> None:
        """The library does not try again, although it may."""
        seen: list[Any] = []
        for settings in ({"api_key": "sk-wrong"}, {"api_key": None, "auth_token": "sk-wrong"}):
            with self.subTest(**settings), anthropic.DefaultHttpxClient(event_hooks={"response": [seen.append]}) as http:
                with client(KEYED, http_client=http, **{**settings, "max_retries": 2}) as asking:
                    for ask in (
                        lambda: asking.messages.create(model="text", **REQUEST),
                        lambda: asking.messages.count_tokens(model="text", messages=ASK),
                        lambda: asking.models.list(),
                    ):
                        with self.assertRaises(anthropic.AuthenticationError) as raised:
                            ask()
                        self.assertEqual(raised.exception.type, "authentication_error")
        self.assertEqual(len(seen), 6)

    def test_a_model_that_is_not_included(self) -> None:
        with client(KEYED, api_key="sk-one-model") as asking:
            with self.assertRaises(anthropic.PermissionDeniedError) as raised:
                asking.messages.create(model="heard", **REQUEST)
            self.assertEqual(raised.exception.type, "permission_error")
            self.assertEqual(text_of(asking.messages.create(model="text", **REQUEST)), TEXT)

    def test_a_limit(self) -> None:
        with client(KEYED, api_key="sk-few-python") as asking:
            raw = asking.messages.with_raw_response.create(model="text", **REQUEST)
            self.assertEqual(raw.headers["anthropic-ratelimit-requests-limit"], "1")
            self.assertEqual(raw.headers["anthropic-ratelimit-requests-remaining"], "0")
            with self.assertRaises(anthropic.RateLimitError) as raised:
                asking.messages.create(model="text", **REQUEST)
        error: Any = raised.exception
        self.assertEqual((error.type, error.response.headers["anthropic-ratelimit-requests-limit"]), ("rate_limit_error", "1"))
        self.assertTrue(0 < int(error.response.headers["retry-after"]) <= 60)
        self.assertFalse([name for name in error.response.headers if name.startswith("x-ratelimit-")])


INCOMPLETE = "Upstream connection closed before the answer was complete (stream ended without finish_reason)."
# model -> type, code, message
MIDDLE: dict[str, tuple[str, Optional[str], str]] = {
    "error-mid-stream": ("api_error", "internal_error", "CUDA out of memory"),
    "error-flat": ("overloaded_error", "server_is_overloaded", "engine overloaded"),
    "cut": ("api_error", "upstream_incomplete", INCOMPLETE),
    "reset": ("api_error", "upstream_incomplete", INCOMPLETE),
    "no-finish": ("api_error", "upstream_incomplete", INCOMPLETE),
    "no-finish-done": ("api_error", "upstream_incomplete", INCOMPLETE),
    "garbage": ("api_error", "upstream_invalid_event", "Server error: the upstream engine sent an event that cannot be read."),
}


class InTheStream(unittest.TestCase):
    """Text has been sent: all of it arrives, and then the library raises. No message is final."""

    def check(self, error: Any, expected: tuple[str, Optional[str], str]) -> None:
        self.assertIs(type(error), anthropic.APIStatusError)
        self.assertEqual((error.type, error.error_code, error.api_message), expected)
        self.assertEqual(error.body["request_id"], error.request_id)

    @each_shape
    def test_text_first_then_the_error(self, shape: str) -> None:
        for model, expected in MIDDLE.items():
            with self.subTest(model=model), client(BASES[shape]) as asking:
                events: list[Any] = []
                with self.assertRaises(anthropic.APIStatusError) as raised:
                    for event in asking.messages.create(model=model, stream=True, **REQUEST):
                        events.append(event)
                self.assertEqual("".join(event.delta.text for event in events if event.type == "content_block_delta"), "Half an answer")
                self.assertFalse({"message_stop", "message_delta", "content_block_stop"} & {event.type for event in events})
                self.check(raised.exception, expected)
                with self.assertRaises(anthropic.APIStatusError) as raised, asking.messages.stream(model=model, **REQUEST) as stream:
                    stream.get_final_message()
                self.check(raised.exception, expected)

    @each_shape
    def test_wherever_it_breaks(self, shape: str) -> None:
        for part in ("thinking", "text", "call"):
            for ending in ("cut", "reset", "clean"):
                with self.subTest(part=part, ending=ending), client(BASES[shape]) as asking:
                    with self.assertRaises(anthropic.APIStatusError) as raised:
                        with asking.messages.stream(model=f"breaks-in-{part}-{ending}", **REQUEST) as stream:
                            stream.get_final_message()
                    self.check(raised.exception, ("api_error", "upstream_incomplete", INCOMPLETE))
                    self.assertIsNone(stream.current_message_snapshot.stop_reason)
                    last = stream.current_message_snapshot.content[-1].type
                    self.assertEqual(last, {"call": "tool_use"}.get(part, part))

    @each_shape
    async def test_asynchronously(self, shape: str) -> None:
        async with async_client(BASES[shape]) as asking:
            with self.assertRaises(anthropic.APIStatusError) as raised:
                async with asking.messages.stream(model="cut", **REQUEST) as stream:
                    await stream.get_final_message()
        self.check(raised.exception, MIDDLE["cut"])

    @each_shape
    def test_the_connection_is_good_for_the_next_request(self, shape: str) -> None:
        with client(BASES[shape]) as asking:
            with self.assertRaises(anthropic.APIStatusError):
                list(asking.messages.create(model="error-mid-stream", stream=True, **REQUEST))
            self.assertEqual(text_of(asking.messages.create(model="text", **REQUEST)), TEXT)


if __name__ == "__main__":
    unittest.main()
