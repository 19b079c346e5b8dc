"""A scripted engine that plays the model of an agent. It speaks chat and nothing else.

    model.py SHAPE REQUESTS

SHAPE is `vllm` or `sglang`: whose habits its answers have. Every request is checked as a
strict engine and its chat template would, and appended to the file REQUESTS, one line of
JSON each. What the model says depends on the tools it is offered, and on how far it has
come since the last message of the user.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from pathlib import Path
from typing import Any, Iterator, Optional

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "clients"))

import engine as scripted  # noqa: E402
import shapes  # noqa: E402
from engine import Answer, whole  # noqa: E402
from shapes import REASONING_KEY, Said  # noqa: E402

# Text that the tests look for behind the proxy: more than ASCII, and a line that a careless reader splits.
THOUGHT = ["First I ", "look – at “everything”.", "\nThen\u2028I act."]
PATCH = "*** Begin Patch\n*** Update File: {path}\n@@\n first\n-second\n+edited: \"Zürich\" \\ done\n*** End Patch\n"
EDITED = 'edited: "Zürich" \\ done'
EDITS = ("Edit", "edit")
COMMAND = "sed -i 's/second/edited: \"Zürich\" \\\\ done/' {path} && cat {path}"


# --- what the model says ----------------------------------------------------------


def thinking(**said: Any) -> Said:
    return Said(reasoning=list(THOUGHT), **said)


DONE = thinking(text=["The file ", "is edited: ", "Zürich."])


def coder(offered: dict[str, Any], task: str, path: str, step: int) -> Said:
    """Plays the model of Codex: reads a file, edits it with what it is offered, calls a tool inside a namespace."""
    edit = ("exec_command", {"cmd": COMMAND.format(path=path)})
    if "apply_patch" in offered:
        edit = ("apply_patch", {"input": PATCH.format(path=path)})
    inside = next((name for name in offered if name.endswith("__close_agent")), None)
    steps = [thinking(text=["I read it."], calls=[("exec_command", {"cmd": f"cat {path}"})])]
    if task == "Edit":
        steps.append(thinking(calls=[edit]))
    if task == "Edit" and inside is not None:
        steps.append(thinking(calls=[(inside, {"target": "nobody"})]))
    return steps[step] if step < len(steps) else DONE


def traveller(outputs: list[str], step: int) -> Said:
    """Calls two tools at once, then one of them again, then repeats what they said."""
    if step == 0:
        return thinking(calls=[("get_weather", {"city": "Zürich"}), ("get_time", {"zone": "Europe/Zurich"})])
    if step == 1:
        return Said(reasoning=["Once more."], text=["And Oslo? "], calls=[("get_weather", {"city": "Oslo"})])
    return Said(reasoning=["Enough."], text=["Outputs: ", "; ".join(outputs), "."])


def call(offered: dict[str, Any], names: tuple[str, ...], path: str, old: str = "") -> tuple[str, dict[str, Any]]:
    """A call of the first of these tools that the agent has, with its own names of the arguments."""
    name = next(name for name in names if name in offered)
    new = {"newstring": EDITED, "edits": [{"oldText": old, "newText": EDITED}]}
    known = {"filepath": path, "path": path, "command": f"cat {path}", "description": "Shows it", "oldstring": old, **new}
    properties = {key: key.replace("_", "").lower() for key in offered[name]["parameters"]["properties"]}
    return name, {key: known[meant] for key, meant in properties.items() if meant in known}


def blocks(offered: dict[str, Any], task: str, path: str, step: int) -> Said:
    """Plays the model of Aider, which offers no tools, but reads blocks of text."""
    lines = f"{path}\n```\n<<<<<<< SEARCH\nsecond\n=======\n{EDITED}\n>>>>>>> REPLACE\n```\n"
    return thinking(text=["Now I ", "edit it.\n\n", *lines.splitlines(keepends=True)]) if task == "Edit" else DONE


def editor(offered: dict[str, Any], task: str, path: str, step: int) -> Said:
    """Reads by two tools at once, edits in vain, edits; or looks for a tool and calls it."""
    reads = [call(offered, ("Read", "read_file", "read"), path), call(offered, ("Bash", "run_shell_command", "bash"), path)]
    steps = [thinking(text=["I read it."], calls=reads)]
    if task == "Search":
        steps = [thinking(calls=[("ToolSearch", {"query": "select:CronList", "max_results": 1})]), thinking(calls=[("CronList", {})])]
    if task == "Delegate":
        agent = {"description": "Looks", "prompt": f"Look again at {path}.", "subagent_type": "general-purpose", "run_in_background": False}
        steps = [thinking(text=["Another looks."], calls=[("Agent", agent)])]
    if task == "Edit":
        steps.append(thinking(text=["Now I ", "edit it."], calls=[call(offered, EDITS, path, "absent")]))
        steps.append(thinking(calls=[call(offered, EDITS, path, "second")]))
    return steps[step] if step < len(steps) else DONE


# The user's task for an agent. The file's name may tell how the engine behaves (`Breaks`).
PROMPT = re.compile(r"(Edit|Look again at|Search|Delegate) (/\S+\.txt)\.")


def text_of(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def edits_by_blocks(body: dict[str, Any]) -> bool:
    """Whether the request is of an agent that has no tools. Others request a title without tools."""
    return not body.get("tools") and "SEARCH/REPLACE" in body["messages"][0]["content"]


def prompt_of(messages: list[dict[str, Any]]) -> Optional[tuple[int, str, str]]:
    """The place of the last prompt, its task and the file that it names."""
    found = [(at, PROMPT.search(text_of(message))) for at, message in enumerate(messages) if message["role"] == "user"]
    matches = [(at, match[1], match[2]) for at, match in found if match]
    return matches[-1] if matches else None


class Overflows:
    """Finds the first results of tools too long, once for each file whose name requests it."""

    NAME = re.compile(r"/\S+?/overflows\.txt")
    MESSAGES = {
        "vllm": "This model's maximum context length is 4096 tokens. However, your request has 5000 input tokens.",
        "sglang": "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
    }

    def __init__(self, shape: str) -> None:
        self.message = self.MESSAGES[shape]
        self.seen: set[str] = set()

    def apply(self, body: dict[str, Any], answer: Answer) -> Answer:
        found = self.NAME.search(json.dumps(body["messages"]))
        if found is None or found[0] in self.seen or body["messages"][-1]["role"] != "tool":
            return answer
        self.seen.add(found[0])
        return whole({"object": "error", "message": self.message, "type": "BadRequestError", "code": 400}, 400)

    def summary(self, messages: list[dict[str, Any]]) -> Optional[Said]:
        """The model's summary of the conversation, if the request wants one."""
        found = self.NAME.search(json.dumps(messages))
        if found is None or "Respond with TEXT ONLY" not in messages[-1]["content"]:
            return None
        return Said(text=[f"<summary>The user wants: Edit {found[0]}.</summary>"])


