"""Results of a benchmark as one HTML page that needs nothing else: no network, no script, no font.

Rule of this module: it says what is on the page and in which order. Plots are in ``charts``, tables in ``tables``,
what differs from benchmark to benchmark in ``words``, and looks in ``frame`` and ``page.css``.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millpond.bench.documents import Document, parsed_document
from millpond.bench.numbers import counted, shown, size
from millpond.bench.pages import tables, words
from millpond.bench.pages.charts import charts
from millpond.bench.pages.drawing import require_drawing
from millpond.bench.pages.frame import machine_line, plot, whole_page, write_html
from millpond.bench.pages.queries import own_of, query_charts
from millpond.bench.pages.tables import Html, tag
from millpond.bench.ratios import ratios

_KEY = (
    "Each contender has one color and one shape, that before its name. Thin lines on bars are the range of the runs. A "
    "pointer that rests on a mark shows its figures."
)
_KEY_OF_LATENCY = (
    "In the plots of latency, lines of backends of Millpond are solid, those of an engine without Millpond dashed, "
    "those of peers dotted."
)
_KEY_OF_TIME = "Where a strip over time is empty, the contender stood still."


def write_page(content: object, path: Path, origin: str = "the document") -> None:
    """Write the page of a document, as a JSON file has it, to ``path``.

    Args:
        content: the document.
        path: where the page goes.
        origin: what an error calls the document, such as the path of its file.

    Raises:
        ConfigurationError: it is no document of results, or the package that draws is not installed.
    """
    write_html(results_page(parsed_document(content, origin)), path)


def results_page(results: Document) -> str:
    """Return the whole page.

    Raises:
        ConfigurationError: the package that draws is not installed.
    """
    require_drawing()
    places = {workload: f"w{number}" for number, workload in enumerate(results.workloads())}
    parts = [
        _overview(results, places),
        _failures(results),
        _side_by_side(results),
        *(_workload(results, workload, place) for workload, place in places.items()),
        _all_figures(results),
        _how(results),
    ]
    main = tag("main", *(part for part in parts if part is not None))
    return whole_page(words.TITLES[results.benchmark], _header(results), main)


def _header(results: Document) -> Html:
    return tag(
        "header",
        tag("h1", words.TITLES[results.benchmark]),
        tag("p", _summary(results), class_="lead"),
        tag("p", _measured(results), class_="dim"),
        *(tag("p", line) for line in words.ABOUT.get(results.benchmark, ())),
        tag("pre", tag("code", results.command)),
        tag(
            "details",
            tag("summary", "What these numbers do not show"),
            tag("ul", *(tag("li", tag("b", what), f" {why}") for what, why in words.limits(results.benchmark).items())),
            open="",
        ),
    )


def _measured(results: Document) -> str:
    day = "" if results.date is None else f"Measured on {results.date}. "
    return f"{day}{machine_line(results.machine)}"


def _summary(results: Document) -> str:
    settings = results.settings
    parts = [f"{counted(len(results.contenders), 'contender')}, {counted(len(results.workloads()), 'workload')}"]
    if {"records", "key_bytes", "value_bytes"} <= settings.keys():
        each = f"with keys of {settings['key_bytes']} and values of {settings['value_bytes']} bytes"
        parts.append(f"{_count(settings['records'])} records {each}")
    if isinstance(settings.get("data_bytes"), int | float):
        parts.append(f"{size(settings['data_bytes'])} of data{_cache(settings)}")
    if {"rows", "keys"} <= settings.keys():
        parts.append(f"{_count(settings['rows'])} rows of {_count(settings['keys'])} keys in a micro-batch")
    if {"rows", "batches", "rate"} <= settings.keys():
        events = settings["rows"] * settings["batches"]
        source = " of topics of Kafka" if settings.get("source") == "kafka" else ""
        parts.append(f"{_count(events)} events in {_count(settings['batches'])} micro-batches{source}")
    if isinstance(settings.get("repeat"), int):
        parts.append(f"{counted(settings['repeat'], words.turn(results.benchmark))} of each")
    return "; ".join(parts) + "."


def _cache(settings: Mapping[str, Any]) -> str:
    if "cache_ratio" not in settings:
        return ""
    ratio = settings["cache_ratio"]
    return f", {shown(ratio)} times the cache" if isinstance(ratio, int | float) else ", caches as each engine has them"


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _overview(results: Document, places: Mapping[str, str]) -> Html:
    if not places:
        return tag("section", tag("h2", "Overview"), tag("p", "Nothing was measured."))
    said = {
        _KEY: bool(results.results),
        _KEY_OF_LATENCY: any(result.latency for result in results.results),
        _KEY_OF_TIME: any(result.over_time for result in results.results),
    }
    key = tag("p", " ".join(text for text, is_said in said.items() if is_said), class_="dim")
    return tag("section", tag("h2", "Overview"), tables.overview(results, places), key, id="overview")


def _failures(results: Document) -> Html | None:
    if not results.failures:
        return None
    return tag("section", tag("h2", "Without a result"), tables.failures(results.failures), id="failures")


def _side_by_side(results: Document) -> Html | None:
    """Return the plots and the table over all queries, of what has run on Spark."""
    if not results.queries or not results.results:
        return None
    found = ratios(results)
    drawn = query_charts(results, found) if len(results.workloads()) > 1 else []
    plots = [plot(chart, "all queries", f"all-{chart.name}") for chart in drawn]
    about = (
        f"A ratio is a peer's time, or its cores x time, over that of {own_of(results)}: above 1, the peer takes more."
    )
    if any(len({one.operations for one in results.of(workload).values()}) > 1 for workload in results.workloads()):
        about += " Who takes very long got fewer rows, as the table says, so that its state is that of fewer rows."
    return tag(
        "section",
        tag("h2", "Side by side"),
        tag("p", about, class_="dim"),
        tag("div", *plots, class_="plots"),
        tables.side_by_side(results, found),
        id="beside",
    )


def _workload(results: Document, workload: str, place: str) -> Html:
    found = results.of(workload)
    drawn = charts(results.contenders, list(found.values()), results.unit)
    plots = [plot(chart, workload, f"{place}-{chart.name}") for chart in drawn]
    inside = tag("div", *plots, class_="plots") if found else tag("p", "No contender has a result.")
    asked = words.asked(results.benchmark, workload)
    heading = f"{workload}: {asked}" if asked else workload
    return tag("section", tag("h2", heading), inside, id=place)


def _all_figures(results: Document) -> Html | None:
    if not results.results:
        return None
    kinds = tables.by_operation(results)
    more = [] if kinds is None else [tag("h3", "By kind of operation"), kinds]
    return tag("section", tag("h2", "All figures"), tables.figures(results), *more, id="figures")


def _how(results: Document) -> Html:
    clock = results.settings.get("clock_ns")
    note = (
        f"A latency includes about {shown(clock)} ns for reading the clock." if isinstance(clock, int | float) else ""
    )
    return tag(
        "section",
        tag("h2", "How it was measured"),
        tables.contenders(results),
        tag("p", note, class_="dim"),
        tables.settings(results.settings),
        id="how",
    )
