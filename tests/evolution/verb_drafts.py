"""Verbs as they are in one release of a job: which columns, calls and parameters they have, and what is said of that.

What a verb keeps is known by numbers that never change, whatever it is called. A new kind of verb goes into ``KINDS``,
and what it answers into ``verb_oracle``.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

import pyarrow as pa

from millpond.adapters.spark.verbs.calls import call_states
from millpond.adapters.spark.verbs.frames.expressions import Expression
from millpond.adapters.spark.verbs.frames.kept_schemas import ColumnChanges
from millpond.adapters.spark.verbs.frames.verb_run import VerbRun
from millpond.adapters.spark.verbs.over import column_changes
from millpond.processors import SessionWindows, TimeWindows, rollup
from millpond.processors.calls.aggregate import make_aggregate
from millpond.processors.calls.apply import make_apply
from millpond.processors.calls.feed_aggregate import Changes, make_feed_aggregate
from millpond.processors.calls.joins.asof_join import make_asof_join
from millpond.processors.calls.joins.stream_join import make_stream_join
from millpond.processors.calls.joins.table_join import make_table_join
from millpond.processors.calls.latest import make_latest
from millpond.processors.calls.made import Made
from millpond.processors.calls.over import make_over
from millpond.processors.calls.readings import ARGUMENT, Packing
from millpond.processors.calls.tables import Rows, Selection
from millpond.processors.calls.top_n import make_top_n
from millpond.processors.options.grouping import By
from millpond.processors.options.joins import FOREIGN_KEY_JOINS, TABLE_JOINS, AsofDirection, JoinType
from millpond.processors.verbs import aggregates
from millpond.processors.verbs.aggregate import STORE as AGGREGATE
from millpond.processors.verbs.aggregate import Windows
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.feeds.feed_aggregate import GROUPS as GROUPS_STORE
from millpond.processors.verbs.kept_calls import CallChanges
from millpond.processors.verbs.ordered.over_spec import STORE, Calls, Frame
from millpond.processors.verbs.row_aggregate import RowAggregate
from millpond.processors.verbs.verb import INSTANT as TIME
from millpond.stores.typed.expiry import Expired
from tests.metamorphic.applied import results_of
from tests.metamorphic.rules import RESULTS, Totals

SECOND: Final = 1_000_000
LONG: Final = 1_000_000 * SECOND
"""So long that nothing is late, and nothing is forgotten."""
REACH: Final = 15 * SECOND
WAIT: Final = 40 * SECOND
"""How long rows of a rule wait: longer than any is late."""
CUBES: Final = "cubes"
"""Aggregates by grouping sets."""
CORRECTED: Final = "corrected"
"""As-of joins whose results are corrected."""
GROUPED: Final = "grouped"
"""Aggregates of a change feed by ``g``; rows replace each other by ``k``, in whatever order their changes come."""
FOREIGN: Final = "foreign"
"""Joins of tables by a foreign key, the column ``f`` of left rows."""
SIZES: Final = {"windows": (20, 7, 10, 40), "sessions": (4, 2, 9, 15)}
"""How long windows may be, and gaps of sessions, in seconds; they begin with the first one."""
CUTS: Final[Mapping[int, int]] = {2: 7, 9: 25}
"""How long sessions with some of these gaps can be, in seconds; the others can be of any length."""
TIMES: Final = {"left": "at", "right": "bt"}
"""The column with the time, by side; a verb with one input has the left one."""
GROUPS: Final = {"left": "g", "right": "h"}
"""The column that may be in a key behind ``k``, by side; rows of which other verbs may be made have it."""


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
    """A call of an aggregate or an over: which one it is, what it is called now, and its function."""

    number: int
    name: str
    function: str


_EXTENT: Final = aggregates.UserAggregate(
    name="extent",
    zero=list,
    update=lambda state, value: [min([*state, value]), max([*state, value])],
    merge=lambda state, other: [min(*state, *other), max(*state, *other)],
    finish=lambda state: state[1] - state[0],
    type=pa.int64(),
)


def _extent(values: Sequence[int]) -> int | None:
    return max(values) - min(values) if values else None


def _binned(values: Sequence[int]) -> list[tuple[float, int]]:
    places = Counter(bisect_left(_EDGES, value) for value in values)
    return [(edge, places[place]) for place, edge in enumerate([*_EDGES, inf])]


def _most_frequent(values: Sequence[int]) -> list[dict[str, int]]:
    counted = sorted((-count, item) for item, count in Counter(values).items())
    return [{"item": item, "count": -count} for count, item in counted[:1]]


_EDGES: Final = [0.0, 50.0]
CALLS: Final[Mapping[str, tuple[AggregateCall, Callable[[Sequence[int | None]], Any]]]] = {
    "rows": (aggregates.count(), len),
    "sum": (aggregates.sum("v"), lambda values: sum(_present(values)) if _present(values) else None),
    "max": (aggregates.max("v"), lambda values: max(_present(values), default=None)),
    "distinct": (aggregates.count_distinct("v"), lambda values: len(set(_present(values)))),
    "last": (aggregates.last("v"), lambda values: values[-1] if values else None),
    "some": (aggregates.count(where="w"), len),
    "sum of some": (aggregates.sum("v", where="w"), lambda values: sum(_present(values)) if _present(values) else None),
    "histogram": (aggregates.histogram("v", _EDGES), lambda values: _binned(_present(values))),
    "extent": (_EXTENT("v"), lambda values: _extent(_present(values))),
    "top": (aggregates.approx_top_k("v", 1), lambda values: _most_frequent(_present(values))),
    "last of some": (aggregates.last("v", where="w"), lambda values: values[-1] if values else None),
}
"""Calls, and what they answer of values in the order of time; an aggregate begins with some of the first ones.

