"""Seeds without Spark: what new stores begin with, made of records."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from millpond.processors.distribution.plan import Plan
from millpond.processors.distribution.shape_of import shape_of
from millpond.processors.runtime.subtopology import Subtopology
from millpond.processors.verbs.rekeying.carriages import CARRIAGES
from millpond.stores.durability import Manifest
from millpond.stores.evolution.seeding import SORTED_BY, Entry, Seed, Seeds, Sowing, write_seeds
from tests.evolution.oracle import Record
from tests.evolution.topologies import LATER, SPAN


def entries_of(what: str, records: Iterable[Record], *, versioned: bool) -> list[Entry]:
    """Return the last entry for each place that the records have; deletes only where the store is versioned."""
    found: dict[Any, Entry] = {}
    for key, value, time in records:
        window = _window(what, time)
        if value is not None or versioned:
            found[key, window, time if versioned else None] = Entry(key, value, time, *window)
    return list(found.values())


def _window(what: str, time: int) -> tuple[int | None, int | None]:
    if what == "trips":
        return time, time + LATER
    start = time - time % SPAN
    return (start, start + SPAN) if what in ("spans", "windows") else (None, None)


def seeds_of(plan: Plan, entries: Mapping[str, Sequence[Entry]]) -> Seeds | None:
    """Return the seeds of a plan's stores, by their names; None for nothing."""
    if not entries:
        return None

    def sow(sowing: Sowing) -> Mapping[str, Manifest]:
        tables = [
            table
            for part in plan.parts
            for name in part.stores.keys() & sowing.stores
            for table in _seed(plan, part, name).tables(entries[name])
        ]
        rows = pa.concat_tables(tables).sort_by([(column, "ascending") for column in SORTED_BY])
        return dict(write_seeds(sowing, rows.to_batches()))

    return Seeds(frozenset(entries), sow)


def _seed(plan: Plan, part: Subtopology, name: str) -> Seed:
    spec = part.stores[name]
    (shape,) = (one for one in shape_of(plan).named(name) if one.subtopology == part.index)
    carriage = None if spec.layout is None else CARRIAGES[spec.layout.name]
    return Seed(spec, shape, plan.partitions, carriage, sum(name in node.stores for node in part.nodes.values()))
