"""Routes that are relayed: what an engine answers directly it answers through samewire, byte for byte."""

from __future__ import annotations

import json
import re
from typing import Any

import answers as read
import ask as asking

TEXTS = ["hello", "long"]
# What each engine has of them; those that it refuses in this run are canonical errors.
BODIES: dict[str, dict[str, dict[str, Any]]] = {
    "vllm": {
        "/tokenize": {"prompt": "hello"},
        "/detokenize": {"tokens": [1, 2, 3]},
        "/pooling": {"input": "hello"},
        "/classify": {"input": "hello"},
        "/score": {"text_1": "hello", "text_2": TEXTS},
        "/v1/score": {"text_1": "hello", "text_2": TEXTS},
        "/rerank": {"query": "hello", "documents": TEXTS},
        "/v1/rerank": {"query": "hello", "documents": TEXTS},
        "/v2/rerank": {"query": "hello", "documents": TEXTS},
        "/v1/embeddings": {"messages": [{"role": "user", "content": "hello"}]},
    },
    "sglang": {
        "/generate": {"text": "hello", "sampling_params": {"temperature": 0, "max_new_tokens": 8}},
        "/tokenize": {"prompt": "hello"},
        "/detokenize": {"tokens": [1, 2, 3]},
        "/classify": {"text": "hello"},
        "/v1/score": {"query": "hello", "items": TEXTS, "label_token_ids": [1, 2], "apply_softmax": True},
        "/v1/rerank": {"query": "hello", "documents": TEXTS},
    },
    "llamacpp": {
        "/tokenize": {"content": "hello"},
        "/detokenize": {"tokens": [1, 2, 3]},
        "/v1/rerank": {"query": "hello", "documents": TEXTS},
    },
}
# Values that differ from one answer to the next, from any server.
OWN = re.compile(rb'"(id|created|created_at|[a-z0-9_]*latency[a-z_]*|[a-z_]*(?:time|ts|ms|throughput)|cached_tokens)": ?("[^"]*"|[-+.0-9e]+|null)')


def told(engine: Any, address: str, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
    response, text = asking.post(address, path, {"model": engine.model, **body})
    return response.status, text


def check(engine: Any, proxy: Any) -> tuple[list[str], list[str]]:
    """The routes that answer, and what is wrong with any."""
    answered, wrong = [], []
    for path, body in BODIES[engine.name].items():
        # The first answer fills the engine's cache, of which the others tell.
        told(engine, engine.address, path, body)
        (here, direct), (there, through) = (told(engine, address, path, body) for address in (engine.address, proxy.address))
        if here == 200:
            answered.append(path)
            if there != 200 or OWN.sub(rb"", through) != OWN.sub(rb"", direct):
                wrong.append(f"{path}: {direct[:200]!r} and {there} {through[:200]!r}")
        elif faults := read.error(through, there).faults or ([] if there >= 400 else [f"status {there}"]):
            wrong.append(f"{path}: {here} directly, {faults}")
    return answered, wrong


def stream(engine: Any, proxy: Any) -> str | None:
    """A stream of SGLang's own form: texts that grow, and its end. A busy engine puts several tokens into one event."""
    body = {"text": "hello", "stream": True, "sampling_params": {"temperature": 0, "max_new_tokens": 8}}
    events = [re.findall(rb"^data: (.*)$", told(engine, address, "/generate", body)[1], re.MULTILINE) for address in (engine.address, proxy.address)]
    texts = [[json.loads(event).get("text") for event in told_events if event != b"[DONE]"] for told_events in events]
    grows = len(texts[1]) > 1 and all(longer.startswith(text) for text, longer in zip(texts[1], texts[1][1:]))
    return None if grows and texts[0][-1] == texts[1][-1] and events[1][-1] == b"[DONE]" else f"{texts}"
