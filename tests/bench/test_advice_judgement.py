"""The judgement over measurements: what fits, who is ahead, and what would change it; nothing is measured here."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.bench.advice.candidates import candidate, faster
from millpond.bench.advice.description import Description, parse_count
from millpond.bench.advice.judgement import NOISE, ROOM, Advice, advise, judge, most_keys, risk, verdict
from millpond.bench.advice.measured import Measured, Room, Spread, Times
from millpond.bench.advice.measuring import as_measured
from millpond.errors import ConfigurationError

GIB = 2**30
JOB = Description(1_000_000, 16, 100, 0.5, 0.0, 50, 4 * GIB, 50 * GIB)


def spread(median: float) -> Spread:
    return Spread(median, median * 0.99, median * 1.01)


def backend(
    name: str,
    each: float,
    *,
    persistent: bool = True,
    memory: float = 300,
    disk: float = 200,
    scaled: bool = True,
    checksums: bool = True,
) -> Measured:
    times = Times(1_000, spread(each), spread(each), spread(each), spread(each), spread(each))
    return Measured(name, persistent, checksums, scaled, times, Room(1_000, memory, disk, disk))


positive = st.floats(0.01, 1e5)
backends = st.lists(
    st.builds(
        backend,
        st.sampled_from(["a", "b", "c", "d"]),
        positive,
        persistent=st.booleans(),
        memory=positive,
        disk=positive,
        scaled=st.booleans(),
        checksums=st.booleans(),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda one: one.backend,
)
jobs = st.builds(
    Description,
    st.integers(1, 10**9),
    st.just(16),
    st.integers(0, 10**4),
    st.floats(0, 0.5),
    st.floats(0, 0.5),
    st.integers(1, 1000),
    st.integers(1, 2**45),
    st.integers(1, 2**45),
)


def names(advice: Advice) -> tuple[str | None, list[str]]:
    chosen = None if advice.chosen is None else advice.chosen.measured.backend
    return chosen, [one.measured.backend for one in advice.verdicts if one.why_not is None]


@given(jobs, backends, st.integers(0, 2**45))
def test_more_memory_or_disk_never_makes_a_fitting_backend_unfit(
    job: Description, measured: list[Measured], more: int
) -> None:
    before = names(judge(job, measured))[1]
    for richer in (
        replace(job, memory_bytes=job.memory_bytes + more),
        replace(job, disk_bytes=job.disk_bytes + more),
    ):
        assert set(before) <= set(names(judge(richer, measured))[1])


@given(jobs, backends)
def test_a_backend_that_another_one_dominates_is_never_advised(job: Description, measured: list[Measured]) -> None:
    found = judge(job, measured)
    if found.chosen is None:
        assert all(one.why_not for one in found.verdicts)
        return
    assert found.chosen.why_not is None
    assert found.chosen.per_operation is not None
    for one in found.verdicts:
        if one.why_not is None and one.speaks and one.per_operation is not None:
            quicker = one.per_operation.high < found.chosen.per_operation.low
            assert not (quicker and risk(one)[:3] <= risk(found.chosen)[:3])


@given(jobs, backends)
def test_the_order_of_the_backends_does_not_matter(job: Description, measured: list[Measured]) -> None:
    assert advise(job, measured) == advise(job, measured[::-1])


@given(jobs, backends)
def test_clearly_more_keys_than_the_most_no_longer_fit_or_speak(job: Description, measured: list[Measured]) -> None:
    for one in measured:
        most = most_keys(job, verdict(job, one))
        if 1 <= most < 10**15:
            over = verdict(replace(job, keys=most + 1_000 + most // 10**6), one)
            assert over.why_not is not None or not over.speaks


def test_rows_are_multiplied_up_and_room_is_left() -> None:
    found = verdict(JOB, backend("memory", 1, persistent=False, memory=300))
    assert found.memory_needed == 300 * 1_000_000 * ROOM
    assert found.why_not is None
    found = verdict(replace(JOB, memory_bytes=300 * 1_000_000), found.measured)
    assert found.why_not is not None
    assert "1,000,000 of 300 bytes" in found.why_not
    disk = verdict(replace(JOB, disk_bytes=10**8), backend("lmdb", 1, disk=200))
    assert disk.why_not is not None
    assert "on the disk" in disk.why_not


def test_shares_weigh_the_operations() -> None:
    times = Times(10, spread(1), spread(10), spread(100), spread(2))
    one = replace(backend("a", 1), times=times)
    job = replace(JOB, reads=0.5, scans=0.1, scan_rows=11)
    found = verdict(job, one).per_operation
    assert found is not None
    assert found.median == pytest.approx(0.5 * 1 + 0.4 * 10 + 0.1 * (100 + 10 * 2))
    assert found.low < found.median < found.high
    windows = replace(job, expiring=0.25)
    assert times.expire is None
    assert verdict(windows, one).per_operation is None
    found = verdict(windows, replace(one, times=replace(times, expire=spread(40)))).per_operation
    assert found is not None
    assert found.median == pytest.approx(0.5 * 1 + 0.15 * 10 + 0.1 * (100 + 10 * 2) + 0.25 * 40)


def test_what_is_within_the_noise_is_a_tie_that_the_lower_risk_decides() -> None:
    quick, safe = backend("quick", 1, persistent=False), backend("safe", NOISE * 0.999)
    found = judge(JOB, [quick, safe])
    assert names(found)[0] == "safe"
    assert [one.measured.backend for one in found.tied] == ["quick", "safe"]
    found = judge(JOB, [quick, backend("safe", 1.2)])
    assert (names(found)[0], found.tied) == ("quick", ())


def test_times_that_cannot_be_scaled_come_after_those_that_can() -> None:
    small = replace(JOB, memory_bytes=10**8)
    quick, scaled = backend("quick", 1, scaled=False, checksums=False), backend("scaled", 5)
    assert names(judge(JOB, [quick, scaled]))[0] == "quick"
    found = judge(small, [quick, scaled])
    assert names(found)[0] == "scaled"
    assert names(judge(small, [quick]))[0] == "quick"


def test_what_would_change_the_advice_is_said_with_who_is_next() -> None:
    memory, lmdb, rocksdb = (
        backend("memory", 1, persistent=False),
        backend("lmdb", 2, scaled=False),
        backend("rocks", 5),
    )
    (keys, restart) = advise(JOB, [memory, lmdb, rocksdb]).changes
    assert keys == f"With more than {int(4 * GIB / 300 / ROOM):,} keys its rows no longer fit; then lmdb."
    assert restart.endswith("lmdb, with 2.0 times the time per operation.")
    (keys,) = advise(JOB, [lmdb, rocksdb]).changes
    assert keys == f"With more than {4 * GIB // 200:,} keys its data outgrows memory; then rocks."
    changes = advise(replace(JOB, memory_bytes=GIB // 8), [memory, rocksdb]).changes
    assert changes[-1] == "With 358 MiB of memory instead of 128 MiB: memory."


def test_a_backend_that_failed_is_out_with_its_reason() -> None:
    found = judge(JOB, [replace(backend("a", 1), times=None, failure="no server")])
    assert found.chosen is None
    assert found.verdicts[0].why_not == "it could not be measured: no server"


def test_a_cache_is_scaled_with_the_rows_and_given_only_if_it_helps() -> None:
    job = replace(JOB, keys=100_000_000, memory_bytes=4 * GIB)
    rocks = candidate("rocksdb", job)
    assert rocks.measured(1 / 1024) == {
        "given": f"rocksdb://?block_cache={256 * 2**10}&write_buffer_size={2**20}",
        "wanted": f"rocksdb://?block_cache={2 * 2**20}&write_buffer_size={2**20}",
    }
    (choice,) = rocks.choices(job, None, 1.5)
    assert (choice.option, choice.value) == ("block_cache", "2GiB")
    assert "1.50 times as fast" in choice.reason
    assert list(rocks.choices(job, None, 1.0)) == []
    named = candidate("rocksdb://?block_cache=1GiB&wal=false", job)
    assert named.measured(1 / 1024) == {"given": f"rocksdb://?wal=false&block_cache={2**20}&write_buffer_size={2**20}"}
    assert list(named.choices(job, None, None)) == []


def test_a_cache_that_does_not_fit_into_a_workers_memory_is_made_smaller() -> None:
    job = replace(JOB, keys=100_000_000, memory_bytes=GIB, workers=8)
    rocks = candidate("rocksdb", job)
    assert list(rocks.measured(0.5)) == ["wanted"]
    (choice,) = rocks.choices(job, None, None)
    assert choice.value == "64MiB"


def test_options_are_given_only_where_they_are_declared_and_not_given_yet() -> None:
    job, room = replace(JOB, memory_bytes=10**7, durability="synced"), Room(10, 1, 200, 200)
    found = [(one.option, one.value) for one in candidate("lmdb", job).choices(job, room, None)]
    assert found == [("sync", "true"), ("readahead", "false")]
    found = [(one.option, one.value) for one in candidate("lmdb://?sync=false", job).choices(job, room, None)]
    assert found == [("readahead", "false")]
    assert list(candidate("memory", job).choices(job, room, None)) == []


def test_runs_that_overlap_show_no_gain() -> None:
    assert faster(Spread(1, 0.9, 1.1), Spread(1.2, 1.05, 1.3)) == 1
    assert faster(spread(1), spread(2)) == 2
    assert faster(None, spread(2)) is None


@pytest.mark.parametrize("text", ["banana", "", "-3", "1e9999", "20X", "99999999999G"])
def test_what_is_no_number_of_keys_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a number such as"):
        parse_count(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reads": 1.2}, "--reads is 1.2"),
        ({"scans": float("nan")}, "--scans is nan"),
        ({"reads": 0.7, "scans": 0.4}, "1.1 together"),
        ({"reads": 0.5, "scans": 0.25, "expiring": 0.5}, "1.25 together"),
        ({"expiring": -0.5}, "--expiring is -0.5"),
        ({"memory_bytes": 0}, "--memory is 0"),
        ({"disk_bytes": 0}, "--disk is 0"),
        ({"key_bytes": 0}, "--key-size is 0"),
        ({"key_bytes": 1}, "a longer --key-size"),
        ({"durability": "some"}, "--durability is 'some'"),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        replace(JOB, **change)  # type: ignore[arg-type]


def test_what_could_not_be_measured_keeps_its_reason() -> None:
    times = Times(10, spread(1), spread(1))
    one = candidate("memory", JOB)
    assert as_measured(JOB, one, "its process died", {"given": times}).failure == "its process died"
    failed = as_measured(JOB, one, Room(10, 1, 1, 1), {"given": "overwrite: no server"})
    assert (failed.failure, failed.times) == ("overwrite: no server", None)
    assert as_measured(JOB, one, Room(10, 1, 1, 1), {"given": times}).failure is None
