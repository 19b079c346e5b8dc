"""Failures through openai for Python: the right exception, with what a caller needs in it, at the right time."""

from __future__ import annotations

import unittest
from typing import Any, Optional

import openai

from ground import ASK, Read, client

# model -> exception, HTTP status, type, code, param, a piece of the message
BEFORE: dict[str, tuple[type[openai.APIStatusError], int, str, Optional[str], Optional[str], str]] = {
    "400": (openai.BadRequestError, 400, "invalid_request_error", None, "temperature", "temperature must be non-negative"),
    "401": (openai.AuthenticationError, 401, "invalid_request_error", "invalid_api_key", None, "Invalid credentials"),
    "403": (openai.PermissionDeniedError, 403, "permission_error", None, None, "Not for you"),
    "404": (openai.NotFoundError, 404, "invalid_request_error", "model_not_found", "model", "The model `nope` does not exist."),
    "422": (openai.BadRequestError, 400, "invalid_request_error", None, "messages", "messages is too short"),
    "429": (openai.RateLimitError, 429, "rate_limit_error", "rate_limit_exceeded", None, "The request queue is full."),
    "500": (openai.InternalServerError, 500, "server_error", "internal_error", None, "EngineCore encountered an issue."),
    "503": (openai.InternalServerError, 503, "server_error", "server_is_overloaded", None, "Service is shutting down."),
}


class BeforeTheStream(unittest.TestCase):
    """Nothing has been sent: an HTTP status, hence a typed exception."""

    def setUp(self) -> None:
        self.client = client()
        self.addCleanup(self.client.close)

    def failure(self, model: str, stream: bool) -> openai.APIStatusError:
        with self.assertRaises(openai.APIStatusError) as raised:
            self.client.chat.completions.create(model=model, messages=ASK, stream=stream)
        error = raised.exception
        self.assertEqual(set(error.body), {"message", "type", "param", "code"})  # type: ignore[call-overload]
        self.assertTrue(error.request_id, "an error names its request")
        self.assertEqual(error.response.headers["content-type"].partition(";")[0], "application/json")
        return error

    def check(self, model: str, key: str, stream: bool) -> openai.APIStatusError:
        exception, status, kind, code, param, message = BEFORE[key]
        error = self.failure(model, stream)
        self.assertIs(type(error), exception)
        self.assertEqual((error.status_code, error.type, error.code, error.param), (status, kind, code, param))
        self.assertIn(message, error.message)
        return error

    def test_status_of_the_engine(self) -> None:
        for key in BEFORE:
            for stream in (False, True):
                with self.subTest(status=key, stream=stream):
                    self.check(f"status-{key}", key, stream)

    def test_error_as_the_first_event_of_a_200(self) -> None:
        for key in BEFORE:
            with self.subTest(status=key):
                self.check(f"event-{key}", key, True)

    def test_retry_after_survives(self) -> None:
        for model in ("status-429", "status-503"):
            with self.subTest(model=model):
                self.assertEqual(self.failure(model, True).response.headers["retry-after"], "7")

    def test_the_library_tries_again_by_itself(self) -> None:
        with client(max_retries=3) as patient:
            stream = patient.chat.completions.create(model="busy-once", messages=ASK, stream=True, user="python")
            self.assertEqual(Read(stream).finishes(), ["stop"])

    def test_each_try_of_the_library_is_answered_on_its_own(self) -> None:
        """A request that it sends three times costs three answers, each of two engines at most."""
        seen: list[Any] = []
        with openai.DefaultHttpxClient(event_hooks={"response": [seen.append]}) as http:
            with client(max_retries=2, http_client=http) as patient, self.assertRaises(openai.InternalServerError):
                patient.chat.completions.create(model="status-500", messages=ASK)
        self.assertEqual([answer.status_code for answer in seen], [500] * 3)
        self.assertEqual(len({answer.headers["x-request-id"] for answer in seen}), 3)
        for answer in seen:
            self.assertIn(answer.headers["x-samewire-attempts"], ("1", "2"))

    def test_the_stream_helper_raises_on_entry(self) -> None:
        with self.assertRaises(openai.NotFoundError):
            with self.client.chat.completions.stream(model="status-404", messages=ASK):
                self.fail("a stream was opened")

    def test_context_length_has_its_code(self) -> None:
        error = self.failure("context-length", True)
        self.assertIs(type(error), openai.BadRequestError)
        self.assertEqual((error.code, error.type), ("context_length_exceeded", "invalid_request_error"))

    def test_detail_list_becomes_a_sentence(self) -> None:
        error = self.failure("detail-list", False)
        self.assertIs(type(error), openai.BadRequestError)
        self.assertEqual(error.param, "messages")
        self.assertIn("messages: Field required", error.message)

    def test_html_never_reaches_the_caller(self) -> None:
        error = self.failure("html", True)
        self.assertIs(type(error), openai.InternalServerError)
        self.assertEqual((error.status_code, error.code), (502, "upstream_invalid_response"))
        self.assertNotIn("<", error.message)

    def test_abort_in_a_whole_answer(self) -> None:
        error = self.failure("aborted", False)
        self.assertEqual((error.status_code, error.code), (502, "upstream_aborted"))

    def test_call_without_a_name_in_a_whole_answer(self) -> None:
        error = self.failure("tool-no-name", False)
        self.assertIs(type(error), openai.InternalServerError)
        self.assertEqual(error.code, "upstream_invalid_tool_call")

    def test_legacy_completions_fail_alike(self) -> None:
        for model in ("status-404", "event-404"):
            with self.subTest(model=model), self.assertRaises(openai.NotFoundError) as raised:
                self.client.completions.create(model=model, prompt="Once", stream=True)
            self.assertEqual(raised.exception.code, "model_not_found")


