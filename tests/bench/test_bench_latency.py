"""Latency at a fixed rate without Spark: when rows are there, how long they waited, who fell behind, what is shown."""

import json
import random
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from rich.console import Console
from typer.testing import CliRunner

from millpond.bench.documents import PERCENTILES, parsed_document
from millpond.bench.latency import run
from millpond.bench.latency.arrivals import SECOND, Arrivals, pace_of
from millpond.bench.latency.document import document_of
from millpond.bench.latency.fixed_rate import USUAL, FixedRate, fixed_rates
from millpond.bench.latency.run import Kept, Measured
from millpond.bench.latency.source import ROWS_TOGETHER, ArrivalsReader, Stretch
from millpond.bench.latency.tables import print_results
from millpond.bench.latency.waits import Lag, MicroBatch, Waits, mean_lag, micro_batches, next_moment
from millpond.bench.runs.summary import latency_us
from millpond.bench.spark.workloads import WORKLOADS
from millpond.cli import app
from millpond.errors import ConfigurationError

BEGIN = 1_800_000_000 * SECOND
REPORT: dict[str, Any] = {
    "timestamp": "2027-01-15T08:00:00.125Z",
    "durationMs": {"triggerExecution": 250},
    "sources": [
        {"startOffset": None, "endOffset": {"events": 9}},
        {"startOffset": '{"rates": 3}', "endOffset": '{"rates": 4}'},
    ],
}


@pytest.mark.parametrize("pace", [Fraction(1), Fraction(900), Fraction(1_000, 3), Fraction(99_999), Fraction(7, 3)])
def test_a_row_is_there_from_its_moment_on_and_not_before(pace: Fraction) -> None:
    when = Arrivals(BEGIN, pace)
    for row in [0, 1, 2, 99, 1_000_003, 60_000_000]:
        assert (when.count(when.moment(row) - 1), when.count(when.moment(row))) == (row, row + 1)
    assert when.count(BEGIN + 600 * SECOND) == 600 * pace.numerator // pace.denominator


def test_the_topics_of_a_workload_have_its_rate_together() -> None:
    for name in ("count", "temporal-join", "multi-join"):
        assert sum(pace_of(10_000, topic.share) for topic in WORKLOADS[name].topics) == 10_000


