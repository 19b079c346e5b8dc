"""Tools that samewire runs: a server made with the official library of the protocol, over HTTP and as a program."""

from __future__ import annotations

import os
import unittest
from typing import Any

from ground import client

TOOLS = os.environ["SAMEWIRE_TOOLS"]


def tool(label: str, **more: Any) -> Any:
    return {"type": "mcp", "server_label": label, "require_approval": "never", **more}


class ServersOfTools(unittest.TestCase):
    def ask(self, text: str, *tools: Any, stream: bool = False, **more: Any) -> Any:
        asked = {"model": "caller", "input": text, "tools": list(tools), **more}
        if not stream:
            return client(TOOLS).responses.create(**asked)
        with client(TOOLS).responses.stream(**asked) as events:
            told = [event.type for event in events]
            self.assertEqual(told[-1], "response.completed")
            return events.get_final_response()

    def test_calls_run(self) -> None:
        for label in ("http", "program"):
            for stream in (False, True):
                with self.subTest(label=label, stream=stream):
                    said = self.ask('call shout {"text": "zürich"}', tool(label), stream=stream)
                    self.assertEqual([item.type for item in said.output], ["mcp_list_tools", "mcp_call", "message"])
                    listed, called, _ = said.output
                    self.assertEqual([one.name for one in listed.tools], ["shout", "stumble"])
                    self.assertEqual((called.name, called.server_label, called.output), ("shout", label, "ZÜRICH!"))
                    self.assertIsNone(called.error)
                    self.assertEqual(said.output_text, "Outputs: ZÜRICH!")

    def test_a_tool_that_fails(self) -> None:
        said = self.ask("call stumble {}", tool("http"))
        called = said.output[1]
        self.assertEqual((called.status, called.output), ("failed", None))
        self.assertIn("no luck", str(called.error))
        self.assertIn("no luck", said.output_text)

    def test_only_allowed_tools_are_offered(self) -> None:
        said = self.ask("call stumble {}", tool("http", allowed_tools=["shout"]))
        self.assertEqual([one.name for one in said.output[0].tools], ["shout"])
        self.assertNotIn("mcp_call", [item.type for item in said.output])

    def test_an_approval(self) -> None:
        asking = tool("http", require_approval="always")
        first = self.ask('call shout {"text": "a"}', asking)
        request = first.output[-1]
        self.assertEqual((request.type, request.name), ("mcp_approval_request", "shout"))
        for approve, said in ((True, "Outputs: A!"), (False, "Outputs: The user has not approved this call.")):
            with self.subTest(approve=approve):
                response = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": approve}
                answer = client(TOOLS).responses.create(
                    model="caller", previous_response_id=first.id, input=[response], tools=[asking]
                )
                self.assertEqual(answer.output_text, said)


if __name__ == "__main__":
    unittest.main()
