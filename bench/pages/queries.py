"""The plots of a whole document of queries on Spark as Vega-Lite specifications: a row for each query.

Rule of this module: contenders of a query stand in its row, one below the other, in the order of the document.
"""

import json
from collections.abc import Callable, Mapping, Sequence

from millpond.bench.documents import Document, Result
from millpond.bench.numbers import shown, size_unit
from millpond.bench.pages.marks import WORDS, Chart, Looks, Spec, logarithmic, measured, plot_of, points, sentences
from millpond.bench.ratios import Ratio

MILLION = 1_000_000
_EACH, _BETWEEN = 9, 12
"""Pixels of a contender in the row of a query, and those between two rows."""

_KEY = {
    "orient": "top",
    "title": None,
    "columns": 2,
    "columnPadding": 24,
    "labelColor": "var(--text)",
    "labelLimit": 150,
    "symbolSize": 55,
}
_PADDING = 10
_LEVEL = 1.0


def processor_seconds(result: Result) -> float | None:
    """Return cores times time: the seconds that all cores together take for a million rows."""
    return None if result.cpu_s is None else result.cpu_s * MILLION / result.operations


def own_of(document: Document) -> str:
    """Return the contender whose time is 1 in the ratios, or all of them if queries differ."""
    return " or ".join(dict.fromkeys(query.own for query in document.queries.values()))


def query_charts(document: Document, ratios: Sequence[Ratio]) -> list[Chart]:
    """Return the plots: rates, ratios, cores times time and its ratios, latency and state; none of what nobody has."""
    rate = f"{document.unit} per second"
    found = {(one.workload, one.contender): one for one in document.results}
    spent = f"cores x time, s a million {document.unit}"
    most = max((one.disk_bytes or 0 for one in document.results), default=0) or 1
    unit, each = size_unit(most)
    drawn = [
        _rows("rates", "Throughput", rate, document, lambda one: one.throughput.median, spans=True),
        _rows("spent", "Cores x time", spent, document, processor_seconds),
        _beside("ratios", "Time ratio", document, {(r.workload, r.peer): r.times.median for r in ratios}),
        _beside("costs", "Cores x time ratio", document, cost_ratios(ratios, found)),
        _rows("p99", "Latency", "p99 of a micro-batch, µs", document, lambda one: one.latency.get("p99")),
        _rows("state", "State", f"on disk, {unit}", document, lambda one: _disk(one, each), is_log=False),
    ]
    return [chart for chart in drawn if chart.spec["data"]["values"]]


def cost_ratios(ratios: Sequence[Ratio], found: Mapping[tuple[str, str], Result]) -> dict[tuple[str, str], float]:
    """Return, by query and peer, how many times as much cores x time the peer takes, where both are known."""
    costs = {}
    for ratio in ratios:
        own, peer = (processor_seconds(found[ratio.workload, name]) for name in (ratio.own, ratio.peer))
        if own and peer:
            costs[ratio.workload, ratio.peer] = peer / own
    return costs


def _disk(result: Result, each: int) -> float | None:
    return None if result.disk_bytes is None else result.disk_bytes / each


def _rows(
    name: str,
    title: str,
    unit: str,
    document: Document,
    value_of: Callable[[Result], float | None],
    *,
    spans: bool = False,
    is_log: bool = True,
) -> Chart:
    rows = []
    for result in document.results:
        value = value_of(result)
        if value is not None and (value > 0 or not is_log):
            row = _row(document, result.workload, result.contender, value, unit)
            rows.append(row | ({"low": result.throughput.low, "high": result.throughput.high} if spans else {}))
    axis = logarithmic(unit, rows) if is_log else measured("value", unit, tickCount=5)
    axis["scale"]["padding"] = _PADDING
    return _chart(name, title, document, rows, axis)


def _beside(name: str, title: str, document: Document, values: Mapping[tuple[str, str], float]) -> Chart:
    unit = f"peer's over that of {own_of(document)}"
    rows = [_row(document, workload, peer, value, unit) for (workload, peer), value in values.items()]
    axis = logarithmic(unit, [*rows, {"value": _LEVEL}])
    return _chart(name, title, document, rows, axis, level=_LEVEL)


def _row(document: Document, workload: str, contender: str, value: float, unit: str) -> Spec:
    labels = list(document.of(workload))
    at = document.workloads().index(workload) + (labels.index(contender) + 0.5) / len(labels) * 0.8 + 0.1
    words = f"{workload}, {contender}: {shown(value)} {unit}"
    return {"contender": contender, "at": at, "value": value, "shown": shown(value), "words": words}


def _chart(
    name: str, title: str, document: Document, rows: list[Spec], axis: Spec, level: float | None = None
) -> Chart:
    """Return the plot of ``rows``: with the range of the runs if they have one, or with figures beside a ``level``."""
    looks, workloads = Looks(document.contenders), document.workloads()
    at = _queries(workloads)
    here = {"x": axis, "y": at, "color": {**looks.color, "legend": _KEY}}
    dots = points(looks, 55)
    dots["encoding"] |= {**here, "shape": {**looks.shape, "legend": _KEY}}
    marks: list[Spec] = [_between(at, len(workloads)), dots]
    if level is not None:
        marks += [_level(axis, level), _figures(here)]
    elif rows and "low" in rows[0]:
        ends = {**here, "x": {**axis, "field": "low"}, "x2": {"field": "high"}, "description": WORDS}
        marks.append({"mark": {"type": "rule", "strokeWidth": 1.5}, "encoding": ends})
    most = max((len(document.of(workload)) for workload in workloads), default=1)
    height = len(workloads) * (most * _EACH + _BETWEEN)
    return Chart(name, title, plot_of(rows, height, {}, marks), sentences(rows))


def _queries(workloads: Sequence[str]) -> Spec:
    """Return the axis of the queries, from top to bottom."""
    axis = {
        "title": None,
        "values": [place + 0.5 for place in range(len(workloads))],
        "labelExpr": f"{json.dumps(workloads)}[floor(datum.value)]",
        "labelColor": "var(--text)",
        "labelOverlap": False,
        "grid": False,
        "ticks": False,
    }
    scale = {"domain": [len(workloads), 0], "nice": False}
    return {"field": "at", "type": "quantitative", "scale": scale, "axis": axis}


def _between(at: Spec, count: int) -> Spec:
    """Return the lines between so many queries."""
    lines = [{"between": place} for place in range(1, count)]
    mark = {"type": "rule", "color": "var(--line)"}
    return {"data": {"values": lines}, "mark": mark, "encoding": {"y": {**at, "field": "between"}}}


def _level(axis: Spec, level: float) -> Spec:
    mark = {"type": "rule", "strokeDash": [2, 3], "color": "var(--text)"}
    return {"data": {"values": [{"value": level}]}, "mark": mark, "encoding": {"x": axis}}


def _figures(here: Spec) -> Spec:
    """Return the figures beside the points."""
    mark = {"type": "text", "align": "left", "baseline": "middle", "dx": 7, "fontSize": 10}
    text = {"text": {"field": "shown"}, "color": {"value": "var(--dim)"}, "description": WORDS}
    return {"mark": mark, "encoding": {**here, **text}}
