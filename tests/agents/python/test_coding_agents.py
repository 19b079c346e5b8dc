"""Coding agents edit a file, set up with what `samewire env` prints.

An answer breaks off in between, and samewire restarts between two turns.
"""

from __future__ import annotations

import json
import os
import tempfile
import unittest
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

from ground import KEY, THOUGHT, Engine, Samewire, each_shape, run_agent, setup, variables

PROGRAMS = Path.cwd() / "node_modules" / ".bin"
SECONDS = 120
EDITED = 'first\nedited: "Zürich" \\ done\n'


@dataclass
class Agent:
    """A program that takes its prompt last, and how it is told of samewire."""

    command: str
    # The value of `{again}` where a session continues.
    again: str
    # The client of `samewire env`, and the file of the home that its text goes to; without one the text is variables.
    client: str
    file: str = ""
    # What goes before that text.
    head: str = ""
    # Its documented variables, for one that is on its own: it looks for no update, and reports nothing.
    quiet: dict[str, str] = field(default_factory=dict)
    # Other files of the home.
    files: dict[str, Callable[[str], str]] = field(default_factory=dict)
    # Where the engine breaks off (model.py).
    breaks: str = "call"
    # It gives the model's thoughts back.
    gives_back: bool = True


def pi_models(base: str) -> str:
    model = {"id": "local-coder", "reasoning": True, "contextWindow": 100000, "maxTokens": 25000}
    provider = {"baseUrl": base, "api": "openai-completions", "apiKey": "$SAMEWIRE_KEY", "models": [model]}
    return json.dumps({"providers": {"samewire": provider}})


def aider_models(base: str) -> str:
    return json.dumps({"openai/local-coder": {"max_input_tokens": 100000, "litellm_provider": "openai", "mode": "chat"}})


AGENTS = {
    "claude_code": Agent(
        "claude --print --dangerously-skip-permissions {again}",
        "--continue",
        client="claude",
        # It does not run its tools unasked as root, unless it is told that this is no user's machine.
        quiet={"IS_SANDBOX": "1"},
    ),
    "codex": Agent(
        "codex exec {again} --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox",
        "resume --last",
        client="codex",
        file=".codex/config.toml",
        head="check_for_update_on_startup = false\nanalytics.enabled = false\nfeatures.plugins = false\nfeatures.apps = false\n",
    ),
    "opencode": Agent(
        "opencode run --auto {again}",
        "--continue",
        client="opencode",
        file=".config/opencode/opencode.jsonc",
        quiet={f"OPENCODE_DISABLE_{what}": "1" for what in ("AUTOUPDATE", "LSP_DOWNLOAD", "MODELS_FETCH", "SHARE")},
    ),
    "qwen_code": Agent(
        "qwen --yolo {again}",
        "--continue",
        client="qwen",
        file=".qwen/settings.json",
        quiet={"QWEN_TELEMETRY_ENABLED": "false", "QWEN_USAGE_STATISTICS_ENABLED": "false"},
    ),
    "pi": Agent(
        "pi --print --model samewire/local-coder {again}",
        "--continue",
        client="openai",
        files={".pi/agent/models.json": pi_models},
        quiet={"PI_OFFLINE": "1", "PI_TELEMETRY": "0"},
    ),
    "aider": Agent(
        "aider --model openai/local-coder --edit-format diff --no-git --yes-always --no-pretty"
        " --model-metadata-file models.json --file {notes} {again} --message",
        "--restore-chat-history",
        client="openai",
        # Without settings for its model it queries the network.
        files={"../work/models.json": aider_models},
        quiet={"AIDER_ANALYTICS_DISABLE": "true", "AIDER_CHECK_UPDATE": "false", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        breaks="block",
        gives_back=False,
    ),
}


class Place:
    """A home for an agent and a folder with a file, as long as a test lasts."""

    def __init__(self, folder: Path, agent: Agent, base: str) -> None:
        self.agent = agent
        self.home, self.work = folder / "home", folder / "work"
        self.work.mkdir()
        self.notes = self.work / f"breaks-once-in-{agent.breaks}.txt"
        self.notes.write_text("first\nsecond\n")
        text = setup(agent.client, base)
        written = {file: content(base) for file, content in agent.files.items()}
        if agent.file:
            written[agent.file] = agent.head + text
        for name, content in written.items():
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SAMEWIRE_", "CLAUDE"))}
        path = f"{Path(os.environ['SAMEWIRE_NODE']).parent}:{os.environ['PATH']}"
        told = {} if agent.file else variables(text)
        keys = {key: KEY for key in ("SAMEWIRE_KEY", *(name for name in told if name.endswith(("_KEY", "_TOKEN"))))}
        self.environment = {**kept, **agent.quiet, **told, **keys, "PATH": path, "HOME": str(self.home)}

    def run(self, prompt: str, again: bool = False) -> str:
        command = self.agent.command.format(again=self.agent.again if again else "", notes=self.notes).split()
        program = os.environ["SAMEWIRE_AIDER"] if command[0] == "aider" else str(PROGRAMS / command[0])
        run = run_agent([program, *command[1:], prompt], SECONDS, self.work, self.environment)
        return f"code {run.returncode}\n{run.stdout}\n{run.stderr[-3000:]}"


class CodingAgents(unittest.TestCase):
    def edits(self, engine: Engine, agent: Agent) -> None:
        # Not within this project, of which some would tell the model.
        with tempfile.TemporaryDirectory(prefix="agent-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            samewire = Samewire(engine, folder)
            try:
                place = Place(folder, agent, f"http://{samewire.address}/v1")
                said = place.run(f"Edit {place.notes}.")
                self.assertEqual(place.notes.read_text(), EDITED, said)
                samewire.restart()
                answer = place.run(f"Look again at {place.notes}.", again=True)
                samewire.stop()
            finally:
                samewire.server.kill()
        self.assertIn("code 0\n", said)
        self.assertIn("code 0\n", answer)
        self.assertIn("The file is edited: Zürich.", answer)
        # It has sent the request again: every answer but one was whole.
        self.assertEqual(samewire.ends.count("error"), 1, samewire.ends)
        self.assertEqual(set(samewire.ends), {"complete", "error"})
        last = engine.asked()[-1]
        asked = json.dumps([message["content"] for message in last["messages"] if message["role"] == "user"])
        for prompt in (f"Edit {place.notes}.", f"Look again at {place.notes}."):
            self.assertIn(prompt, asked)
        # Codex gives the thought before the call that broke off, too: it is before the next one.
        thoughts = {thought and thought.replace(THOUGHT * 2, THOUGHT) for thought in engine.reasoning(last)}
        self.assertEqual(thoughts, {THOUGHT} if agent.gives_back else {None})


def test_of(agent: Agent) -> Callable[[unittest.TestCase], None]:
    def edits(case: CodingAgents, engine: Engine) -> None:
        case.edits(engine, agent)

    return each_shape(edits)


for name, agent in AGENTS.items():
    test = test_of(agent)
    if name == "aider":
        test = unittest.skipUnless(os.environ["SAMEWIRE_AIDER"], "Aider is not there")(test)
    setattr(CodingAgents, f"test_{name}", test)


if __name__ == "__main__":
    unittest.main()
