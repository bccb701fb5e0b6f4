"""The plots of a workload as Vega-Lite specifications.

Rule of this module: it draws one workload of one document. What all plots have in common is in ``marks``.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from millpond.bench.documents import PERCENTILES, Contender, Result
from millpond.bench.numbers import shown, size, size_unit
from millpond.bench.pages.marks import (
    NAME,
    WORDS,
    Chart,
    Looks,
    Spec,
    heads_of,
    logarithmic,
    measured,
    names_of,
    plot_of,
    points,
    sentences,
    strips_axis,
)

_LEAST_HEIGHT, _ROW, _BAR_SHIFT, _NAME_SHIFT = 180, 36, 6, -9
_STRETCHES = 25
_STRIP, _HEAD, _STRIP_ROW = 0.6, 0.8, 44
"""The part of its row that a strip takes, the height of its name in the row, and the pixels of the row."""

_BESIDE = 0.7
"""The part of the room between two percentiles that the contenders share."""

_ROOM = 1.06


def charts(contenders: Sequence[Contender], results: Sequence[Result], unit: str = "operations") -> list[Chart]:
    """Return the plots of one workload's results, with throughputs in ``unit``; none of what was not measured."""
    looks, rate = Looks(contenders), f"{unit} per second"
    disks = [(one, one.disk_bytes) for one in results if one.disk_bytes is not None]
    memories = [(one, one.peak_rss_bytes) for one in results if one.peak_rss_bytes is not None]
    each = unit.removesuffix("s")
    processors = [_processor(one, one.cpu_s, each) for one in results if one.cpu_s is not None]
    drawn = [
        _bars("throughput", "Throughput", rate, looks, [_throughput(result, rate) for result in results]),
        _latencies(looks, results),
        _over_time(looks, results, rate),
        _cost("disk", "Throughput and disk", "on disk", rate, looks, disks),
        _cost("memory", "Throughput and memory", "peak memory", rate, looks, memories),
        _bars("cpu", "Processor time", f"processor time per {each}, µs", looks, processors),
    ]
    return [chart for chart in drawn if chart.spec["data"]["values"]]


def _throughput(result: Result, rate: str) -> Spec:
    found = result.throughput
    words = f"{shown(found.median)} {rate}, runs from {shown(found.low)} to {shown(found.high)}"
    return _row(result, found.median, words) | {"low": found.low, "high": found.high}


def _processor(result: Result, seconds: float, each: str) -> Spec:
    share = seconds * 1e6 / result.operations
    return _row(result, share, f"{shown(share)} µs of processor time per {each}")


def _row(result: Result, value: float, words: str) -> Spec:
    return {"contender": result.contender, "value": value, "shown": shown(value), "words": _of(result, words)}


def _bars(name: str, title: str, unit: str, looks: Looks, rows: Sequence[Spec]) -> Chart:
    """Return a bar for each contender under its name, with the range of the runs if there is one."""
    rows = [{**row, "name": looks.names[row["contender"]]} for row in rows]
    length = measured("value", unit, grid=False, tickCount=4)
    if not any(row["value"] for row in rows):
        length["scale"]["domainMax"] = 1
    marks: list[Spec] = [
        {"mark": {"type": "bar", "height": 9, "yOffset": _BAR_SHIFT}, "encoding": {"x": length, "description": WORDS}},
        *names_of(looks, _NAME_SHIFT),
    ]
    if all("low" in row for row in rows):
        ends = {"x": length | {"field": "low"}, "x2": {"field": "high"}, "color": {"value": "var(--text)"}}
        rule = {"type": "rule", "strokeWidth": 2, "yOffset": _BAR_SHIFT}
        marks.append({"mark": rule, "encoding": {**ends, "description": WORDS}})
    by_name = {**NAME, "type": "nominal", "axis": None, "sort": None}
    return Chart(
        name, title, plot_of(rows, {"step": _ROW}, {"y": by_name, "color": looks.color}, marks), sentences(rows)
    )


