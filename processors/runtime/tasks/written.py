"""Records that leave a task as bytes or columns, without those for which that fails.

Rule of this module: ``write`` changes nothing, so that it can be tried again for each record alone.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

from millpond.processors.runtime.batches.batch import Batch, concatenate
from millpond.processors.runtime.batches.columns import Records
from millpond.processors.runtime.change import Change
from millpond.processors.runtime.failures import is_of_record
from millpond.processors.runtime.processor import ProcessorContext

_Written = TypeVar("_Written")


def written(context: ProcessorContext, records: Records, write: Callable[[Records], _Written]) -> _Written:
    """Return the result of ``write`` for records.

    Args:
        context: the context of the sink that they leave by.
        records: the records.
        write: turns them into bytes or columns.

    Raises:
        UserFunctionError: it fails for a record, and the policy is not to leave such records out.
    """
    try:
        return write(records)
    except Exception as error:  # a user's serde may raise anything
        if not is_of_record(error):
            raise
    rows = records.to_batch().rows()
    return write(concatenate([kept for row in rows for kept in _kept(context, row, write)]))


def _kept(context: ProcessorContext, row: Batch, write: Callable[[Records], object]) -> Iterator[Batch]:
    """Yield the parts of a record that can be written: all, nothing, or one half of a table's change."""
    value = row.values[0]
    change = value if isinstance(value, Change) else Change(value, None)
    try:
        write(row)
    except Exception as error:  # a user's serde may raise anything
        if change.old is None or not context.leaves_out:
            (headers,) = row.headers_of_each
            context.leave_out(error, row.keys[0], change.new, row.timestamps[0], headers=headers)
        elif change.new is None:
            # It was left out when it was new, so it need not be taken back.
            context.check(error)
        else:
            for half in change.halves():
                yield from _kept(context, row.with_values([half]), write)
    else:
        yield row
