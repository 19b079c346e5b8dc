"""The routes under /openai/ through the client for Azure of openai for Python."""

from __future__ import annotations

import unittest
from typing import Any

import openai

from ground import ASK, SCRIPTED, SETTINGS, USAGE

VERSION = "2024-10-21"


def azure(**more: Any) -> openai.AzureOpenAI:
    return openai.AzureOpenAI(azure_endpoint=SCRIPTED.removesuffix("/v1"), **{"api_version": VERSION, **SETTINGS, **more})


class Azure(unittest.TestCase):
    def setUp(self) -> None:
        self.client = azure()
        self.addCleanup(self.client.close)

    def test_deployment_streamed(self) -> None:
        stream = self.client.chat.completions.create(model="text", messages=ASK, stream=True, stream_options=USAGE)
        chunks = list(stream)
        self.assertEqual({chunk.object for chunk in chunks}, {"chat.completion.chunk"})
        self.assertTrue("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices))
        self.assertIsNotNone(chunks[-1].usage)

    def test_deployment_whole(self) -> None:
        raw = self.client.chat.completions.with_raw_response.create(model="text", messages=ASK)
        self.assertEqual(raw.headers["apim-request-id"], raw.headers["x-request-id"])
        self.assertEqual(raw.headers["x-ms-request-id"], raw.headers["x-request-id"])
        self.assertEqual(raw.headers["api-supported-versions"], VERSION)
        self.assertTrue(raw.parse().choices[0].message.content)

    def test_deployment_of_the_client(self) -> None:
        with azure(azure_deployment="legacy") as client:
            whole = client.completions.create(model="anything", prompt="Once upon")
        self.assertEqual(whole.choices[0].text, " a time")

    def test_routes_that_are_relayed(self) -> None:
        audio = ("a.wav", bytes(300_000), "audio/wav")
        heard = self.client.audio.transcriptions.create(model="text", file=audio)
        self.assertEqual(heard.text, "text: 300000 bytes")
        with self.client.audio.speech.with_streaming_response.create(model="text", voice="alloy", input="x") as spoken:
            self.assertEqual(spoken.headers["content-type"], "audio/mpeg")
            self.assertEqual(len(spoken.read()), len("text") + 256 * 400)
        drawn = self.client.images.edit(model="text", image=("a.png", bytes(70_000), "image/png"), prompt="x")
        self.assertEqual(drawn.data[0].url, "text: 70000 bytes")

    def test_embeddings_of_a_deployment(self) -> None:
        answer = self.client.embeddings.create(model="embed", input=["one", "two"])
        self.assertEqual([row.embedding for row in answer.data], [[0.25, -0.5, 1.0], [0.125, 2.0, -4.0]])
        with azure(azure_deployment="embed") as client:
            self.assertEqual(len(client.embeddings.create(model="anything", input="one").data), 2)

    def test_models(self) -> None:
        self.assertIn("text", {model.id for model in self.client.models.list()})

    def test_version_that_is_none(self) -> None:
        with azure(api_version="latest") as client, self.assertRaises(openai.BadRequestError) as raised:
            client.chat.completions.create(model="text", messages=ASK)
        self.assertEqual((raised.exception.code, raised.exception.param), ("unsupported_api_version", "api-version"))

    def test_routes_without_a_date(self) -> None:
        base = SCRIPTED.removesuffix("/v1") + "/openai/v1/"
        with openai.OpenAI(base_url=base, default_query={"api-version": "preview"}, **SETTINGS) as client:
            whole = client.chat.completions.create(model="text", messages=ASK)
        self.assertTrue(whole.choices[0].message.content)


if __name__ == "__main__":
    unittest.main()
