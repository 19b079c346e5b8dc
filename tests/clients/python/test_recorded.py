"""Each recorded answer of a real engine, through samewire, read by openai for Python.

What an answer should be is told by the golden file beside it (`error.json`: an HTTP
error; `event: error` at the end: an error after the text). What text it has is told
by the engine's own bytes, so that nothing here trusts samewire about its output.
"""

from __future__ import annotations

import json
import unittest
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Optional

import openai
from openai import Stream
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from ground import ASK, FIXTURES, RECORDED, Read, client, essence

ROUTES = {"/v1/chat/completions": "chat", "/v1/completions": "completions"}
REASONING = ("reasoning_content", "reasoning", "thinking", "reasoning_text")


@dataclass
class Scenario:
    name: str
    folder: Path
    api: str
    body: dict[str, Any]

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def error(self) -> Optional[tuple[int, dict[str, Any]]]:
        """The golden HTTP error: a line with the status, then the body."""
        path = self.folder / "error.json"
        if not path.exists():
            return None
        head, _, body = path.read_text().partition("\n")
        return int(head.removeprefix("HTTP ")), json.loads(body)["error"]

    @property
    def ends_in_error(self) -> bool:
        golden = (self.folder / f"{self.api}.sse").read_text()
        return golden.rstrip("\n").rpartition("\n\n")[2].startswith("event: error")


def scenarios() -> Iterator[Scenario]:
    for path in sorted(FIXTURES.glob("*/*/request.json")):
        engine, name = path.parent.parent.name, path.parent.name
        if engine not in ("vllm", "sglang"):
            continue
        request = json.loads(path.read_text())
        # Requests that no client library can send belong to other tests.
        if request["method"] == "POST" and request["path"] in ROUTES and isinstance(request.get("body"), dict):
            scenario = f"{engine}/{name}"
            yield Scenario(scenario, path.parent, ROUTES[request["path"]], sendable({**request["body"], "model": scenario}))


def sendable(body: dict[str, Any]) -> dict[str, Any]:
    """The recorded request without what the engine took and the proxy refuses on its own account."""
    kept = {key: value for key, value in body.items() if key != "rid" and (key, value) != ("n", 0)}
    return kept if "prompt" in kept else {"messages": ASK, **kept}


def texts(scenario: Scenario) -> dict[tuple[int, str], str]:
    """What the engine wrote, by choice and kind, taken from its bytes with nothing but JSON."""
    written: dict[tuple[int, str], str] = defaultdict(str)
    for event in (scenario.folder / "upstream.sse").read_bytes().replace(b"\r\n", b"\n").split(b"\n\n"):
        if not event.startswith(b"data:") or event.endswith(b"[DONE]"):
            continue
        try:
            value = json.loads(event[len(b"data:") :])
        except ValueError:
            continue  # cut off in the middle of an event
        for choice in value.get("choices") or []:
            if choice.get("text"):
                written[choice["index"], "text"] += choice["text"]
            logprobs = choice.get("logprobs") or {}
            tokens = logprobs.get("tokens") or [entry["token"] for entry in logprobs.get("content") or []]
            written[choice["index"], "tokens"] += "".join(f"{token}|" for token in tokens)
            delta = choice.get("delta") or {}
            if delta.get("content"):
                written[choice["index"], "content"] += delta["content"]
            if reasoning := next((delta[name] for name in REASONING if delta.get(name)), None):
                written[choice["index"], "content" if continues(scenario) else "reasoning"] += reasoning
            for call in delta.get("tool_calls") or []:
                written[choice["index"], "arguments"] += (call.get("function") or {}).get("arguments") or ""
    return {key: text for key, text in written.items() if text}


def continues(scenario: Scenario) -> bool:
    """Whether the answer continues a text, so that what the engine has filed as reasoning is text, too."""
    return scenario.body.get("continue_final_message") is True


