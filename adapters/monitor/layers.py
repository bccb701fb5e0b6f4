"""A layered layout: places for the boxes of a graph, so that arrows point down and few of them cross.

Rule of this module: it knows boxes by their names and sizes, and not what they are. The steps are those of Sugiyama:
layers by the longest path, a place on each layer for an edge that passes it, an order by barycenters, then positions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Final

Point = tuple[float, float]
_Slot = str | tuple[str, str, int]
"""A box, or the place where an edge passes a layer."""

_GAP: Final = 24.0
_LEVEL: Final = 44.0
_PASSING: Final = 8.0
_SWEEPS: Final = 12
_SETTLING: Final = 24


@dataclass(frozen=True)
class Layout:
    """The places of all boxes and edges.

    Attributes:
        width: of all.
        height: of all.
        places: the upper left corner of each box.
        paths: for each edge, the points that it passes, from the lower border of one box to the upper of another; an
            edge that closes a circle goes the other way.
    """

    width: float
    height: float
    places: Mapping[str, Point]
    paths: Mapping[tuple[str, str], Sequence[Point]]


def laid_out(sizes: Mapping[str, Point], edges: Iterable[tuple[str, str]]) -> Layout:
    """Return the layout of a graph.

    Args:
        sizes: width and height of each box, by name.
        edges: from a box to another; those from a box to itself, and repeated ones, are left out.
    """
    wanted = [edge for edge in dict.fromkeys(edges) if edge[0] != edge[1]]
    turned = _without_circles(sizes, wanted)
    layers = _layers(sizes, turned.values())
    rows, chains = _rows(sizes, layers, turned.values())
    _order(rows, chains)
    centers = _centers(rows, chains, sizes)
    heights = [max((sizes[slot][1] for slot in row if isinstance(slot, str)), default=0.0) for row in rows]
    tops = [sum(heights[:number]) + _LEVEL * number for number in range(len(rows))]
    places = {name: (centers[name] - sizes[name][0] / 2, tops[layers[name]]) for name in sizes}
    width = max((places[name][0] + sizes[name][0] for name in sizes), default=0.0)
    paths = {}
    for edge, (start, stop) in turned.items():
        first = (centers[start], places[start][1] + sizes[start][1])
        points = [first]
        for slot in chains[start, stop][1:-1]:
            top = tops[slot[2]] if isinstance(slot, tuple) else 0.0
            height = heights[slot[2]] if isinstance(slot, tuple) else 0.0
            points += [(centers[slot], top), (centers[slot], top + height)]
        points.append((centers[stop], places[stop][1]))
        paths[edge] = points if edge == (start, stop) else points[::-1]
    return Layout(width, tops[-1] + heights[-1] if rows else 0.0, places, paths)


def _without_circles(names: Iterable[str], edges: Sequence[tuple[str, str]]) -> dict[tuple[str, str], tuple[str, str]]:
    """Return each edge, and how it is drawn: turned around where it closes a circle."""
    children: dict[str, list[str]] = {name: [] for name in names}
    for start, stop in edges:
        children[start].append(stop)
    done: set[str] = set()
    turned = {edge: edge for edge in edges}
    for root in children:
        if root in done:
            continue
        path = {root: iter(children[root])}
        while path:
            name = next(reversed(path))
            child = next(path[name], None)
            if child is None:
                done.add(name)
                del path[name]
            elif child in path:
                turned[name, child] = (child, name)
            elif child not in done:
                path[child] = iter(children[child])
    return turned


def _layers(names: Iterable[str], edges: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Return the layer of each box: below all its sources; a box without any is right above its children."""
    known = list(edges)
    layer = dict.fromkeys(names, 0)
    changed = True
    while changed:
        changed = False
        for start, stop in known:
            if layer[stop] <= layer[start]:
                layer[stop] = layer[start] + 1
                changed = True
    reached = {stop for _, stop in known}
    for name in layer:
        below = [layer[stop] for start, stop in known if start == name]
        if name not in reached and below:
            layer[name] = min(below) - 1
    return layer


