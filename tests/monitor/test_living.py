"""Bad states of queries that really run, each made by what makes it, and named; and queries that are well."""

import itertools
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from millpond.adapters.monitor.diagnosis import thresholds
from millpond.adapters.monitor.diagnosis.finding import State
from millpond.adapters.monitor.exposition import exposed
from millpond.cli import app
from millpond.errors import MillpondError
from millpond.stores.durability import Storage
from tests.monitor.living import HOUR, MINUTE, SECOND, Living, living, windows

DAY = 24 * HOUR
STEPS = 14


def always_new() -> Callable[[Random], str]:
    """Return a function that makes keys that never come again."""
    numbers = itertools.count()
    return lambda _: f"order {next(numbers)}"


def named(query: Living, state: State, later: int = 0) -> str:
    """Return the figures of the only state that the query is in."""
    (found,) = query.seen(later).findings
    assert found.state is state
    return found.figures


def test_a_query_that_gets_more_rows_than_it_can_take_has_a_growing_lag(tmp_path: Path) -> None:
    with living(tmp_path, every=MINUTE, capacity=1.0, most=60) as query:
        for _ in range(STEPS):
            query.step(rate=2.0)
        assert named(query, State.LAG).startswith("lag went from ")
        for _ in range(3):  # somebody has given it more cores, and it catches up
            query.capacity, query.most = 20.0, 600
            query.step(rate=2.0)
        assert query.states() == []


def test_a_driver_that_is_killed_is_known_by_its_silence(tmp_path: Path) -> None:
    with living(tmp_path) as query:
        for _ in range(3):
            query.step()
        assert query.states(thresholds.SILENCE - MINUTE) == []
        assert named(query, State.DIED, 2 * thresholds.SILENCE).startswith("nobody has heard of the query for 10 min")
        query.stop()
        assert query.states(DAY) == [], "it was stopped, and is not dead"


def test_state_whose_keys_never_end_grows_without_bound_and_that_of_known_keys_does_not(tmp_path: Path) -> None:
    for name, key, expected in (("new", always_new(), ["state-without-bound"]), ("known", None, [])):
        options: dict[str, Any] = {} if key is None else {"key": key}
        with living(tmp_path / name, every=3 * HOUR, **options) as query:
            for _ in range(18):
                query.step(rate=0.005)
            assert query.states() == expected


@pytest.mark.long
def test_a_disk_that_local_copies_have_filled_or_will_fill_is_nearly_full(tmp_path: Path) -> None:
    with living(tmp_path, backend="lmdb", every=10 * MINUTE, key=always_new(), disk=560_000) as query:
        for _ in range(8):
            query.step(rate=0.4)
        assert query.states() == []
        found = ""
        while " it is full in" not in found and query.batches < 40:
            query.step(rate=0.4)
            found = next((one.figures for one in query.seen().findings), "")
        assert " it is full in" in found
        while not found.endswith(" is used") and query.batches < 80:
            query.step(rate=0.4)
            found = named(query, State.DISK)
        assert found.endswith(" is used")


@contextmanager
def slow(seconds: float) -> Iterator[None]:
    """A storage that takes so long for each file of state."""
    writing = Storage.writing

    def delayed(self: Storage, path: str, **options: Any) -> Any:
        if path.endswith(".parquet"):
            time.sleep(seconds)
        return writing(self, path, **options)

    with patch.object(Storage, "writing", delayed):
        yield


def test_a_storage_that_takes_its_time_for_each_file_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "SLOW_FILE", 50)
    monkeypatch.setattr(thresholds, "SLOW_SHARE", 0.02)
    with living(tmp_path) as query, slow(0.06):
        for _ in range(thresholds.IN_A_ROW - 1):
            query.step()
        assert query.states() == []
        query.step()
        assert named(query, State.STORAGE).startswith("a task's durable file took ")


