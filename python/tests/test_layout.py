"""The ctypes side against the C side: layout.def, the statuses and the prototypes of kvpath.h."""

from __future__ import annotations

import ctypes
import re
import unittest
from ctypes import POINTER
from pathlib import Path

from kvpath import Status, _abi

PROJECT = Path(__file__).resolve().parents[2]
HEADER = (PROJECT / "include" / "kvpath.h").read_text()

STRUCTS = {
    "kvpath_block_id_t": _abi.BlockId,
    "kvpath_shard_t": _abi.Shard,
    "kvpath_backend_health_t": _abi.BackendHealth,
    "kvpath_stats_t": _abi.Stats,
    "kvpath_api_t": _abi.Table,
}

TYPES = {
    "kvpath_status_t": ctypes.c_int32,
    "kvpath_store_t": ctypes.c_uint64,
    "kvpath_task_t": ctypes.c_uint64,
    "kvpath_log_fn": _abi.LogFunction,
    "size_t": ctypes.c_size_t,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "uint8_t": ctypes.c_uint8,
    "const char *": ctypes.c_char_p,
    "char *": ctypes.c_char_p,
    "void *": ctypes.c_void_p,
    "void": None,
    "size_t *": POINTER(ctypes.c_size_t),
    "int32_t *": POINTER(ctypes.c_int32),
    "int64_t *": POINTER(ctypes.c_int64),
    "uint8_t *": POINTER(ctypes.c_uint8),
    "kvpath_status_t *": POINTER(ctypes.c_int32),
    "kvpath_store_t *": POINTER(ctypes.c_uint64),
    "kvpath_task_t *": POINTER(ctypes.c_uint64),
    "const struct kvpath_shard_t *": POINTER(_abi.Shard),
    "const struct kvpath_block_id_t *": POINTER(_abi.BlockId),
    "struct kvpath_backend_health_t *": POINTER(_abi.BackendHealth),
    "struct kvpath_stats_t *": POINTER(_abi.Stats),
}


class Layout(unittest.TestCase):
    def test_every_size_and_offset(self) -> None:
        layout = (PROJECT / "ctest" / "layout.def").read_text()
        sizes = re.findall(r"^SIZE\((\w+), (\d+)\)", layout, re.M)
        offsets = re.findall(r"^OFFSET\((\w+), (\w+), (\d+)\)", layout, re.M)
        self.assertEqual({name for name, _ in sizes}, set(STRUCTS))
        for name, size in sizes:
            self.assertEqual(ctypes.sizeof(STRUCTS[name]), int(size), name)
        for name, struct in STRUCTS.items():
            expected = {field: int(at) for owner, field, at in offsets if owner == name}
            have = {field: getattr(struct, field).offset for field, *_ in struct._fields_}
            self.assertEqual(have, expected, name)

    def test_every_status(self) -> None:
        names = "OK|ERROR|[A-Z]+_?[A-Z]+_?[A-Z]*"
        defined = re.findall(rf"^#define KVPATH_({names}) \(?(-\d+|0)\)?$", HEADER, re.M)
        statuses = {name: int(number) for name, number in defined if "BACKEND" not in name}
        self.assertEqual(statuses, {it.name: int(it) for it in Status})

    def test_every_prototype(self) -> None:
        table = HEADER[HEADER.index("typedef struct kvpath_api_t") :]
        table = re.sub(r"/\*.*?\*/", "", table[: table.index("} kvpath_api_t;")], flags=re.S)
        found = re.findall(r"([\w ]+?[ *]+)\(\*(\w+)\)\(([^)]*)\);", table)
        self.assertEqual([name for _, name, _ in found], [it[0] for it in _abi.FUNCTIONS])
        for (result, name, parameters), (_, *mine) in zip(found, _abi.FUNCTIONS):
            theirs = [TYPES[result.strip()]]
            for parameter in parameters.split(","):
                words = " ".join(parameter.split())
                if words != "void":
                    theirs.append(TYPES[re.sub(r"\w+$", "", words).strip()])
            self.assertEqual(mine, theirs, name)


if __name__ == "__main__":
    unittest.main()