def _rows(
    names: Iterable[str], layers: Mapping[str, int], edges: Iterable[tuple[str, str]]
) -> tuple[list[list[_Slot]], dict[tuple[str, str], list[_Slot]]]:
    """Return the slots of each layer, and those that each edge passes with its two ends."""
    rows: list[list[_Slot]] = [[] for _ in range(max(layers.values(), default=-1) + 1)]
    for name in names:
        rows[layers[name]].append(name)
    chains: dict[tuple[str, str], list[_Slot]] = {}
    for start, stop in edges:
        passed: list[_Slot] = [(start, stop, number) for number in range(layers[start] + 1, layers[stop])]
        for number, slot in enumerate(passed, layers[start] + 1):
            rows[number].append(slot)
        chains[start, stop] = [start, *passed, stop]
    return rows, chains


def _neighbors(chains: Mapping[tuple[str, str], Sequence[_Slot]], *, above: bool) -> dict[_Slot, list[_Slot]]:
    found: dict[_Slot, list[_Slot]] = {}
    for chain in chains.values():
        for upper, lower in pairwise(chain):
            one, other = (lower, upper) if above else (upper, lower)
            found.setdefault(one, []).append(other)
    return found


def _order(rows: list[list[_Slot]], chains: Mapping[tuple[str, str], Sequence[_Slot]]) -> None:
    """Order each layer so that few edges cross: by the mean position of the neighbors, down and up in turns."""
    above, below = _neighbors(chains, above=True), _neighbors(chains, above=False)
    best, fewest = [list(row) for row in rows], _crossings(rows, above)
    for sweep in range(_SWEEPS):
        neighbors, order = (above, rows) if sweep % 2 == 0 else (below, rows[::-1])
        for fixed, row in pairwise(order):
            place = {slot: number for number, slot in enumerate(fixed)}
            means = {
                slot: fmean(place[one] for one in neighbors[slot]) if slot in neighbors else float(number)
                for number, slot in enumerate(row)
            }
            row.sort(key=means.__getitem__)
        crossings = _crossings(rows, above)
        if crossings < fewest:
            best, fewest = [list(row) for row in rows], crossings
    for row, kept in zip(rows, best, strict=True):
        row[:] = kept


def _crossings(rows: Sequence[Sequence[_Slot]], above: Mapping[_Slot, Sequence[_Slot]]) -> int:
    total = 0
    for fixed, row in pairwise(rows):
        place = {slot: number for number, slot in enumerate(fixed)}
        ends = [(number, place[one]) for number, slot in enumerate(row) for one in above.get(slot, ())]
        total += sum((a - c) * (b - d) < 0 for n, (a, b) in enumerate(ends) for c, d in ends[:n])
    return total


def _centers(
    rows: Sequence[Sequence[_Slot]],
    chains: Mapping[tuple[str, str], Sequence[_Slot]],
    sizes: Mapping[str, Point],
) -> dict[_Slot, float]:
    """Return the middle of each slot: near those of its neighbors, and apart from those beside it."""
    above, below = _neighbors(chains, above=True), _neighbors(chains, above=False)
    half = {slot: sizes[slot][0] / 2 if isinstance(slot, str) else _PASSING / 2 for row in rows for slot in row}
    centers: dict[_Slot, float] = {}
    for row in rows:
        _place(row, dict.fromkeys(row, 0.0), half, centers)
    for step in range(_SETTLING):
        for row in rows if step % 2 == 0 else rows[::-1]:
            sides = (above, below) if step < _SETTLING // 2 else (above if step % 2 == 0 else below,)
            wished = {}
            for slot in row:
                near = [centers[one] for side in sides for one in side.get(slot, ())]
                wished[slot] = fmean(near) if near else centers[slot]
            _place(row, wished, half, centers)
    left = min((centers[slot] - half[slot] for slot in centers), default=0.0)
    return {slot: center - left for slot, center in centers.items()}


def _place(
    row: Sequence[_Slot], wished: Mapping[_Slot, float], half: Mapping[_Slot, float], centers: dict[_Slot, float]
) -> None:
    """Place a layer as near to its wishes as it can be: the middle of pushing right and of pushing left."""
    pushed, end = [], float("-inf")
    for slot in row:
        end = max(wished[slot], end + half[slot])
        pushed.append(end)
        end += half[slot] + _GAP
    start, pulled = float("inf"), []
    for slot in reversed(row):
        start = min(wished[slot], start - half[slot])
        pulled.append(start)
        start -= half[slot] + _GAP
    for slot, right, left in zip(row, pushed, reversed(pulled), strict=True):
        centers[slot] = (right + left) / 2
