"""Requests to a query that does not run, which are refused: each is followed by what the message advises.

The command line and the calls from Python are refused in the same place.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow as pa
import pytest

from millpond.adapters.inspect.cleaning import Cleaning
from millpond.adapters.inspect.row_texts import Writer
from millpond.adapters.monitor.server import server
from millpond.adapters.rocksdb import RocksDbSupplier
from millpond.adapters.spark.copies.standby import Share, Standby
from millpond.cli import warming
from millpond.cli.state import topology_named
from millpond.cli.terminal import durations
from millpond.errors import ConfigurationError
from millpond.processors import StreamsBuilder, Topology
from millpond.releases import RELEASE, older_release
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.evolution.verbs.declarations import SaidOfVerbs
from tests.command_line.stopped_jobs import KEYS, Stopped, counts
from tests.refusing import Refused

SCHEMA = pa.schema([("k", pa.string())])
text = "no topology"
topology = StreamsBuilder().build()


class Calls:
    """Calls on a directory in which nothing is."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.storage = Storage.from_uri(place / "state")

    def served(self, port: int) -> None:
        watched: Any = None
        server(watched, port, 1.0).server_close()

    def standby(self, lag: int) -> Standby:
        nothing: Any = None
        return Standby(nothing, nothing, lag=lag)


COMMANDS = [
    Refused(
        "; give a unit: '",
        lambda calls: durations.millis("--interval", "5"),
        lambda calls: durations.millis("--interval", "5 milliseconds"),
        lambda calls: durations.millis("--interval", "5 seconds"),
    ),
    Refused(
        "; give a length above zero, as in '2 seconds'",
        lambda calls: durations.seconds("--interval", "0 seconds"),
        lambda calls: durations.seconds("--interval", "2 seconds"),
    ),
    Refused(
        "; give MODULE:NAME, as in jobs:flights",
        lambda calls: topology_named("nowhere:topology"),
        lambda calls: topology_named(f"{__name__}:topology"),
    ),
    Refused(
        "; give what StreamsBuilder.build returned",
        lambda calls: topology_named(f"{__name__}:text"),
        lambda calls: topology_named(f"{__name__}:topology"),
    ),
    Refused(
        "so give one from \n to ",
        lambda calls: older_release("9.0.0"),
        lambda calls: older_release("0.1.0"),
        lambda calls: older_release(RELEASE),
    ),
    Refused(
        " makes no sense; give I/N with I from 1 to N, as in 1/3",
        lambda calls: Share.parsed("4/3"),
        lambda calls: Share.parsed("1/3"),
    ),
    Refused(
        " micro-batches, because a copy that is further behind cannot follow across a snapshot",
        lambda calls: calls.standby(16),
        lambda calls: calls.standby(0),
        lambda calls: calls.standby(15),
    ),
    Refused(
        " cannot be opened: \n; give another, or 0",
        lambda calls: calls.served(-1),
        lambda calls: calls.served(0),
    ),
]
"""Options of commands."""

FILES = [
    Refused(
        "there is nothing to be cleaned; give a state_dir, a local_dir, or both",
        lambda calls: Cleaning(None),
        lambda calls: Cleaning(calls.storage),
        lambda calls: Cleaning(None, local_dirs=[calls.place]),
        lambda calls: Cleaning(calls.storage, local_dirs=[calls.place]),
    ),
    Refused(
        "tell what a state directory needs; give that, too, with state_dir",
        lambda calls: Cleaning(None, local_dirs=[calls.place], applications=["job"]),
        lambda calls: Cleaning(calls.storage, local_dirs=[calls.place], applications=["job"]),
    ),
    Refused(
        " ms; give at least as much where durable files are cleaned",
        lambda calls: Cleaning(calls.storage, older_than="1 minute"),
        lambda calls: Cleaning(calls.storage, older_than=Cleaning(calls.storage).policy.retained_forks_ms),
    ),
    Refused(
        " ends with \n; give a file that ends with ",
        lambda calls: Writer(calls.place / "rows.xls", SCHEMA),
        lambda calls: Writer(calls.place / "rows.parquet", SCHEMA),
        lambda calls: Writer(calls.place / "rows.csv", SCHEMA),
        lambda calls: Writer(calls.place / "rows.json", SCHEMA),
    ),
    Refused(
        "; leave out block_cache, which is part of the budget",
        lambda calls: RocksDbSupplier(memory_budget=1 << 30, block_cache=1 << 20),
        lambda calls: RocksDbSupplier(memory_budget=1 << 30),
    ),
    Refused(
        " bytes for all stores of a worker; leave out one of them",
        lambda calls: RocksDbSupplier(memory_budget=1 << 30).with_memory_budget(1 << 29),
        lambda calls: RocksDbSupplier().with_memory_budget(1 << 29),
    ),
]
"""Files and engines."""

