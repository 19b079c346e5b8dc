"""What is no comparison of answers, of Anthropic's Messages: conversations with signed thinking, counts, limits, errors and models."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import anthropic
import pydantic

import ask as asking
import message_answers
import others
from judge import Run, Skipped, alike
from message_questions import SERVICE_TOOL
from questions import CALL, MESSAGE_TOOLS, QUESTIONS, TOOLS
from servers import Engine, Samewire

# The lengths of the context that each engine names: llama.cpp has four of them in all.
CONTEXTS = {"vllm": (2048,), "sglang": (4096,), "llamacpp": (2048, 8192)}
# Beyond 16 characters for each token of the context vLLM does not count them.
LONG = "long " * 5000
# The member in which each engine reads the reasoning of earlier messages.
REASONING = {"vllm": "reasoning", "sglang": "reasoning_content", "llamacpp": "reasoning_content"}
# A picture of one point.
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="


@dataclass
class Stage:
    """An engine, samewire before it, and the official library before that. `native`: the engine gets requests through its own Messages."""

    run: Run
    engine: Engine
    proxy: Samewire
    client: anthropic.Anthropic
    native: bool = False


def ask(at: Stage) -> None:
    if at.engine.pools:
        return
    checks = (goes_on, omitted, loop, parsed, counts, stops, too_long, wrong_model, models, picture, leaves)
    for check in checks if at.native else (*checks, begun, foreign, dropped, many):
        what = f"{'its own ' if at.native else ''}Messages: {(check.__doc__ or '').strip()}"
        try:
            failure = check(at)
        except Skipped as why:
            at.run.skip(what, str(why))
            continue
        except Exception as error:  # noqa: BLE001: whatever goes wrong is this check's failure
            failure = f"{type(error).__name__}: {error}"
        at.run.other(what, failure or "")


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def request(engine: Engine, *messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": engine.model, "max_tokens": 600, "messages": list(messages), **more}


def blocks(message: Any) -> list[dict[str, Any]]:
    return [block.to_dict() for block in message.content]


def prompt(message: Any) -> int:
    return message_answers.message(message.to_dict()).prompt or 0


def text(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def called(at: Stage, **more: Any) -> Any:
    """A streamed message that thinks and calls a tool."""
    with at.client.messages.stream(**request(at.engine, user("weather"), tools=MESSAGE_TOOLS, **more)) as stream:
        return stream.get_final_message()


def answered(at: Stage, content: list[dict[str, Any]]) -> Any:
    """The message after a call and its result."""
    call = next(block for block in content if block["type"] == "tool_use")
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": '{"temp": 21}'}
    messages = [user("weather"), {"role": "assistant", "content": content}, user([result])]
    return at.client.messages.create(**request(at.engine, *messages, tools=MESSAGE_TOOLS))


def directly(engine: Engine, first: Any, reasoning: str) -> int:
    """Tokens of the prompt after that message, as the engine counts them in chat with that reasoning."""
    call = {**CALL, "function": {**CALL["function"], "arguments": '{"city":"Tokyo"}'}}
    said = {"role": "assistant", "content": text(first) or None, "tool_calls": [call]} | ({REASONING[engine.name]: reasoning} if reasoning else {})
    messages = [user("weather"), said, {"role": "tool", "tool_call_id": CALL["id"], "content": '{"temp": 21}'}]
    body = {"model": engine.model, "messages": messages, "tools": TOOLS, "max_tokens": 1}
    _, told = asking.post(engine.address, asking.ROUTES["chat"], engine.heard(body))
    return asking.READERS["chat"][0](told).prompt or 0


def goes_on(at: Stage) -> str | None:
    """a message goes on from a signed thought and a tool's result, and the engine reads the thought"""
    first = called(at)
    kinds = [block.type for block in first.content]
    if (kinds[0], kinds[-1], first.stop_reason) != ("thinking", "tool_use", "tool_use"):
        return f"{kinds}, {first.stop_reason}"
    last = answered(at, blocks(first))
    if text(last).strip() != "It is 21 degrees and sunny in Tokyo.":
        return f"{text(last)!r}"
    return heard(at, first, last, first.content[0].thinking)


def omitted(at: Stage) -> str | None:
    """a thought that the client did not see goes back to the engine all the same"""
    shown = called(at).content[0].thinking
    first = called(at, thinking={"type": "adaptive", "display": "omitted"})
    if first.content[0].thinking or not first.content[0].signature:
        return f"{first.content[0]}"
    return heard(at, first, answered(at, blocks(first)), shown)


