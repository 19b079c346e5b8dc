"""Asks one question in every way: directly and through samewire, as a stream and whole, as bytes and by the official library."""

from __future__ import annotations

import http.client
import json
import subprocess
from pathlib import Path
from typing import Any

import anthropic
import openai

import answers as read
import message_answers
from answers import Answer
from questions import Question

SECONDS = 120
ROUTES = {"chat": "/v1/chat/completions", "completions": "/v1/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
# What reads an answer: whole, a stream, an error.
READERS = {
    "chat": (read.chat_whole, read.chat_stream, read.error),
    "completions": (read.completions_whole, read.completions_stream, read.error),
    "responses": (read.responses_whole, read.responses_stream, read.error),
    "messages": (message_answers.whole, message_answers.stream, message_answers.error),
}


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
    whole, stream, error = READERS[api]
    response, told = post(address, ROUTES[api], body)
    if response.status != 200:
        return error(told, response.status)
    if not body.get("stream"):
        return whole(told)
    if response.headers["content-type"] != "text/event-stream; charset=utf-8":
        return Answer(error=f"a stream of {response.headers['content-type']}")
    return stream(told)


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


def rewritten(binary: str, engine: str, record: Path, message: dict[str, Any] | None = None) -> Answer:
    """The same bytes through samewire's filter: two answers of an engine are not always the same, this is one. As an answer of
    Messages, if their request is given."""
    body = next(path for path in record.glob("upstream.*") if path.suffix in (".sse", ".json"))
    request, api = record / "request.json", "chat"
    if message:
        request, api = record / "message.json", "messages"
        request.write_text(json.dumps({"method": "POST", "path": ROUTES[api], "body": message}, ensure_ascii=False, indent=1))
    # The text is compared with the engine's own.
    command = [binary, "rewrite", "--engine", engine, "--request", str(request), "--api", "chat", "--to", api, "--set", "parser=off"]
    told = subprocess.run(command, input=body.read_bytes(), capture_output=True, timeout=SECONDS, check=True).stdout
    whole, stream, _ = READERS[api]
    answer = stream(told) if body.suffix == ".sse" else whole(told)
    # The filter has no keys to sign with.
    answer.faults = [fault for fault in answer.faults if fault != message_answers.UNSIGNED]
    return answer


def raw(address: str, model: str, question: Question) -> tuple[str, str]:
    """All that the model says, special tokens with it, and why it ended."""
    answer = read.completions_whole(post(address, ROUTES["completions"], question.completions(model, False))[1])
    return answer.content, answer.finish


# === The official library

# What the APIs do not have, and goes with a request all the same.
FOREIGN = {
    "chat": ("chat_template_kwargs", "top_k"),
    "responses": ("chat_template_kwargs", "stop"),
    "messages": ("chat_template_kwargs", "temperature", "top_p", "top_k"),
}


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


def library_messages(client: anthropic.Anthropic, body: dict[str, Any]) -> Answer:
    """A message by Anthropic's library; a stream by its helper, which adds the events up."""
    foreign = {key: body[key] for key in FOREIGN["messages"] if key in body}
    known = {key: value for key, value in body.items() if key not in (*foreign, "stream")}
    try:
        if not body["stream"]:
            return message_answers.message(client.messages.create(**known, extra_body=foreign).to_dict())
        with client.messages.stream(**known, extra_body=foreign) as stream:
            return streamed_message(stream)
    except anthropic.APIStatusError as error:
        told = error.body if isinstance(error.body, dict) else {}
        return Answer(error=f"{error.status_code} {error.type}: {(told.get('error') or {}).get('message')}")


def streamed_message(stream: anthropic.MessageStream[None]) -> Answer:
    """The helper's final message, but for the arguments of calls: it completes those that break off."""
    calls: dict[int, str] = {}
    texts = ""
    for event in stream:
        if event.type == "content_block_start" and event.content_block.type == "tool_use":
            calls[event.index] = ""
        elif event.type == "content_block_delta" and event.delta.type == "input_json_delta":
            calls[event.index] += event.delta.partial_json
        elif event.type == "text":
            texts += event.text
    answer = message_answers.message(stream.get_final_message().to_dict())
    answer.calls = [(name, message_answers.unwrapped(text)) for (name, _), text in zip(answer.calls, calls.values())]
    if texts != answer.content:
        answer.faults.append(f"the helper's events of text say {texts!r}")
    return answer