def test_rows_that_come_after_their_windows_have_ended_are_late_data(tmp_path: Path) -> None:
    def late(random: Random) -> int:
        return 10 * MINUTE if random.random() < 0.05 else 0

    with living(tmp_path, windows, every=MINUTE, late=late) as query:
        for _ in range(6):
            query.step(rate=20.0)
        assert " records of counts.operator.0 were late in the last 6 micro-batches" in named(query, State.LATE)
        query.late = lambda random: random.randrange(30 * SECOND)
        for _ in range(thresholds.DATA_BATCHES):
            query.step(rate=1.0)
        assert query.states() == []


def test_clocks_that_go_back_and_rows_from_the_future_are_told(tmp_path: Path) -> None:
    with living(tmp_path / "back") as query:
        for _ in range(3):
            query.step()
        query.now -= HOUR
        query.step()
        assert named(query, State.CLOCK).startswith("micro-batch 3 was begun 59 min 50 s before micro-batch 2")
    with living(tmp_path / "ahead", late=lambda _: -DAY) as query:
        for _ in range(1 + thresholds.IN_A_ROW):
            query.step()
        assert named(query, State.CLOCK).startswith("stream time was 23 h 59 min ahead of the clock")


def test_a_listing_without_the_last_commits_or_with_a_gap_lags(tmp_path: Path) -> None:
    with living(tmp_path) as query:
        for _ in range(8):
            query.step()
        listed = Storage.list
        hidden = {"commits/6", "commits/7"}

        def late(self: Storage, directory: str) -> Sequence[Any]:
            return [file for file in listed(self, directory) if file.path not in hidden]

        with patch.object(Storage, "list", late):
            assert query.states() == [], "it has just been committed"
            assert named(query, State.LISTING, 2 * MINUTE).endswith("the listing of the checkpoint ends with 5")
            hidden = {"commits/5"}
            assert named(query, State.LISTING).endswith("has micro-batches 0 to 7, and its listing lacks 5")
        assert query.states() == []


