"""llama.cpp started in ways that doctor has to see: what it finds, and that what it advises mends what it is advised for."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from judge import Run
from servers import Engine, clean_environment

SECONDS = 120
LEFT = ("reasoning-parser", "tools-parsed")


@dataclass(frozen=True)
class Start:
    """A way to start the engine, the checks that have to find it, and a part of the configuration that is then advised."""

    how: str
    options: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    config: str = ""
    opened: bool = False


STARTS = (
    Start("without its parsers", ("--bare",), LEFT),
    Start("without its parsers, and with a template that opens <think>", ("--bare",), LEFT, opened=True),
    Start("with a template that opens <think>", opened=True),
    Start("with another family's template", ("--chat-template", "chatml"), LEFT),
    Start("with thinking off by default", ("--no-thinking",)),
    Start("with 256 tokens of context", ("--context", "256"), ("context-size",)),
    Start("with one slot", ("--slots", "1"), ("two-choices",)),
)
# What is found of any llama.cpp with this model, however it is started.
USUAL = {"context-size", "reasoning-name", "usage-reasoning", "envelope", "extra-keys", "part-input-text", "error-shape", "unknown-model"}
USUAL |= {"completions", "responses"}


def check(run: Run, binary: str, version: str, work: Path, model: Path) -> None:
    for start in STARTS:
        name = f"doctor sees llama.cpp {start.how}"
        engine = Engine("llamacpp", version, True, work, model, opened=start.opened, options=start.options, how=f", doctor, {start.how}")
        try:
            engine.wait()
            failure = "; ".join(faults(start, examined(binary, engine.address)))
        except (ValueError, subprocess.TimeoutExpired) as error:
            failure = f"{type(error).__name__}: {error}"
        finally:
            engine.stop()
        run.other(name, failure)


def examined(binary: str, address: str) -> dict[str, Any]:
    command = [binary, "doctor", f"http://{address}", "--through", "--json", "--idle", "100ms"]
    told = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=SECONDS, check=False)
    return json.loads(told.stdout)


def faults(start: Start, report: dict[str, Any]) -> list[str]:
    """What the report lacks, has too much, or advises without effect."""
    findings = {finding["id"]: finding for finding in report["findings"]}
    wrong = {name for name, finding in findings.items() if finding["severity"] in ("note", "warning", "broken")}
    told = [f"not all requests were sent: {report['stopped']}"] if report["stopped"] else []
    told += [f"{name} is {findings[name]['severity']}" for name in start.found if name not in wrong]
    # A call that is left in the text is missing from answers that had to have one, too.
    also = {"tools-named", "tools-required"} if start.found == LEFT else set()
    told += [f"{name}: {findings[name]['says']}" for name in sorted(wrong - USUAL - also - set(start.found))]
    if start.config not in report["advice"]["config"]:
        told.append(f"advises {report['advice']['config']!r}")
    for name in sorted(wrong):
        finding, through = findings[name], findings[name]["through"]
        is_mended = finding["config"] or name in start.found and finding["samewire"]
        if is_mended and through["severity"] != "fine":
            told.append(f"{name} stays {through['severity']}: {through['says']}")
    told += [f"{name} through samewire alone: {one['through']['says']}" for name, one in findings.items() if is_new(one)]
    return told


def is_new(finding: dict[str, Any]) -> bool:
    return finding["severity"] in ("fine", "not_seen") and finding["through"]["severity"] in ("warning", "broken")
