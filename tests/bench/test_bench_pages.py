"""The page of results: whole, escaped, without a network, with what was measured and what was not."""

import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from millpond.bench.documents import BENCHMARKS, parsed_document
from millpond.bench.numbers import shown
from millpond.bench.pages import charts, marks, words
from millpond.bench.pages.page import results_page, write_page
from millpond.cli import app
from millpond.errors import ConfigurationError
from tests.bench.documents import SETTINGS, bare_result, contender, document, queries, result

LABELS = {
    "lmdb (Millpond)": "backend",
    "lmdb (raw)": "engine",
    '<script>alert("a & b")</script>': "peer",
    "a peer whose name is much longer than any plot of a telephone's width has room for": "peer",
}
WORKLOADS = ["fillseq", "ycsb-<a>"]
FAILURE = {"contender": "lmdb (raw)", "workload": "seekrandom", "reason": 'the "map" is <full> & closed'}
CONTENDERS = [contender(label, kind) for label, kind in LABELS.items()]
KINDS = {kind: {"p50": 1, "p90": 2, "p99": 3, "p99_9": 4, "max": 98765.4} for kind in ("read", "update")}
VOID = {"meta", "link", "wbr"}
_LEAST_DISTANCE = 10.0
_XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
_SIGHTS = {
    "full": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    # Machado, Oliveira and Fernandes, A Physiologically-based Model for Simulation of Color Vision Deficiency, 2009
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}