def heard(at: Stage, first: Any, last: Any, thought: str) -> str | None:
    """Whether the prompt of `last`, which goes on from `first`, has that thought, by the number of its tokens."""
    if at.native:
        # The engine puts its prompt together in its own way.
        without = prompt(answered(at, [block for block in blocks(first) if block["type"] != "thinking"]))
        return None if prompt(last) > without else f"{prompt(last)} tokens; {without} without the thought"
    with_thought, without = directly(at.engine, first, thought), directly(at.engine, first, "")
    return None if prompt(last) == with_thought > without else f"{prompt(last)} tokens; {with_thought} with the thought, {without} without it"


def foreign(at: Stage) -> str | None:
    """a thought with a foreign signature is left out, and the message is answered"""
    first = called(at)
    content = blocks(first)
    content[0] = {**content[0], "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds"}
    last, wanted = answered(at, content), directly(at.engine, first, "")
    return None if prompt(last) == wanted else f"{prompt(last)} and {wanted} tokens"


def loop(at: Stage) -> str | None:
    """the library's runner of tools goes on to the end"""

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """Get the current weather for a city"""
        return '{"temp": 21}' if city == "Tokyo" else "?"

    told = list(at.client.beta.messages.tool_runner(**request(at.engine, user("weather"), tools=[get_weather])))
    reasons = [message.stop_reason for message in told]
    wanted = "It is 21 degrees and sunny in Tokyo."
    return None if reasons == ["tool_use", "end_turn"] and text(told[-1]).strip() == wanted else f"{reasons}, {text(told[-1])!r}"


class Person(pydantic.BaseModel):
    name: str
    age: int
    tags: list[str]


def parsed(at: Stage) -> str | None:
    """the library's `parse` gives an object"""
    message = at.client.messages.parse(**request(at.engine, user("json"), output_format=Person))
    return None if isinstance(message.parsed_output, Person) else f"{message}"


def begun(at: Stage) -> str | None:
    """a text that the client began is continued, and not repeated"""
    if not at.run.parsers:
        raise Skipped("the engine itself does not read the answer that it is compared with")
    beginning = "one two three"
    messages = [user("count"), {"role": "assistant", "content": beginning}]
    body = {**request(at.engine, *messages), "temperature": 0}
    asked = {"vllm": {"continue_final_message": True, "add_generation_prompt": False}, "sglang": {"continue_final_message": True}}
    _, told = asking.post(at.engine.address, asking.ROUTES["chat"], {**body, **asked.get(at.engine.name, {})})
    wanted = asking.READERS["chat"][0](told)
    # llama.cpp repeats it in whole answers; SGLang's parser files what continues a text as reasoning.
    wanted.content, wanted.reasoning = wanted.reasoning + wanted.content.removeprefix(beginning), ""
    wrong = []
    forms = (True, False)
    if at.engine.name == "llamacpp":
        at.run.skip("Messages: a whole answer after a begun text", "the engine repeats the text in it, and samewire does not take it off")
        forms = (True,)
    for stream in forms:
        answer = asking.through(at.proxy.address, "messages", {**body, "stream": stream})
        if (answer.said(), answer.prompt) != (wanted.said(), wanted.prompt) or answer.faults:
            wrong.append(f"{answer} and {wanted}")
    return "; ".join(wrong)


def counts(at: Stage) -> str | None:
    """count_tokens is the usage of the same message"""
    wrong = []
    for more in (
        {},
        {"system": "Be kind."},
        {"thinking": {"type": "disabled"}},
        {"tools": MESSAGE_TOOLS},
    ):
        body = request(at.engine, user("think"), **more)
        counted = at.client.messages.count_tokens(**{key: value for key, value in body.items() if key != "max_tokens"}).input_tokens
        used = prompt(at.client.messages.create(**body))
        if counted != used or not counted:
            wrong.append(f"{list(more)}: {counted} counted, {used} used")
    return "; ".join(wrong)


