"""The benchmark of stores does what its patterns say, and sees for itself that the stores hold what they must."""

import json
import sys
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from millpond.bench.compare import compared
from millpond.bench.documents import PERCENTILES, parsed_document, read_document
from millpond.bench.engines.raw import RawMemory, engine_class, raw_engine
from millpond.bench.report import document
from millpond.bench.rows import VALUE_SIZE
from millpond.bench.runs.process import answer
from millpond.bench.runs.recording import Values, record, same
from millpond.bench.stores import worker
from millpond.bench.stores.driving import on_engine, on_store
from millpond.bench.stores.pattern import Kind, Opened, Pattern, Plan
from millpond.bench.stores.patterns import PATTERNS, AnyPattern
from millpond.bench.stores.place import Place
from millpond.bench.stores.run import NO_ENGINE, NOTHING_KEPT, Contest, broken, run, runs
from millpond.bench.stores.sizes import Sizes
from millpond.bench.stores.whole_stores import COMMITS, Restore, Upgrade, WholeStore
from millpond.bench.stores.windows import RETENTION, RETENTIONS, SEGMENT, JoinChurn, SessionChurn, WindowChurn
from millpond.cli import app
from millpond.errors import ConfigurationError
from millpond.stores.backend.memory import MemorySupplier
from millpond.stores.backend.registry import supplier
from millpond.stores.durability.state import TaskState
from tests.contract.distributions import install

SMALL = Sizes(keys=80, records=600, batch=50, warm_up=60)
STEPWISE = [pattern for pattern in PATTERNS.values() if isinstance(pattern, Pattern)]
BACKENDS = ["memory", "lmdb", "rocksdb"]
MILLPOND = [f"{name} (Millpond)" for name in BACKENDS]
ENGINES = ["sortedcontainers (raw)", "lmdb (raw)", "rocksdict (raw)"]
DATA, ABOVE = b"\x01", b"\x02"

BACKEND = """
from pathlib import Path
from dataclasses import dataclass
from millpond.stores.backend.memory import MemorySupplier

@dataclass(frozen=True)
class Supplier(MemorySupplier):
    name = "aside"
    token: str = ""
    @classmethod
    def from_options(cls, options):
        return cls(**options)
    def destroy(self, directory):
        with open(Path(__file__).parent / "destroyed", "a") as names:
            names.write(directory.name + chr(10))
"""


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The metadata of a distribution with a backend, to which entry points can be added."""
    (tmp_path / "aside_backend.py").write_text(BACKEND)
    install(tmp_path, "millpond-aside", aside="aside_backend:Supplier")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "millpond_aside-1.0.dist-info" / "entry_points.txt"


def register(points: Path, engine: str) -> None:
    points.write_text(f"{points.read_text()}\n[millpond.bench.engines]\naside = {engine}\n")


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Runs take place here; the jobs that there were."""
    jobs = []

    def measure(name: str, job: worker.Job, timeout_s: float | None) -> dict[str, Any]:
        jobs.append({**json.loads(job.text()), "worker": name})
        return worker.measure(worker.Job.of(job.text()))

    monkeypatch.setattr("millpond.bench.runs.alone.run_in_a_process", measure)
    return jobs


def test_every_pattern_is_measured_on_every_backend_and_engine_and_checks_what_the_store_holds(
    in_this_process: list[dict[str, Any]], tmp_path: Path
) -> None:
    contest = Contest(BACKENDS, [], SMALL, repeat=1, directory=tmp_path)
    watched: list[tuple[str, str]] = []
    figures = run(contest, lambda workload, contender: watched.append((workload, contender)))
    written = parsed_document(json.loads(json.dumps(document("stores", figures))))
    assert (written.benchmark, written.unit) == ("stores", "operations")
    assert not broken(figures)
    nothing = {("upgrade", label): NO_ENGINE for label in ENGINES} | {("upgrade", MILLPOND[0]): NOTHING_KEPT}
    assert {(one.workload, one.contender): one.reason for one in written.failures} == nothing
    everyone = [label for pair in zip(MILLPOND, ENGINES, strict=True) for label in pair]
    assert [(one.workload, one.contender) for one in written.results] == [
        (name, label) for name in PATTERNS for label in everyone if (name, label) not in nothing
    ]
    assert len(watched) == runs(contest, contest.taking_part()) == len(in_this_process)
    for one in written.results:
        assert one.operations == (80 if one.workload in ("restore", "upgrade") else 600)
        assert one.peak_rss_bytes
        in_memory = one.contender in (MILLPOND[0], ENGINES[0])
        assert in_memory or one.disk_bytes
        assert not in_memory or one.workload == "restore" or one.disk_bytes == 0
    single = [one for one in written.results if one.operations == 600 and "_many" not in one.workload]
    assert all(set(one.latency) == set(PERCENTILES) for one in single)
    assert list(tmp_path.iterdir()) == []


