"""Random jobs of verbs over keys and values of any type, each with what it has to answer.

Rule of this module: a job is all that follows from its number, but for its rows and the ways in which they come.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import reduce
from math import fsum, inf, isfinite, nan
from operator import xor
from random import Random
from statistics import pvariance
from typing import Any, Final, TypeAlias

import pyarrow as pa

from millpond.processors import SessionWindows, SlidingWindows, TimeWindows
from millpond.processors.calls.aggregate import make_aggregate
from millpond.processors.calls.apply import make_apply
from millpond.processors.calls.deduplicate import make_deduplicate
from millpond.processors.calls.joins.asof_join import make_asof_join
from millpond.processors.calls.joins.stream_join import make_stream_join
from millpond.processors.calls.joins.table_join import make_table_join
from millpond.processors.calls.latest import make_latest
from millpond.processors.calls.made import Made
from millpond.processors.calls.over import make_over
from millpond.processors.calls.tables import Rows
from millpond.processors.calls.top_n import make_top_n
from millpond.processors.options.joins import JoinType
from millpond.processors.verbs import KeyContext, KeyedProcessor, aggregates
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.ordered.over_spec import Frame
from millpond.processors.verbs.verb import INSTANT as TIME
from tests.metamorphic import typed_relations as relations
from tests.metamorphic.applied import results_of
from tests.metamorphic.histories import SECOND, Chain, Event
from tests.metamorphic.oracle import How
from tests.metamorphic.typed_relations import Relation
from tests.metamorphic.typed_values import KEYS, VALUES, canonical, rank, signs

LONG: Final = 10_000_000 * SECOND
WIDTH: Final = 3
"""How many columns of values a source has."""
SUMMED: Final = ("tinyint", "smallint", "int", "decimal(18,4)", "float")
INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")

Found: TypeAlias = Mapping[str, Any]
"""A row of a relation."""
Getter: TypeAlias = Callable[[Found, Mapping[int, Event]], Any]
"""The value of a column for a row of a relation, by the numbers of all rows."""


@dataclass(frozen=True)
class Job:
    """Verbs, and what they have to answer.

    Attributes:
        chain: the verbs.
        answer: which rows make up each row of the result.
        columns: the values of its columns; others are not looked at.
        keys: the columns of the key whose last change counts; none if all rows do.
        delays: by how many seconds rows of each source may be late.
        with_op, without_nulls: the sources whose rows may be deletes, and which have no null keys.
    """

    chain: Chain
    answer: Relation
    columns: Mapping[str, Getter]
    keys: Sequence[str]
    delays: Mapping[str, int]
    with_op: frozenset[str]
    without_nulls: frozenset[str]


class Draft:
    """A draft, of which the families make their jobs.

    Args:
        number: of the job; of so many in a row, each type is the key once, and later all meet.

    Attributes:
        random: decides.
        key, primary: the types of keys, and of primary keys where a key is a foreign one.
        kinds: the types of the values of each source.
        sources: the rows of each source.
    """

    def __init__(self, number: int) -> None:
        self.random = Random(number)
        turn, place = divmod(number, len(KEYS))
        self.key = KEYS[place]
        self.primary = KEYS[(place + 1 + turn) % len(KEYS)]
        first = {source: WIDTH * (turn + index * 3) for index, source in enumerate("abc")}
        self.kinds = {
            source: [VALUES[(start + column) % len(VALUES)] for column in range(WIDTH)]
            for source, start in first.items()
        }
        self.sources: dict[str, Rows] = {}
        self._with_op: set[str] = set()
        self._without_nulls: set[str] = set()

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def rows(self, source: str, *, op: bool = False, nulls: bool = True, primary: bool = False) -> Rows:
        """Return the rows of a source, whose names begin with its own; those of a primary key have two keys."""
        columns: list[Any] = [pa.field(f"{source}id", pa.int64())]
        columns += [self.primary.column("p")] if primary else []
        columns += [self.key.column("k"), pa.field(f"{source}t", TIME)]
        columns += [kind.column(f"{source}v{place}") for place, kind in enumerate(self.kinds[source])]
        columns += [pa.field(f"{source}o", pa.string())] if op else []
        self._with_op |= {source} if op else set()
        self._without_nulls |= set() if nulls else {source}
        self.sources[source] = Rows.of(source, pa.schema(columns))
        return self.sources[source]

    def names(self, *sources: str) -> list[str]:
        """Return the columns of sources but for keys and operations."""
        return [name for one in sources for name in self.sources[one].schema.names if name not in ("k", "p", f"{one}o")]

    def job(
        self,
        verbs: Sequence[Made],
        answer: Relation,
        columns: Mapping[str, Getter],
        delays: Mapping[str, int],
        keys: Sequence[str] = (),
    ) -> Job:
        schemas = {source: self.sources[source].schema for source in delays}
        chain = Chain(verbs, schemas, {source: f"{source}t" for source in delays})
        return Job(chain, answer, columns, keys, delays, frozenset(self._with_op), frozenset(self._without_nulls))

    def values(self, *sources: str) -> dict[str, Getter]:
        """Return the columns of sources, as they are."""
        return {name: _column(source, name) for source in sources for name in self.names(source)}

    def calls(
        self, *sources: str, by_time: bool = True, filtered: bool = True
    ) -> tuple[dict[str, AggregateCall], dict[str, Getter]]:
        """Return functions over some columns of sources; ``by_time`` where no two rows of a key have one time."""
        calls: dict[str, AggregateCall] = {"n": aggregates.count()}
        getters: dict[str, Getter] = {"n": _size(sources[0])}
        for source in sources:
            for place, kind in enumerate(self.kinds[source]):
                known = [*(_BY_TIME if by_time else ()), "count", *(_COMPARING if kind in KEYS else ())]
                known += ["sum", "variance", "median"] if kind.name in SUMMED else []
                known += ["bits"] if kind.name in INTEGERS else []
                known += ["all"] if kind.name == "boolean" else []
                known += ["lean", "bins"] if kind.name in SUMMED else []
                known += ["tally", "top"] if kind.name in INTEGERS else []
                for function in self.random.sample(known, min(3, len(known))):
                    column, name = f"{source}v{place}", f"{function}_{source}{place}"
                    where = self.pick(None, None, f"{source}v{(place + 1) % WIDTH}") if filtered else None
                    calls[name] = replace(_FUNCTIONS[function][0](column), where=where)
                    getters[name] = _aggregated(source, column, _FUNCTIONS[function][1], where)
        return calls, getters


def _column(source: str, name: str) -> Getter:
    return lambda found, events: None if found[source] is None else events[found[source]].row[name]


def raw(name: str = "k") -> Getter:
    """Return the key as its row has it."""
    return lambda found, events: events[found["kid"]].row[name]


def kept(name: str = "k") -> Getter:
    """Return the key as tables and groups keep it."""
    return lambda found, events: canonical(events[found["kid"]].row[name])


def window(found: Found, _: Mapping[int, Event]) -> Any:
    return {"start": found["ws"], "end": found["we"]}


def ranked(found: Found, _: Mapping[int, Event]) -> Any:
    return found["rank"]


def _size(source: str) -> Getter:
    return lambda found, _: len(found[source])


def _aggregated(source: str, column: str, of: Callable[[list[Any]], Any], where: str | None) -> Getter:
    """Return a getter of what a function makes of a column, of the rows in which another column is not null."""

    def value(found: Found, events: Mapping[int, Event]) -> Any:
        rows = [{} if number is None else events[number].row for number in found[source]]
        return of([row.get(column) for row in rows if where is None or row.get(where) is not None])

    return value


def _present(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _least(values: list[Any]) -> Any:
    return min(_present(values), key=lambda value: (rank(value), signs(value)), default=None)


def _greatest(values: list[Any]) -> Any:
    return max(_present(values), key=lambda value: (rank(value), signs(value)), default=None)


def _different(values: list[Any]) -> int:
    return len({rank(value) for value in _present(values)})


def _most_frequent(values: list[Any]) -> Any:
    counts = Counter(rank(value) for value in _present(values))
    most = max(counts.values(), default=0)
    return canonical(min((one for one in _present(values) if counts[rank(one)] == most), key=rank, default=None))


def _sum(values: list[Any]) -> Any:
    present = _present(values)
    if not present or not isinstance(present[0], float):
        return sum(present[1:], present[0]) if present else None
    try:
        return fsum(present) + 0.0
    except ValueError:
        return nan


def _variance(values: list[Any]) -> float | None:
    present = _present(values)
    if not all(map(isfinite, present)):
        return nan
    return float(pvariance(map(Fraction, present))) if present else None


def _median(values: list[Any]) -> float | None:
    present = [float(value) for value in sorted(_present(values), key=rank)]
    if not present:
        return None
    near, far = present[(len(present) - 1) // 2], present[len(present) // 2]
    return near + 0.0 if near == far else 0.5 * near + 0.5 * far


def _skewness(values: list[Any]) -> float | None:
    present = _present(values)
    if not all(map(isfinite, present)):
        return nan
    exact = list(map(Fraction, present))
    mean = sum(exact, Fraction()) / (len(exact) or 1)
    second, third = (sum(((one - mean) ** power for one in exact), Fraction()) for power in (2, 3))
    if not second:
        return None
    squared = third**2 * len(exact) / second**3
    with localcontext(prec=60) as context:
        context.Emin, context.Emax = -(10**6), 10**6
        size = (Decimal(squared.numerator) / Decimal(squared.denominator)).sqrt()
        return float(size if third > 0 else -size)


def _binned(values: list[Any]) -> list[tuple[float, int]]:
    places = Counter(bisect_left(_EDGES, value) if value == value else len(_EDGES) for value in _present(values))
    return [(edge, places[place]) for place, edge in enumerate([*_EDGES, inf])]


def _top(values: list[int | None]) -> list[dict[str, int]]:
    counted = sorted((-count, item) for item, count in Counter(_present(values)).items())
    return [{"item": item, "count": -count} for count, item in counted[:2]]


_EDGES: Final = [-1.0, 0.0, 100.0]
_TALLY: Final = aggregates.UserAggregate(
    name="tally",
    zero=list,
    update=lambda state, value: sorted([*state, value]),
    merge=lambda state, other: sorted([*state, *other]),
    finish=lambda state: sorted(Counter(state).items()),
    type=pa.map_(pa.int64(), pa.int64()),
)
_BY_TIME: Final = ("first", "last", "first_present", "last_present", "collect")
_COMPARING: Final = ("min", "max", "mode", "count_distinct")
_FUNCTIONS: Final[Mapping[str, tuple[Callable[[str], AggregateCall], Callable[[list[Any]], Any]]]] = {
    "first": (aggregates.first, lambda values: values[0] if values else None),
    "last": (aggregates.last, lambda values: values[-1] if values else None),
    "first_present": (
        lambda column: aggregates.first(column, ignore_nulls=True),
        lambda values: next(iter(_present(values)), None),
    ),
    "last_present": (
        lambda column: aggregates.last(column, ignore_nulls=True),
        lambda values: next(iter(_present(values[::-1])), None),
    ),
    "collect": (aggregates.collect, _present),
    "count": (aggregates.count, lambda values: len(_present(values))),
    "min": (aggregates.min, _least),
    "max": (aggregates.max, _greatest),
    "mode": (aggregates.mode, _most_frequent),
    "count_distinct": (aggregates.count_distinct, _different),
    "sum": (aggregates.sum, _sum),
    "variance": (aggregates.var_pop, _variance),
    "median": (aggregates.median, _median),
    "bits": (aggregates.bit_xor, lambda values: reduce(xor, _present(values)) if _present(values) else None),
    "lean": (aggregates.skewness, _skewness),
    "bins": (lambda column: aggregates.histogram(column, _EDGES), _binned),
    "tally": (_TALLY, lambda values: sorted(Counter(_present(values)).items()) or None),
    "top": (lambda column: aggregates.approx_top_k(column, 2), _top),
    "all": (aggregates.bool_and, lambda values: all(_present(values)) if _present(values) else None),
}


def latest_rows(draft: Draft) -> Job:
    history = draft.pick(0, 2, 8, 50)
    op = draft.pick(True, False)
    rows = draft.rows("a", op=op)
    made = make_latest("out", rows, key="k", time="at", history=history * SECOND, op="ao" if op else None)
    answer = relations.newest(relations.rows_of("a"))
    return draft.job([made], answer, {"k": kept(), **draft.values("a")}, {"a": history}, ["k"])


def totals(draft: Draft) -> Job:
    calls, getters = draft.calls("a") if draft.rows("a") else ({}, {})
    made = make_aggregate("out", draft.sources["a"], calls, by="k", time="at")
    return draft.job([made], relations.grouped(relations.rows_of("a")), {"k": kept(), **getters}, {"a": 40}, ["k"])


def _windows(draft: Draft, grace: int) -> tuple[Any, Callable[[Relation], Relation]]:
    """Return windows of some kind, and how they are cut."""
    wait = grace * 1_000
    windows: list[tuple[Any, Callable[[Relation], Relation]]] = [
        (TimeWindows(7_000, grace=wait), lambda rows: relations.hopping(rows, 7 * SECOND, 7 * SECOND)),
        (TimeWindows(10_000, advance=3_000, grace=wait), lambda rows: relations.hopping(rows, 10 * SECOND, 3 * SECOND)),
        (SlidingWindows(5_000, grace=wait), lambda rows: relations.sliding(rows, 5 * SECOND)),
        (SessionWindows(4_000, grace=wait), lambda rows: relations.sessions(rows, 4 * SECOND)),
        (
            SessionWindows(4_000, grace=wait, max_length=9_000),
            lambda rows: relations.sessions(rows, 4 * SECOND, 9 * SECOND),
        ),
    ]
    return draft.random.choice(windows)


def windows_of_rows(draft: Draft) -> Job:
    rows = draft.rows("a")
    grace, final = draft.pick(0, 1, 3, 8, 20), draft.pick(True, False)
    cut, answer = _windows(draft, grace)
    calls, getters = draft.calls("a")
    made = make_aggregate("out", rows, calls, by="k", time="at", window=cut, final=final)
    columns = {"k": kept(), "window": window, **getters}
    found = answer(relations.rows_of("a"))
    return draft.job([made], found, columns, {"a": grace}, [] if final else ["k", "window"])


def first_rows(draft: Draft) -> Job:
    rows, n, descending = draft.rows("a"), draft.pick(1, 2, 5), draft.pick(True, False)
    made = make_top_n("out", rows, n, by="k", order="at", time="at", descending=(descending,))
    found = relations.first(relations.grouped(relations.rows_of("a")), n, descending=descending)
    return draft.job([made], found, {"k": kept(), "rank": ranked, **draft.values("a")}, {"a": 40}, ["k", "rank"])


def first_rows_of_windows(draft: Draft) -> Job:
    rows, n, descending = draft.rows("a"), draft.pick(1, 2, 5), draft.pick(True, False)
    grace, final = draft.pick(0, 1, 3, 8, 20), draft.pick(True, False)
    cut, answer = _windows(draft, grace)
    made = make_top_n(
        "out", rows, n, by="k", order="at", time="at", descending=(descending,), window=cut, final=final
    )  # fmt: skip
    found = relations.first(answer(relations.rows_of("a")), n, descending=descending)
    columns = {"k": kept(), "window": window, "rank": ranked, **draft.values("a")}
    return draft.job([made], found, columns, {"a": grace}, [] if final else ["k", "window", "rank"])


def first_rows_apart(draft: Draft) -> Job:
    rows, grace, within = draft.rows("a"), draft.pick(0, 1, 3, 8, 20), draft.pick(0, 2, 7, 30)
    made = make_deduplicate("out", rows, key="k", time="at", within=within * SECOND, grace=grace * SECOND)
    found = relations.far_apart(relations.rows_of("a"), within * SECOND)
    return draft.job([made], found, {"k": kept(), **draft.values("a")}, {"a": grace})


def windows_of_first_rows_apart(draft: Draft) -> Job:
    rows, grace, within = draft.rows("a"), draft.pick(0, 3, 20), draft.pick(0, 2, 7)
    one = make_deduplicate("one", rows, key="k", time="at", within=within * SECOND, grace=grace * SECOND)
    cut, answer = _windows(draft, 0)
    calls, getters = draft.calls("a")
    two = make_aggregate("two", one.rows, calls, by="k", time="at", window=cut, final=True)
    found = answer(relations.far_apart(relations.rows_of("a"), within * SECOND))
    return draft.job([one, two], found, {"k": kept(), "window": window, **getters}, {"a": grace})


def rows_over_those_before(draft: Draft) -> Job:
    rows, grace = draft.rows("a"), draft.pick(0, 1, 8, 20)
    made, found, columns = _over(draft, "out", rows, relations.rows_of("a"), grace)
    return draft.job([made], found, columns, {"a": grace})


def rows_over_first_rows(draft: Draft) -> Job:
    rows, grace, within = draft.rows("a"), draft.pick(0, 3, 20), draft.pick(0, 2, 7)
    one = make_deduplicate("one", rows, key="k", time="at", within=within * SECOND, grace=grace * SECOND)
    firsts = relations.far_apart(relations.rows_of("a"), within * SECOND)
    made, found, columns = _over(draft, "two", one.rows, firsts, 0)
    return draft.job([one, made], found, columns, {"a": grace})


def _over(
    draft: Draft, name: str, rows: Rows, before: relations.Relation, grace: int
) -> tuple[Made, relations.Relation, dict[str, Getter]]:
    """Return rows over those of a random frame, with what DuckDB says of them."""
    last, within = draft.pick((None, None), (1, None), (3, None), (None, 0), (None, 9))
    frame = Frame(last, None if within is None else within * SECOND)
    calls, getters = draft.calls("a", filtered=False)
    earlier = f"lag_{draft.pick(1, 2, 5)}"
    calls[earlier] = aggregates.lag("av0", int(earlier[4:]))
    made = make_over(name, rows, calls, key="k", time="at", frame=frame, grace=grace * SECOND)

    def of_frame(getter: Getter) -> Getter:
        return lambda found, events: getter({**found, "a": found["frame"]}, events)

    def of_earlier(found: Found, events: Mapping[int, Event]) -> Any:
        return None if found["earlier"] is None else events[found["earlier"]].row["av0"]

    columns: dict[str, Getter] = {"k": kept(), **draft.values("a"), earlier: of_earlier}
    columns |= {result: of_frame(getter) for result, getter in getters.items()}
    return made, relations.over(before, last, None if within is None else within * SECOND, int(earlier[4:])), columns


def latest_of_first_rows(draft: Draft) -> Job:
    rows, n, descending = draft.rows("a"), draft.pick(1, 2, 5), draft.pick(True, False)
    one = make_top_n("one", rows, n, by="k", order="at", time="at", descending=(descending,))
    changes = one.rows.select("k", "rank", *draft.names("a"), "op", changed="change_time")
    two = make_latest("two", changes, key=["k", "rank"], time="changed", history=LONG, op="op")
    found = relations.first(relations.grouped(relations.rows_of("a")), n, descending=descending)
    return draft.job([one, two], found, {"k": kept(), "rank": ranked, **draft.values("a")}, {"a": 40}, ["k", "rank"])


def versions(draft: Draft) -> Job:
    late, grace, op = draft.pick(0, 3, 20), draft.pick(None, 1, 8), draft.pick(True, False)
    how: How = draft.pick("inner", "left")
    right = draft.rows("b", op=op)
    made = make_asof_join(
        "out", draft.rows("a"), right, on="k", times=("at", "bt"), how=JoinType(how), right_op="bo" if op else None,
        history=max(grace or 0, late) * SECOND, grace=None if grace is None else grace * SECOND,
    )  # fmt: skip
    answer = relations.asof(relations.rows_of("a"), relations.rows_of("b"), how)
    delays = {"b": 0 if grace is None else grace - 1, "a": late}
    return draft.job([made], answer, {"k": raw(), **draft.values("a", "b")}, delays)


def corrected_versions(draft: Draft) -> Job:
    late, op = draft.pick(0, 3, 20), draft.pick(True, False)
    how: How = draft.pick("inner", "left")
    made = make_asof_join(
        "out", draft.rows("a"), draft.rows("b", op=op), on="k", times=("at", "bt"), how=JoinType(how),
        right_op="bo" if op else None, history=late * SECOND, left_key=["k"],
    )  # fmt: skip
    answer = relations.asof(relations.rows_of("a"), relations.rows_of("b"), how)
    return draft.job([made], answer, {"k": raw(), **draft.values("a", "b")}, {"b": late, "a": late}, ["k", "at"])


def _streams(draft: Draft, name: str, how: How, reach: tuple[int, int], grace: int) -> Made:
    return make_stream_join(
        name, draft.rows("a"), draft.rows("b"), on="k", times=("at", "bt"), before=reach[0] * SECOND,
        after=reach[1] * SECOND, grace=grace * SECOND, how=JoinType(how),
    )  # fmt: skip


def _reach(draft: Draft) -> tuple[int, int]:
    chosen: tuple[int, int] = draft.pick((3, 3), (2, 7), (10, 0), (0, 5), (10, -4))
    return chosen


def _micros(reach: tuple[int, int]) -> tuple[int, int]:
    return reach[0] * SECOND, reach[1] * SECOND


def streams(draft: Draft) -> Job:
    reach, grace = _reach(draft), draft.pick(0, 3, 20)
    how: How = draft.pick("inner", "left", "right", "outer", "semi", "anti")
    made = _streams(draft, "out", how, reach, grace)
    answer = relations.near(relations.rows_of("a"), relations.rows_of("b"), how, _micros(reach))
    shown = "a" if how in ("semi", "anti") else "ab"
    return draft.job([made], answer, {"k": raw(), **draft.values(*shown)}, {"b": grace, "a": grace})


def tables(draft: Draft) -> Job:
    history = draft.pick(None, 0, 8)
    how: How = draft.pick("inner", "left", "outer")
    left, right = draft.rows("a", op=True), draft.rows("b", op=True, nulls=how != "outer")
    made = make_table_join(
        "out", left, right, on="k", times=("at", "bt"), ops=("ao", "bo"), how=JoinType(how),
        history=None if history is None else history * SECOND,
    )  # fmt: skip
    answer = relations.tables(relations.rows_of("a"), relations.rows_of("b"), how)
    columns = {"k": kept(), **draft.values("a", "b")}
    return draft.job([made], answer, columns, dict.fromkeys("ab", history or 0), ["k"])


def foreign_keys(draft: Draft) -> Job:
    history = draft.pick(None, 0, 8)
    how: How = draft.pick("inner", "left", "right", "outer")
    left, right = draft.rows("a", op=True, primary=True, nulls=how in ("inner", "left")), draft.rows("b", op=True)
    made = make_table_join(
        "out", left, right, on="k", times=("at", "bt"), ops=("ao", "bo"), left_key="p", how=JoinType(how),
        history=None if history is None else history * SECOND,
    )  # fmt: skip
    answer = relations.by_foreign_key(relations.rows_of("a", "p"), "k", relations.rows_of("b"), how)
    keys = {"p": kept("p"), "k": _column("a", "k")} if how in ("inner", "left") else {"p": _primary, "k": _named}
    columns = {**keys, **draft.values("a", "b")}
    return draft.job([made], answer, columns, dict.fromkeys("ab", history or 0), made.feed or ())


def _primary(found: Found, events: Mapping[int, Event]) -> Any:
    """Return the left key of a result; none of a right row alone."""
    return None if found["a"] is None else canonical(events[found["a"]].row["p"])


def _named(found: Found, events: Mapping[int, Event]) -> Any:
    """Return what the left row names, or the key of a right row alone, as keys are kept."""
    return canonical(events[found["b" if found["a"] is None else "a"]].row["k"])


class Numbering(KeyedProcessor):
    """Hands rows on with their number among those of their key.

    Args:
        names: the columns that are handed on.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def process(self, key: Any, row: dict[str, Any], context: KeyContext) -> Iterable[Mapping[str, Any]]:
        number = context.state.get(0) + 1
        context.state.set(number)
        yield {"k": key, "n": number, "seen": context.time, **{name: row[name] for name in self._names}}