Those with a condition are given the values of the rows that have it.
"""


OVER_CALLS: Final[Mapping[str, tuple[AggregateCall, Callable[[Sequence[int | None]], Any]]]] = {
    "rows": CALLS["rows"],
    "before": (aggregates.lag("v", 2), lambda values: values[-3] if len(values) > 2 else None),
    **CALLS,
}
"""The calls of an ``over``, and what they answer of the values of some rows, of which the last is the row itself."""


def _present(values: Sequence[int | None]) -> list[int]:
    return [one for one in values if one is not None]


@dataclass(frozen=True)
class Match:
    """The rule by which a left row of an as-of join meets a right row, and what comes out.

    Attributes:
        how: the type of the join.
        exact: whether one of its very time counts.
        tolerance: how far it may be, in microseconds; None for any age.
        direction: whether it is older or newer.
    """

    how: JoinType = JoinType.INNER
    exact: bool = True
    tolerance: int | None = None
    direction: AsofDirection = AsofDirection.BACKWARD

    @property
    def wait(self) -> int:
        """Return how long left rows wait, where they do."""
        return WAIT + self.direction.ahead(self.tolerance)


@dataclass(frozen=True)
class Draft:
    """A verb in one release.

    Attributes:
        number: which one it is, under whatever name.
        kind: of ``KINDS``.
        name: what it is called now.
        columns: of values, of all sides.
        calls: of an aggregate or an over.
        longer: how often its history or grace is ``LONG``.
        ttl: how long what it holds lives; None for ever.
        expired: what comes out when that is over.
        eras: how long windows, or gaps of sessions, were, in seconds, and until which time.
        window: how long they are from then on.
        grouped: whether the group is in its key.
        match: of an as-of join.
        how: the type of another join.
        turned: whether its left input has the names of right ones, and the other way round.
        begins: with the rows of which verb it has begun, by number, and of which of its sides each side.
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
    window: int = 0
    grouped: bool = False
    match: Match = Match()
    how: JoinType = JoinType.INNER
    turned: bool = False
    begins: tuple[int, Mapping[str, str]] | None = None

    def of(self, side: str) -> list[Column]:
        return [one for one in self.columns if one.side == side]

    @property
    def sides(self) -> Sequence[str]:
        return ["left", "right"] if self.kind in JOINS else ["left"]

    def named(self, names: Mapping[str, str], side: str) -> str:
        """Return the name of a column that differs between sides."""
        return names[OTHER[side]] if self.turned else names[side]

    @property
    def times(self) -> tuple[str, str]:
        """The columns with the times of both sides."""
        return self.named(TIMES, "left"), self.named(TIMES, "right")

    def schema(self, side: str) -> pa.Schema:
        """Return the columns of one of its inputs."""
        columns: list[Any] = [("k", pa.string()), (self.named(TIMES, side), TIME)]
        if self.kind in (*CALLING, *OVER):
            columns += [("v", pa.int64()), ("w", pa.int64())]
        if self.kind == GROUPED:
            columns.append(("o", pa.string()))
        if self.kind == FOREIGN and side == "left":
            columns.append(("f", pa.string()))
        if self.has_group(side):
            columns.append(pa.field(self.named(GROUPS, side), pa.string(), nullable=False))
        values: list[Any] = [(one.name, pa.int64() if one.wide else pa.int32()) for one in self.of(side)]
        return pa.schema([*columns, *values])

    def has_group(self, side: str) -> bool:
        """Return whether rows of that side have the column that may be in a key behind ``k``."""
        return self.kind in KEEPING or (self.kind in (CUBES, CORRECTED, GROUPED) and side == "left")

    def keys(self, side: str) -> list[str]:
        """Return the columns of its key."""
        return ["k", self.named(GROUPS, side)] if self.grouped else ["k"]

    def kept(self, side: str) -> list[str]:
        """Return the columns that it keeps of rows beside their key and time."""
        others = [*self.keys(side), self.named(TIMES, side)]
        return [name for name in self.schema(side).names if name not in others]

    @property
    def lent(self) -> Mapping[str, str]:
        """Of which of another verb's sides each side has begun with the rows."""
        return self.begins[1] if self.begins else {}

    def lacks(self, other: "Draft") -> bool:
        """Return whether nobody can know that it has all rows if it begins with those of another verb."""
        return self.kind == "latest" and (other.kind != "latest" or self.grouped > other.grouped)


