"""The package and its process: log, fork, Ctrl-C, the end of the interpreter, which library."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import unittest
from pathlib import Path

from common import BLOCK, LIMIT_MS, StoreCase, block_id

import kvpath
from kvpath import _library

HAS_FAULTS = hasattr(_library.library, "kvpath_fault_add")

HANGING = """
import kvpath, common, json, sys
store = kvpath.open(json.loads(sys.argv[1]))
store.dump_block(common.block_id(1), common.content(1)).wait()
faults = common.Faults(store)
faults.hang("read")
target = bytearray(common.BLOCK)
task = store.load_block(common.block_id(1), target)
faults.wait_held()
"""


class Process(StoreCase):
    def python(self, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs a program with this test's configuration as its argument."""
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", program, json.dumps(self.config(timeout_ms=0))],
            env={**os.environ, **environment},
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=LIMIT_MS / 1000,
        )

    def test_fork(self) -> None:
        store = self.open()
        task = store.load([])
        child = os.fork()
        if child == 0:
            wrong = 0
            for call in (
                store.stats,
                store.close,
                task.wait,
                task.check,
                task.cancel,
                task.forget,
                store.finished,
                lambda: store.lookup([block_id(1)]),
                lambda: store.load_block(block_id(1), bytearray(BLOCK)),
                lambda: kvpath.open(self.config()),
                lambda: kvpath.alloc(4096),
            ):
                try:
                    call()
                    wrong += 1
                except kvpath.ForkedError:
                    pass
                except BaseException:
                    wrong += 1
            os._exit(wrong)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        task.wait()
        store.close()

    def test_fork_ends_in_peace(self) -> None:
        done = self.python(
            "import kvpath, json, os, sys\n"
            "store = kvpath.open(json.loads(sys.argv[1]))\n"
            "kvpath.log_to()\n"
            "child = os.fork()\n"
            "if child == 0: del store; sys.exit(7)\n"
            "print(os.waitpid(child, 0)[1] >> 8)\n"
            "store.check_health()\n"
            "store.close()\n"
        )
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "7\n", ""))

    def test_interpreter_ends_with_an_open_store(self) -> None:
        done = self.python(
            "import atexit\n"  # what is registered first runs last
            "atexit.register(lambda: print(kvpath.logs._current is kvpath.logs._nothing))\n"
            "import kvpath, json, sys, threading\n"
            "kvpath.set_log_callback(lambda *_: None, 4)\n"
            "store = kvpath.open(json.loads(sys.argv[1]))\n"
            "memory = bytearray(store.shape.block_size)\n"
            "tasks = [store.dump_block(b'%16d' % it, memory) for it in range(200)]\n"
            "threading.Thread(target=store.load([]).wait).start()\n"
            "print('end')\n"
        )
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "end\nTrue\n", ""))
        self.assertEqual([it for it in os.listdir(f"{self.root}/data") if ".tmp" in it], [])

    @unittest.skipUnless(HAS_FAULTS, "not the library with faults on purpose")
    def test_interpreter_ends_while_something_hangs(self) -> None:
        done = self.python(HANGING + "print('end')\n")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "end\n", ""))

    @unittest.skipUnless(HAS_FAULTS, "not the library with faults on purpose")
    def test_control_c_ends_a_wait_and_nothing_else(self) -> None:
        done = self.python(
            HANGING + "import os, signal, threading\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "def press():\n"
            "    while not task._lock.locked(): pass\n"  # the main thread waits
            "    os.kill(os.getpid(), signal.SIGINT)\n"
            "threading.Thread(target=press).start()\n"
            "try: task.wait()\n"
            "except KeyboardInterrupt: print('interrupted')\n"
            "try: target.append(0)\n"
            "except BufferError: print('exported')\n"
            "faults.let_go()\n"
            "task.wait()\n"
            "print(bytes(target) == common.content(1))\n"
            "store.close()\n"
        )
        self.assertEqual(done.stderr, "")
        self.assertEqual(done.stdout, "interrupted\nexported\nTrue\n")

    def test_wrong_libraries(self) -> None:
        for library, text in (
            (f"{self.root}/absent.so", "KVPATH_LIBRARY: "),
            ("libc.so.6", "libc.so.6 is no kvpath library"),
        ):
            done = self.python("import kvpath", KVPATH_LIBRARY=library)
            self.assertEqual(done.returncode, 1)
            self.assertIn("ImportError: " + text, done.stderr)

    def test_library_by_variable(self) -> None:
        library = str(Path(_library.library_path).resolve())
        done = self.python("import kvpath; print(kvpath.library_path)", KVPATH_LIBRARY=library)
        self.assertEqual((done.stdout, done.stderr), (library + "\n", ""))


class Log(StoreCase):
    def tearDown(self) -> None:
        kvpath.set_log_callback(None)

    def fail_open(self) -> None:
        with self.assertRaises(kvpath.StoreUnhealthyError):
            kvpath.open(self.config(storage_backends=[f"{self.root}/absent"]))

    def test_into_logging(self) -> None:
        came = threading.Event()
        records: list[logging.LogRecord] = []

        class Handler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                records.append(record)
                came.set()

        logger = logging.getLogger("kvpath.test")
        logger.propagate = False
        logger.addHandler(Handler())
        logger.setLevel(logging.ERROR)
        kvpath.log_to(logger)
        self.fail_open()
        self.assertTrue(came.wait(LIMIT_MS / 1000))
        kvpath.set_log_callback(None)  # after this nothing comes
        [record] = records
        self.assertEqual((record.levelno, record.name), (logging.ERROR, "kvpath.test"))
        self.assertRegex(record.getMessage(), r"^KV1002: open failed: .*absent")
        self.assertEqual(vars(record)["kvpath_id"], "KV1002")

    def test_callback_gets_level_id_and_text(self) -> None:
        came = threading.Event()
        lines: list[tuple[int, str, str]] = []

        def callback(level: int, name: str, text: str) -> None:
            lines.append((level, name, text))
            came.set()

        kvpath.set_log_callback(callback, kvpath.ERROR)
        self.fail_open()
        self.assertTrue(came.wait(LIMIT_MS / 1000))
        self.assertEqual(lines[0][:2], (1, "KV1002"))
        with self.assertRaises(kvpath.InvalidParamError):
            kvpath.set_log_callback(callback, 5)

    def test_callback_that_raises_hurts_nobody(self) -> None:
        came = threading.Event()
        hook = sys.unraisablehook
        sys.unraisablehook = lambda _: came.set()
        self.addCleanup(setattr, sys, "unraisablehook", hook)

        def callback(level: int, name: str, text: str) -> None:
            raise RuntimeError(text)

        kvpath.set_log_callback(callback, 1)
        self.fail_open()
        self.assertTrue(came.wait(LIMIT_MS / 1000))
        self.open().check_health()


if __name__ == "__main__":
    unittest.main()