def _numbering(draft: Draft, name: str, rows: Rows, lateness: int, sources: Sequence[str]) -> Made:
    names = draft.names(*sources)
    fields = [rows.schema.field(name) for name in ("k", *names)]
    schema = pa.schema([*fields, pa.field("n", pa.int64()), pa.field("seen", TIME)])
    return make_apply(
        name, rows, Numbering(names), key="k", time="at", results=results_of(schema), lateness=lateness * SECOND
    )


def rules(draft: Draft) -> Job:
    lateness = draft.pick(0, 3, 20)
    made = _numbering(draft, "out", draft.rows("a"), lateness, "a")
    columns: dict[str, Getter] = {"k": kept(), "n": lambda found, _: found["we"], **draft.values("a")}
    return draft.job([made], relations.numbered(relations.rows_of("a")), columns, {"a": lateness})


def versions_of_the_latest(draft: Draft) -> Job:
    """Return a job in which all that comes in order is latest."""
    how: How = draft.pick("inner", "left")
    one = make_latest("one", draft.rows("b", op=True), key="k", time="bt", history=0, op="bo")
    changes = one.rows.select("k", *draft.names("b"), "op", changed="change_time")
    two = make_asof_join(
        "two", draft.rows("a"), changes, on="k", times=("at", "changed"), history=LONG, how=JoinType(how),
        right_op="op",
    )  # fmt: skip
    answer = relations.asof(relations.rows_of("a"), relations.rows_of("b"), how)
    return draft.job([one, two], answer, {"k": raw(), **draft.values("a", "b")}, {"b": 0, "a": draft.pick(0, 9)})


