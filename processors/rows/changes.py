"""The rows of a change feed that change something, and their operations.

Rule of this module: it reads the column ``op`` and nothing else; what a delete does to a record is the reader's duty.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from millpond.processors.rows.unusable import Fault, Unusable
from millpond.processors.runtime.counters import CounterName
from millpond.processors.verbs.change_feed import KNOWN, Change, changes_of


def changing(table: pa.Table, unusable: Unusable, column: str) -> tuple[pa.Table, Sequence[Change] | None]:
    """Return the rows except those with the value before an update, and their operations; None if there are none.

    Args:
        table: rows, with the column ``op`` if they are a change feed.
        unusable: applies the policy for rows whose operation is null or unknown.
        column: the user's name of the column.

    Raises:
        RecordError: an operation is null or unknown, and the policy is to fail.
    """
    if "op" not in table.column_names:
        return table, None
    found = changes_of(table["op"])
    operations, unknown = table["op"], [row for row, change in enumerate(found) if change is None]
    table = unusable.drop(
        table, unknown, CounterName.DROPPED_BAD_VALUE, column, lambda row: unknown_operation(operations[row].as_py())
    )
    changes = [change for change in found if change is not None]
    if Change.BEFORE not in changes:
        return table, changes
    mask: Any = pa.array([change is not Change.BEFORE for change in changes])
    return table.filter(mask), [change for change in changes if change is not Change.BEFORE]


def unknown_operation(operation: str | None) -> Fault:
    """Return the words of messages for a row with no operation or an unknown one."""
    what = "no operation" if operation is None else f"the unknown operation {operation!r}"
    return Fault(what, f"known are {KNOWN}")
