"""``apply`` on tables, whose results are columns as Spark has them."""

import pyarrow as pa

from millpond.adapters.spark.rows.column_values import ColumnValues
from millpond.adapters.spark.verbs.sink import DictColumns
from millpond.processors.calls.account import LATENESS, TTL, Allowance
from millpond.processors.calls.waiting import apply_account
from millpond.processors.pond.made import Made, Packing, packed_rows
from millpond.processors.pond.tables import Rows, Selection
from millpond.processors.verbs.apply import apply_topology
from millpond.processors.verbs.keyed_processor import KeyedProcessor
from millpond.processors.verbs.verb import INSTANT, Verb


def make_apply(
    name: str,
    rows: Rows,
    processor: KeyedProcessor,
    *,
    key: str,
    time: str,
    schema: pa.Schema,
    lateness: int,
    order: str | None = None,
    ttl: int | None = None,
    packing: Packing = packed_rows,
) -> Made:
    read = Selection(rows, [key], rows.schema.names, time, order=order)
    packed = packing("input", read)
    wait = Allowance(LATENESS, lateness, rows.time(time).bound)
    topology = apply_topology(name, processor, packed.keys, packed.rows, wait.total, ordered=order is not None, ttl=ttl)
    verb = Verb(topology, {"input": packed}, (DictColumns(ColumnValues(name, frozenset()), schema),))
    times = [column.name for column in schema if column.type == INSTANT]
    lives = None if ttl is None else Allowance(TTL, ttl, 0)
    return Made(verb, {"input": read}, apply_account(name, type(processor).__name__, wait, times, lives))
