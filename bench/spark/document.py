"""Measurements on Spark as a document of the family, and its contenders.

Rule of this module: it runs nothing. A run is a micro-batch; of a job without micro-batches it is the job.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from millpond.bench.documents import SCHEMA
from millpond.bench.engines.contenders import backend_contenders, version_of
from millpond.bench.engines.engine import Use
from millpond.bench.flink.settings import CHECKPOINT_SECONDS, STATE_BACKENDS
from millpond.bench.runs.summary import latency_of_many, throughput
from millpond.bench.spark.contest import WARM_UP
from millpond.bench.spark.measure import Measured, of_streams
from millpond.bench.spark.workloads import COSTS, named

_OF_MILLPOND: Final = "files of each micro-batch before Spark commits it"
_OF_SPARK: Final = "state of each micro-batch in the checkpoint"
_OF_FLINK: Final = f"exactly once, a checkpoint every {CHECKPOINT_SECONDS} s"
_OF_NOBODY: Final = "keeps nothing"


def document_of(measured: Sequence[Measured]) -> dict[str, Any]:
    """Return the figures of workloads that were measured in one session."""
    contest = measured[0].contest
    labels = dict.fromkeys(name for found in measured for name in found.contest.chosen)
    verbs = {name for found in measured for name in found.contest.work.verbs}
    in_flink = (stream.versions["flink"] for found in measured for ran in found.streams.values() for stream in ran)
    return {
        "schema": SCHEMA,
        "unit": "rows",
        "settings": {
            **contest.settings(),
            "batches": contest.batches,
            "seed": contest.seed,
            "repeat": contest.repeat,
            "warm_up": WARM_UP * contest.rows,
            "latency_of": f"a micro-batch of {contest.rows:,} rows",
        },
        "contenders": shown_contenders(labels, contest.backends, verbs, next(in_flink, "unknown")),
        "results": [_result(found, name) for found in measured for name in found.seconds],
        "failures": [
            {"contender": name, "workload": found.contest.workload, "reason": why}
            for found in measured
            for name, why in found.failed.items()
        ],
        "backend": contest.backend,
        "queries": {found.contest.workload: _query(found) for found in measured},
    }


def check_backends(backends: Sequence[str]) -> None:
    """Refuse what is no backend before anything starts.

    Raises:
        ConfigurationError: a backend is unknown, or an option of it makes no sense.
    """
    backend_contenders(backends, Use())


def _result(found: Measured, name: str) -> dict[str, Any]:
    contest, seconds, memory = found.contest, found.seconds[name], found.memory[name]
    rates = throughput([contest.rows / one for one in seconds])
    is_stream = name in found.streams
    return {
        "contender": name,
        "workload": contest.workload,
        "operations": contest.rows * len(seconds) * (contest.batches if is_stream else 1),
        "throughput": {**rates, "median": contest.rows / found.per_batch[name]},
        "latency_us": None if is_stream else latency_of_many([round(one * 1e9) for one in seconds]),
        "cpu_s": found.processor[name] or None,
        "peak_rss_bytes": memory.resident or None,
        "disk_bytes": found.disk[name] or None,
    }


def _query(found: Measured) -> dict[str, Any]:
    """Return what only queries have: times of micro-batches, memory of workers, foremost contender and peers."""
    return {
        **found.contest.figures(found.seconds, found.memory),
        **of_streams(found.streams, found.per_batch, found.contest),
        "seconds_per_batch": found.per_batch,
        "ratios": found.ratios,
        "ratios_of": found.contest.foremost,
    }


def shown_contenders(
    labels: Iterable[str], backends: Sequence[str], verbs: Collection[str], flink: str = "unknown"
) -> list[dict[str, str]]:
    """Return contenders as documents have them.

    Args:
        labels: their names in reports.
        backends: names or URLs; verbs are on the first one.
        verbs: which of the contenders are verbs.
        flink: the version of Flink.
    """
    chosen = named(backends)
    known = {
        label: {**one.shown(), "label": label, "durability": _OF_MILLPOND}
        for label, one in zip(chosen, backend_contenders(list(chosen.values()), Use()), strict=True)
    }
    cache = f"that of {next(iter(chosen))}"
    return [known.get(label) or _other(label, cache if label in verbs else None, flink) for label in labels]


def _other(label: str, cache: str | None, flink: str) -> dict[str, str]:
    """Return a contender that is no backend; verbs have a cache."""
    about = {"name": label, "label": label}
    if cache is not None:
        distribution = {"distribution": "millpond", "version": version_of("millpond")}
        return {**about, **distribution, "durability": _OF_MILLPOND, "cache": cache, "kind": "backend"}
    if label in STATE_BACKENDS:
        return {**about, "distribution": "apache-flink", "version": flink, "kind": "peer", "durability": _OF_FLINK}
    promise = _OF_NOBODY if label in COSTS else _OF_SPARK
    return {
        **about,
        "distribution": "pyspark",
        "version": version_of("pyspark"),
        "kind": "peer",
        "durability": promise,
    }
