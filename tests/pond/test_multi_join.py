"""A join of many tables has, after each micro-batch, what DuckDB makes of their latest rows, and each key once."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond import Pond
from millpond.errors import ConfigurationError
from millpond.processors.pond import MicroBatches
from tests.drawing import tries
from tests.processors.verbs.duck import answered

START = datetime(2026, 6, 1, 12, tzinfo=UTC)
TIME: pa.DataType = pa.timestamp("us", "UTC")
NAMES = ("orders", "payments", "parcels", "returns", "notes")
HOWS = ["inner", "left", "outer"]
SQL = {"inner": "INNER", "left": "LEFT", "outer": "FULL OUTER"}
SOME = settings(max_examples=tries(60), deadline=None, derandomize=True, database=None)
Row = dict[str, Any]


def value_of(table: str) -> str:
    return f"of_{table}"


def schema(table: str) -> Any:
    columns: list[tuple[str, Any]] = [("k", pa.string()), ("t", TIME), (value_of(table), pa.int64())]
    return pa.schema([*columns, ("op", pa.string())])


class Change(NamedTuple):
    """A change of a table.

    Attributes:
        table: which one.
        key: of the row.
        value: of the row; None for null.
        deleted: whether it is a delete.
        time: its second.
    """

    table: str
    key: str | None
    value: int | None
    deleted: bool
    time: int

    @property
    def row(self) -> Row:
        op, at = "delete" if self.deleted else "upsert", START + timedelta(seconds=self.time)
        return {"k": self.key, "t": at, value_of(self.table): self.value, "op": op}


class History(NamedTuple):
    """Changes of tables, in micro-batches.

    Attributes:
        tables: their names.
        types: how each but the first is joined.
        batches: the changes.
    """

    tables: Sequence[str]
    types: Sequence[str]
    batches: Sequence[Sequence[Change]]

    @property
    def how(self) -> Any:
        return dict(zip(self.tables[1:], self.types, strict=True))


@st.composite
def histories(draw: st.DrawFn, *, late: bool = False) -> History:
    """Return changes in the order of time, or in any; a row whose key is null stays."""
    tables = NAMES[: draw(st.integers(3, 5))]
    types = draw(st.lists(st.sampled_from(HOWS), min_size=len(tables) - 1, max_size=len(tables) - 1))
    one = st.tuples(
        st.sampled_from(tables), st.sampled_from(["x", "y", "z", None]), st.none() | st.integers(0, 3), st.booleans()
    )
    drawn = draw(st.lists(one, min_size=1, max_size=24))
    times = draw(st.permutations(range(len(drawn)))) if late else range(len(drawn))
    changes = [
        Change(table, key, value, deleted and key is not None, time)
        for (table, key, value, deleted), time in zip(drawn, times, strict=True)
    ]
    ends = sorted(draw(st.lists(st.integers(0, len(changes)), max_size=6)))
    batches = [changes[start:end] for start, end in zip([0, *ends], [*ends, len(changes)], strict=True)]
    return History(tables, types, batches)


def expected(history: History, taken: Sequence[Change], null_safe: bool) -> Counter[Any]:
    """Return what DuckDB joins of the latest rows."""
    found = {}
    for table in history.tables:
        latest: dict[str | None, Change] = {}
        for change in sorted(taken, key=lambda one: one.time):
            if change.table == table:
                latest[change.key] = change
        rows = [one.row for one in latest.values() if not one.deleted]
        found[table] = pa.Table.from_pylist(rows, schema(table))
    equal = "IS NOT DISTINCT FROM" if null_safe else "="
    first, *others = history.tables
    query, keys = f"FROM {first}", [f"{first}.k"]
    for table, how in zip(others, history.types, strict=True):
        query += f" {SQL[how]} JOIN {table} ON coalesce({', '.join(keys)}, NULL) {equal} {table}.k"
        keys.append(f"{table}.k")
    columns = [f"coalesce({', '.join(keys)})", *(f"{table}.{value_of(table)}" for table in history.tables)]
    return Counter(answered(f"SELECT {', '.join(columns)} {query}", **found))


class Shown:
    """The table that a change feed leaves.

    Attributes:
        rows: by key; of a null that equals nothing, by the table whose row it is.
    """

    def __init__(self, history: History, null_safe: bool) -> None:
        self.rows: dict[Any, Row] = {}
        self._history, self._null_safe = history, null_safe

    def take(self, changes: pa.Table, taken: Sequence[Change]) -> None:
        """Take a micro-batch, in which each key is there once."""
        found = changes.to_pylist()
        keys = [row["k"] for row in found if row["k"] is not None or self._null_safe]
        assert len(keys) == len(set(keys))
        for row in found:
            key = row["k"]
            if key is None and not self._null_safe:
                # Null values of a row with a null key tell nothing of whose it is, its time does.
                times = {one.time: one.table for one in taken if one.key is None}
                key = ("of", times[round((row["change_time"] - START).total_seconds())])
            if row["op"] == "delete":
                # A key that was not there is not deleted.
                del self.rows[key]
            else:
                self.rows[key] = row

    def told(self) -> Counter[Any]:
        names = ["k", *map(value_of, self._history.tables)]
        return Counter(tuple(row[name] for name in names) for row in self.rows.values())


def running(changes: History, /, *, backend: str = "memory", **given: Any) -> MicroBatches:
    tables = {table: schema(table) for table in changes.tables}
    return Pond(backend=backend).in_batches.multi_join(
        tables, on="k", time="t", op="op", **{"how": changes.how, **given}
    )


def fed(verb: MicroBatches, batch: Sequence[Change]) -> pa.Table:
    rows = {table: [one.row for one in batch if one.table == table] for table in dict.fromkeys(one[0] for one in batch)}
    found = {table: pa.Table.from_pylist(some, schema(table)) for table, some in rows.items()}
    return verb.feed(tables=found) if found else verb.schema.empty_table()


def check(history: History, verb: MicroBatches, null_safe: bool = False) -> None:
    shown, taken = Shown(history, null_safe), list[Change]()
    with verb:
        for batch in history.batches:
            taken += batch
            shown.take(fed(verb, batch), taken)
            assert shown.told() == expected(history, taken, null_safe)


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
@pytest.mark.parametrize("null_safe", [False, True])
def test_after_each_micro_batch_the_join_is_that_of_the_latest_rows(backend: str, null_safe: bool) -> None:
    @SOME
    @given(histories())
    def test(history: History) -> None:
        check(history, running(history, backend=backend, null_safe=null_safe), null_safe)

    test()


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
def test_with_a_history_the_latest_row_is_that_of_the_latest_time(backend: str) -> None:
    @SOME
    @given(histories(late=True))
    def test(history: History) -> None:
        check(history, running(history, backend=backend, history="1 hour"))

    test()


@SOME
@given(histories())
def test_a_chain_of_joins_of_two_has_the_same_rows_in_the_end_of_each_micro_batch(history: History) -> None:
    """And the same times; what it shows in between is left out."""
    pond, first = Pond().in_batches, history.tables[0]
    joins: list[MicroBatches] = []
    hows: Sequence[Any] = history.types
    for table, how in zip(history.tables[1:], hows, strict=True):
        before = joins[-1].schema if joins else schema(first).set(1, pa.field("t", TIME))
        named = schema(table).set(1, pa.field(f"t_{table}", TIME))
        sides: dict[str, Any] = {"left_time": "change_time" if joins else "t", "right_time": f"t_{table}"}
        sides |= {} if joins else {"left_op": "op"}
        joins.append(pond.table_join(before, named, on="k", how=how, right_op="op", **sides))
    one, chained = Shown(history, null_safe=True), dict[str, Row]()
    with running(history) as verb:
        for every in history.batches:
            batch = [change for change in every if change.key is not None]
            ours = fed(verb, batch)
            one.take(ours, batch)
            rows = {table: [change.row for change in batch if change.table == table] for table in history.tables}
            results = pa.Table.from_pylist(rows[first], schema(first))
            for join, table in zip(joins, history.tables[1:], strict=True):
                given = pa.Table.from_pylist(rows[table], schema(table)).rename_columns({"t": f"t_{table}"})
                results = join.feed(left=results, right=given)
            theirs = {row["k"]: row for row in results.to_pylist()}
            chained = {key: row for key, row in {**chained, **theirs}.items() if row["op"] == "upsert"}
            values = [*map(value_of, history.tables)]
            assert {key: [row[name] for name in values] for key, row in one.rows.items()} == {
                key: [row[name] for name in values] for key, row in chained.items()
            }
            gone = {change.key for change in batch if change.deleted}
            for row in ours.to_pylist():
                # A delete of a row that no result had is shown by a chain alone.
                assert row["change_time"] <= theirs[row["k"]]["change_time"]
                assert row["change_time"] == theirs[row["k"]]["change_time"] or row["k"] in gone


@SOME
@given(histories(), st.sampled_from([2, 5, 12]))
def test_a_row_that_has_expired_is_as_if_it_had_been_deleted(history: History, ttl: int) -> None:
    keyed = history._replace(batches=[[one for one in batch if one.key is not None] for batch in history.batches])
    shown, taken = Shown(keyed, null_safe=True), list[Change]()
    with running(keyed, ttl=timedelta(seconds=ttl), expired="delete") as verb:
        for batch in keyed.batches:
            taken += batch
            shown.take(fed(verb, batch), taken)
            clock = max((one.time for one in taken), default=0)
            gone = [one._replace(deleted=one.deleted or one.time + ttl <= clock) for one in taken]
            assert shown.told() == expected(keyed, gone, null_safe=True)


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


ORDERS: list[Row] = [{"id": 1, "t": at(0), "item": "tea"}, {"id": 2, "t": at(1), "item": "rye"}]
PAYMENTS: list[Row] = [{"order": 1, "paid_at": at(2), "paid": 3.5}]
PARCELS: list[Row] = [{"id": 3, "sent_at": at(3), "sent": "by rail"}, {"id": 1, "sent_at": at(4), "sent": "by road"}]
TABLES: dict[str, Any] = {"orders": ORDERS, "payments": PAYMENTS, "parcels": PARCELS}
GIVEN: dict[str, Any] = {
    "on": {"orders": "id", "payments": "order", "parcels": "id"},
    "time": {"orders": "t", "payments": "paid_at", "parcels": "sent_at"},
}


def test_each_table_has_a_key_and_a_time_of_its_own_and_is_joined_as_sql_does() -> None:
    found = Pond().multi_join(TABLES, **GIVEN, how={"payments": "inner", "parcels": "outer"})
    assert found.schema.names == ["id", "t", "item", "paid_at", "paid", "sent_at", "sent", "op", "sequence",
                                  "change_time"]  # fmt: skip
    # Order 2 has no payment, so it is not in the join that the parcels come to.
    assert [(row["id"], row["item"], row["paid"], row["sent"], row["change_time"]) for row in found.to_pylist()] == [
        (1, "tea", 3.5, "by road", at(4)),
        (3, None, None, "by rail", at(3)),
    ]


def test_of_one_time_for_all_tables_the_result_has_that_of_the_first() -> None:
    tables = {name: [{"id": 1, "t": at(second), name: 1}] for second, name in enumerate(("a", "b", "c"))}
    (row,) = Pond().multi_join(tables, on="id", time="t").to_pylist()
    assert row == {"id": 1, "t": at(0), "a": 1, "b": 1, "c": 1, "op": "upsert", "sequence": 0, "change_time": at(2)}


def test_what_comes_and_goes_within_a_micro_batch_is_not_told() -> None:
    history = History(NAMES[:3], ["left", "left"], [])
    with running(history) as verb:
        assert fed(verb, [Change("orders", "x", 1, False, 0), Change("orders", "x", None, True, 1)]).num_rows == 0
        assert fed(verb, [Change("payments", "x", 1, False, 2), Change("parcels", "x", 1, False, 3)]).num_rows == 0
        (row,) = fed(verb, [Change("orders", "x", 1, False, 4), Change("parcels", "x", None, True, 5)]).to_pylist()
        assert (row["op"], row["of_payments"], row["of_parcels"], row["change_time"]) == ("upsert", 1, None, at(4))
        (row,) = fed(verb, [Change("orders", "x", None, True, 6), Change("payments", "x", 2, False, 7)]).to_pylist()
        assert (row["op"], row["change_time"]) == ("delete", at(7))


def test_rows_with_null_keys_come_and_go_by_themselves() -> None:
    history = History(NAMES[:3], ["outer", "outer"], [])
    with running(history) as verb:
        found = fed(verb, [Change(table, None, 1, False, number) for number, table in enumerate(history.tables)])
        assert [[row[value_of(table)] for table in history.tables] for row in found.to_pylist()] == [
            [1, None, None],
            [None, 1, None],
            [None, None, 1],
        ]
        (row,) = fed(verb, [Change("payments", None, None, True, 5)]).to_pylist()
        assert (row["op"], row["k"], row["change_time"]) == ("delete", None, at(5))


def test_the_result_is_a_change_feed_that_the_next_verb_takes() -> None:
    pond = Pond()
    found = pond.multi_join(TABLES, **GIVEN, how="outer")
    assert pond.latest(found, key="id", time="change_time").num_rows == 3
    counted = pond.table_join(found, [{"id": 1, "u": at(9), "n": 1}], on="id", left_time="change_time", right_time="u")
    assert [(row["id"], row["n"]) for row in counted.to_pylist()] == [(1, 1)]


def test_an_order_decides_among_changes_of_one_key_and_time() -> None:
    columns: list[tuple[str, Any]] = [("id", pa.int64()), ("t", TIME)]
    tables = {name: pa.schema([*columns, (name, pa.int64()), ("n", pa.int64())]) for name in "ab"}
    tables["b"] = tables["b"].remove(3)
    given: dict[str, Any] = {"on": "id", "time": "t", "history": "1 hour", "order": {"a": "n"}}
    with Pond().in_batches.multi_join(tables, **given) as verb:
        verb.feed(tables={"b": [{"id": 1, "t": at(0), "b": 1}]})
        (row,) = verb.feed(tables={"a": [{"id": 1, "t": at(0), "a": 1, "n": 2}]}).to_pylist()
        assert row["a"] == 1
        assert verb.feed(tables={"a": [{"id": 1, "t": at(0), "a": 9, "n": 1}]}).num_rows == 0


def test_a_row_is_explained_by_the_latest_rows_of_all_tables() -> None:
    history = History(NAMES[:3], ["inner", "outer"], [])
    with running(history) as verb:
        (row,) = fed(verb, [Change("orders", "x", 1, False, 0), Change("parcels", "x", 3, False, 1)]).to_pylist()
        told = verb.explain_match(row)
        assert (
            told.verdict == "the join has a row for this key: 'orders' has one, 'payments' has none, 'parcels' has one"
        )
        assert [(one.side, one.won, one.why) for one in told.candidates] == [
            ("orders", False, "the latest row of its key, which does not join"),
            ("parcels", True, "the latest row of its key"),
        ]
        assert told.notes == ()
        (row,) = fed(verb, [Change("payments", "x", 2, False, 2)]).to_pylist()
        assert {one.side for one in verb.explain_match(row).winners} == {"orders", "payments", "parcels"}
        fed(verb, [Change("parcels", "x", 4, False, 3)])
        (note,) = verb.explain_match(row).notes
        assert "of_parcels=3 of the table 'parcels', which" in note
        fed(verb, [Change("parcels", "x", None, True, 4), Change("orders", "x", None, True, 4)])
        assert "has no row" in verb.explain_match(row).verdict


def test_a_row_with_a_null_key_is_explained_by_the_table_that_it_is_of() -> None:
    history = History(NAMES[:3], ["outer", "outer"], [])
    with running(history) as verb:
        rows = fed(verb, [Change(table, None, 1, False, number) for number, table in enumerate(history.tables)])
        for row, table in zip(rows.to_pylist(), history.tables, strict=True):
            assert [one.side for one in verb.explain_match(row).winners] == [table]


def test_what_has_other_tables_is_fed_and_asked_by_their_names() -> None:
    history = History(NAMES[:3], ["left", "left"], [])
    with running(history) as verb:
        assert [*verb.inputs] == list(history.tables)
        assert verb.key == ["k"]
        with pytest.raises(ConfigurationError, match=r"write feed\(tables=\{'orders': ..., 'payments': ..., 'parcels'"):
            verb.feed(left=[])


def test_what_graces_cost_is_told_of_tables_that_are_played() -> None:
    history = History(NAMES[:3], ["left", "left"], [])
    rows: Mapping[str, Any] = {
        table: [{**Change(table, "x", number, False, second).row, "came": at(5 * number)}
                for number, second in enumerate((3, 9, 4))]
        for table in history.tables
    }  # fmt: skip
    advice = Pond().advise_grace(
        lambda grace: running(history, history=grace), tables=rows, arrived="came", every="1 second"
    )
    assert [line.late for line in advice.lines][-1] == 0
