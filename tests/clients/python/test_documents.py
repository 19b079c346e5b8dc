"""The Python of the documents is run unchanged, except for the address."""

from __future__ import annotations

import contextlib
import io
import re
import unittest

from ground import FIXTURES, RECORDED

ROOT = FIXTURES.parent


class Documents(unittest.TestCase):
    def test_every_block(self) -> None:
        count = 0
        for document in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
            text = document.read_text()
            for found in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
                count += 1
                block, line = found[1], text.count("\n", 0, found.start()) + 1
                with self.subTest(f"{document.name}:{line}"):
                    self.assertIn("http://127.0.0.1:8080/v1", block)
                    printed = io.StringIO()
                    with contextlib.redirect_stdout(printed):
                        block = block.replace("http://127.0.0.1:8080/v1", RECORDED)
                        exec(compile(block, document.name, "exec"), {})
                    self.assertTrue(printed.getvalue().strip())
        self.assertGreater(count, 5)
