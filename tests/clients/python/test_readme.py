"""The Python of the README is run as it stands, but for the address."""

from __future__ import annotations

import contextlib
import io
import re
import unittest

from ground import FIXTURES, RECORDED


class Readme(unittest.TestCase):
    def test_every_block(self) -> None:
        readme = (FIXTURES.parent / "README.md").read_text()
        blocks = re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
        self.assertTrue(blocks)
        for block in blocks:
            self.assertIn("http://127.0.0.1:8080/v1", block)
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(block.replace("http://127.0.0.1:8080/v1", RECORDED), "README.md", "exec"), {})
            self.assertTrue(printed.getvalue().strip())
