"""What the benchmark says: lines on the terminal, report.json, and one HTML page."""
import json

import charts
from figures import rounded


def _text(row):
    ratio = "" if row.ratio is None else f"{row.ratio:.2f} x"
    state = {True: "ok", False: "SHORT", None: "-"}[row.passed]
    low, high = min(row.runs), max(row.runs)
    spread = f"[{low:.3g} .. {high:.3g}]"
    value = f"{row.value:9.4g} {row.unit:7}"
    return f"{state:5} {row.name:58} {value} {spread:20} {ratio:8} {row.target}"


def print_rows(rows):
    """Median, range, ratio, target."""
    for row in rows:
        print(_text(row), flush=True)


def write(directory, machine, rows):
    """Both files."""
    directory.mkdir(parents=True, exist_ok=True)
    body = {"machine": machine, "rows": [row.json() for row in rows]}
    (directory / "report.json").write_text(json.dumps(body, indent=1) + "\n")
    (directory / "report.html").write_text(page(machine, rows))
    print(f"{directory}/report.json, {directory}/report.html")


STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --line: #d0d7de; --soft: #57606a }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --paper: #0d1117; --line: #30363d; --soft: #8b949e } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
h1, h2 { line-height: 1.2 } h2 { margin-top: 2.5rem }
table { border-collapse: collapse; width: 100%; font-size: 13px }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line) }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.ok { color: #1a7f37 } .short { color: #cf222e; font-weight: 600 } .none { color: var(--soft) }
svg { max-width: 100%; height: auto } figure { margin: 1rem 0 } figcaption { color: var(--soft) }
svg text { fill: var(--ink); font: 11px system-ui, sans-serif } .soft { color: var(--soft) }
svg .axis { stroke: var(--line) }
"""

STATES = {True: ("met", "ok"), False: ("short", "short"), None: ("–", "none")}


def _table(rows):
    lines = ["<table><tr><th>what</th><th>median</th><th>range</th><th>ratio</th><th>target</th>"
             "<th></th></tr>"]
    for row in rows:
        if row.details.get("kind") == "depth":
            continue
        word, style = STATES[row.passed]
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        spread = f"{rounded(min(row.runs))} – {rounded(max(row.runs))}"
        lines.append(f"<tr><td>{charts.escape(row.name)}</td>"
                     f"<td class=n>{rounded(row.value)} {charts.escape(row.unit)}</td>"
                     f"<td class=n>{spread}</td><td class=n>{ratio}</td>"
                     f"<td>{charts.escape(row.target)}</td><td class={style}>{word}</td></tr>")
    return "\n".join(lines) + "</table>"


def page(machine, rows):
    """The HTML report."""
    facts = " · ".join(f"{key.replace('_', ' ')}: {value}" for key, value in machine.items())
    parts = [f"<!doctype html><html lang=en><meta charset=utf-8><title>kvpath: speed</title>"
             f"<style>{STYLE}</style><h1>kvpath: speed</h1>",
             f"<p class=soft>{charts.escape(facts)}</p>",
             "<p>Ratios are medians of ratios round by round: every contender runs in each round. "
             "The floors are bare C programs that do the same file-per-block work without a "
             "library.</p>", _table(rows)]
    parts += charts.throughput(rows) + charts.depths(rows) + charts.latencies(rows)
    parts += charts.timelines(rows)
    return "\n".join(parts) + "</html>\n"