class Breaks:
    """Breaks off the answer after results of tools: the first, or each one. The file is named so: breaks-WHEN-in-PART."""

    NAME = re.compile(r"/breaks-(once|always)-in-(thinking|text|call|block)\.txt$")
    # The text of one piece, and the number of frames after it: those of a call are its arguments.
    MARKS = {"thinking": ("look", 0), "text": ("Now I", 0), "call": ('"tool_calls"', 3), "block": ("=======", 0)}

    def __init__(self) -> None:
        self.broken: set[str] = set()

    def apply(self, body: dict[str, Any], answer: Answer) -> Answer:
        prompt = prompt_of(body["messages"])
        name = self.NAME.search(prompt[2]) if prompt is not None else None
        if prompt is None or name is None or (prompt[2] in self.broken and name[1] == "once"):
            return answer
        if not edits_by_blocks(body) and all(message["role"] != "tool" for message in body["messages"]):
            return answer
        self.broken.add(prompt[2])
        if answer.frames is None:
            return Answer(200, answer.headers, frames=[answer.body[:-20]], ending="cut")
        mark, more = self.MARKS[name[2]]
        at = next((at for at, frame in enumerate(answer.frames) if mark.encode() in frame), 0)
        return Answer(200, answer.headers, frames=answer.frames[: at + more + 1], ending="cut")


