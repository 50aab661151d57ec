#!/usr/bin/env python3
"""The benchmark: runs the rows of the speed table, prints them, and writes bench-report/.

Only ratios of interleaved runs say anything on a shared machine; `pass` is for the report and never
an exit status. See README.md here."""
import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

import report
import services
import transfers
from machine import Failed, Machine, Unsupported, facts, settle

ENGINES = ("psync", "aio", "io_uring")
GROUPS = {
    "direct-64k": lambda bench: transfers.direct(bench, "64 KiB"),
    "direct-1m": lambda bench: transfers.direct(bench, "1 MiB"),
    "direct-4m": lambda bench: transfers.direct(bench, "4 MiB"),
    "single": transfers.single,
    "shards": transfers.shards,
    "layers": transfers.layers,
    "one": transfers.one,
    "calls": transfers.calls,
    "cached": transfers.cached,
    "lookup": services.lookup,
    "lookup-slow": services.lookup_slow,
    "open": services.open_close,
    "idle": services.idle,
    "threads": transfers.threads,
    "failover": services.failover,
    "sweep": transfers.sweep,
}


class Bench:
    """What every group needs."""

    def __init__(self, options, memory):
        self.rounds = options.rounds
        self.memory = memory
        self.faultfs = options.faultfs
        self.quiet = options.quiet
        self.machine = Machine(options.build, options.data, options.verbose)
        self.engines = self._engines(options.engines)

    def _engines(self, wanted):
        """Those that this build and this machine have."""
        root = self.machine.root()
        found = []
        for engine in wanted:
            try:
                self.machine.run("open", root=root, engine=engine, calls=1)
                found.append(engine)
            except (Unsupported, Failed) as problem:
                print(f"{engine}: left out: {problem}", flush=True)
        return found

    def progress(self, text):
        """On the terminal, for who waits."""
        if not self.quiet:
            print(f"  {text}", file=sys.stderr, flush=True)


def chosen(words):
    """The groups that `ROWS` names, by prefix; all where it is empty."""
    words = words.replace(",", " ").split()
    picked = [name for name in GROUPS if not words or any(name.startswith(w) for w in words)]
    unknown = [w for w in words if not any(name.startswith(w) for name in GROUPS)]
    if unknown:
        sys.exit(f"no such rows: {' '.join(unknown)}; there are {' '.join(GROUPS)}")
    return picked


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rows", default="", help="groups, by prefix: " + " ".join(GROUPS))
    parser.add_argument("--engines", type=lambda text: text.split(","), default=ENGINES)
    parser.add_argument("--build", default="build/bench")
    parser.add_argument("--data", default="build/bench/data", help="on the storage to measure")
    parser.add_argument("--report", default="bench-report")
    parser.add_argument("--faultfs", default="target/faultfs/release/faultfs")
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


def main():
    """Runs what was asked for."""
    options = parse()
    options.data = Path(options.data).resolve()
    picked = chosen(options.rows)
    memory = tempfile.mkdtemp(prefix="kvbench-", dir="/dev/shm")
    rows = []
    try:
        bench = Bench(options, memory)
        for name in picked:
            start = time.monotonic()
            try:
                settle()
                found = GROUPS[name](bench)
            except (Failed, Unsupported) as problem:
                print(f"{name}: left out: {problem}", flush=True)
                continue
            report.print_rows(found)
            rows += found
            bench.progress(f"{name}: {time.monotonic() - start:.0f} s")
    finally:
        shutil.rmtree(memory, ignore_errors=True)
        shutil.rmtree(options.data, ignore_errors=True)
    machine = {**facts(options.data.parent), "rounds": options.rounds, "engines": bench.engines}
    report.write(Path(options.report), machine, rows)


if __name__ == "__main__":
    main()