def _latencies(looks: Looks, results: Sequence[Result]) -> Chart:
    """Return lines from the median to the slowest operation, with the contenders side by side at each percentile."""
    rows, words = [], []
    places = {name: place for place, name in enumerate(PERCENTILES)}
    for result in (one for one in results if one.latency):
        texts = {name: f"{PERCENTILES[name]} {shown(value)} µs" for name, value in result.latency.items()}
        words.append({"words": _of(result, ", ".join(texts.values()))})
        beside = _BESIDE * ((looks.places[result.contender] + 0.5) / len(looks.places) - 0.5)
        rows += [
            _point(result, places[name] + beside, value, texts[name])
            for name, value in result.latency.items()
            if value > 0
        ]
    names = f"{list(PERCENTILES.values())}[datum.value]"
    at = {
        "field": "at",
        "type": "quantitative",
        "scale": {"domain": [-0.5, len(places) - 0.5], "nice": False},
        "axis": {"title": "percentile", "values": list(places.values()), "labelExpr": names, "grid": False},
    }
    axes = {"x": at, "y": logarithmic("latency, µs", rows), "color": looks.color}
    mark = {"type": "line", "strokeWidth": 1.5}
    line = {"mark": mark, "encoding": {"strokeDash": looks.dash, "description": NAME}}
    plot = plot_of(rows, _height(rows), axes, [line, points(looks, 45)])
    return Chart("latency", "Latency", plot, sentences(words))


def _over_time(looks: Looks, results: Sequence[Result], rate: str) -> Chart:
    """Return a strip for each contender under its name, over its own time, from zero to its greatest throughput.

    What shows is whether it keeps its speed; that of one beside that of another is in the bars.
    """
    timed = [result for result in results if result.over_time]
    rows, words = [], []
    for base, result in zip(reversed(range(len(timed))), timed, strict=True):
        line = list(_stretches(result.over_time))
        rates, end = [done for _, done in line], line[-1][0] or 1
        most = max(rates)
        text = f"between {shown(min(rates))} and {shown(most)} {rate} in {shown(end)} s"
        words.append({"words": _of(result, text)})
        for at, done in [(0.0, rates[0]), *line]:
            point = _point(result, 100 * at / end, base + _STRIP * done / (most or 1), text)
            rows.append({**point, "base": base})
        rows[-1] |= {"head": base + _HEAD, "name": looks.names[result.contender], "shown": shown(most)}
    height = strips_axis(len(timed), f"{rate}, each from 0 to its most")
    axes = {"x": measured("at", "share of the time taken, %", grid=False, tickCount=5), "color": looks.color}
    # A rate is that of the stretch which ends there.
    area = {"type": "area", "interpolate": "step-before", "fillOpacity": 0.3, "line": {"strokeWidth": 1}}
    strips: Spec = {
        "mark": area,
        "encoding": {"y": {**height, "field": "value"}, "y2": {"field": "base"}, "description": WORDS},
    }
    plot = plot_of(rows, _STRIP_ROW * len(timed), axes, [strips, *heads_of(looks, height)])
    return Chart("time", "Throughput over time", plot, sentences(words))


def _stretches(points: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Yield as many stretches of time, with the rate in each of them, as a plot has room for.

    >>> list(_stretches([(1.0, 10.0), (2.0, 30.0)])), len(list(_stretches([(float(at), 1.0) for at in range(100)])))
    ([(1.0, 10.0), (2.0, 30.0)], 25)
    """
    each = math.ceil(len(points) / _STRETCHES)
    begin = 0.0
    for first in range(0, len(points), max(each, 1)):
        part = points[first : first + each]
        ends = [at for at, _ in part]
        lengths = [end - start for start, end in pairwise([begin, *ends])]
        done = sum(length * rate for length, (_, rate) in zip(lengths, part, strict=True))
        yield ends[-1], done / sum(lengths) if sum(lengths) else part[-1][1]
        begin = ends[-1]


def _cost(name: str, title: str, what: str, rate: str, looks: Looks, costs: Sequence[tuple[Result, float]]) -> Chart:
    """Return a point for each contender: the better, the higher and the farther to the left."""
    most = max((taken for _, taken in costs), default=0.0)
    unit, each = size_unit(most or 2**20)
    rows = []
    for result, taken in costs:
        median = result.throughput.median
        rows.append(_point(result, taken / each, median, f"{shown(median)} {rate} with {size(taken)}"))
    room = {"zero": True, "domainMax": _ROOM * most / each or 1}
    axes = {
        "x": measured("at", f"{what}, {unit}", tickCount=5) | {"scale": room},
        "y": logarithmic(rate, rows),
        "color": looks.color,
    }
    return Chart(name, title, plot_of(rows, _height(rows), axes, [points(looks, 90)]), sentences(rows))


def _point(result: Result, at: float, value: float, words: str) -> Spec:
    return {"contender": result.contender, "at": at, "value": value, "words": _of(result, words)}


def _height(rows: Iterable[Spec]) -> int:
    """Return the height of a plot's bars, which depends on the number of contenders alone."""
    return max(_LEAST_HEIGHT, _ROW * len({row["contender"] for row in rows}))


def _of(result: Result, words: str) -> str:
    return f"{result.contender}: {words}"
