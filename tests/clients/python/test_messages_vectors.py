"""The worked examples of Messages (fixtures/vectors/msg-*), each read by the accumulator of anthropic for Python.

A server gives the bytes of the example unchanged. What the message must hold is told by the engine's bytes in
the same file, so that the example's answer is not compared with itself.
"""

from __future__ import annotations

import json
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Optional

import anthropic

from ground import FIXTURES
from messages_ground import REQUEST, client

VECTORS = {path.stem: json.loads(path.read_text()) for path in sorted((FIXTURES / "vectors").glob("msg-*.json"))}


class Answers(BaseHTTPRequestHandler):
    """Answers a request to `/<name of a vector>/…` with the bytes of that vector."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        vector = VECTORS[self.path.split("/")[1]]
        stream = "expected" in vector
        body = "\n".join(vector["expected"]) + "\n" if stream else json.dumps(vector["expected_body"])
        self.send_response(vector["expected_status"])
        self.send_header("content-type", "text/event-stream" if stream else "application/json")
        self.send_header("content-length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Said:
    """What the engine's chat answer says: reasoning, text, and the arguments of each call."""

    def __init__(self, vector: dict[str, Any]) -> None:
        self.reasoning, self.text, self.calls = "", "", {}
        if vector["input"].startswith("data:"):
            lines = [line[5:].strip() for line in vector["input"].splitlines() if line.startswith("data:")]
            answers = [json.loads(line) for line in lines if line != "[DONE]"]
        else:
            answers = [json.loads(vector["input"])]
        for choice in (choice for answer in answers for choice in answer.get("choices", [])):
            said = choice.get("delta") or choice.get("message") or {}
            self.reasoning += said.get("reasoning") or said.get("reasoning_content") or ""
            self.text += said.get("content") or ""
            for at, call in enumerate(said.get("tool_calls") or []):
                key = call.get("index", at)
                self.calls[key] = self.calls.get(key, "") + (call["function"].get("arguments") or "")


class WorkedExamples(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.base = f"http://127.0.0.1:{cls.server.server_port}"

    @classmethod
    def tearDownClass(cls) -> None:
        cls.server.shutdown()
        cls.server.server_close()

    def read(self, name: str) -> anthropic.types.Message:
        library = client(f"{self.base}/{name}")
        if "expected" not in VECTORS[name]:
            return library.messages.create(model="m", **REQUEST)
        with library.messages.stream(model="m", **REQUEST) as stream:
            return stream.get_final_message()

    def test_messages(self) -> None:
        succeeding = [name for name in VECTORS if self.error_of(name) is None]
        self.assertGreaterEqual(len(succeeding), 24)
        for name in succeeding:
            with self.subTest(name):
                self.check(VECTORS[name], self.read(name))

    def check(self, vector: dict[str, Any], message: anthropic.types.Message) -> None:
        # Unknown members are kept by the library, wrong ones are not noticed until the message is validated.
        message = anthropic.types.Message.model_validate(message.model_dump(), strict=True)
        self.assertIsNotNone(message.stop_reason)
        self.assertGreater(message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0), 0)
        if vector["upstream_api"] == "messages":
            return
        said = Said(vector)
        text = "".join(block.text for block in message.content if block.type == "text")
        thoughts = "".join(block.thinking for block in message.content if block.type == "thinking")
        calls = [block.input for block in message.content if block.type == "tool_use"]
        self.assertEqual(text, said.text)
        if "thinking_delta" in json.dumps(vector.get("expected", "thinking_delta")):
            self.assertEqual(thoughts, said.reasoning)
        self.assertEqual(len(calls), len(said.calls))
        for call, arguments in zip(calls, said.calls.values()):
            self.assertEqual(call, arguments_of(arguments))

    def test_errors(self) -> None:
        failing = {name: error for name in VECTORS if (error := self.error_of(name)) is not None}
        self.assertGreaterEqual(len(failing), 5)
        for name, (kind, message) in failing.items():
            with self.subTest(name), self.assertRaises(anthropic.APIStatusError) as raised:
                self.read(name)
            body: Any = raised.exception.body
            self.assertEqual((body["error"]["type"], body["error"]["message"]), (kind, message))

    @staticmethod
    def error_of(name: str) -> Optional[tuple[str, str]]:
        vector = VECTORS[name]
        if "expected" not in vector:
            body = vector["expected_body"]
        else:
            events = [json.loads(line[6:]) for line in vector["expected"] if line.startswith("data: ")]
            body = events[-1]
        return (body["error"]["type"], body["error"]["message"]) if body["type"] == "error" else None


def arguments_of(text: str) -> Any:
    """The input of a call: the engine's arguments, or an object that holds them where they are no JSON object."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"raw_arguments": text}
