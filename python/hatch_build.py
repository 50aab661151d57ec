"""Puts the built library into the wheel as kvpath/libkvpath.so.0 and gives the wheel its tag.

The library is the file that the environment variable KVPATH_WHEEL_LIBRARY names, else
../target/release/libkvpath.so. An editable installation has none inside: set KVPATH_LIBRARY there.
"""

import os
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACE = "kvpath/libkvpath.so.0"


class LibraryHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        built = Path(self.root).parent / "target" / "release" / "libkvpath.so"
        library = Path(os.environ.get("KVPATH_WHEEL_LIBRARY") or built)
        if not library.is_file():
            raise FileNotFoundError(
                f"{library} does not exist: run `make wheel`, or `cargo build --release` first, or"
                " name the library in KVPATH_WHEEL_LIBRARY"
            )
        machine = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{machine}"
        build_data["force_include"][str(library.resolve())] = PLACE
