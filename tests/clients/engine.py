"""A scripted engine on raw sockets: what no capture holds.

It speaks the OpenAI-like API the way engines do, with their habits left in (role
with an empty text, ids in the wrong format, `reasoning` for `reasoning_content`,
the last text on the finish chunk, numeric error codes), and fails in all the ways
an engine fails. The `model` of a request selects the script, so that one process
serves the tests of every language.

Run it alone with `python3 engine.py`; it prints one JSON line with its address.
"""

from __future__ import annotations

import base64
import email
import itertools
import json
import socket
import struct
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Optional

CREATED = 1_700_000_000
KEY = "sk-right"


# --- what a script is -----------------------------------------------------------


@dataclass
class Answer:
    """One answer: head, frames or body, and the manner in which it ends."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    frames: Optional[list[bytes]] = None
    # "clean": as HTTP wants it; "cut": closed inside the chunked body; "reset": RST.
    ending: str = "clean"
    # Seconds before each frame.
    pause: float = 0.0


Script = Callable[[str, dict[str, Any], dict[str, str]], Answer]
SCRIPTS: dict[str, Script] = {}
# Routes that other engines add to these, by their paths.
ROUTES: dict[str, Script] = {}


def script(name: str) -> Callable[[Script], Script]:
    def register(function: Script) -> Script:
        SCRIPTS[name] = function
        return function

    return register


def data(value: Any, event: Optional[str] = None) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, separators=(", ", ": "))
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {text}\n\n".encode()


DONE = data("[DONE]")


def whole(value: Any, status: int = 200, headers: Optional[dict[str, str]] = None) -> Answer:
    return Answer(status, {"content-type": "application/json", **(headers or {})}, json.dumps(value).encode())


def stream(frames: Iterable[bytes], ending: str = "clean") -> Answer:
    return Answer(200, {"content-type": "text/event-stream; charset=utf-8"}, frames=list(frames), ending=ending)


def wants_usage(body: dict[str, Any]) -> bool:
    return bool((body.get("stream_options") or {}).get("include_usage"))


# --- chat -----------------------------------------------------------------------

USAGE = {"prompt_tokens": 11, "total_tokens": 18, "completion_tokens": 7, "prompt_tokens_details": None}


def chunk(model: str, choices: list[dict[str, Any]], **more: Any) -> bytes:
    return data(
        {
            "id": f"chatcmpl-{model}",
            "object": "chat.completion.chunk",
            "created": CREATED,
            "model": model,
            "choices": choices,
            **more,
        }
    )


def choice(delta: dict[str, Any], index: int = 0, finish: Optional[str] = None, **more: Any) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish, "token_ids": None, **more}


def completion(model: str, choices: list[dict[str, Any]], usage: Any = USAGE) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{model}",
        "object": "chat.completion",
        "created": CREATED,
        "model": model,
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": "engine-1.2.3-tp8",
        "usage": usage,
        "prompt_logprobs": None,
        "kv_transfer_params": None,
    }


def answer_choice(message: dict[str, Any], index: int = 0, finish: str = "stop", logprobs: Any = None) -> dict[str, Any]:
    full = {"role": "assistant", "content": None, "refusal": None, "annotations": None, "audio": None}
    return {
        "index": index,
        "message": {**full, "function_call": None, **message},
        "logprobs": logprobs,
        "finish_reason": finish,
        "stop_reason": None,
    }


def role(index: int = 0) -> dict[str, Any]:
    return choice({"role": "assistant", "content": ""}, index)


def chat(
    name: str,
    steps: list[list[dict[str, Any]]],
    message: list[dict[str, Any]],
    usage: Any = USAGE,
) -> None:
    """Registers a chat scenario: the choices of each chunk, and the same as a whole answer."""

    def run(path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
        if not body.get("stream"):
            return whole(completion(name, message, usage))
        frames = [chunk(name, choices) for choices in steps]
        if usage is not None and wants_usage(body):
            frames.append(chunk(name, [], usage=usage, system_fingerprint="engine-1.2.3-tp8"))
        return stream([*frames, DONE])

    SCRIPTS[name] = run


def text_steps(*pieces: str) -> list[list[dict[str, Any]]]:
    return [[role()], *[[choice({"content": piece, "tool_calls": []})] for piece in pieces]]


def call(name: Optional[str], arguments: Any, index: int = 0, id: Optional[str] = None) -> dict[str, Any]:
    return {"id": id, "type": "function", "index": index, "function": {"name": name, "arguments": arguments}}


chat(
    "text",
    [*text_steps("Grüße", ", ", "wörld \U0001f30d\u2028"), [choice({"content": "."}, finish="stop", stop_reason=None)]],
    [answer_choice({"content": "Grüße, wörld \U0001f30d\u2028.", "tool_calls": []})],
)

chat(
    "reasoning",
    [
        [role()],
        [choice({"reasoning": "Let me "})],
        [choice({"reasoning": "think.", "content": None})],
        [choice({"reasoning": None, "content": "Four"})],
        [choice({"content": "."})],
        [choice({}, finish="stop")],
    ],
    [answer_choice({"content": "Four.", "reasoning": "Let me think.", "tool_calls": []})],
    usage={
        "prompt_tokens": 11,
        "total_tokens": 18,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 4},
    },
)

WEATHER = '{"city": "Zürich", "days": 3}'
TIME = '{"zone": "Europe/Zurich"}'

chat(
    "tool",
    [
        [role()],
        [choice({"tool_calls": [{"id": "chatcmpl-tool-aa11", "type": "function", "index": 0, "function": {"name": "get_weather"}}]})],
        [choice({"content": None, "tool_calls": [{"index": 0, "function": {"name": None, "arguments": '{"city": "'}}]})],
        [choice({"tool_calls": [{"index": 0, "id": "chatcmpl-tool-aa11", "function": {"arguments": "Zürich"}}]})],
        [choice({"tool_calls": [{"index": 0, "function": {"arguments": '", "days": 3}'}}]})],
        [choice({"content": ""}, finish="stop")],
    ],
    [answer_choice({"content": "", "tool_calls": [call("get_weather", WEATHER, id="chatcmpl-tool-aa11")]}, finish="tool_calls")],
)

chat(
    "tool-parallel",
    [
        [role()],
        [choice({"content": "Looking."})],
        [
            choice(
                {
                    "tool_calls": [
                        call("get_weather", WEATHER, 0, "call_first"),
                        call("get_time", TIME, 1, "call_second"),
                    ]
                }
            )
        ],
        [choice({}, finish="tool_calls")],
    ],
    [
        answer_choice(
            {
                "content": "Looking.",
                "tool_calls": [
                    call("get_weather", WEATHER, 0, "call_first"),
                    call("get_time", TIME, 1, "call_second"),
                ],
            },
            finish="tool_calls",
        )
    ],
)

# The engine counts its calls from 3 with a gap, and repeats id and name on each fragment.
chat(
    "tool-gaps",
    [
        [role()],
        [choice({"tool_calls": [call("get_weather", WEATHER[:9], 3, "call_first")]})],
        [choice({"tool_calls": [call("get_weather", WEATHER[9:], 3, "call_first")]})],
        [choice({"tool_calls": [call("get_time", TIME[:4], 7, "call_second")]})],
        [choice({"tool_calls": [call("get_time", TIME[4:], 7, "call_second")]})],
        [choice({}, finish="tool_calls")],
    ],
    [
        answer_choice(
            {"tool_calls": [call("get_weather", WEATHER, 3, "call_first"), call("get_time", TIME, 7, "call_second")]},
            finish="tool_calls",
        )
    ],
)

chat(
    "tool-object-arguments",
    [
        [role()],
        [choice({"tool_calls": [call("get_weather", json.loads(WEATHER), 0, "call_object")]})],
        [choice({}, finish="tool_calls")],
    ],
    [answer_choice({"tool_calls": [call("get_weather", json.loads(WEATHER), 0, "call_object")]}, finish="tool_calls")],
)

chat(
    "tool-late-name",
    [
        [role()],
        [choice({"tool_calls": [{"index": 0, "id": "call_late", "function": {"arguments": '{"city": '}}]})],
        [choice({"tool_calls": [{"index": 0, "function": {"arguments": '"Zürich"'}}]})],
        [choice({"tool_calls": [{"index": 0, "function": {"name": "get_weather", "arguments": ', "days": 3}'}}]})],
        [choice({}, finish="tool_calls")],
    ],
    [answer_choice({"tool_calls": [call("get_weather", WEATHER, 0, "call_late")]}, finish="tool_calls")],
)

chat(
    "tool-no-name",
    [
        [role()],
        [choice({"content": "So be it."})],
        [choice({"tool_calls": [{"index": 0, "id": "call_nameless", "function": {"arguments": "{}"}}]})],
        [choice({}, finish="tool_calls")],
    ],
    [answer_choice({"tool_calls": [call(None, "{}", 0, "call_nameless")]}, finish="tool_calls")],
)

chat(
    "n2",
    [
        [choice({"role": "assistant", "content": ""}, 1)],
        [choice({"content": "second "}, 1)],
        [choice({"role": "assistant", "content": "first "}, 0), choice({"content": "answer"}, 1)],
        [choice({}, 1, finish="stop")],
        [choice({"content": "answer"}, 0, finish="eos_token")],
    ],
    [
        answer_choice({"content": "first answer"}, 0, finish="eos_token"),
        answer_choice({"content": "second answer"}, 1),
    ],
)

chat(
    "refusal",
    [
        [role()],
        [choice({"refusal": "I cannot "})],
        [choice({"refusal": "help with that."})],
        [choice({}, finish="stop")],
    ],
    [answer_choice({"refusal": "I cannot help with that."})],
)


def logprob(token: str, value: float) -> dict[str, Any]:
    top = [{"token": token, "logprob": value, "bytes": list(token.encode())}]
    return {"token": token, "logprob": value, "bytes": list(token.encode()), "top_logprobs": top}


chat(
    "logprobs",
    [
        [role()],
        [choice({"content": "Yes"}, logprobs={"content": [logprob("Yes", -0.25)]})],
        # A token that has no text yet: the first half of an emoji.
        [choice({}, logprobs={"content": [logprob("�", -1.5)]})],
        [choice({"content": "!"}, finish="stop", logprobs={"content": [logprob("!", -0.5)]})],
    ],
    [
        answer_choice(
            {"content": "Yes!"},
            logprobs={"content": [logprob("Yes", -0.25), logprob("�", -1.5), logprob("!", -0.5)], "refusal": None},
        )
    ],
)

chat(
    "schema",
    [
        [role()],
        *[[choice({"content": piece})] for piece in ('{"na', 'me": "Ada', '", "born": 18', "15}")],
        [choice({}, finish="stop")],
    ],
    [answer_choice({"content": '{"name": "Ada", "born": 1815}'})],
)

chat(
    "limit",
    [[role()], [choice({"content": '{"name": "A'}, finish="length")]],
    [answer_choice({"content": '{"name": "A'}, finish="length")],
)

chat("no-usage", [*text_steps("Uncounted."), [choice({}, finish="stop")]], [answer_choice({"content": "Uncounted."})], None)


@script("usage-on-finish")
def usage_on_finish(path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
    if not body.get("stream"):
        return whole(completion("usage-on-finish", [answer_choice({"content": "Counted."})]))
    return stream(
        [
            chunk("usage-on-finish", [role()], usage={**USAGE, "completion_tokens": 0, "total_tokens": 11}),
            chunk("usage-on-finish", [choice({"content": "Counted."})], usage={**USAGE, "completion_tokens": 2, "total_tokens": 13}),
            chunk("usage-on-finish", [choice({}, finish="stop")], usage=USAGE),
            DONE,
        ]
    )


# --- answers that are stored, hence with their own id ----------------------------------

COUNT = itertools.count(1)


def numbered(name: str, of: str) -> None:
    """The scenario `of`, each time under another id."""

    def run(path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
        answer = SCRIPTS[of](path, body, headers)
        old, new = f"chatcmpl-{of}\"".encode(), f"chatcmpl-{name}-{next(COUNT)}\"".encode()
        if answer.frames is not None:
            answer.frames = [frame.replace(old, new) for frame in answer.frames]
        answer.body = answer.body.replace(old, new)
        return answer

    SCRIPTS[name] = run


for _scenario in ("text", "reasoning", "tool-parallel", "schema", "limit", "refusal"):
    numbered(f"stored-{_scenario}", _scenario)


@script("slow")
def slow(path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
    """Counts, for as long as somebody listens: ten words a second, at most half a minute."""
    steps = [chunk("slow", [role()]), *(chunk("slow", [choice({"content": f"{n} "})]) for n in range(300))]
    id = f"chatcmpl-slow-{next(COUNT)}".encode()
    answer = stream([*[frame.replace(b"chatcmpl-slow", id) for frame in steps], chunk("slow", [choice({}, finish="stop")]), DONE])
    answer.pause = 0.1
    return answer


@script("agent")
def agent(path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
    """Calls its tools, and after their outputs says what it was told."""
    outputs = [message["content"] for message in body["messages"] if message["role"] == "tool"]
    if not outputs:
        return SCRIPTS["stored-tool-parallel"](path, body, headers)
    text, id = " and ".join(outputs), f"chatcmpl-agent-{next(COUNT)}"
    if not body.get("stream"):
        return whole({**completion("agent", [answer_choice({"content": text})]), "id": id})
    frames = [chunk("agent", [role()]), chunk("agent", [choice({"content": text})]), chunk("agent", [choice({}, finish="stop")])]
    return stream([*[frame.replace(b"chatcmpl-agent", id.encode()) for frame in frames], DONE])


@script("caller")
def caller(path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
    """Calls the tool that the first message names, with its arguments, and repeats what that gave."""
    outputs = [message["content"] for message in body["messages"] if message["role"] == "tool"]
    _, name, arguments = body["messages"][0]["content"].split(" ", 2)
    offered = [tool["function"]["name"] for tool in body.get("tools", [])]
    message: dict[str, Any] = {"content": "Outputs: " + " and ".join(outputs)}
    if not outputs and name in offered:
        message = {"content": None, "tool_calls": [call(name, arguments, id=f"call_{next(COUNT)}")]}
    finish, id = "tool_calls" if "tool_calls" in message else "stop", f"chatcmpl-caller-{next(COUNT)}"
    if not body.get("stream"):
        return whole({**completion("caller", [answer_choice(message, finish=finish)]), "id": id})
    frames = [chunk("caller", [role()]), chunk("caller", [choice(message)]), chunk("caller", [choice({}, finish=finish)])]
    return stream([*[frame.replace(b"chatcmpl-caller", id.encode()) for frame in frames], DONE])


@script("echo")
def echo(path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
    """Says what messages it was sent."""
    said = json.dumps(body["messages"], ensure_ascii=False)
    return whole({**completion("echo", [answer_choice({"content": said})]), "id": f"chatcmpl-echo-{next(COUNT)}"})


# --- ends that are not ends -------------------------------------------------------


def broken(name: str, tail: list[bytes], ending: str = "clean") -> None:
    """Some text, as chat or as legacy completion, and then no good end."""

    def run(path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
        if path.endswith("/chat/completions"):
            head = [chunk(name, choices) for choices in text_steps("Half ", "an answer")]
        else:
            head = [text_chunk(name, "Half "), text_chunk(name, "an answer")]
        return stream([*head, *tail], ending)

    SCRIPTS[name] = run


broken(
    "error-mid-stream",
    [data({"error": {"message": "CUDA out of memory", "type": "InternalServerError", "param": None, "code": 500}}), DONE],
)
broken("error-flat", [data({"object": "error", "message": "engine overloaded", "type": "ServiceUnavailableError", "code": 503}, "error")])
broken("cut", [], "cut")
broken("reset", [], "reset")
broken("no-finish", [])
broken("no-finish-done", [DONE])
broken("garbage", [data('{"id": "chatcmpl-garbage", "choices": [{"ind')])


@script("aborted")
def aborted(path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
    if not body.get("stream"):
        return whole(completion("aborted", [answer_choice({"content": "Half "}, finish="abort")]))
    frames = [chunk("aborted", choices) for choices in text_steps("Half ")]
    return stream([*frames, chunk("aborted", [choice({}, finish="abort")]), DONE])


# --- errors before the stream -----------------------------------------------------

ERRORS: dict[int, dict[str, Any]] = {
    400: {"message": "temperature must be non-negative, got -1.0", "type": "BadRequestError", "param": "temperature", "code": 400},
    401: {"message": "Invalid credentials", "type": "AuthenticationError", "param": None, "code": 401},
    403: {"message": "Not for you", "type": "PermissionDeniedError", "param": None, "code": 403},
    404: {"message": "The model `nope` does not exist.", "type": "NotFoundError", "param": "model", "code": 404},
    422: {"message": "messages is too short", "type": "ValidationError", "param": "messages", "code": 422},
    429: {"message": "The request queue is full.", "type": "RateLimitError", "param": None, "code": 429},
    500: {"message": "EngineCore encountered an issue.", "type": "InternalServerError", "param": None, "code": 500},
    503: {"message": "Service is shutting down.", "type": "ServiceUnavailableError", "param": None, "code": 503},
}


def failing(status: int) -> None:
    error = ERRORS[status]

    def by_status(path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
        return whole({"error": error}, status, {"retry-after": "7"} if status in (429, 503) else None)

    def by_event(path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
        return stream([data({"error": error}), DONE])

    SCRIPTS[f"status-{status}"] = by_status
    SCRIPTS[f"event-{status}"] = by_event


for _status in ERRORS:
    failing(_status)


BUSY: set[str] = set()


@script("busy-once")
def busy_once(path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
    """Turns each `user` away the first time."""
    if body["user"] not in BUSY:
        BUSY.add(body["user"])
        return whole({"error": ERRORS[429]}, 429, {"retry-after": "1"})
    return SCRIPTS["text"](path, body, headers)


@script("context-length")
def context_length(path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
    message = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."
    return whole({"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400}, 400)


@script("detail-list")
def detail_list(path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
    detail = [{"type": "missing", "loc": ["body", "messages"], "msg": "Field required", "input": {}}]
    return whole({"detail": detail}, 422)


@script("html")
def html(path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
    return Answer(502, {"content-type": "text/html"}, b"<html><body><h1>502 Bad Gateway</h1></body></html>")


@script("locked")
def locked(path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
    """An engine started with its own key: the client's key has to reach it."""
    if headers.get("authorization") != f"Bearer {KEY}":
        return whole({"error": "Unauthorized"}, 401)
    return whole(completion("locked", [answer_choice({"content": "Come in."})]))


