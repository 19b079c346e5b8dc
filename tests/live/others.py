"""What is no comparison of answers: errors, clients that leave, many at once, several prompts and choices, conversations, and that the
engine is recognised."""

from __future__ import annotations

import http.client
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

import openai

import ask as asking
import relayed
from judge import Run, Skipped, alike
from questions import QUESTIONS, TOOLS
from servers import Engine, Samewire

LEAVE_SECONDS = 5


def ask(run: Run, engine: Engine, proxy: Samewire, client: openai.OpenAI) -> None:
    checks = (recognised, many, leaves, wrong_model, too_long, unnamed, prompts, logprobs, choices, relays, continued)
    for check in (recognised, relays) if engine.pools else checks:
        try:
            failure = check(run, engine, proxy, client)
        except Skipped as why:
            run.skip((check.__doc__ or "").strip(), str(why))
            continue
        except Exception as error:  # noqa: BLE001: whatever goes wrong is this check's failure
            failure = f"{type(error).__name__}: {error}"
        run.other((check.__doc__ or "").strip(), failure or "")


def page(address: str, path: str) -> str:
    host, _, port = address.partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def recognised(run: Run, engine: Engine, proxy: Samewire, _client: openai.OpenAI) -> str | None:
    """the engine is recognised by itself"""
    told = [line for line in proxy.server.log.read_text().splitlines() if "what the upstream is" in line]
    engines = set(re.findall(r"engine=(\w+)", "\n".join(told)))
    front_ends = set(re.findall(r"front_end=(\w+)", "\n".join(told)))
    # samewire tells the front ends of vLLM alone from one another.
    wanted = {engine.front_end} if engine.name == "vllm" and engine.front_end else set()
    http2 = "http2=offered" in "\n".join(told)
    right = (engines, front_ends - {"own"}, http2) == ({engine.name}, wanted, engine.http2)
    return None if right else f"taken for {engines} {front_ends}, HTTP/2 {http2}"


def many(run: Run, engine: Engine, proxy: Samewire, _client: openai.OpenAI) -> str | None:
    """sixteen at once get what each got alone"""
    questions = [question for question in QUESTIONS if (question.name, "chat stream") in run.answers and "length" not in question.name][:16]
    with ThreadPoolExecutor(16) as pool:
        told = pool.map(lambda question: asking.through(proxy.address, "chat", question.chat(engine.model, True)), questions)
    wrong = [question.name for question, answer in zip(questions, told) if not alike(run, question, answer, run.answers[question.name, "chat stream"])]
    return f"others: {wrong}" if wrong else None


def running(engine: Engine) -> float:
    name = {
        "vllm": "vllm:num_requests_running",
        "sglang": "sglang:num_running_reqs",
        "llamacpp": "llamacpp:requests_processing",
    }[engine.name]
    found = re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", page(engine.address, "/metrics"), re.MULTILINE)
    return sum(map(float, found))


def leaves(run: Run, engine: Engine, proxy: Samewire, _client: openai.OpenAI) -> str | None:
    """a client that leaves ends the engine's work"""
    return at_work_behind(engine, proxy, "chat")


def at_work_behind(engine: Engine, proxy: Samewire, api: str) -> str | None:
    """Whether the engine is still at work for a client that left in the middle of a stream."""
    body = {"model": engine.model, "messages": [{"role": "user", "content": "long"}], "stream": True, "max_tokens": 1900}
    # It would go on to the limit.
    body |= {"ignore_eos": True}
    host, _, port = proxy.address.partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    connection.request("POST", asking.ROUTES[api], json.dumps(body), {"content-type": "application/json"})
    response = connection.getresponse()
    for _ in range(6):
        response.readline()
    connection.close()
    response.close()
    left = time.monotonic()
    while running(engine) > 0:
        if time.monotonic() - left > LEAVE_SECONDS:
            return f"still at work after {LEAVE_SECONDS} s"
        time.sleep(0.05)
    return None


def refused(client: openai.OpenAI, kind: type[openai.APIStatusError], code: str | None, **body: Any) -> str | None:
    try:
        client.chat.completions.create(**body)
    except kind as error:
        return None if error.code == code else f"code {error.code}"
    except openai.APIStatusError as error:
        return f"{type(error).__name__}, {error.status_code}: {error.message}"
    return "no error"


def wrong_model(run: Run, engine: Engine, proxy: Samewire, client: openai.OpenAI) -> str | None:
    """a model that is not there is the library's NotFoundError, model_not_found"""
    if engine.name in ("sglang", "llamacpp"):
        raise Skipped("the engine answers under any name")
    body = {"model": "nobody", "messages": [{"role": "user", "content": "hello"}]}
    return refused(client, openai.NotFoundError, "model_not_found", **body)


