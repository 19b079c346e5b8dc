"""The Codex CLI edits a file: its own tools, its own items, its own reader of events."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Any

from ground import KEY, THOUGHT, Engine, each_shape, run_agent

CODEX = Path.cwd() / "node_modules" / "@openai" / "codex" / "bin" / "codex.js"
SECONDS = 60

CONFIG = """
model = "{model}"
model_provider = "samewire"
check_for_update_on_startup = false
web_search = "live"

[analytics]
enabled = false

[feedback]
enabled = false

[history]
persistence = "none"

[otel]
exporter = "none"

[model_providers.samewire]
name = "samewire"
base_url = "{base}"
wire_api = "responses"
env_key = "SAMEWIRE_KEY"
request_max_retries = 0
stream_max_retries = 0
supports_websockets = {websockets}
{more}
"""


class Workplace:
    """A home for Codex and a folder with a file, as long as a test lasts."""

    def __init__(self, case: unittest.TestCase, engine: Engine, model: str, websockets: bool = False, more: str = "") -> None:
        folder = tempfile.TemporaryDirectory(prefix="codex-", dir=Path.cwd(), ignore_cleanup_errors=True)
        case.addCleanup(folder.cleanup)
        self.home = Path(folder.name) / "home"
        self.work = Path(folder.name) / "work"
        self.home.mkdir()
        self.work.mkdir()
        config = CONFIG.format(model=model, base=engine.base, websockets=str(websockets).lower(), more=more)
        (self.home / "config.toml").write_text(config)
        self.notes = self.work / "notes.txt"
        self.notes.write_text("first\nsecond\n")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [os.environ["SAMEWIRE_NODE"], str(CODEX), "exec", *arguments, "--json", "--skip-git-repo-check"]
        command += ["--dangerously-bypass-approvals-and-sandbox", f"Edit {self.notes}."]
        environment = {**os.environ, "CODEX_HOME": str(self.home), "SAMEWIRE_KEY": KEY}
        return run_agent(command, SECONDS, self.work, environment)


def events(run: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    # Not `splitlines`: the text has characters that it takes for ends of lines.
    return [json.loads(line) for line in run.stdout.split("\n") if line.startswith("{")]


def items(run: subprocess.CompletedProcess[str], kind: str) -> list[dict[str, Any]]:
    return [event["item"] for event in events(run) if event["type"] == "item.completed" and event["item"]["type"] == kind]


def tool_names(body: dict[str, Any]) -> set[str]:
    return {tool["function"]["name"] for tool in body["tools"]}


def outputs(body: dict[str, Any]) -> list[str]:
    return [message["content"] for message in body["messages"] if message["role"] == "tool"]


class Codex(unittest.TestCase):
    def fine(self, run: subprocess.CompletedProcess[str]) -> None:
        told = f"{run.stdout[-3000:]}\n{run.stderr[-3000:]}"
        self.assertEqual(run.returncode, 0, told)
        self.assertEqual(items(run, "agent_message")[-1]["text"], "The file is edited: Zürich.", told)
        self.assertNotIn("turn.failed", {event["type"] for event in events(run)}, told)

    @each_shape
    def test_a_model_it_does_not_know(self, engine: Engine) -> None:
        """It offers functions, and functions in a namespace."""
        place = Workplace(self, engine, "local-coder")
        run = place.run()
        self.fine(run)
        self.assertEqual(place.notes.read_text(), 'first\nedited: "Zürich" \\ done\n')
        asked = engine.asked()
        self.assertEqual(len(asked), 4)
        self.assertLessEqual({"exec_command", "multi_agent_v1__close_agent"}, tool_names(asked[0]))
        said = outputs(asked[-1])
        self.assertIn("first\nsecond", said[0])
        self.assertIn("Zürich", said[1])
        # It found the tool of the namespace, which knows of no such agent.
        self.assertNotIn("unsupported call", said[2])
        self.assertIn("nobody", said[2])

    @each_shape
    def test_it_reads_the_catalogue(self, engine: Engine) -> None:
        """Told where the list of models is, it knows the model and does not warn of one that it does not know."""

        def warnings(more: str) -> list[str]:
            run = Workplace(self, engine, "local-coder", more=more).run()
            self.fine(run)
            self.assertNotIn("failed to refresh available models", run.stderr)
            return [item["message"] for item in items(run, "error") if "metadata" in item["message"]]

        self.assertEqual(len(warnings("")), 1)
        self.assertEqual(warnings(f'model_catalog_url = "{engine.base}/models"'), [])

    @each_shape
    def test_samewire_tells_it_the_model(self, engine: Engine) -> None:
        """It runs with what `samewire env` prints, over a WebSocket, and knows the model."""
        place = Workplace(self, engine, "local-coder")
        quiet = "check_for_update_on_startup = false\nanalytics.enabled = false\n"
        (place.home / "config.toml").write_text(quiet + engine.setup("codex"))
        run = place.run()
        self.fine(run)
        self.assertEqual([item["message"] for item in items(run, "error")], [])
        self.assertEqual({body["model"] for body in engine.asked()}, {"local-coder"})
        self.assertIn(101, {line["status"] for line in engine.told(2)})

    @each_shape
    def test_a_model_it_knows(self, engine: Engine) -> None:
        """It offers apply_patch with a grammar, and a tool that no chat engine serves."""
        place = Workplace(self, engine, "gpt-5.5")
        run = place.run()
        self.fine(run)
        self.assertEqual(place.notes.read_text(), 'first\nedited: "Zürich" \\ done\n')
        self.assertEqual([item["changes"][0]["kind"] for item in items(run, "file_change")], ["update"])
        asked = engine.asked()
        self.assertEqual(len(asked), 3)
        self.assertLessEqual({"exec_command", "apply_patch"}, tool_names(asked[0]))
        self.assertNotIn("web_search", tool_names(asked[0]))
        self.assertIn("Success", outputs(asked[-1])[1])

    @each_shape
    def test_it_gives_reasoning_back(self, engine: Engine) -> None:
        """Sealed reasoning, which it requests, comes back with its calls, and in the next turn of the session."""
        place = Workplace(self, engine, "local-coder")
        self.fine(place.run())
        self.fine(place.run("resume", "--last"))
        asked = engine.asked()
        self.assertEqual(len(asked), 8)
        self.assertEqual(engine.reasoning(asked[3]), [THOUGHT] * 3)
        self.assertEqual(engine.reasoning(asked[7]), [THOUGHT] * 7)

    @each_shape
    def test_over_a_websocket(self, engine: Engine) -> None:
        """It says what is new and no more, stores nothing, and the engine hears all of it."""
        models = {"local-coder": 'first\nedited: "Zürich" \\ done\n', "gpt-5.5": 'first\nedited: "Zürich" \\ done\n'}
        for model, edited in models.items():
            with self.subTest(model=model):
                engine = Engine(engine.shape)
                place = Workplace(self, engine, model, websockets=True)
                self.fine(place.run())
                self.assertEqual(place.notes.read_text(), edited)
                asked = engine.asked()
                told = engine.told(len(asked) + 2)
                self.assertEqual(len(asked), 4 if model == "local-coder" else 3)
                self.assertEqual(engine.reasoning(asked[-1]), [THOUGHT] * (len(asked) - 1))
                for earlier, later in zip(asked, asked[1:]):
                    self.assertEqual(later["messages"][: len(earlier["messages"])], earlier["messages"])
                # One connection; on it a note of what the model is to know, and the turns.
                upgraded = [line["request_id"] for line in told if line["status"] == 101]
                self.assertEqual(len(upgraded), 1, told)
                turns = [line for line in told if line["request_id"].startswith(f"{upgraded[0]}.")]
                self.assertEqual([line["attempts"] for line in turns], [0] + [1] * len(asked))
                self.assertEqual({line["end"] for line in turns}, {"complete"})


if __name__ == "__main__":
    unittest.main()