def say(body: dict[str, Any]) -> Said:
    messages = body["messages"]
    offered = {tool["function"]["name"]: tool["function"] for tool in body.get("tools", [])}
    if "get_weather" in offered:
        last = max(at for at, message in enumerate(messages) if message["role"] == "user")
        behind = messages[last + 1 :]
        outputs = [message["content"] for message in behind if message["role"] == "tool"]
        return traveller(outputs, sum(message["role"] == "assistant" for message in behind))
    found = prompt_of(messages)
    if found is None or (not offered and not edits_by_blocks(body)):
        return Said(text=["A title"])
    at, task, path = found
    behind = messages[at + 1 :]
    # Of an answer that broke off Codex keeps the thought that was whole, and opencode the call, with this output.
    said = sum(message["role"] == "assistant" and bool(message.get("content") or message.get("tool_calls")) for message in behind)
    step = said - sum(message["role"] == "tool" and message["content"] == "Tool execution aborted" for message in behind)
    player = coder if "exec_command" in offered else editor if offered else blocks
    return player(offered, task, path, step)


# --- what a strict engine refuses --------------------------------------------------

PARAMETERS = {
    *("model", "messages", "stream", "stream_options", "tools", "tool_choice", "parallel_tool_calls", "temperature", "top_p"),
    *("max_completion_tokens", "max_tokens", "reasoning_effort", "user", "response_format"),
    # Codex sends the first, which the Responses API does not name, and pi the second.
    *("client_metadata", "store"),
}
MEMBERS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls"},
    "tool": {"role", "content", "tool_call_id"},
}


def mistakes(body: dict[str, Any], shape: str) -> Iterator[str]:
    own = {"thinking_token_budget", "return_prompt_text"} if shape == "vllm" else set()
    yield from (f"unknown parameter {key}" for key in body.keys() - PARAMETERS - own)
    yield from (f"{key} is null" for key, value in body.items() if value is None)
    names = [tool["function"]["name"] for tool in body.get("tools", [])]
    yield from (f"tool of type {tool['type']}" for tool in body.get("tools", []) if tool["type"] != "function")
    yield from (f"name of tool {name!r}" for name in names if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name))
    if len(set(names)) != len(names):
        yield f"tools of one name: {names}"
    waiting: list[str] = []
    for at, message in enumerate(body["messages"]):
        for mistake in mistakes_of(message, waiting, shape):
            yield f"messages[{at}]: {mistake}"
        waiting = [call for call in waiting if call != message.get("tool_call_id")]
        waiting += [call["id"] for call in message.get("tool_calls", [])]
    if waiting:
        yield f"calls without outputs: {waiting}"


def mistakes_of(message: dict[str, Any], waiting: list[str], shape: str) -> Iterator[str]:
    role = message["role"]
    if role not in MEMBERS:
        yield f"unknown role {role}"
        return
    allowed = MEMBERS[role] | ({REASONING_KEY[shape]} if role == "assistant" else set())
    yield from (f"unknown member {key}" for key in message.keys() - allowed)
    content = message.get("content", "")
    # The official API has null there beside calls.
    is_empty_call = content is None and message.get("tool_calls")
    # Clients of chat may send parts, and samewire leaves them as they are. Those of one text every engine reads.
    is_text = role == "user" and isinstance(content, list) and all(part.keys() == {"type", "text"} for part in content)
    if not isinstance(content, str) and not is_empty_call and not is_text:
        yield "content is not a string"
    if role == "tool" and message["tool_call_id"] not in waiting:
        yield f"an output for {message['tool_call_id']}, which was not called"
    if role != "tool" and waiting:
        yield f"{role} before the outputs of {waiting}"
    for call in message.get("tool_calls", []):
        if not isinstance(json.loads(call["function"]["arguments"]), dict):
            yield "arguments are not an object"


def main(shape: str, requests: str) -> None:
    lock, breaks, overflows = threading.Lock(), Breaks(), Overflows(shape)

    def answer(path: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
        wrong = [*mistakes(body, shape)]
        with lock, open(requests, "a", encoding="utf-8") as log:
            log.write(json.dumps({"body": body, "mistakes": wrong}) + "\n")
        if wrong:
            return whole({"object": "error", "message": "; ".join(wrong), "type": "BadRequestError", "code": 400}, 400)
        said = overflows.summary(body["messages"]) or say(body)
        return overflows.apply(body, breaks.apply(body, shapes.answer(shape, body, said)))

    for name in ("traveller", "local-coder", "gpt-5.5"):
        scripted.SCRIPTS[name] = answer
    scripted.main()


if __name__ == "__main__":
    main(*sys.argv[1:])
