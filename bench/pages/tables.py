"""The tables of a page, as HTML.

Rule of this module: every text is escaped where it enters a tag (``tag``), and nowhere else.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from html import escape
from typing import Any

from millpond.bench.documents import PERCENTILES, Document, Failure, Result
from millpond.bench.numbers import shown, size
from millpond.bench.pages.queries import MILLION, cost_ratios, processor_seconds
from millpond.bench.ratios import Ratio

_NONE = "-"
_BAR = 76  # pixels, for as long as the narrowest column of page.css is wide


class Html(str):
    """Text that is HTML already."""


def tag(name: str, *content: str | Html, **attributes: str) -> Html:
    """Return an element: texts in it are escaped, elements stay.

    >>> tag("p", "a < b, ", tag("b", "c"), id="x")
    '<p id="x">a &lt; b, <b>c</b></p>'
    """
    given = "".join(f' {key.rstrip("_")}="{escape(value)}"' for key, value in attributes.items())
    inside = "".join(part if isinstance(part, Html) else escape(part) for part in content)
    return Html(f"<{name}{given}>{inside}</{name}>")


def overview(results: Document, places: Mapping[str, str]) -> Html:
    """Return the throughputs of everyone with everything: the best in bold, all with a bar against it.

    ``places`` has the ids of the workloads' sections.
    """
    labels = [contender.label for contender in results.contenders]
    failed = {(failure.workload, failure.contender) for failure in results.failures}
    rows = []
    for workload in results.workloads():
        found = results.of(workload)
        best = max((result.throughput.median for result in found.values()), default=0.0)
        cells = [_rate(found.get(label), best, (workload, label) in failed) for label in labels]
        rows.append([row_head(tag("a", workload, href=f"#{places[workload]}")), *cells])
    return table(f"{results.unit.capitalize()} per second, median of the runs", ["workload", *labels], rows)


def _rate(result: Result | None, best: float, failed: bool) -> Html:
    if result is None:
        return tag("td", tag("a", "no result", href="#failures") if failed else _NONE, class_="number")
    median = result.throughput.median
    bar = tag("i", style=f"width:{_BAR * median / best:.1f}px")
    return tag("td", tag("b", shown(median)) if median == best else shown(median), bar, class_="number rate")


def figures(results: Document) -> Html:
    """Return all figures of all results, without columns that nobody has."""
    found = list(_in_order(results))
    columns = {name: [shown_of(result) for result in found] for name, shown_of in _columns(results.unit).items()}
    columns = {name: texts for name, texts in columns.items() if any(text != _NONE for text in texts)}
    rows = [
        [*_heads_of(result), *numbers(texts[place] for texts in columns.values())] for place, result in enumerate(found)
    ]
    return table("Every result", ["workload", "contender", *columns], rows)


def _columns(unit: str) -> dict[str, Callable[[Result], str]]:
    percentiles: dict[str, Callable[[Result], str]] = {
        f"{text}, µs": partial(_percentile, name) for name, text in PERCENTILES.items()
    }
    return {
        unit: lambda result: f"{result.operations:,}",
        f"{unit} per second, median": lambda result: shown(result.throughput.median),
        "lowest": lambda result: shown(result.throughput.low),
        "highest": lambda result: shown(result.throughput.high),
        "runs": lambda result: f"{len(result.throughput.runs)}",
        **percentiles,
        "processor, s": lambda result: _if_any(result.cpu_s, shown),
        "peak memory": lambda result: _if_any(result.peak_rss_bytes, size),
        "disk": lambda result: _if_any(result.disk_bytes, size),
        "write amplification": lambda result: _if_any(result.write_amplification, shown),
    }


def _percentile(name: str, result: Result) -> str:
    return _if_any(result.latency.get(name), shown)


def _if_any(value: float | None, show: Callable[[float], str]) -> str:
    return _NONE if value is None else show(value)


def side_by_side(results: Document, beside: Sequence[Ratio]) -> Html:
    """Return a row for each query and contender: what a million rows take, and the ratios to the query's own one."""
    found = {(one.workload, one.contender): one for one in results.results}
    times = {(one.workload, one.peer): one.times.median for one in beside}
    costs = cost_ratios(beside, found)
    rows = []
    for result in _in_order(results):
        query, seconds = results.queries.get(result.workload), MILLION / result.throughput.median
        checked = None if query is None else query.checked_rows.get(result.contender)
        spent, key = processor_seconds(result), (result.workload, result.contender)
        texts = (
            f"{result.operations:,}",
            shown(result.throughput.median),
            f"{shown(result.throughput.low)} to {shown(result.throughput.high)}",
            shown(seconds),
            _if_any(None if spent is None else spent / seconds, shown),
            _if_any(spent, shown),
            _if_any(times.get(key), shown),
            _if_any(costs.get(key), shown),
            _if_any(result.latency.get("p99"), shown),
            _if_any(None if result.disk_bytes is None else result.disk_bytes / 2**20, shown),
            _if_any(checked, lambda count: f"{count:,.0f}"),
        )
        rows.append((_heads_of(result), texts))
    heads = (
        results.unit,
        f"{results.unit} per second",
        "least to most",
        f"time, s a million {results.unit}",
        "cores",
        f"cores x time, s a million {results.unit}",
        "time ratio",
        "cores x time ratio",
        "p99, µs",
        "state, MiB",
        "rows checked",
    )
    kept = [place for place in range(len(heads)) if any(texts[place] != _NONE for _, texts in rows)]
    cells = [[*names, *numbers(texts[place] for place in kept)] for names, texts in rows]
    return table("Every query and contender", ["query", "contender", *(heads[place] for place in kept)], cells)


