"""What an answer says, read from bytes in every form that it comes in, and whether the form is the canonical one."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

TERMINAL = {"response.completed": "completed", "response.incomplete": "incomplete", "response.failed": "failed"}


@dataclass
class Answer:
    """An answer without its form; `faults` says where the form was wrong, `error` that there was none."""

    reasoning: str = ""
    content: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    finish: str = ""
    tokens: int | None = None
    # Tokens of the prompt, cached ones included.
    prompt: int | None = None
    error: str = ""
    faults: list[str] = field(default_factory=list)

    def said(self) -> dict[str, Any]:
        return {"reasoning": self.reasoning, "content": self.content, "calls": self.calls, "finish": self.finish, "error": self.error}


def differences(one: Answer, other: Answer, *, form: bool = True) -> tuple[list[str], bool]:
    """The names of the parts that differ; and whether that is white space at the ends, and how arguments are spelled."""
    ours, theirs = one.said(), other.said()
    if not form:
        ours.pop("finish"), theirs.pop("finish")
    parts = [part for part in ours if ours[part] != theirs[part]]
    mild = {part: getattr(one, part).strip() == getattr(other, part).strip() for part in ("reasoning", "content")}
    mild["calls"] = meaning(one) == meaning(other)
    return parts, all(mild.get(part, False) for part in parts)


def meaning(answer: Answer) -> list[tuple[str, Any]]:
    def value(text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError:
            return text

    return [(name, value(arguments)) for name, arguments in answer.calls]


# === Answers in one piece


def error(body: bytes, status: int) -> Answer:
    """An error that came instead of an answer, in its canonical form."""
    answer = Answer(error=f"{status}")
    try:
        told = json.loads(body)["error"]
        answer.error = f"{status} {told['type']} {told['code']}"
        if list(told)[:4] != ["message", "type", "param", "code"] or not isinstance(told["code"], str | None):
            answer.faults.append(f"an error of another form: {told}")
    except (ValueError, KeyError, TypeError):
        answer.faults.append(f"no error object: {body[:200]!r}")
    return answer


def chat_whole(body: bytes) -> Answer:
    whole = json.loads(body)
    choice = whole["choices"][0]
    usage = whole.get("usage", {})
    answer = Answer(finish=choice["finish_reason"], tokens=usage.get("completion_tokens"), prompt=usage.get("prompt_tokens"))
    message = choice["message"]
    answer.reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
    answer.content = message.get("content") or ""
    for call in message.get("tool_calls") or ():
        answer.calls.append((call["function"]["name"], call["function"]["arguments"]))
    return answer


def completions_whole(body: bytes) -> Answer:
    whole = json.loads(body)
    choice = whole["choices"][0]
    return Answer(content=choice["text"], finish=choice["finish_reason"], tokens=whole["usage"]["completion_tokens"])


def responses_whole(body: bytes) -> Answer:
    return response(json.loads(body))


def response(whole: dict[str, Any]) -> Answer:
    answer = Answer(tokens=(whole.get("usage") or {}).get("output_tokens"))
    for item in whole["output"]:
        if item["type"] == "reasoning":
            answer.reasoning += "".join(part["text"] for part in item["content"] or ())
        elif item["type"] == "message":
            answer.content += "".join(part["text"] for part in item["content"])
        elif item["type"] == "function_call":
            answer.calls.append((item["name"], item["arguments"]))
    if whole["status"] == "completed":
        answer.finish = "tool_calls" if answer.calls else "stop"
    else:
        reason = (whole.get("incomplete_details") or {}).get("reason")
        answer.finish = "length" if reason == "max_output_tokens" else whole["status"]
    return answer


# === Streams


def events(body: bytes, faults: list[str]) -> list[tuple[str, str]]:
    """Names and data of canonical server-sent events: `[event: NAME] data: ONE LINE`, and a blank line after each."""
    text = body.decode()
    if "\r" in text or not text.endswith("\n\n"):
        faults.append("the stream has carriage returns, or no blank line at its end")
    found = []
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if not lines:
            continue
        name = lines.pop(0).removeprefix("event: ") if lines[0].startswith("event: ") else ""
        if len(lines) != 1 or not lines[0].startswith("data: "):
            faults.append(f"an event of another form: {block[:100]!r}")
            continue
        found.append((name, lines[0].removeprefix("data: ")))
    return found


def chunks(body: bytes, answer: Answer) -> list[dict[str, Any]]:
    """The frames of a chat or completions stream; one envelope for all, `[DONE]` after the last, usage in it alone."""
    found = events(body, answer.faults)
    if not found or found[-1] != ("", "[DONE]"):
        answer.faults.append("no [DONE] at the end")
    frames = []
    for name, data in found:
        if data == "[DONE]":
            continue
        frame = json.loads(data)
        if name == "error" or "error" in frame:
            answer.error = json.dumps(frame.get("error"))
            continue
        frames.append(frame)
    if len({(frame["id"], frame["object"], frame["created"], frame["model"]) for frame in frames}) > 1:
        answer.faults.append("id, object, created or model changes")
    if frames and not frames[-1]["choices"] and frames[-1]["usage"]:
        answer.tokens = frames.pop()["usage"]["completion_tokens"]
    else:
        answer.faults.append("no usage in a separate frame at the end")
    for frame in frames:
        if frame["usage"] is not None or len(frame["choices"]) != 1:
            answer.faults.append(f"usage, or not one choice: {frame}")
    if frames and frames[-1]["choices"][0]["finish_reason"] is None:
        answer.faults.append("the last frame of the choice is not its finish")
    if any(frame["choices"][0]["finish_reason"] for frame in frames[:-1]):
        answer.faults.append("a finish before the last frame of the choice")
    return frames


def chat_stream(body: bytes) -> Answer:
    answer = Answer()
    frames = chunks(body, answer)
    if not frames or frames[0]["choices"][0]["delta"] != {"role": "assistant"}:
        answer.faults.append("the first frame is not the role alone")
    calls: list[dict[str, Any]] = []
    for frame in frames[1:]:
        if set(frame) != {"id", "object", "created", "model", "choices", "usage"}:
            answer.faults.append(f"other keys: {sorted(frame)}")
        choice = frame["choices"][0]
        if set(choice) != {"index", "delta", "logprobs", "finish_reason"}:
            answer.faults.append(f"other keys of a choice: {sorted(choice)}")
        answer.finish = choice["finish_reason"] or answer.finish
        delta = dict(choice["delta"])
        if "reasoning_content" in delta and delta.pop("reasoning", None) != delta["reasoning_content"]:
            answer.faults.append(f"reasoning that is not the same under both names: {choice}")
        if len(delta) != (0 if choice["finish_reason"] else 1):
            answer.faults.append(f"a delta of several kinds, or of none: {choice}")
        for kind, value in delta.items():
            chat_delta(kind, value, answer, calls)
    answer.calls = [(call["name"], call["arguments"]) for call in calls]
    return answer


def chat_delta(kind: str, value: Any, answer: Answer, calls: list[dict[str, Any]]) -> None:
    if kind == "tool_calls" and len(value) == 1:
        delta = value[0]
        if delta["index"] == len(calls):
            if list(delta) != ["index", "id", "type", "function"] or not delta["id"]:
                answer.faults.append(f"a call begins in another form: {delta}")
            calls.append(dict(delta["function"]))
        elif delta["index"] < len(calls) and set(delta) == {"index", "function"}:
            calls[delta["index"]]["arguments"] += delta["function"]["arguments"]
        else:
            answer.faults.append(f"a call goes on in another form: {delta}")
    elif kind in ("reasoning_content", "content") and value:
        part = "reasoning" if kind == "reasoning_content" else "content"
        setattr(answer, part, getattr(answer, part) + value)
    else:
        answer.faults.append(f"a delta of another kind: {kind} {value!r}")


def completions_stream(body: bytes) -> Answer:
    answer = Answer()
    for frame in chunks(body, answer):
        choice = frame["choices"][0]
        answer.content += choice["text"]
        answer.finish = choice["finish_reason"] or answer.finish
        if bool(choice["text"]) == bool(choice["finish_reason"]):
            answer.faults.append(f"text on the finish frame, or none before it: {choice}")
    return answer


def responses_stream(body: bytes) -> Answer:
    """Also folds the events, as a client does, and compares with the object at the end."""
    faults: list[str] = []
    told = []
    for name, data in events(body, faults):
        event = json.loads(data)
        told.append(event)
        if name != event["type"]:
            faults.append(f"the event's name is not its type: {name}")
    types = [event["type"] for event in told]
    if [event["sequence_number"] for event in told] != list(range(len(told))):
        faults.append("the sequence numbers are not 0, 1, 2, …")
    if types[:2] != ["response.created", "response.in_progress"] or [kind for kind in types if kind in TERMINAL] != types[-1:]:
        faults.append(f"does not begin and end as it must: {types[:2]}, {types[-1:]}")
        return Answer(error="no terminal event", faults=faults)
    items = fold(told[2:-1], faults)
    final = told[-1]["response"]
    if final["status"] != TERMINAL[types[-1]]:
        faults.append(f"{types[-1]} says {final['status']}")
    if final["output"] != items:
        faults.append("the items of the end are not those of the events")
    answer = response(final)
    answer.faults = faults
    return answer


def fold(told: list[dict[str, Any]], faults: list[str]) -> list[dict[str, Any]]:
    """The items that events say; deltas add up to what each `done` repeats."""
    items: list[dict[str, Any]] = []
    texts: dict[tuple[int, str, int], str] = {}
    for event in told:
        kind, at = event["type"], event["output_index"]
        index = event.get("summary_index" if "summary" in kind else "content_index", 0)
        place = (at, kind.rpartition(".")[0], index)
        if kind == "response.output_item.added":
            if at != len(items):
                faults.append(f"item {at} comes after {len(items)}")
            items.append(event["item"])
            continue
        if at >= len(items) or event.get("item_id", items[at]["id"]) != items[at]["id"]:
            faults.append(f"an event of no item: {event}")
        elif kind == "response.output_item.done":
            if (event["item"]["id"], event["item"]["type"]) != (items[at]["id"], items[at]["type"]):
                faults.append(f"item {at} ends as another one")
            items[at] = event["item"]
        elif kind.endswith(".delta"):
            texts[place] = texts.get(place, "") + event["delta"]
        elif kind.endswith((".text.done", "_text.done", "arguments.done")):
            whole = event["arguments"] if "arguments" in event else event["text"]
            if texts.get(place, "") != whole:
                faults.append(f"{kind} is not the sum of its deltas")
    return items


# === What is not canonical: the engine's own words


def engine_chat_stream(body: bytes) -> Answer:
    """The sum of an engine's chat stream, under whatever keys it puts things."""
    answer, calls = Answer(), {}
    for line in body.decode().splitlines():
        if not line.startswith("data: {"):
            continue
        frame = json.loads(line.removeprefix("data: "))
        if "error" in frame:
            answer.error = json.dumps(frame["error"])
        if usage := frame.get("usage"):
            answer.tokens, answer.prompt = usage["completion_tokens"], usage["prompt_tokens"]
        for choice in frame.get("choices", ()):
            delta = choice["delta"]
            answer.reasoning += delta.get("reasoning_content") or delta.get("reasoning") or ""
            answer.content += delta.get("content") or ""
            answer.finish = choice.get("finish_reason") or answer.finish
            for call in delta.get("tool_calls") or ():
                name, arguments = calls.get(call["index"], ("", ""))
                said = call.get("function") or {}
                calls[call["index"]] = (name + (said.get("name") or ""), arguments + (said.get("arguments") or ""))
    answer.calls = [calls[index] for index in sorted(calls)]
    return answer


