"""Questions for Anthropic's Messages: the parts of their requests that differ from those of chat."""

from __future__ import annotations

from typing import Any

from questions import CALL, MESSAGE_TOOLS, SILENT, Question

BILLING = "x-anthropic-billing-header: cc_version=2.1.331; cc_entrypoint=cli;"
TIME = {"id": "call_def456", "type": "function", "function": {"name": "get_time", "arguments": "{}"}}
USE = {"type": "tool_use", "id": "call_abc123", "name": "get_weather", "input": {"city": "Tokyo"}}
USE_TIME = {"type": "tool_use", "id": "call_def456", "name": "get_time", "input": {}}
SERVICE_TOOL = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}

DOCUMENT = {
    "type": "document",
    "title": "A list",
    "context": "of things",
    "source": {"type": "text", "media_type": "text/plain", "data": "This"},
}
REFERENCE = {"type": "tool_reference", "tool_name": "get_weather"}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content[0] if len(content) == 1 and isinstance(content[0], str) else list(content)}


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **more}


def system(value: Any) -> dict[str, Any]:
    return {"role": "system", "content": value}


def question(name: str, messages: tuple[dict[str, Any], ...], message: dict[str, Any], **more: Any) -> Question:
    """One whose text does not follow from a keyword alone."""
    return Question(name, "", messages=messages, message=message, raw=False, **more)


MESSAGE_QUESTIONS = [
    question("system", (system("Be kind."), user("think")), {"system": "Be kind.", "messages": [user("think")]}),
    question(
        "systems",
        (system("Be kind.\nBe brief.\n\nBe exact.\nBe here."), user("think")),
        {
            "system": [text(BILLING), text("Be kind.", cache_control={"type": "ephemeral"}), text("Be brief.")],
            "messages": [system([text("Be exact."), text("Be here.")]), user("think")],
        },
    ),
    question(
        "system-late",
        (user("hello"), {"role": "assistant", "content": "Hello!"}, system("Be kind."), user("think")),
        {"messages": [user("hello"), {"role": "assistant", "content": [text("Hel"), text("lo!")]}, system("Be kind."), user("think")]},
    ),
    question(
        "parts",
        (user("A list\nof things\nThis\nis read.\nthink"),),
        {
            "messages": [
                user(DOCUMENT),
                user(text("is read."), text("think", cache_control={"type": "ephemeral"})),
            ]
        },
    ),
    question("none", (user("weather"),), {}, tools=True, fields={"tool_choice": "none"}),
    question(
        "one-call",
        (user("cities"),),
        {"parallel_tool_calls": None, "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        tools=True,
        fields={"tool_choice": "auto", "parallel_tool_calls": False},
        bare=False,
    ),
    question(
        "results",
        (
            user("weather"),
            {"role": "assistant", "content": "I look.", "tool_calls": [CALL, TIME]},
            {"role": "tool", "tool_call_id": "call_abc123", "content": '{"temp": 21}\n'},
            {"role": "tool", "tool_call_id": "call_def456", "content": "Error: no clock"},
            user("think"),
        ),
        {
            "messages": [
                user("weather"),
                {"role": "assistant", "content": [text("I look."), USE, USE_TIME]},
                user(
                    {"type": "tool_result", "tool_use_id": "call_def456", "is_error": True, "content": "no clock"},
                    text("think"),
                    {"type": "tool_result", "tool_use_id": "call_abc123", "content": [text('{"temp": 21}'), text("")]},
                ),
            ]
        },
        tools=True,
    ),
    question(
        "reference",
        (
            user("weather"),
            {"role": "assistant", "content": None, "tool_calls": [TIME]},
            {"role": "tool", "tool_call_id": "call_def456", "content": "Tool: get_weather"},
        ),
        {
            "tools": [{**MESSAGE_TOOLS[0], "defer_loading": True}, *MESSAGE_TOOLS[1:]],
            "messages": [
                user("weather"),
                {"role": "assistant", "content": [USE_TIME]},
                user({"type": "tool_result", "tool_use_id": "call_def456", "content": [REFERENCE]}),
            ],
        },
        tools=True,
    ),
    question("service-tool", (user("weather"),), {"tools": [SERVICE_TOOL, *MESSAGE_TOOLS]}, tools=True),
    question(
        "disabled",
        (user("think"),),
        {"chat_template_kwargs": None, "thinking": {"type": "disabled"}},
        fields=SILENT,
    ),
    question(
        "budget",
        (user("think"),),
        {"reasoning_effort": None, "thinking": {"type": "enabled", "budget_tokens": 1024}},
        fields={"reasoning_effort": "low", "max_tokens": 1200},
    ),
    question(
        "settings",
        (user("count"),),
        {
            "user": None,
            "metadata": {"user_id": "somebody"},
            "service_tier": "auto",
            "output_config": {"task_budget": {"type": "tokens", "total": 20_000}},
        },
        fields={"user": "somebody", "top_p": 0.9, "top_k": 5},
    ),
    question("beyond", (user("count"),), {"max_tokens": 128_000}, fields={"max_tokens": 1000}),
]