VERBS = [
    Refused(
        " is both renamed and dropped; decide for one",
        lambda calls: SaidOfVerbs(renamed={"a": "b"}, dropped=["a"]),
        lambda calls: SaidOfVerbs(renamed={"a": "b"}),
        lambda calls: SaidOfVerbs(dropped=["a"]),
    ),
    Refused(
        "which is itself; give the verb that has another key another name",
        lambda calls: SaidOfVerbs(rekeyed={"a": "a"}),
        lambda calls: SaidOfVerbs(rekeyed={"by-b": "a"}),
    ),
    Refused(
        " and its side \n; decide for one",
        lambda calls: SaidOfVerbs(rekeyed={"a": "b", "a.right": "c"}),
        lambda calls: SaidOfVerbs(rekeyed={"a": "b"}),
        lambda calls: SaidOfVerbs(rekeyed={"a.right": "c"}),
    ),
    Refused(
        ", which is renamed or dropped as well; decide for one",
        lambda calls: SaidOfVerbs(rekeyed={"a": "b"}, dropped=["a"]),
        lambda calls: SaidOfVerbs(rekeyed={"a": "b"}),
        lambda calls: SaidOfVerbs(dropped=["a"]),
    ),
]
"""What is declared of verbs."""


ONCE = dict.fromkeys(KEYS, 1)


