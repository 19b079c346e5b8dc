"""Claude Code edits a file: its own tools, its own reader of events, two variables of the environment."""

from __future__ import annotations

import json
import os
import tempfile
import unittest
from pathlib import Path
from typing import Any

from ground import KEY, THOUGHT, Engine, each_shape, run_agent, variables

CLAUDE = Path.cwd() / "node_modules" / ".bin" / "claude"
SECONDS = 60
ANSWER = "The file is edited: Zürich."
EDITED = 'first\nedited: "Zürich" \\ done\n'


class Run:
    """What it printed: one JSON object a line, the result last."""

    def __init__(self, output: str, code: int) -> None:
        self.code = code
        self.events: list[dict[str, Any]] = [json.loads(line) for line in output.splitlines()]
        self.result = self.events[-1]

    def blocks(self, role: str, kind: str) -> list[dict[str, Any]]:
        content = [event["message"]["content"] for event in self.events if event["type"] == role]
        return [block for blocks in content for block in blocks if block["type"] == kind]


class Workplace:
    """A home for Claude Code and a folder with a file, as long as a test lasts."""

    def __init__(self, case: unittest.TestCase, engine: Engine, name: str = "notes.txt") -> None:
        # Not within this project, of which it would tell the model.
        folder = tempfile.TemporaryDirectory(prefix="claude-", ignore_cleanup_errors=True)
        case.addCleanup(folder.cleanup)
        self.home, self.work = Path(folder.name) / "home", Path(folder.name) / "work"
        self.home.mkdir()
        self.work.mkdir()
        self.notes = self.work / name
        self.notes.write_text("first\nsecond\n")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("ANTHROPIC_", "CLAUDE", "SAMEWIRE_"))}
        # Two variables make it ask samewire. A third says that this is no user's machine, without which it does
        # not run its tools unasked as root.
        address = {"ANTHROPIC_BASE_URL": engine.root, "ANTHROPIC_AUTH_TOKEN": KEY}
        self.environment = {**kept, **address, "HOME": str(self.home), "IS_SANDBOX": "1"}

    def run(self, prompt: str, *options: str, form: str = "stream-json", **environment: str) -> Run:
        usual = ("--output-format", form, "--verbose", "--dangerously-skip-permissions")
        if form == "json":
            usual = tuple(option for option in usual if option != "--verbose")
        run = run_agent([str(CLAUDE), "-p", prompt, *usual, *options], SECONDS, self.work, {**self.environment, **environment})
        if run.returncode < 0 or not run.stdout:
            raise AssertionError(f"it has not come to its end\n{run.stdout[-3000:]}{run.stderr[-3000:]}")
        return Run(run.stdout, run.returncode)

    def edit(self, **more: str) -> Run:
        return self.run(f"Edit {self.notes}.", **more)


