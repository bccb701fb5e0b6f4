"""The benchmark of the processors measures every topology on every backend, each run in a process of its own."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from millpond.bench.documents import parsed_document, read_document
from millpond.bench.processors import driving, worker
from millpond.bench.processors.cases import CASES, Case
from millpond.bench.processors.inputs import Sizes
from millpond.bench.processors.run import DICT, Contest, run, runs
from millpond.bench.report import document
from millpond.bench.runs.process import answer
from millpond.bench.runs.summary import over_batches
from millpond.cli import app
from millpond.errors import ConfigurationError
from millpond.processors import Batch, TopologyDriver

SMALL = Sizes(60, 7, 20, warm_up=20)


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Runs take place here; the jobs that there were."""
    jobs = []

    def measure(name: str, job: worker.Job, timeout_s: float | None) -> dict[str, Any]:
        jobs.append({**json.loads(job.text()), "worker": name})
        return worker.measure(worker.Job.of(job.text()))

    monkeypatch.setattr("millpond.bench.runs.alone.run_in_a_process", measure)
    return jobs


def test_every_topology_is_measured_on_every_backend_beside_dicts_and_profiled(
    in_this_process: list[dict[str, Any]], tmp_path: Path
) -> None:
    contest = Contest(["memory", "lmdb", "rocksdb"], [], SMALL, repeat=1, directory=tmp_path)
    watched: list[tuple[str, str]] = []
    figures = run(contest, lambda workload, contender: watched.append((workload, contender)))
    backends = [f"{name} (Millpond)" for name in ("memory", "lmdb", "rocksdb")]
    written = parsed_document(json.loads(json.dumps(document("processors", figures))))
    assert (written.benchmark, written.unit, written.failures) == ("processors", "records", ())
    assert [(result.workload, result.contender) for result in written.results] == [
        (name, label) for name in CASES for label in (*backends, DICT)
    ]
    assert {(row["workload"], row["contender"]) for row in figures["profiles"]} == {
        (name, label) for name in CASES for label in backends
    }
    assert all(row["functions"] for row in figures["profiles"])
    assert len(watched) == runs(contest, contest.taking_part()) == len(in_this_process)
    disk = {label: {one.disk_bytes for one in written.results if one.contender == label} for label in (*backends, DICT)}
    assert disk[backends[0]] == {0.0}
    assert disk[DICT] == {None}
    assert all(size and size > 0 for label in backends[1:] for size in disk[label])
    assert all(one.operations == 60 and (one.cpu_s or 0) >= 0 and one.peak_rss_bytes for one in written.results)
    assert list(tmp_path.iterdir()) == []


def test_contenders_take_turns_and_every_run_is_kept(in_this_process: list[dict[str, Any]]) -> None:
    figures = run(Contest(["memory"], ["windowed count", "count"], SMALL, repeat=2, profile=False))
    assert [(job["workload"], job["backend"]) for job in in_this_process] == [
        (workload, backend) for workload in ("count", "windowed count") for backend in ("memory", None) * 2
    ]
    assert [len(row["throughput"]["runs"]) for row in figures["results"]] == [2] * 4
    assert figures["profiles"] == []


@pytest.mark.parametrize(
    "case", [case for case in CASES.values() if "stream-stream" not in case.name], ids=lambda case: case.name
)
def test_the_peer_on_dicts_gives_the_same(case: Case) -> None:
    sizes = Sizes(300, 20, 50, warm_up=60, step=1_000_000)  # so that windows end, and sessions
    table, batches = sizes.table(case.versions), sizes.batches()
    assert [len(batch) for batch in batches] == [50] * 8
    with TopologyDriver(case.build()) as driver:
        for batch in table if case.versions else ():
            driver.pipe_batch("table", case.sent(batch))
        driver.read("out")
        for batch in batches:
            driver.pipe_batch("in", case.sent(batch))
        came = [(record.value, record.timestamp) for record in driver.read("out")]
    assert came == [(value, time) for _, value, time in case.peer(table)(batches)]


@pytest.mark.parametrize(
    "case", [case for case in CASES.values() if "stream-stream" in case.name], ids=lambda case: case.name
)
def test_the_peer_on_dicts_gives_the_same_pairs(case: Case) -> None:
    sizes = Sizes(300, 3, 50, step=200_000)  # windows of 18 records
    with TopologyDriver(case.build()) as driver:
        for batch in sizes.batches():
            driver.pipe_batch("in", case.sent(batch))
        came = [(record.value, record.timestamp) for record in driver.read("out")]
    pairs = [(value, time) for value, time in came if value.get("other") is not None]
    theirs = [(value, time) for _, value, time in case.peer([])(sizes.batches())]
    assert pairs
    assert sorted(map(repr, pairs)) == sorted(map(repr, theirs))