def windows_of_versions(draft: Draft) -> Job:
    """Return a job that counts only rows that have found a version, or all."""
    late, only_found = draft.pick(0, 5), draft.pick(True, False)
    one = make_asof_join(
        "one", draft.rows("a"), draft.rows("b"), on="k", times=("at", "bt"), history=LONG, how=JoinType.LEFT
    )
    cut, answer = _windows(draft, late)
    calls, getters = draft.calls("a", "b")
    rows = one.rows.where_present("bid") if only_found else one.rows
    two = make_aggregate("two", rows, calls, by="k", time="at", window=cut, final=True)
    found = relations.asof(relations.rows_of("a"), relations.rows_of("b"), "left")
    columns = {"k": kept(), "window": window, **getters}
    counted = answer(relations.where_present(found) if only_found else found)
    return draft.job([one, two], counted, columns, {"b": 0, "a": late})


def windows_of_pairs(draft: Draft) -> Job:
    reach, grace, only_found = _reach(draft), draft.pick(0, 3), draft.pick(True, False)
    one = _streams(draft, "one", "left", reach, grace)
    cut, answer = _windows(draft, draft.pick(0, 4))
    calls, getters = draft.calls("a", by_time=False)
    more, others = draft.calls("b", by_time=False)
    rows = one.rows.where_present("bid") if only_found else one.rows
    two = make_aggregate("two", rows, {**calls, **more}, by="k", time="at", window=cut, final=True)
    found = relations.near(relations.rows_of("a"), relations.rows_of("b"), "left", _micros(reach))
    columns = {"k": kept(), "window": window, **others, **getters}
    counted = answer(relations.where_present(found) if only_found else found)
    return draft.job([one, two], counted, columns, {"b": grace, "a": grace})


