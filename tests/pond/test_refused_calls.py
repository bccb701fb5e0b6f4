"""The refusals of ``Pond``: each says what to write instead, and that works."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as _compute
import pytest

from millpond import Pond
from millpond.errors import ConfigurationError, RecordError
from millpond.processors import SessionWindows, TimeWindows, cube, grouping_sets, rollup
from millpond.processors.pond import MicroBatches
from millpond.processors.verbs import KeyContext, KeyedProcessor
from millpond.processors.verbs import aggregates as agg
from tests.refusing import Refused

pc: Any = _compute

AT = datetime(2026, 6, 1, 12, tzinfo=UTC)
ROWS: list[dict[str, Any]] = [{"k": "x", "t": AT, "n": 1, "yes": True, "o": "c"}]
OTHERS: list[dict[str, Any]] = [{"k": "x", "t": AT, "m": 1}]
TABLE = pa.Table.from_pylist(ROWS)
KEYED: dict[str, Any] = {"key": "k", "time": "t"}
BY: dict[str, Any] = {"by": "k", "time": "t"}
N = {"count": agg.count()}
ON: dict[str, Any] = {"on": "k", "time": "t"}
MAPS: Any = pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))
UNTYPED: Any = agg
"""The functions of aggregates, for calls that no type checker lets pass."""


def latest(pond: Pond, column: Any, **options: Any) -> pa.Table:
    """Return the latest rows of a table with one more column."""
    return pond.latest(TABLE.append_column("more", column), **KEYED, **options)


def begun(pond: Pond) -> MicroBatches:
    return pond.in_batches.latest(TABLE.schema, **KEYED, history=0)


def joining(pond: Pond) -> MicroBatches:
    return pond.in_batches.asof_join(TABLE.schema, pa.Table.from_pylist(OTHERS).schema, **ON, history=0)


def closed(pond: Pond) -> pa.Table:
    running = begun(pond)
    running.close()
    return running.feed(ROWS)


def joined(pond: Pond, where: Any) -> pa.Table:
    return pond.asof_join(ROWS, OTHERS, **ON, where=where)


def near(pond: Pond, before: Any) -> pa.Table:
    return pond.stream_join(ROWS, OTHERS, **ON, before=before, at_most="1 hour")


def feed(pond: Pond, **options: Any) -> pa.Table:
    """Return a change feed of a verb."""
    return pond.latest(TABLE, **KEYED, **options)


def with_day(rows: pa.Table) -> pa.Table:
    return rows.append_column("day", pc.floor_temporal(rows["t"], unit="day"))


def changed(pond: Pond, rows: Any, **options: Any) -> pa.Table:
    """Count rows, or those that a change feed describes."""
    return pond.aggregate(rows, {"n_": agg.count()}, **{**BY, **options})


def top(pond: Pond, order: Any) -> pa.Table:
    mapped = TABLE.append_column("map", pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())))
    return pond.top_n(mapped, 1, **BY, order=order)


def counting(**changed: Any) -> agg.UserAggregate:
    """Return a count by functions of one's own."""
    given: dict[str, Any] = {
        "name": "counted",
        "zero": lambda: 0,
        "update": lambda state, value: state + 1,
        "merge": lambda state, other: state + other,
        "type": pa.int64(),
    }
    return agg.UserAggregate(**{**given, **changed})


def counted(pond: Pond, **changed: Any) -> pa.Table:
    return pond.aggregate(ROWS, {"r": counting(**changed)("n")}, **BY)


def by(*sets: Any, **calls: Any) -> Callable[[Pond], pa.Table]:
    """Count rows by grouping sets."""
    given = {"n": agg.count(), **calls}
    return lambda pond: pond.aggregate(ROWS, given, by=sets[0] if len(sets) == 1 else list(sets), time="t")


def upserts(pond: Pond) -> pa.Table:
    """Return the rows of a change feed that stay, by the line that a message has."""
    table = pond.latest(TABLE, **KEYED)
    with pytest.raises(ConfigurationError) as refused:
        corrected(pond, table)
    line = refused.value.sentence.partition("write ")[2].partition(", or")[0]
    rows: pa.Table = eval(line, {"table": table, "pc": pc})
    return rows


def corrected(pond: Pond, left: pa.Table) -> pa.Table:
    """Return a join whose results are corrected."""
    return pond.asof_join(left, OTHERS, **ON, emit="updates", left_key="o", history="1 hour")


NAMED: list[dict[str, Any]] = [{"o": "c", "u": AT}]


def by_o(pond: Pond, left: Any, right: Any, **given: Any) -> pa.Table:
    """Join rows of a feed with those of ``NAMED`` by a column that is not the key of the feed."""
    times: dict[str, Any] = (
        {"left_time": "u", "right_time": "t"} if left is NAMED else {"left_time": "t", "right_time": "u"}
    )
    return pond.table_join(left, right, on="o", **times, **given)


THEIRS: list[dict[str, Any]] = [{"k2": "e", "o": "c", "t2": AT}]


def met_by_o(pond: Pond, right: pa.Table, time: str) -> pa.Table:
    """Join rows of a feed with another one by a column that is the key of neither."""
    return pond.table_join(feed(pond), right, on="o", left_key="k", left_time="t", right_time=time)


