"""A sample of the golden topologies gives through Spark, in micro-batches and partitions, what drivers give.

Each micro-batch of each query must bring what ``PartitionedDriver`` brings for it: the same records of each key, and in
the same order where all of them come out of one task with state, which is what a sink's ``sequence`` says. Several
queries run at a time, because a micro-batch is mostly waiting.

With ``--engine spark`` the whole sample runs, otherwise a handful of it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeAlias, cast

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from millpond.errors import MillpondError
from millpond.processors import OnError
from millpond.processors.distribution.plan import make_plan
from millpond.stores.typed.windows.windowed import Windowed
from tests.golden.comparison import compare_output
from tests.golden.conftest import BACKENDS
from tests.golden.interpreter import Interpreter, written
from tests.golden.loader import Case, cases
from tests.golden.on_spark import SparkJob, SparkRun
from tests.golden.partitioned import Result, answers
from tests.golden.sampling import handful, micro_batches, sample, single_records

AT_A_TIME = 3

Runs: TypeAlias = Mapping[str, Future[dict[str, SparkRun]]]


def _topologies(config: pytest.Config) -> list[Case]:
    return [case for case in cases(config.getoption("golden_dir", None)) if "topology" in case.content]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "job" in metafunc.fixturenames:
        chosen = sample(_topologies(metafunc.config))
        if metafunc.config.getoption("engine", None) != "spark":
            chosen = handful(chosen)
        backends = metafunc.config.getoption("backend", None) or BACKENDS
        jobs = [_job(number, case, backends) for number, case in enumerate(chosen)]
        metafunc.parametrize("job", jobs, ids=[f"{job.case.id}-{job.backend}-{job.partitions}" for job in jobs])


def _job(number: int, case: Case, backends: Sequence[str]) -> SparkJob:
    """Return the job of a case; backends and numbers of partitions take turns."""
    on_error = OnError.SKIP if _without_key(case) else OnError.FAIL
    return SparkJob(case, micro_batches(case.content), 2 + number % 2, backends[number % len(backends)], on_error)


def _without_key(case: Case) -> bool:
    """Return whether a record has no key, so that no operator on Spark can have it."""
    return any(record.get("key", "") is None for record in case.content["input"])


@pytest.fixture(scope="module")
def runs(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Runs]:
    """The queries of all jobs that were asked for, started in their order."""
    jobs = [
        cast("SparkJob", item.callspec.params["job"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module and "job" in item.fixturenames
    ]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        yield {job.case.id: pool.submit(job.run, spark, tmp_path_factory.mktemp("golden")) for job in jobs}
        pool.shutdown(cancel_futures=True)


@pytest.mark.spark
def test_micro_batches_and_partitions_on_spark_give_what_drivers_give(job: SparkJob, runs: Runs) -> None:
    expected, error = _expected(job)
    for sink, run in runs[job.case.id].result().items():
        if error is None:
            assert run.error is None, run.error
        else:
            assert type(error).__name__ in str(run.error)
        assert len(run.rows) == len(expected)
        for number, (batch, rows) in enumerate(zip(expected, run.rows, strict=True)):
            assert _differences(batch.get(sink, []), rows) == [], f"micro-batch {number}, sink {sink}"


def test_no_golden_topology_is_refused_on_spark(request: pytest.FixtureRequest) -> None:
    refused = {}
    for case in _topologies(request.config):
        try:
            topology = Interpreter(case.content).build()
        except MillpondError:  # which test_topologies.py judges
            continue
        for sink in topology.sinks:
            try:
                make_plan(topology, sink, 2)
            except MillpondError as error:
                refused[case.id, sink] = str(error)
    assert refused == {}


def test_the_sample_has_sixty_cases_and_every_operator(request: pytest.FixtureRequest) -> None:
    recorded = _topologies(request.config)
    chosen = sample(recorded)
    if request.config.getoption("golden_dir", None) is None:
        assert len(chosen) >= 60
    for names in (_families, _operators):
        assert names(chosen) == names(case for case in recorded if _runs(case))


def test_one_partition_gives_what_was_recorded(request: pytest.FixtureRequest) -> None:
    """So what the sample is compared with answers as Kafka Streams does, where partitions and batches do not matter."""
    differences = {}
    for case in sample(_topologies(request.config)):
        if case.compare == "skip" or _without_key(case) or "error" in case.content:
            continue
        topology = Interpreter(case.content).build()
        singles = single_records(case.content)
        output = [
            {"topic": sink, "key": written(result.key), "value": result.value, "ts": result.timestamp, "after": after}
            for after, batch in zip(singles, answers(topology, list(singles.values()), 1, OnError.FAIL), strict=True)
            for sink, results in batch.items()
            for result in results
        ]
        differences[case.id] = compare_output(case, output, headers=False)  # the sample's records have none
    assert len(differences) > 50
    assert not any(differences.values()), {name: found for name, found in differences.items() if found}


def _families(chosen: Iterable[Case]) -> set[str]:
    return {case.family for case in chosen}


def _operators(chosen: Iterable[Case]) -> set[str]:
    return {operator["op"] for case in chosen for operator in case.content["topology"]}


def _runs(case: Case) -> bool:
    return bool(case.content["input"]) and case.content.get("error", {}).get("at") != "build"


def _expected(job: SparkJob) -> tuple[list[Mapping[str, list[Result]]], MillpondError | None]:
    """Return what each micro-batch brings, up to the one that fails, and its error."""
    topology = Interpreter(job.case.content).build()
    batches: list[Mapping[str, list[Result]]] = []
    try:
        for batch in answers(topology, job.batches, job.partitions, job.on_error):
            batches.append(batch)
    except MillpondError as error:
        return batches, error
    return batches, None


def _differences(wanted: Iterable[Result], rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return each key whose records, in their order where they have one, are not the same."""
    expected: dict[Any, list[Result]] = defaultdict(list)
    for result in wanted:
        key = result.key
        expected[(key.key, key.start, key.end) if isinstance(key, Windowed) else (key, None, None)].append(result)
    got: dict[Any, list[Mapping[str, Any]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["sequence"]):
        got[row["key"], row.get("window_start"), row.get("window_end")].append(row)
    found = []
    for key in {**expected, **got}:
        ours = [(result.value, result.timestamp) for result in expected[key]]
        theirs = [(row["value"], row["timestamp"]) for row in got[key]]
        tasks = {result.task for result in expected[key]}
        ordered = len(tasks) == 1 and None not in tasks
        if theirs != ours if ordered else sorted(theirs, key=repr) != sorted(ours, key=repr):
            found.append(f"{key}: drivers give {ours}, Spark gives {theirs}")
    return found
