"""Puts the built library into the wheel under its soname and gives the wheel its tag.

The library is the file that the environment variable KVPATH_WHEEL_LIBRARY names, else
../target/release/libkvpath.so. It goes in without what only debuggers read, a sixth of its size;
where there is no `strip`, as it is. An editable installation has none inside: set KVPATH_LIBRARY
there.
"""

import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def soname(version: str) -> str:
    """Before 1.0.0 a minor version may break the ABI; src/kvpath/_library.py looks for this one."""
    major, minor = version.split(".")[:2]
    return f"libkvpath.so.{major if major != '0' else f'0.{minor}'}"


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
        if shutil.which("strip"):
            self.scratch = tempfile.mkdtemp()
            shipped = Path(self.scratch, "libkvpath.so")
            subprocess.run(["strip", "--strip-unneeded", "-o", shipped, library], check=True)
            library = shipped
        machine = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{machine}"
        place = f"kvpath/{soname(self.metadata.version)}"
        build_data["force_include"][str(library.resolve())] = place

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(getattr(self, "scratch", ""), ignore_errors=True)