def totals_beside_the_latest(draft: Draft) -> Job:
    history = draft.pick(0, 2, 50)
    how: How = draft.pick("inner", "left", "outer")
    rows = draft.rows("a")
    calls, getters = draft.calls("a")
    one = make_aggregate("one", rows, calls, by="k", time="at")
    two = make_latest(
        "two", draft.rows("b", op=True, nulls=how != "outer"), key="k", time="bt", history=history * SECOND, op="bo"
    )
    three = make_table_join(
        "three", one.rows.select("k", *calls, "op", at="change_time"),
        two.rows.select("k", *draft.names("b"), bo="op", changed="change_time"),
        on="k", times=("at", "changed"), ops=("op", "bo"), how=JoinType(how), history=LONG,
    )  # fmt: skip
    answer = relations.tables(relations.grouped(relations.rows_of("a")), relations.rows_of("b"), how)
    sides = {name: _unless_null("a", getter) for name, getter in getters.items()}
    columns = {"k": kept(), **sides, **draft.values("b")}
    return draft.job([one, two, three], answer, columns, {"a": 30, "b": history}, ["k"])


def _unless_null(source: str, getter: Getter) -> Getter:
    return lambda found, events: None if found[source] is None else getter(found, events)


def versions_of_versions(draft: Draft) -> Job:
    late = draft.pick(0, 5)
    how: How = draft.pick("inner", "left")
    right = draft.rows("c", op=True)
    one = make_asof_join(
        "one", draft.rows("a"), draft.rows("b"), on="k", times=("at", "bt"), history=LONG, how=JoinType.LEFT
    )
    two = make_asof_join(
        "two", one.rows, right, on="k", times=("at", "ct"), history=LONG, how=JoinType(how), right_op="co"
    )
    three = make_latest("three", two.rows, key="k", time="at", history=LONG)
    found = relations.asof(relations.rows_of("a"), relations.rows_of("b"), "left")
    answer = relations.newest(relations.asof(found, relations.rows_of("c"), how))
    columns = {"k": kept(), **draft.values("a", "b", "c")}
    return draft.job([one, two, three], answer, columns, {"c": 0, "b": 0, "a": late}, ["k"])