def met(pond: Pond, right: pa.Table, time: str = "t") -> pa.Table:
    return pond.asof_join(NAMED, right, on="o", left_time="u", right_time=time)


def kept_upserts(pond: Pond) -> pa.Table:
    """Return the rows of a change feed that stay, by the line that a message of ``met`` has."""
    table = feed(pond)
    with pytest.raises(ConfigurationError) as refused:
        met(pond, table)
    rows: pa.Table = eval(refused.value.sentence.partition("write ")[2], {"table": table, "pc": pc})
    return rows


MANY = [f"c{number}" for number in range(64)]


def named(pond: Pond, rows: Any = ROWS, **given: Any) -> pa.Table:
    """Join rows with those that they name."""
    return pond.table_join(rows, OTHERS, **{**ON, "how": "outer", **given})


def many(pond: Pond, tables: Any = None, **given: Any) -> pa.Table:
    """Join tables of which each has a row."""
    known = {"rows": ROWS, "others": OTHERS, "more": [{"k": "x", "t": AT, "p": 1}]}
    return pond.multi_join(known if tables is None else tables, **{**ON, **given})


def fed(pond: Pond, tables: Any) -> pa.Table:
    """Return what comes out of tables as a micro-batch."""
    return joining_many(pond).feed(tables=tables)


def joining_many(pond: Pond) -> MicroBatches:
    """Join tables micro-batch by micro-batch."""
    columns = {"rows": TABLE.schema, "others": pa.Table.from_pylist(OTHERS).schema}
    return pond.in_batches.multi_join(columns, **ON)


class PassOn(KeyedProcessor):
    """Each row as it comes."""

    def process(self, key: Any, row: Mapping[str, Any], context: KeyContext) -> list[dict[str, Any]]:
        return [{"n": row["n"]}]


def applied(pond: Pond, schema: Any) -> pa.Table:
    return pond.apply(ROWS, PassOn(), **KEYED, schema=schema)


