"""Verbs as they are in one release of a job: which columns, calls and parameters they have, and what is said of that.

What a verb keeps is known by numbers that never change, whatever it is called. A new kind of verb goes into ``KINDS``,
and what it answers into ``verb_oracle``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from millpond.adapters.spark.verbs.calls import call_states
from millpond.adapters.spark.verbs.expressions import Expression
from millpond.adapters.spark.verbs.kept_schemas import ColumnChanges
from millpond.adapters.spark.verbs.verb_run import VerbRun
from millpond.processors import SessionWindows, TimeWindows
from millpond.processors.verbs import aggregates
from millpond.processors.verbs.aggregate import Windows
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.kept_calls import CallChanges
from millpond.processors.verbs.null_keys import NullKeys
from millpond.processors.verbs.row_aggregate import RowAggregate
from millpond.processors.verbs.verb import INSTANT, PackedRows, chosen
from millpond.stores.typed.expiry import Expired
from tests.metamorphic.rules import RESULTS, Totals
from tests.metamorphic.tables import TIME, Rows, Selection
from tests.metamorphic.verbs import (
    Made,
    make_aggregate,
    make_apply,
    make_asof_join,
    make_latest,
    make_stream_join,
    make_table_join,
)

SECOND: Final = 1_000_000
LONG: Final = 1_000_000 * SECOND
"""So long that nothing is late, and nothing is forgotten."""
REACH: Final = 15 * SECOND
WAIT: Final = 40 * SECOND
"""How long rows of a rule wait: longer than any is late."""
WINDOW: Final = 20
GAP: Final = 4
"""Seconds."""
TIMES: Final = {"left": "at", "right": "bt"}
"""The column with the time, by side; a verb with one input has the left one."""


@dataclass(frozen=True)
class Column:
    """A column of values.

    Attributes:
        number: which one it is, under whatever name.
        side: whose.
        name: what it is called now.
        wide: whether it has twice the bits that it began with.
    """

    number: int
    side: str
    name: str
    wide: bool = False


@dataclass(frozen=True)
class Call:
    """A call of an aggregate: which one it is, what it is called now, and its function."""

    number: int
    name: str
    function: str


CALLS: Final[Mapping[str, tuple[AggregateCall, Callable[[Sequence[int | None]], Any]]]] = {
    "rows": (aggregates.count(), len),
    "sum": (aggregates.sum("v"), lambda values: sum(_present(values)) if _present(values) else None),
    "max": (aggregates.max("v"), lambda values: max(_present(values), default=None)),
    "distinct": (aggregates.count_distinct("v"), lambda values: len(set(_present(values)))),
    "last": (aggregates.last("v"), lambda values: values[-1] if values else None),
}
"""Calls, and what they answer of values in the order of time; an aggregate begins with some of the first ones."""


def _present(values: Sequence[int | None]) -> list[int]:
    return [one for one in values if one is not None]


@dataclass(frozen=True)
class Draft:
    """A verb in one release.

    Attributes:
        number: which one it is, under whatever name.
        kind: of ``KINDS``.
        name: what it is called now.
        columns: of values, of all sides.
        calls: of an aggregate.
        longer: how often its history or grace is ``LONG``.
        ttl: how long what it holds lives; None for ever.
        expired: what comes out when that is over.
        eras: how long windows were, in seconds, and until which time.
        window: how long they are from then on.
    """

    number: int
    kind: str
    name: str
    columns: tuple[Column, ...] = ()
    calls: tuple[Call, ...] = ()
    longer: int = 1
    ttl: int | None = None
    expired: Expired = Expired.SILENT
    eras: tuple[tuple[int, int], ...] = ()
    window: int = WINDOW

    def of(self, side: str) -> list[Column]:
        return [one for one in self.columns if one.side == side]

    @property
    def sides(self) -> Sequence[str]:
        return ["left", "right"] if self.kind in JOINS else ["left"]

    def schema(self, side: str) -> pa.Schema:
        """The columns of one of its inputs."""
        columns: list[tuple[str, Any]] = [("k", pa.string()), (TIMES[side], TIME)]
        if self.kind in WINDOWS:
            return pa.schema([*columns, ("v", pa.int64())])
        values: list[Any] = [(one.name, pa.int64() if one.wide else pa.int32()) for one in self.of(side)]
        return pa.schema([*columns, *values])

    def kept(self, side: str) -> list[str]:
        return [one.name for one in self.of(side)]


@dataclass(frozen=True)
class DraftChanges:
    """What is said of the columns and calls of a verb that are not what they were."""

    columns: ColumnChanges = field(default_factory=lambda: ColumnChanges({}, ()))
    calls: CallChanges = field(default_factory=CallChanges)

    @classmethod
    def between(cls, before: Draft, after: Draft) -> "DraftChanges":
        """What differs between two releases of a verb."""
        columns = _differing(before.columns, after.columns)
        added, renamed, dropped = _differing(before.calls, after.calls)
        return cls(ColumnChanges(columns[1], columns[2]), CallChanges(added, renamed, dropped))


def _differing(before: Sequence[Any], after: Sequence[Any]) -> tuple[list[str], dict[str, str], list[str]]:
    old, new = ({one.number: one.name for one in some} for some in (before, after))
    renamed = {old[one]: new[one] for one in old.keys() & new.keys() if old[one] != new[one]}
    return [new[one] for one in new.keys() - old.keys()], renamed, [old[one] for one in old.keys() - new.keys()]


@dataclass(frozen=True)
class ReadRows:
    """What a verb reads, as ``RowInput`` describes a DataFrame."""

    role: str
    read: Selection
    stored: bool = True
    in_order: bool = False

    @property
    def keys(self) -> Sequence[str]:
        return self.read.keys

    @property
    def values(self) -> Sequence[str]:
        return self.read.values

    @property
    def foreign(self) -> Sequence[str]:
        return self.read.foreign

    @property
    def ordered(self) -> bool:
        return self.read.order is not None

    @property
    def carried(self) -> Sequence[str]:
        return [*self.keys, *self.values]

    @property
    def times(self) -> pa.DataType:
        return INSTANT

    @property
    def expressions(self) -> Mapping[str, Expression]:
        side = "" if self.role == "input" else f"{self.role}_"
        return {f"{side}time": Expression(self.read.time)}

    def schema(self, names: Sequence[str]) -> pa.Schema:
        return chosen(self.read.rows.schema, names)

    key_schema = schema

    def order_schema(self) -> pa.Schema:
        raise NotImplementedError


@dataclass(frozen=True)
class Kept:
    """Packs rows as ``Millpond`` does: compared with what the state has."""

    run: VerbRun
    unstored: Sequence[str] = ()

    def __call__(
        self,
        role: str,
        read: Selection,
        null_keys: NullKeys = NullKeys.EQUAL,
        *,
        untimed: bool = False,
        versions: bool = False,
    ) -> PackedRows:
        rows = ReadRows(role, read, role not in self.unstored)
        self.run.schemas.note_expressions([rows])
        return self.run.schemas.input(rows, null_keys, untimed=untimed, versions=versions)


def made_of(draft: Draft, run: VerbRun, calls: CallChanges) -> Made:
    """The verb, as ``Millpond`` makes it."""
    left = Rows.of(f"left-{draft.number}", draft.schema("left"))
    if draft.kind in WINDOWS:
        return _aggregate(draft, run, calls, left)
    keeps = draft.longer * LONG
    if draft.kind == "latest":
        run.schemas.changes.check([ReadRows("input", Selection(left, ["k"], draft.kept("left"), "at"))])
        return make_latest(
            draft.name, left, key="k", time="at", history=keeps, ttl=draft.ttl, expired=draft.expired, packing=Kept(run)
        )
    if draft.kind == "apply":
        rule = Totals(draft.columns[0].name)
        return make_apply(draft.name, left, rule, key="k", time="at", schema=RESULTS, lateness=WAIT, packing=Kept(run))
    right = Rows.of(f"right-{draft.number}", draft.schema("right"))
    times = TIMES["left"], TIMES["right"]
    if draft.kind == "asof":
        packing = Kept(run, ["left"])
        return make_asof_join(draft.name, left, right, on="k", times=times, history=keeps, packing=packing)
    if draft.kind == "tables":
        return make_table_join(draft.name, left, right, on="k", times=times, packing=Kept(run))
    return make_stream_join(
        draft.name, left, right, on="k", times=times, before=REACH, after=REACH, grace=keeps, packing=Kept(run)
    )


def _aggregate(draft: Draft, run: VerbRun, changes: CallChanges, left: Rows) -> Made:
    calls = {one.name: CALLS[one.function][0] for one in draft.calls}
    arguments = {name: str(call.column) for name, call in calls.items() if call.column is not None}
    first = RowAggregate(calls, dict.fromkeys(arguments, pa.int64()))
    rows = ReadRows("input", Selection(left, ["k"], [], "at"))
    run.schemas.note_expressions([rows])
    states = call_states(run, rows, first.kept(arguments), changes, first.state_serde.name)
    run.schemas.keys(rows)
    run.schemas.times(rows)
    until = {time: tumbling(size, draft.longer) for size, time in draft.eras}
    return make_aggregate(
        draft.name, left, calls, by="k", time="at", window=WINDOWS[draft.kind](draft), until=until,
        slots=states.slots, since=states.since, ttl=draft.ttl, expired=draft.expired,
    )  # fmt: skip


def tumbling(size: int, longer: int) -> TimeWindows:
    return TimeWindows(size * 1_000, grace=longer * LONG // 1_000)


WINDOWS: Final[Mapping[str, Callable[[Draft], Windows | None]]] = {
    "totals": lambda draft: None,
    "windows": lambda draft: tumbling(draft.window, draft.longer),
    "sessions": lambda draft: SessionWindows(GAP * 1_000, grace=draft.longer * LONG // 1_000),
}
"""The aggregates, and their windows."""
MORTAL: Final = ("latest", "totals")
"""Those that may have a time to live."""
TTLS: Final = (None, 20 * SECOND, 60 * SECOND, 200 * SECOND)
JOINS: Final = ("asof", "tables", "streams")
KINDS: Final = ("latest", "apply", *WINDOWS, *JOINS)
