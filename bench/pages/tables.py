"""The tables of a page, as HTML.

Rule of this module: every text is escaped where it enters a tag (``tag``), and nowhere else.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from millpond.bench.engine_results import PERCENTILES, EngineResults, Failure, Result
from millpond.bench.pages.numbers import shown, size

_NONE = "-"
_BAR = 76  # pixels, for as long as the narrowest column of page.css is wide


class Html(str):
    """Text that is HTML already."""


def tag(name: str, *content: str | Html, **attributes: str) -> Html:
    """An element: texts in it are escaped, elements stay.

    >>> tag("p", "a < b, ", tag("b", "c"), id="x")
    '<p id="x">a &lt; b, <b>c</b></p>'
    """
    given = "".join(f' {key.rstrip("_")}="{escape(value)}"' for key, value in attributes.items())
    inside = "".join(part if isinstance(part, Html) else escape(part) for part in content)
    return Html(f"<{name}{given}>{inside}</{name}>")


def overview(results: EngineResults, places: Mapping[str, str]) -> Html:
    """Operations per second of everyone with everything: the best in bold, all with a bar against it.

    ``places`` has the ids of the workloads' sections.
    """
    labels = [contender.label for contender in results.contenders]
    failed = {(failure.workload, failure.contender) for failure in results.failures}
    rows = []
    for workload in results.workloads():
        found = results.of(workload)
        best = max((result.throughput.median for result in found.values()), default=0.0)
        cells = [_rate(found.get(label), best, (workload, label) in failed) for label in labels]
        rows.append([_row_head(tag("a", workload, href=f"#{places[workload]}")), *cells])
    return _table("Operations per second, median of the runs", ["workload", *labels], rows)


def _rate(result: Result | None, best: float, failed: bool) -> Html:
    if result is None:
        return tag("td", tag("a", "no result", href="#failures") if failed else _NONE, class_="number")
    median = result.throughput.median
    bar = tag("i", style=f"width:{_BAR * median / best:.1f}px")
    return tag("td", tag("b", shown(median)) if median == best else shown(median), bar, class_="number rate")


def figures(results: EngineResults) -> Html:
    """All figures of all results."""
    heads = ["workload", "contender", "operations", "ops/s, median", "lowest", "highest", "runs"]
    heads += [f"{name}, µs" for name in PERCENTILES.values()]
    heads += ["processor, s", "peak memory", "disk", "write amplification"]
    rows = [
        [
            *_heads_of(result),
            *_numbers([f"{result.operations:,}", *map(shown, (result.throughput.median, result.throughput.low))]),
            *_numbers([shown(result.throughput.high), f"{len(result.throughput.runs)}", *_percentiles(result.latency)]),
            *_numbers([shown(result.cpu_s), size(result.peak_rss_bytes), size(result.disk_bytes)]),
            *_numbers([_NONE if result.write_amplification is None else shown(result.write_amplification)]),
        ]
        for result in _in_order(results)
    ]
    return _table("Every result", heads, rows)


def by_operation(results: EngineResults) -> Html | None:
    """Latencies of each kind of operation, if any workload has several."""
    rows = [
        [*_heads_of(result), tag("td", kind), *_numbers(_percentiles(latency))]
        for result in _in_order(results)
        for kind, latency in result.by_operation.items()
    ]
    heads = ["workload", "contender", "operation", *(f"{name}, µs" for name in PERCENTILES.values())]
    return _table("Latency by kind of operation", heads, rows) if rows else None


def contenders(results: EngineResults) -> Html:
    """Who was measured."""
    rows = [
        [
            _row_head(one.label),
            *(tag("td", text) for text in (one.kind, one.distribution, one.version)),
            *(tag("td", text or _NONE, class_="long") for text in (one.durability, one.cache)),
        ]
        for one in results.contenders
    ]
    heads = ["contender", "kind", "distribution", "version", "durability", "cache"]
    return _table("Who was measured", heads, rows)


def failures(found: Iterable[Failure]) -> Html:
    """What could not be measured, and why."""
    rows = [[_row_head(one.workload), tag("td", one.contender), tag("td", one.reason, class_="long")] for one in found]
    return _table("What has no result, and why", ["workload", "contender", "reason"], rows)


def settings(entries: Mapping[str, Any]) -> Html:
    """What the run was told, and what follows from it."""
    rows = [[_row_head(name.replace("_", " ")), tag("td", _setting(name, value))] for name, value in entries.items()]
    return _table("With which settings", ["setting", "value"], rows)


def _setting(name: str, value: Any) -> str:
    if value is None:
        return "not set"
    if name.endswith("_bytes") and isinstance(value, int | float):
        return size(value)
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _in_order(results: EngineResults) -> Iterable[Result]:
    return (result for workload in results.workloads() for result in results.of(workload).values())


def _heads_of(result: Result) -> list[Html]:
    return [_row_head(result.workload), tag("td", result.contender)]


def _percentiles(latency: Mapping[str, float]) -> list[str]:
    return [shown(latency[name]) for name in PERCENTILES]


def _numbers(texts: Iterable[str]) -> list[Html]:
    return [tag("td", text, class_="number") for text in texts]


def _row_head(text: str | Html) -> Html:
    return tag("th", text, scope="row")


def _table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[Html]]) -> Html:
    """A table that scrolls by itself where it is wider than the page, with keys, too."""
    head = tag("thead", tag("tr", *(tag("th", text, scope="col") for text in heads)))
    body = tag("tbody", *(tag("tr", *cells) for cells in rows))
    table = tag("table", tag("caption", caption), head, body)
    return tag("div", table, class_="wide", tabindex="0", role="region", **{"aria-label": caption})
