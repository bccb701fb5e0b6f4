"""The plots of a workload as Vega-Lite specifications.

Rule of this module: a contender looks the same in every plot, by its color, its shape and, by its kind, its line. No
plot needs the color alone. Plots are as wide as a telephone; the page puts them side by side where there is room.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from millpond.bench.documents import PERCENTILES, Contender, Result
from millpond.bench.numbers import shown, size, size_unit
from millpond.bench.runs.labels import told_apart

COLORS = 10
"""The number of the page's colors, ``--s0`` and so on."""

_SHAPES = ("circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "triangle-right", "triangle-left")
_DASHES = {"backend": [1, 0], "engine": [6, 3], "peer": [2, 2]}
_WIDTH, _LEAST_HEIGHT, _ROW, _BAR_SHIFT, _NAME_SHIFT = 350, 180, 36, 6, -9
_NAME_LENGTH = 30
_STRETCHES = 25
_STRIP, _HEAD, _STRIP_ROW = 0.6, 0.8, 44
"""The part of its row that a strip takes, the height of its name in the row, and the pixels of the row."""

_BESIDE = 0.7
"""The part of the room between two percentiles that the contenders share."""

_ROOM = 1.06
_PLAIN = "format(datum.value, ',.6~g')"
_SHORT = f"datum.value >= 1000 ? format(datum.value, '~s') : {_PLAIN}"

Spec = dict[str, Any]

_WORDS = {"field": "words"}
_NAME = {"field": "contender"}


@dataclass(frozen=True)
class Chart:
    """A plot, and the same in words."""

    name: str
    title: str
    spec: Spec
    words: str


def charts(contenders: Sequence[Contender], results: Sequence[Result], unit: str = "operations") -> list[Chart]:
    """Return the plots of one workload's results, with throughputs in ``unit``; none of what was not measured."""
    looks, rate = _Looks(contenders), f"{unit} per second"
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


class _Looks:
    """The looks of the contenders, as encodings of Vega-Lite."""

    def __init__(self, contenders: Sequence[Contender]) -> None:
        self._labels = [contender.label for contender in contenders]
        self.names = dict(zip(self._labels, _short_names(self._labels), strict=True))
        self.places = {label: place for place, label in enumerate(self._labels)}
        places = range(len(contenders))
        self.color = self._encoding([f"var(--s{place % COLORS})" for place in places])
        self.shape = self._encoding([_SHAPES[place % len(_SHAPES)] for place in places])
        self.dash = self._encoding([_DASHES.get(contender.kind, _DASHES["peer"]) for contender in contenders])

    def _encoding(self, looks: Sequence[Any]) -> Spec:
        scale = {"domain": self._labels, "range": looks}
        return {**_NAME, "type": "nominal", "scale": scale, "legend": None}


def _short_names(labels: Sequence[str]) -> list[str]:
    """Return labels for which a plot has room. Long ones lose their middle, since many differ at the end.

    >>> _short_names(["lmdb (raw)", "redis://one.example.com:6379/0?timeout=30"])
    ['lmdb (raw)', 'redis://one.exa…9/0?timeout=30']
    """
    half = _NAME_LENGTH // 2
    return told_apart(
        [f"{label[:half]}…{label[1 - half :]}" if len(label) > _NAME_LENGTH else label for label in labels]
    )


def _throughput(result: Result, rate: str) -> Spec:
    found = result.throughput
    words = f"{shown(found.median)} {rate}, runs from {shown(found.low)} to {shown(found.high)}"
    return _row(result, found.median, words) | {"low": found.low, "high": found.high}


def _processor(result: Result, seconds: float, each: str) -> Spec:
    share = seconds * 1e6 / result.operations
    return _row(result, share, f"{shown(share)} µs of processor time per {each}")


def _row(result: Result, value: float, words: str) -> Spec:
    return {"contender": result.contender, "value": value, "shown": shown(value), "words": _of(result, words)}


def _bars(name: str, title: str, unit: str, looks: _Looks, rows: Sequence[Spec]) -> Chart:
    """Return a bar for each contender under its name, with the range of the runs if there is one."""
    rows = [{**row, "name": looks.names[row["contender"]]} for row in rows]
    length = _measured("value", unit, grid=False, tickCount=4)
    if not any(row["value"] for row in rows):
        length["scale"]["domainMax"] = 1
    marks: list[Spec] = [
        {"mark": {"type": "bar", "height": 9, "yOffset": _BAR_SHIFT}, "encoding": {"x": length, "description": _WORDS}},
        *_names(looks, _NAME_SHIFT),
    ]
    if all("low" in row for row in rows):
        ends = {"x": length | {"field": "low"}, "x2": {"field": "high"}, "color": {"value": "var(--text)"}}
        rule = {"type": "rule", "strokeWidth": 2, "yOffset": _BAR_SHIFT}
        marks.append({"mark": rule, "encoding": {**ends, "description": _WORDS}})
    by_name = {**_NAME, "type": "nominal", "axis": None, "sort": None}
    return Chart(
        name, title, _plot(rows, {"step": _ROW}, {"y": by_name, "color": looks.color}, marks), _sentences(rows)
    )


def _names(looks: _Looks, shift: int, **at: Spec) -> list[Spec]:
    """Return shape, name and figure of each contender, ``shift`` pixels below the place of ``at`` or the plot."""
    text = {"type": "text", "baseline": "middle", "dy": shift}
    point = {"type": "point", "filled": True, "size": 60, "opacity": 1, "xOffset": 6, "yOffset": shift}
    uncolored = {**at, "color": {"value": "var(--text)"}}
    return [
        {"mark": point, "encoding": {**at, "x": {"value": 0}, "shape": looks.shape, "description": _NAME}},
        {
            "mark": {**text, "align": "left", "dx": 16, "limit": _WIDTH - 130},
            "encoding": {"x": {"value": 0}, "text": {"field": "name"}, "description": _NAME, **uncolored},
        },
        {
            "mark": {**text, "align": "right"},
            "encoding": {"x": {"value": "width"}, "text": {"field": "shown"}, "description": _WORDS, **uncolored},
        },
    ]


def _latencies(looks: _Looks, results: Sequence[Result]) -> Chart:
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
    axes = {"x": at, "y": _logarithmic("latency, µs", rows), "color": looks.color}
    mark = {"type": "line", "strokeWidth": 1.5}
    line = {"mark": mark, "encoding": {"strokeDash": looks.dash, "description": _NAME}}
    plot = _plot(rows, _height(rows), axes, [line, _points(looks, 45)])
    return Chart("latency", "Latency", plot, _sentences(words))


def _over_time(looks: _Looks, results: Sequence[Result], rate: str) -> Chart:
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
    title = f"{rate}, each from 0 to its most"
    height = {
        "field": "value",
        "type": "quantitative",
        "scale": {"domain": [0, max(len(timed), 1)], "nice": False},
        "axis": {"title": title, "values": []},
    }
    axes = {"x": _measured("at", "share of the time taken, %", grid=False, tickCount=5), "color": looks.color}
    # A rate is that of the stretch which ends there.
    area = {"type": "area", "interpolate": "step-before", "fillOpacity": 0.3, "line": {"strokeWidth": 1}}
    strips: Spec = {"mark": area, "encoding": {"y": height, "y2": {"field": "base"}, "description": _WORDS}}
    heads = [
        {**layer, "transform": [{"filter": "isValid(datum.head)"}]}
        for layer in _names(looks, 0, y={**height, "field": "head"})
    ]
    plot = _plot(rows, _STRIP_ROW * len(timed), axes, [strips, *heads])
    return Chart("time", "Throughput over time", plot, _sentences(words))


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


def _cost(name: str, title: str, what: str, rate: str, looks: _Looks, costs: Sequence[tuple[Result, float]]) -> Chart:
    """Return a point for each contender: the better, the higher and the farther to the left."""
    most = max((taken for _, taken in costs), default=0.0)
    unit, each = size_unit(most or 2**20)
    rows = []
    for result, taken in costs:
        median = result.throughput.median
        rows.append(_point(result, taken / each, median, f"{shown(median)} {rate} with {size(taken)}"))
    room = {"zero": True, "domainMax": _ROOM * most / each or 1}
    axes = {
        "x": _measured("at", f"{what}, {unit}", tickCount=5) | {"scale": room},
        "y": _logarithmic(rate, rows),
        "color": looks.color,
    }
    return Chart(name, title, _plot(rows, _height(rows), axes, [_points(looks, 90)]), _sentences(rows))


def _point(result: Result, at: float, value: float, words: str) -> Spec:
    return {"contender": result.contender, "at": at, "value": value, "words": _of(result, words)}


def _points(looks: _Looks, area: int) -> Spec:
    mark = {"type": "point", "filled": True, "size": area, "opacity": 1, "stroke": "var(--panel)", "strokeWidth": 0.8}
    return {"mark": mark, "encoding": {"shape": looks.shape, "description": _WORDS}}


def _plot(rows: Sequence[Spec], height: Any, encoding: Spec, marks: list[Spec]) -> Spec:
    room = {"autosize": {"type": "fit-x", "contains": "padding"}, "width": _WIDTH, "height": height}
    return {**room, "data": {"values": rows}, "encoding": encoding, "layer": marks}


def _height(rows: Iterable[Spec]) -> int:
    """Return the height of a plot's bars, which depends on the number of contenders alone."""
    return max(_LEAST_HEIGHT, _ROW * len({row["contender"] for row in rows}))


def _measured(field: str, title: str, **axis: Any) -> Spec:
    """Return an axis from zero on."""
    shown_as = {"title": title, "labelExpr": _SHORT, **axis}
    return {"field": field, "type": "quantitative", "scale": {"zero": True}, "axis": shown_as}


def _logarithmic(title: str, rows: Iterable[Spec]) -> Spec:
    """Return an axis of the values of ``rows`` at round numbers."""
    axis = {"title": f"{title} (log)", "labelExpr": _SHORT, "values": _ticks([row["value"] for row in rows])}
    scale = {"type": "log", "nice": False, "zero": False, "padding": 10}
    return {"field": "value", "type": "quantitative", "scale": scale, "axis": axis}


def _ticks(values: Sequence[float]) -> list[float]:
    """Return round numbers among the values, three at least, or else the ends: powers of ten where these suffice.

    >>> _ticks([3, 4000]), _ticks([20, 110]), _ticks([1.01, 1.0399]), _ticks([1.0001, 1.0002]), _ticks([])
    ([10.0, 100.0, 1000.0], [20.0, 50.0, 100.0], [1.01, 1.04], [1.0001, 1.0002], [])
    """
    if not values:
        return []
    low, high = min(values), max(values)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 2, 5), range(1, 10)):
        ticks = [tick for tick in (step * 10.0**power for power in powers for step in steps) if low <= tick <= high]
        if len(ticks) > 2:
            return ticks
    digits = next((digits for digits in range(3, 7) if f"{low:.{digits}g}" != f"{high:.{digits}g}"), 3)
    return list(dict.fromkeys(float(f"{end:.{digits}g}") for end in (low, high)))


def _of(result: Result, words: str) -> str:
    return f"{result.contender}: {words}"


def _sentences(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(f"{row['words']}. " for row in rows).strip()