def windows_of_rules(draft: Draft) -> Job:
    lateness = draft.pick(0, 5)
    one = _numbering(draft, "one", draft.rows("a"), lateness, "a")
    cut, answer = _windows(draft, draft.pick(0, 3))
    calls, getters = draft.calls("a")
    two = make_aggregate("two", one.rows, calls, by="k", time="seen", window=cut, final=True)
    columns = {"k": kept(), "window": window, **getters}
    return draft.job([one, two], answer(relations.rows_of("a")), columns, {"a": lateness})


def latest_of_tables(draft: Draft) -> Job:
    history = draft.pick(0, 8)
    how: How = draft.pick("inner", "left", "outer")
    left, right = draft.rows("a", op=True), draft.rows("b", op=True, nulls=how != "outer")
    one = make_table_join(
        "one", left, right, on="k", times=("at", "bt"), ops=("ao", "bo"), how=JoinType(how), history=history * SECOND
    )
    changes = one.rows.select("k", *draft.names("a", "b"), "op", changed="change_time")
    two = make_latest("two", changes, key="k", time="changed", history=LONG, op="op")
    answer = relations.tables(relations.rows_of("a"), relations.rows_of("b"), how)
    columns = {"k": kept(), **draft.values("a", "b")}
    return draft.job([one, two], answer, columns, dict.fromkeys("ab", history), ["k"])


