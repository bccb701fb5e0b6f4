"""A lookup in a table whose rows expire finds what has not expired by the time of the record that looks."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.processors import Materialized, StreamsBuilder, Topology, TopologyDriver
from millpond.processors.runtime.batches.batch import Batch
from tests.metamorphic.checking import histories

TTL = 10


class Row(NamedTuple):
    topic: str
    key: str
    value: str | None
    time: int


ROWS = st.lists(
    st.tuples(st.sampled_from(["left", "right"]), st.sampled_from("ab"), st.integers(0, 30), st.booleans()),
    max_size=14,
    unique_by=lambda row: (row[0], row[2]),
)
CUTS = st.lists(st.integers(0, 14), max_size=4).map(sorted)


def in_time(rows: Sequence[tuple[str, str, int, bool]]) -> list[Row]:
    """Return rows of two topics, no two of one time; the stream's are never null."""
    timed = [
        Row(topic, key, None if deleted and topic == "right" else f"{topic[0]}{time}", 2 * time + (topic == "right"))
        for topic, key, time, deleted in rows
    ]
    return sorted(timed, key=lambda row: row.time)


def pair(one: str | None, other: str | None) -> str:
    return f"{one}{other}"


def kept(name: str, expired: str, *, versioned: bool) -> Materialized:
    options: dict[str, Any] = {"ttl": TTL, "expired": expired}
    return (
        Materialized.versioned(name, history_retention=100, **options) if versioned else Materialized(name, **options)
    )


def run(topology: Topology, rows: Sequence[Row], cuts: Sequence[int]) -> Iterator[tuple[str, Any, int]]:
    """Yield what comes out in micro-batches that are cut there."""
    with TopologyDriver(topology) as driver:
        for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True):
            part = rows[start:stop]
            driver.pipe_inputs(
                {
                    topic: Batch([one.key for one in own], [one.value for one in own], [one.time for one in own])
                    for topic in ("left", "right")
                    if (own := [one for one in part if one.topic == topic])
                }
            )
        yield from ((record.key, record.value, record.timestamp) for record in driver.read("out"))


class Living:
    """The rows of a table that have not expired."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}

    def take(self, row: Row) -> None:
        self.rows.pop(row.key, None)
        if row.value is not None:
            self.rows[row.key] = row

    def at(self, key: str | None, time: int) -> str | None:
        found = self.rows.get(key) if key is not None else None
        return None if found is None or found.time + TTL <= time else found.value


@pytest.mark.parametrize("expired", ["silent", "delete"])
@pytest.mark.parametrize("versioned", [False, True])
@histories(30)
@given(rows=ROWS.map(in_time), cuts=CUTS)
def test_a_stream_meets_what_has_not_expired_by_its_record(
    expired: str, versioned: bool, rows: list[Row], cuts: list[int]
) -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    table = builder.table("right", materialized=kept("kept", expired, versioned=versioned))
    builder.stream("left").left_join(table.map_values(str.upper), pair).to("out")
    living, expected = Living(), []
    for row in rows:
        if row.topic == "right":
            living.take(row)
        else:
            found = living.at(row.key, row.time)
            expected.append((row.key, pair(row.value, found and found.upper()), row.time))
    assert list(run(builder.build(), rows, cuts)) == expected


def summed(how: str, versioned: bool) -> Topology:
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    left = builder.table("left", materialized=kept("lefts", "delete", versioned=versioned))
    right = builder.table("right", materialized=kept("rights", "delete", versioned=versioned)).map_values(str.upper)
    if how == "foreign":
        joined = left.left_join(right, pair, foreign_key=lambda key, value: "ab"[int(value[1:]) % 2])
    else:
        joined = left.outer_join(right, pair) if how == "outer" else left.join(right, pair)
    joined.group_by(lambda key, value: ("all", f"{key}{value}")).aggregate(
        str, lambda key, value, all_: f"{all_} {value}".strip(), lambda key, value, all_: without(all_, value)
    ).to_stream().to("out")
    return builder.build()


def without(all_: str, value: str) -> str:
    left = all_.split()
    left.remove(value)
    return " ".join(left)


@pytest.mark.parametrize("how", ["inner", "outer", "foreign"])
@pytest.mark.parametrize("versioned", [False, True])
@histories(30)
@given(rows=ROWS.map(in_time), cuts=CUTS)
def test_a_group_of_a_join_has_what_has_not_expired(
    how: str, versioned: bool, rows: list[Row], cuts: list[int]
) -> None:
    """The group loses exactly what has entered it. By foreign key, left rows expire by left times alone."""
    sides, ends = {"left": Living(), "right": Living()}, {"left": 0, "right": 0}
    for row in rows:
        sides[row.topic].take(row)
        ends[row.topic] = row.time
    end = max(ends.values())
    left_end = ends["left"] if how == "foreign" else end
    expected = []
    for key in "ab":
        value = sides["left"].at(key, left_end)
        foreign = ("ab"[int(value[1:]) % 2] if value else None) if how == "foreign" else key
        other = sides["right"].at(foreign, end)
        if (value or how == "outer") and (other or how != "inner") and (value or other):
            expected.append(f"{key}{pair(value, other and other.upper())}")
    found = list(run(summed(how, versioned), rows, cuts))
    assert sorted((found[-1][1] if found else "").split()) == sorted(expected)