INCOMPLETE = "Upstream connection closed before the answer was complete (stream ended without finish_reason)."
# model -> type, code, message
MIDDLE: dict[str, tuple[str, str, Optional[str]]] = {
    "error-mid-stream": ("server_error", "internal_error", "CUDA out of memory"),
    "error-flat": ("server_error", "server_is_overloaded", "engine overloaded"),
    "cut": ("server_error", "upstream_incomplete", INCOMPLETE),
    "reset": ("server_error", "upstream_incomplete", INCOMPLETE),
    "no-finish": ("server_error", "upstream_incomplete", INCOMPLETE),
    "no-finish-done": ("server_error", "upstream_incomplete", INCOMPLETE),
    "garbage": ("server_error", "upstream_invalid_event", "Server error: the upstream engine sent an event that cannot be read."),
}


class InTheStream(unittest.TestCase):
    """Text has been sent: all of it arrives, and then the library raises."""

    def setUp(self) -> None:
        self.client = client()
        self.addCleanup(self.client.close)

    def check(self, error: Optional[openai.APIError], kind: str, code: str, message: Optional[str]) -> None:
        assert error is not None, "the stream ended as if it were complete"
        self.assertIs(type(error), openai.APIError, "an error of the stream, not of the connection")
        self.assertEqual((error.type, error.code, error.param), (kind, code, None))
        self.assertEqual(error.message, message)

    def read(self, model: str, **more: Any) -> Read:
        return Read.until_error(self.client.chat.completions.create(model=model, messages=ASK, stream=True, **more))

    def test_text_first_then_the_error(self) -> None:
        for model, expected in MIDDLE.items():
            with self.subTest(model=model):
                read = self.read(model)
                self.assertEqual(read.text(), "Half an answer")
                self.assertEqual(read.finishes(), [], "nothing looks like an end")
                self.check(read.error, *expected)

    def test_no_usage_beside_an_error(self) -> None:
        read = self.read("error-mid-stream", stream_options={"include_usage": True})
        self.assertTrue(all(chunk.usage is None for chunk in read.chunks))
        self.assertIsNotNone(read.error)

    def test_engine_abort(self) -> None:
        read = self.read("aborted")
        self.assertEqual((read.text(), read.finishes()), ("Half ", []))
        self.check(read.error, "server_error", "upstream_aborted", "Server error: the upstream engine aborted the request before it was complete.")

    def test_call_without_a_name(self) -> None:
        read = self.read("tool-no-name")
        self.assertEqual((read.text(), read.calls(), read.finishes()), ("So be it.", [], []))
        message = "Server error: the upstream engine sent a tool call without a function name."
        self.check(read.error, "server_error", "upstream_invalid_tool_call", message)

    def test_the_stream_helper_raises_too(self) -> None:
        for model in MIDDLE:
            with self.subTest(model=model):
                text = ""
                with self.assertRaises(openai.APIError) as raised:
                    with self.client.chat.completions.stream(model=model, messages=ASK) as stream:
                        for event in stream:
                            text += event.delta if event.type == "content.delta" else ""
                        stream.get_final_completion()
                self.assertEqual(text, "Half an answer")
                self.assertEqual(raised.exception.code, MIDDLE[model][1])

    def test_legacy_completions(self) -> None:
        for model, expected in MIDDLE.items():
            with self.subTest(model=model):
                text, error = "", None
                try:
                    for chunk in self.client.completions.create(model=model, prompt="Once", stream=True):
                        text += chunk.choices[0].text
                except openai.APIError as raised:
                    error = raised
                self.assertEqual(text, "Half an answer")
                self.check(error, *expected)

    def test_the_connection_is_good_for_the_next_request(self) -> None:
        self.assertIsNotNone(self.read("error-mid-stream").error)
        self.assertEqual(self.read("text").finishes(), ["stop"])


if __name__ == "__main__":
    unittest.main()