REFUSED = [
    Refused(
        ", one for each row, which \n does not take; give one for all rows, such as SessionWindows(",
        lambda pond: pond.top_n(ROWS, 1, **BY, order="n", window=SessionWindows(pc.field("n"), at_most="1 hour")),
        lambda pond: pond.top_n(ROWS, 1, **BY, order="n", window=SessionWindows("30 minutes")),
    ),
    Refused(
        " is of type \n; give a duration, or an integer of milliseconds, such as pc.field(",
        lambda pond: pond.aggregate(ROWS, N, **BY, window=SessionWindows(pc.field("o"), at_most="1 hour")),
        lambda pond: pond.aggregate(ROWS, N, **BY, window=SessionWindows(pc.field("n"), at_most="1 hour")),
    ),
    Refused(
        "the gap of window is \n; give a length of time, or that of each row: ",
        lambda pond: pond.aggregate(ROWS, N, **BY, window=SessionWindows({"n"}, at_most="1 hour")),
        lambda pond: pond.aggregate(ROWS, N, **BY, window=SessionWindows("1 hour")),
        lambda pond: pond.aggregate(ROWS, N, **BY, window=SessionWindows(pc.field("n"), at_most="1 hour")),
    ),
    Refused("grouping sets name \n twice; give each column once", by("k", cube("k", "o")), by("k", cube("o"))),
    Refused(
        "grouping sets have no column; write by=[] for one result of all rows",
        lambda pond: grouping_sets([[]]),
        by([]),
    ),
    Refused(
        " columns; give at most \n, which are the bits of ",
        lambda pond: grouping_sets([MANY]),
        lambda pond: grouping_sets([MANY[1:]]),
    ),
    Refused(
        "the grouping set \n is there twice; give each once",
        lambda pond: grouping_sets([["k", "o"], ["o", "k"]]),
        by(grouping_sets([["k", "o"]])),
    ),
    Refused(
        "grouping_sets was given \n; give a list of lists of different names, such as ",
        lambda pond: grouping_sets("k"),
        by(grouping_sets([["k", "o"], ["k"], []])),
    ),
    Refused(
        " was given \n; give different names of columns, such as ",
        lambda pond: cube(),
        by(cube("k", "o")),
        by(rollup("k", "o")),
    ),
    Refused(
        " grouping sets, and each row is as many rows; give at most ",
        lambda pond: cube(*MANY[:13]),
        by(grouping_sets([["k", "o"], ["k"], []])),
    ),
    Refused(
        "by is \n; give names of columns and grouping sets, such as ",
        by("k", cube("o"), ["yes"]),
        by("k", cube("o", "yes")),
    ),
    Refused(
        "grouping tells of grouping sets, and there are none; leave it out, or aggregate by some, such ",
        by("k", r=agg.grouping("k")),
        by("k"),
        by(cube("k"), r=agg.grouping("k")),
    ),
    Refused(
        "grouping is given \n, which is no column of the grouping sets; give one of ",
        by(cube("k"), r=agg.grouping("o")),
        by(cube("k"), r=agg.grouping("k")),
    ),
    Refused(
        " are in on, so with how=\n nothing would tell the result of a left row",
        lambda pond: named(pond, on=["k", "t"], left_key="k"),
        lambda pond: named(pond, on=["k", "t"], left_key="k", how="left"),
        lambda pond: named(pond, [{**row, "there": 1} for row in ROWS], on=["k", "t"], left_key=["k", "there"]),
    ),
    Refused(
        " order is \n; give a column such as order='score', or a list of them",
        lambda pond: top(pond, 3),
        lambda pond: top(pond, "n"),
        lambda pond: top(pond, ["n", "t"]),
    ),
    Refused(
        ", by which rows of a change feed replace each other, and nothing says which of them are deletes",
        lambda pond: changed(pond, ROWS, key="k"),
        lambda pond: changed(pond, ROWS, key="k", op="o"),
        lambda pond: changed(pond, ROWS),
    ),
    Refused(
        " is given op, so its rows are changes, and nothing says which of them replace each other",
        lambda pond: changed(pond, ROWS, op="o"),
        lambda pond: changed(pond, ROWS, op="o", key="k"),
        lambda pond: changed(pond, ROWS, op="o", key=["k", "n"]),
    ),
    Refused(
        " are a change feed, and of the columns by which they replace each other, \n there; keep all of them",
        lambda pond: changed(pond, feed(pond).drop_columns(["k"]), by="n"),
        lambda pond: changed(pond, feed(pond), by="n"),
        lambda pond: changed(pond, feed(pond).drop_columns(["k"]), by="n", key="t"),
        lambda pond: changed(pond, feed(pond).drop_columns(["k", "op"]), by="n"),
    ),
    Refused(
        ", and a delete has only those columns; write key=\n, and to know something of each \n, aggregate the feed: ",
        lambda pond: pond.latest(feed(pond), key="o", time="t"),
        lambda pond: pond.latest(feed(pond), key="k", time="t"),
        lambda pond: changed(pond, feed(pond), by="o"),
    ),
    Refused(
        ", and a delete has only those columns; write left_key=",
        lambda pond: by_o(pond, feed(pond), NAMED),
        lambda pond: by_o(pond, feed(pond), NAMED, left_key="k"),
    ),
    Refused(
        ", and a delete has only those columns; make it the left side: on=\n, left_key=",
        lambda pond: by_o(pond, NAMED, feed(pond), how="left"),
        lambda pond: by_o(pond, feed(pond), NAMED, left_key="k", how="right"),
    ),
    Refused(
        ", and a delete has only those columns; aggregate it before, with by=\n, and join the result",
        lambda pond: met_by_o(pond, pond.latest(THEIRS, key="k2", time="t2"), "t2"),
        lambda pond: met_by_o(
            pond, changed(pond, pond.latest(THEIRS, key="k2", time="t2"), by="o", time="t2"), "change_time"
        ),
    ),
    Refused(
        ", and a delete has only those columns; join it by table_join, as the left side, with left_key=",
        lambda pond: pond.multi_join({"os": NAMED, "rows": feed(pond)}, on="o", time={"os": "u", "rows": "t"}),
        lambda pond: by_o(pond, feed(pond), NAMED, left_key="k"),
    ),
    Refused(
        ", and a delete has only those columns; aggregate it before, with by=\n, or, to take each of its upserts",
        lambda pond: met(pond, feed(pond)),
        lambda pond: met(pond, changed(pond, feed(pond), by="o"), "change_time"),
        lambda pond: met(pond, kept_upserts(pond)),
    ),
    Refused(
        ", and the changes of its feed go by \n; leave order out",
        lambda pond: changed(pond, feed(pond), order="n"),
        lambda pond: changed(pond, feed(pond)),
    ),
    Refused(
        " are a change feed without its sequence, which says which change of a key counts; keep that column",
        lambda pond: changed(pond, feed(pond).drop_columns(["sequence"])),
        lambda pond: changed(pond, feed(pond)),
        lambda pond: changed(pond, feed(pond).drop_columns(["sequence"]), order="n"),
    ),
    Refused(
        "for ever: no window would be closed; add a column with the window of each row",
        lambda pond: changed(pond, feed(pond), window=TimeWindows("1 day")),
        lambda pond: changed(pond, with_day(feed(pond)), by=["k", "day"]),
    ),
    Refused(
        ", whose rows are replaced and deleted for ever: no result is final; leave emit out",
        lambda pond: changed(pond, feed(pond), emit="final"),
        lambda pond: changed(pond, feed(pond)),
    ),
    Refused(
        ", whose groups do not expire; leave it out, and give it with a ttl to the verb that makes the feed",
        lambda pond: changed(pond, feed(pond), expired="delete"),
        lambda pond: changed(pond, feed(pond, ttl="1 day", expired="delete")),
    ),
    Refused(
        " has a ttl, but its rows are a change feed, and those that leave a group are taken out of it",
        lambda pond: changed(pond, feed(pond), ttl="1 day"),
        lambda pond: changed(pond, feed(pond, ttl="1 day", expired="delete")),
    ),
    Refused(
        ", and maps have no order; give a column that has",
        lambda pond: top(pond, "map"),
        lambda pond: top(pond, "n"),
    ),
    Refused(
        ", which is no condition; give an expression of Arrow",
        lambda pond: joined(pond, "m <= n"),
        lambda pond: joined(pond, pc.field("m") <= pc.field("n")),
    ),
    Refused(
        ", which is of type \n; give a condition, ",
        lambda pond: joined(pond, pc.field("m") + pc.field("n")),
        lambda pond: joined(pond, pc.field("m") + pc.field("n") > 1),
    ),
    Refused(
        "; give an expression of the columns ",
        lambda pond: joined(pond, pc.field("other") <= 1),
        lambda pond: joined(pond, pc.field("m") <= 1),
        lambda pond: joined(pond, pc.field("yes")),
    ),
    Refused(
        "; give a duration, or an integer of milliseconds, such as pc.field('most')",
        lambda pond: near(pond, pc.field("o")),
        lambda pond: near(pond, pc.field("n")),
        lambda pond: near(pond, pc.field("n").cast(pa.duration("s"))),
    ),
    Refused(
        " of a UserAggregate is no name of a function; give one such as ",
        lambda pond: counting(name="to count"),
        lambda pond: counted(pond, name="spread"),
    ),
    Refused(
        " is no version; give a number such as ",
        lambda pond: counting(version="two"),
        lambda pond: counted(pond, version=2),
    ),
    Refused(
        " is no type of results; give one of pyarrow, such as pa.float64()",
        lambda pond: counting(type=float),
        lambda pond: counted(pond, type=pa.float64()),
    ),
    Refused(
        " is no function; give one, such as a lambda",
        lambda pond: counting(merge=None),
        lambda pond: counted(pond, merge=lambda state, other: state + other),
    ),
    Refused(
        " is no function; give one, or leave it out",
        lambda pond: counting(finish="text"),
        lambda pond: counted(pond, finish=lambda state: state),
        lambda pond: counted(pond),
    ),
    Refused(
        "count_if takes a condition, and was given None; give one, such as ",
        lambda pond: agg.count_if(None),
        lambda pond: pond.aggregate(ROWS, {"r": agg.count_if("yes")}, **BY),
    ),
    Refused(
        " is no bool; give \n=True or \n=False",
        lambda pond: agg.collect("n", distinct="yes"),  # type: ignore[arg-type]
        lambda pond: pond.aggregate(ROWS, {"r": agg.collect("n", distinct=True)}, **BY),
        lambda pond: pond.aggregate(ROWS, {"r": agg.first("n", ignore_nulls=False)}, **BY),
    ),
    Refused(
        " of histogram are not 1 to \n ascending numbers; give such as [1, 10, 100]",
        lambda pond: agg.histogram("n", [2, 1]),
        lambda pond: pond.aggregate(ROWS, {"r": agg.histogram("n", [1, 10, 100])}, **BY),
    ),
    Refused(
        " is no whole number from \n to \n; give one",
        lambda pond: agg.hll_sketch_agg("n", 30),
        lambda pond: pond.aggregate(ROWS, {"r": agg.hll_sketch_agg("n", 21)}, **BY),
    ),
    *(
        Refused(" is not from 0 to 1; write 0.9 for 90 %", wrong, right)
        for wrong, right in (
            (lambda pond: agg.approx_percentile("n", 90),
             lambda pond: pond.aggregate(ROWS, {"r": agg.approx_percentile("n", 0.9)}, **BY)),
            (lambda pond: agg.percentile("n", "0.9"),  # type: ignore[arg-type]
             lambda pond: pond.aggregate(ROWS, {"r": agg.percentile("n", 0.9)}, **BY)),
        )
    ),
    Refused(
        " of approx_count_distinct is not from \n to below 1; choose one in between, or count_distinct",
        lambda pond: agg.approx_count_distinct("n", "0.05"),  # type: ignore[arg-type]
        lambda pond: pond.aggregate(ROWS, {"r": agg.approx_count_distinct("n", 0.05)}, **BY),
        lambda pond: pond.aggregate(ROWS, {"r": agg.count_distinct("n")}, **BY),
    ),
    Refused(
        " takes a column, and was given None; give one, such as ",
        lambda pond: agg.sum(None),
        lambda pond: pond.aggregate(ROWS, {"r": agg.sum("n")}, **BY),
    ),
    Refused(
        " takes two columns, and was given ",
        lambda pond: agg.map_agg(None, "n"),
        lambda pond: pond.aggregate(ROWS, {"r": agg.map_agg("k", "n")}, **BY),
    ),
    Refused(
        "there is no lead, as a row comes out before the one behind it is there; ",
        lambda pond: agg.lead("n"),  # type: ignore[operator]
        lambda pond: pond.asof_join(
            ROWS, [{"k": "x", "later": AT + timedelta(minutes=1), "m": 2}], on="k", left_time="t", right_time="later",
            direction="forward", exact=False, tolerance="1 day", grace=0, history="1 day",
        ),
    ),
    Refused(
        "calls has a result by the name \n; give it that of a column, such as ",
        lambda pond: pond.aggregate(ROWS, {1: agg.count()}, **BY),
        lambda pond: pond.aggregate(ROWS, {"count": agg.count()}, **BY),
    ),
    Refused(
        "default is \n; give a mapping from columns of right to what they have where there is no match, such ",
        lambda pond: pond.asof_join(ROWS, OTHERS, **ON, how="left", default=[0]),
        lambda pond: pond.asof_join(ROWS, OTHERS, **ON, how="left", default={"m": 0}),
    ),
    Refused(
        "exact is \n; give exact=False if a right row of the very time of a left row is no match, and exact=True",
        lambda pond: pond.asof_join(ROWS, OTHERS, **ON, exact="no"),
        lambda pond: pond.asof_join(ROWS, OTHERS, **ON, exact=False),
        lambda pond: pond.asof_join(ROWS, OTHERS, **ON, exact=True),
    ),
    *(
        Refused("direction is \n; give ", wrong, right)
        for wrong, right in (
            (lambda pond: pond.asof_join(ROWS, OTHERS, **ON, direction="up"),
             lambda pond: pond.asof_join(ROWS, OTHERS, **ON, direction="backward")),
            (lambda pond: pond.asof_join(ROWS, OTHERS, **ON, direction="up", emit="updates", left_key="n"),
             lambda pond: pond.asof_join(ROWS, OTHERS, **ON, direction="backward", emit="updates", left_key="n")),
        )
    ),
    Refused(
        "how is ",
        lambda pond: pond.asof_join(ROWS, OTHERS, **ON, how="sideways"),
        lambda pond: pond.asof_join(ROWS, OTHERS, **ON, how="left"),
    ),
    Refused(
        "; for the gaps that a column has, write SessionWindows(F.col(\n), at_most='1 hour'), or in Pond ",
        lambda pond: pond.aggregate(ROWS, N, **BY, window=SessionWindows("n")),
        lambda pond: pond.aggregate(ROWS, N, **BY, window=SessionWindows(pc.field("n"), at_most="1 hour")),
    ),
    Refused(
        ", which has no columns; give a table with columns, also where it has no rows: pa.schema(",
        lambda pond: pond.latest([], **KEYED),
        lambda pond: pond.latest(TABLE.schema.empty_table(), **KEYED),
    ),
    Refused(
        "; give how many rows count, each itself included",
        lambda pond: pond.over(ROWS, N, **KEYED, last=10**30),
        lambda pond: pond.over(ROWS, N, **KEYED, last=2**31 - 1),
    ),
    Refused(
        " n is \n; give a number from 1 to \n, such as n=3",
        lambda pond: pond.top_n(ROWS, 2**31, **BY, order="n"),
        lambda pond: pond.top_n(ROWS, 2**31 - 1, **BY, order="n"),
    ),
    Refused(
        " may differ from row to row, and rows are kept for the greatest; give at_most=",
        lambda pond: pond.stream_join(ROWS, OTHERS, **ON, within=pc.field("n")),
        lambda pond: pond.stream_join(ROWS, OTHERS, **ON, within=pc.field("n"), at_most="1 hour"),
    ),
    Refused(
        "there is no parameter ",
        lambda pond: pond.latest(ROWS, keys="k", time="t"),
        lambda pond: pond.latest(ROWS, key="k", time="t"),
    ),
    Refused(
        " arguments are given without a name, and only \n may be so, each once; write ",
        lambda pond: pond.latest(ROWS, "k", "t"),
        lambda pond: pond.latest(ROWS, key="k", time="t"),
    ),
    Refused(
        " missing in the call; write ",
        lambda pond: pond.latest(ROWS, time="t"),
        lambda pond: pond.latest(ROWS, key="k", time="t"),
    ),
    Refused(
        " missing in the call; write ",
        lambda pond: pond.table_join([TABLE, OTHERS], on="k", time="t"),
        lambda pond: pond.table_join(TABLE, OTHERS, on="k", time="t"),
        lambda pond: pond.multi_join({"orders": TABLE, "payments": OTHERS}, on="k", time="t"),
    ),
    Refused(
        " must be a plain file name, because a directory gets it; choose one such as ",
        lambda pond: pond.latest(ROWS, **KEYED, name="../x"),
        lambda pond: pond.latest(ROWS, **KEYED, name="x"),
    ),
    Refused(
        " has more than one column \n; rename all but one",
        lambda pond: pond.latest(pa.Table.from_arrays([TABLE["k"], TABLE["t"], TABLE["k"]],
                                                      names=["k", "t", "k"]), **KEYED),
        lambda pond: pond.latest(pa.Table.from_arrays([TABLE["k"], TABLE["t"], TABLE["k"]], names=["k", "t", "l"]),
                                 **KEYED),
    ),
    Refused(
        ", which verbs cannot keep; cast it",
        lambda pond: latest(pond, pa.array([1]).cast(pa.decimal256(20, 0))),
        lambda pond: latest(pond, pa.array([1]).cast(pa.decimal256(20, 0)).cast(pa.string())),
        lambda pond: pond.latest(TABLE, **KEYED),
    ),
    Refused(
        " is of type \n; give a pyarrow.Table, a DataFrame of pandas or Polars, or a list",
        lambda pond: pond.latest("rows", **KEYED),
        lambda pond: pond.latest(TABLE, **KEYED),
        lambda pond: pond.latest(TABLE.to_pandas(), **KEYED),
        lambda pond: pond.latest(ROWS, **KEYED),
    ),
    Refused(
        " has values that are not of one type: \n; give all of them one type",
        lambda pond: pond.latest([*ROWS, {**ROWS[0], "n": "one"}], **KEYED),
        lambda pond: pond.latest([*ROWS, {**ROWS[0], "n": 2}], **KEYED),
    ),
    Refused(
        ", which it had not where the verb was made; leave it out",
        lambda pond: begun(pond).feed(TABLE.append_column("more", TABLE["n"])),
        lambda pond: begun(pond).feed(TABLE),
        lambda pond: pond.in_batches.latest(
            TABLE.append_column("more", TABLE["n"]).schema, **KEYED, history=0
        ).feed(TABLE.append_column("more", TABLE["n"])),
    ),
    Refused(
        " where the verb was made; cast it",
        lambda pond: begun(pond).feed(TABLE.set_column(2, "n", TABLE["n"].cast(pa.string()))),
        lambda pond: begun(pond).feed(TABLE),
    ),
    Refused(
        "feed was given \n; write ",
        lambda pond: begun(pond).feed(left=ROWS),
        lambda pond: begun(pond).feed(ROWS),
    ),
    Refused(" is closed; make the verb again", closed, lambda pond: begun(pond).feed(ROWS)),
    Refused(
        "; give the name of a column with times, such as ",
        lambda pond: pond.latest(ROWS, key="k", time=None),
        lambda pond: pond.latest(ROWS, key="k", time="t"),
    ),
    Refused(
        "; give one of timestamps or dates, or make it one",
        lambda pond: pond.latest(TABLE, key="k", time="n"),
        lambda pond: pond.latest(TABLE, key="k", time="t"),
        lambda pond: pond.latest(
            TABLE.set_column(2, "n", TABLE["n"].cast(pa.timestamp("ms", "UTC"))), key="k", time="n"
        ),
    ),
    Refused(
        "; give a column of strings such as ",
        lambda pond: pond.latest(ROWS, **KEYED, op="n"),
        lambda pond: pond.latest(ROWS, **KEYED, op="o"),
    ),
    Refused(
        "; give time, a column that both sides have, or else left_time and right_time",
        lambda pond: pond.asof_join(ROWS, OTHERS, on="k"),
        lambda pond: pond.asof_join(ROWS, OTHERS, on="k", time="t"),
        lambda pond: pond.asof_join(ROWS, [{"k": "x", "u": AT}], on="k", left_time="t", right_time="u"),
    ),
    Refused(
        "; give both a time zone, or neither",
        lambda pond: pond.asof_join(ROWS, [{"k": "x", "t": AT.replace(tzinfo=None)}], **ON),
        lambda pond: pond.asof_join(ROWS, OTHERS, **ON),
        lambda pond: pond.asof_join(*([{"k": "x", "t": AT.replace(tzinfo=None)}],) * 2, **ON),
    ),
    Refused(
        ", which is no column of bools; add one to the rows, and give its name, or give an expression of Arrow",
        lambda pond: pond.aggregate(ROWS, {"c": agg.count(where="n > 1")}, **BY),
        lambda pond: pond.aggregate(ROWS, {"c": agg.count(where="yes")}, **BY),
        lambda pond: pond.aggregate(ROWS, {"c": agg.count(where=pc.field("n") > 1)}, **BY),
    ),
    Refused(
        "the argument of \n is \n; give the name of a column",
        lambda pond: pond.aggregate(ROWS, {"s": agg.sum(1)}, **BY),
        lambda pond: pond.aggregate(ROWS, {"s": agg.sum("n")}, **BY),
    ),
    Refused(
        "; give the columns of the rows that will come, a pyarrow.Schema",
        lambda pond: pond.in_batches.latest(TABLE, **KEYED, history=0),
        lambda pond: pond.in_batches.latest(TABLE.schema, **KEYED, history=0),
    ),
    Refused(
        "tables is of type \n; give a mapping from a name of your choice to each table",
        lambda pond: many(pond, [ROWS, OTHERS]),
        lambda pond: many(pond, {"rows": ROWS, "others": OTHERS}),
    ),
    Refused(
        "tables has the name \n; give one of letters, digits and underscores",
        lambda pond: many(pond, {"left": ROWS, "others": OTHERS}),
        lambda pond: many(pond, {"rows": ROWS, "others": OTHERS}),
    ),
    Refused(
        "tables has \n of the two or more tables that a join needs; give more, such as ",
        lambda pond: many(pond, {"rows": ROWS}),
        lambda pond: many(pond, {"rows": ROWS, "others": OTHERS}),
        lambda pond: pond.latest(ROWS, **KEYED),
    ),
    Refused(
        " says nothing of the table \n; give ",
        lambda pond: many(pond, how={"others": "left"}),
        lambda pond: many(pond, how={"others": "left", "more": "left"}),
        lambda pond: many(pond, on={"rows": "k", "others": "k", "more": "k"}, how="left"),
    ),
    Refused(
        " is None; give what all tables have, such as ",
        lambda pond: many(pond, time=None),
        lambda pond: many(pond, time="t"),
        lambda pond: many(pond, {"rows": ROWS, "others": [{"k": "x", "u": AT}]}, time={"rows": "t", "others": "u"}),
    ),
    Refused(
        " is None; give what all tables have, such as ",
        lambda pond: many(pond, on=None),
        lambda pond: many(pond, on="k"),
        lambda pond: many(pond, on={"rows": "k", "others": "k", "more": "k"}),
    ),
    Refused(
        " is None; give what all tables have, such as ",
        lambda pond: many(pond, how=None),
        lambda pond: many(pond, how="left"),
        lambda pond: many(pond, how={"others": "left", "more": "left"}),
    ),
    Refused(
        "tables is of type \n; give the rows by the names of the tables, such as ",
        lambda pond: fed(pond, [ROWS, OTHERS]),
        lambda pond: fed(pond, {"rows": ROWS}),
        lambda pond: fed(pond, {"rows": ROWS, "others": OTHERS}),
    ),
    *(
        Refused(" is \n; give the name of a column, such as order='score'", wrong, right)
        for wrong, right in (
            (lambda pond: feed(pond, order=[]), lambda pond: feed(pond, order="n")),
            (lambda pond: feed(pond, order=5), lambda pond: feed(pond, order="n")),
            (lambda pond: feed(pond, order=pc.field("n")), lambda pond: feed(pond, order="n")),
            (lambda pond: pond.deduplicate(ROWS, **KEYED, within="1 hour", order=[]),
             lambda pond: pond.deduplicate(ROWS, **KEYED, within="1 hour", order="n")),
            (lambda pond: many(pond, order={"rows": []}, history="1 hour"),
             lambda pond: many(pond, order={"rows": "n"}, history="1 hour")),
            (lambda pond: pond.aggregate(ROWS, {"l": agg.last("n")}, **BY, order=5),
             lambda pond: pond.aggregate(ROWS, {"l": agg.last("n")}, **BY, order="n")),
            (lambda pond: pond.over(ROWS, N, **KEYED, order=["n", "t"]),
             lambda pond: pond.over(ROWS, N, **KEYED, order="n")),
        )
    ),
    Refused(
        " is \n; give the name of a column with the operations, such as op=",
        lambda pond: pond.latest(ROWS, **KEYED, op=5),
        lambda pond: pond.latest(ROWS, **KEYED, op="o"),
    ),
    Refused(
        " is \n; give the name of a column with the operations, such as op=",
        lambda pond: many(pond, op={"rows": pc.field("o")}),
        lambda pond: many(pond, op={"rows": "o"}),
    ),
    Refused(
        "on is \n; give each table as many columns as the others",
        lambda pond: many(pond, on={"rows": ["k", "o"], "others": "k", "more": "k"}),
        lambda pond: many(pond, on={"rows": "k", "others": ["k"], "more": "k"}),
    ),
    Refused(
        ", which is also the name of one of its tables; give another",
        lambda pond: many(pond, name="rows"),
        lambda pond: many(pond, name="joined"),
    ),
    Refused(
        "; give all a time zone, or none",
        lambda pond: many(pond, {"rows": ROWS, "others": [{"k": "x", "t": AT.replace(tzinfo=None)}]}),
        lambda pond: many(pond),
    ),
    Refused(
        "the row is \n; give a mapping from the names of columns to values",
        lambda pond: joining(pond).explain_match(cast(Any, None)),
        lambda pond: joining(pond).explain_match({"k": "x", "t": AT}),
    ),
    Refused(
        "the row has no \n; give a row of the result, or of \n, with all its columns",
        lambda pond: joining(pond).explain_match({"k": "x"}),
        lambda pond: joining(pond).explain_match({"k": "x", "t": AT}),
    ),
    Refused(
        ", which has no order; give a column that has one",
        lambda pond: latest(pond, MAPS, order="more"),
        lambda pond: latest(pond, MAPS, order="n"),
        lambda pond: latest(pond, pa.array([1]), order="more"),
    ),
    *(
        Refused(" missing in the call; write ", wrong, right)
        for wrong, right in (
            (lambda pond: pond.aggregate(ROWS, {"m": UNTYPED.map_agg("o")}, **BY),
             lambda pond: pond.aggregate(ROWS, {"m": agg.map_agg("o", "n")}, **BY)),
            (lambda pond: pond.aggregate(ROWS, {"m": UNTYPED.sum()}, **BY),
             lambda pond: pond.aggregate(ROWS, {"m": agg.sum("n")}, **BY)),
            (lambda pond: pond.aggregate(ROWS, {"m": UNTYPED.percentile("n")}, **BY),
             lambda pond: pond.aggregate(ROWS, {"m": agg.percentile("n", 0.5)}, **BY)),
        )
    ),
    *(
        Refused("there is no parameter ", wrong, right)
        for wrong, right in (
            (lambda pond: pond.over(ROWS, N, by="k", time="t"), lambda pond: pond.over(ROWS, N, **KEYED)),
            (lambda pond: pond.aggregate(ROWS, N, key="k", on="k", time="t"),
             lambda pond: pond.aggregate(ROWS, N, **BY)),
            (lambda pond: pond.aggregate(ROWS, {"m": UNTYPED.sum("n", wehre="yes")}, **BY),
             lambda pond: pond.aggregate(ROWS, {"m": agg.sum("n", where="yes")}, **BY)),
            (lambda pond: pond.latest(ROWS, key="k", timestamp="t"), lambda pond: pond.latest(ROWS, **KEYED)),
            (lambda pond: pond.asof_join(ROWS, OTHERS, by="k", time="t"),
             lambda pond: pond.asof_join(ROWS, OTHERS, **ON)),
        )
    ),
    Refused(
        "; give the columns of the results, such as pa.schema(",
        lambda pond: applied(pond, "n bigint"),
        lambda pond: applied(pond, pa.schema([("n", pa.int64())])),
    ),
    Refused(
        ": each argument is given by its name; write ",
        lambda pond: cast(Any, Pond)("memory"),
        lambda pond: Pond(),
        lambda pond: Pond(backend="memory"),
    ),
    Refused(
        " replace each other by \n, and a delete has only those columns; leave key out",
        lambda pond: pond.aggregate(pond.latest(TABLE, **KEYED), N, by="o", time="t", key=["k", "o"]),
        lambda pond: pond.aggregate(pond.latest(TABLE, **KEYED), N, by="o", time="t"),
        lambda pond: pond.aggregate(pond.latest(TABLE, **KEYED), N, by="o", time="t", key="k"),
    ),
    Refused(
        "; to take each of its upserts as a row that stays, write \n, or take the rows of which the feed was made",
        lambda pond: pond.top_n(pond.latest(TABLE, **KEYED), 1, order="n", emit="updates", **BY),
        lambda pond: pond.top_n(upserts(pond), 1, order="n", emit="updates", **BY),
    ),
    Refused(
        "; to take each of its upserts as a row that stays, write \n, or take the rows of which the feed was made",
        lambda pond: corrected(pond, pond.latest(TABLE, **KEYED)),
        lambda pond: corrected(pond, upserts(pond)),
    ),
    Refused(
        " is missing; give how late rows may come",
        lambda pond: pond.in_batches.latest(TABLE.schema, **KEYED),
        lambda pond: pond.in_batches.latest(TABLE.schema, **KEYED, history="1 hour"),
    ),
]  # fmt: skip


