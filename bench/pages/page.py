"""Results of ``millpond bench engines`` as one HTML page that needs nothing else: no network, no script, no font.

Rule of this module: it says what is on the page and in which order. Plots are in ``charts``, tables in ``tables``, and
looks in ``page.css``.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millpond.bench.engine_results import EngineResults, parsed_results
from millpond.bench.pages import tables
from millpond.bench.pages.charts import Chart, charts
from millpond.bench.pages.drawing import drawn, require_drawing
from millpond.bench.pages.numbers import shown, size
from millpond.bench.pages.tables import Html, tag

_TITLE = "Storage engines side by side"
_KEY = (
    "In the plots, lines of backends of Millpond are solid, those of an engine without Millpond dashed, those of peers "
    "dotted. Thin lines on bars are the range of the runs. A line at the bottom of the plot over time is a standstill. "
    "A pointer that rests on a mark shows its figures."
)
_LIMITS = {
    "Your data.": "Keys have one length, values another, and nothing compresses.",
    "Your machine, and tomorrow.": "Ratios mean more than rates. Between two runs of the same command on a shared "
    "machine lies a tenth or two; the slowest and the fastest run say how much to believe.",
    "Data larger than memory.": "What a cache does not hold comes from the page cache of the system, as long as there "
    "is memory for it, and not from the disk.",
    "A full tree.": "Compactions, which decide how an LSM tree does over days, hardly begin in a small store.",
    "Several threads or processes.": "There is one caller, in Python, which takes a part of each operation that no "
    "engine can help.",
    "Losses of power.": "What is said of durability is what the settings ask of the system. Who promises less has less "
    "to do, so compare those that promise the same.",
    "Stores and queries.": "A typed store does more than its engine, and Spark more than a store.",
}


def write_page(document: object, path: Path, origin: str = "the document") -> None:
    """Write the page of a document of results, as a JSON file has it, to ``path``.

    Args:
        document: the results.
        path: where the page goes.
        origin: what an error calls the document, such as the path of its file.

    Raises:
        ConfigurationError: it is no document of this benchmark, or the package that draws is not installed.
    """
    page = results_page(parsed_results(document, origin))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def results_page(results: EngineResults) -> str:
    """The whole page.

    Raises:
        ConfigurationError: the package that draws is not installed.
    """
    require_drawing()
    places = {workload: f"w{number}" for number, workload in enumerate(results.workloads())}
    parts = [
        _overview(results, places),
        _failures(results),
        *(_workload(results, workload, place) for workload, place in places.items()),
        _all_figures(results),
        _how(results),
    ]
    main = tag("main", *(part for part in parts if part is not None))
    style = Html((Path(__file__).parent / "page.css").read_text(encoding="utf-8"))
    head = tag(
        "head",
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'),
        tag("title", f"{_TITLE} - Millpond"),
        tag("style", style),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', _header(results), main), lang='en')}\n"


def _header(results: EngineResults) -> Html:
    return tag(
        "header",
        tag("h1", _TITLE),
        tag("p", _summary(results), class_="lead"),
        tag("p", _machine(results.machine), class_="dim"),
        tag("pre", tag("code", results.command)),
        tag(
            "details",
            tag("summary", "What these numbers do not show"),
            tag("ul", *(tag("li", tag("b", what), f" {why}") for what, why in _LIMITS.items())),
            open="",
        ),
    )


def _summary(results: EngineResults) -> str:
    settings = results.settings
    parts = [f"{len(results.contenders)} contenders, {len(results.workloads())} workloads"]
    if {"records", "key_bytes", "value_bytes"} <= settings.keys():
        each = f"with keys of {settings['key_bytes']} and values of {settings['value_bytes']} bytes"
        parts.append(f"{_count(settings['records'])} records {each}")
    if isinstance(settings.get("data_bytes"), int | float):
        parts.append(f"{size(settings['data_bytes'])} of data, {_cache(settings)}")
    if "repeat" in settings:
        parts.append(f"{_count(settings['repeat'])} runs of each")
    return "; ".join(parts) + "."


def _cache(settings: Mapping[str, Any]) -> str:
    ratio = settings.get("cache_ratio")
    return f"{shown(ratio)} times the cache" if isinstance(ratio, int | float) else "caches as each engine has them"


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _machine(machine: Mapping[str, Any]) -> str:
    known = (("{}", "cpu"), ("{} cores", "cores"), ("{} GiB", "memory_gib"), ("{}", "system"), ("Python {}", "python"))
    parts = [form.format(machine[name]) for form, name in known if name in machine]
    return ", ".join([*parts, *(f"{name} {version}" for name, version in machine["packages"].items())]) + "."


def _overview(results: EngineResults, places: Mapping[str, str]) -> Html:
    if not places:
        return tag("section", tag("h2", "Overview"), tag("p", "Nothing was measured."))
    key = tag("p", _KEY, class_="dim")
    return tag("section", tag("h2", "Overview"), tables.overview(results, places), key, id="overview")


def _failures(results: EngineResults) -> Html | None:
    if not results.failures:
        return None
    return tag("section", tag("h2", "Without a result"), tables.failures(results.failures), id="failures")


def _workload(results: EngineResults, workload: str, place: str) -> Html:
    found = results.of(workload)
    plots = [
        _figure(chart, workload, f"{place}-{chart.name}") for chart in charts(results.contenders, list(found.values()))
    ]
    inside = tag("div", *plots, class_="plots") if found else tag("p", "No contender has a result.")
    return tag("section", tag("h2", workload), inside, id=place)


def _figure(chart: Chart, workload: str, name: str) -> Html:
    drawing = Html(drawn(chart.spec, name, f"{chart.title}, {workload}", chart.words))
    return tag("figure", tag("figcaption", chart.title), drawing)


def _all_figures(results: EngineResults) -> Html | None:
    if not results.results:
        return None
    kinds = tables.by_operation(results)
    more = [] if kinds is None else [tag("h3", "By kind of operation"), kinds]
    return tag("section", tag("h2", "All figures"), tables.figures(results), *more, id="figures")


def _how(results: EngineResults) -> Html:
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