def test_the_same_seed_makes_the_same_records_and_another_one_others() -> None:
    one, same, other = (Sizes(50, 9, 20, seed=seed) for seed in (3, 3, 4))
    made = [[(batch.keys, batch.values, batch.timestamps) for batch in sizes.batches()] for sizes in (one, same, other)]
    assert made[0] == made[1] != made[2]
    tables = [[batch.values for batch in sizes.table(2)] for sizes in (one, same, other)]
    assert tables[0] == tables[1] != tables[2]


def test_what_warms_up_is_not_measured() -> None:
    clock = driving.Clock([Batch([str(n)], [n], [n]) for n in range(5)], 2)
    seen: list[int] = []
    for batch in clock:
        seen.extend(batch.timestamps)
        assert clock.times == [] if len(seen) <= 3 else len(clock.times) == len(seen) - 3
    assert seen == [0, 1, 2, 3, 4]
    assert len(clock.times) == 3
    assert clock.peak_rss_bytes > 0


def clock_of(times: list[int]) -> "driving.Clock[Any]":
    clock: driving.Clock[Any] = driving.Clock([], 0)
    clock.times = times
    return clock


def test_latencies_are_those_of_micro_batches_and_left_out_if_there_are_few() -> None:
    sizes = Sizes(records=995, keys=1, batch_rows=10)
    few, enough = ([1000 * (number + 1) for number in range(count)] for count in (99, 100))
    assert worker.figures(clock_of(few), sizes)["latency_us"] is None
    found = worker.figures(clock_of(enough), sizes)
    assert found["latency_us"] == {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99_9": 100.0, "max": 100.0}
    assert found["throughput"] == pytest.approx(995 / (sum(enough) / 1e9))


@pytest.mark.parametrize("batches", [1, 100, 250])
def test_the_points_over_time_hold_all_records(batches: int) -> None:
    sizes = Sizes(records=10 * batches - 3, keys=1, batch_rows=10)
    points = over_batches([10**9] * batches, sizes.batch_lengths)
    starts = [0.0, *(end for end, _ in points)]
    assert len(points) <= 100
    assert points[-1][0] == batches
    total = sum((end - start) * rate for start, (end, rate) in zip(starts, points, strict=False))
    assert total == pytest.approx(sizes.records)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker cannot make a topology on LMDB, as if the package were broken; the others can."""
    whole = driving.time_driven

    def time_driven(case: Case, backend: str, *rest: Any) -> Any:
        if backend == "lmdb":
            raise OSError("the disk is gone")
        return whole(case, backend, *rest)

    def measure(name: str, job: worker.Job, timeout_s: float | None) -> dict[str, Any]:
        monkeypatch.setattr("sys.stdin", StringIO(job.text()))
        answer(worker.Job.of, worker.measure)
        came: dict[str, Any] = json.loads(Path(job.result).read_text())
        return came

    monkeypatch.setattr(worker, "time_driven", time_driven)
    monkeypatch.setattr("millpond.bench.runs.alone.run_in_a_process", measure)


@pytest.mark.usefixtures("failing")
def test_a_contender_that_fails_is_told_the_others_are_measured_and_the_exit_code_is_1(tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    options = ["--backend=lmdb", "--backend=memory", "--workload=count", "--records=40", "--keys=5", "--batch=10"]
    result = CliRunner().invoke(app, ["bench", "processors", *options, "--json", str(written)])
    assert result.exit_code == 1, result.output
    found = read_document(written)
    assert [(one.contender, one.reason) for one in found.failures] == [("lmdb (Millpond)", "OSError: the disk is gone")]
    assert [one.contender for one in found.results] == ["memory (Millpond)", DICT]
    assert "the disk is gone" in result.output


def test_the_command_runs_processes_and_writes_a_document_and_a_page(tmp_path: Path) -> None:
    written, page = tmp_path / "figures.json", tmp_path / "page.html"
    options = ["--backend", "memory", "--workload", "stream-table join, versioned", "--records", "40", "--keys", "5"]
    options += ["--no-profile", "--repeat", "1", "--seed", "7", "--json", str(written), "--html", str(page)]
    result = CliRunner().invoke(app, ["bench", "processors", *options])
    assert result.exit_code == 0, result.output
    found = read_document(written)
    assert found.workloads() == ["stream-table join, versioned"]
    assert (found.settings["seed"], found.settings["warm_up"], found.settings["batch"]) == (7, 1000, 1000)
    assert [one.label for one in found.contenders] == ["memory (Millpond)", DICT]
    assert "stream-table join, versioned" in page.read_text()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"workloads": ["sorting"]}, "no workload 'sorting'; the workloads are stream-table join; "),
        ({"repeat": 0}, "repeat is 0"),
        ({"timeout_s": 0}, "the timeout is 0 s, but must be above 0"),
        ({"directory": Path("nowhere")}, "nowhere is no directory"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, Any], message: str) -> None:
    whole: dict[str, Any] = {"backends": ["memory"], "workloads": [], "sizes": SMALL}
    with pytest.raises(ConfigurationError, match=message):
        Contest(**{**whole, **given})


def test_sizes_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="batch_rows is 0"):
        Sizes(1, 1, 0)