def test_a_durable_file_that_is_damaged_ends_the_query_by_a_corrupt_copy(tmp_path: Path) -> None:
    with living(tmp_path) as query:
        for _ in range(3):
            query.step()
        query.stop()
        for file in (tmp_path / "state").rglob("*.parquet"):
            content = bytearray(file.read_bytes())
            content[len(content) // 2] ^= 255
            file.write_bytes(content)
        query.start()
        with pytest.raises(MillpondError):
            query.step()
        assert "CorruptFileError" in named(query, State.CORRUPT_COPY)


def test_a_standby_that_has_ended_is_forgotten_once_its_copies_are_far_behind(tmp_path: Path) -> None:
    warm = tmp_path / "warm"
    with living(tmp_path, backend="lmdb", every=5 * MINUTE, now=round(time.time() * 1000)) as query:
        query.monitor.standby = warm

        def follow() -> None:
            command = ["state", "warm", str(query.checkpoint), "--state-dir", str(tmp_path / "state"), "--nice", "0"]
            command += ["--local-dir", str(warm), "--backend", "lmdb", "--standby", "--once"]
            before = {seal: seal.stat().st_mtime_ns for seal in warm.rglob(".*.seal")}
            assert CliRunner().invoke(app, command).exit_code == 0
            for seal in warm.rglob(".*.seal"):  # on the clock of the query
                if seal.stat().st_mtime_ns != before.get(seal):
                    os.utime(seal, (query.now / 1000,) * 2)

        query.step(rate=0.1)
        follow()
        for _ in range(thresholds.STANDBY_BATCHES - 1):
            query.step(rate=0.1)
        assert query.states() == []
        query.step(rate=0.1)
        assert " of 2 copies were not brought on for an hour or longer" in named(query, State.STANDBY)
        for copy in warm.glob("*/app.counts/0_0"):
            shutil.rmtree(copy)
        follow()
        assert "1 of 2 copies were not brought on" in named(query, State.STANDBY), "the other one was restored"
        shutil.rmtree(warm)
        assert query.states() == []


def test_all_that_is_told_of_tasks_and_limits_is_on_the_page_in_json_and_in_the_metrics(tmp_path: Path) -> None:
    """Of a query that was started again, whose topology nobody has given."""
    with living(tmp_path, backend="lmdb") as query:
        query.step()
        query.stop(SECOND)
        query.start()
        for _ in range(12):
            query.step()
        seen = query.seen(SECOND)
    assert (seen.restarts, seen.commit_age) == (1, query.now + SECOND - (seen.committed or 0))
    (operator,) = [one for one in seen.operators if one.operator.endswith("operator.0")]
    assert (operator.files or 0) > 0
    assert {limit.what for limit in seen.limits} == {"disk"}
    assert {box.title.splitlines()[0] for box in seen.drawing.boxes} == {"rows", "app.counts", "counts", "aggregate"}
    told = json.loads(json.dumps(seen.to_dict()))
    metrics = exposed(seen)
    assert [one["task"] for one in told["work"]] == [one.task for one in seen.work] == ["0_0", "0_1"]
    for one in told["work"]:
        of = f'operator="counts.operator.0",task="{one["task"]}"'
        for name, kept in (("records_in", "records_in"), ("records_out", "records_out"), ("records_late", "late"),
                           ("rows", "rows"), ("file_bytes", "size"), ("state_bytes", "state")):  # fmt: skip
            assert re.search(rf"millpond_task_{name}{{[^}}]*{of}}} {one[kept]}\n", metrics), name
        for name in ("open", "process", "commit"):
            assert 0 < one[name] < one["took"]
            assert re.search(rf"millpond_task_{name}_seconds{{[^}}]*{of}}} 0\.\d+", metrics)
    assert re.search(rf"millpond_commit_age_seconds{{[^}}]*}} {(seen.commit_age or 0) / 1000:.15g}\n", metrics)
    assert re.search(r"millpond_query_restarts{[^}]*} 1\n", metrics)
    assert re.search(r'millpond_limit_bytes{[^}]*what="disk"', metrics)


@pytest.mark.parametrize("seed", range(50))
def test_nothing_is_said_of_a_query_that_is_well_at_any_moment(tmp_path: Path, seed: int) -> None:
    """Bursts, backlogs that are caught up, restarts, quiet nights, other numbers of tasks, a key with many rows."""
    random = Random(seed)
    every = random.choice([SECOND, 10 * SECOND, MINUTE, 20 * MINUTE, 3 * HOUR])
    rows = random.choice([5, 60, 1_500])
    hot, keys = random.choice([0.0, 0.2, 0.4]), random.choice([30, 2_000] if rows > 1_000 else [1, 30])
    rate = rows * SECOND / every

    def key(random: Random) -> str:
        return "hot" if keys > 1 and random.random() < hot else f"key {random.randrange(keys)}"

    options: dict[str, Any] = {"random": random, "every": every, "key": key, "capacity": 4 * rate, "most": 4 * rows}
    options["backend"] = random.choice(["memory", "memory", "lmdb"])
    options["late"] = lambda random: random.randrange(max(1, min(every, MINUTE)))
    with living(tmp_path, random.choice([None, windows]), **options) as query:
        for _ in range(STEPS):
            what = random.choice(["usual"] * 5 + ["burst", "outage", "restart", "night", "rescale"])
            if what == "night":
                query.now += random.randrange(2 * HOUR)
            elif what in ("outage", "restart", "rescale"):
                pause = random.randrange(1, 20) * every if what == "outage" else random.randrange(MINUTE)
                query.stop(pause)
                query.arrive(rate, pause)
                assert query.states(random.randrange(DAY)) == []
                query.start(random.choice([1, 2, 3]) if what == "rescale" else query.partitions)
            query.step(3 * rate if what == "burst" else rate)
            seen = query.seen(random.randrange(2 * MINUTE))
            assert seen.findings == (), (what, seen.findings, every, rows, keys, hot)
