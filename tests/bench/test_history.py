"""The history of a benchmark: what is kept, when nothing is added, what counts as a move, and how it is shown."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from millpond.bench.compare import Verdict, compared
from millpond.bench.documents import parsed_document
from millpond.bench.history import Entry, History, read_history, with_file
from millpond.bench.pages.history import history_page
from millpond.bench.ratios import ratios
from millpond.cli import app
from millpond.errors import ConfigurationError
from tests.bench.documents import MACHINE, bare_result, contender, document, queries, result
from tests.bench.test_bench_pages import Page

OWN, RAW, PEER = "lmdb (Millpond)", "lmdb (raw)", "dict"
CONTENDERS = [contender(OWN), contender(RAW, "engine", version="3.0", distribution="lmdb"), contender(PEER, "peer")]
RUNS = st.lists(st.floats(1, 1e7), min_size=1, max_size=5)


def measured(own: Sequence[float], raw: Sequence[float], date: str | None = None, **settings: Any) -> dict[str, Any]:
    whole = document(CONTENDERS, [result(OWN, "fillseq", own), result(RAW, "fillseq", raw)], **settings)
    return whole if date is None else {**whole, "date": date}


def on(machine: str, content: dict[str, Any]) -> dict[str, Any]:
    return {**content, "machine": {**MACHINE, "cpu": machine}}


def history_of(*contents: dict[str, Any]) -> History:
    history = History("engines", ())
    for content in contents:
        history = history.with_entry(Entry(content, parsed_document(content), content["date"]))
    return history


def kept_of(results: Path) -> Entry:
    _, entry = with_file(History("engines", ()), results, None)
    assert entry is not None
    return entry


def verdicts(history: History) -> dict[str, list[Verdict | None]]:
    return {figure.name: [step.verdict for step in figure.steps] for figure in history.figures()}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["bench", "history", *map(str, arguments)])


def refusal(shown: Result) -> str:
    assert isinstance(shown.exception, ConfigurationError)
    return str(shown.exception)


def written(folder: Path, content: dict[str, Any], name: str = "engines.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(content))
    return path


def test_a_measurement_is_kept_in_a_line_and_the_same_figures_again_change_nothing(tmp_path: Path) -> None:
    kept = tmp_path / "history" / "engines.jsonl"
    first, second = measured([100, 101, 102], [200, 201, 202], "2026-11-01"), measured([50, 51, 52], [200, 201, 202])
    shown = run("add", written(tmp_path, first))
    assert (shown.exit_code, shown.output) == (0, f"{kept}: measured on 2026-11-01\n")
    shown = run("add", written(tmp_path, second), "--date", "2026-11-03")
    assert shown.exit_code == 0
    assert f"{kept}: measured on 2026-11-03, before on 2026-11-01" in shown.output
    assert "0 faster, 1 slower, 1 within the noise" in shown.output
    text = kept.read_text()
    assert [json.loads(line)["date"] for line in text.splitlines()] == ["2026-11-01", "2026-11-03"]
    assert "over_time" not in text
    for day in ([], ["--date", "2026-11-09"]):
        shown = run("add", written(tmp_path, second), *day)
        assert (shown.exit_code, shown.output) == (0, f"{kept} has it already\n")
    assert kept.read_text() == text


def test_what_is_kept_says_the_same_as_the_document(tmp_path: Path) -> None:
    whole = measured([100.123456789, 101, 102], [200, 201, 202], "2026-11-01")
    found, kept = parsed_document(whole), kept_of(written(tmp_path, whole)).document
    assert compared(found, kept).differences == []
    assert {change.verdict for change in compared(found, kept).changes} == {Verdict.WITHIN_NOISE}
    assert kept.results[0].throughput.low == pytest.approx(100.123)
    assert kept.results[0].latency == found.results[0].latency
    on_spark = queries(measured([1, 2, 3], [4, 5, 6], "2026-11-01"), {"fillseq": {RAW: 0.5}}, OWN)
    assert ratios(kept_of(written(tmp_path, on_spark)).document) == ratios(parsed_document(on_spark))


def test_an_earlier_measurement_that_is_added_later_stands_where_it_belongs(tmp_path: Path) -> None:
    for day, pace in (("2026-11-05", 3), ("2026-11-01", 1), ("2026-11-03", 2)):
        run("add", written(tmp_path, measured([pace] * 3, [pace] * 3, day)), "--into", tmp_path)
    kept = read_history(tmp_path / "engines.jsonl")
    assert [entry.date for entry in kept.entries] == ["2026-11-01", "2026-11-03", "2026-11-05"]
    assert [step.found.median for step in kept.figures()[0].steps] == [1, 2, 3]


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ({"benchmark": "restore"}, [], "has figures of the benchmark 'restore', which come without their runs"),
        (measured([1], [1]) | {"schema": 1}, [], "has schema 1, .* measure again: millpond bench engines"),
        (measured([1], [1]), [], r"does not say when .* history add \S*engines\.json --date YYYY-MM-DD"),
        (measured([1], [1]), ["--date", "today"], "--date is 'today', and not a day such as"),
        (measured([1], [1], "2026-11-01"), ["--date", "2026-11-01"], "says itself .* leave out --date"),
        (measured([1], [1], "2026-11-01") | {"unit": "rows"}, [], "has the unit operations, .* the unit rows"),
        (measured([1], [1], "2026-11-01") | {"benchmark": "stores"}, [], "benchmark engines, .* the benchmark stores"),
    ],
)
def test_if_one_file_is_refused_none_is_added(tmp_path: Path, content: Any, options: list[str], said: str) -> None:
    (tmp_path / "history").mkdir()
    kept = tmp_path / "history" / "engines.jsonl"
    run("add", written(tmp_path, measured([9, 9, 9], [9, 9, 9], "2026-10-01")))
    before = kept.read_text()
    others = [written(tmp_path, measured([7], [8], None if options else "2026-11-02"), "other.json")]
    shown = run("add", *others, written(tmp_path, content), *options)
    assert re.search(said, refusal(shown))
    assert list((tmp_path / "history").iterdir()) == [kept]
    assert kept.read_text() == before


def test_what_is_no_history_is_refused_with_the_line(tmp_path: Path) -> None:
    for text, said in (("{", "line 1 is not JSON"), (json.dumps(measured([1], [1])), "line 1 has no date")):
        (tmp_path / "x.jsonl").write_text(text)
        assert said in refusal(run("show", tmp_path / "x.jsonl"))
    assert "cannot be read" in refusal(run("show", tmp_path / "none.jsonl"))


def test_a_move_is_judged_by_the_rule_of_compare_beside_the_measurement_before_that_has_the_figure() -> None:
    fast, slow = [200.0, 201.0, 202.0], [100.0, 101.0, 102.0]
    without = document(CONTENDERS, [result(RAW, "fillseq", fast)]) | {"date": "2026-11-02"}
    history = history_of(measured(fast, fast, "2026-11-01"), without, measured(slow, fast, "2026-11-03"))
    assert verdicts(history) == {
        OWN: [None, Verdict.SLOWER],
        RAW: [None, Verdict.WITHIN_NOISE, Verdict.WITHIN_NOISE],
        f"{OWN} / {RAW}": [None, Verdict.SLOWER],
    }
    (before, after) = next(history.figures()[0].moves())
    assert (before.place, after.place) == (0, 2)
    pair = compared(history.entries[0].document, history.entries[2].document)
    assert [change.verdict for change in pair.changes] == [Verdict.SLOWER, Verdict.WITHIN_NOISE]


def test_another_machine_ends_the_line_of_a_throughput_and_other_settings_that_of_a_ratio_too() -> None:
    slow, fast, faster = [100.0, 101.0, 102.0], [200.0, 201.0, 202.0], [400.0, 401.0, 402.0]
    history = history_of(
        measured(slow, fast, "2026-11-01"),
        on("Difference engine", measured(fast, fast, "2026-11-02")),
        on("Difference engine", measured(faster, fast, "2026-11-03", records=5)),
    )
    assert verdicts(history) == {
        OWN: [None, None, None],
        RAW: [None, None, None],
        f"{OWN} / {RAW}": [None, Verdict.FASTER, None],
    }
    unlike = [[one.what for one in step.differences] for step in history.figures()[0].steps]
    assert unlike == [[], ["machine cpu"], ["setting records"]]


def test_ratios_are_those_of_the_document_or_else_of_backends_beside_their_engine_or_the_peers() -> None:
    whole = document(CONTENDERS, [bare_result(label, "get", [10.0, 20.0, 30.0]) for label in (OWN, RAW, PEER)])
    assert [(one.own, one.peer) for one in ratios(parsed_document(whole))] == [(OWN, RAW)]
    alone = {**whole, "results": [one for one in whole["results"] if one["contender"] != RAW]}
    assert [(one.own, one.peer) for one in ratios(parsed_document(alone))] == [(OWN, PEER)]
    told = ratios(parsed_document(queries(whole, {"get": {PEER: 1.5, RAW: 0.5, "gone": 2.0}}, OWN)))
    assert [(one.peer, one.times.median) for one in told] == [(PEER, 1.5), (RAW, 0.5)]
    assert ratios(parsed_document(queries(whole, {"get": {PEER: 1.5}}, "gone"))) == []


@given(RUNS, RUNS)
def test_the_bar_of_a_ratio_holds_every_run_beside_every_run_of_the_peer(own: list[float], peer: list[float]) -> None:
    (ratio,) = ratios(parsed_document(measured(own, peer)))
    quotients = [mine / theirs for mine in own for theirs in peer]
    assert (ratio.times.low, ratio.times.high) == (min(quotients), max(quotients))
    assert ratio.times.low <= ratio.times.median <= ratio.times.high
    assert len(ratio.times.runs) == min(len(own), len(peer))


def test_the_command_and_the_page_show_what_moved_and_never_fail(tmp_path: Path) -> None:
    slow, fast = [100.0, 101.0, 102.0], [200.0, 201.0, 202.0]
    for day, own in (("2026-11-01", fast), ("2026-11-02", slow), ("2027-01-01", [200.0, 201.0, 203.0])):
        assert run("add", written(tmp_path, measured(own, fast, day))).exit_code == 0
    run("add", written(tmp_path, measured(slow, fast, "2026-11-02"), "once <b>.json"))
    files = sorted((tmp_path / "history").iterdir())
    shown = run("show", *files, "--html", tmp_path / "pages" / "moved.html")
    assert shown.exit_code == 0
    assert "engines, 3 measurements: 2026-11-01, 2026-11-02, 2027-01-01" in shown.output
    assert "2 faster, 2 slower, 2 within the noise, 0 too few runs, 0 not alike" in shown.output
    page = Page((tmp_path / "pages" / "moved.html").read_text())
    times = ["Times as fast as a peer in the same run", "Processor time, \u00b5s per operation"]
    assert page.of("figcaption") == ["Operations per second", *times]
    assert f"{OWN} on 2026-11-02: 500" in {title.removesuffix(", too few runs") for title in page.of("title")}
    assert {"\u25b2 1.99x", "\u25bc 0.502x", f"{OWN} / {RAW}"} <= set(page.of("text"))
    assert {"11-02", "2027", "0.1.0"} <= {*page.of("text"), *page.of("tspan")}
    assert f"{OWN} on 2026-11-02: 101, from 100 to 102, slower" in page.of("title")
    assert page.of("b").count("slower") == page.of("td").count("faster") == 2
    assert {"engines", "once <b>"} <= {*page.of("a"), *page.of("th")}
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {link["href"] for link in page.attributes("a")} <= {f"#{place}" for place in ids}


def test_lines_end_where_measurements_were_not_alike_and_days_with_several_number_them() -> None:
    day = "2026-11-01"
    history = history_of(
        measured([1, 2, 3], [4, 5, 6], day), on("Difference engine", measured([1, 2, 4], [4, 5, 7], day))
    )
    page = Page(history_page([history]))
    assert f"{OWN} on 2026-11-01 (2): 2.00, from 1.00 to 4.00, not measured alike" in page.of("title")
    assert "machine cpu: Abacus -> Difference engine" in page.of("td")
    assert "Nothing." in page.of("p")


def test_a_page_of_nothing_and_of_single_measurements_says_so() -> None:
    assert "0 benchmarks, 0 measurements." in Page(history_page([])).of("p")
    page = Page(history_page([history_of(measured([1], [2], "2026-11-01"))]))
    assert "Measured once" in page.of("h2")
    assert page.attributes("svg") == []
