"""``AggregatedWindows``: the rows that an edit must keep right for the operator of a windowed aggregation.

Rule of this module: an operator keeps which windows have come out, and how many will. What has come out is not put any
more, as no reader would see it, and a window that will is counted anew.
"""

from bisect import bisect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from millpond.adapters.inspect.store_form import TIMESTAMP, WINDOW_START, with_option
from millpond.adapters.inspect.store_view import StoreView
from millpond.errors import EditRefusedError
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.keys import BEYOND, DATA, METADATA
from millpond.stores.specs.store_spec import StoreKind
from millpond.stores.typed.windows.calendar import grid_of
from millpond.stores.typed.windows.grids import Grid
from millpond.stores.typed.windows.windowed import Windowed


@dataclass(frozen=True)
class AggregatedWindows:
    """The windows of an aggregation in a task.

    Attributes:
        view: their store.
        store: the same in that task, to be changed.
        transaction: where it reads and writes.
    """

    view: StoreView
    store: Any
    transaction: Transaction

    def check_put(self, row: Mapping[str, Any], place: Windowed[bytes], stamp: int | None, before: Any) -> None:
        """Refuse to put a window that the operator would not know of, that has come out, or has rows of other times.

        Args:
            row: the row.
            place: its key, and the start and end of its window; the end is the start where it follows from that.
            stamp: its timestamp; None if it has none.
            before: the window as it is; None if there is none yet.

        Raises:
            ConfigurationError: it is one.
        """
        fixed = self.view.terms.at(place.start)
        grid, unit = grid_of(fixed), self.view.form.unit
        if before is None:
            if grid is None:
                raise EditRefusedError(
                    f"store {self.view.name!r} has no window that fits the row {dict(row)!r}, and which there can be "
                    "depends on its rows; put a value of one that is there"
                )
            if grid.last(place.start) != place.start:
                raise EditRefusedError(
                    f"the row {dict(row)!r} is of no window of store {self.view.name!r}, which start "
                    f"{grid.told(unit)}: give the {with_option(WINDOW_START)} {unit.shown(grid.last(place.start))}"
                )
        if fixed.get("emit") == _FINAL:
            self._check_to_come(row, place)
        if stamp is not None and (before is None or stamp != before.timestamp):
            self._check_stamp(row, place, stamp, grid)

    def settle(self) -> None:
        """Have the operator know how many windows will come out."""
        # Only now, because it brings all processors with it.
        from millpond.processors.aggregations.carried_windows import WINDOWED_AGGREGATION_CARRIAGE

        assert WINDOWED_AGGREGATION_CARRIAGE.revise is not None, "windows know what has come out"
        self.store.flush()
        revised = WINDOWED_AGGREGATION_CARRIAGE.revise([_Old(self.view, self.store, self.transaction)], lambda _: True)
        rows = {METADATA + name.encode(): data for name, data in revised.items()}
        self.transaction.put_many(rows)

    def _check_stamp(self, row: Mapping[str, Any], place: Windowed[bytes], stamp: int, grid: Grid | None) -> None:
        """Refuse a timestamp that no row of a window has; of one that depends on its rows, one before it starts."""
        start, end = (place.start, None) if grid is None else (grid.begin(place.start), grid.end(place.start))
        if stamp < start or (end is not None and stamp >= end):
            shown = self.view.form.unit.shown
            until = "" if end is None else f" until before {shown(end)}"
            raise EditRefusedError(
                f"the row {dict(row)!r} has a timestamp that no row of its window has; give a "
                f"{with_option(TIMESTAMP)} from {shown(start)}{until}"
            )

    def _check_to_come(self, row: Mapping[str, Any], place: Windowed[bytes]) -> None:
        from millpond.processors.aggregations.completion import COMPLETION, completion_of
        from millpond.processors.runtime.kept_time import KeptTime
        from millpond.processors.runtime.waiting_counts import counted_at, waiting_of

        closed, complete = waiting_of(""), f"{COMPLETION}-"
        found = {name: counted_at(self.store, name, 1) for name in self.store.metadata_names(closed)}
        found |= {name: KeptTime(self.store, name).get() for name in self.store.metadata_names(complete)}
        reached = {name: time for name, time in found.items() if time is not None}
        if not reached:
            raise EditRefusedError(
                f"the task of the row {dict(row)!r} has had no row yet, so its operator would not let the window out; "
                "put it once one has come"
            )
        since = self.view.terms.since
        if since:  # Each processor has windows of its own.
            number = bisect(since, place.start)
            reached = {name: reached[name] for name in (waiting_of(number), completion_of(number)) if name in reached}
        if reached and place.end <= max(reached.values()):
            raise EditRefusedError(
                f"the window of the row {dict(row)!r} has come out of {self.view.name!r}, as all of times up to "
                f"{self.view.form.unit.shown(max(reached.values()))} have, so no reader would see it; put a later one"
            )


_FINAL = "on-window-close"
"""The emission, in the terms, of windows that come out once."""


@dataclass(frozen=True)
class _Old:
    """The store of a task, as what it is carried from."""

    view: StoreView
    store: Any
    transaction: Transaction

    @property
    def name(self) -> str:
        return self.view.name

    @property
    def kind(self) -> StoreKind:
        return self.view.form.kind

    def get_metadata(self, name: str) -> bytes | None:
        return self.transaction.get(METADATA + name.encode())

    def metadata_names(self, prefix: str) -> list[str]:
        found: list[str] = self.store.metadata_names(prefix)
        return found

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        return self.transaction.scan(DATA, BEYOND)
