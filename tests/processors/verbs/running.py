"""Verbs without Spark: rows as Arrow tables in, the result as dicts out."""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.tasks.driver import TopologyDriver
from millpond.processors.verbs.aggregate import AggregatedRows
from millpond.processors.verbs.change_feed import changes_of
from millpond.processors.verbs.encoding.null_keys import NullKeys
from millpond.processors.verbs.verb import Input, PackedRows, Verb
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.encoding.serdes import Serde

Rows = Sequence[Mapping[str, Any]]


def an_input(
    role: str,
    keys: Mapping[str, pa.DataType],
    values: Mapping[str, pa.DataType],
    null_keys: NullKeys = NullKeys.EQUAL,
    foreign: Mapping[str, pa.DataType] | None = None,
) -> PackedRows:
    codec = RowCodec(Schemas.first(pa.schema(list(values.items()))))
    other = None if foreign is None else KeyCodec(pa.schema(list(foreign.items())))
    return PackedRows(role, KeyCodec(pa.schema(list(keys.items()))), null_keys, codec, other)


def an_aggregated_input(
    role: str, keys: Mapping[str, pa.DataType], values: Mapping[str, pa.DataType]
) -> AggregatedRows:
    """Return an input whose rows bring ``values`` to an aggregate."""
    return AggregatedRows(role, KeyCodec(pa.schema(list(keys.items()))), NullKeys.EQUAL, list(values))


def records(one: Input, rows: Rows, time: str, serde: Serde[Any] | None = None) -> Batch:
    """Return the rows as records; ``time`` names the entry with the microseconds, and ``op`` may be an entry."""
    columns: dict[str, Any] = {
        "key": _structs(rows, one.keys.schema),
        "value": _structs(rows, one.rows.schemas.current)
        if isinstance(one, PackedRows)
        else pa.array([row["value"] for row in rows]),
        "timestamp": pa.array([row[time] for row in rows], pa.int64()),
    }
    if isinstance(one, PackedRows) and one.foreign is not None:
        columns["foreign"] = _structs(rows, one.foreign.schema)
    if one.order is not None:
        columns["order"] = _structs(rows, one.order.schema)
    table = pa.table(columns)
    changes = None if not rows or "op" not in rows[0] else changes_of(pa.array([row["op"] for row in rows]))
    values = one.values_of(table, changes).to_pylist()
    if serde is not None:
        values = [None if value is None else serde.deserialize(value) for value in values]
    return Batch(one.keys_of(table).to_pylist(), values, columns["timestamp"].to_pylist())


def _values(rows: Rows) -> Any:
    return pa.array([row["value"] for row in rows])


def _structs(rows: Rows, schema: pa.Schema) -> Any:
    return pa.array([{name: row.get(name) for name in schema.names} for row in rows], pa.struct(list(schema)))


class VerbDriver:
    """Runs a verb in this process."""

    def __init__(self, verb: Verb, driver: TopologyDriver, serde: Serde[Any] | None) -> None:
        self.verb = verb
        self.driver = driver
        self._serde = serde
        self._sequence = 0

    def pipe(self, rows: Mapping[str, Rows], times: Mapping[str, str]) -> None:
        """Pipe one micro-batch: rows by role, and the entry of each role that has its time."""
        self.driver.pipe_inputs(
            {
                role: records(self.verb.inputs[role], some, times[role], self._serde)
                for role, some in rows.items()
                if some
            }
        )

    def complete(self) -> None:
        self.driver.complete()

    def read(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for batch in self.driver.read_batches(self.verb.name):
            made = [column for part in self.verb.parts for column in part.columns(batch, self._sequence)]
            self._sequence += len(batch)
            found.extend(pa.Table.from_arrays(made, schema=self.verb.schema).to_pylist())
        return found


@contextmanager
def running(
    verb: Verb, backend: str = "memory", serde: Serde[Any] | None = None, **options: Any
) -> Iterator[VerbDriver]:
    """A driver for the verb."""
    with TopologyDriver(verb.topology, backend=backend, **options) as driver:
        yield VerbDriver(verb, driver, serde)


def cut(rows: Rows, chance: random.Random) -> Iterator[Rows]:
    """Yield the rows in micro-batches of any size."""
    at = 0
    while at < len(rows):
        size = chance.choice([1, 3, 20])
        yield rows[at : at + size]
        at += size


def run(verb: Verb, batches: Sequence[Rows], **options: Any) -> list[dict[str, Any]]:
    """Return what a verb makes of micro-batches of ``input``, whose times are in ``t``, once its input is complete."""
    with running(verb, **options) as driver:
        for rows in batches:
            driver.pipe({"input": rows}, {"input": "t"})
        driver.complete()
        return driver.read()
