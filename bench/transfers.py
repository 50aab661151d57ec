"""Rows about moving bytes: each contender does the same blocks, round by round, in turns."""
from figures import (GIB, Row, at_least, at_most, cpu_s_gib, gib_s, median, paired, percentile)
from machine import Failed, Unsupported, settle

KIB, MIB = 1 << 10, 1 << 20
FLOORS = ("sync", "uring")
# Blocks of one run: enough for half a second, little enough for memory.
SIZES = {"64 KiB": (64 * KIB, 16384), "1 MiB": (MIB, 1024), "4 MiB": (4 * MIB, 512)}
# Enough for every worker and buffer to be there before the clock runs.
WARM = 128
# Rounds in which kvpath's dumps are loaded again and compared; loads always are.
CHECKED_ROUNDS = 2
LAYERS = 32


class Duel:
    """Rounds of one kind of work. `work` are the words that all contenders get; without a
    `fio_depth` fio has no turn."""

    def __init__(self, bench, work, engines=None, ops=("dump", "load"), root=None, fio_depth=0,
                 floor=None, mine=None):
        self.bench, self.work, self.ops = bench, work, ops
        self.root = root or bench.machine.root()
        self.names = [*FLOORS, *(engines or bench.engines)]
        self.floor, self.mine = floor or {}, mine or {}
        self.fio_root = None
        self.fio_depth = fio_depth
        self.runs = {(op, name): [] for op in ops for name in self.names + ["fio"]}

    def words(self, name):
        """Of one contender."""
        if name in FLOORS:
            return {**self.work, **self.floor, "contender": name, "root": self.root}
        return {**self.work, **self.mine, "contender": "kvpath", "engine": name, "root": self.root}

    def go(self, rounds):
        """All rounds."""
        for number in range(rounds):
            turn = number % len(self.names)
            order = self.names[turn:] + self.names[:turn]
            self.round(order, number < CHECKED_ROUNDS)
            self.bench.progress(f"round {number + 1} of {rounds}")
        return self

    def round(self, order, checked):
        """Everybody dumps, then everybody loads the same files."""
        machine = self.bench.machine
        settle()
        if self.fio_depth:
            self.fio_root = self.root.parent / "fio" / str(machine.ids())
        if "dump" in self.ops:
            for name in order:
                words = {**self.words(name), "first_id": machine.ids()}
                self.runs["dump", name].append(machine.run("transfer", op="dump", **words))
                if checked and name not in FLOORS:
                    check = {**words, **self.floor, "contender": "sync"}
                    machine.run("transfer", op="load", **check)
                self.clean()
            self.fio("dump")
        if "load" in self.ops:
            first_id = machine.ids()
            words = {**self.words("sync"), "first_id": first_id}
            machine.run("transfer", op="dump", **words)
            for name in order:
                words = {**self.words(name), "first_id": first_id}
                self.runs["load", name].append(machine.run("transfer", op="load", **words))
            self.clean()
            self.fio("load")
        if self.fio_root:
            machine.clear(self.fio_root.parent)

    def clean(self):
        """Nothing of a run is left to the next."""
        self.bench.machine.clear(self.root)

    def fio(self, op):
        """The yardstick's turn. For loads its files are there from its dumps."""
        if self.fio_root is None:
            return
        size, blocks = self.work["block_bytes"], self.work["blocks"]
        run = self.bench.machine.fio(self.fio_root, op, size, blocks, self.fio_depth)
        self.runs[op, "fio"].append(run)

    def figures(self, op, name, figure):
        """One figure of each round."""
        return [figure(run) for run in self.runs[op, name]]

    def better_floor(self, op, figure=gib_s, best=max):
        """The name of the floor that is harder to reach."""
        return best(FLOORS, key=lambda name: median(self.figures(op, name, figure)))

    def throughput_rows(self, what, limit, words="the better floor", engines=None):
        """One row an engine and op."""
        rows = []
        for op in self.ops:
            floor = self.better_floor(op)
            floors = self.figures(op, floor, gib_s)
            floor_cpu = median(self.figures(op, floor, cpu_s_gib))
            for engine in engines or self.names[len(FLOORS):]:
                values = self.figures(op, engine, gib_s)
                ratio = paired(values, floors)
                cpu = median(self.figures(op, engine, cpu_s_gib))
                rows.append(Row(f"{op} {what}, {engine}", median(values), "GiB/s", ratio,
                                f">= {limit} x {words} ({floor}: {median(floors):.3g} GiB/s; CPU "
                                f"{cpu:.2g} s/GiB, floor {floor_cpu:.2g})",
                                at_least(limit)(ratio), values, self.details(op, engine, what)))
        return rows

    def details(self, op, engine, what):
        """For the charts."""
        everybody = {name: self.figures(op, name, gib_s) for name in self.names}
        if self.fio_depth:
            everybody["fio"] = [run["gib_s"] for run in self.runs[op, "fio"]]
        return {"kind": "throughput", "op": op, "what": what, "engine": engine,
                "everybody": everybody, "size": self.work["block_bytes"]}

    def cpu_rows(self, what, copy_s_gib, limit=1.25):
        """CPU time against the floor that is better, plus one copy."""
        rows = []
        for op in self.ops:
            floor = self.better_floor(op)
            base = [value + copy_s_gib for value in self.figures(op, floor, cpu_s_gib)]
            for engine in self.names[len(FLOORS):]:
                values = self.figures(op, engine, cpu_s_gib)
                ratio = paired(values, base)
                target = (f"<= {limit} x (the floor + one copy) ({floor}: "
                          f"{median(base) - copy_s_gib:.3g} + {copy_s_gib:.3g})")
                rows.append(Row(f"{op} {what}, CPU per GiB, {engine}", median(values), "s/GiB",
                                ratio, target, at_most(limit)(ratio), values))
        return rows


