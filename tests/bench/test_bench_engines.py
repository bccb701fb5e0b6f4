"""The benchmark of engines does what db_bench and YCSB do, on every engine that takes part, and says what it found."""

import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from millpond.adapters.rocksdb import RocksDbSupplier
from millpond.bench.engines import recording, run, tables
from millpond.bench.engines.contenders import ContenderKind, ContractEngine, contenders, opener
from millpond.bench.engines.engine import OrderedEngine, Use
from millpond.bench.engines.peers import PEERS
from millpond.bench.engines.raw import ENGINES, RawRocksDb
from millpond.bench.engines.workloads import WORKLOADS, Kind, Sizes, rows_of
from millpond.bench.runs.process import reason
from millpond.bench.runs.recording import Values, by_operation, clock_ns, record
from millpond.bench.runs.summary import latency_us
from millpond.cli import app
from millpond.errors import ConfigurationError
from millpond.stores.backend.registry import supplier
from tests.bench.engine_checks import check_engine
from tests.contract.distributions import install

SMALL = Sizes(records=60, operations=40, warm_up=5)
SOME = Sizes(records=400, operations=3_000, batch=7, warm_up=20)
PLUGIN = """
from millpond.bench.engines.raw import RawMemory
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.backend.memory import MemoryBackend, MemorySupplier
from dataclasses import dataclass

class FailsAtScans(MemoryBackend):
    def scan(self, start=None, stop=None, *, reverse=False):
        raise OSError("lost redis://me:hunter2@host")

@dataclass(frozen=True)
class Supplier(MemorySupplier):
    name = "other"
    password: str = ""
    @classmethod
    def from_options(cls, options):
        return cls(**options)
    def open(self, directory):
        return FailsAtScans()

class Engine(RawMemory):
    package = "other-engine"
"""


