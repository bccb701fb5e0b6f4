"""Two results of a benchmark compared: verdicts, what only one of them has, what is unfair, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from millpond.bench.compare import Verdict, compared, judged
from millpond.bench.documents import Throughput, parsed_document, read_document
from millpond.cli import app
from millpond.errors import ConfigurationError
from tests.bench.documents import MACHINE, bare_result, contender, document, result

RUNS = st.lists(st.floats(1, 1e7), min_size=3, max_size=9)
OPPOSITE = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
OLD = document(
    [contender("lmdb (Millpond)"), contender("lmdb (raw)", "engine", version="3.0", distribution="lmdb")],
    [
        result("lmdb (Millpond)", "fillseq", [100, 101, 102]),
        result("lmdb (Millpond)", "readseq", [100, 101, 102]),
        result("lmdb (raw)", "fillseq", [100, 101, 102]),
        result("lmdb (raw)", "readseq", [100, 101]),
    ],
)


def throughput(runs: list[float]) -> Throughput:
    ordered = sorted(runs)
    return Throughput(ordered[len(runs) // 2], ordered[0], ordered[-1], tuple(runs))


@given(RUNS, RUNS)
def test_a_change_the_other_way_round_is_the_opposite(old: list[float], new: list[float]) -> None:
    verdict = judged(throughput(old), throughput(new))
    assert judged(throughput(new), throughput(old)) is OPPOSITE.get(verdict, verdict)


@given(RUNS, RUNS)
def test_who_is_faster_is_so_in_every_run_and_by_more_than_the_runs_of_each_file_differ(
    old: list[float], new: list[float]
) -> None:
    if judged(throughput(old), throughput(new)) is Verdict.FASTER:
        assert all(before < after for before in old for after in new)
        gained = throughput(new).median / throughput(old).median
        assert all(one < gained * other for runs in (old, new) for one in runs for other in runs)


@given(RUNS, st.integers(0, 8), st.integers(0, 8))
def test_runs_that_lie_among_those_of_the_other_file_are_noise(runs: list[float], first: int, last: int) -> None:
    among = [runs[first % len(runs)], runs[last % len(runs)], runs[0]]
    assert judged(throughput(runs), throughput(among)) is Verdict.WITHIN_NOISE
    assert judged(throughput(among), throughput(runs)) is Verdict.WITHIN_NOISE


@given(RUNS, st.floats(1.001, 100))
def test_what_gets_faster_by_more_than_its_spread_is_told(runs: list[float], more: float) -> None:
    factor = max(runs) / min(runs) * more
    assert judged(throughput(runs), throughput([factor * run for run in runs])) is Verdict.FASTER


@given(st.lists(st.floats(1, 10), min_size=1, max_size=2), RUNS)
def test_of_fewer_than_three_runs_nothing_is_said(few: list[float], many: list[float]) -> None:
    much_faster = [1000 * run for run in many]
    assert judged(throughput(few), throughput(much_faster)) is Verdict.TOO_FEW_RUNS
    assert judged(throughput(much_faster), throughput(few)) is Verdict.TOO_FEW_RUNS


@pytest.mark.parametrize(
    ("new", "verdict"),
    [
        ([150.0, 151.0, 152.0], Verdict.FASTER),
        ([50.0, 51.0, 52.0], Verdict.SLOWER),
        ([102.0, 103.0, 104.0], Verdict.WITHIN_NOISE),  # the slowest is as fast as the fastest before
        ([103.0, 120.0, 150.0], Verdict.WITHIN_NOISE),  # a fifth more, but its own runs differ by half
    ],
)
def test_verdicts_of_examples(new: list[float], verdict: Verdict) -> None:
    assert judged(throughput([100.0, 101.0, 102.0]), throughput(new)) is verdict


def test_results_are_paired_by_contender_and_workload_and_what_only_one_file_has_is_listed() -> None:
    failure = {"contender": "lmdb (raw)", "workload": "fillseq", "reason": "no room"}
    new = document(
        OLD["contenders"],
        [
            result("lmdb (Millpond)", "readseq", [50, 51, 52]),
            result("lmdb (raw)", "readseq", [500, 501, 502]),
            result("lmdb (raw)", "ycsb-a"),
        ],
        [failure],
    )
    found = compared(parsed_document(OLD), parsed_document(new))
    assert [(change.workload, change.contender, change.verdict) for change in found.changes] == [
        ("readseq", "lmdb (Millpond)", Verdict.SLOWER),
        ("readseq", "lmdb (raw)", Verdict.TOO_FEW_RUNS),
    ]
    assert found.only_old == [("fillseq", "lmdb (Millpond)"), ("fillseq", "lmdb (raw)")]
    assert found.only_new == [("ycsb-a", "lmdb (raw)")]
    assert found.failed == [("fillseq", "lmdb (raw)")]
    assert found.differences == []


def test_what_was_not_measured_alike_is_told_but_not_the_version_of_millpond() -> None:
    contenders = [contender("lmdb (Millpond)", version="2.0", durability="synced"), contender("memory (Millpond)")]
    new = document(contenders, [], records=2000, repeat=5, clock_ns=70)
    new["machine"] = {**MACHINE, "cpu": "Difference engine", "packages": {"millpond": "0.2.0", "lmdb": "4"}}
    found = compared(parsed_document(OLD), parsed_document(new))
    assert [(difference.what, difference.old, difference.new) for difference in found.differences] == [
        ("machine cpu", "Abacus", "Difference engine"),
        ("package lmdb", "3.0.0", "4"),
        ("setting records", 1000, 2000),
        ("durability of lmdb (Millpond)", "none", "synced"),
    ]


def test_the_command_tells_what_changed_and_fails_only_if_it_is_asked_to(tmp_path: Path) -> None:
    new = document(
        OLD["contenders"],
        [
            result("lmdb (Millpond)", "fillseq", [80, 81, 82]),
            result("lmdb (Millpond)", "readseq", [100, 101, 102]),
            result("lmdb (raw)", "fillseq", [200, 201, 202]),
        ],
        seed=2,
    )
    before, after, report = written(tmp_path, "old.json", OLD), written(tmp_path, "new.json", new), tmp_path / "x" / "c"
    shown = CliRunner().invoke(app, ["bench", "compare", before, after, "--json", str(report)])
    assert shown.exit_code == 0
    assert "setting seed: 1 -> 2" in shown.output
    assert "1 faster, 1 slower, 1 within the noise, 0 too few runs" in shown.output
    assert "only in OLD: readseq, lmdb (raw)" in shown.output
    assert shown.output.count("│ readseq") == 0
    assert [change["verdict"] for change in json.loads(report.read_text())["changes"]] == [
        "slower",
        "faster",
        "within the noise",
    ]
    alone = CliRunner().invoke(app, ["bench", "compare", before, after, "--json", "-"])
    assert alone.output == report.read_text()
    assert "│ readseq" in CliRunner().invoke(app, ["bench", "compare", before, after, "--all"]).output
    codes = {
        percent: CliRunner().invoke(app, ["bench", "compare", before, after, "--fail-on-slower", percent]).exit_code
        for percent in ("19", "20")
    }
    assert codes == {"19": 1, "20": 0}  # 101 became 81, a loss of 19.8 percent


def test_what_can_no_longer_be_done_is_a_failure_and_what_was_left_out_is_none(tmp_path: Path) -> None:
    before = written(tmp_path, "old.json", OLD)
    fewer = document(OLD["contenders"], OLD["results"][1:])
    failed = {"contender": "lmdb (Millpond)", "workload": "fillseq", "reason": "no room"}
    for name, new, code in (("fewer.json", fewer, 0), ("failed.json", {**fewer, "failures": [failed]}, 1)):
        command = ["bench", "compare", before, written(tmp_path, name, new), "--fail-on-slower", "100"]
        assert CliRunner().invoke(app, command).exit_code == code


def changed(change: Callable[[dict[str, Any]], object]) -> str:
    whole = json.loads(json.dumps(OLD))
    change(whole)
    return json.dumps(whole)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "the whole file is not an object"),
        ("{}", "benchmark is missing"),
        ('{"benchmark": "damage"}', "has figures of the benchmark 'damage', which come without their runs"),
        ('{"benchmark": "stores"}', "has no schema, .* measure again: millpond bench stores --json FILE"),
        (changed(lambda whole: whole.update(schema=1)), "has schema 1, .* measure again: millpond bench engines"),
        (changed(lambda whole: whole.update(schema=3)), "has schema 3, and this release reads 2; update Millpond"),
        (changed(lambda whole: whole.update(unit="lines")), "unit is 'lines', and not operations, rows or records"),
        (changed(lambda whole: whole.update(date="30 November")), "date is '30 November', and not a day such as"),
        (changed(lambda whole: whole.update(queries={"q5": {"ratios": []}})), "backend is missing"),
        (changed(lambda whole: whole.pop("results")), "results is missing"),
        (changed(lambda whole: whole["machine"].pop("packages")), "machine.packages is missing"),
        (changed(lambda whole: whole["results"][1].update(cpu_s="1")), r"results\[1\].cpu_s is not a number"),
        (
            changed(lambda whole: whole["results"][1]["throughput"].update(median=0)),
            r"throughput.median is not a number",
        ),
        (changed(lambda whole: whole["results"][1]["throughput"].update(max=999)), "does not agree with its runs"),
        (changed(lambda whole: whole["results"][0]["latency_us"].update(p99=float("nan"))), "p99 is not a number"),
        (changed(lambda whole: whole["results"][0].update(over_time=[1])), "over_time is not a list of pairs"),
        (changed(lambda whole: whole["results"].append(whole["results"][0])), "lmdb .Millpond. with fillseq twice"),
        (changed(lambda whole: whole["contenders"].pop()), "which is the label of no contender"),
    ],
)
def test_a_file_that_holds_something_else_is_refused_with_its_name_and_the_place(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "figures.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=rf"figures\.json.*{said}"):
        read_document(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.json cannot be read"):
        read_document(tmp_path / "none.json")


def test_figures_of_different_benchmarks_or_of_different_units_are_not_compared() -> None:
    others = {"benchmark": "stores"}, {"unit": "rows"}
    for other, said in zip(others, ("the benchmark engines, the new one the benchmark stores", "rows"), strict=True):
        with pytest.raises(ConfigurationError, match=said):
            compared(parsed_document(OLD), parsed_document({**OLD, **other}))


def test_what_has_only_throughputs_is_compared_by_them(tmp_path: Path) -> None:
    names = ["count [by key]", "join, \u2265 2 & <left>"]
    whole = document(OLD["contenders"], [bare_result("lmdb (raw)", name) for name in names])
    path = written(tmp_path, "spark.json", {**whole, "benchmark": "spark", "unit": "rows", "more": {"of": "its own"}})
    shown = CliRunner().invoke(app, ["bench", "compare", path, path, "--all"])
    assert shown.exit_code == 0, shown.output
    assert all(text in shown.output for text in [*names, "rows per second, medians", "- -> -", "2 within the noise"])


def written(folder: Path, name: str, content: dict[str, Any]) -> str:
    path = folder / name
    path.write_text(json.dumps(content))
    return str(path)