@dataclass(frozen=True)
class DraftChanges:
    """The declared changes of a verb's columns and calls."""

    columns: ColumnChanges = field(default_factory=lambda: ColumnChanges({}, ()))
    calls: CallChanges = field(default_factory=CallChanges)

    @classmethod
    def between(cls, before: Draft, after: Draft) -> "DraftChanges":
        """Return the differences between two releases of a verb."""
        _, renamed, dropped = _differing(before.columns, after.columns)
        calls = CallChanges(*_differing(before.calls, after.calls))
        hidden = [f"{ARGUMENT}{one.name}" for one in after.calls if OVER_CALLS[one.function][0].where is not None]
        names = [one.name for one in after.calls]
        columns = column_changes(names, {**renamed, **calls.renamed}, [*dropped, *calls.dropped], hidden)
        return cls(columns if after.kind in OVER else ColumnChanges(renamed, dropped), calls)


def _differing(before: Sequence[Any], after: Sequence[Any]) -> tuple[list[str], dict[str, str], list[str]]:
    old, new = ({one.number: one.name for one in some} for some in (before, after))
    renamed = {old[one]: new[one] for one in old.keys() & new.keys() if old[one] != new[one]}
    return [new[one] for one in new.keys() - old.keys()], renamed, [old[one] for one in old.keys() - new.keys()]


def begun(number: int, kind: str, old: Draft, pairs: Mapping[str, str], columns: Sequence[Column]) -> Draft:
    """Return a verb that begins with the rows of another one: each side with those of one of its sides."""
    side, source = next(iter(pairs.items()))
    return Draft(
        number, kind, f"{kind}-{number}", tuple(columns), turned=(side != source) != old.turned,
        begins=(old.number, pairs),
    )  # fmt: skip


def rekeyed(old: Draft, new: Draft) -> dict[str, str]:
    """Return what a user declares of a verb that begins with the rows of another one."""
    pairs = new.lent
    if len(pairs) > 1:
        return {new.name: old.name}
    return {_place(new, side): _place(old, source) for side, source in pairs.items()}


def _place(draft: Draft, side: str) -> str:
    return draft.name if draft.kind == "latest" else f"{draft.name}.{side}"


@dataclass(frozen=True)
class KeptSelection(Selection):
    """The selection of a verb's rows, with what the user gave, as ``RowInput`` has it of a DataFrame."""

    expressions: Mapping[str, Expression] = field(default_factory=dict)