class Page(HTMLParser):
    """Elements with their attributes, text by element, and whether each element that begins also ends."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def of(self, tag: str) -> list[str]:
        return [text for inside, text in self.texts if inside == tag]

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def text() -> str:
    results = [result(label, workload, by_operation=KINDS) for workload in WORKLOADS for label in LABELS]
    return results_page(parsed_document(document(CONTENDERS, results, [FAILURE])))


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_all_contenders_workloads_figures_and_failures_are_on_the_page(page: Page) -> None:
    heads, cells = page.of("th"), page.of("td")
    assert set(LABELS) | set(WORKLOADS) <= set(heads)
    assert {"1.50", "55.2", "7,000", "98,765", "50.0 MiB", "0 B"} <= set(cells)
    assert FAILURE["workload"] in heads
    assert {FAILURE["contender"], FAILURE["reason"]} <= set(cells)
    assert "no result" in page.of("a")
    shown = " ".join(text for _, text in page.texts)
    for part in ("Abacus", "Python 3.11.7", "millpond bench engines --json out.json", "55.0 ns", "do not show"):
        assert part in shown


def test_nothing_on_the_page_comes_from_elsewhere_or_runs(text: str, page: Page) -> None:
    targets = [
        value or ""
        for _, attributes in page.elements
        for name, value in attributes.items()
        if name.endswith(("src", "href")) or name in ("data", "action", "srcset")
    ]
    assert all(target.startswith("#") or target == "data:," for target in targets)
    assert not re.search(r"https?:|url\(|@import|@font-face", text)
    assert not {"script", "iframe", "img", "object"} & {tag for tag, _ in page.elements}
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]


def test_links_lead_to_places_on_the_page_and_ids_are_there_once(page: Page) -> None:
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {link["href"] for link in page.attributes("a")} <= {f"#{place}" for place in ids}


def test_there_are_a_light_and_a_dark_look_and_every_color_is_one_of_theirs(text: str) -> None:
    light, dark = re.findall(r":root \{([^}]*)\}", text)[:2]
    names = set(re.findall(r"(--[a-z0-9-]+):", light))
    assert "@media (prefers-color-scheme: dark) {\n  :root {" in text
    assert set(re.findall(r"(--[a-z0-9-]+):", dark)) == names >= {f"--s{place}" for place in range(marks.COLORS)}
    assert set(re.findall(r"var\((--[a-z0-9-]+)\)", text)) <= names
    drawings = "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))
    assert set(re.findall(r' (?:fill|stroke)="([^"]*)"', drawings)) - {"none"} == set(
        re.findall(r'"(var\(--[a-z0-9]+\))"', drawings)
    )


def test_whoever_cannot_see_a_plot_is_told_what_is_in_it(page: Page) -> None:
    drawings, described = page.attributes("svg"), dict(zip(_ids(page, "desc"), page.of("desc"), strict=True))
    titled = set(_ids(page, "title"))
    assert len(drawings) == 6 * len(WORKLOADS)
    for drawing in drawings:
        title, description = (drawing["aria-labelledby"] or "").split()
        assert drawing["role"] == "img"
        assert title in titled
        assert all(f"{label}: " in described[description] for label in LABELS)
    assert "p50 1.50 µs, p90 2.50 µs, p99 40.0 µs, p99.9 55.2 µs, max 7,000 µs" in " ".join(page.of("desc"))
    assert [table for table in page.attributes("th") if table.get("scope") not in ("row", "col")] == []
    assert len(page.of("caption")) == len(page.attributes("table"))


def _ids(page: Page, tag: str) -> Iterator[str]:
    return (attributes["id"] or "" for attributes in page.attributes(tag) if "id" in attributes)


def test_axes_name_their_units_and_marks_their_figures(page: Page) -> None:
    assert {
        "operations per second",
        "operations per second (log)",
        "latency, µs (log)",
        "share of the time taken, %",
        "operations per second, each from 0 to its most",
        "on disk, MiB",
        "peak memory, MiB",
        "processor time per operation, µs",
    } <= set(page.of("text"))
    assert {
        "lmdb (Millpond): p99 40.0 µs",
        "lmdb (raw): 100 operations per second, runs from 90.0 to 110",
        "lmdb (raw): 100 operations per second with 50.0 MiB",
        "lmdb (raw): 500 µs of processor time per operation",
    } <= set(page.of("title"))


def test_contenders_are_told_apart_without_colors(text: str) -> None:
    assert len(set(re.findall(r'stroke-dasharray="([^"]*)"', text))) == 3
    whole = parsed_document(document(CONTENDERS, [result("lmdb (raw)", "fillseq")]))
    throughput = charts.charts(whole.contenders, whole.results)[0].spec
    shapes = [
        layer["encoding"]["shape"]["scale"]["range"] for layer in throughput["layer"] if "shape" in layer["encoding"]
    ]
    assert [len(set(names)) for names in shapes] == [len(LABELS)]


def _spec(name: str, labels: Sequence[str], results: Sequence[Any]) -> dict[str, Any]:
    """Return the plot of this name with a result of each contender."""
    whole = parsed_document(document([contender(label, "peer") for label in labels], list(results)))
    return next(chart for chart in charts.charts(whole.contenders, whole.results) if chart.name == name).spec


def test_contenders_over_time_have_strips_of_their_own_each_from_zero_to_its_most() -> None:
    labels = [f"contender {number}" for number in range(12)]
    paces = [[[float(second), 10.0**number * (second % 3)] for second in range(1, 6)] for number in range(12)]
    results = [result(label, "fillseq", over_time=pace) for label, pace in zip(labels, paces, strict=True)]
    strips = _spec("time", labels, results)["data"]["values"]
    heights = {label: [row["value"] - row["base"] for row in strips if row["contender"] == label] for label in labels}
    assert all(height == pytest.approx(heights[labels[0]]) for height in heights.values())
    assert min(heights[labels[0]]) == 0
    tops = {label: max(row["value"] for row in strips if row["contender"] == label) for label in labels}
    heads = {row["contender"]: (row["base"], row["head"], row["shown"]) for row in strips if "head" in row}
    assert [heads[label][0] for label in labels] == list(range(11, -1, -1))
    assert all(base < tops[label] < head < base + 1 for label, (base, head, _) in heads.items())
    assert [figure for _, _, figure in heads.values()] == [shown(2 * 10.0**number) for number in range(12)]
    assert "contender 0: between 0 and 2.00 operations per second in 5.00 s" in {row["words"] for row in strips}


def test_a_contender_that_only_stood_still_has_an_empty_strip() -> None:
    strips = _spec("time", ["still"], [result("still", "fillseq", over_time=[[2, 0]])])["data"]["values"]
    assert {row["value"] - row["base"] for row in strips} == {0}


def test_contenders_as_slow_as_each_other_are_beside_each_other_at_every_percentile() -> None:
    labels = [f"contender {number}" for number in range(12)]
    latency = _spec("latency", labels, [result(label, "fillseq") for label in labels])
    rows = latency["data"]["values"]
    places = sorted(row["at"] for row in rows)
    assert len(set(places)) == len(rows) == 5 * len(labels)
    nearest = [{row["contender"] for row in rows if round(row["at"]) == percentile} for percentile in range(5)]
    assert nearest == [set(labels)] * 5
    marks = next(layer for layer in latency["layer"] if layer["mark"]["type"] == "point")
    color, shape = (
        encoding["scale"]["range"] for encoding in (latency["encoding"]["color"], marks["encoding"]["shape"])
    )
    assert len(set(zip(color, shape, strict=True))) == len(labels)


@pytest.mark.parametrize("look", ["light", "dark"])
@pytest.mark.parametrize("sight", _SIGHTS)
def test_colors_are_told_apart_with_any_color_vision(text: str, look: str, sight: str) -> None:
    block = re.findall(r":root \{([^}]*)\}", text)[("light", "dark").index(look)]
    colors = {name: _seen(color, sight) for name, color in re.findall(r"--(s\d): #([0-9a-f]{6})", block)}
    assert len(colors) == marks.COLORS
    near = {(one, other): math.dist(colors[one], colors[other]) for one, other in combinations(colors, 2)}
    assert {pair: distance for pair, distance in near.items() if distance < _LEAST_DISTANCE} == {}


def _seen(color: str, sight: str) -> tuple[float, float, float]:
    """Return a color as somebody sees it, in CIELAB, whose distances are those that people see."""
    parts = [int(color[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    seen = [min(1.0, max(0.0, part)) for part in _times(_SIGHTS[sight], linear)]
    white = (0.9505, 1.0, 1.089)
    x, y, z = (_cube_root(part / most) for part, most in zip(_times(_XYZ, seen), white, strict=True))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def _times(matrix: Sequence[Sequence[float]], vector: Sequence[float]) -> list[float]:
    return [sum(one * other for one, other in zip(row, vector, strict=True)) for row in matrix]


def _cube_root(part: float) -> float:
    return math.cbrt(part) if part > 0.008856 else 7.787 * part + 16 / 116


def test_long_names_that_differ_at_the_end_differ_in_the_plots() -> None:
    labels = [f"redis://***@cache.example.com:6379/0?timeout=30&prefix={end}" for end in ("one", "two")]
    results = [result(label, "fillseq") for label in labels]
    page = Page(results_page(parsed_document(document([contender(label) for label in labels], results))))
    names = {text for text in page.of("text") if text.startswith("redis")}
    assert names == {"redis://***@cac…=30&prefix=one", "redis://***@cac…=30&prefix=two"}
    assert set(labels) <= set(page.of("th"))


def test_long_names_whose_shown_ends_agree_have_numbers() -> None:
    labels = [f"redis://cache.example.com/{number}?timeout=30&connections=20" for number in (0, 1)]
    results = [result(label, "fillseq") for label in labels]
    page = Page(results_page(parsed_document(document([contender(label) for label in labels], results))))
    assert {text[-1] for text in page.of("text") if text.startswith("redis")} == {"1", "2"}


def test_disk_and_memory_are_in_the_unit_that_suits_the_most() -> None:
    small = result("lmdb (raw)", "fillseq", disk_bytes=3000, peak_rss_bytes=5 * 2**30)
    page = Page(results_page(parsed_document(document(CONTENDERS, [small]))))
    assert {"on disk, KiB", "peak memory, GiB"} <= set(page.of("text"))
    assert "lmdb (raw): 100 operations per second with 2.93 KiB" in page.of("title")


def test_no_figure_above_zero_is_shown_as_zero() -> None:
    tiny = {"p50": 0.0004, "p90": 0.0004, "p99": 0.02, "p99_9": 3e-7, "max": 1}
    page = Page(results_page(parsed_document(document(CONTENDERS, [result("lmdb (raw)", "fillseq", latency_us=tiny)]))))
    assert {"0.000400", "0.0200", "3e-07", "1.00"} <= set(page.of("td"))
    assert "0.000" not in page.of("td")


def test_long_names_in_tables_go_on_in_the_next_line(text: str, page: Page) -> None:
    style = "".join(page.of("style"))
    assert re.search(
        r"tbody th, td\.name \{ white-space: normal; overflow-wrap: break-word; max-width: \d+px; \}", style
    )
    names = [attributes for attributes in page.attributes("td") if attributes.get("class") == "name"]
    figures = len(WORKLOADS) * len(LABELS)
    assert len(names) == figures * (1 + len(KINDS)) + 1  # all results, those by kind of operation, and the failure


def test_a_page_of_nothing_says_so_and_a_page_of_failures_gives_their_reasons() -> None:
    assert "Nothing was measured." in results_page(parsed_document(document([], [])))
    failed = Page(results_page(parsed_document(document(CONTENDERS, [], [FAILURE]))))
    assert not [text for text in failed.of("p") if "In the plots of latency" in text]
    assert "No contender has a result." in failed.of("p")
    assert FAILURE["reason"] in failed.of("td")


def test_figures_of_zero_and_of_one_run_are_shown() -> None:
    nothing = dict.fromkeys(("p50", "p90", "p99", "p99_9", "max"), 0)
    still = result("lmdb (raw)", "fillseq", [5.0], latency_us=nothing, over_time=[[1, 0]], cpu_s=0, peak_rss_bytes=0)
    page = Page(results_page(parsed_document(document(CONTENDERS, [still]))))
    assert "Latency" not in page.of("figcaption")  # nothing to draw on a logarithmic axis
    assert page.of("td").count("0") == 6  # five latencies and the processor time
    assert {"0", "1"} <= set(page.of("text"))  # an axis without a length would have zero in its middle


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_has_a_page_with_its_title_its_limits_and_its_unit(name: str) -> None:
    whole = document(CONTENDERS, [result("lmdb (raw)", "a [b] | \u2265 2")])
    text = results_page(parsed_document({**whole, "benchmark": name, "unit": "records"}))
    page = Page(text)
    assert page.of("h1") == [words.TITLES[name]]
    assert set(words.limits(name)) <= set(page.of("b"))
    assert {"records per second", "records per second (log)", "processor time per record, µs"} <= set(page.of("text"))
    assert not re.search("operations? per|per operation", text)


def test_queries_stand_side_by_side_with_ratios_and_what_they_ask() -> None:
    contenders = [contender("verbs"), contender("spark_jvm", "peer"), contender("flink_rocksdb", "peer")]
    results = [
        result("verbs", "q5", [100.0], cpu_s=1.0, over_time=None),
        result("spark_jvm", "q5", [50.0], cpu_s=3.0, over_time=None, operations=250),
        result("flink_rocksdb", "q5", [200.0], cpu_s=None, over_time=None, latency_us=None),
        result("verbs", "q4", [80.0], cpu_s=1.0, over_time=None),
    ]
    whole = queries(document(contenders, results), {"q5": {"spark_jvm": 2.0, "flink_rocksdb": 0.5}, "q4": {}})
    whole["queries"]["q5"]["checked_rows"] = {"verbs": 1234}
    page = Page(results_page(parsed_document({**whole, "date": "2026-11-30"})))
    titles = ["Throughput", "Cores x time", "Time ratio", "Cores x time ratio", "Latency", "State"]
    assert page.of("figcaption")[:6] == titles
    assert {"q5, spark_jvm: 2.00 peer's over that of verbs", "q5, spark_jvm: 6.00 peer's over that of verbs"} <= set(
        page.of("title")
    )
    assert {"q5: the auctions with the most bids of 10 seconds, every 2 seconds", "Side by side"} <= set(page.of("h2"))
    assert {"1,234", "12,000", "6.00", "0.500", "2,000"} <= set(page.of("td"))
    said = " ".join(page.of("p"))
    assert "Measured on 2026-11-30. Abacus" in said
    assert "got fewer rows" in said
    assert "In the plots of latency" in said
    assert "empty" not in said


def test_a_query_alone_has_no_plots_over_all_queries() -> None:
    whole = queries(document([contender("verbs")], [bare_result("verbs", "chain")]), {"chain": {}})
    page = Page(results_page(parsed_document(whole)))
    assert page.of("figcaption") == ["Throughput"]
    assert "Every query and contender" in page.of("caption")


def test_what_was_not_measured_has_no_plot_and_no_column() -> None:
    settings = {name: SETTINGS[name] for name in ("seed", "repeat")}
    whole = document(CONTENDERS, [bare_result("lmdb (raw)", "count"), bare_result("lmdb (Millpond)", "count")])
    page = Page(results_page(parsed_document({**whole, "settings": settings, "benchmark": "spark", "unit": "rows"})))
    assert page.of("figcaption") == ["Throughput"]
    heads = ["workload", "contender", "rows", "rows per second, median", "lowest", "highest", "runs"]
    assert ", ".join(heads) in ", ".join(page.of("th"))
    assert not [head for head in page.of("th") if "µs" in head or head in ("disk", "peak memory", "processor, s")]
    some = [bare_result("lmdb (raw)", "count"), result("lmdb (Millpond)", "count", write_amplification=2.5)]
    page = Page(results_page(parsed_document(document(CONTENDERS, some))))
    assert len(page.of("figcaption")) == 6
    assert {"write amplification", "p99.9, µs"} <= set(page.of("th"))


def test_the_command_makes_a_page_of_a_file(tmp_path: Path) -> None:
    source, target = tmp_path / "results.json", tmp_path / "new" / "page.html"
    source.write_text(json.dumps(document(CONTENDERS, [result("lmdb (raw)", "fillseq")])))
    made = CliRunner().invoke(app, ["bench", "page", str(source), str(target)])
    assert made.exit_code == 0
    assert "fillseq" in Page(target.read_text(encoding="utf-8")).of("h2")


def test_what_the_engines_are_measured_with_is_drawn_from_the_same_figures(tmp_path: Path) -> None:
    files = ["--json", str(tmp_path / "a.json"), "--html", str(tmp_path / "a.html")]
    small = ["--records", "20", "--operations", "20", "--repeat", "1", "--workload", "ycsb-a", "--backend", "memory"]
    measured = CliRunner().invoke(app, ["bench", "engines", *small, *files])
    assert measured.exit_code == 0, measured.output
    page = Page((tmp_path / "a.html").read_text(encoding="utf-8"))
    figures = json.loads((tmp_path / "a.json").read_text())
    assert {contender["label"] for contender in figures["contenders"]} < set(page.of("th"))
    assert all(shown(row["throughput"]["median"]) in page.of("text") for row in figures["results"])


def test_without_the_package_that_draws_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'millpond\[bench\]'"):
        write_page(document([], []), tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_a_document_of_another_benchmark_makes_no_page(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"out\.json has figures of the benchmark 'damage'"):
        write_page({"benchmark": "damage"}, tmp_path / "page.html", origin="out.json")
