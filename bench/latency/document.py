"""Latencies at a fixed rate as a document of the family. A workload's name there has its rate.

Rule of this module: it runs nothing. A run is all of the time that counts. Latencies are those of rows; those of the
operation ``micro-batch`` are the times of micro-batches.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from millpond.bench.documents import SCHEMA
from millpond.bench.latency.arrivals import SECOND
from millpond.bench.latency.run import Kept, Measured
from millpond.bench.runs.summary import latency_us, over_batches, throughput
from millpond.bench.spark.document import shown_contenders
from millpond.bench.spark.queries import session_name

NANOSECONDS: Final = 1_000
"""Those of a microsecond."""


def document_of(measured: Sequence[Measured]) -> dict[str, Any]:
    """Return the figures of workloads that were measured in one session."""
    contest = measured[0].contest
    labels = dict.fromkeys(name for found in measured for name in found.contest.chosen)
    verbs = {name for found in measured for name in found.contest.work.verbs}
    return {
        "schema": SCHEMA,
        "unit": "rows",
        "settings": {
            "rates": list(dict.fromkeys(found.contest.rate for found in measured)),
            "keys": contest.keys,
            "seconds": contest.seconds,
            "warm_up_seconds": contest.warm_up,
            "trigger_seconds": contest.trigger,
            "patience_seconds": contest.patience,
            "cores": contest.cores,
            "session": session_name(contest.tuned),
            "seed": contest.seed,
            "latency_of": "a row, from the moment at which it comes into being to the commit of its micro-batch",
        },
        "contenders": shown_contenders(labels, [contest.backend], verbs),
        "results": [_result(found, name, kept) for found in measured for name, kept in found.kept.items()],
        "failures": [
            {"contender": name, "workload": found.contest.title, "reason": reason}
            for found in measured
            for name, reason in {**found.behind, **found.failed}.items()
        ],
        "at_rates": {found.contest.title: _at_rate(found) for found in measured},
    }


def _result(found: Measured, name: str, kept: Kept) -> dict[str, Any]:
    batches = kept.batches
    ends = [batches[0].began, *(one.done for one in batches)]
    between = [(end - before) * NANOSECONDS for before, end in pairwise(ends)]
    return {
        "contender": name,
        "workload": found.contest.title,
        "operations": kept.rows,
        "throughput": throughput([kept.per_second]),
        "latency_us": dict(kept.waits),
        "by_operation": {"micro-batch": latency_us([(one.done - one.began) * NANOSECONDS for one in batches])},
        "over_time": over_batches(between, [one.count for one in batches]),
        "cpu_s": kept.processor or None,
        "disk_bytes": kept.disk or None,
    }


def _at_rate(found: Measured) -> dict[str, Any]:
    """Return what only a fixed rate has."""
    return {
        "micro_batches": {name: len(kept.batches) for name, kept in found.kept.items()},
        "rows_in_a_micro_batch": {
            name: sum(one.count for one in kept.batches) / len(kept.batches) for name, kept in found.kept.items()
        },
        "lag_seconds": {
            name: {"half_time": kept.lag.half / SECOND, "end": kept.lag.end / SECOND}
            for name, kept in found.kept.items()
        },
        "late_rows": {name: kept.late for name, kept in found.kept.items()},
        "fell_behind": sorted(found.behind),
    }