def copy_cost(bench):
    """CPU seconds per GiB of one copy through main memory."""
    runs = [bench.machine.run("copy", block_bytes=MIB, blocks=512) for _ in range(3)]
    return median(cpu_s_gib(run) for run in runs)


def direct(bench, what):
    """Whole blocks with O_DIRECT, queue full: throughput and CPU time."""
    size, blocks = SIZES[what]
    work = {"block_bytes": size, "blocks": blocks, "warm": WARM, "shape": "whole"}
    duel = Duel(bench, work, fio_depth=32).go(bench.rounds)
    rows = duel.throughput_rows(f"{what} direct", 0.95)
    return rows + duel.cpu_rows(f"{what} direct", copy_cost(bench))


def single(bench):
    """One block at a time: latency."""
    work = {"block_bytes": MIB, "blocks": 128, "warm": 8, "shape": "whole", "single": 1,
            "task_blocks": 1}
    duel = Duel(bench, work).go(bench.rounds)

    def p50(run):
        return percentile(run["latency_us"], 0.5)

    rows = []
    for op in duel.ops:
        floor = duel.better_floor(op, p50, min)
        floors = duel.figures(op, floor, p50)
        for engine in bench.engines:
            values = duel.figures(op, engine, p50)
            ratio = paired(values, floors)
            everybody = {name: [us for run in duel.runs[op, name] for us in run["latency_us"]]
                         for name in duel.names}
            rows.append(Row(f"{op} 1 MiB, one at a time, p50, {engine}", median(values), "us",
                            ratio, f"<= 1.15 x the floor's ({floor}: {median(floors):.4g} us)",
                            at_most(1.15)(ratio), values,
                            {"kind": "latency", "op": op, "everybody": everybody}))
    return rows


def shards(bench):
    """A task has every shard of its blocks; the floor moves whole blocks from the same memory."""
    work = {"block_bytes": MIB, "blocks": 512, "warm": WARM, "shards": LAYERS, "shape": "shards"}
    duel = Duel(bench, work).go(bench.rounds)
    return duel.throughput_rows("32 shards a block, one task", 0.9, "the whole-block floor")


def layers(bench):
    """One task a layer."""
    work = {"block_bytes": MIB, "blocks": 256, "warm": 32, "shards": LAYERS, "shape": "layers",
            "task_blocks": 16}
    duel = Duel(bench, work, mine={"queue": LAYERS}).go(bench.rounds)
    return duel.throughput_rows("one task a layer", 0.9, "a floor doing the same transfers")


def one(bench):
    """One-shard tasks, 1,000 outstanding."""
    work = {"block_bytes": MIB, "blocks": 256, "warm": 32, "shards": LAYERS, "shape": "one",
            "task_blocks": 32}
    duel = Duel(bench, work, mine={"queue": 1000}).go(bench.rounds)
    return duel.throughput_rows("1000 one-shard tasks", 0.9, "a floor doing the same transfers")


def cached(bench):
    """Buffered loads from memory: isolation must not cost the copy twice."""
    root = bench.machine.root("cached", base=bench.memory)
    work = {"block_bytes": MIB, "blocks": 512, "warm": WARM, "shape": "whole", "direct": 0}
    duel = Duel(bench, work, ops=("load",), root=root).go(bench.rounds)
    return duel.throughput_rows("1 MiB cached (tmpfs), isolated", 0.85,
                                "the floor without isolation")


