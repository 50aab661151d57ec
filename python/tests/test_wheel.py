"""What the wheel has inside: the library under its soname, without what only debuggers read."""

from __future__ import annotations

import os
import re
import unittest
from pathlib import Path

import kvpath
from kvpath import _library

CARGO = Path(__file__).resolve().parents[2] / "Cargo.toml"


class Wheel(unittest.TestCase):
    def test_library_has_the_name_of_its_abi(self) -> None:
        found = re.search(r'^version = "(\d+)\.(\d+)\.', CARGO.read_text(), re.M)
        assert found
        major, minor = found.groups()
        # Before 1.0.0 a minor version may break the ABI.
        self.assertEqual(
            _library.SONAME, f"libkvpath.so.{major if major != '0' else f'0.{minor}'}"
        )

    @unittest.skipIf(os.environ.get("KVPATH_LIBRARY"), "another library than the wheel's")
    def test_library_is_inside_and_stripped(self) -> None:
        package = Path(kvpath.__file__).parent
        self.assertEqual(kvpath.library_path, str(package / _library.SONAME))
        self.assertEqual([file.name for file in package.glob("*.so*")], [_library.SONAME])
        library = (package / _library.SONAME).read_bytes()
        # Names of sections; there is no other reason for them in the file.
        for section in (b"\0.symtab\0", b"\0.debug_info\0", b"\0.debug_line\0"):
            self.assertNotIn(section, library)


if __name__ == "__main__":
    unittest.main()
