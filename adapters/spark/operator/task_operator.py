"""The stateful processor that stands for an operator: it declares its state before anything else is imported.

Rule of this module: it imports next to nothing. For each operator of a query that starts, Spark starts a Python process
only to hear of its state, and waits for it; that process does not need what the operator runs. So the operator travels
as bytes, and is unpacked, with all that it imports, when the first rows arrive.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from millpond.adapters.spark.session.sent import short_errors
from millpond.masking import SecretsInUse

if TYPE_CHECKING:
    import pandas as pd

_PACKING: Final[Any] = CloudPickleSerializer()  # type: ignore[no-untyped-call]


class GroupOperator(Protocol):
    """The runner of a group's tasks."""

    def handle(self, number: int, rows: Iterator[Any], manifest: Any, wall_clock: int) -> "Iterator[pd.DataFrame]":
        """Yield the output for the rows that have arrived for the group with that number, its state, and the time."""


class TaskOperator(StatefulProcessor):
    """One group is one task, or one of each verb that shares the operator; its rows are what a micro-batch brings.

    Args:
        operator: what the tasks run.
        state: name and DDL of the value that Spark keeps for each task.
    """

    def __init__(self, operator: GroupOperator, state: tuple[str, str]) -> None:
        self._secrets = SecretsInUse()
        self._packed: bytes = _PACKING.dumps(operator)
        self._state = state

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._manifest = handle.getValueState(*self._state)
        self._times = handle._statefulProcessorApiClient

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> "Iterator[pd.DataFrame]":
        with short_errors():
            yield from self._operator.handle(int(key[0]), rows, self._manifest, self._wall_clock)

    @property
    def _wall_clock(self) -> int:
        """The time of the micro-batch, in milliseconds, which Spark keeps in the checkpoint.

        Spark hands it to processors with timers alone, for whom it never rests. A column with the time would be a
        number in the code that Spark generates, so that the JVM would compile classes anew in each micro-batch.
        """
        now, _ = self._times.get_timestamps("ProcessingTime")
        return int(now)

    @cached_property
    def _operator(self) -> GroupOperator:
        operator: GroupOperator = _PACKING.loads(self._packed)
        return operator
