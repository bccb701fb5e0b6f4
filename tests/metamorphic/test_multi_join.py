"""A join of many tables answers as the chain of joins of two, whatever the tasks, files, cuts, deaths and restarts."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from millpond.processors.calls.joins.multi_join import make_multi_join
from millpond.processors.calls.made import Made
from millpond.processors.calls.tables import Rows
from millpond.processors.options.joins import TABLE_JOINS, JoinType
from tests.metamorphic import oracle
from tests.metamorphic.checking import (
    EXAMPLES,
    KEYS,
    LENGTHS,
    NULLABLE,
    TWO,
    answers,
    bag,
    histories,
    own,
    rows_of,
    schema,
)
from tests.metamorphic.histories import SECOND, Chain, Event, Way, current
from tests.metamorphic.oracle import Row

SOURCES = "abcde"
SCHEMAS = {source: schema(source, op=True) for source in SOURCES}
TYPES = st.lists(st.sampled_from(TABLE_JOINS), min_size=2, max_size=4)


class Tables(NamedTuple):
    """Changes of tables, and how these are joined."""

    events: list[Event]
    types: list[JoinType]

    @property
    def names(self) -> str:
        return SOURCES[: len(self.types) + 1]

    def made(self, history: int | None, null_safe: bool = False) -> Made:
        return make_multi_join(
            "out",
            {name: Rows.of(name, SCHEMAS[name]) for name in self.names},
            keys={name: ["k"] for name in self.names},
            times={name: f"{name}t" for name in self.names},
            ops={name: f"{name}o" for name in self.names},
            types=self.types,
            history=None if history is None else history * SECOND,
            null_safe=null_safe,
        )

    def chain(self, history: int | None, null_safe: bool = False) -> Chain:
        times = {name: f"{name}t" for name in reversed(self.names)}
        return Chain([self.made(history, null_safe)], {name: SCHEMAS[name] for name in self.names}, times)

    def expected(self, events: Sequence[Event], null_safe: bool) -> list[Row]:
        """Return the answer of joins of two tables, one after the other."""
        tables = [oracle.newest(own(events, name), "k", f"{name}t", f"{name}o") for name in self.names]
        alone: list[tuple[int, Row]] = []
        if not null_safe:
            alone = [(place, table.pop(None)) for place, table in enumerate(tables) if None in table]
        found = joined(tables, self.types)
        # A row whose key is null meets none, so it is there where it would be if all other tables were empty.
        for place, row in alone:
            found += joined([{None: row} if place == one else {} for one in range(len(tables))], self.types)
        return [{name: value for name, value in row.items() if name[1:] != "o"} for row in found]


def joined(tables: Sequence[Mapping[Any, Row]], types: Sequence[JoinType]) -> list[Row]:
    """Return the rows of a chain of joins; null is a key like any other."""
    first, *others = [{("key", key): dict(row) for key, row in table.items()} for table in tables]
    whole: dict[Any, dict[str, Any]] = first
    for table, join_type in zip(others, types, strict=True):
        whole = oracle.joined_tables(whole, table, join_type.value)
    return list(whole.values())


def tables_of(keys: Sequence[Any]) -> st.SearchStrategy[Tables]:
    def of(types: list[JoinType]) -> st.SearchStrategy[Tables]:
        sides = (rows_of(name, keys, 7, op=True) for name in SOURCES[: len(types) + 1])
        return st.tuples(*sides).map(lambda found: Tables([one for side in found for one in side], types))

    return TYPES.flatmap(of)


@histories(2 * EXAMPLES)
@given(tables_of(KEYS), TWO, st.none() | LENGTHS)
def test_a_join_of_many_tables_is_the_chain_of_joins(drawn: Tables, ways: list[Way], history: int | None) -> None:
    delays = dict.fromkeys(drawn.names, history or 0)
    expected = bag(drawn.expected(drawn.events, null_safe=True))
    for answer in answers(drawn.chain(history), drawn.events, delays, ways):
        found = current(answer.rows, ["k"]).values()
        assert bag({name: one for name, one in row.items() if name != "change_time"} for row in found) == expected
        for of_a_task in answer.tables:
            assert len(of_a_task) == len(of_a_task["k"].unique())


@histories()
@given(tables_of(NULLABLE), TWO, st.booleans())
def test_a_null_in_the_key_equals_nothing_or_is_a_key_like_any_other(
    drawn: Tables, ways: list[Way], null_safe: bool
) -> None:
    changes = {name: [row for row in own(drawn.events, name) if row["k"] is None] for name in drawn.names}
    expected = bag(drawn.expected(drawn.events, null_safe))
    for answer in answers(drawn.chain(None, null_safe), drawn.events, dict.fromkeys(drawn.names, 0), ways):
        rows = [row for row in answer.rows if null_safe or row["k"] is not None]
        found: list[Row] = [*current(rows, ["k"]).values()]
        if not null_safe:
            found += of_null_keys(answer.rows, drawn.names, changes)
        assert bag({name: one for name, one in row.items() if name != "change_time"} for row in found) == expected


def of_null_keys(rows: Sequence[Row], names: Sequence[str], changes: Mapping[str, Sequence[Row]]) -> list[Row]:
    """Return the last row of each table that came out with a null key, unless it is gone.

    A delete of one has nothing but its time to tell whose it is, so the table itself says whether its row is gone.
    """
    found: list[Row] = []
    for name in names:
        mine = [row for row in rows if row["k"] is None and row["op"] == "upsert" and row[f"{name}t"] is not None]
        newest = oracle.newest(changes[name], "k", f"{name}t", f"{name}o")
        found += [{one: mine[-1][one] for one in mine[-1] if one not in ("op", "sequence")}] if mine and newest else []
    return found