def gone_through(pattern: Pattern, opened: Opened, sizes: Sizes = SMALL) -> Plan:
    """Return the plan whose steps the store has taken, all of them."""
    plan = pattern.plan(sizes)
    work = {**pattern.work(opened.store, Values(VALUE_SIZE, 1)), Kind.COMMIT: (same, opened.commit)}
    record(list(plan.steps()), work)
    return plan


@pytest.mark.parametrize("pattern", STEPWISE, ids=lambda pattern: pattern.name)
def test_a_store_that_lost_what_a_pattern_wrote_is_found_out(pattern: Pattern, tmp_path: Path) -> None:
    with Place(MemorySupplier(), tmp_path).opened(pattern.spec) as opened:
        plan, backend = gone_through(pattern, opened), opened.transaction.backend
        pattern.check(opened, plan)
        backend.write(dict.fromkeys([row for row, _ in backend.scan(DATA, ABOVE)]))
        with pytest.raises(LookupError, match="in the store, and must be"):
            pattern.check(opened, plan)


@pytest.mark.parametrize(
    "name", ["get", "get_many", "versioned get", "versioned get, as of", "versioned get_many, as of"]
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_engine_alone_finds_every_row_that_it_is_asked_for(
    name: str, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern, found = PATTERNS[name], []

    def recorded(steps: Any, work: Any) -> Any:
        watched = {
            kind: (ready, lambda ready, act=act: found.append(act(ready))) for kind, (ready, act) in work.items()
        }
        return record(steps, watched)

    monkeypatch.setattr("millpond.bench.stores.driving.record", recorded)
    engine = raw_engine(backend, tmp_path / "engine")
    assert engine is not None
    on_engine(pattern, engine, SMALL, tmp_path)
    engine.close()
    read = found[-SMALL.total :] if "many" not in name else [row for rows in found[-14:] for row in rows]
    assert len(read) == SMALL.total
    assert all(row is not None and len(row) == VALUE_SIZE for row in read)


@pytest.mark.parametrize("pattern", [Restore(), Upgrade()], ids=lambda pattern: pattern.name)
def test_a_store_that_is_not_whole_after_it_was_restored_or_upgraded_is_found_out(
    pattern: WholeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millpond.bench.stores.whole_stores.key_of", lambda number: f"key-{number // 2}")
    with pytest.raises(LookupError, match=r"the number of (restored|upgraded) rows is 40 .* must be 80"):
        on_store(pattern, Place(supplier("lmdb"), tmp_path), SMALL)


def test_a_restore_that_left_the_deltas_out_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, manifests = TaskState.open, []

    def first_alone(state: TaskState, manifest: Any) -> Any:
        manifests.append(manifest)
        return whole(state, manifest if len(manifests) <= COMMITS + 1 else manifests[1])

    monkeypatch.setattr(TaskState, "open", first_alone)
    with pytest.raises(LookupError, match=r"the timestamp of key-.* is 0 in the store, and must be"):
        on_store(Restore(), Place(MemorySupplier(), tmp_path), Sizes(keys=400, records=1))


@pytest.mark.parametrize("pattern", STEPWISE, ids=lambda pattern: pattern.name)
def test_the_same_seed_makes_the_same_steps_and_another_one_others(pattern: Pattern) -> None:
    one, again, other = (pattern.plan(Sizes(50, 90, 20, 30, seed=seed)) for seed in (3, 3, 4))
    assert one == again != other
    assert (len(one.warm_up), len(one.batches)) == (2, 5)


@pytest.mark.parametrize("pattern", [WindowChurn(), SessionChurn(), JoinChurn()], ids=lambda pattern: pattern.name)
@pytest.mark.parametrize("records", [600, 6_000])
def test_time_goes_on_for_several_retentions_and_rows_that_expired_are_deleted(
    pattern: Pattern, records: int, tmp_path: Path
) -> None:
    with Place(MemorySupplier(), tmp_path).opened(pattern.spec) as opened:
        plan = gone_through(pattern, opened, Sizes(keys=1, records=records, batch=50))
        rows = sum(1 for _ in opened.transaction.backend.scan(DATA, ABOVE))
    times = [argument[1] for kind, argument in plan.steps() if kind is not Kind.COMMIT]
    assert max(times) - min(times) > (RETENTIONS - 1) * RETENTION
    backwards = sum(after < before for before, after in pairwise(times))
    assert records / 20 < backwards < records / 5
    hour = 3_600_000
    recent = sum(time >= max(times) - RETENTION - SEGMENT - hour for time in times)
    assert 0 < rows <= recent < records / 2


def test_contenders_take_turns_and_every_run_is_kept(in_this_process: list[dict[str, Any]]) -> None:
    figures = run(Contest(["memory"], ["put", "upsert"], SMALL, repeat=2))
    assert [(job["workload"], job["kind"]) for job in in_this_process] == [
        (workload, kind) for workload in ("upsert", "put") for kind in ("backend", "engine") * 2
    ]
    assert [len(row["throughput"]["runs"]) for row in figures["results"]] == [2] * 4


def test_growth_is_measured_as_workloads_of_their_own_with_caches_by_their_size(
    in_this_process: list[dict[str, Any]],
) -> None:
    figures = run(Contest(["rocksdb"], ["get"], SMALL, growth=[40, 400], repeat=1, cache_ratio=4))
    assert [row["workload"] for row in figures["results"]] == ["get, 40 keys"] * 2 + ["get, 400 keys"] * 2
    used = [(job["sizes"]["keys"], job["cache_bytes"]) for job in in_this_process]
    assert used == [(40, 1_160)] * 2 + [(400, 11_600)] * 2


def test_checksums_are_measured_beside_rows_without(in_this_process: list[dict[str, Any]]) -> None:
    figures = run(Contest(["lmdb"], ["upsert", "restore", "upgrade"], SMALL, checksums=True, repeat=1))
    labels = ["lmdb (Millpond)", "lmdb (Millpond, checksums)", "lmdb (raw)"]
    assert [one["label"] for one in figures["contenders"]] == labels
    assert [job["checksums"] for job in in_this_process] == [False, True, False] * 2 + [False, True]
    assert not broken(figures)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker cannot run a pattern on LMDB, as if the package were broken; the others can."""
    whole = on_store

    def broken_on_lmdb(pattern: AnyPattern, place: Place, sizes: Sizes) -> Any:
        if place.supplier.name == "lmdb":
            raise OSError("the disk is gone")
        return whole(pattern, place, sizes)

    def measure(name: str, job: worker.Job, timeout_s: float | None) -> dict[str, Any]:
        monkeypatch.setattr("sys.stdin", StringIO(job.text()))
        answer(worker.Job.of, worker.measure)
        came: dict[str, Any] = json.loads(Path(job.result).read_text())
        return came

    monkeypatch.setattr(worker, "on_store", broken_on_lmdb)
    monkeypatch.setattr("millpond.bench.runs.alone.run_in_a_process", measure)


@pytest.mark.usefixtures("failing")
def test_a_contender_that_fails_is_told_the_others_are_measured_and_the_exit_code_is_1(tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    options = ["--backend=lmdb", "--backend=memory", "--workload=upsert", "--records=40", "--keys=5", "--batch=10"]
    result = CliRunner().invoke(app, ["bench", "stores", *options, "--json", str(written)])
    assert result.exit_code == 1, result.output
    found = read_document(written)
    assert [(one.contender, one.reason) for one in found.failures] == [("lmdb (Millpond)", "OSError: the disk is gone")]
    assert [one.contender for one in found.results] == ["lmdb (raw)", "memory (Millpond)", "sortedcontainers (raw)"]
    assert "the disk is gone" in result.output


def test_the_command_runs_processes_and_writes_a_document_and_a_page_that_others_take(tmp_path: Path) -> None:
    written, page, again = tmp_path / "figures.json", tmp_path / "page.html", tmp_path / "again.html"
    options = ["--backend", "memory", "--workload", "session churn", "--workload", "restore", "--records", "600"]
    options += ["--keys", "50", "--batch", "5", "--repeat", "1", "--seed", "7", "--cache-ratio", "2"]
    result = CliRunner().invoke(app, ["bench", "stores", *options, "--json", str(written), "--html", str(page)])
    assert result.exit_code == 0, result.output
    found = read_document(written)
    assert found.workloads() == ["session churn", "restore"]
    asked = {"seed": 7, "warm_up": 60, "batch": 5, "records": 600, "keys": 50, "cache_ratio": 2, "value_bytes": 100}
    assert found.settings.items() >= asked.items()
    assert [(one.label, one.kind) for one in found.contenders] == [(MILLPOND[0], "backend"), (ENGINES[0], "engine")]
    assert set(found.results[0].by_operation) == {"merge", "commit"}
    assert all(text in page.read_text() for text in ("State stores side by side", "session churn", MILLPOND[0]))
    shown = CliRunner().invoke(app, ["bench", "page", str(written), str(again)])
    assert shown.exit_code == 0, shown.output
    assert again.read_text() == page.read_text()
    assert not compared(found, found).slower(0)


@pytest.mark.usefixtures("distribution")
def test_a_backend_of_another_distribution_is_measured_alone_shows_no_secret_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["bench", "stores", "--backend", "aside://?token=hunter2", "--workload", "upsert", "--workload"]
    arguments += ["restore", "--records", "100", "--keys", "50", "--repeat", "1", "--directory", str(tmp_path)]
    arguments += ["--json", "-"]
    monkeypatch.setattr(sys, "argv", ["millpond", *arguments])
    ended = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    assert "hunter2" not in ended.output
    found = parsed_document(json.loads(ended.stdout))
    assert [one.label for one in found.contenders] == ["aside://?token=*** (Millpond)"]
    assert [one.workload for one in found.results] == ["upsert", "restore"]
    assert not list(tmp_path.glob("millpond-bench-*"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"workloads": ["sorting"]}, "no workload 'sorting'; the workloads are upsert; put; .*; restore; upgrade"),
        ({"repeat": 0}, "repeat is 0"),
        ({"timeout_s": 0}, "the timeout is 0 s, but must be above 0"),
        ({"cache_ratio": 0}, "the ratio of data to cache is 0"),
        ({"directory": Path("nowhere")}, "nowhere is no directory"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, Any], message: str) -> None:
    whole: dict[str, Any] = {"backends": ["memory"], "workloads": [], "sizes": SMALL}
    with pytest.raises(ConfigurationError, match=message):
        Contest(**{**whole, **given})


def test_sizes_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="batch is 0"):
        Sizes(1, 1, 0)


def test_a_distribution_registers_the_engine_of_its_backend(distribution: Path) -> None:
    assert engine_class("aside") is None
    register(distribution, "millpond.bench.engines.raw:RawMemory")
    assert engine_class("aside") is RawMemory


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        ("millpond.bench.engines.raw:RawMammoth", "cannot be imported: AttributeError"),
        ("missing_module:Engine", "cannot be imported: ModuleNotFoundError"),
        ("millpond.stores.backend.memory:MemoryBackend", "no subclass of millpond.bench.engines.engine.RawEngine"),
    ],
)
def test_what_is_registered_and_is_no_engine_is_refused_by_its_distribution(
    distribution: Path, engine: str, why: str
) -> None:
    register(distribution, engine)
    with pytest.raises(ConfigurationError, match=f"the distribution millpond-aside registers '{engine}'.*{why}"):
        engine_class("aside")