# --- legacy completions -----------------------------------------------------------


def text_chunk(model: str, text: str, index: int = 0, finish: Optional[str] = None, logprobs: Any = None) -> bytes:
    part = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish, "stop_reason": None, "token_ids": None}
    return data({"id": f"cmpl-{model}", "object": "text_completion", "created": CREATED, "model": model, "choices": [part], "usage": None})


@script("legacy")
def legacy(path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
    logprobs = [
        {"tokens": [token], "token_logprobs": [value], "top_logprobs": [{token: value}], "text_offset": [offset]}
        for token, value, offset in ((" a", -0.5, 0), (" time", -0.75, 2))
    ]
    if not body.get("stream"):
        joined = {key: sum((part[key] for part in logprobs), []) for key in logprobs[0]}
        part = {"index": 0, "text": " a time", "logprobs": joined, "finish_reason": "length", "stop_reason": None, "prompt_logprobs": None}
        return whole(
            {"id": "cmpl-legacy", "object": "text_completion", "created": CREATED, "model": "legacy", "choices": [part], "usage": USAGE}
        )
    frames = [
        text_chunk("legacy", " a", logprobs=logprobs[0]),
        text_chunk("legacy", " time", finish="length", logprobs=logprobs[1]),
    ]
    if wants_usage(body):
        frames.append(data({"id": "cmpl-legacy", "object": "text_completion", "created": CREATED, "model": "legacy", "choices": [], "usage": USAGE}))
    return stream([*frames, DONE])


# --- embeddings, models -----------------------------------------------------------

VECTORS = [[0.25, -0.5, 1.0], [0.125, 2.0, -4.0]]


@script("embed")
def embed(path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
    def written(vector: list[float]) -> Any:
        if body.get("encoding_format") == "base64":
            return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
        return vector

    rows = [{"index": at, "object": "embedding", "embedding": written(vector)} for at, vector in enumerate(VECTORS)]
    return whole(
        {
            "id": "embd-1",
            "object": "list",
            "created": CREATED,
            "model": "embed",
            "data": rows,
            "usage": {"prompt_tokens": 5, "total_tokens": 5, "completion_tokens": 0, "prompt_tokens_details": None},
        }
    )


# --- routes that are relayed ------------------------------------------------------

SPOKEN = bytes(range(256)) * 400


def form(headers: dict[str, str], raw: bytes) -> dict[str, bytes]:
    """The parts of a multipart form, by their names."""
    message = email.message_from_bytes(b"content-type: " + headers["content-type"].encode() + b"\r\n\r\n" + raw)
    return {
        str(part.get_param("name", header="content-disposition")): part.get_payload(decode=True)
        for part in message.get_payload()
    }


def told(parts: dict[str, bytes]) -> Answer:
    """What came, as a transcription and as an image."""
    what = f"{parts['model'].decode()}: {len(parts.get('file') or parts['image'])} bytes"
    return whole({"text": what, "created": CREATED, "data": [{"url": what}]})


def models() -> Answer:
    rows = [
        {
            "id": name,
            "object": "model",
            "created": CREATED,
            "owned_by": "vllm",
            "root": name,
            "parent": None,
            "max_model_len": 4096,
            "permission": [{"id": "modelperm-1", "object": "model_permission"}],
        }
        for name in sorted(SCRIPTS)
    ]
    return whole({"object": "list", "data": rows})


# --- the server -------------------------------------------------------------------


def unknown_model(name: Any) -> Answer:
    error = {"message": f"The model `{name}` does not exist.", "type": "NotFoundError", "param": "model", "code": 404}
    return whole({"error": error}, 404)


def respond(method: str, path: str, headers: dict[str, str], raw: bytes) -> Answer:
    path = path.partition("?")[0]
    if method == "GET":
        if path == "/v1/models":
            return models()
        if path in ("/health", "/ping"):
            return Answer(200)
        if path == "/version":
            return whole({"version": "0.21.0"})
        return whole({"detail": "Not Found"}, 404)
    if path in ("/v1/audio/transcriptions", "/v1/images/edits"):
        return told(form(headers, raw))
    if path == "/v1/audio/speech":
        return Answer(200, {"content-type": "audio/mpeg"}, json.loads(raw)["model"].encode() + SPOKEN)
    if path in ROUTES:
        return ROUTES[path](path, json.loads(raw), headers)
    if path not in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings"):
        return whole({"detail": "Not Found"}, 404)
    body = json.loads(raw)
    run = SCRIPTS.get(body.get("model", ""))
    if run is None:
        return unknown_model(body.get("model"))
    return run(path, body, headers)


def write_answer(connection: socket.socket, answer: Answer) -> bool:
    """Writes it, one send for each frame; says whether the connection can be used again."""
    head = [f"HTTP/1.1 {answer.status} Scripted", "server: uvicorn"]
    head += [f"{name}: {value}" for name, value in answer.headers.items()]
    if answer.frames is None:
        head.append(f"content-length: {len(answer.body)}")
        connection.sendall("\r\n".join([*head, "", ""]).encode() + answer.body)
        return True
    head.append("transfer-encoding: chunked")
    connection.sendall("\r\n".join([*head, "", ""]).encode())
    for frame in answer.frames:
        if answer.pause:
            time.sleep(answer.pause)
        connection.sendall(f"{len(frame):x}\r\n".encode() + frame + b"\r\n")
    if answer.ending == "clean":
        connection.sendall(b"0\r\n\r\n")
        return True
    if answer.ending == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False


def read_request(reader: Any) -> Optional[tuple[str, str, dict[str, str], bytes]]:
    line = reader.readline()
    if not line.strip():
        return None
    method, path, _ = line.decode().split(" ", 2)
    headers: dict[str, str] = {}
    while (line := reader.readline().strip()) != b"":
        name, _, value = line.decode().partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return method, path, headers, reader.read(int(headers.get("content-length", "0")))
    raw = b""
    while (size := int(reader.readline().split(b";")[0], 16)) > 0:
        raw += reader.read(size)
        reader.readline()
    reader.readline()
    return method, path, headers, raw


def serve_connection(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    reader = connection.makefile("rb")
    try:
        while (request := read_request(reader)) is not None:
            if not write_answer(connection, respond(*request)):
                return
    except (OSError, ValueError):
        # The peer left, which is its right; there is nobody to tell.
        return
    finally:
        # The reader holds the socket open: without its end no FIN or RST would leave.
        reader.close()
        connection.close()


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    host, port = listener.getsockname()
    print(json.dumps({"message": "listening", "listener": "engine", "address": f"{host}:{port}"}), file=sys.stderr, flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve_connection, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main()
