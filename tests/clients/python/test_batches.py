"""Files and batches by the library's own methods, as OpenAI's guide to batches uses them."""

from __future__ import annotations

import json
import os
import time
import unittest

import openai
from ground import client

BATCHES = os.environ["SAMEWIRE_BATCHES"]
PATIENCE_SECONDS = 30
OVER = ("completed", "failed", "expired", "cancelled")


def line(custom_id: str, **body: object) -> str:
    request = {"model": "text", "messages": [{"role": "user", "content": "Hello"}], **body}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": request}) + "\n"


class Batches(unittest.TestCase):
    def setUp(self) -> None:
        self.client = client(BATCHES)

    def ended(self, batch_id: str) -> openai.types.Batch:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            batch = self.client.batches.retrieve(batch_id)
            if batch.status in OVER:
                return batch
            self.assertLess(time.monotonic(), deadline, batch)
            time.sleep(0.05)

    def created(self, content: str) -> openai.types.Batch:
        file = self.client.files.create(file=("in.jsonl", content.encode()), purpose="batch")
        self.assertEqual((file.object, file.purpose, file.filename, file.bytes), ("file", "batch", "in.jsonl", len(content)))
        return self.client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"a": "b"}
        )

    def test_a_batch_from_its_file_to_its_results(self) -> None:
        batch = self.created(line("a") + line("b", max_tokens="many"))
        self.assertEqual((batch.object, batch.endpoint, batch.metadata), ("batch", "/v1/chat/completions", {"a": "b"}))
        over = self.ended(batch.id)
        self.assertEqual(over.status, "completed")
        counts = over.request_counts
        assert counts is not None and over.output_file_id is not None and over.error_file_id is not None
        self.assertEqual((counts.total, counts.completed, counts.failed), (2, 1, 1))
        output = [json.loads(text) for text in self.client.files.content(over.output_file_id).text.splitlines()]
        self.assertEqual([result["custom_id"] for result in output], ["a"])
        self.assertEqual(output[0]["response"]["body"]["object"], "chat.completion")
        errors = self.client.files.content(over.error_file_id).read().decode().splitlines()
        self.assertEqual(json.loads(errors[0])["response"]["status_code"], 400)
        self.assertIn(batch.id, [one.id for one in self.client.batches.list(limit=1)])
        self.assertEqual({"batch", "batch_output"}, {file.purpose for file in self.client.files.list()})
        self.assertTrue(self.client.files.delete(batch.input_file_id).deleted)
        with self.assertRaises(openai.NotFoundError):
            self.client.files.retrieve(batch.input_file_id)

    def test_mistakes_have_lines(self) -> None:
        over = self.ended(self.created("nothing\n" + line("a")).id)
        assert over.errors is not None and over.errors.data is not None
        self.assertEqual((over.status, over.errors.data[0].line, over.errors.data[0].code), ("failed", 1, "invalid_json_line"))

    def test_a_batch_is_cancelled(self) -> None:
        batch = self.created("".join(line(str(n)) for n in range(5000)))
        self.assertIn(self.client.batches.cancel(batch.id).status, ("cancelling", "cancelled"))
        self.assertEqual(self.ended(batch.id).status, "cancelled")
        with self.assertRaises(openai.BadRequestError):
            self.client.files.create(file=b"x", purpose="assistants")