class Counting(OrderedEngine):
    """Counts what it is asked, and keeps no more than keys."""

    package = "none"

    def __init__(self) -> None:
        super().__init__(Path(), Use())
        self.asked: list[tuple[str, Any]] = []

    def getter(self) -> Callable[[bytes], Any]:
        return lambda key: self.asked.append(("get", key))

    def put_each(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        self.asked.append(("put", rows))

    def delete_each(self, keys: Sequence[bytes]) -> None:
        self.asked.append(("delete", keys))

    def scan(self, start: bytes, count: int) -> int:
        self.asked.append(("scan", (start, count)))
        return count

    def entries(self, *, reverse: bool) -> Iterator[Any]:
        self.asked.append(("entries", reverse))
        return iter(range(10**9))

    def close(self) -> None:
        self.asked.clear()


def asked(workload: str, sizes: Sizes) -> list[tuple[str, Any]]:
    """Return the calls that the measured steps make on an engine."""
    engine, plan = Counting(), WORKLOADS[workload].plan(sizes, 0)
    work = recording.work_of(engine, Values(sizes.value_bytes, 1), {kind for kind, _ in plan.steps})
    times = record(plan.steps, work)
    assert len(times) == len(plan.steps)
    assert sum(map(rows_of, plan.steps)) == WORKLOADS[workload].operations(sizes)
    return engine.asked


def numbers(keys: Sequence[bytes]) -> list[int]:
    assert {len(key) for key in keys} == {16}
    return list(map(int, keys))


def test_fills_write_as_many_rows_as_there_are_records_in_batches() -> None:
    for workload in ("fillseq", "fillrandom"):
        writes = asked(workload, SOME)
        assert [kind for kind, _ in writes] == ["put"] * 58
        assert [len(rows) for _, rows in writes] == [7] * 57 + [1]
        rows = [row for _, rows in writes for row in rows]
        assert {len(value) for _, value in rows} == {100}
        assert len({value for _, value in rows}) == 400
        written = numbers([key for key, _ in rows])
        if workload == "fillseq":
            assert written == list(range(400))
        else:
            assert set(written) < set(range(400))
            assert 0.55 * 400 < len(set(written)) < 0.72 * 400
        assert WORKLOADS[workload].plan(SOME, 0).loaded == []


@pytest.mark.parametrize(
    ("workload", "method"),
    [("overwrite", "put"), ("readrandom", "get"), ("seekrandom", "scan"), ("deleterandom", "delete")],
)
def test_random_workloads_touch_rows_that_are_there_all_over(workload: str, method: str) -> None:
    calls = asked(workload, SOME)
    assert {kind for kind, _ in calls} == {method}
    batched = method in ("put", "delete")
    assert len(calls) == (429 if batched else 3_000)
    flat = [one for _, argument in calls for one in (argument if batched else [argument])]
    keys = flat if method in ("get", "delete") else [key for key, _ in flat]
    assert set(numbers(keys)) <= set(range(400))
    assert len(set(keys)) > 390
    assert max(Counter(keys).values()) < 25
    if method == "scan":
        assert {count for _, count in flat} == {1}
    loaded = WORKLOADS[workload].plan(SOME, 0).loaded
    assert sorted(numbers(loaded)) == list(range(400)) != numbers(loaded)


def test_turnover_puts_batches_behind_all_rows_and_deletes_as_many_of_the_first() -> None:
    calls = asked("turnover", SOME)
    assert [kind for kind, _ in calls] == ["put", "delete"] * (len(calls) // 2)
    new = numbers([key for kind, rows in calls if kind == "put" for key, _ in rows])
    old = numbers([key for kind, keys in calls if kind == "delete" for key in keys])
    plan = WORKLOADS["turnover"].plan(SOME, 0)
    before = sum(map(rows_of, plan.warm_up)) // 2
    assert old == list(range(before, before + 1_500))
    assert new == [400 + number for number in old]
    assert numbers(plan.loaded) == list(range(400))
    assert max(len(argument) for _, argument in calls) == 7
    assert [kind for kind, _ in asked("turnover", Sizes(records=1, operations=1))] == ["put", "delete"]


def test_walks_go_from_row_to_row_once() -> None:
    for workload, reverse in (("readseq", False), ("readreverse", True)):
        assert asked(workload, SOME) == [("entries", reverse)]
        plan = WORKLOADS[workload].plan(SOME, 0)
        assert (len(plan.loaded), len(plan.warm_up), len(plan.steps)) == (400, 20, 400)
        assert WORKLOADS[workload].operations(SMALL) == 40


@pytest.mark.parametrize(
    ("workload", "shares"),
    [
        ("ycsb-a", {"read": 0.5, "update": 0.5}),
        ("ycsb-b", {"read": 0.95, "update": 0.05}),
        ("ycsb-c", {"read": 1.0}),
        ("ycsb-d", {"read": 0.95, "insert": 0.05}),
        ("ycsb-e", {"scan": 0.95, "insert": 0.05}),
        ("ycsb-f", {"read": 0.5, "read_modify_write": 0.5}),
    ],
)
def test_ycsb_mixes_kinds_as_it_says_on_rows_that_are_there(workload: str, shares: dict[str, float]) -> None:
    plan = WORKLOADS[workload].plan(SOME, 0)
    counts = Counter(kind.value for kind, _ in plan.steps)
    assert counts.keys() == shares.keys()
    for kind, share in shares.items():
        assert counts[kind] / 3_000 == pytest.approx(share, abs=0.03)
    there = set(plan.loaded)
    assert len(there) == 400
    for kind, argument in [*plan.warm_up, *plan.steps]:
        if kind is Kind.INSERT:
            assert there.isdisjoint(argument)
            there.update(argument)
        else:
            assert (argument[0] if kind in (Kind.SCAN, Kind.UPDATE) else argument) in there


def test_scans_of_ycsb_are_of_1_to_100_rows() -> None:
    lengths = [argument[1] for kind, argument in asked("ycsb-e", SOME) if kind == "scan"]
    assert (min(lengths), max(lengths)) == (1, 100)
    assert sum(lengths) / len(lengths) == pytest.approx(50.5, abs=3)


def test_a_read_with_an_update_asks_for_the_row_and_writes_it() -> None:
    calls = asked("ycsb-f", SMALL)
    pairs = [(before, call) for before, call in pairwise(calls) if call[0] == "put"]
    assert len(pairs) > 10
    for before, (_, rows) in pairs:
        assert before == ("get", rows[0][0])


def test_all_contenders_do_the_same_and_each_run_does_something_else() -> None:
    workload = WORKLOADS["ycsb-a"]
    assert workload.plan(SOME, 1) == workload.plan(SOME, 1) != workload.plan(SOME, 2)
    assert workload.plan(SOME, 1) != workload.plan(Sizes(400, 3_000, warm_up=20, seed=2), 1)


def test_every_engine_does_what_the_steps_mean(tmp_path: Path) -> None:
    for name, engine in {**ENGINES, **PEERS}.items():
        check_engine(engine(tmp_path / f"raw-{name}", Use(cache_bytes=100_000, synced=name == "sqlite3")))
    for name in ENGINES:
        check_engine(ContractEngine(tmp_path / name, Use(supplier(name), synced=True)))


def test_percentiles_are_of_the_nearest_rank_and_stretches_are_of_equal_length() -> None:
    times = list(range(1_000, 1_001_000, 1_000))
    assert latency_us(times) == {"p50": 500, "p90": 900, "p99": 990, "p99_9": 999, "max": 1_000}
    steps = [(Kind.READ, b"k")] * 500 + [(Kind.UPDATE, [b"k"] * 3)] * 500
    points = recording.over_time(steps, [1_000_000] * 1_000)
    assert len(points) == 100
    assert points[0][0] == pytest.approx(0.01)
    assert points[-1][0] == pytest.approx(1)
    assert [point[1] for point in (points[10], points[90])] == pytest.approx([1_000, 3_000], rel=0.11)
    split = by_operation(steps, times)
    assert split is not None
    assert (split["read"]["max"], split["update"]["p50"]) == (500, 750)
    assert by_operation(steps[:500], times[:500]) is None
    assert 0 < clock_ns() < 100_000


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution with a backend that fails at scans, and with an engine under it."""
    (tmp_path / "other_backend.py").write_text(PLUGIN)
    install(tmp_path, "millpond-other", other="other_backend:Supplier")
    entries = tmp_path / "millpond_other-1.0.dist-info" / "entry_points.txt"
    entries.write_text(f"{entries.read_text()}\n[millpond.bench.engines]\nother = other_backend:Engine\n")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.long
@pytest.mark.usefixtures("plugin")
def test_whoever_fails_is_reported_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "other://?password=hunter2"
    backends = [argument for name in ("memory", "lmdb", "rocksdb", secret) for argument in ("--backend", name)]
    sizes = ["--records", "60", "--operations", "40", "--batch", "4", "--repeat", "1", "--cache-ratio", "2"]
    workloads = ["--workload", "seekrandom", "--workload", "ycsb-a"]
    arguments = ["bench", "engines", *backends, *sizes, *workloads, "--peer", "diskcache", "--json", "-"]
    monkeypatch.setattr(sys, "argv", ["millpond", *arguments])
    ended = CliRunner().invoke(app, arguments)
    assert ended.exit_code == 1, ended.output
    figures = json.loads(ended.stdout)
    assert "hunter2" not in ended.output
    assert shlex.split(figures["command"])[9:11] == ["--backend", "other://?password=***"]
    assert (figures["benchmark"], figures["schema"], figures["unit"]) == ("engines", 2, "operations")
    assert figures["settings"].items() >= {"data_bytes": 60 * 116, "cache_bytes": 60 * 58, "warm_up": 4}.items()
    assert [(row["label"], row["kind"], row["distribution"]) for row in figures["contenders"]] == [
        ("memory (Millpond)", "backend", "millpond"),
        ("sortedcontainers (raw)", "engine", "sortedcontainers"),
        ("lmdb (Millpond)", "backend", "millpond"),
        ("lmdb (raw)", "engine", "lmdb"),
        ("rocksdb (Millpond)", "backend", "millpond"),
        ("rocksdict (raw)", "engine", "rocksdict"),
        ("other://?password=*** (Millpond)", "backend", "millpond-other"),
        ("other-engine (raw, password=***)", "engine", "other-engine"),
        ("diskcache", "peer", "diskcache"),
    ]
    assert {(row["contender"], row["workload"]): row["reason"] for row in figures["failures"]} == {
        ("other://?password=*** (Millpond)", "seekrandom"): "OSError: lost redis://***@host",
        ("diskcache", "seekrandom"): run.UNORDERED,
    }
    assert len(figures["results"]) == 16
    check_results(figures["results"])
    console = Console(record=True, width=200, file=(tmp_path / "out").open("w"))
    tables.print_results(console, figures)
    shown = console.export_text()
    assert "other://?password=*** (Millpond)" in shown
    assert "data 2 times the cache" in shown


def check_results(results: Sequence[dict[str, Any]]) -> None:
    for row in results:
        throughput, latency = row["throughput"], row["latency_us"]
        assert row["operations"] == 40
        assert 0 < throughput["min"] <= throughput["median"] <= throughput["max"]
        assert list(latency.values()) == sorted(latency.values())
        assert (row["by_operation"] is None) == (row["workload"] == "seekrandom")
        assert 0 < len(row["over_time"]) <= 100
        assert row["peak_rss_bytes"] > 10 * 2**20
        assert row["cpu_s"] >= 0
        on_disk = not row["contender"].startswith(("memory", "sortedcontainers", "other"))
        assert (row["disk_bytes"] > 60 * 116) == on_disk
        assert (row["write_amplification"] is not None) == row["contender"].startswith("rocks")


DEADLY = """
import os
from dataclasses import dataclass
from millpond.stores.backend.memory import MemorySupplier

@dataclass(frozen=True)
class Deadly(MemorySupplier):
    name = "deadly"
    def open(self, directory):
        os.abort()

@dataclass(frozen=True)
class Sticky(MemorySupplier):
    name = "sticky"
    def destroy(self, directory):
        raise ConnectionError("no way to redis://me:hunter2@host")
"""


def test_a_process_that_dies_is_a_failure_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY)
    install(tmp_path, "millpond-deadly", deadly="deadly:Deadly", sticky="deadly:Sticky")
    monkeypatch.syspath_prepend(str(tmp_path))
    contest = run.Contest(["deadly", "sticky", "memory"], [], ["ycsb-c"], SMALL, repeat=2, directory=tmp_path)
    seen: list[str] = []
    figures = run.run(contest, lambda workload, label: seen.append(label))
    assert run.broken(figures)
    died, left = figures["failures"]
    assert died["reason"] == "its process ended with signal 6: it said nothing"
    assert left["reason"].endswith("could not be deleted: ConnectionError: no way to redis://***@host")
    once, twice = {"deadly (Millpond)": 1, "sticky (Millpond)": 1}, ["memory (Millpond)", "sortedcontainers (raw)"]
    assert Counter(seen) == once | dict.fromkeys(twice, 2)
    assert [len(row["throughput"]["runs"]) for row in figures["results"]] == [2, 2]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("millpond-bench")] == []


def test_a_peer_whose_package_is_missing_says_which_extra_brings_it() -> None:
    assert reason(ModuleNotFoundError("No module named 'diskcache'", name="diskcache")) == (
        "needs the module diskcache, which is not installed; 'millpond[peers]' brings what peers need"
    )


def test_what_makes_no_sense_is_refused_before_anything_runs(tmp_path: Path) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"workloads": ["readrandon"]}, "there is no workload 'readrandon'"),
        ({"peers": ["redis"]}, "there is no peer 'redis'; the peers are rocksdict"),
        ({"backends": ["lmbd"]}, "did you mean 'lmdb'"),
        ({"backends": []}, "nobody to measure"),
        ({"durability": "full"}, "must be none or synced"),
        ({"cache_ratio": 0.0}, "must be above 0"),
        ({"repeat": 0}, "at least 1"),
        ({"directory": tmp_path / "absent"}, "is no directory"),
    ]
    whole: dict[str, Any] = {"backends": ["memory"], "peers": [], "workloads": [], "sizes": SMALL}
    for given, message in refused:
        with pytest.raises(ConfigurationError, match=message):
            run.Contest(**{**whole, **given}).taking_part()
    with pytest.raises(ConfigurationError, match="not 1,005 keys of 3 digits"):
        Sizes(records=1_000, operations=5, key_bytes=3)
    with pytest.raises(ConfigurationError, match="batch is 0"):
        Sizes(records=1, operations=1, batch=0)


def test_a_contender_is_there_once_and_says_what_its_writes_have_done() -> None:
    urls = ["lmdb", "lmdb://?sync=true", "rocksdb://?block_cache=1MiB"]
    found = {one.label: one for one in contenders(urls, ["lmdb", "rocksdict"], Use(cache_bytes=5_000, synced=True))}
    assert list(found) == [
        "lmdb (Millpond)",
        "lmdb (raw)",
        "lmdb://?sync=true (Millpond)",
        "lmdb (raw, sync=true)",
        "rocksdb://?block_cache=1MiB (Millpond)",
        "rocksdict (raw, block_cache=1MiB)",
        "rocksdict (raw)",
    ]
    assert found["lmdb (Millpond)"].durability == "flushed after each write"
    assert found["lmdb (raw)"].durability == "each transaction synced, data and then root"
    small = "RocksDB's block cache, 5,000 bytes; a table of writes no larger, unless below 1 MiB"
    assert found["rocksdict (raw)"].cache == small
    assert found["rocksdict (raw, block_cache=1MiB)"].cache == "RocksDB's block cache"
    twice = contenders(["lmdb://?map_size=1GiB", "lmdb://?map_size=1.0GiB", "lmdb://?map_size=1GiB"], [], Use())
    assert len(twice) == 4


@pytest.mark.parametrize("kind", ["backend", "engine"])
def test_a_table_of_writes_is_no_larger_than_a_cache_that_was_asked_for(kind: ContenderKind) -> None:
    def buffer(source: str, cache_bytes: int | None) -> int:
        _, use = opener(kind, source, Use(cache_bytes=cache_bytes))
        assert isinstance(use.supplier, RocksDbSupplier)
        return use.supplier.write_buffer_size

    assert buffer("rocksdb", None) == 64 * 2**20
    assert buffer("rocksdb", 10 * 2**20) == 10 * 2**20
    assert buffer("rocksdb", 5_000) == 2**20
    assert buffer("rocksdb", 2**30) == 64 * 2**20
    assert buffer("rocksdb://?write_buffer_size=32MiB", 10 * 2**20) == 32 * 2**20
    assert buffer("rocksdb://?block_cache=1MiB", 10 * 2**20) == 64 * 2**20


@pytest.mark.parametrize(("cache_bytes", "tables"), [(None, False), (2**20, True)])
def test_rows_beyond_a_small_cache_are_in_tables_on_the_disk(
    tmp_path: Path, cache_bytes: int | None, tables: bool
) -> None:
    engine = RawRocksDb(tmp_path / "store", Use(cache_bytes=cache_bytes))
    engine.put_each([(b"%06d" % number, bytes(1_000)) for number in range(10_000)])
    engine.put_each([(b"%06d" % number, bytes(1_000)) for number in range(10_000)])
    found = list((tmp_path / "store").glob("*.sst"))
    engine.close()
    assert bool(found) is tables