@dataclass(frozen=True)
class KeptRows(Rows):
    """Rows of which is noted what the user gave of them."""

    def read(
        self,
        role: str,
        keys: Sequence[str],
        values: Sequence[str],
        time: str,
        *,
        op: str | None = None,
        order: str | Sequence[str] | None = None,
        foreign: Sequence[str] = (),
        keyed: bool = False,
    ) -> KeptSelection:
        read = super().read(role, keys, values, time, op=op, order=order, foreign=foreign, keyed=keyed)
        side = "" if role == "input" else f"{role}_"
        columns = {f"{side}time": time, f"{side}op": op, f"{side}order": order}
        given = {name: Expression(one) for name, one in columns.items() if isinstance(one, str)}
        return KeptSelection(**vars(read), expressions=given)

    def aggregated(
        self,
        keys: Sequence[str],
        time: str,
        calls: Mapping[str, AggregateCall],
        order: str | None,
        gap: str | None = None,
    ) -> KeptSelection:
        read = super().aggregated(keys, time, calls, order, gap)
        return KeptSelection(**vars(read), expressions={"time": Expression(time)})

    def regrouped(
        self,
        key: Sequence[str],
        by: Sequence[str],
        time: str,
        calls: Mapping[str, AggregateCall],
        *,
        op: str,
        order: str | None,
    ) -> KeptSelection:
        read = super().regrouped(key, by, time, calls, op=op, order=order)
        return KeptSelection(**vars(read), expressions={"time": Expression(time), "op": Expression(op)})

    def beside(
        self,
        keys: Sequence[str],
        values: Sequence[str],
        time: str,
        calls: Mapping[str, AggregateCall],
        order: str | None,
    ) -> tuple[KeptSelection, Mapping[str, str]]:
        read, columns = super().beside(keys, values, time, calls, order)
        return KeptSelection(**vars(read), expressions={"time": Expression(time)}), columns


@dataclass(frozen=True)
class Kept:
    """Begins a verb as ``Millpond`` does: what it reads is compared with what the state has."""

    run: VerbRun

    def __call__(self, name: str, inputs: Sequence[Any]) -> Packing:
        kept: Any = self.run.inputs
        kept += inputs
        self.run.schemas.changes.check(inputs)
        self.run.schemas.note_expressions(inputs)
        return self.run.schemas


def made_of(draft: Draft, run: VerbRun, calls: CallChanges) -> Made:
    """Return the verb, as ``Millpond`` makes it."""
    left = KeptRows.of(f"left-{draft.number}", draft.schema("left"))
    if draft.kind in CALLING:
        return _aggregate(draft, run, calls, left)
    if draft.kind in OVER:
        return _over(draft, run, calls, left)
    keeps = draft.longer * LONG
    if draft.kind == "latest":
        keys, (time, _) = draft.keys("left"), draft.times
        return make_latest(
            draft.name, left, key=keys, time=time, history=keeps, ttl=draft.ttl, expired=draft.expired,
            begin=Kept(run),
        )  # fmt: skip
    if draft.kind == "top":
        return make_top_n(draft.name, left, TOP, by="k", order="at", descending=(True,), time="at", begin=Kept(run))
    if draft.kind == "apply":
        rule = Totals(draft.columns[0].name)
        return make_apply(
            draft.name,
            left,
            rule,
            key="k",
            time="at",
            results=results_of(RESULTS),
            lateness=WAIT,
            ttl=draft.ttl,
            begin=Kept(run),
        )
    right = KeptRows.of(f"right-{draft.number}", draft.schema("right"))
    times = draft.times
    if draft.kind == CORRECTED:
        return make_asof_join(
            draft.name, left, right, on="k", times=times, history=keeps, how=draft.match.how, left_key=["g"],
            begin=Kept(run),
        )  # fmt: skip
    if draft.kind in ASOF:
        waits, match = draft.kind == "waiting", draft.match
        return make_asof_join(
            draft.name, left, right, on="k", times=times, history=keeps, how=match.how, grace=WAIT if waits else None,
            tolerance=match.tolerance, exact=match.exact, direction=match.direction,
            begin=Kept(run),
        )  # fmt: skip
    if draft.kind == FOREIGN:
        return make_table_join(
            draft.name, left, right, on={"f": "k"}, left_key="k", times=times, how=draft.how, begin=Kept(run)
        )
    if draft.kind in ("tables", "versions"):
        history = keeps if draft.kind == "versions" else None
        return make_table_join(
            draft.name, left, right, on="k", times=times, how=draft.how, history=history, begin=Kept(run)
        )
    on = dict(zip(draft.keys("left"), draft.keys("right"), strict=True))
    grace = WAIT if draft.kind == "alone" else keeps
    return make_stream_join(
        draft.name, left, right, on=on, times=times, before=REACH, after=REACH, grace=grace, how=draft.how,
        begin=Kept(run),
    )  # fmt: skip


