"""The benchmark on Spark: what is drawn, what is compared, how memory is read. tests/spark has what needs Spark."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from typer.testing import CliRunner

from millpond.bench.documents import parsed_document
from millpond.bench.report import document
from millpond.bench.runs import processor_time
from millpond.bench.runs.processor_time import ProcessorTime
from millpond.bench.spark import counting, growth, measure, queries, tables
from millpond.bench.spark.contest import Contest, Runs, contests
from millpond.bench.spark.document import document_of
from millpond.bench.spark.inputs import growing_keys, write_inputs
from millpond.bench.spark.measure import Measured
from millpond.bench.spark.queries import Ran, scratch
from millpond.bench.spark.shapes import Scale
from millpond.bench.spark.workers import MARK, WorkerMemory, WorkerWatch
from millpond.bench.spark.workloads import (
    COSTS,
    TRANSFORM_WITH_STATE,
    VERBS,
    WORKLOADS,
    chosen_contenders,
    named,
    workload_named,
)
from millpond.cli import app
from millpond.errors import ConfigurationError, MillpondError
from tests.bench.sessions import no_session

_NOTHING: Any = ({"lmdb": WorkerMemory()}, {"lmdb": 0}, {"lmdb": 0.0})


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("files", [1, 3])
def test_every_row_has_a_time_of_its_own_and_no_micro_batch_looks_back(name: str, files: int, tmp_path: Path) -> None:
    topics = WORKLOADS[name].topics
    write_inputs(tmp_path, topics, Scale(50, 7, files), 3)
    for number in range(3):
        parts = [tmp_path / topic.name / f"{number:06d}-{part}.parquet" for topic in topics for part in range(files)]
        times = np.concatenate([pq.read_table(part)["at"].to_numpy() for part in parts])
        assert sorted(times.tolist()) == list(range(50 * (number + 1), 50 * (number + 2)))
    for topic in topics:
        rows = pa.concat_tables(map(pq.read_table, sorted((tmp_path / topic.name).glob("000000-*"))))
        assert abs(len(rows) - topic.share * 50) < 1
        assert set(rows.schema.names) == {column.split()[0] for column in topic.schema.split(", ")}


def test_the_rows_are_the_same_at_each_run(tmp_path: Path) -> None:
    topics = WORKLOADS["table-join"].topics
    for place in (tmp_path / "one", tmp_path / "other"):
        place.mkdir()
        write_inputs(place, topics, Scale(50, 7), 2)
    for topic in topics:
        one, other = (pq.read_table(tmp_path / place / topic.name / "000001-0.parquet") for place in ("one", "other"))
        assert one == other


def test_another_seed_makes_other_rows(tmp_path: Path) -> None:
    for seed in (1, 2):
        (tmp_path / str(seed)).mkdir()
        write_inputs(tmp_path / str(seed), WORKLOADS["count"].topics, Scale(50, 7), 1, seed=seed)
    one, other = (pq.read_table(tmp_path / str(seed) / "events" / "000000-0.parquet") for seed in (1, 2))
    assert one != other


def test_growing_keys_come_in_equal_shares_until_all_are_there() -> None:
    rng = np.random.default_rng(1)
    known: set[int] = set()
    for number in range(5):
        keys = growing_keys(Scale(40, 100), number, 5, rng)
        assert len(keys) == 40
        known |= set(keys.tolist())
        assert known == set(range(20 * (number + 1)))


def test_too_few_rows_for_the_keys_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="5 micro-batches of 19 rows cannot bring 100 keys"):
        write_inputs(tmp_path, WORKLOADS["count"].topics, Scale(19, 100), 5, growing=True)


def test_growth_compares_the_last_ten_with_the_first_ten() -> None:
    assert growth.growth([1.0] * 10 + [50.0] * 5 + [2.0] * 10) == 2.0
    assert growth.growth([1.0, 9.0, 3.0]) == 3.0  # no micro-batch is at both ends


def test_growth_needs_two_micro_batches() -> None:
    with pytest.raises(ConfigurationError, match="not in 1"):
        growth.run(Contest("count", keys=10, batches=1), no_session)


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_has_a_peer_and_what_python_costs(name: str) -> None:
    workload = workload_named(name)
    contenders = list(workload.contenders(["rocksdb", "lmdb://?sync=true", "memory"]))
    assert {*COSTS} < {*contenders}
    assert any(peer.answers for peer in workload.all_peers.values())


@pytest.mark.parametrize("name", WORKLOADS)
def test_verbs_come_first_then_the_words_of_kafka_streams_on_each_backend_then_the_peers(name: str) -> None:
    workload, backends = workload_named(name), ["rocksdb", "lmdb://?sync=true", "memory"]
    in_these_words = backends if workload.topology is not None else []
    expected = [*workload.verbs, *in_these_words, *workload.all_peers]
    assert list(workload.contenders(backends)) == expected
    assert (expected[0] == VERBS) is (name != "exchange")
    assert Contest(name, keys=10, batches=1, backends=backends).foremost == expected[0]


def test_the_ratios_are_those_of_the_verb_and_if_it_has_failed_there_are_none() -> None:
    contest = Contest("count", 10, 2, 1000, ["lmdb"], contenders=["lmdb", "spark_jvm", "verbs"])
    seconds = {"verbs": [2.0], "lmdb": [1.0], "spark_jvm": [4.0]}
    measured = Measured(contest, seconds, {}, {}, {})
    assert measured.ratios == {"spark_jvm": 2.0}
    del seconds["verbs"]
    assert measured.ratios == {}
    without = Contest("count", 10, 2, 1000, ["lmdb"], contenders=["lmdb", "spark_jvm"])
    assert Measured(without, seconds, {}, {}, {}).ratios == {"spark_jvm": 4.0}


def test_contenders_can_be_chosen_and_unknown_ones_are_refused() -> None:
    workload = workload_named("window")
    assert list(chosen_contenders(workload, ["memory", "lmdb"], ["spark_jvm", "lmdb"])) == ["lmdb", "spark_jvm"]
    with pytest.raises(ConfigurationError, match=r"no contenders \['transform_with_state'\]"):
        chosen_contenders(workload, ["lmdb"], ["transform_with_state"])
    with pytest.raises(ConfigurationError, match="no workload 'sorting'; the workloads are count; "):
        measure.run(Contest("sorting", keys=10, batches=1), no_session)


def test_the_command_names_every_workload_and_contender() -> None:
    shown = CliRunner().invoke(app, ["bench", "spark", "--help"], env={"COLUMNS": "1000"}).output
    named = {*WORKLOADS, *COSTS, *(one for found in WORKLOADS.values() for one in (*found.verbs, *found.peers))}
    assert [name for name in named if name not in shown] == []


def test_the_tables_show_each_contender() -> None:
    console = Console(record=True, width=160, quiet=False, file=open(os.devnull, "w"))  # noqa: SIM115
    memory = {"lmdb": WorkerMemory(200 << 20, 90 << 20), "spark_jvm": WorkerMemory()}
    contest = Contest("count", 10, 2, 1000, ["lmdb"], contenders=["lmdb", "spark_jvm"])
    seconds = {"lmdb": [0.5, 0.5], "spark_jvm": [0.2, 0.25, 0.5]}
    disk = {"lmdb": 3 << 20, "spark_jvm": 0}
    processor = {"lmdb": 1.5, "spark_jvm": 0.0}
    measured = Measured(contest, seconds, memory, disk, processor, failed={"verbs": "no [luck]"})
    tables.print_results(console, document_of([measured]))
    shared = {"workload": "count", "rows": 1000, "keys": 10, "worker_bytes": {"lmdb": asdict(memory["lmdb"])}}
    batch_seconds = {"lmdb": [1.0, 1.5], "spark_jvm": [1.0, 1.0]}
    tables.print_growth(console, {**shared, "batch_seconds": batch_seconds, "growth": {"lmdb": 1.5, "spark_jvm": 1.0}})
    lines = [line.replace(" ", "") for line in console.export_text().splitlines()]
    assert "│lmdb│2,000│2,000to2,000│0.50│0.75│200│90│3│" in lines
    assert "│spark_jvm│4,000│2,000to5,000│0.25│││││" in lines
    assert {"│lmdb│0.50│", "│spark_jvm│1.00│"} <= set(lines)
    assert any("│verbs" in line and "no[luck]" in line for line in lines)
    assert "│lmdb│2│1.00│1.50│1.50│200│90│" in lines


def test_backends_are_called_as_given_each_once_and_without_their_secrets() -> None:
    given = ["lmdb", "redis://:one@host", "lmdb", "redis://:two@host", "memory"]
    assert list(named(given).values()) == ["lmdb", "redis://:one@host", "redis://:two@host", "memory"]
    labels = list(named(given))
    assert len(set(labels)) == 4
    assert not any(secret in label for label in labels for secret in ("one", "two"))


def test_no_figure_is_lost_where_a_directory_cannot_be_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def written_to_meanwhile(path: str, *, dir_fd: int | None = None) -> None:
        raise OSError(39, "Directory not empty", path)

    with scratch(tmp_path) as directory:
        monkeypatch.setattr(os, "rmdir", written_to_meanwhile)
    assert Path(directory).exists()


def test_contenders_take_turns_in_alternating_order_and_the_slow_one_has_one() -> None:
    names = ["lmdb", TRANSFORM_WITH_STATE, "verbs"]
    quick = ["lmdb", "verbs"]
    assert measure.rounds(names, 2) == [quick, names, quick[::-1]]
    assert measure.rounds(names, 3) == [quick, names, quick[::-1], quick]


def test_several_workloads_share_what_is_asked_and_each_takes_the_contenders_that_it_has() -> None:
    how = {"keys": 10, "batches": 1, "backends": ["lmdb"]}
    found = contests(["count", "exchange", "count"], contenders=["spark_jvm", "lmdb"], **how)
    assert [(one.workload, list(one.chosen)) for one in found] == [
        ("count", ["lmdb", "spark_jvm"]),
        ("exchange", ["lmdb"]),
    ]
    with pytest.raises(ConfigurationError, match="the workload exchange has none of the contenders"):
        contests(["count", "exchange"], contenders=["spark_jvm"], **how)
    with pytest.raises(ConfigurationError, match=r"no contenders \['nobody'\]"):
        contests(["count", "exchange"], contenders=["lmdb", "nobody"], **how)


@pytest.mark.parametrize(("arguments", "told"), [([], "default"), (["--tuned"], "tuned")])
def test_figures_say_in_which_session_they_were_measured(
    arguments: list[str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    @contextmanager
    def no_session_needed(cores: int, *, tuned: bool) -> Iterator[None]:
        asked.append(tuned)
        yield

    monkeypatch.setattr(queries, "session_when_needed", no_session_needed)
    monkeypatch.setattr(measure, "run", lambda contest, spark, watch: Measured(contest, {"lmdb": [0.5]}, *_NOTHING))
    command = ["bench", "spark", "--backend", "lmdb", "--contender", "lmdb", "--json", "-", *arguments]
    ran = CliRunner().invoke(app, command)
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["settings"]["session"] == told
    assert asked == [told == "tuned"]


@pytest.mark.parametrize(("count", "told"), [(99, False), (100, True)])
def test_there_are_latencies_of_a_hundred_micro_batches_and_not_of_fewer(count: int, told: bool) -> None:
    contest = Contest("count", 10, count, 1000, ["lmdb"], contenders=["lmdb"])
    seconds = {"lmdb": [0.001 * (number + 1) for number in range(count)]}
    measured = Measured(contest, seconds, {"lmdb": WorkerMemory()}, {"lmdb": 0}, {"lmdb": 3.0})
    (result,) = parsed_document(json.loads(json.dumps(document("spark", document_of([measured]))))).results
    assert bool(result.latency) is told
    assert not told or result.latency["p99"] == pytest.approx(99_000)
    assert len(result.throughput.runs) == count
    assert result.cpu_s == 3.0


def failing(fails: dict[str, int]) -> Any:
    """Return ``Contest.hold`` without Spark: contenders take as many seconds as their names have letters.

    Args:
        fails: the contenders that fail, and after how many runs.
    """
    left = dict(fails)

    def run_first(name: str, skipped: int, counted: int) -> Ran:
        if name in left:
            left[name] -= 1
            if left[name] < 0:
                raise MillpondError(f"{name} ran aground\n=== Streaming Query ===\nof many lines")
        return Ran([float(len(name))] * counted, WorkerMemory(1, 1), processor=2.0 * counted)

    @contextmanager
    def hold(self: Contest, spark: Any, batches: int, *, growing: bool = False) -> Iterator[Runs]:
        yield Runs(run_first)

    return hold


@pytest.mark.parametrize("runs_before", [0, 1, 2])
def test_a_contender_that_fails_is_told_and_the_others_keep_their_figures(
    runs_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = {"memory": 6.0, "map_in_arrow": 12.0}
    contest = Contest("exchange", 10, 2, backends=["memory", "lmdb"], contenders=[*chosen, "lmdb"])
    monkeypatch.setattr(Contest, "hold", failing({"lmdb": runs_before}))
    figures = document_of([measure.run(contest, no_session)])
    query = figures["queries"]["exchange"]
    assert query["seconds_per_batch"] == chosen
    assert query["batch_seconds"].keys() == query["worker_bytes"].keys() == chosen.keys()
    assert query["ratios"] == {"map_in_arrow": 2.0}
    found = parsed_document(json.loads(json.dumps(document("spark", figures))))
    assert (found.benchmark, found.unit) == ("spark", "rows")
    assert [(one.contender, one.reason) for one in found.failures] == [("lmdb", "MillpondError: lmdb ran aground")]
    assert {one.contender: one.throughput.median for one in found.results} == {
        name: contest.rows / seconds for name, seconds in chosen.items()
    }
    assert [one.cpu_s for one in found.results] == [8.0, 8.0]  # two micro-batches in each of two queries
    assert [(one.label, one.kind, one.distribution) for one in found.contenders] == [
        ("memory", "backend", "millpond"),
        ("lmdb", "backend", "millpond"),
        ("map_in_arrow", "peer", "pyspark"),
    ]


@pytest.mark.parametrize("way", [["--growth", "--batches", "2"], ["--batches", "1"]])
def test_the_command_tells_of_contenders_that_fail_writes_the_others_and_ends_with_1(
    way: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Contest, "hold", failing({"lmdb": 0}))
    figures, chosen = tmp_path / "figures.json", ["--contender=lmdb", "--contender=map_in_arrow"]
    command = ["bench", "spark", "--workload=exchange", *way, *chosen, "--json", str(figures)]
    if "--growth" in way:
        result = CliRunner().invoke(app, [*command, "--workload=count"])
        assert "one workload at a time; give --workload once" in str(result.exception)
        result = CliRunner().invoke(app, [*command, "--html", str(tmp_path / "page.html")])
        assert "there is no page of growth; leave out --html" in str(result.exception)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1, result.output
    assert "MillpondError: lmdb ran aground" in result.output
    written = json.loads(figures.read_text())
    assert written.get("queries", {"exchange": written})["exchange"]["batch_seconds"].keys() == {"map_in_arrow"}


def test_the_command_takes_several_backends_and_workloads_and_writes_nothing_but_figures_to_the_standard_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Contest, "hold", failing({}))
    options = ["--backend=memory", "--backend=lmdb://?sync=true", "--workload=count", "--workload=exchange"]
    result = CliRunner().invoke(app, ["bench", "spark", *options, "--batches=1", "--seed=5", "--repeat=3", "--json=-"])
    assert result.exit_code == 0, result.output
    found = parsed_document(json.loads(result.stdout))
    assert found.workloads() == ["count", "exchange"]
    assert {"memory", "lmdb://?sync=true", "verbs", "spark_jvm"} <= {one.label for one in found.contenders}
    assert "rocksdb" not in {one.label for one in found.contenders}
    assert (found.settings["seed"], found.settings["repeat"]) == (5, 3)
    assert {len(one.throughput.runs) for one in found.results if one.contender != TRANSFORM_WITH_STATE} == {3}


def test_what_makes_no_sense_is_refused_before_anything_starts() -> None:
    result = CliRunner().invoke(app, ["bench", "spark", "--backend=nothing"])
    assert isinstance(result.exception, ConfigurationError)
    assert "nothing" in str(result.exception)


def test_if_the_backend_fails_that_was_to_be_compared_the_peers_keep_their_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    contest = Contest("exchange", 10, 2, backends=["lmdb"], contenders=["lmdb", "map_in_arrow"])
    monkeypatch.setattr(Contest, "hold", failing({"lmdb": 0}))
    found = measure.run(contest, no_session)
    assert found.per_batch == {"map_in_arrow": 12.0}
    assert found.ratios == {}


def test_micro_batches_can_be_written_later_and_go_on(tmp_path: Path) -> None:
    topics = WORKLOADS["count"].topics
    write_inputs(tmp_path, topics, Scale(40, 40), 1, growing=True)
    write_inputs(tmp_path, topics, Scale(5, 40), 2, first=1)
    written = [pq.read_table(path)["key"].to_pylist() for path in sorted((tmp_path / "events").iterdir())]
    assert list(map(len, written)) == [40, 5, 5]
    assert len(set(written[0])) == 40
    assert written[1] != written[2]


def test_a_micro_batch_that_wrote_a_snapshot_is_known_by_the_moment() -> None:
    took = {"triggerExecution": 1500, "addBatch": 1000}
    report = {"batchId": 7, "timestamp": "1970-01-01T00:01:40.000Z", "durationMs": took}
    number, end, batch, _ = counting.ran_of(report, 64, [99.9, 101.6])
    assert (number, end) == (7, 101.5)
    assert (batch.seconds, batch.disk, batch.snapshot) == ({"wall": 1.5, "add_batch": 1.0}, 64, False)
    assert counting.ran_of(report, 64, [99.9, 101.4]).batch.snapshot


@pytest.mark.long
@pytest.mark.spark
def test_an_upgrade_on_spark_goes_through_every_phase(tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    arguments = ["bench", "upgrade", "--spark", "--keys", "200", "--rows", "40", "--batches", "2", "--json"]
    arguments += [str(written), "--backend", "lmdb", "--upgrade", "checksums", "--directory", str(tmp_path)]
    command = [sys.executable, "-c", "from millpond.cli import main; main()", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(written.read_text())["phases"]
    rolled, in_place = ["offline", "warming", "warm", "rolled over"], ["preparing", "prepared", "after"]
    assert [row["phase"] for row in figures] == ["before", *rolled, "before", *in_place]
    assert all(row["batches"] >= 2 for row in figures if row["phase"] in ("before", "warm", "prepared", "after"))
    assert figures[5]["wall"]["pause_p50"] == 1.0
    disk = [row["most_disk_bytes"] for row in figures]
    assert min(disk[3], disk[7]) > disk[0]
    assert [path.name for path in tmp_path.iterdir()] == [written.name]


@pytest.mark.long
@pytest.mark.spark
def test_a_query_with_much_state_goes_through_every_phase(tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    arguments = ["bench", "scale", "--keys", "400", "--rows", "40", "--batches", "3", "--small-rows", "10"]
    arguments += ["--small-batches", "2", "--partitions", "2", "--json", str(written), "--directory", str(tmp_path)]
    command = [sys.executable, "-c", "from millpond.cli import main; main()", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(written.read_text())
    counted = {name: (phase["rows"], phase["batches"]) for name, phase in figures["phases"].items()}
    assert counted == {
        "filling": (40, 9),
        "updates": (40, 3),
        "small updates": (10, 2),
        "after a restart": (10, 5),
        "beside a standby": (10, 5),
        "taken over from a standby": (10, 5),
        "after the loss of the local copies": (10, 5),
    }
    restored = {name: phase["restored_rows"] for name, phase in figures["phases"].items()}
    assert restored["after a restart"] == 0
    assert restored["taken over from a standby"] < 400 <= restored["after the loss of the local copies"]
    files = figures["files"]
    assert files["retained_batches"] == 10 + 4 + 3 + 6 + 6 + 6 + 6
    assert files["retained_bytes"] >= files["bytes"] > 0
    assert files["delta_bytes_per_row"] > 0
    assert 0 < figures["look_up_s"]["found"] < 30
    assert [path.name for path in tmp_path.iterdir()] == [written.name]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "counted"), [(["--batches", "1"], 2), (["--growth", "--batches", "2"], 2)], ids=["run", "growth"]
)
def test_the_command_measures_the_chosen_and_writes_the_figures(
    options: list[str], counted: int, tmp_path: Path
) -> None:
    figures, chosen = tmp_path / "figures.json", ["memory", "map_in_arrow"]
    arguments = ["bench", "spark", "--workload", "exchange", "--rows", "60", "--keys", "40", "--backend", "memory"]
    arguments += [*options, *(f"--contender={name}" for name in chosen), "--json", str(figures)]
    command = [sys.executable, "-c", "from millpond.cli import main; main()", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    written = json.loads(figures.read_text())
    query = written if "--growth" in options else written["queries"]["exchange"]
    seconds = query["batch_seconds"]
    assert {name: len(times) for name, times in seconds.items()} == dict.fromkeys(chosen, counted)
    if "--growth" in options:
        assert written["growth"] == {name: times[1] / times[0] for name, times in seconds.items()}
    else:
        per_batch = {name: sum(times) / 2 for name, times in seconds.items()}
        assert query["seconds_per_batch"] == pytest.approx(per_batch)
        assert query["ratios"] == pytest.approx({"map_in_arrow": per_batch["map_in_arrow"] / per_batch["memory"]})
        results = {one.contender: one for one in parsed_document(written).results}
        rates = {name: one.throughput.median for name, one in results.items()}
        assert rates == pytest.approx({name: 60 / one for name, one in per_batch.items()})
        assert (results["memory"].peak_rss_bytes or 0) > 10 << 20


BURNS = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True); input()"
"""A program that takes 0.3 seconds of the processor and waits."""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_what_marked_processes_take_is_seen_and_no_other() -> None:
    holds = f"import time; kept = bytearray(b'x' * (64 << 20)); {BURNS.replace('input()', 'time.sleep(60)')}"
    watches = [WorkerWatch("mine"), WorkerWatch("nobody's")]
    for watch in watches:
        watch.start()
    with subprocess.Popen(
        [sys.executable, "-c", holds], env={**os.environ, MARK: "mine"}, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        mine, other = (watch.stop() for watch in watches)
        process.kill()
    spent = [watch.spent_by_workers.between(0, time.time()) for watch in watches]
    assert 0.25 <= spent[0] < 10
    assert spent[1] == 0
    assert 64 << 20 < mine.own <= mine.resident < 1 << 30
    assert other == WorkerMemory()


STARTS = f"""
import signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", {BURNS!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(flush=True); input()
child.kill()
child.wait()
print(flush=True); input()
"""
"""A program that lets another one do that, waits, ends it, and waits. Nobody asks for what the other has spent."""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_processor_time_is_that_of_all_that_came_from_a_process_also_of_what_is_gone() -> None:
    command = [sys.executable, "-c", STARTS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        of_both, of_us = ProcessorTime.of_family(process.pid), ProcessorTime.of_family(os.getpid())
        with_the_child = of_both.look()
        assert 0.25 <= with_the_child < 10  # the system counts in hundredths
        assert of_us.look() >= with_the_child
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        assert of_both.look() >= with_the_child
        assert ProcessorTime.of_family(process.pid).look() <= of_both.look() - 0.25
        process.kill()
    assert ProcessorTime.of_family(process.pid).look() == 0


def test_processor_time_between_two_looks_is_spent_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([7.0, 8.0, 12.0])
    monkeypatch.setattr(processor_time.ProcessorTime, "look", lambda self: next(seconds))
    spent = processor_time.Spent()
    for moment in (100.0, 100.5, 102.5):
        spent.look(moment)
    assert spent.between(100.25, 101.5) == pytest.approx(0.5 + 2.0)
    assert spent.between(99.0, 200.0) == pytest.approx(5.0)
