"""Counts of tokens and the list of models, as Anthropic's library reads them."""

from __future__ import annotations

import unittest

import anthropic
from messages_ground import ASK, BASES, TOOLS, async_client, client, each_shape

# The engine of one shape counts letters, and a thousand for each tool; the other has no route, and its usage says 41.
COUNTS = {"vllm": (5, 2005), "sglang": (41, 41)}


class Counts(unittest.TestCase):
    @each_shape
    def test_count_tokens(self, shape: str) -> None:
        with client(BASES[shape]) as asking:
            plain = asking.messages.count_tokens(model="thinks", messages=ASK)
            tools = asking.messages.count_tokens(model="thinks", messages=ASK, tools=TOOLS)
            with self.assertRaises(anthropic.NotFoundError):
                asking.messages.count_tokens(model="nope", messages=ASK)
        self.assertEqual((plain.input_tokens, tools.input_tokens), COUNTS[shape])

    @each_shape
    async def test_asynchronously(self, shape: str) -> None:
        async with async_client(BASES[shape]) as asking:
            counted = await asking.messages.count_tokens(model="thinks", messages=ASK)
        self.assertEqual(counted.input_tokens, COUNTS[shape][0])


class Models(unittest.TestCase):
    @each_shape
    def test_pages(self, shape: str) -> None:
        with client(BASES[shape]) as asking:
            page = asking.models.list(limit=7)
            self.assertEqual((len(page.data), page.has_more), (7, True))
            self.assertEqual((page.first_id, page.last_id), (page.data[0].id, page.data[-1].id))
            all = [model.id for model in asking.models.list(limit=7)]
            self.assertEqual(len(all), len(set(all)))
            self.assertLessEqual({"text", "thinks", "heard", "status-404"}, set(all))
            self.assertEqual([model.id for model in asking.models.list(limit=1000)], all)
            self.assertEqual(len(asking.models.list().data), 20)
            before = asking.models.list(before_id=all[10], limit=3)
            self.assertEqual([model.id for model in before.data], all[7:10])

    @each_shape
    def test_one(self, shape: str) -> None:
        with client(BASES[shape]) as asking:
            model = asking.models.retrieve("thinks")
            self.assertEqual((model.id, model.type, model.display_name), ("thinks", "model", "thinks"))
            self.assertEqual((model.created_at.year, model.lifecycle), (2023, "active"))
            self.assertEqual(model.max_input_tokens, 4096)
            with self.assertRaises(anthropic.NotFoundError) as raised:
                asking.models.retrieve("nope")
        self.assertEqual(raised.exception.type, "not_found_error")

    @each_shape
    async def test_asynchronously(self, shape: str) -> None:
        async with async_client(BASES[shape]) as asking:
            all = [model.id async for model in asking.models.list(limit=30)]
        self.assertIn("thinks", all)


if __name__ == "__main__":
    unittest.main()
