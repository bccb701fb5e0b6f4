"""The comparison of ``millpond advise`` with jobs of three kinds on Spark: both should order backends alike.

Rule of this module: a profile says the same twice, as a description for the advice and as a query. The job's times are
Spark's ``triggerExecution`` and the processor time of its Python workers, in which the backends are. Most of both is
the same for all backends; so what the advice tells apart may be within the job's noise, and then nothing is said of
that pair.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import compute
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from millpond.bench.advice.agreement import Agreement, advised_pairs, agreement, job_pairs
from millpond.bench.advice.candidates import candidate
from millpond.bench.advice.description import Description
from millpond.bench.advice.judgement import Advice, judge
from millpond.bench.advice.measuring import Effort, measure
from millpond.bench.spark import queries, topologies
from millpond.bench.spark.contest import WARM_UP
from millpond.bench.spark.inputs import Topic, events, names_of, write_inputs
from millpond.bench.spark.shapes import Scale
from millpond.bench.spark.workloads import Workload, named
from millpond.errors import ConfigurationError
from millpond.processors import Consumed, Materialized, Produced, StreamsBuilder, Topology

pc: Any = compute

VALUE_BYTES: Final = 200
_CHANGING: Final = 0.1
_HOT_KEYS: Final = 10_000
_WINDOW_KEYS: Final = 100_000
_LETTERS: Final = np.frombuffer(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_", dtype=np.uint8)


def enrichment(scale: Scale) -> Topology:
    """Join each event with the length of its key's payload."""
    builder = StreamsBuilder()
    table = builder.table(
        "payloads", Consumed("string", "string", timestamp="at", value="payload"), Materialized("payloads")
    )
    events = builder.stream("events", Consumed("string", "int64", timestamp="at", value="amount"))
    events.join(table, _amount_and_length, vectorized=True).to("out", Produced(schema="key string, value long"))
    return builder.build()


def _amount_and_length(amounts: Any, payloads: Any) -> Any:
    return pc.add(amounts, pc.cast(pc.binary_length(payloads), pa.int64()))


def payloads(share: float) -> Topic:
    """Return the topic of payloads: ``VALUE_BYTES`` letters by user, which hardly compress."""

    def drawn(keys: Any, rng: np.random.Generator) -> dict[str, Any]:
        letters = _LETTERS[rng.integers(0, len(_LETTERS), len(keys) * VALUE_BYTES)]
        ends = np.arange(len(keys) + 1, dtype=np.int32) * VALUE_BYTES
        values = pa.StringArray.from_buffers(len(keys), pa.py_buffer(ends.tobytes()), pa.py_buffer(letters.tobytes()))
        return {"key": names_of("user", keys), "payload": values}

    return Topic("payloads", "key string, at long, payload string", share, drawn)


@dataclass(frozen=True)
class Profile:
    """A kind of job.

    Attributes:
        workload: the query and what it reads.
        described: the same in the words of ``millpond advise``, but for what depends on the machine and on ``keys``.
        keys: distinct ones, of windows in each of them; None for as many as are asked for.
        changing: the share of the rows of a micro-batch that are put.
        filling: how many micro-batches bring all keys, by rows of the first topic alone, before those that count; 0 if
            they come by chance.
    """

    workload: Workload[Topic]
    described: Mapping[str, Any]
    keys: int | None = None
    changing: float = 1.0
    filling: int = 0


_KEY: Final = {"key_bytes": 14, "scan_rows": 1_000}
PROFILES: Final[Mapping[str, Profile]] = {
    "hot and small": Profile(
        Workload((events(),), topologies.count),
        {**_KEY, "value_bytes": 16, "reads": 0.5, "scans": 0.0},
        keys=_HOT_KEYS,
    ),
    "many and large": Profile(
        Workload((payloads(_CHANGING), events(1 - _CHANGING)), enrichment),
        {**_KEY, "value_bytes": VALUE_BYTES + 8, "reads": 1 - _CHANGING, "scans": 0.0},
        changing=_CHANGING,
        filling=10,
    ),
    "windows that expire": Profile(
        # A window is of a micro-batch of its own, so a row of it is put, later a step of two scans, for its result and
        # for its end, and then deleted. Nobody reads it alone.
        Workload((events(),), topologies.window),
        {**_KEY, "key_bytes": 22, "value_bytes": 16, "reads": 0.0, "scans": 0.001, "expiring": 0.999},
        keys=_WINDOW_KEYS,
    ),
}


