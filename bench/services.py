"""Rows about everything but transfers at full speed: lookups, open, close, rest, fail-over."""
import json
import time

from figures import Row, at_least, at_most, median, percentile
from machine import FaultFs, settle

LOOKUP_CONCURRENCY = 16
FEW_BYTES = 4096
MIB = 1 << 20
# Blocks alone: the marker and the start-up probe still work.
BLOCK_FILES = "??/" + "?" * 32


def _files(bench, root, digits, count):
    """Small blocks that are there."""
    bench.machine.run("transfer", op="dump", contender="sync", root=root, dir_digits=digits,
                      block_bytes=FEW_BYTES, blocks=count, warm=0, first_id=1)


def lookup(bench):
    """Present ids whose names are cached, against `access` in the caller."""
    root = bench.machine.root("lookup", 3)
    _files(bench, root, 3, 1024)
    words = {"root": root, "dir_digits": 3, "first_id": 1}
    rows = []
    for name, pause, target in (("1 id", 0, "<= 15 us above one access"),
                                ("1 id, 1 ms apart", 1000, "none: parked workers")):
        runs = [bench.machine.run("lookup", ids=1, calls=2000 if not pause else 500,
                                  pause_us=pause, **words) for _ in range(bench.rounds)]
        above = [run["kvpath_p50_us"] - run["access_p50_us"] for run in runs]
        value = median(above)
        ratio = median(run["kvpath_p50_us"] / run["access_p50_us"] for run in runs)
        passed = None if pause else value <= 15
        rows.append(Row(f"lookup of {name}, above access, p50", value, "us", ratio, target, passed,
                        above))
    runs = [bench.machine.run("lookup", ids=1024, calls=200, **words)
            for _ in range(bench.rounds)]
    rates = [1024 / run["kvpath_p50_us"] * 1e6 for run in runs]
    ratio = median(run["access_p50_us"] / run["kvpath_p50_us"] for run in runs)
    rows.append(Row("lookup of 1024 ids", median(rates), "ids/s", ratio,
                    ">= 1.3 x a serial access loop", at_least(1.3)(ratio), rates))
    bench.machine.clear(root)
    return rows


def lookup_slow(bench):
    """The same on a file system that takes a millisecond for each file (faultfs)."""
    root = bench.machine.root("slow", 1)
    _files(bench, root, 1, 1024)
    rates, ratios = [], []
    with FaultFs(bench.faultfs, root, bench.machine.data / "slow-mount") as slow:
        slow.send("rule", "add", "lookup", "?/*", "always", "delay", "1")
        for _ in range(min(bench.rounds, 5)):
            run = bench.machine.run("lookup", ids=1024, calls=3, root=slow.place, dir_digits=1,
                                    first_id=1)
            rate = 1024 / run["kvpath_p50_us"] * 1e6
            serial = 1024 / run["access_p50_us"] * 1e6
            rates.append(rate)
            ratios.append(rate / (serial * LOOKUP_CONCURRENCY))
    ratio = median(ratios)
    bench.machine.clear(root)
    return [Row("lookup of 1024 ids, 1 ms each", median(rates), "ids/s", ratio,
                f">= 0.9 x {LOOKUP_CONCURRENCY} x a serial access loop there",
                at_least(0.9)(ratio), rates)]


def open_close(bench):
    """A store with 4096 directories that exist."""
    root = bench.machine.root("open", 3)
    rows = []
    words = {"root": root, "dir_digits": 3, "pause_us": 200_000}
    for engine in bench.engines:
        runs = [bench.machine.run("open", calls=3, engine=engine, **words)
                for _ in range(bench.rounds)]
        opens = [median(run["open_ms"]) for run in runs]
        closes = [median(run["close_ms"]) for run in runs]
        calls = [bench.machine.count_marked("open", calls=1, engine=engine, **words)
                 for _ in range(min(bench.rounds, 3))]
        rows += [Row(f"open, 4096 directories, {engine}", median(opens), "ms", median(opens) / 10,
                     "<= 10 ms", median(opens) <= 10, opens),
                 Row(f"open, 4096 directories, system calls, {engine}", median(calls),
                     "calls", median(calls) / 400, "<= 400", median(calls) <= 400, calls),
                 Row(f"close, idle, {engine}", median(closes), "ms", median(closes) / 20,
                     "<= 20 ms", median(closes) <= 20, closes)]
    return rows


