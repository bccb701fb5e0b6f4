"""The plots of a history as Vega-Lite specifications: how each figure of a workload moved.

Rule of this module: a figure has a strip of its own, from zero to its most, over all measurements. A line joins two of
them if they were measured alike; a change beyond the noise stands beside its point.
"""

import json
from collections.abc import Sequence

from millpond.bench.compare import Verdict
from millpond.bench.history import Figure, History, Step
from millpond.bench.numbers import shown
from millpond.bench.pages.marks import WORDS, Chart, Looks, Spec, heads_of, plot_of, sentences, strips_axis

_ARROWS = {Verdict.FASTER: "▲", Verdict.SLOWER: "▼"}
_STRIP, _HEAD, _ROW = 0.44, 0.85, 62
"""The part of its row that a strip takes, the height of its name in the row, and the pixels of the row."""

_LEVEL = 1.0
_DETAIL = [{"field": "strip"}, {"field": "stretch"}]


def moves(history: History, figures: Sequence[Figure], costs: Sequence[Figure], looks: Looks) -> list[Chart]:
    """Return the plots of one workload's figures: throughputs, ratios and costs, if there are any."""
    each = f"µs per {history.entries[-1].document.unit.removesuffix('s')}"
    unit = f"{history.entries[-1].document.unit} per second"
    throughputs = [figure for figure in figures if figure.peer is None]
    ratios = [figure for figure in figures if figure.peer is not None]
    drawn = [
        _strips("moves", unit.capitalize(), history, throughputs, looks),
        _strips("ratios", "Times as fast as a peer in the same run", history, ratios, looks),
        _strips("costs", f"Processor time, {each}", history, costs, looks),
    ]
    return [chart for chart in drawn if chart.spec["data"]["values"]]


def _strips(name: str, title: str, history: History, figures: Sequence[Figure], looks: Looks) -> Chart:
    rows, words = [], []
    for base, figure in zip(reversed(range(len(figures))), figures, strict=True):
        strip = _strip(history, figure, base, looks)
        words.append({"words": "; ".join(dict.fromkeys(row["words"] for row in strip))})
        rows += strip
    places = [_about(history, place) for place in range(len(history.entries))]
    at = {
        "field": "at",
        "type": "quantitative",
        "scale": {"domain": [-0.4, len(places) - 0.6], "nice": False},
        "axis": {
            "title": "measured on, with Millpond",
            "values": list(range(len(places))),
            "labelExpr": f"{json.dumps(places)}[datum.value]",
            "grid": True,
        },
    }
    height = strips_axis(len(figures), "each from 0")
    plot = plot_of(rows, _ROW * len(figures), {"color": looks.color}, _marks(at, height, looks))
    return Chart(name, title, plot, sentences(words))


def _marks(at: Spec, height: Spec, looks: Looks) -> list[Spec]:
    plain = {"x": at, "y": {**height, "field": "value"}, "description": WORDS}
    ends = {**plain, "y": {**height, "field": "low"}, "y2": {"field": "high"}}
    level = {"y": {**height, "field": "level"}, "color": {"value": "var(--dim)"}}
    zero = {"y": {**height, "field": "strip"}, "color": {"value": "var(--line)"}}
    text = {"type": "text", "baseline": "bottom", "dy": -6, "fontSize": 11}
    marks: list[Spec] = [
        {"mark": {"type": "rule"}, "encoding": zero, "transform": [{"filter": "isValid(datum.head)"}]},
        {
            "mark": {"type": "rule", "strokeDash": [2, 3]},
            "encoding": level,
            "transform": [{"filter": "isValid(datum.level)"}],
        },
        {"mark": {"type": "line", "strokeWidth": 1.5}, "encoding": {**plain, "detail": _DETAIL}},
        {"mark": {"type": "rule", "strokeWidth": 2}, "encoding": ends},
        {
            "mark": {"type": "point", "filled": True, "size": 40, "opacity": 1},
            "encoding": {**plain, "shape": looks.shape},
        },
        {
            "mark": text,
            "encoding": {
                **plain,
                "y": {**height, "field": "high"},
                "text": {"field": "moved"},
                "color": {"value": "var(--text)"},
            },
            "transform": [{"filter": "isValid(datum.moved)"}],
        },
    ]
    return [*marks, *heads_of(looks, height)]


def _strip(history: History, figure: Figure, base: int, looks: Looks) -> list[Spec]:
    """Return a row for each measurement; the last one also has the name of the strip, and the level of the peer."""
    most = max(step.found.high for step in figure.steps)
    if figure.peer is not None:
        most = max(most, _LEVEL)
    rows: list[Spec] = []
    stretch = 0
    for step in figure.steps:
        stretch += bool(step.differences)
        found = step.found
        row: Spec = {
            "contender": figure.peer or figure.contender,
            "strip": base,
            "stretch": stretch,
            "at": step.place,
            "words": f"{figure.name} on {history.day(step.place)}: {said(step)}",
        }
        heights = {"value": found.median, "low": found.low, "high": found.high}
        row |= {name: base + _STRIP * value / most for name, value in heights.items()}
        if step.verdict in _ARROWS:
            row["moved"] = f"{_ARROWS[step.verdict]} {shown(found.median / rows[-1]['median'])}x"
        rows.append(row | {"median": found.median})
    name = looks.names.get(figure.contender, figure.contender)
    beside = "" if figure.peer is None else f" / {looks.names.get(figure.peer, figure.peer)}"
    rows[-1] |= {"head": base + _HEAD, "name": f"{name}{beside}", "shown": shown(figure.steps[-1].found.median)}
    if figure.peer is not None:
        rows[-1]["level"] = base + _STRIP * _LEVEL / most
    return rows


def said(step: Step) -> str:
    """Return a figure in a measurement, and what is said of it beside the one before, as words."""
    found = step.found
    text = shown(found.median)
    if len(found.runs) > 1:
        text += f", from {shown(found.low)} to {shown(found.high)}"
    if step.differences:
        return f"{text}, not measured alike"
    return text if step.verdict is None else f"{text}, {step.verdict}"


def _about(history: History, place: int) -> list[str]:
    """Return the lines below a measurement: its day, and year and version where these change."""
    entry = history.entries[place]
    lines = {"year": entry.date[:4], "version": entry.document.version}
    if place:
        before = history.entries[place - 1]
        same = {"year": before.date[:4], "version": before.document.version}
        lines = {name: line for name, line in lines.items() if line != same[name]}
    return [entry.date[5:], *lines.values()]
