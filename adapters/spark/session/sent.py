"""Functions that are sent to the Python processes that Spark starts, and the errors that leave them.

Rule of this module: it imports next to nothing, as each such process imports it. A worker that never opens the storage
knows none of its secrets, but may have to report an error that quotes one. So whatever is sent takes the secrets in use
with it, and whatever fails there leaves without them. Nobody else calls ``mapInArrow``.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from millpond.errors import ConfigurationError, RecordError, StateConflictError
from millpond.masking import SecretsInUse, masked_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

ArrowFunction: TypeAlias = "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]"
"""A function of ``mapInArrow``."""


@contextmanager
def short_errors() -> Iterator[None]:
    """Have Spark report an error without the secrets in use, and what a user is to mend by its message alone.

    The 8 KB of a worker's stack before it are left out: the message says where the function failed. A worker ends after
    an error, so nothing else is reported like that.
    """
    try:
        with masked_errors():
            yield
    except (RecordError, ConfigurationError, StateConflictError):
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


@dataclass(frozen=True)
class Sent:
    """A function of ``mapInArrow`` as workers get it.

    Attributes:
        secrets: come first, so that they are known before anything of the function is there.
        function: what is called.
    """

    secrets: SecretsInUse = field(default_factory=SecretsInUse, init=False)
    function: ArrowFunction

    def __call__(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        with short_errors():
            yield from self.function(batches)


def in_workers(rows: "DataFrame", function: ArrowFunction, columns: "str | StructType") -> "DataFrame":
    """Return the rows that a function makes of rows in workers: ``mapInArrow``, with errors that show no secret."""
    return rows.mapInArrow(Sent(function), columns)