def _aggregate(draft: Draft, run: VerbRun, changes: CallChanges, left: KeptRows) -> Made:
    calls = {one.name: CALLS[one.function][0] for one in draft.calls}
    arguments, conditions = _texts(calls)

    def binding(bind: Callable[..., RowAggregate]) -> RowAggregate:
        first = bind()
        kept = first.kept(arguments, conditions)
        store = GROUPS_STORE if draft.kind == GROUPED else AGGREGATE
        states = call_states(run, run.inputs[-1], kept, changes, first.state_serde.name, store)
        return bind(slots=states.slots)

    if draft.kind == GROUPED:
        feed = Changes(["k"], "o", "at", by_order=True, late=True)
        return make_feed_aggregate(draft.name, left, calls, feed, by="g", time="at", begin=Kept(run), binding=binding)
    make = WINDOWS[draft.kind]
    by: By = rollup("k", "g") if draft.kind == CUBES else "k"
    until = {time: made for size, time in draft.eras if (made := make(size, draft.longer)) is not None}
    return make_aggregate(
        draft.name, left, calls, by=by, time="at", window=make(draft.window, draft.longer), until=until,
        binding=binding, begin=Kept(run), ttl=draft.ttl, expired=draft.expired,
    )  # fmt: skip


def _over(draft: Draft, run: VerbRun, changes: CallChanges, left: KeptRows) -> Made:
    calls = {one.name: OVER_CALLS[one.function][0] for one in draft.calls}
    arguments, conditions = _texts(calls)

    def binding(bind: Callable[..., Calls]) -> Calls:
        first = bind()
        kept = first.kept(arguments, conditions, {})
        states = call_states(run, run.inputs[-1], kept, changes, first.slots.name, STORE)
        return bind(slots=states.slots)

    return make_over(
        draft.name, left, calls, key="k", time="at", frame=OVER[draft.kind], grace=WAIT, binding=binding,
        begin=Kept(run),
    )  # fmt: skip


def _texts(calls: Mapping[str, AggregateCall]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the arguments and the conditions of calls, as they are kept."""
    arguments = {name: str(call.column) for name, call in calls.items() if call.column is not None}
    return arguments, {name: str(call.where) for name, call in calls.items() if call.where is not None}


WINDOWS: Final[Mapping[str, Callable[[int, int], Windows | None]]] = {
    "totals": lambda size, longer: None,
    CUBES: lambda size, longer: None,
    "windows": lambda size, longer: TimeWindows(size * 1_000, grace=longer * LONG // 1_000),
    "sessions": lambda gap, longer: SessionWindows(
        gap * 1_000, grace=longer * LONG // 1_000, max_length=CUTS[gap] * 1_000 if gap in CUTS else None
    ),
}
"""The aggregates, and their windows: so long, or with such a gap, and with a grace that is so often ``LONG``."""
CALLING: Final = (*WINDOWS, GROUPED)
"""All aggregates."""
OVER: Final = {"running": Frame(), "recent": Frame(rows=3)}
"""Rows beside those of their key before them, and which of these count."""
MORTAL: Final = ("latest", "totals")
"""Those that may have a time to live."""
TTLS: Final = (None, 20 * SECOND, 60 * SECOND, 200 * SECOND)
TTLS_OF_RULES: Final = 20
"""So many times shorter are those of rules, whose timers fire soon."""
ASOF: Final = ("asof", "waiting")
"""As-of joins; left rows of the second one wait."""
TOLERANCES: Final = (8 * SECOND, 20 * SECOND)
JOINS: Final = (*ASOF, CORRECTED, FOREIGN, "tables", "versions", "streams", "alone")
TYPES: Final = {
    FOREIGN: FOREIGN_KEY_JOINS,
    "tables": TABLE_JOINS,
    "versions": TABLE_JOINS,
    "alone": (JoinType.LEFT, JoinType.RIGHT, JoinType.OUTER, JoinType.SEMI, JoinType.ANTI),
}
"""Of joins of several types, which there are; of streams, those where rows come out alone are another kind."""
OTHER: Final = {"left": "right", "right": "left"}
KEEPING: Final = {
    "latest": ["left"],
    "asof": ["right"],
    "versions": ["left", "right"],
    "streams": ["left", "right"],
}
"""Verbs that keep rows for others to begin with, and of which sides."""
TABLES: Final = ("latest", "asof", "versions")
"""Those of them that keep versions of a table."""
TOP: Final = 2
"""Of how many rows ``top_n`` knows: the newest of each key."""
KINDS: Final = ("latest", "top", "apply", *CALLING, *OVER, *JOINS)