def tables_by_a_foreign_key_of_versions(draft: Draft) -> Job:
    """Return a job in which rows with the version of their time are a table, joined by a column of its own."""
    how: How = draft.pick("inner", "left")
    one = make_latest("one", draft.rows("a", op=True, primary=True), key="p", time="at", history=LONG, op="ao")
    changes = one.rows.select("p", "k", *draft.names("a"), "op", changed="change_time")
    two = make_table_join(
        "two", changes, draft.rows("b", op=True), on="k", times=("changed", "bt"), ops=("op", "bo"), left_key="p",
        how=JoinType(how), history=LONG,
    )  # fmt: skip
    answer = relations.by_foreign_key(relations.rows_of("a", "p"), "k", relations.rows_of("b"), how)
    columns = {"p": kept("p"), "k": _column("a", "k"), **draft.values("a", "b")}
    return draft.job([one, two], answer, columns, dict.fromkeys("ab", 9), ["p"])


FAMILIES: Final[Mapping[str, Callable[[Draft], Job]]] = {
    family.__name__: family
    for family in (
        latest_rows, totals, windows_of_rows, versions, streams, tables, foreign_keys, rules, versions_of_the_latest,
        windows_of_versions, windows_of_pairs, totals_beside_the_latest, versions_of_versions, windows_of_rules,
        latest_of_tables, tables_by_a_foreign_key_of_versions, first_rows, first_rows_of_windows,
        latest_of_first_rows, first_rows_apart, windows_of_first_rows_apart, rows_over_those_before,
        rows_over_first_rows, corrected_versions,
    )
}  # fmt: skip
