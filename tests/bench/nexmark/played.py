"""A query of Nexmark in this process, on events that come in micro-batches of any cut and order."""

import random
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from millpond.bench.nexmark import queries
from millpond.bench.nexmark.answers import final_rows
from millpond.bench.nexmark.events import Site
from millpond.bench.nexmark.files import events_of
from millpond.bench.nexmark.local import LocalVerbs, MicroBatch, local_events

SITE = Site(rate=20, out_of_order=60, seed=7)
"""So few events in a second that windows of seconds are over soon."""

EVENTS = 3_000
MOST = 400
"""Events of a micro-batch at most; the least is one."""


def micro_batches(seed: int) -> Iterator[MicroBatch]:
    """Yield all events, in micro-batches whose sizes and order follow from a seed."""
    sizes, first = random.Random(seed), 0
    while first < EVENTS:
        count = min(sizes.randint(1, MOST), EVENTS - first)
        rng = np.random.default_rng([seed, first])
        tables = events_of(SITE, first, count)
        first += count
        mixed = {name: rows.take(rng.permutation(len(rows))) for name, rows in tables.items()}
        yield MicroBatch(mixed, last=first == EVENTS)


def answered(name: str, backend: str, seed: int) -> pa.Table:
    """Return the final rows of a query; no row was too late."""
    verbs = LocalVerbs(backend)
    try:
        rows = getattr(queries, name)(verbs, local_events(SITE))
        found = final_rows(name, [rows.of(batch) for batch in micro_batches(seed)])
        assert sum(run.late_rows for run in verbs.runs) == 0
    finally:
        for run in verbs.runs:
            run.close()
    return found
