"""Where engines are known to answer otherwise than their model said, whatever stands before them: samewire cannot mend it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SILENT = ("think-silent", "emoji-silent", "hello-silent", "stop-silent", "weather-silent")
CUT = ("broken", "length-in-call")
NATIVE = "native messages"


@dataclass(frozen=True)
class Known:
    """What differs, of which engine; empty: any. `tail`: the end of a part is missing, and nothing else. `what`: how the ways or
    forms that differ begin. `bare`: also where the engine has no own parsers."""

    engine: str
    why: str
    questions: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    tail: bool = False
    what: str = ""
    bare: bool = False


KNOWN = [
    Known("", "an answer without <think> is reasoning to the engine's parser", ("hello",), ("raw", "parsers")),
    Known("", "a call that breaks off is a call in the engine's streams, and text in its whole answers", CUT),
    Known(
        "vllm 0.21",
        "in a stream, reasoning that comes in one piece with its end tag is lost, as happens on a busy machine",
        checks=("library", "whole", "apis", "lossless", "raw", "native", "parsers", "engines"),
        tail=True,
    ),
    Known("vllm 0.21", "its own Responses take no chat_template_kwargs", SILENT, ("native",)),
    Known("vllm 0.33.0+rust", "its front end in Rust takes an answer without <think> for text", ("hello",), ("engines",)),
    Known("", "without a reasoning parser an engine holds the reasoning to the schema, too", ("schema",), ("parsers",)),
    Known("vllm 0.21", "a stop string spoils a stream's text around the end of reasoning", ("stop-silent",), ("whole",)),
    Known("vllm", "its parser takes a call that nobody offered for one", ("unknown",), ("raw", "parsers")),
    Known("llamacpp", "its grammar lets the model call only what is offered", ("unknown",), ("raw", "parsers")),
    Known("llamacpp", "its own Responses call an answer complete that its limit cut", ("length-in-reasoning", "length-in-content"), ("native",)),
    Known("vllm", "samewire leaves out what the model may not call, and the engine has it in the prompt", ("none",), ("usage",), bare=True),
    Known("vllm", "its own Messages put nothing between system texts, and leave a system message where it stands", ("systems",), ("usage",), what=NATIVE),
    Known("vllm", "its own Messages put line feeds between the assistant's texts", ("system-late",), ("usage",), what=NATIVE),
    Known("vllm", "its own Messages do not tell the model that a tool failed", ("results",), what=NATIVE),
    Known("vllm", "its own Messages make a message of its own of a reference of a tool", ("reference",), ("usage",), what=NATIVE),
    Known("vllm", "its own Messages refuse documents and the tools of the service", ("parts", "service-tool"), what=NATIVE),
    Known("vllm", "its own Messages refuse a limit beyond the context", ("beyond",), what=NATIVE),
    Known("llamacpp", "it calls several functions where one alone is wanted, and samewire leaves the others out", ("one-call",), ("lossless",)),
    Known("llamacpp", "its own Messages call several functions where one alone is wanted", ("one-call",), what=NATIVE),
    Known("llamacpp", "its own Messages leave a system message where it stands", ("systems",), ("usage",), what=NATIVE),
    Known("llamacpp", "its own Messages put line feeds between the assistant's texts", ("system-late",), ("usage",), what=NATIVE),
    Known("llamacpp", "its own Messages leave documents out", ("parts",), ("usage",), what=NATIVE),
    Known("llamacpp", "its own Messages call functions where none is wanted", ("none",), what=NATIVE),
    Known("llamacpp", "its own Messages do not tell the model that a tool failed", ("results",), what=NATIVE),
    Known("llamacpp", "its own Messages leave references of tools out", ("reference",), what=NATIVE),
    Known("llamacpp", "its own Messages offer the tools of the service as functions", ("service-tool",), ("usage",), what=NATIVE),
    Known("llamacpp", "its own Messages think where thinking is disabled, which samewire hides", ("disabled",), ("usage",), what=NATIVE),
    Known("sglang", "it calls several functions where one alone is wanted, and samewire leaves the others out", ("one-call",), ("lossless",)),
    Known("sglang", "its own Messages call several functions where one alone is wanted", ("one-call",), what=NATIVE),
    Known("sglang", "its own Messages put prompts together otherwise, and tools have more members in them", checks=("usage",), what=NATIVE),
    Known("sglang", "its own Messages take no chat_template_kwargs", SILENT, what=NATIVE),
    Known("sglang", "its own Messages refuse documents", ("parts",), what=NATIVE),
    Known("sglang", "its own Messages do not tell the model that a tool failed", ("results",), what=NATIVE),
    Known("sglang", "its own Messages leave references of tools out", ("reference",), what=NATIVE),
    Known("sglang", "its own Messages answer forced calls whose arguments are no object with a 500", ("required", "named"), what=NATIVE),
    Known("sglang", "its own Messages refuse a limit beyond the context", ("beyond",), what=NATIVE),
    Known("sglang", "a call of a function that nobody offered is text, of which a stream has the end alone", ("unknown",)),
    Known("sglang", "its grammar of forced calls is one that the model has not learnt", ("required", "named"), ("engines",)),
    Known("sglang", "tools have more members in its prompts, and the model has not learnt an answer", ("results",), ("engines",), bare=True),
    Known("sglang 0.5.23", "a number that is too large is spelled otherwise in its whole answers", ("required",), ("whole",)),
    Known("sglang 0.5.23", "its forced arguments are a number whose length differs from answer to answer", ("required",), ("library", "apis")),
    Known("sglang 0.5.23", "its forced arguments are a number whose length differs from answer to answer", ("required",), ("lossless",), what="live"),
    Known(
        "sglang 0.5.",
        "in a stream, text that comes in one piece with a call is lost, as happens on a busy machine",
        checks=("library", "whole", "apis", "lossless", "raw", "parsers", "engines", "many"),
        tail=True,
    ),
]


def known(engines: list[tuple[str, bool]], result: Any) -> str:
    """Why a comparison of these engines, each with whether it has its own parsers, may fail; empty: it may not."""
    for one in KNOWN:
        if not any(engine.startswith(one.engine) and (parsers or one.bare) for engine, parsers in engines):
            continue
        if one.questions and result.question not in one.questions or one.checks and result.check not in one.checks:
            continue
        if one.tail and not result.tail or not result.what.startswith(one.what):
            continue
        return one.why
    return ""
