"""Legacy completions, models and embeddings through openai for Python."""

from __future__ import annotations

import unittest

import openai

from ground import USAGE, client


class OtherRoutes(unittest.TestCase):
    def setUp(self) -> None:
        self.client = client()
        self.addCleanup(self.client.close)

    def test_completion_streamed(self) -> None:
        stream = self.client.completions.create(model="legacy", prompt="Once upon", stream=True, stream_options=USAGE, logprobs=1)
        chunks = list(stream)
        self.assertEqual({(chunk.id, chunk.object, chunk.model) for chunk in chunks}, {("cmpl-legacy", "text_completion", "legacy")})
        *frames, usage = chunks
        self.assertEqual("".join(chunk.choices[0].text for chunk in frames), " a time")
        self.assertEqual([chunk.choices[0].finish_reason for chunk in frames], [None, None, "length"])
        self.assertEqual(frames[-1].choices[0].text, "")
        tokens = [token for chunk in frames if chunk.choices[0].logprobs for token in chunk.choices[0].logprobs.tokens or []]
        self.assertEqual(tokens, [" a", " time"])
        self.assertEqual(usage.choices, [])
        assert usage.usage is not None
        self.assertEqual((usage.usage.prompt_tokens, usage.usage.completion_tokens, usage.usage.total_tokens), (11, 7, 18))
        self.assertTrue(all(chunk.usage is None for chunk in frames))

    def test_completion_streamed_without_usage(self) -> None:
        for chunk in self.client.completions.create(model="legacy", prompt="Once upon", stream=True):
            self.assertNotIn("usage", chunk.model_fields_set)
            self.assertEqual(len(chunk.choices), 1)

    def test_completion_whole(self) -> None:
        whole = self.client.completions.create(model="legacy", prompt="Once upon", logprobs=1)
        self.assertEqual((whole.id, whole.object, whole.model_extra), ("cmpl-legacy", "text_completion", {}))
        (choice,) = whole.choices
        self.assertEqual((choice.text, choice.finish_reason, choice.model_extra), (" a time", "length", {}))
        assert choice.logprobs is not None and whole.usage is not None
        self.assertEqual(choice.logprobs.token_logprobs, [-0.5, -0.75])
        self.assertEqual(choice.logprobs.text_offset, [0, 2])
        self.assertEqual(whole.usage.total_tokens, 18)

    def test_models_listed_and_retrieved(self) -> None:
        models = {model.id: model for model in self.client.models.list()}
        self.assertIn("text", models)
        self.assertEqual(models["text"].object, "model")
        one = self.client.models.retrieve("text")
        self.assertEqual((one.id, one.object), ("text", "model"))
        self.assertIsInstance(one.created, int)
        self.assertIsInstance(one.owned_by, str)

    def test_unknown_model(self) -> None:
        with self.assertRaises(openai.NotFoundError) as raised:
            self.client.models.retrieve("nowhere")
        self.assertEqual((raised.exception.type, raised.exception.code), ("invalid_request_error", "model_not_found"))

    def test_unknown_route(self) -> None:
        with self.assertRaises(openai.NotFoundError) as raised:
            self.client.files.retrieve("file-1")
        self.assertEqual((raised.exception.type, raised.exception.code), ("invalid_request_error", "unknown_url"))

    def test_embeddings(self) -> None:
        # Without an option, the library requests base64 and unpacks it.
        for encoding in ({}, {"encoding_format": "float"}):
            with self.subTest(**encoding):
                answer = self.client.embeddings.create(model="embed", input=["one", "two"], **encoding)
                self.assertEqual([row.index for row in answer.data], [0, 1])
                self.assertEqual([list(row.embedding) for row in answer.data], [[0.25, -0.5, 1.0], [0.125, 2.0, -4.0]])
                self.assertEqual((answer.object, answer.model), ("list", "embed"))
                self.assertEqual((answer.usage.prompt_tokens, answer.usage.total_tokens), (5, 5))

    def test_embeddings_as_base64(self) -> None:
        answer = self.client.embeddings.create(model="embed", input=["one", "two"], encoding_format="base64")
        self.assertEqual(answer.data[0].embedding, "AACAPgAAAL8AAIA/")

    def test_embeddings_error(self) -> None:
        with self.assertRaises(openai.BadRequestError) as raised:
            self.client.embeddings.create(model="status-400", input="one")
        self.assertEqual((raised.exception.type, raised.exception.param), ("invalid_request_error", "temperature"))


if __name__ == "__main__":
    unittest.main()