SENTENCES = Path(__file__).with_name("refused_calls.txt")


@pytest.mark.parametrize("refused", REFUSED, ids=repr)
def test_what_is_advised_works(refused: Refused) -> None:
    refused.check(Pond, ConfigurationError)


def sentences() -> str:
    """Return what each of the wrong calls is told, a line each."""
    return "".join(f"{one.sentence(Pond, ConfigurationError)}\n" for one in REFUSED)


def test_more_than_a_hundred_wrong_calls_are_told_the_sentences_that_were_read_and_found_right() -> None:
    """``python -m tests.pond.test_refused_calls`` writes them anew; the change of the file is what is reviewed."""
    told = sentences()
    assert told.splitlines() == SENTENCES.read_text().splitlines()
    assert len(set(told.splitlines())) > 100


def test_a_value_that_cannot_be_kept_is_rounded_or_cast() -> None:
    times: Any = pa.array([1_001], pa.timestamp("ns"))
    with pytest.raises(RecordError, match="the column 'more' of 'input' has a value that"):
        latest(Pond(), times)
    assert latest(Pond(), times.cast(pa.timestamp("us"), safe=False)).num_rows == 1
    assert latest(Pond(), times.cast(pa.int64())).num_rows == 1


def test_tables_in_a_list_are_joined_by_another_verb_and_a_name_is_found_in_any_case() -> None:
    pond: Any = Pond()
    for given in ([[TABLE, OTHERS]], [[TABLE, TABLE], OTHERS]):
        with pytest.raises(ConfigurationError, match="tables in a list are joined by multi_join"):
            pond.table_join(*given, **ON)
    for wrong, right in (("K", "k"), ("YES", "yes")):
        with pytest.raises(ConfigurationError, match=f"has no column '{wrong}', only .*did you mean '{right}'"):
            pond.latest(ROWS, key=wrong, time="t")
    with pytest.raises(ConfigurationError, match=r"there is no parameter 'History', only .*did you mean 'history'"):
        pond.latest(ROWS, **KEYED, History=0)
    with pytest.raises(ConfigurationError, match=r"over: there is no parameter 'by', only .*did you mean 'key'"):
        pond.over(ROWS, N, by="k", time="t")
    with pytest.raises(ConfigurationError, match=r"map_agg: value is missing in the call; write map_agg\(key, value\)"):
        UNTYPED.map_agg("k")
    with pytest.raises(ConfigurationError, match=r"latest: order is a map, which has no order"):
        latest(pond, MAPS, order="more")
    with pytest.raises(ConfigurationError, match=r"or of the table 'rows', with all its columns"):
        joining_many(pond).explain_match({"m": 1})


def test_a_default_name_that_no_directory_can_have_is_refused_with_one_that_can() -> None:
    rows = [{"k/l": "x", "t": AT}]
    with pytest.raises(ConfigurationError, match=r"name 'latest-k/l' must be a plain .* such as 'latest-k-l'"):
        Pond().latest(rows, key="k/l", time="t")
    assert Pond().latest(rows, key="k/l", time="t", name="latest-k-l").num_rows == 1


if __name__ == "__main__":
    SENTENCES.write_text(sentences())