class Jobs:
    """Jobs that do not run."""

    def __init__(self, place: Path) -> None:
        self.place = place

    @cached_property
    def job(self) -> Stopped:
        return Stopped(self.place)

    @property
    def shared(self) -> Stopped:
        """A job in whose checkpoint another one has its state, too."""
        self.job.share_with(Stopped(self.place, "other"))
        return self.job

    @property
    def old(self) -> Stopped:
        """A job whose state was written by a release that noted nothing about it."""
        self.job.forget()
        return self.job

    @cached_property
    def of_two_sinks(self) -> Stopped:
        """A job that has a query for each of two sinks; the checkpoint is that of the first."""
        return Stopped(self.place, sinks=("counts by key", "out"))

    def nothing(self) -> Path:
        """Return the checkpoint of a query that has state of nobody."""
        other = Stopped(self.place, "other").query.checkpoint
        rmtree(other / "state")
        return other

    def warmed(self, job: Stopped, topology: Topology | None, tasks: int, *, times: int = 1, **given: Any) -> None:
        warmth = job.warmed(topology, **given)
        assert (warmth.tasks, sum(copy.rows for copy in warmth.copies)) == (tasks, tasks // 2 * times * len(KEYS))

    def kept(self, topology: Topology | None) -> None:
        done = self.job.standby(topology)
        assert (done.tasks, done.faults, sum(copy.rows for copy in done.copies)) == (2, (), len(KEYS))

    def noted(self, job: Stopped) -> Stopped:
        """Note the job, run it once, and return it."""
        job.note()
        job.run()
        return job

    def repartitioned(self, job: Stopped, *, times: int = 1, **given: Any) -> None:
        (done,) = job.repartitioned(**given)
        assert (done.changed, done.partitions, job.counted()) == (True, 3, dict.fromkeys(KEYS, times))

    def evolved(self, job: Stopped, topology: Topology, *given: Any) -> None:
        done = job.evolved(topology, *given)
        assert (done.changed, job.counted()) == (True, ONCE)

    def started(self, job: Stopped) -> None:
        for application_id in ("job", "other"):
            record = job.started(application_id, counts("totals"), RENAMED)
            assert (record.generation, job.counted(record)) == (1, ONCE)


RENAMED = {"counts": "totals"}

JOBS = [
    Refused(
        "; leave --topology out to warm the copies of all as they are",
        lambda jobs: jobs.shared.warmed(counts()),
        lambda jobs: jobs.warmed(jobs.shared, None, 4),
    ),
    Refused(
        "the memory backend is filled when a task is first opened; warm copies take the backend rocksdb or lmdb",
        lambda jobs: jobs.job.warmed(backend="memory"),
        lambda jobs: jobs.warmed(jobs.job, None, 2, backend="rocksdb"),
        lambda jobs: jobs.warmed(jobs.job, None, 2, backend="lmdb"),
    ),
    Refused(
        "which notes it, or give the topology of the restart: --topology",
        lambda jobs: jobs.old.warmed(),
        lambda jobs: jobs.warmed(jobs.noted(jobs.old), None, 2, times=2),
        lambda jobs: jobs.warmed(jobs.old, counts(), 2),
    ),
    Refused(
        "; give the checkpointLocation of its query, and --topology as it runs now",
        lambda jobs: jobs.job.standby(counts(), checkpoint=jobs.nothing()),
        lambda jobs: jobs.kept(counts()),
    ),
    Refused(
        ", only of the applications \n; give the checkpointLocation of its query, and --topology",
        lambda jobs: jobs.job.standby(counts("totals")),
        lambda jobs: jobs.kept(counts()),
        lambda jobs: jobs.kept(None),
    ),
    Refused(
        "; say which: --sink",
        lambda jobs: jobs.of_two_sinks.repartitioned(),
        lambda jobs: jobs.repartitioned(jobs.of_two_sinks, sink="counts by key"),
        lambda jobs: jobs.repartitioned(jobs.of_two_sinks, sink="counts%20by%20key"),
        lambda jobs: jobs.warmed(jobs.of_two_sinks, None, 2, sink="counts%20by%20key"),
    ),
    Refused(
        "; evolve them in the job, with evolution=Evolution(",
        lambda jobs: jobs.shared.evolved(counts("totals"), None, RENAMED),
        lambda jobs: jobs.started(jobs.shared),
        lambda jobs: jobs.evolved(jobs.job, counts("totals"), None, RENAMED),
    ),
    Refused(
        "which notes it, or run millpond state evolve with its topology: --topology",
        lambda jobs: jobs.old.repartitioned(),
        lambda jobs: jobs.repartitioned(jobs.noted(jobs.old), times=2),
        lambda jobs: jobs.evolved(jobs.old, counts(), 3),
        lambda jobs: jobs.evolved(jobs.old, counts("totals"), None, RENAMED),
    ),
]
"""The state of jobs."""


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Path]:
    return (tmp_path / str(number) for number in count())


@pytest.mark.parametrize("refused", JOBS, ids=repr)
def test_what_is_refused_of_a_jobs_state_is_done_as_its_message_says(refused: Refused, places: Iterator[Path]) -> None:
    refused.check(lambda: Jobs(next(places)), ConfigurationError)


def test_shares_and_lags_are_those_of_a_standby(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Stopped(tmp_path)
    places = str(job.query.checkpoint), str(job.directory / "state")
    once = partial(warming.state_warm, backend="lmdb", once=True, nice=0)
    for number, share in enumerate((partial(once, share=["1/2"]), partial(once, lag=1))):
        with pytest.raises(ConfigurationError, match="are for --standby; give that, too, or leave"):
            share(*places, tmp_path / "local")
        share(*places, tmp_path / f"standby-{number}", standby=True)
    told = capsys.readouterr().out.splitlines()
    assert [line.partition(",")[0] for line in told if line.startswith("standby")] == [
        "standby: 1 tasks warm",
        "standby: 2 tasks warm",
    ]
    monkeypatch.setattr(warming, "query_state", lambda *_: nullcontext(job.state(tmp_path / "local")))
    once(*places, tmp_path / "local")
    assert "ready: all 2 tasks stand at micro-batch 0" in capsys.readouterr().out


@pytest.mark.parametrize("refused", [*COMMANDS, *FILES, *VERBS], ids=repr)
def test_what_is_refused_is_done_as_its_message_says(refused: Refused, tmp_path: Path) -> None:
    refused.check(lambda: Calls(tmp_path), ConfigurationError)
