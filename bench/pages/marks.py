"""Parts of Vega-Lite specifications that all plots share: looks of contenders, names, points and axes.

Rule of this module: a contender looks the same in every plot, by its color, its shape and, by its kind, its line. No
plot needs the color alone. Plots are as wide as a telephone; the page puts them side by side where there is room.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from millpond.bench.documents import Contender
from millpond.bench.runs.labels import told_apart

COLORS: Final = 10
"""The number of the page's colors, ``--s0`` and so on."""

WIDTH: Final = 350
"""Pixels of every plot."""

_SHAPES = ("circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "triangle-right", "triangle-left")
_DASHES = {"backend": [1, 0], "engine": [6, 3], "peer": [2, 2]}
_NAME_LENGTH = 30
_PLAIN = "format(datum.value, ',.6~g')"
_SHORT = f"datum.value >= 1000 ? format(datum.value, '~s') : {_PLAIN}"

Spec = dict[str, Any]

WORDS: Final = {"field": "words"}
NAME: Final = {"field": "contender"}


@dataclass(frozen=True)
class Chart:
    """A plot, and the same in words."""

    name: str
    title: str
    spec: Spec
    words: str


class Looks:
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
        return {**NAME, "type": "nominal", "scale": scale, "legend": None}


def _short_names(labels: Sequence[str]) -> list[str]:
    """Return labels for which a plot has room. Long ones lose their middle, since many differ at the end.

    >>> _short_names(["lmdb (raw)", "redis://one.example.com:6379/0?timeout=30"])
    ['lmdb (raw)', 'redis://one.exa…9/0?timeout=30']
    """
    half = _NAME_LENGTH // 2
    return told_apart(
        [f"{label[:half]}…{label[1 - half :]}" if len(label) > _NAME_LENGTH else label for label in labels]
    )


def names_of(looks: Looks, shift: int, **at: Spec) -> list[Spec]:
    """Return shape, name and figure of each contender, ``shift`` pixels below the place of ``at`` or the plot."""
    text = {"type": "text", "baseline": "middle", "dy": shift}
    point = {"type": "point", "filled": True, "size": 60, "opacity": 1, "xOffset": 6, "yOffset": shift}
    uncolored = {**at, "color": {"value": "var(--text)"}}
    return [
        {"mark": point, "encoding": {**at, "x": {"value": 0}, "shape": looks.shape, "description": NAME}},
        {
            "mark": {**text, "align": "left", "dx": 16, "limit": WIDTH - 130},
            "encoding": {"x": {"value": 0}, "text": {"field": "name"}, "description": NAME, **uncolored},
        },
        {
            "mark": {**text, "align": "right"},
            "encoding": {"x": {"value": "width"}, "text": {"field": "shown"}, "description": WORDS, **uncolored},
        },
    ]


def strips_axis(count: int, title: str) -> Spec:
    """Return the axis of so many strips, one above the other, each of which has a row of height 1."""
    scale = {"domain": [0, max(count, 1)], "nice": False}
    return {"type": "quantitative", "scale": scale, "axis": {"title": title, "values": []}}


def heads_of(looks: Looks, axis: Spec) -> list[Spec]:
    """Return shape, name and figure of each strip, at the ``head`` of the row of the data that has one."""
    layers = names_of(looks, 0, y={**axis, "field": "head"})
    return [{**layer, "transform": [{"filter": "isValid(datum.head)"}]} for layer in layers]


def points(looks: Looks, area: int) -> Spec:
    """Return a layer with a mark of each contender's shape, ``area`` square pixels large, at the places of the plot."""
    mark = {"type": "point", "filled": True, "size": area, "opacity": 1, "stroke": "var(--panel)", "strokeWidth": 0.8}
    return {"mark": mark, "encoding": {"shape": looks.shape, "description": WORDS}}


def plot_of(rows: Sequence[Spec], height: Any, encoding: Spec, marks: list[Spec]) -> Spec:
    """Return the plot of ``rows``: ``encoding`` is that of all layers, and ``height`` pixels or those of a step."""
    room = {"autosize": {"type": "fit-x", "contains": "padding"}, "width": WIDTH, "height": height}
    return {**room, "data": {"values": rows}, "encoding": encoding, "layer": marks}


def measured(field: str, title: str, **axis: Any) -> Spec:
    """Return an axis from zero on."""
    shown_as = {"title": title, "labelExpr": _SHORT, **axis}
    return {"field": field, "type": "quantitative", "scale": {"zero": True}, "axis": shown_as}


def logarithmic(title: str, rows: Iterable[Spec]) -> Spec:
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


def sentences(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the words of all rows, a sentence each."""
    return "".join(f"{row['words']}. " for row in rows).strip()
