"""Rows of this process, micro-batch by micro-batch: the input of ``queries`` without Spark.

Rule of this module: verbs are those of ``Pond().in_batches``. What lies between them is done here, by Arrow.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as _compute

from millpond.bench.nexmark.events import Site
from millpond.bench.nexmark.rows import Events
from millpond.processors.calls.arguments import INPUT
from millpond.processors.pond import Pond
from millpond.processors.pond.expressions import evaluated
from millpond.processors.pond.micro_batches import MicroBatches

pc: Any = _compute


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """The rows that come in at once.

    Attributes:
        tables: the rows of persons, auctions and bids.
        last: whether there is nothing behind it.
    """

    tables: Mapping[str, pa.Table]
    last: bool = False


class LocalRows:
    """Rows that a query has made: their columns are known, and they come when a micro-batch does.

    Args:
        schema: the columns.
        make: gives the rows of a micro-batch.
    """

    def __init__(self, schema: pa.Schema, make: Callable[[MicroBatch], pa.Table]) -> None:
        self.schema = schema
        self._make = make
        self._made: tuple[MicroBatch, pa.Table] | None = None

    def of(self, batch: MicroBatch) -> pa.Table:
        """Return the rows of a micro-batch, which are made once, however many read them."""
        if self._made is None or self._made[0] is not batch:
            self._made = batch, self._make(batch)
        return self._made[1]

    def select(self, *columns: str) -> Self:
        schema = pa.schema([self.schema.field(name) for name in columns])
        return type(self)(schema, lambda batch: self.of(batch).select(columns))

    def where(self, condition: Any) -> Self:
        return type(self)(self.schema, lambda batch: _where(self.of(batch), condition))

    def withColumn(self, name: str, column: Any) -> Self:
        schema = _with_column(self.schema.empty_table(), name, column).schema
        return type(self)(schema, lambda batch: _with_column(self.of(batch), name, column))

    def withColumnRenamed(self, old: str, new: str) -> Self:
        schema = pa.schema([one.with_name(new) if one.name == old else one for one in self.schema])
        return type(self)(schema, lambda batch: pa.Table.from_arrays(self.of(batch).columns, schema=schema))


class LocalVerbs:
    """The verbs on ``LocalRows``.

    Args:
        backend: of their stores.

    Attributes:
        runs: the verbs that have been called, to be closed.
    """

    def __init__(self, backend: str) -> None:
        self.runs: list[MicroBatches] = []
        self._verbs = Pond(backend=backend).in_batches

    def __getattr__(self, verb: str) -> Callable[..., LocalRows]:
        def called(*given: Any, **arguments: Any) -> LocalRows:
            sources = [one for one in given if isinstance(one, LocalRows)]
            schemas = [one.schema if isinstance(one, LocalRows) else one for one in given]
            run: MicroBatches = getattr(self._verbs, verb)(*schemas, **arguments)
            self.runs.append(run)
            return LocalRows(run.schema, lambda batch: _run(run, sources, batch))

        return called


def local_events(site: Site) -> Events:
    """Return events without rows, for a query that ``LocalVerbs`` run; micro-batches bring the rows."""
    nothing = site.emitted(0, 0)
    schemas = {make.__name__: make(nothing).schema for make in (site.persons, site.auctions, site.bids)}
    persons, auctions, bids = (_source(name, schema) for name, schema in schemas.items())
    return Events(persons, auctions, bids, _field, _tumbling, site)


def _source(name: str, schema: pa.Schema) -> LocalRows:
    return LocalRows(schema, lambda batch: batch.tables[name])


def _run(run: MicroBatches, sources: Sequence[LocalRows], batch: MicroBatch) -> pa.Table:
    """Return the output of a verb for a micro-batch; the last one's includes what has waited."""
    tables: dict[str, Any] = {role: one.of(batch) for role, one in zip(run.inputs, sources, strict=True)}
    found = [run.feed(tables[INPUT]) if INPUT in tables else run.feed(**tables)]
    return pa.concat_tables([*found, run.complete()] if batch.last else found)


def _field(path: str) -> Any:
    return pc.field(*path.split("."))


def _tumbling(times: str, seconds: int) -> Any:
    return pc.floor_temporal(pc.field(times), seconds, "second")


def _where(table: pa.Table, condition: Any) -> pa.Table:
    return table.filter(evaluated(condition, table))


def _with_column(table: pa.Table, name: str, column: Any) -> pa.Table:
    return table.append_column(name, evaluated(column, table))
