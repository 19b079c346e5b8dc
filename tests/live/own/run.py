"""Runs vLLM's own tests of its API, each directly and through samewire: what passes directly must pass through it.

    run.py BINARY WORK VERSION [--only TEXT]

WORK holds the engine and the tests, as tests/live.sh installed them. Exit code 1: a test passes directly alone, or too few pass at all.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODEL = HERE.parent / "tiny-qwen3"
REVISION = "0" * 40
# Files that need what is not here.
LEFT_OUT = {
    "correctness/test_lmeval.py": "needs a data set",
    "completion/test_tensorizer_entrypoint.py": "needs a GPU",
    "chat_completion/test_extra_content_fields.py": "needs a model of pictures",
    "test_openai_schema.py": "needs a model of pictures",
    "responses/test_mcp_tools.py": "needs gpt-oss",
    "responses/test_harmony.py": "needs gpt-oss",
}
# Tests that pass directly alone, and why that stays so.
KNOWN = {
    "chat_completion/test_chat.py::test_chat_streaming[": "the last text and the finish have a frame each",
}
# Fewer would mean that the engine or the tests cannot be used at all.
LEAST = 60
SECONDS = 180


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("binary")
    arguments.add_argument("work", type=Path)
    arguments.add_argument("version")
    arguments.add_argument("--only", default="")
    given = arguments.parse_args()
    root = given.work / f"own-{given.version}"
    logs = given.work / "logs"
    logs.mkdir(exist_ok=True)
    os.environ |= {"OWN_BINARY": given.binary, "OWN_LOGS": str(logs), "OWN_MODEL": str(MODEL)}
    cache = root / "hub"
    stand_in(root / "tests", cache)
    os.environ |= {"HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "CUDA_VISIBLE_DEVICES": ""}
    os.chdir(root)
    sys.path[:0] = [str(root), str(HERE)]

    import pytest
    import through

    folder = Path("tests/entrypoints/openai")
    files = sorted(path for path in folder.rglob("test_*.py") if "server" in path.read_text() and given.only in str(path))
    chosen = [path for path in files if str(path.relative_to(folder)) not in LEFT_OUT]
    told = through.Told()
    options = ["-q", "--tb=short", "--continue-on-collection-errors", "-p", "no:cacheprovider", f"--timeout={SECONDS}", "-o", "timeout_func_only=true", "--asyncio-mode=auto", "--import-mode=prepend"]
    pytest.main([*options, *map(str, chosen)], plugins=[told, through])
    for path in files:
        if why := LEFT_OUT.get(str(path.relative_to(folder))):
            print(f"skipped {path.relative_to(folder)}: {why}")
    return judge(told, whole=not given.only)


def stand_in(tests: Path, cache: Path) -> None:
    """Writes a cache of the hub of models in which all models that the tests name are the tiny one."""
    text = "\n".join(path.read_text() for path in tests.rglob("*.py"))
    for organisation, name in set(re.findall(r'(?:MODEL\w*\s*=|repo_id=)\s*"([\w.-]+)/([\w.-]+)"', text)):
        folder = cache / f"models--{organisation}--{name}"
        snapshot = folder / "snapshots" / REVISION
        snapshot.mkdir(parents=True, exist_ok=True)
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text(REVISION)
        for file in MODEL.iterdir():
            shutil.copy(file, snapshot)


def judge(told, whole: bool) -> int:
    import through

    outcomes: dict[str, dict[str, tuple[str, str]]] = {}
    for name, outcome in told.outcomes.items():
        for way in through.WAYS:
            for place in (f"[{way}]", f"[{way}-", f"-{way}]", f"-{way}-"):
                if place in name:
                    plain = name.replace(place, {"[": "[", "-": "-"}[place[0]] if place[-1] == "-" else "" if place[0] == "[" else "]", 1)
                    outcomes.setdefault(plain.removeprefix("tests/entrypoints/openai/"), {})[way] = outcome
                    break
    for name, why in told.unread.items():
        print(f"skipped {name}: {why}")
    directly, through_it = through.WAYS
    lost, gained = [], []
    for name, ways in sorted(outcomes.items()):
        here, there = ways.get(directly, ("", ""))[0], ways.get(through_it, ("", ""))
        if here == "passed" and there[0] != "passed":
            lost.append((name, there))
        elif there[0] == "passed" and here == "failed":
            gained.append(name)
        elif here == "skipped":
            print(f"skipped {name}")
    wrong = 0
    for name, (outcome, why) in lost:
        known = next((reason for test, reason in KNOWN.items() if name.startswith(test)), "")
        wrong += not known
        print(f"\n{'known' if known else 'FAILED'}  {name}: {outcome or 'not run'} through samewire. {known}\n{why[-1500:]}")
    for name in gained:
        print(f"gained  {name}: fails directly, passes through samewire")
    counts = {way: Counter(ways[way][0] for ways in outcomes.values() if way in ways) for way in through.WAYS}
    for way, count in counts.items():
        print(f"{way}: {count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    print(f"{len(lost)} pass directly alone, {len(lost) - wrong} of them known")
    if whole and counts[directly]["passed"] < LEAST:
        print(f"FAILED  only {counts[directly]['passed']} tests pass directly; {LEAST} are expected")
        wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