class Recorded(unittest.TestCase):
    def setUp(self) -> None:
        self.client = client(RECORDED)
        self.addCleanup(self.client.close)

    def send(self, scenario: Scenario) -> Any:
        """The request as it was recorded, down to the fields only the engine knows."""
        path = "/chat/completions" if scenario.api == "chat" else "/completions"
        whole: Any = ChatCompletion if scenario.api == "chat" else Completion
        if not scenario.stream:
            return self.client.post(path, body=scenario.body, cast_to=whole)
        kind: Any = Stream[ChatCompletionChunk] if scenario.api == "chat" else Stream[Completion]
        return self.client.post(path, body=scenario.body, cast_to=whole, stream=True, stream_cls=kind)

    def check_refused(self, scenario: Scenario) -> None:
        with self.assertRaises(openai.APIStatusError) as raised:
            self.send(scenario)
        error = raised.exception
        assert scenario.error is not None
        status, golden = scenario.error
        self.assertEqual((error.status_code, error.type), (status, golden["type"]))
        self.assertTrue(error.message)
        self.assertFalse((error.code or "").isdigit(), "a code is a word, never the HTTP status")

    def check_stream(self, scenario: Scenario) -> None:
        read = Read.until_error(self.send(scenario))
        if scenario.ends_in_error:
            self.assertIs(type(read.error), openai.APIError, "a broken answer has to raise")
            assert read.error is not None
            self.assertTrue(read.error.message and read.error.code)
        else:
            self.assertIsNone(read.error)
        if scenario.api == "chat":
            self.check_chat(scenario, read)
        else:
            self.check_legacy(scenario, read)
        asked = bool((scenario.body.get("stream_options") or {}).get("include_usage"))
        self.assertEqual({"usage" in chunk.model_fields_set for chunk in read.chunks}, {asked})
        self.assertTrue(all(chunk.usage is None for chunk in read.chunks[:-1]))
        if asked and read.error is None:
            self.assertTrue(read.chunks[-1].usage and not read.chunks[-1].choices)

    def check_chat(self, scenario: Scenario, read: Read) -> None:
        state = ChatCompletionStreamState()
        for chunk in read.chunks:
            for _ in state.handle_chunk(chunk):
                pass
        if not read.chunks:
            self.assertIsNotNone(read.error)
            return
        heard: dict[tuple[int, str], str] = {}
        for choice in essence(state.current_completion_snapshot)["choices"]:
            index = choice["index"]
            heard[index, "content"] = choice["content"] or ""
            heard[index, "reasoning"] = choice["reasoning_content"] or ""
            heard[index, "arguments"] = "".join(arguments for _, _, _, arguments in choice["tool_calls"])
            tokens = (choice["logprobs"] or {}).get("content") or []
            heard[index, "tokens"] = "".join(f"{entry['token']}|" for entry in tokens)
            self.assertEqual(len(read.finishes(index)), 0 if read.error and not read.finishes(index) else 1)
            for call in read.calls(index):
                self.assertEqual(call["type"], "function")
                self.assertRegex(call["id"], "^(call_|functions[.])")
                self.assertEqual(call["id"].count("call_"), 1, "an id is sent once")
        self.assertEqual({key: text for key, text in heard.items() if text}, texts(scenario))
        if read.error is None:
            self.assertEqual(len(state.current_completion_snapshot.choices), scenario.body.get("n") or 1)

    def check_legacy(self, scenario: Scenario, read: Read) -> None:
        heard: dict[tuple[int, str], str] = defaultdict(str)
        finished: list[int] = []
        for chunk in read.chunks:
            for choice in chunk.choices:
                heard[choice.index, "text"] += choice.text  # type: ignore[attr-defined]
                tokens = (choice.logprobs.tokens or []) if choice.logprobs else []  # type: ignore[union-attr]
                heard[choice.index, "tokens"] += "".join(f"{token}|" for token in tokens)
                finished += [choice.index] if choice.finish_reason else []
        self.assertEqual({key: text for key, text in heard.items() if text}, texts(scenario))
        self.assertEqual(len(finished), len(set(finished)))

    def test_each_scenario_reads_as_what_it_is(self) -> None:
        counted: dict[str, int] = defaultdict(int)
        for scenario in scenarios():
            with self.subTest(scenario=scenario.name):
                if scenario.error is not None:
                    counted["refused"] += 1
                    self.check_refused(scenario)
                elif scenario.stream:
                    counted["streamed"] += 1
                    self.check_stream(scenario)
                else:
                    counted["whole"] += 1
                    self.check_whole(scenario)
        for kind, least in (("refused", 5), ("streamed", 50), ("whole", 15)):
            self.assertGreaterEqual(counted[kind], least, f"too few recorded answers of the kind '{kind}'")

    def check_whole(self, scenario: Scenario) -> None:
        answer = self.send(scenario)
        written = json.loads((scenario.folder / "upstream.json").read_text())
        self.assertEqual([choice.index for choice in answer.choices], list(range(len(written["choices"]))))
        # Fields outside the API are there only if the request wants them from the engine.
        extensions = [key for field, key in EXTENSIONS.items() if scenario.body.get(field) is not None]
        asked_for = {key: written[key] for key in extensions if written.get(key) is not None}
        self.assertEqual(answer.model_extra, asked_for)
        for choice, engine in zip(answer.choices, written["choices"]):
            if scenario.api == "completions":
                self.assertEqual(choice.text, engine["text"])
                continue
            content = engine["message"].get("content") or ""
            reasoning = next((engine["message"][name] for name in REASONING if engine["message"].get(name)), None)
            if continues(scenario):
                content, reasoning = content + (reasoning or ""), None
            self.assertEqual(choice.message.content or "", content)
            self.assertEqual((choice.message.model_extra or {}).get("reasoning_content"), reasoning)
            calls = [call.function for call in choice.message.tool_calls or []]
            expected = [call["function"] for call in engine["message"].get("tool_calls") or []]
            self.assertEqual(
                [(call.name, json.loads(call.arguments)) for call in calls],
                [(call["name"], json.loads(call["arguments"])) for call in expected],
            )

    def test_put_together_equals_the_whole_answer(self) -> None:
        """Where both forms of one request are recorded: the same text, calls and end."""
        all_of_them = {scenario.name: scenario for scenario in scenarios()}
        self.assertLessEqual(set(ENGINE_DIFFERS), set(all_of_them), "an exception for what is not there")
        pairs = 0
        for name, whole in all_of_them.items():
            streamed = all_of_them.get(name.removesuffix("-whole"))
            if streamed is None or streamed is whole or whole.api != "chat" or streamed.error or whole.error:
                continue
            if asked(streamed) != asked(whole) or streamed.ends_in_error or name in ENGINE_DIFFERS:
                continue
            pairs += 1
            with self.subTest(scenario=name):
                state = ChatCompletionStreamState()
                for chunk in self.send(streamed):
                    for _ in state.handle_chunk(chunk):
                        pass
                self.assertEqual(comparable(state.current_completion_snapshot), comparable(self.send(whole)))
        self.assertGreaterEqual(pairs, 6, "too few scenarios recorded in both forms")


