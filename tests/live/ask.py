"""Asks one question in every way: directly and through samewire, as a stream and whole, as bytes and by the official library."""

from __future__ import annotations

import http.client
import json
import subprocess
from pathlib import Path
from typing import Any

import openai

import answers as read
from answers import Answer
from questions import Question

SECONDS = 120
ROUTES = {"chat": "/v1/chat/completions", "completions": "/v1/completions", "responses": "/v1/responses"}


def post(address: str, path: str, body: dict[str, Any]) -> tuple[http.client.HTTPResponse, bytes]:
    host, _, port = address.partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=SECONDS)
    try:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def through(address: str, api: str, body: dict[str, Any]) -> Answer:
    """What a client gets as bytes, judged by the canonical form."""
    response, told = post(address, ROUTES[api], body)
    if response.status != 200:
        return read.error(told, response.status)
    if not body.get("stream"):
        return getattr(read, f"{api}_whole")(told)
    if response.headers["content-type"] != "text/event-stream; charset=utf-8":
        return Answer(error=f"a stream of {response.headers['content-type']}")
    return getattr(read, f"{api}_stream")(told)


def direct(address: str, body: dict[str, Any], record: Path) -> Answer:
    """What the engine itself says, kept in the form of a fixture."""
    response, told = post(address, ROUTES["chat"], body)
    record.mkdir(parents=True, exist_ok=True)
    asked = {"method": "POST", "path": ROUTES["chat"], "body": body}
    (record / "request.json").write_text(json.dumps(asked, ensure_ascii=False, indent=1))
    head = "".join(f"{name}: {value}\n" for name, value in response.headers.items())
    (record / "upstream.http").write_text(f"HTTP/1.1 {response.status} {response.reason}\n{head}")
    streamed = response.headers["content-type"].startswith("text/event-stream")
    (record / ("upstream.sse" if streamed else "upstream.json")).write_bytes(told)
    if response.status != 200:
        return Answer(error=f"{response.status}")
    return read.engine_chat_stream(told) if streamed else read.chat_whole(told)


def rewritten(binary: str, engine: str, record: Path) -> Answer:
    """The same bytes through samewire's filter: two answers of an engine are not always the same, this is one."""
    body = next(path for path in record.glob("upstream.*") if path.suffix in (".sse", ".json"))
    command = [binary, "rewrite", "--engine", engine, "--request", str(record / "request.json")]
    told = subprocess.run(command, input=body.read_bytes(), capture_output=True, timeout=SECONDS, check=True).stdout
    return read.chat_stream(told) if body.suffix == ".sse" else read.chat_whole(told)


def raw(address: str, model: str, question: Question) -> tuple[str, str]:
    """All that the model says, special tokens with it, and why it ended."""
    answer = read.completions_whole(post(address, ROUTES["completions"], question.completions(model, False))[1])
    return answer.content, answer.finish


# === The official library

# What the APIs do not have, and goes with a request all the same.
FOREIGN = {"chat": ("chat_template_kwargs",), "responses": ("chat_template_kwargs", "stop")}


def library(client: openai.OpenAI, api: str, body: dict[str, Any]) -> Answer:
    foreign = {key: body[key] for key in FOREIGN[api] if key in body}
    known = {key: value for key, value in body.items() if key not in foreign}
    create = {"chat": client.chat.completions.create, "responses": client.responses.create}[api]
    try:
        told = create(**known, extra_body=foreign)
        if api == "responses":
            return library_responses(told) if body["stream"] else read.response(told.to_dict())
        return library_chat(told) if body.get("stream") else read.chat_whole(told.to_json().encode())
    except openai.APIStatusError as error:
        kind = (error.body or {}) if isinstance(error.body, dict) else {}
        return Answer(error=f"{error.status_code} {kind.get('type')} {error.code}")


def library_chat(stream: openai.Stream[Any]) -> Answer:
    answer, calls = Answer(), {}
    for chunk in stream:
        if chunk.usage:
            answer.tokens = chunk.usage.completion_tokens
        for choice in chunk.choices:
            answer.reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            answer.content += choice.delta.content or ""
            answer.finish = choice.finish_reason or answer.finish
            for call in choice.delta.tool_calls or ():
                name, arguments = calls.get(call.index, ("", ""))
                calls[call.index] = (name + (call.function.name or ""), arguments + (call.function.arguments or ""))
    answer.calls = [calls[index] for index in sorted(calls)]
    return answer


def library_responses(stream: openai.Stream[Any]) -> Answer:
    answer = Answer(error="no terminal event")
    for event in stream:
        if event.type in read.TERMINAL:
            answer = read.response(event.response.to_dict())
    return answer
