"""Rows of the table: medians, ratios of interleaved runs, and whether a target is met."""
import statistics
from dataclasses import dataclass, field

GIB = 1 << 30


@dataclass
class Row:
    """One line of report.json; `details` go to the HTML report alone."""
    name: str
    value: float
    unit: str
    ratio: float | None
    target: str
    passed: bool | None
    runs: list
    details: dict = field(default_factory=dict)

    def json(self):
        """As issue 4 and README describe it."""
        return {"name": self.name, "value": rounded(self.value), "unit": self.unit,
                "ratio": rounded(self.ratio), "target": self.target, "pass": self.passed,
                "runs": [rounded(run) for run in self.runs]}


def rounded(value):
    """Four significant digits: more is noise."""
    return None if value is None else float(f"{value:.4g}")


def median(values):
    """The median; 0 of nothing."""
    values = list(values)
    return statistics.median(values) if values else 0.0


def gib_s(run):
    """Throughput of one run."""
    return run["bytes"] / GIB / run["seconds"]


def cpu_s_gib(run):
    """CPU seconds per GiB of one run."""
    return (run["user_s"] + run["system_s"]) / (run["bytes"] / GIB)


def paired(values, others):
    """The median of the ratios, round by round."""
    return median(a / b for a, b in zip(values, others) if b)


def percentile(values, part):
    """Of unsorted values."""
    values = sorted(values)
    return values[min(len(values) - 1, round(part * (len(values) - 1)))] if values else 0.0


def at_least(limit):
    """A judge of ratios."""
    return lambda ratio: ratio >= limit


def at_most(limit):
    """A judge of ratios."""
    return lambda ratio: ratio <= limit
