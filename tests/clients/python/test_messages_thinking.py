"""Thinking in Anthropic's Messages: shown or not, signed, and given back to the engine in the next turn."""

from __future__ import annotations

import unittest
from typing import Any

from messages_ground import ASK, BASES, REASONING_KEY, REQUEST, TEXT, THINKING, THOUGHT, blocks, client, each_shape, heard, text_of, thoughts, turns


class Thinking(unittest.TestCase):
    """The engine of the second turn says what it heard of the first."""

    def again(self, asking: Any, shape: str, messages: list[Any], **more: Any) -> list[Any]:
        """What the assistant is said to have thought, as the engine hears it."""
        body = heard(asking.messages.create(model="heard", max_tokens=4000, messages=messages, thinking=THINKING, **more))
        return [message.get(REASONING_KEY[shape]) for message in body["messages"] if message["role"] == "assistant"]

    def both(self, asking: Any, **more: Any) -> list[Any]:
        """The same message, whole and streamed."""
        request = {"model": "thinks", "thinking": THINKING, **REQUEST, **more}
        with asking.messages.stream(**request) as stream:
            return [asking.messages.create(**request), stream.get_final_message()]

    @each_shape
    def test_budget_and_effort(self, shape: str) -> None:
        asked: list[tuple[dict[str, Any], Any]] = [
            ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, "low"),
            ({"thinking": {"type": "enabled", "budget_tokens": 8192}}, "medium"),
            ({"thinking": {"type": "enabled", "budget_tokens": 32_000}}, "high"),
            ({"thinking": {"type": "adaptive"}}, None),
            ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}}, "medium"),
        ]
        with client(BASES[shape]) as asking:
            for more, effort in asked:
                with self.subTest(**more):
                    body = heard(asking.messages.create(model="heard", **REQUEST, **more))
                    self.assertEqual(body.get("reasoning_effort"), effort)

    @each_shape
    def test_it_is_given_back(self, shape: str) -> None:
        with client(BASES[shape]) as asking:
            for message in self.both(asking):
                self.assertEqual((thoughts(message), text_of(message)), ([THOUGHT], TEXT))
                self.assertEqual(self.again(asking, shape, turns(message)), [THOUGHT])
                self.assertEqual(self.again(asking, shape, turns(message, message)), [THOUGHT] * 2)

    @each_shape
    def test_what_nobody_signed_is_left_out(self, shape: str) -> None:
        """The session goes on without it."""
        with client(BASES[shape]) as asking:
            message = self.both(asking)[1]
            for change in (
                {"thinking": "Something else."},
                {"signature": message.content[0].signature[:-8] + "AAAAAAAA"},
                {"signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds"},
                {"signature": ""},
            ):
                with self.subTest(**change):
                    thought, *rest = blocks(message)
                    history = [*ASK, {"role": "assistant", "content": [{**thought, **change}, *rest]}, {"role": "user", "content": "And now?"}]
                    self.assertEqual(self.again(asking, shape, history), [None])
            redacted: Any = [*ASK, {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "EmwKAhgB"}, blocks(message)[1]]}, *ASK]
            self.assertEqual(self.again(asking, shape, redacted), [None])

    @each_shape
    def test_omitted_it_is_in_the_signature(self, shape: str) -> None:
        omitted = {"type": "enabled", "budget_tokens": 2048, "display": "omitted"}
        with client(BASES[shape]) as asking:
            for message in self.both(asking, thinking=omitted):
                self.assertEqual((thoughts(message), text_of(message)), ([""], TEXT))
                self.assertNotIn("look", message.to_json())
                self.assertEqual(self.again(asking, shape, turns(message)), [THOUGHT])

    @each_shape
    def test_disabled(self, shape: str) -> None:
        """The engine is told, and what it thinks all the same is not shown."""
        with client(BASES[shape]) as asking:
            for message in self.both(asking, thinking={"type": "disabled"}):
                self.assertEqual([block.type for block in message.content], ["text"])
            body = heard(asking.messages.create(model="heard", thinking={"type": "disabled"}, **REQUEST))
        told = {"vllm": body.get("chat_template_kwargs", {}).get("enable_thinking"), "sglang": body.get("reasoning_effort")}
        self.assertEqual(told[shape], {"vllm": False, "sglang": "none"}[shape])


if __name__ == "__main__":
    unittest.main()
