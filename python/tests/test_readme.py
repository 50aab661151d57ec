"""The README's example is run as it is shown."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


class Readme(unittest.TestCase):
    def test_example(self) -> None:
        [program] = re.findall(
            r"^```python\n(import kvpath.*?)^```$", README.read_text(), re.M | re.S
        )
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory, "example.py")
            file.write_text(program)
            done = subprocess.run(
                [sys.executable, "-W", "error", str(file)],
                cwd=directory,
                capture_output=True,
                text=True,
                timeout=120,
            )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, "[True] the block came back whole\n")


if __name__ == "__main__":
    unittest.main()