def by_operation(results: Document) -> Html | None:
    """Return the latencies of each kind of operation, if any workload has several."""
    rows = [
        [*_heads_of(result), tag("td", kind), *numbers(_percentiles(latency))]
        for result in _in_order(results)
        for kind, latency in result.by_operation.items()
    ]
    heads = ["workload", "contender", "operation", *(f"{name}, µs" for name in PERCENTILES.values())]
    return table("Latency by kind of operation", heads, rows) if rows else None


def contenders(results: Document) -> Html:
    """Return the table of contenders."""
    rows = [
        [
            row_head(one.label),
            *(tag("td", text) for text in (one.kind, one.distribution, one.version)),
            *(tag("td", text or _NONE, class_="long") for text in (one.durability, one.cache)),
        ]
        for one in results.contenders
    ]
    heads = ["contender", "kind", "distribution", "version", "durability", "cache"]
    return table("Who was measured", heads, rows)


def failures(found: Iterable[Failure]) -> Html:
    """Return the table of what could not be measured, and why."""
    rows = [
        [row_head(one.workload), tag("td", one.contender, class_="name"), tag("td", one.reason, class_="long")]
        for one in found
    ]
    return table("What has no result, and why", ["workload", "contender", "reason"], rows)


def settings(entries: Mapping[str, Any]) -> Html:
    """Return the table of the run's settings, and of what follows from them."""
    rows = [[row_head(name.replace("_", " ")), tag("td", _setting(name, value))] for name, value in entries.items()]
    return table("With which settings", ["setting", "value"], rows)


def _setting(name: str, value: Any) -> str:
    if value is None:
        return "not set"
    if name.endswith("_bytes") and isinstance(value, int | float):
        return size(value)
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _in_order(results: Document) -> Iterable[Result]:
    return (result for workload in results.workloads() for result in results.of(workload).values())


def _heads_of(result: Result) -> list[Html]:
    return [row_head(result.workload), tag("td", result.contender, class_="name")]


def _percentiles(latency: Mapping[str, float]) -> list[str]:
    return [shown(latency[name]) for name in PERCENTILES]


def numbers(texts: Iterable[str]) -> list[Html]:
    """Return cells of figures."""
    return [tag("td", text, class_="number") for text in texts]


def row_head(text: str | Html) -> Html:
    """Return the cell that a row begins with."""
    return tag("th", text, scope="row")


def _breaking(text: str) -> Html:
    """Return a name that may go on in the next line behind each underscore."""
    return Html(escape(text).replace("_", "_<wbr>"))


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[Html]]) -> Html:
    """Return a table that scrolls by itself where it is wider than the page, with keys, too."""
    head = tag("thead", tag("tr", *(tag("th", _breaking(text), scope="col") for text in heads)))
    body = tag("tbody", *(tag("tr", *cells) for cells in rows))
    inside = tag("table", tag("caption", caption), head, body)
    return tag("div", inside, class_="wide", tabindex="0", role="region", **{"aria-label": caption})
