"""Questions, and the known facts about their answers.

The tiny model answers a keyword with its own text (tiny-qwen3/README.md): the same raw text from every engine.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


def function(name: str, description: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


CITY = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "City name"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
    },
    "required": ["city"],
}
QUERY = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "options": {"type": "object"}},
    "required": ["query"],
}
TOOLS = [
    function("get_weather", "Get the current weather for a city", CITY),
    function("get_time", "Get the current time", {"type": "object", "properties": {}}),
    function("search", "Search something", QUERY),
]
MESSAGE_TOOLS = [
    {"name": tool["function"]["name"], "description": tool["function"]["description"], "input_schema": tool["function"]["parameters"]}
    for tool in TOOLS
]
# What tells the model which tools to call, in chat and in Messages.
CHOICES = {"auto": "auto", "required": "any", "none": "none"}
SILENT = {"chat_template_kwargs": {"enable_thinking": False}}


@dataclass(frozen=True)
class Question:
    """One question: a chat request, from which that of Responses and the raw prompt follow."""

    name: str
    keyword: str
    tools: bool = False
    fields: dict[str, Any] = field(default_factory=dict)
    messages: tuple[dict[str, Any], ...] = ()
    # The model's text follows from the keyword alone, so that the raw text of a bare prompt is the one behind the answer.
    raw: bool = True
    # Whether it makes sense where the engine has no parsers.
    bare: bool = True
    # Parts of the request for Messages that replace those made from the chat request. Then no Responses request is sent.
    message: dict[str, Any] | None = None

    def chat(self, model: str, stream: bool) -> dict[str, Any]:
        messages = list(self.messages) or [{"role": "user", "content": self.keyword}]
        body: dict[str, Any] = {"model": model, "messages": messages, "max_tokens": 600, "temperature": 0, **self.fields}
        if self.tools:
            body["tools"] = TOOLS
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body

    def responses(self, model: str, stream: bool) -> dict[str, Any]:
        body: dict[str, Any] = {"model": model, "input": self.items(), "max_output_tokens": 600, "temperature": 0, "stream": stream}
        for key, value in self.fields.items():
            if key == "max_tokens":
                body["max_output_tokens"] = value
            elif key == "response_format":
                body["text"] = {"format": {"type": "json_schema", **value["json_schema"]}}
            elif key == "tool_choice" and isinstance(value, dict):
                body[key] = {"type": "function", **value["function"]}
            else:
                body[key] = value
        if self.tools:
            body["tools"] = [{"type": "function", **tool["function"]} for tool in TOOLS]
        return body

    def items(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        for message in self.messages or ({"role": "user", "content": self.keyword},):
            for call in message.get("tool_calls", ()):
                items.append({"type": "function_call", "call_id": call["id"], **call["function"]})
            if message["role"] == "tool":
                items.append({"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]})
            elif message["content"] is not None:
                items.append({"role": message["role"], "content": message["content"]})
        return items

    def message_request(self, model: str, stream: bool) -> dict[str, Any]:
        """The request for Anthropic's Messages."""
        body: dict[str, Any] = {"model": model, "messages": self.turns(), "max_tokens": 600, "temperature": 0, "stream": stream}
        for key, value in self.fields.items():
            if key == "response_format":
                body["output_config"] = {"format": {"type": "json_schema", "schema": value["json_schema"]["schema"]}}
            elif key == "tool_choice":
                body[key] = {"type": "tool", "name": value["function"]["name"]} if isinstance(value, dict) else {"type": CHOICES[value]}
            elif key == "stop":
                body["stop_sequences"] = value
            else:
                body[key] = value
        if self.tools:
            body["tools"] = MESSAGE_TOOLS
        return {key: value for key, value in (body | (self.message or {})).items() if value is not None}

    def turns(self) -> list[dict[str, Any]]:
        """The conversation in blocks; the results of tools that follow one another are one message."""
        turns: list[dict[str, Any]] = []
        for message in self.messages or ({"role": "user", "content": self.keyword},):
            if message["role"] == "tool":
                result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
                if turns[-1]["role"] != "user":
                    turns.append({"role": "user", "content": []})
                turns[-1]["content"].append(result)
                continue
            calls = [
                {"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": json.loads(call["function"]["arguments"])}
                for call in message.get("tool_calls", ())
            ]
            said = [{"type": "text", "text": message["content"]}] if calls and message["content"] else []
            turns.append({"role": message["role"], "content": [*said, *calls] if calls else message["content"]})
        return turns

    def completions(self, model: str, stream: bool) -> dict[str, Any]:
        """What the chat template makes of it, but for the tools, which do not change what the model says."""
        silent = "<think>\n\n</think>\n\n" if "chat_template_kwargs" in self.fields else ""
        prompt = f"<|im_start|>user\n{self.keyword}<|im_end|>\n<|im_start|>assistant\n{silent}"
        body = {"model": model, "prompt": prompt, "skip_special_tokens": False}
        chat = self.chat(model, stream)
        return body | {key: chat[key] for key in ("max_tokens", "temperature", "stream", "stream_options") if key in chat}


CALL = {"id": "call_abc123", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Tokyo"}'}}
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
FORMAT = {"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}}

QUESTIONS = [
    Question("think", "think"),
    Question("emoji", "emoji"),
    Question("long", "long"),
    Question("json", "json"),
    Question("count", "count"),
    Question("lines", "lines"),
    Question("unclosed", "unclosed"),
    Question("hello", "hello"),
    Question("empty", "empty"),
    Question("think-silent", "think", fields=SILENT),
    Question("emoji-silent", "emoji", fields=SILENT),
    Question("hello-silent", "hello", fields=SILENT),
    Question("length-in-reasoning", "think", fields={"max_tokens": 8}),
    Question("length-in-content", "think", fields={"max_tokens": 20}),
    Question("stop-silent", "count", fields={"stop": ["five"], **SILENT}, raw=False),
    Question("schema", "json", fields=FORMAT, raw=False),
    Question("tools-unused", "think", tools=True),
    Question("weather", "weather", tools=True),
    Question("weather-silent", "weather", tools=True, fields=SILENT),
    Question("cities", "cities", tools=True),
    Question("both", "both", tools=True),
    Question("time", "time", tools=True),
    Question("nested", "nested", tools=True),
    Question("unknown", "unknown", tools=True),
    Question("broken", "broken", tools=True),
    Question("length-in-call", "nested", tools=True, fields={"max_tokens": 45}),
    Question("required", "weather", tools=True, fields={"tool_choice": "required"}, raw=False, bare=False),
    Question(
        "named",
        "weather",
        tools=True,
        fields={"tool_choice": {"type": "function", "function": {"name": "get_weather"}}},
        raw=False,
        bare=False,
    ),
    Question(
        "result",
        "weather",
        tools=True,
        messages=(
            {"role": "user", "content": "weather"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_abc123", "content": '{"temp": 21}'},
        ),
        raw=False,
    ),
]
