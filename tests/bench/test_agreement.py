"""The agreement of an advice with a job: nothing is measured here, so the slow part is planted, and known."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from millpond.bench.advice.agreement import advised_pairs, agreement, job_pairs, quicker, spread_of
from millpond.bench.advice.judgement import Advice, judge
from millpond.bench.advice.measuring import Effort
from millpond.bench.spark.advised import (
    PROFILES,
    VALUE_BYTES,
    Asked,
    MicroBatch,
    Profile,
    Runs,
    agrees,
    payloads,
    run,
)
from millpond.bench.spark.inputs import events, write_inputs
from millpond.bench.spark.shapes import Scale
from millpond.errors import ConfigurationError
from millpond.processors import TopologyDriver
from tests.bench.test_advice_judgement import JOB, backend

SLOWNESS = {"quick": 1.0, "slow": 3.0, "slower": 9.0}
"""How many times as long backends take as the first one does, in the advice and in the job."""

runs = st.dictionaries(st.sampled_from("abcd"), st.lists(st.floats(0.01, 1e4), min_size=1, max_size=5), min_size=2)


def asked(**more: object) -> Asked:
    given_ = {
        "backends": list(SLOWNESS),
        "profiles": list(PROFILES),
        "keys": 5_000_000,
        "rows": 1_000,
        "batches": 1,
        "repeat": 1,
        "cores": 2,
        "memory_bytes": 2**34,
        "disk_bytes": 2**40,
        "effort": Effort(1),
    }
    return Asked(**{**given_, **more})  # type: ignore[arg-type]


def planted(job: Asked, profile: Profile) -> Advice:
    return judge(job.description(profile), [backend(name, 2 * times) for name, times in SLOWNESS.items()])


def ran(factors: Mapping[str, float], noise: float = 0.01, whole: Mapping[str, float] | None = None) -> Runs:
    """Return three runs; ``whole`` is how slow micro-batches are if not as their workers."""
    seconds = {**factors, **(whole or {})}
    return {
        name: [MicroBatch(seconds[name] * (1 + noise * run), times * (1 + noise * run)) for run in range(3)]
        for name, times in factors.items()
    }


def test_an_advice_agrees_with_a_job_whose_backends_are_as_slow_as_it_says() -> None:
    found = run(asked(), planted, lambda job, profile: ran(SLOWNESS))
    assert agrees(found)
    assert [row["profile"] for row in found["profiles"]] == list(PROFILES)
    for row in found["profiles"]:
        assert row["advised"] == row["job"] == "quick, slow, slower"
        assert row["told_apart_by_both"] == "quick before slow; quick before slower; slow before slower"


def test_an_advice_is_against_a_job_that_is_quicker_on_what_it_calls_slow() -> None:
    found = run(asked(profiles=["hot and small"]), planted, lambda job, profile: ran({**SLOWNESS, "quick": 4.0}))
    (row,) = found["profiles"]
    assert not agrees(found)
    assert row["job"] == "slow, quick, slower"
    assert row["against"] == "slow before quick"


def test_what_the_noise_of_a_job_hides_is_neither_for_nor_against_the_advice() -> None:
    found = run(asked(profiles=["hot and small"]), planted, lambda job, profile: ran({**SLOWNESS, "quick": 4.0}, 0.5))
    assert agrees(found)
    assert found["profiles"][0]["told_apart_by_both"] == "slow before slower; quick before slower"


def test_workers_tell_backends_apart_whose_micro_batches_take_the_same() -> None:
    level = dict.fromkeys(SLOWNESS, 5.0)
    for seconds, against in (({}, ""), ({"quick": 9.0}, "slow before quick; slower before quick")):
        found = run(
            asked(profiles=["hot and small"]), planted, lambda *_, more=seconds: ran(SLOWNESS, 0.01, level | more)
        )
        row = found["profiles"][0]
        assert row["job"] == "quick, slow, slower"
        assert row["told_apart_by_both"].startswith("quick before slow; quick before slower; slow before slower")
        assert row["against"] == against


def test_what_does_not_fit_comes_after_what_does_however_quick_it_is() -> None:
    advice = judge(JOB, [backend("quick", 1, disk=10**9), backend("slow", 9)])
    assert advised_pairs(advice) == {("slow", "quick")}


@given(runs)
def test_a_job_never_has_a_pair_both_ways_and_agrees_with_itself(found: Mapping[str, Sequence[float]]) -> None:
    pairs = job_pairs(found)
    assert not {pair[::-1] for pair in pairs} & set(pairs)
    assert all(quicker(spread_of(found[one]), spread_of(found[other])) for one, other in pairs)
    assert agreement(set(pairs), pairs).against == ()
    assert agreement({pair[::-1] for pair in pairs}, pairs).against == tuple(pairs)


def test_a_profile_is_described_as_its_query_is() -> None:
    described = {name: asked().description(profile) for name, profile in PROFILES.items()}
    large = described["many and large"]
    assert (large.keys, large.value_bytes) == (5_000_000, 208)
    assert asked().scale(PROFILES["many and large"]).rows == 500_000
    assert large.batch == 25_000
    assert described["hot and small"].keys == 10_000
    windows = described["windows that expire"]
    assert windows.reads + windows.writes == pytest.approx(0)
    assert windows.expiring == pytest.approx(windows.scans * windows.scan_rows, rel=0.01)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"backends": ["lmdb", "lmdb"]}, "give --backend twice or more"),
        ({"profiles": ["cold"]}, "no profile 'cold'; the profiles are hot and small, many and large"),
    ],
)
def test_what_has_no_order_is_refused(more: Mapping[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        asked(**more)


def test_the_values_of_the_large_profile_are_of_the_size_that_it_is_described_with(tmp_path: Path) -> None:
    profile = PROFILES["many and large"]
    scale = Scale(50, 7)
    write_inputs(tmp_path, [payloads(0.9), events(0.1)], scale, 2, growing=True)
    rows = pq.read_table(tmp_path / "payloads" / "000001-0.parquet")
    assert {len(str(value)) for value in rows["payload"].to_pylist()} == {VALUE_BYTES}
    assert len(set(rows["payload"].to_pylist())) == 45
    seen = pq.read_table(tmp_path / "events" / "000001-0.parquet").to_pylist()
    assert profile.workload.topology is not None
    topology = profile.workload.topology(scale)
    with TopologyDriver(topology) as driver:
        driver.pipe_all("payloads", [(row["key"], row["payload"], row["at"]) for row in rows.to_pylist()])
        driver.pipe_all("events", [(row["key"], row["amount"], row["at"]) for row in seen])
        found = [(record.key, record.value) for record in driver.read("out")]
        assert found == [(row["key"], row["amount"] + VALUE_BYTES) for row in seen]
