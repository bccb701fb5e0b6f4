"""A rule for ``apply``: totals in the order of time, which tell when nothing has come for a while."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import pyarrow as pa

from millpond.processors.verbs import KeyContext, KeyedProcessor, Timer
from millpond.processors.verbs.verb import INSTANT as TIME

IDLE, SOON = 5, 2
"""Seconds."""
_COLUMNS: list[tuple[str, Any]] = [("k", pa.string()), ("what", pa.string()), ("total", pa.int64()), ("seen", TIME)]
RESULTS = pa.schema(_COLUMNS)


class Fading(KeyedProcessor):
    """A total that only some rows and timers keep fresh, and that nobody deletes.

    Args:
        value: the column that is added.
    """

    def __init__(self, value: str) -> None:
        self._value = value

    def process(self, key: Any, row: dict[str, Any], context: KeyContext) -> Iterable[Mapping[str, Any]]:
        value, total = row[self._value] or 0, context.state.get(0)
        yield {"k": key, "what": "row", "total": total, "seen": context.time}
        if value % 3:
            context.state.set(total + value)
        if value % 2:
            context.set_timer(timedelta(seconds=value), "later")

    def on_timer(self, key: Any, timer: Timer, context: KeyContext) -> Iterable[Mapping[str, Any]]:
        total = context.state.get(0)
        yield {"k": key, "what": timer.name, "total": total, "seen": context.time}
        if total % 2:
            context.state.set(total + 1)


class Totals(KeyedProcessor):
    """The total of the rows so far, which begins anew when none has come for a while.

    Args:
        value: the column that is added.
    """

    def __init__(self, value: str) -> None:
        self._value = value

    def process(self, key: Any, row: dict[str, Any], context: KeyContext) -> Iterable[Mapping[str, Any]]:
        value = row[self._value] or 0
        total = context.state.get(0) + value
        context.state.set(total)
        context.set_timer(timedelta(seconds=IDLE), "idle")
        if value % 3 == 0:
            context.set_timer(timedelta(seconds=SOON), "soon")
        elif value % 3 == 1:
            context.cancel_timer("soon")
        yield {"k": key, "what": "row", "total": total, "seen": context.time}

    def on_timer(self, key: Any, timer: Timer, context: KeyContext) -> Iterable[Mapping[str, Any]]:
        yield {"k": key, "what": timer.name, "total": context.state.get(0), "seen": context.time}
        if timer.name == "idle":
            context.state.delete()