def idle(bench):
    """Ten seconds after its last call, a store sleeps."""
    rows = []
    for engine in bench.engines:
        for paths in (1, 4):
            root = bench.machine.root()
            roots = [root]
            for number in range(1, paths):
                link = root.parent / f"path-{number}"
                link.unlink(missing_ok=True)
                link.symlink_to(root, target_is_directory=True)
                roots.append(link)
            run = bench.machine.run("idle", engine=engine, root=roots, blocks=32, warm=0,
                                    first_id=bench.machine.ids(), seconds=10)
            bench.machine.clear(root)
            rows += [Row(f"idle, {paths} backends, voluntary switches in 10 s, {engine}",
                         run["switches"], "switches", None, "0", run["switches"] == 0,
                         [run["switches"]]),
                     Row(f"idle, {paths} backends, threads, {engine}", run["threads"], "threads",
                         run["threads"] / 6, "<= 6", run["threads"] <= 6, [run["threads"]])]
    return rows


def _murmur(data, seed=0xc70f6907):
    """`std::hash` of libstdc++ over 16 bytes (R14): which path is a block's first."""
    mask, multiplier = (1 << 64) - 1, 0xc6a4a7935bd1e995

    def shift(value):
        return value ^ (value >> 47)

    state = seed ^ (len(data) * multiplier & mask)
    for at in range(0, len(data), 8):
        word = int.from_bytes(data[at:at + 8], "little")
        word = shift(word * multiplier & mask) * multiplier & mask
        state = (state ^ word) * multiplier & mask
    state = shift(state) * multiplier & mask
    return shift(state)


def _block_id(number):
    """As block_id() of plan.c."""
    mask = (1 << 64) - 1

    def mix(value):
        value = (value + 0x9e3779b97f4a7c15) & mask
        value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9 & mask
        value = (value ^ (value >> 27)) * 0x94d049bb133111eb & mask
        return value ^ (value >> 31)

    return mix(number).to_bytes(8, "little") + mix(number ^ mask).to_bytes(8, "little")


def failover(bench):
    """A primary that gives EIO: what a load costs then, and what a caller sees over time."""
    root = bench.machine.root("failover")
    blocks, first = 128, 1
    bench.machine.run("transfer", op="dump", contender="sync", root=root, block_bytes=MIB,
                      blocks=blocks, warm=8, first_id=first)
    data, rows = bench.machine.data, []
    with FaultFs(bench.faultfs, root, data / "path-a") as a, \
            FaultFs(bench.faultfs, root, data / "path-b") as b:
        for engine in bench.engines:
            rows += [_failover_cost(bench, engine, a, b, blocks, first),
                     _timeline(bench, engine, a, b, first)]
    bench.machine.clear(root)
    settle()
    return rows


def _failover_cost(bench, engine, a, b, blocks, first):
    # A window that never excludes: each load meets the error again.
    health = '"store_health": {"health_window_size": 65536, "failure_threshold": 65536}'
    words = {"op": "load", "engine": engine, "root": [a.place, b.place], "block_bytes": MIB,
             "blocks": blocks, "warm": 8, "task_blocks": 1, "single": 1, "first_id": first,
             "extra": health}
    mine = [at for at in range(blocks) if _murmur(_block_id(first + 8 + at)) % 2 == 0]
    healthy, failing = [], []
    for _ in range(bench.rounds):
        for figures, broken in ((healthy, False), (failing, True)):
            if broken:
                a.send("rule", "add", "read", BLOCK_FILES, "always", "fail", "EIO")
            run = bench.machine.run("transfer", **words)
            a.send("rules", "clear")
            figures.append(percentile([run["latency_us"][at] for at in mine], 0.5))
    ratio = median(bad / good for good, bad in zip(healthy, failing))
    return Row(f"fail-over, primary gives EIO, 1 MiB load, p50, {engine}", median(failing), "us",
               ratio, f"<= 2 x a healthy one ({median(healthy):.4g} us)", at_most(2)(ratio),
               failing)


def _timeline(bench, engine, a, b, first):
    health = '"store_health": {"health_check_interval_s": 1, "health_check_timeout_s": 0.5}'
    process = bench.machine.start("timeline", engine=engine, root=[a.place, b.place],
                                  first_id=first, block_bytes=MIB, blocks=128, warm=8,
                                  task_blocks=1, seconds=20, pause_us=2000, extra=health)
    process.stderr.readline()
    start = time.monotonic()
    time.sleep(3)
    a.send("rule", "add", "any", "*", "always", "fail", "EIO")
    broken = time.monotonic() - start
    time.sleep(5)
    a.send("rules", "clear")
    mended = time.monotonic() - start
    out, errors = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"timeline: {errors}")
    report = json.loads(out)
    failed = sum(load[2] for load in report["loads"])
    return Row(f"fail-over, loads that failed while one path was broken, {engine}", failed, "loads",
               None, "0", failed == 0, [failed],
               {"kind": "timeline", "engine": engine, "loads": report["loads"],
                "broken": broken, "mended": mended})