def too_long(run: Run, engine: Engine, proxy: Samewire, client: openai.OpenAI) -> str | None:
    """too long a prompt is the library's BadRequestError, context_length_exceeded, also for a stream"""
    body = {"model": engine.model, "messages": [{"role": "user", "content": "long " * 9000}]}
    for stream in (False, True):
        if wrong := refused(client, openai.BadRequestError, "context_length_exceeded", stream=stream, **body):
            return wrong
    return None


def unnamed(run: Run, engine: Engine, proxy: Samewire, _client: openai.OpenAI) -> str | None:
    """a request without a model is for the only one"""
    body = QUESTIONS[0].chat(engine.model, False)
    answer = asking.through(proxy.address, "chat", {key: value for key, value in body.items() if key != "model"})
    wanted = run.answers.get((QUESTIONS[0].name, "chat whole"), answer)
    return None if answer.content and answer.said() == wanted.said() else f"{answer}"


def of_choices(stream: Any, part: Callable[[Any], str]) -> tuple[list[str], list[str]]:
    """The text of each choice of a stream, and the ids of its chunks."""
    texts: dict[int, str] = {}
    ids = set()
    for chunk in stream:
        ids.add(chunk.id)
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + part(choice)
    return [texts[index] for index in sorted(texts)], sorted(ids)


def prompts(run: Run, engine: Engine, proxy: Samewire, client: openai.OpenAI) -> str | None:
    """several prompts are one answer, whole and as a stream, with an id of completions"""
    if engine.name == "vllm" and engine.front_end:
        raise Skipped("its front end in Rust takes one prompt")
    asked = [QUESTIONS[at].completions(engine.model, False)["prompt"] for at in (0, 3)]
    body = {"model": engine.model, "prompt": asked, "max_tokens": 40, "temperature": 0}
    whole = client.completions.create(**body)
    wanted = [choice.text for choice in sorted(whole.choices, key=lambda choice: choice.index)]
    told, ids = of_choices(client.completions.create(**body, stream=True), lambda choice: choice.text)
    if told != wanted or len(told) != 2 or not all(told):
        return f"{told} and {wanted}"
    odd = [id for id in (*ids, whole.id) if not re.fullmatch("cmpl-[0-9A-Za-z_-]+", id) or "chatcmpl" in id]
    return f"ids {odd} of {len(ids)}" if odd or len(ids) != 1 else None


def logprobs(run: Run, engine: Engine, proxy: Samewire, client: openai.OpenAI) -> str | None:
    """logprobs of completions are four lists of one length, whole and as a stream"""
    body = {"model": engine.model, "prompt": QUESTIONS[0].completions(engine.model, False)["prompt"], "max_tokens": 5, "temperature": 0, "logprobs": 2}
    (choice,) = client.completions.create(**body).choices
    whole = choice.logprobs
    parts = [choice.logprobs for chunk in client.completions.create(**body, stream=True) for choice in chunk.choices if choice.logprobs]
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        one, other = getattr(whole, name), [entry for part in parts for entry in getattr(part, name)]
        if len(one or []) != 5 or len(other) != 5 or name == "tokens" and one != other:
            return f"{name}: {one} and {other}"
    return None


def choices(run: Run, engine: Engine, proxy: Samewire, client: openai.OpenAI) -> str | None:
    """a request for two choices gets two, whole and as a stream"""
    body = {"model": engine.model, "messages": [{"role": "user", "content": "long"}], "max_tokens": 20, "temperature": 0.5, "n": 2}
    whole = client.chat.completions.create(**body)
    told, ids = of_choices(client.chat.completions.create(**body, stream=True), lambda choice: text(choice.delta))
    if [choice.index for choice in whole.choices] != [0, 1] or not all(text(choice.message) for choice in whole.choices):
        return f"whole: {whole.choices}"
    return None if len(told) == 2 and all(told) and len(ids) == 1 else f"stream: {told}, {ids}"


def text(message: Any) -> str:
    return (getattr(message, "reasoning_content", None) or "") + (message.content or "")


def relays(run: Run, engine: Engine, proxy: Samewire, _client: openai.OpenAI) -> str | None:
    """routes that are relayed answer as they do directly"""
    answered, wrong = relayed.check(engine, proxy)
    print(f"{engine.label}: {', '.join(answered)} answer", flush=True)
    if engine.name == "sglang" and (broken := relayed.stream(engine, proxy)):
        wrong.append(broken)
    return "; ".join(wrong) or (None if answered else "none answers")


def continued(run: Run, engine: Engine, proxy: Samewire, client: openai.OpenAI) -> str | None:
    """a response goes on from a stored one with a tool's output"""
    tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
    first = client.responses.create(model=engine.model, input="weather", tools=tools)
    calls = [item for item in first.output if item.type == "function_call"]
    output = [{"type": "function_call_output", "call_id": calls[0].call_id, "output": '{"temp": 21}'}]
    last = client.responses.create(model=engine.model, input=output, tools=tools, previous_response_id=first.id)
    wanted = "It is 21 degrees and sunny in Tokyo."
    return None if last.output_text.strip() == wanted else f"{last.output_text!r}"