class ClaudeCode(unittest.TestCase):
    def finished(self, run: Run) -> None:
        self.assertEqual((run.code, run.result["subtype"], run.result["is_error"]), (0, "success", False), run.result)
        self.assertEqual((run.result["result"], run.result["stop_reason"]), (ANSWER, "end_turn"))

    @each_shape
    def test_it_edits_a_file(self, engine: Engine) -> None:
        """It reads with two tools at once, edits in vain, and edits."""
        place = Workplace(self, engine)
        run = place.edit()
        self.finished(run)
        self.assertEqual(place.notes.read_text(), EDITED)
        calls = [(call["name"], call["input"].get("old_string")) for call in run.blocks("assistant", "tool_use")]
        self.assertEqual(calls, [("Read", None), ("Bash", None), ("Edit", "absent"), ("Edit", "second")])
        self.assertEqual([bool(result.get("is_error")) for result in run.blocks("user", "tool_result")], [False, False, True, False])
        self.assertEqual([block["thinking"] for block in run.blocks("assistant", "thinking")], [THOUGHT] * 4)
        usage = run.result["usage"]
        self.assertEqual((usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]), (132, 32, 76))
        asked = engine.asked()
        self.assertEqual([len(engine.reasoning(body)) for body in asked], [0, 1, 2, 3])
        self.assertEqual(engine.reasoning(asked[-1]), [THOUGHT] * 3)
        self.assertEqual({(body["model"], body["reasoning_effort"]) for body in asked}, {("local-coder", "medium")})
        self.assertLessEqual({"Read", "Edit", "Bash"}, {tool["function"]["name"] for tool in asked[0]["tools"]})
        outputs = [message["content"] for message in asked[-1]["messages"] if message["role"] == "tool"]
        self.assertIn("second", outputs[0])
        self.assertTrue(outputs[2].startswith("Error: "), outputs[2])

    @each_shape
    def test_samewire_tells_it_the_model(self, engine: Engine) -> None:
        """With what `samewire env` prints it knows the model's name and context."""
        told = {**variables(engine.setup("claude")), "ANTHROPIC_AUTH_TOKEN": KEY}
        run = Workplace(self, engine).edit(**told)
        self.finished(run)
        self.assertEqual({model: usage["contextWindow"] for model, usage in run.result["modelUsage"].items()}, {"local-coder": 100000})
        self.assertEqual({body["model"] for body in engine.asked()}, {"local-coder"})
        self.assertEqual({body["max_completion_tokens"] for body in engine.asked()}, {25000})

    @each_shape
    def test_the_engine_can_cache_the_beginning(self, engine: Engine) -> None:
        """Each request begins as the one before, from session to session: it has nothing that changes."""
        for _ in range(2):
            self.finished(Workplace(self, engine).edit())
        asked = engine.asked()
        self.assertEqual(len(asked), 8)
        for earlier, later in zip(asked[:3], asked[1:4]):
            self.assertEqual(later["messages"][: len(earlier["messages"])], earlier["messages"])
        first = asked[0]["messages"][0]
        self.assertEqual(first["role"], "system")
        self.assertNotIn("x-anthropic-billing-header", json.dumps(asked))
        self.assertEqual(asked[0]["tools"], asked[4]["tools"])

    @each_shape
    def test_a_session_goes_on(self, engine: Engine) -> None:
        """What was thought comes back in the next turn of the session, also where the client never saw it."""
        for form in ("stream-json", "json"):
            with self.subTest(form=form):
                engine = Engine(engine.shape)
                place = Workplace(self, engine)
                self.finished(place.edit(form=form))
                self.finished(place.run(f"Look again at {place.notes}.", "--continue", form=form))
                asked = engine.asked()
                self.assertEqual(len(asked), 6)
                self.assertEqual(engine.reasoning(asked[5]), [THOUGHT] * 5)

    @each_shape
    def test_it_looks_for_a_tool(self, engine: Engine) -> None:
        """The engine is shown a tool whose loading is deferred when a search has found it."""
        place = Workplace(self, engine)
        run = place.run(f"Search {place.notes}.")
        self.finished(run)
        self.assertEqual([call["name"] for call in run.blocks("assistant", "tool_use")], ["ToolSearch", "CronList"])
        self.assertFalse([result for result in run.blocks("user", "tool_result") if result.get("is_error")])
        offered = [{tool["function"]["name"] for tool in body["tools"]} for body in engine.asked()]
        self.assertEqual(["CronList" in names for names in offered], [False, True, True])

    @each_shape
    def test_another_conversation_meanwhile(self, engine: Engine) -> None:
        """A second agent reads the file."""
        place = Workplace(self, engine)
        run = place.run(f"Delegate {place.notes}.")
        self.finished(run)
        self.assertEqual([call["name"] for call in run.blocks("assistant", "tool_use")], ["Agent", "Read", "Bash"])
        self.assertEqual([len(engine.reasoning(body)) for body in engine.asked()], [0, 0, 1, 1])

    @each_shape
    def test_a_prompt_that_is_too_long(self, engine: Engine) -> None:
        """It understands that, has the conversation summed up, and begins anew with the summary."""
        place = Workplace(self, engine, "overflows.txt")
        run = place.edit()
        self.finished(run)
        self.assertEqual(place.notes.read_text(), EDITED)
        self.assertIn("compact_boundary", [event.get("subtype") for event in run.events])
        told = [(line["status"], line.get("code")) for line in engine.told(7)]
        self.assertEqual(told.count((400, "context_length_exceeded")), 1, told)
        self.assertEqual({status for status, _ in told}, {200, 400})

    @each_shape
    def test_an_answer_that_breaks(self, engine: Engine) -> None:
        """It sends the request again. After a whole text it continues from there, and does not request that text again."""
        for part, answers in (("thinking", 4), ("text", 4), ("call", 3)):
            with self.subTest(part=part):
                engine = Engine(engine.shape)
                place = Workplace(self, engine, f"breaks-once-in-{part}.txt")
                self.finished(place.edit())
                self.assertEqual(place.notes.read_text(), EDITED)
                ends = [line["end"] for line in engine.told(answers + 1)]
                self.assertEqual(sorted(ends), ["complete"] * answers + ["error"])

    @each_shape
    def test_answers_that_always_break(self, engine: Engine) -> None:
        """Half an answer never passes for one: it fails, and says so."""
        for part in ("thinking", "text", "call"):
            with self.subTest(part=part):
                place = Workplace(self, engine, f"breaks-always-in-{part}.txt")
                run = place.edit(CLAUDE_CODE_MAX_RETRIES="1")
                self.assertEqual((run.code, run.result["is_error"]), (1, True), run.result)
                self.assertIn("API Error", run.result["result"])
                self.assertEqual(place.notes.read_text(), "first\nsecond\n")


if __name__ == "__main__":
    unittest.main()
