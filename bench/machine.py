"""The machine under the benchmark: its facts, its caches, and the programs that run on it."""
import json
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

EXIT_UNSUPPORTED = 77
# Hex digits of the directories of the roots whose throughput is measured: 256 of them.
DIR_DIGITS = 2


class Unsupported(Exception):
    """The library says that it cannot do what was asked."""


class Failed(Exception):
    """A program of the benchmark failed."""


def _read(path, fallback=""):
    try:
        return Path(path).read_text().strip()
    except OSError:
        return fallback


def facts(directory):
    """What the report says about the machine."""
    model = "unknown"
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    memory = _read("/proc/meminfo").split("\n", 1)[0].split()
    mount = subprocess.run(["findmnt", "-no", "FSTYPE,SOURCE,OPTIONS", "-T", str(directory)],
                           capture_output=True, text=True, check=False).stdout.strip()
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(memory[1]) / (1 << 20), 1) if len(memory) > 1 else 0,
        "kernel": platform.release(),
        "file_system": mount,
        "huge_pages": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "io_uring_disabled": _read("/proc/sys/kernel/io_uring_disabled", "0"),
        "load_average": os.getloadavg()[0],
    }


def settle():
    """Everything is on the device and nothing is cached: no run pays for the one before."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        pass


class Machine:
    """Runs kvbench, fio, faultfs and the counters, in one directory of scratch data."""

    def __init__(self, build, data, verbose=False):
        self.kvbench = str(Path(build) / "kvbench")
        self.data = Path(data)
        self.verbose = verbose
        self.roots = {}
        self.id_range = 0
        self.data.mkdir(parents=True, exist_ok=True)
        self.counter = "perf" if self._perf_counts() else "strace"

    @staticmethod
    def _perf_counts():
        if not shutil.which("perf"):
            return False
        probe = subprocess.run(["perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "true"],
                               capture_output=True, text=True, check=False)
        return probe.returncode == 0 and probe.stderr.split(",")[0].isdigit()

    def _run(self, words, **options):
        if self.verbose:
            print("+", " ".join(map(str, words)), flush=True)
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                              check=False, **options)
        if done.returncode == EXIT_UNSUPPORTED:
            raise Unsupported(done.stderr.strip())
        if done.returncode != 0:
            raise Failed(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
        return done

    @staticmethod
    def words(mode, **options):
        """The words of one kvbench call; a list of roots gives several."""
        words = [mode]
        for name, value in options.items():
            values = value if isinstance(value, (list, tuple)) else [value]
            for each in values:
                each = int(each) if isinstance(each, bool) else each
                words += ["--" + name.replace("_", "-"), str(each)]
        return words

    def run(self, mode, **options):
        """One run of kvbench."""
        return json.loads(self._run([self.kvbench] + self.words(mode, **options)).stdout)

    def start(self, mode, **options):
        """A run of kvbench that goes on while the caller does something."""
        words = [self.kvbench] + self.words(mode, **options)
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def count_calls(self, mode, **options):
        """System calls of one whole run."""
        words = [self.kvbench] + self.words(mode, **options)
        if self.counter == "perf":
            with tempfile.NamedTemporaryFile("r") as out:
                self._run(["perf", "stat", "-x,", "-o", out.name, "-e", "raw_syscalls:sys_enter"]
                          + words)
                lines = [line for line in out.read().splitlines() if "sys_enter" in line]
            return int(lines[0].split(",")[0])
        return sum(self.name_calls(mode, **options).values())

    def name_calls(self, mode, **options):
        """System calls of one whole run by name. strace stops every call: only numbers count."""
        words = [self.kvbench] + self.words(mode, **options)
        with tempfile.NamedTemporaryFile("r") as out:
            self._run(["strace", "-f", "-c", "-o", out.name] + words)
            text = out.read()
        calls = {}
        for line in text.splitlines():
            words = line.split()
            if len(words) >= 5 and words[0][0].isdigit() and words[-1] != "total":
                calls[words[-1]] = int(words[3])
        return calls

    def count_marked(self, mode, **options):
        """System calls of all threads between the first two marks (getppid) of a run."""
        words = [self.kvbench] + self.words(mode, **options)
        with tempfile.NamedTemporaryFile("r") as out:
            self._run(["strace", "-f", "-o", out.name] + words)
            lines = out.read().splitlines()
        marks = [at for at, line in enumerate(lines) if " getppid(" in line]
        return sum(" resumed>" not in line and "(" in line for line in lines[marks[0] + 1:marks[1]])

    def root(self, name="store", digits=DIR_DIGITS, base=None):
        """A storage root with its directories, made once."""
        path = (Path(base) if base else self.data) / f"{name}-{digits}"
        if path not in self.roots:
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
            self.run("open", root=path, dir_digits=digits, calls=1, direct=base is None)
            self.roots[path] = digits
        return path

    def ids(self):
        """The first of many ids that no run has used."""
        self.id_range += 1
        return self.id_range << 32

    @staticmethod
    def clear(root):
        """Empties the blocks of a root. They are not removed before the end: ext4 without a journal
        does not give a removed inode again for minutes, and looks at every one that it passes, so
        that creating a file costs several times as much."""
        for entry in os.scandir(root):
            if entry.is_dir(follow_symlinks=False):
                for file in os.scandir(entry.path):
                    if file.is_file(follow_symlinks=False) and file.stat().st_size:
                        os.truncate(file.path, 0)

    def fio(self, directory, op, block_bytes, blocks, depth):
        """fio's throughput for a file per block, GiB/s, and CPU seconds per GiB."""
        directory.mkdir(parents=True, exist_ok=True)
        job = Path(__file__).parent / "file-per-block.fio"
        names = {"DIRECTORY": str(directory), "BYTES": str(block_bytes), "BLOCKS": str(blocks),
                 "DEPTH": str(depth),
                 "RW": "read" if op == "load" else "write"}
        done = self._run(["fio", "--output-format=json", job], env={**os.environ, **names})
        report = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
        part = report["read" if op == "load" else "write"]
        gib = part["io_bytes"] / (1 << 30)
        cpu = (report["usr_cpu"] + report["sys_cpu"]) / 100 * report["job_runtime"] / 1000
        return {"gib_s": part["bw_bytes"] / (1 << 30), "cpu_s_gib": cpu / gib if gib else 0}


class FaultFs:
    """One mount of the test file system."""

    def __init__(self, program, root, place):
        self.program = program
        self.place = Path(place)
        self.socket = str(place) + ".socket"
        self.place.mkdir(parents=True, exist_ok=True)
        ready, tell = os.pipe()
        words = [program, "--root", str(root), "--mount", str(place), "--control", self.socket,
                 "--ready-fd", str(tell)]
        self.process = subprocess.Popen(words, pass_fds=[tell])
        os.close(tell)
        answer = os.read(ready, 16)
        os.close(ready)
        if not answer:
            raise Unsupported(f"faultfs does not mount here (status {self.process.wait()})")

    def send(self, *words):
        """One command."""
        subprocess.run([self.program, "send", self.socket, *words], check=True,
                       stdout=subprocess.DEVNULL)

    def __enter__(self):
        return self

    def __exit__(self, *_unused):
        self.send("quit")
        self.process.wait(timeout=30)