@dataclass(frozen=True)
class Asked:
    """The measurements to make.

    Args:
        backends: names or URLs, two or more.
        profiles: names of ``PROFILES``.
        keys: of the profiles that say no number.
        rows: of a micro-batch.
        batches: micro-batches of a run that count.
        repeat: runs on each backend.
        cores: of Spark.
        memory_bytes: what state may take of the machine's memory.
        disk_bytes: what local copies may take of its disk.
        effort: of the advice.
    """

    backends: Sequence[str]
    profiles: Sequence[str]
    keys: int
    rows: int
    batches: int
    repeat: int
    cores: int
    memory_bytes: int
    disk_bytes: int
    effort: Effort

    def __post_init__(self) -> None:
        if len(set(self.backends)) < 2:
            raise ConfigurationError("an order is one of several backends; give --backend twice or more")
        unknown = [name for name in self.profiles if name not in PROFILES]
        if unknown:
            raise ConfigurationError(f"there is no profile {unknown[0]!r}; the profiles are {', '.join(PROFILES)}")

    def scale(self, profile: Profile) -> Scale:
        """Return the number of rows and keys of a profile."""
        keys = profile.keys or self.keys
        return Scale(max(self.rows, -(-keys // profile.filling) if profile.filling else 1), keys, self.cores)

    def description(self, profile: Profile) -> Description:
        """Return the description that ``millpond advise`` is given."""
        scale = self.scale(profile)
        return Description(
            keys=scale.keys,
            memory_bytes=self.memory_bytes,
            disk_bytes=self.disk_bytes,
            workers=self.cores,
            batch=max(1, round(min(scale.rows * profile.changing, scale.keys) / self.cores)),
            **profile.described,
        )


@dataclass(frozen=True)
class MicroBatch:
    """The times of a micro-batch in a run of the job.

    Attributes:
        seconds: from its begin to its commit, at the median.
        worker_seconds: processor time of Spark's Python workers, with the threads of backends, on average.
    """

    seconds: float
    worker_seconds: float


Advised = Callable[[Asked, Profile], Advice]
Runs = Mapping[str, Sequence[MicroBatch]]
Ran = Callable[[Asked, Profile], Runs]
"""A micro-batch of each run of the job, by backend."""


def run(asked: Asked, advised: "Advised | None" = None, ran: "Ran | None" = None) -> dict[str, Any]:
    """Advise on each profile, run its job on each backend, and compare.

    Args:
        asked: what is measured.
        advised: what gives the advice; by default measurements as ``millpond advise`` makes them.
        ran: what runs the jobs; by default Spark.
    """
    advise, rows = advised or _advice, []
    with queries.session_when_needed(asked.cores) as spark:
        run_job = ran or partial(_on_spark, spark)
        for name in asked.profiles:
            profile = PROFILES[name]
            advice = advise(asked, profile)
            runs = run_job(asked, profile)
            rows.append(_row(name, asked.description(profile), advice, runs))
    return {
        "backends": list(asked.backends),
        "rows": asked.rows,
        "keys": asked.keys,
        "batches": asked.batches,
        "repeat": asked.repeat,
        "cores": asked.cores,
        "seed": asked.effort.seed,
        "profiles": rows,
    }


def agrees(figures: Mapping[str, Any]) -> bool:
    """Return whether no advice was against its job."""
    return not any(row["against"] for row in figures["profiles"])


def _row(name: str, description: Description, advice: Advice, runs: Runs) -> dict[str, Any]:
    whole = {backend: [one.seconds for one in taken] for backend, taken in runs.items()}
    of_workers = {backend: [one.worker_seconds for one in taken] for backend, taken in runs.items()}
    told_apart = dict.fromkeys(chain(job_pairs(of_workers), job_pairs(whole)))
    found: Agreement = agreement(advised_pairs(advice), list(told_apart))
    order = {backend: median(taken) for backend, taken in of_workers.items()}
    return {
        "profile": name,
        "keys": description.keys,
        "value_bytes": description.value_bytes,
        "advised": ", ".join(one.measured.backend for one in advice.verdicts),
        "job": ", ".join(sorted(order, key=lambda backend: (order[backend], backend))),
        "told_apart_by_both": "; ".join(map(_pair, found.both)),
        "against": "; ".join(map(_pair, found.against)),
        "each": [
            {
                "backend": one.measured.backend,
                "operation_us": None if one.per_operation is None else one.per_operation.median,
                **_spread("worker", of_workers[one.measured.backend]),
                **_spread("batch", whole[one.measured.backend]),
            }
            for one in advice.verdicts
        ],
    }


def _spread(name: str, seconds: Sequence[float]) -> dict[str, float]:
    return {f"{name}_s": median(seconds), f"{name}_least_s": min(seconds), f"{name}_most_s": max(seconds)}


def _pair(pair: tuple[str, str]) -> str:
    return f"{pair[0]} before {pair[1]}"


def print_results(console: Console, figures: Mapping[str, Any]) -> None:
    """Print a table for each profile, and what advice and job agree on."""
    for row in figures["profiles"]:
        table = Table(title=f"{row['profile']}: {row['keys']:,} keys, values of {row['value_bytes']} bytes")
        table.add_column("backend")
        for column in (
            "operation, µs",
            "workers, processor s",
            "least",
            "most",
            "micro-batch, s",
            "least",
            "most",
        ):
            table.add_column(column, justify="right")
        for one in row["each"]:
            times = (time for name, time in one.items() if name != "backend")
            table.add_row(one["backend"], *("" if time is None else f"{time:,.3f}" for time in times))
        console.print(table)
        console.print(f"Advised: {row['advised']}. Job: {row['job']}.", highlight=False)
        console.print(f"Told apart by both: {row['told_apart_by_both'] or 'no pair'}.", highlight=False)
        if row["against"]:
            console.print(f"The job says, against the advice: {row['against']}.", style="bold red", highlight=False)


def _advice(asked: Asked, profile: Profile) -> Advice:
    description = asked.description(profile)
    candidates = [candidate(one, description) for one in asked.backends]
    return judge(description, measure(description, candidates, asked.effort).backends)


def _on_spark(spark: Callable[[], SparkSession], asked: Asked, profile: Profile) -> Runs:
    """Return the job on each backend in turn, in order and in reverse."""
    scale, skipped = asked.scale(profile), max(WARM_UP, profile.filling)
    contenders, backends = profile.workload.contenders(asked.backends), named(asked.backends)
    runs: dict[str, list[MicroBatch]] = {name: [] for name in backends}
    with queries.scratch(asked.effort.directory) as temporary:
        place, topics, seed = Path(temporary), profile.workload.topics, asked.effort.seed
        first = [replace(topic, share=float(topic is topics[0])) for topic in topics] if profile.filling else topics
        write_inputs(place, first, scale, skipped, growing=bool(profile.filling), seed=seed)
        write_inputs(place, topics, scale, asked.batches, first=skipped, seed=seed)
        for name in queries.in_turn(backends, asked.repeat):
            contender = contenders[name]
            ran = queries.measure(
                spark(), place, profile.workload, contender, scale, skipped=skipped, counted=asked.batches
            )
            runs[name].append(MicroBatch(median(ran.seconds), ran.processor_of_workers / len(ran.seconds)))
    return runs