def calls(bench):
    """System calls of one more block, by the difference of a short and a long run."""
    machine, root = bench.machine, bench.machine.root()
    few, many = 128, 640
    rows = []
    limits = {"psync": 6, "aio": 6, "io_uring": 1}
    for op in ("dump", "load"):
        counts = {}
        for name in [*FLOORS, *bench.engines]:
            runs = []
            for _ in range(min(bench.rounds, 3)):
                base = {"block_bytes": MIB, "warm": 32, "root": root,
                        "contender": name if name in FLOORS else "kvpath",
                        "engine": name}
                totals = []
                for blocks in (few, many):
                    words = {**base, "blocks": blocks, "first_id": machine.ids()}
                    if op == "load":
                        machine.run("transfer", op="dump", **{**words, "contender": "sync"})
                    totals.append(machine.count_calls("transfer", op=op, **words))
                    machine.clear(root)
                runs.append((totals[1] - totals[0]) / (many - few))
            counts[name] = runs
        for engine in bench.engines:
            value, floor = median(counts[engine]), median(counts["sync"])
            limit = limits[engine]
            passed = value < limit if engine == "io_uring" else value <= limit
            sign = "<" if engine == "io_uring" else "<="
            rows.append(Row(f"{op} 1 MiB, system calls per block, {engine}", value, "calls",
                            value / floor if floor else None,
                            f"{sign} {limit} (floors: sync {floor:.3g}, "
                            f"uring {median(counts['uring']):.3g})", passed, counts[engine]))
    return rows


def threads(bench):
    """Four paths, all busy, defaults."""
    machine, root = bench.machine, bench.machine.root()
    paths = [root]
    for number in range(1, 4):
        path = root.parent / f"path-{number}"
        path.unlink(missing_ok=True)
        path.symlink_to(root, target_is_directory=True)
        paths.append(path)
    rows, queue, group = [], 64, 8
    # What the store may have in flight: all that is outstanding, by default 128 on each path.
    most = min(queue * group, 128 * len(paths))
    for engine in bench.engines:
        runs = []
        for _ in range(min(bench.rounds, 3)):
            runs.append(machine.run("transfer", op="dump", engine=engine, root=paths,
                                    block_bytes=MIB, blocks=1024, task_blocks=group, queue=queue,
                                    sample=1, first_id=machine.ids()))
            machine.clear(root)
        values = [run["threads"] for run in runs]
        value, limit = max(values), most + 8 * len(paths) if engine == "psync" else 80
        words = (f"{most} outstanding + 8 n; seen in flight: "
                 f"{max(run['in_flight'] for run in runs)}"
                 if engine == "psync" else "kernel workers included")
        rows.append(Row(f"threads, 4 backends busy, {engine}", value, "threads", value / limit,
                        f"<= {limit} ({words})", value <= limit, values))
        for what, unit, figure in (("descriptors", "descriptors", lambda run: run["descriptors"]),
                                   ("memory", "MiB", lambda run: run["resident_kib"] / 1024)):
            values = [figure(run) for run in runs]
            rows.append(Row(f"{what}, 4 backends busy, {engine}", max(values), unit, None,
                            "none: reported", None, values))
    return rows


def sweep(bench):
    """Throughput by block size and depth, for the charts."""
    rows = []
    for what, (size, blocks) in SIZES.items():
        for depth in (1, 4, 16, 32, 64):
            group = min(depth, 8)
            work = {"block_bytes": size, "blocks": blocks // (8 if depth == 1 else 4),
                    "warm": 16, "shape": "whole", "task_blocks": group}
            floor = {"threads": min(depth, 32), "depth": depth}
            try:
                mine = {"queue": max(1, depth // group)}
                duel = Duel(bench, work, floor=floor, mine=mine, fio_depth=depth)
                duel.go(min(bench.rounds, 3))
            except (Failed, Unsupported) as problem:
                bench.progress(f"sweep: {problem}")
                continue
            for op in duel.ops:
                for engine in bench.engines:
                    values = duel.figures(op, engine, gib_s)
                    details = {**duel.details(op, engine, what), "kind": "depth", "depth": depth}
                    floors = duel.figures(op, duel.better_floor(op), gib_s)
                    rows.append(Row(f"{op} {what}, depth {depth}, {engine}", median(values),
                                    "GiB/s", paired(values, floors), "none: for the charts", None,
                                    values, details))
    return rows


__all__ = ["GIB", "SIZES", "direct", "single", "shards", "layers", "one", "cached", "calls",
           "threads", "sweep"]
