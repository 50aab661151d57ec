"""Charts as inline SVG: nothing is loaded from anywhere."""
import html
import math

from figures import median, percentile

COLOURS = {"sync": "#8c959f", "uring": "#57606a", "fio": "#bf8700", "psync": "#0969da",
           "aio": "#8250df", "io_uring": "#1a7f37"}
NAMES = {"sync": "floor: threads", "uring": "floor: io_uring", "fio": "fio"}
PERCENTS = (1, 10, 25, 50, 75, 90, 95, 99, 99.9)
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 720, 280, 60, 40, 24


def escape(text):
    """For HTML."""
    return html.escape(str(text))


def _name(contender):
    return NAMES.get(contender, f"kvpath {contender}")


def _colour(contender):
    return COLOURS.get(contender, "#cf222e")


def _figure(caption, body):
    return (f"<figure><svg viewBox='0 0 {WIDTH} {HEIGHT}' width={WIDTH} role=img "
            f"aria-label='{escape(caption)}'>{body}</svg><figcaption>{escape(caption)}"
            f"</figcaption></figure>")


def _legend(names):
    parts = []
    for at, name in enumerate(names):
        x = LEFT + at * 108
        parts.append(f"<rect x={x} y=4 width=10 height=10 fill='{_colour(name)}'/>"
                     f"<text x={x + 14} y=13>{escape(_name(name))}</text>")
    return "".join(parts)


def _step(top):
    """A round distance of about five lines."""
    rough = top / 5 or 1
    power = 10 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)


def _frame(top, unit):
    step, parts, value = _step(top), [], 0.0
    while value <= top:
        y = _y(value, top)
        parts.append(f"<line class=axis x1={LEFT} x2={WIDTH - 8} y1={y:.1f} y2={y:.1f} />"
                     f"<text x={LEFT - 6} y={y + 4:.1f} text-anchor=end>{value:g}</text>")
        value += step
    parts.append(f"<text x=4 y={TOP + 8}>{escape(unit)}</text>")
    return "".join(parts)


def _y(value, top):
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / top if top else HEIGHT - BOTTOM


def _lines(series, ticks, unit, top):
    """Lines over named ticks at equal distances."""
    room = (WIDTH - LEFT - 60) / max(1, len(ticks) - 1)
    parts = [_frame(top, unit), _legend(series)]
    for at, tick in enumerate(ticks):
        parts.append(f"<text x={LEFT + 20 + at * room:.1f} y={HEIGHT - BOTTOM + 18} "
                     f"text-anchor=middle>{escape(tick)}</text>")
    for name, values in series.items():
        points = [(LEFT + 20 + at * room, _y(value, top)) for at, value in enumerate(values)
                  if value is not None]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f"<polyline points='{path}' fill=none stroke='{_colour(name)}' "
                     f"stroke-width=2 />")
        parts += [f"<circle cx={x:.1f} cy={y:.1f} r=3 fill='{_colour(name)}'/>" for x, y in points]
    return "".join(parts)


def throughput(rows):
    """Bars by block size: medians, with the range as a thin line."""
    found = {}
    for row in rows:
        if row.details.get("kind") == "throughput":
            found.setdefault(row.details["op"], {})[row.details["what"]] = row.details["everybody"]
    return [_bars(op, groups) for op, groups in found.items()]


def _bars(op, groups):
    names = list(dict.fromkeys(name for everybody in groups.values() for name in everybody))
    top = max(max(runs) for everybody in groups.values() for runs in everybody.values() if runs)
    parts = [_frame(top, "GiB/s"), _legend(names)]
    room = (WIDTH - LEFT - 10) / len(groups)
    wide = room * 0.8 / len(names)
    for at, (what, everybody) in enumerate(groups.items()):
        x = LEFT + at * room
        parts.append(f"<text x={x + room / 2:.1f} y={HEIGHT - BOTTOM + 14 + 13 * (at % 2)} "
                     f"text-anchor=middle>{escape(what)}</text>")
        for index, name in enumerate(names):
            runs = everybody.get(name)
            if not runs:
                continue
            left, y = x + room * 0.1 + index * wide, _y(median(runs), top)
            middle = left + wide * 0.45
            parts.append(f"<rect x={left:.1f} y={y:.1f} width={wide * 0.9:.1f} "
                         f"height={HEIGHT - BOTTOM - y:.1f} fill='{_colour(name)}'/>"
                         f"<line x1={middle:.1f} x2={middle:.1f} y1={_y(min(runs), top):.1f} "
                         f"y2={_y(max(runs), top):.1f} stroke='var(--ink)'/>")
    return _figure(f"{op}: throughput, medians; the thin lines are the ranges", "".join(parts))


def depths(rows):
    """Lines by depth, a chart for each op and block size."""
    found = {}
    for row in rows:
        if row.details.get("kind") == "depth":
            key = row.details["op"], row.details["what"]
            found.setdefault(key, {})[row.details["depth"]] = row.details["everybody"]
    figures = ["<h2>By block size and depth</h2>"] if found else []
    for (op, what), by_depth in found.items():
        ticks = sorted(by_depth)
        names = list(by_depth[ticks[0]])
        series = {name: [median(by_depth[depth][name]) for depth in ticks] for name in names}
        top = max(value for values in series.values() for value in values)
        figures.append(_figure(f"{op} {what}: throughput by depth (blocks in flight)",
                               _lines(series, ticks, "GiB/s", top)))
    return figures


def latencies(rows):
    """Percentiles of one block at a time."""
    found = {row.details["op"]: row.details["everybody"] for row in rows
             if row.details.get("kind") == "latency"}
    figures = ["<h2>Latency</h2>"] if found else []
    for op, everybody in found.items():
        series = {name: [percentile(values, part / 100) for part in PERCENTS]
                  for name, values in everybody.items()}
        # One outlier must not flatten the rest.
        top = max(values[PERCENTS.index(99)] for values in series.values())
        series = {name: [min(value, top) for value in values] for name, values in series.items()}
        figures.append(_figure(f"{op} 1 MiB, one at a time: latency by percentile (cut at the "
                               "largest p99)", _lines(series, PERCENTS, "us", top)))
    return figures


def timelines(rows):
    """Each load while one of two paths breaks and is mended."""
    found = [row for row in rows if row.details.get("kind") == "timeline"]
    figures = ["<h2>Fail-over</h2>"] if found else []
    for row in found:
        details = row.details
        loads = details["loads"]
        end = loads[-1][0] if loads else 1
        top = percentile([load[1] for load in loads], 0.995) * 1.2

        def x(moment, end=end):
            return LEFT + (WIDTH - LEFT - 10) * moment / end

        left, right = x(details["broken"]), x(details["mended"])
        parts = [f"<rect x={left:.1f} y={TOP} width={right - left:.1f} "
                 f"height={HEIGHT - BOTTOM - TOP} fill='#cf222e' opacity=.12 />",
                 f"<text x={left + 4:.1f} y={TOP + 12}>one path gives EIO</text>",
                 _frame(top, "us")]
        for moment, took, failed in loads:
            colour = "#cf222e" if failed else _colour(details["engine"])
            parts.append(f"<circle cx={x(moment):.1f} cy={_y(min(took, top), top):.1f} r=1.5 "
                         f"fill='{colour}'/>")
        for second in range(int(end) + 1):
            parts.append(f"<text x={x(second):.1f} y={HEIGHT - BOTTOM + 16} text-anchor=middle>"
                         f"{second}</text>")
        figures.append(_figure(f"kvpath {details['engine']}, two paths: each load of 1 MiB; a load "
                               "that failed would be red. Seconds", "".join(parts)))
    return figures