def test_a_row_is_the_same_whenever_it_is_read_and_its_time_is_its_moment() -> None:
    topic, when = WORKLOADS["temporal-join"].topics[1], Arrivals(BEGIN, Fraction(3_000))
    reader = ArrivalsReader(topic, when, keys=7, partitions=3, seed=1)
    parts = reader.partitions({"rates": 5}, {"rates": 5 + ROWS_TOGETHER * 4})
    assert [part.first for part in parts] == [5, *(part.stop for part in parts[:-1])]
    assert (len(parts), parts[-1].stop) == (3, 5 + ROWS_TOGETHER * 4)
    one, again = (pa.Table.from_batches(reader.read(parts[1])) for _ in range(2))
    assert one.equals(again)
    assert one.schema.names == ["key", "at", "rate"]
    assert one["at"].to_pylist() == [when.moment(row) // 1_000 for row in range(parts[1].first, parts[1].stop)]
    assert len(set(one["key"].to_pylist())) == 7
    assert reader.partitions({"rates": 5}, {"rates": 6}) == [Stretch(5, 6)]
    assert reader.partitions({"rates": 5}, {"rates": 5}) == []


def test_what_there_is_to_read_follows_from_the_clock_and_never_goes_back() -> None:
    begin = time.time_ns() // 1_000
    reader = ArrivalsReader(WORKLOADS["count"].topics[0], Arrivals(begin, Fraction(SECOND)), 7, 1, 1)
    before = time.time_ns() // 1_000
    count = reader.latestOffset({"events": 0}, None)["events"]
    assert before - begin <= count <= time.time_ns() // 1_000 - begin
    assert reader.latestOffset({"events": 10**12}, None) == {"events": 10**12}


def test_micro_batches_are_read_from_reports_in_either_form_and_those_without_rows_do_not_count() -> None:
    idle = {**REPORT, "sources": [{"startOffset": {"events": 9}, "endOffset": {"events": 9}}]}
    (found,) = micro_batches([REPORT, idle])
    assert found == MicroBatch(BEGIN + 125_000, BEGIN + 375_000, {"events": (0, 9), "rates": (3, 4)})
    assert found.count == 10


def test_late_rows_are_those_that_spark_or_millpond_has_counted() -> None:
    counted = {"millpond.join.operator.0": {"tasks": [{"join:dropped-late": 2, "join:waiting": 9}]}}
    places = {"application": "shop", "tasks": [{}], "places": [{"task": "0_0"}]}
    of_verbs = {"stateOperators": [], "observedMetrics": {**counted, "millpond.join.operator.0:metrics": places}}
    of_spark = {"stateOperators": [{"numRowsDroppedByWatermark": 3}]}
    assert (run.late_rows([of_verbs, of_verbs]), run.late_rows([of_spark])) == (4, 3)


def of_steps(ends: list[int], arrivals: dict[str, Arrivals], late: int = 0) -> list[MicroBatch]:
    """Return micro-batches that end at these moments, each with all rows that were there ``late`` before it began."""
    found, rows = [], dict.fromkeys(arrivals, 0)
    for began, done in zip([BEGIN, *ends], ends, strict=False):
        there = {topic: max(rows[topic], when.count(began - late)) for topic, when in arrivals.items()}
        found.append(MicroBatch(began, done, {topic: (rows[topic], there[topic]) for topic in arrivals}))
        rows = there
    return found


def test_percentiles_are_those_of_all_rows_one_by_one() -> None:
    rng = random.Random(1)
    arrivals = {"events": Arrivals(BEGIN, Fraction(900)), "rates": Arrivals(BEGIN, Fraction(1_000, 3))}
    ends = [BEGIN]
    while ends[-1] < BEGIN + 30 * SECOND:
        ends.append(ends[-1] + rng.randint(1, 1_500) * 1_000)
    batches = of_steps(ends, arrivals)
    start, stop = BEGIN + 5 * SECOND, BEGIN + 25 * SECOND
    one_by_one = [
        batch.done - when.moment(row)
        for batch in batches
        for topic, when in arrivals.items()
        for row in range(*batch.rows[topic])
        if start <= when.moment(row) < stop
    ]
    waits = Waits(batches, arrivals, start, stop)
    assert waits.rows == len(one_by_one) == 24_667  # of 20 seconds
    assert waits.percentiles() == latency_us([1_000 * wait for wait in one_by_one])
    assert list(waits.percentiles()) == list(PERCENTILES)


def test_a_query_that_keeps_its_pace_has_no_growing_lag_and_one_that_slows_down_has() -> None:
    arrivals = {"events": Arrivals(BEGIN, Fraction(1_000))}
    steady = of_steps([BEGIN + 500_000 * number for number in range(1, 60)], arrivals)
    # The oldest row has waited for half a second when a micro-batch is done, and for a second just before.
    assert mean_lag(steady, arrivals, BEGIN + 10 * SECOND, BEGIN + 20 * SECOND) == pytest.approx(750_000, rel=0.02)
    assert not Lag.between(steady, arrivals, BEGIN + 5 * SECOND, BEGIN + 25 * SECOND).grows
    ends = [BEGIN + 500_000]
    while ends[-1] < BEGIN + 40 * SECOND:
        ends.append(ends[-1] + round(1.2 * (ends[-1] - ([BEGIN, *ends])[-2])))
    slower = of_steps(ends, arrivals)
    lag = Lag.between(slower, arrivals, BEGIN + 5 * SECOND, BEGIN + 25 * SECOND)
    assert lag.grows


def test_the_oldest_row_without_a_result_is_that_of_the_topic_that_is_behind() -> None:
    arrivals = {"events": Arrivals(BEGIN, Fraction(10)), "rates": Arrivals(BEGIN, Fraction(2))}
    assert next_moment(None, arrivals) == BEGIN + SECOND // 10
    last = MicroBatch(BEGIN, BEGIN, {"events": (0, 30), "rates": (0, 4)})
    assert next_moment(last, arrivals) == BEGIN + 5 * SECOND // 2


def test_rates_and_workloads_are_taken_once_and_each_with_verbs_and_the_best_of_spark() -> None:
    chosen = fixed_rates(["count", "temporal-join", "count"], [100, 10, 100], contenders=None, seconds=1)
    assert [one.title for one in chosen] == [
        "count, 10 rows/s",
        "count, 100 rows/s",
        "temporal-join, 10 rows/s",
        "temporal-join, 100 rows/s",
    ]
    assert [list(one.chosen) for one in chosen[1:3]] == [["verbs", "spark_jvm"], ["verbs", "transform_with_state"]]
    only = fixed_rates(["count", "temporal-join"], [10], contenders=["verbs", "lmdb"], seconds=1)
    assert [list(one.chosen) for one in only] == [["verbs", "lmdb"]] * 2
    assert {one.scale.window for one in chosen} == {500_000, 5_000_000}  # five rows of a key


@pytest.mark.parametrize("name", ["window", "chain", "lookup-join", "exchange"])
def test_a_workload_whose_rows_wait_for_others_is_refused_with_those_that_are_not(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"the rows of {name} .*give one of count, temporal-join, ") as refused:
        fixed_rates([name], [10], contenders=["verbs"], seconds=1)
    for other in str(refused.value).partition("give one of ")[2].partition(" [")[0].split(", "):
        assert fixed_rates([other], [10], contenders=["verbs"], seconds=1)[0].chosen


def test_what_takes_no_part_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no workload 'counts'"):
        fixed_rates(["counts"], [10], contenders=None, seconds=1)
    with pytest.raises(ConfigurationError, match="stream-join has none of the contenders"):
        fixed_rates(["count", "stream-join"], [10], contenders=["transform_with_state"], seconds=1)


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verbs keep up; ``spark_jvm`` falls behind and ``transform_with_state`` fails."""

    def of(contest: FixedRate, spark: object, watch: Any) -> Measured:
        found = Measured(contest)
        batches = [MicroBatch(BEGIN + at, BEGIN + at + SECOND, {"events": (0, 10)}) for at in (0, SECOND)]
        waits = {name: 1_500.0 * (place + 1) for place, name in enumerate(PERCENTILES)}
        for name in contest.chosen:
            watch(contest.title, name)
            if name == "verbs":
                found.kept[name] = Kept(20, 9.5, waits, Lag(SECOND, 2 * SECOND), 7, batches, 1.5, 3 << 20)
            elif name == "spark_jvm":
                found.behind[name] = "did not keep up: a row had waited"
            else:
                found.failed[name] = "ValueError: broken"
        return found

    monkeypatch.setattr(run, "run", of)


@pytest.mark.usefixtures("without_spark")
def test_the_command_writes_a_document_and_says_who_fell_behind(tmp_path: Path) -> None:
    file = tmp_path / "latency.json"
    asked = ["bench", "latency", "--rate", "10", "--seconds", "2", "--workload", "count"]
    came = CliRunner().invoke(app, [*asked, "--json", str(file)], env={"COLUMNS": "200"})
    assert came.exit_code == 0, came.output
    assert "did not keep up: a row had waited" in came.output
    found = parsed_document(json.loads(file.read_text()))
    (result,) = found.results
    assert (result.workload, result.contender, result.operations) == ("count, 10 rows/s", "verbs", 20)
    assert (result.throughput.runs, result.latency["p99"]) == ((9.5,), 4_500)
    assert result.by_operation["micro-batch"]["max"] == SECOND
    assert result.over_time == ((1.0, 10.0), (2.0, 10.0))
    assert [failure.contender for failure in found.failures] == ["spark_jvm"]
    failed = CliRunner().invoke(app, [*asked, "--contender", "transform_with_state"])
    assert (failed.exit_code, "ValueError: broken" in failed.output) == (1, True)


@pytest.mark.usefixtures("without_spark")
def test_figures_are_shown_for_each_rate_and_contender() -> None:
    contest = FixedRate("count", 10, 2)
    figures = document_of([run.run(contest, lambda: None, lambda *_: None)])  # type: ignore[arg-type,return-value]
    console = Console(width=160, record=True, quiet=False)
    with console.capture() as shown:
        print_results(console, figures)
    row = next(line for line in shown.get().splitlines() if "count, 10 rows/s" in line and "verbs" in line)
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells == [
        *("count, 10 rows/s", "verbs", "2", "4", "8", "2", "1,000", "1,000"),
        *("1.0, 2.0", "7", "0.75", "3"),
    ]


def test_the_help_names_all_workloads_that_take_part() -> None:
    shown = CliRunner().invoke(app, ["bench", "latency", "--help"], env={"COLUMNS": "1000"}).output
    with pytest.raises(ConfigurationError) as refused:
        FixedRate("window", 10, 1).work  # noqa: B018
    for name in (*USUAL, *str(refused.value).partition("give one of ")[2].partition(" [")[0].split(", ")):
        assert name in shown
