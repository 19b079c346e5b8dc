"""Reads what Anthropic's Messages say, and judges their form (docs/messages.md 4 and 5)."""

from __future__ import annotations

import json
from typing import Any

from answers import Answer, events

# The stop reasons, as the finish of chat.
FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
MESSAGE = ["id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "stop_details", "usage"]
USAGE = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"]
BLOCKS = {
    "thinking": ["type", "thinking", "signature"],
    "text": ["type", "text"],
    "tool_use": ["type", "id", "name", "input"],
}
UNSIGNED = "thinking without a signature"
# The kinds of deltas, the block of each, and the member that holds the piece.
DELTAS = {
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("thinking", "signature"),
    "text_delta": ("text", "text"),
    "input_json_delta": ("tool_use", "partial_json"),
}


def compact(value: Any) -> str:
    """JSON as samewire writes it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for code in (0x85, 0x2028, 0x2029):
        text = text.replace(chr(code), f"\\u{code:04x}")
    return text


def error(body: bytes, status: int) -> Answer:
    """An error that came instead of an answer, in Anthropic's form."""
    answer = Answer(error=f"{status}")
    try:
        whole = json.loads(body)
        told = whole["error"]
        answer.error = f"{status} {told['type']}: {told['message']}"
        wrong = list(whole) != ["type", "error", "request_id"] or whole["type"] != "error" or not whole["request_id"]
        if wrong or list(told)[:2] != ["type", "message"] or set(told) - {"type", "message", "details"}:
            answer.faults.append(f"an error of another form: {whole}")
    except (ValueError, KeyError, TypeError):
        answer.faults.append(f"no error object: {body[:200]!r}")
    return answer


def whole(body: bytes) -> Answer:
    told = json.loads(body)
    answer = message(told)
    if body.decode() != compact(told):
        answer.faults.append("not in compact JSON")
    check_usage(told["usage"], answer.faults)
    if list(told) != MESSAGE:
        answer.faults.append(f"other keys: {list(told)}")
    for block in told["content"]:
        if list(block) != BLOCKS[block["type"]]:
            answer.faults.append(f"other keys of a block: {list(block)}")
        if block["type"] == "thinking" and not block["signature"]:
            answer.faults.append(UNSIGNED)
    return answer


def message(told: dict[str, Any]) -> Answer:
    """What a complete message says, in the words of chat."""
    answer = Answer(finish=FINISH.get(told["stop_reason"], told["stop_reason"]))
    for block in told["content"]:
        kind = block["type"]
        if kind == "thinking":
            answer.reasoning += block["thinking"]
        elif kind == "text":
            answer.content += block["text"]
        elif kind == "tool_use":
            answer.calls.append((block["name"], arguments(block["input"])))
        else:
            answer.faults.append(f"a block of another kind: {block}")
    answer.tokens = told["usage"]["output_tokens"]
    answer.prompt = sum(told["usage"][key] for key in USAGE[:3])
    if not told["id"].startswith("msg_") or (told["type"], told["role"]) != ("message", "assistant"):
        answer.faults.append(f"another message: {told['id']}, {told['type']}, {told['role']}")
    if (told["stop_reason"] == "stop_sequence") != (told["stop_sequence"] is not None):
        answer.faults.append(f"stop reason {told['stop_reason']} with the text {told['stop_sequence']!r}")
    return answer


def arguments(given: Any) -> str:
    """The arguments of a call. Those that are no object are in a member of samewire's."""
    return given["raw_arguments"] if isinstance(given, dict) and list(given) == ["raw_arguments"] else compact(given)


def check_usage(usage: dict[str, Any], faults: list[str]) -> None:
    if list(usage)[:4] != USAGE or set(usage) - {*USAGE, "output_tokens_details"}:
        faults.append(f"usage of another form: {usage}")


def stream(body: bytes) -> Answer:
    """Also folds the events, as a client does."""
    faults: list[str] = []
    told = []
    for name, data in events(body, faults):
        event = json.loads(data)
        if name != event["type"] or list(event)[0] != "type":
            faults.append(f"the event's name is not its type: {name}")
        if data != compact(event):
            faults.append(f"not in compact JSON: {data[:100]}")
        if name == "error":
            return Answer(error=compact(event), faults=faults)
        if name != "ping":
            told.append(event)
    types = [event["type"] for event in told]
    if types[:1] != ["message_start"] or types[-2:] != ["message_delta", "message_stop"] or types.count("message_start") != 1:
        return Answer(error=f"does not begin and end as it must: {types[:1]}, {types[-2:]}", faults=faults)
    first, last = told[0]["message"], told[-2]
    if list(first) != MESSAGE or first["content"] or first["stop_reason"] is not None or first["usage"]["output_tokens"] != 0:
        faults.append(f"a beginning of another form: {first}")
    calls: list[str] = []
    content = fold(told[1:-2], calls, faults)
    check_usage(first["usage"], faults)
    check_usage(last["usage"], faults)
    if list(last["delta"]) != ["stop_reason", "stop_sequence", "stop_details"]:
        faults.append(f"an end of another form: {last}")
    answer = message({**first, **last["delta"], "content": content, "usage": last["usage"]})
    # The text of the arguments, as it came.
    answer.calls = [(name, text) for (name, _), text in zip(answer.calls, calls)]
    answer.faults = faults + answer.faults
    return answer


def fold(told: list[dict[str, Any]], calls: list[str], faults: list[str]) -> list[dict[str, Any]]:
    """The blocks that events say, of which one is open at a time; the arguments of calls are put into `calls`."""
    blocks: list[dict[str, Any]] = []
    open_block: dict[str, Any] | None = None
    text = ""
    for event in told:
        kind = event["type"]
        if kind == "content_block_start":
            if open_block is not None or event["index"] != len(blocks):
                faults.append(f"block {event['index']} begins after {len(blocks)}, or before their end")
            open_block, text = event["content_block"], ""
            blocks.append(open_block)
            empty = {"thinking": {"thinking": "", "signature": ""}, "text": {"text": ""}, "tool_use": {"input": {}}}[open_block["type"]]
            if list(open_block) != BLOCKS[open_block["type"]] or any(open_block[key] != value for key, value in empty.items()):
                faults.append(f"a block begins in another form: {open_block}")
        elif open_block is None or event["index"] != len(blocks) - 1:
            faults.append(f"an event of no open block: {event}")
        elif kind == "content_block_delta":
            text += add(event["delta"], open_block, faults)
        elif kind == "content_block_stop":
            if open_block["type"] == "tool_use":
                calls.append(unwrapped(text))
            elif not open_block.get("signature", "none is needed"):
                faults.append(UNSIGNED)
            open_block = None
        else:
            faults.append(f"an event of another kind: {event}")
    if open_block is not None:
        faults.append("a block that does not end")
    return blocks


def add(delta: dict[str, Any], block: dict[str, Any], faults: list[str]) -> str:
    """Adds a piece to its block; what is of a call's arguments is returned."""
    of, member = DELTAS.get(delta["type"], ("", ""))
    piece = delta.get(member, "")
    if of != block["type"] or list(delta) != ["type", member] or not piece:
        faults.append(f"a delta of another kind, or an empty one: {delta} in {block['type']}")
    elif block.get("signature"):
        faults.append("a delta after the signature")
    elif of == "tool_use":
        return piece
    else:
        block[member] += piece
    return ""


def unwrapped(text: str) -> str:
    """The arguments of a streamed call: nothing means an empty object."""
    try:
        return arguments(json.loads(text or "{}")) if "raw_arguments" in text else text or "{}"
    except ValueError:
        return text