def reading(raw: str, finish: str, tools: set[str]) -> Answer:
    """An obvious reading of all that the model said: `<think>` at the beginning, calls of these tools in `<tool_call>`, the rest is content.
    A call that breaks off is one with as much of its arguments as there is, and ends a cut answer."""
    raw = re.sub(r"<\|im_end\|>$", "", raw)
    answer = Answer(finish=finish)
    if raw.startswith("<think>"):
        answer.reasoning, _, raw = raw.removeprefix("<think>").partition("</think>")
    if tools:
        call = re.compile(r"\s*<tool_call>\n(\{.*?\})\n</tool_call>", re.DOTALL)

        def take(found: re.Match[str]) -> str:
            said = json.loads(found[1])
            if said["name"] not in tools:
                return found[0]
            answer.calls.append((said["name"], json.dumps(said["arguments"])))
            return ""

        raw = call.sub(take, raw)
        names = "|".join(tools)
        if open_call := re.search(rf'\s*<tool_call>\n\{{"name": "({names})", "arguments": (.*)$', raw, re.DOTALL):
            answer.calls.append((open_call[1], open_call[2]))
            raw = raw[: open_call.start()]
        whole = "length" if open_call else "tool_calls"
        answer.finish = whole if answer.calls and finish == "stop" else finish
    answer.content = raw
    return answer