def stops(at: Stage) -> str | None:
    """the stop reasons are those of the API, also for a limit beyond the context"""
    silent = {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}
    # Which text ended it is told by vLLM, by SGLang in chat, and by llama.cpp in its own Messages.
    tells = at.engine.name == "vllm" or at.native == (at.engine.name == "llamacpp")
    wanted = [
        ({"max_tokens": 1}, "max_tokens"),
        ({"stop_sequences": ["seven", "five"], **silent}, "stop_sequence" if tells else "end_turn"),
    ]
    if at.native and at.engine.name != "llamacpp":
        at.run.skip("its own Messages: limits that the context does not hold", "they refuse them")
    else:
        # The second fits into the context, but not beside the prompt.
        wanted += [({"max_tokens": limit}, "end_turn") for limit in (128_000, CONTEXTS[at.engine.name][0] - 1)]
    wrong = []
    for more, reason in wanted:
        with at.client.messages.stream(**{**request(at.engine, user("count")), **more}) as stream:
            streamed = stream.get_final_message()
        for message in (streamed, at.client.messages.create(**{**request(at.engine, user("count")), **more})):
            text = "five" if reason == "stop_sequence" else None
            if (message.stop_reason, message.stop_sequence) != (reason, text):
                wrong.append(f"{list(more)}: {message.stop_reason}, {message.stop_sequence!r}")
    return "; ".join(wrong)


def refusal(client: anthropic.Anthropic, kind: type[anthropic.APIStatusError], body: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The messages of a refusal, whole and as a stream; and what is wrong with its kind."""
    messages, wrong = [], []
    for stream in (False, True):
        try:
            told = client.messages.create(**body, stream=stream)
            wrong.append(f"no error: {list(told) if stream else told}")
        except anthropic.APIStatusError as error:
            detail = error.body["error"] if isinstance(error.body, dict) else {}
            messages.append(detail.get("message", ""))
            if not isinstance(error, kind) or not error.request_id:
                wrong.append(f"{type(error).__name__}, {error.status_code}, {error.request_id}: {error.body}")
    return messages, wrong


def too_long(at: Stage) -> str | None:
    """too long a prompt is refused with the figures that Claude Code reads, also with a limit beyond the context"""
    wrong = []
    for limit in (1, 600) if at.native else (1, 600, 128_000):
        messages, failures = refusal(at.client, anthropic.BadRequestError, {**request(at.engine, user(LONG)), "max_tokens": limit})
        wrong += failures
        for message in messages:
            figures = re.fullmatch(r"prompt is too long: (\d+) tokens > (\d+) maximum", message)
            if not figures or not CONTEXTS[at.engine.name][0] - 1 <= int(figures[2]) < int(figures[1]):
                wrong.append(f"with {limit}: {message}")
    return "; ".join(wrong)


def wrong_model(at: Stage) -> str | None:
    """a model that is not there is the library's NotFoundError"""
    if at.engine.name in ("sglang", "llamacpp"):
        raise Skipped("the engine answers under any name")
    return "; ".join(refusal(at.client, anthropic.NotFoundError, {**request(at.engine, user("hello")), "model": "nobody"})[1])


def models(at: Stage) -> str | None:
    """models have Anthropic's form, in the list and alone"""
    (listed,) = list(at.client.models.list())
    alone = at.client.models.retrieve(at.engine.model)
    if listed.to_dict() != alone.to_dict():
        return f"{listed} and {alone}"
    told = (listed.id, listed.type, listed.display_name, listed.lifecycle)
    length = listed.max_input_tokens
    return None if told == (at.engine.model, "model", at.engine.model, "active") and length in (None, *CONTEXTS[at.engine.name]) else f"{listed}"


def picture(at: Stage) -> str | None:
    """a picture for a model that takes none is refused in Anthropic's form"""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}
    messages, wrong = refusal(at.client, anthropic.APIStatusError, request(at.engine, user([image, {"type": "text", "text": "think"}])))
    return "; ".join(wrong) or (None if all(messages) else f"{messages}")


def dropped(at: Stage) -> str | None:
    """what no engine has is named in a header"""
    body = request(at.engine, user("think"), tools=[SERVICE_TOOL])
    raw = at.client.messages.with_raw_response.create(**body, extra_body={"container": "c"})
    named = raw.headers.get("x-samewire-dropped")
    return None if named == "tools[0].web_search_20250305, container" and raw.headers.get("request-id") else f"{named}"


def leaves(at: Stage) -> str | None:
    """a client that leaves ends the engine's work"""
    return others.at_work_behind(at.engine, at.proxy, "messages")


def many(at: Stage) -> str | None:
    """sixteen at once get what each got alone"""
    questions = [question for question in QUESTIONS if (question.name, "messages stream") in at.run.answers and "length" not in question.name][:16]
    with ThreadPoolExecutor(16) as pool:
        told = pool.map(lambda question: asking.through(at.proxy.address, "messages", question.message_request(at.engine.model, True)), questions)
    wrong = [question.name for question, answer in zip(questions, told) if not alike(at.run, question, answer, at.run.answers[question.name, "messages stream"])]
    return f"others: {wrong}" if wrong else None