# Parameters of engines, and what answers have of them beside their choices.
EXTENSIONS = {"return_token_ids": "prompt_token_ids", "prompt_logprobs": "prompt_logprobs"}

# Scenarios in which the engine itself answers one request differently in its two forms.
ENGINE_DIFFERS = {
    "vllm/gptoss-tool-on-analysis-whole": "the whole answer has the arguments a second time, as reasoning",
    "vllm/logprobs-whole": "the stream has no entries for the end of the reasoning",
    "vllm/tool-broken-whole": "the whole answer has the unfinished call as raw text",
    "vllm/tool-length-whole": "the whole answer has the unfinished call as raw text",
    "vllm/tool-whole": "the stream lacks the last characters of the reasoning",
}


def asked(scenario: Scenario) -> dict[str, Any]:
    """The request, except for the form of the answer."""
    return {key: value for key, value in scenario.body.items() if key not in ("stream", "stream_options", "model")}


def comparable(completion: ChatCompletion) -> list[dict[str, Any]]:
    """Two recordings of one request differ in ids, clock, and the white space at the ends
    of a text: engines trim it in a whole answer, and cannot in a stream."""
    choices = essence(completion)["choices"]
    for choice in choices:
        for text in ("content", "reasoning_content"):
            choice[text] = (choice[text] or "").strip()
        choice["tool_calls"] = [(kind, name, json.loads(arguments)) for _, kind, name, arguments in choice["tool_calls"]]
    return choices


if __name__ == "__main__":
    unittest.main()
