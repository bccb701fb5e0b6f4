"""Commits that are merged give each row once, in key order, as the last commit left it, however they are cut."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.stores.backend.column_changes import ColumnChanges, as_columns
from millpond.stores.durability.copies.sweep import Merge

Rows = dict[bytes, bytes | None]

KEYS = st.binary(max_size=2)
VALUES = st.none() | st.binary(max_size=3) | st.integers(0, 1 << 20).map(bytes)
COMMITS = st.lists(st.dictionaries(KEYS, VALUES, min_size=1, max_size=40), min_size=1, max_size=9)


def merge_of(commits: list[Rows], beyond: bytes | None = None) -> Merge:
    columns = [one for one in map(as_columns, commits) if isinstance(one, ColumnChanges)]
    assert len(columns) == len(commits)
    return Merge([(one.keys_column, one.values_column) for one in columns], beyond)


@settings(deadline=None)
@given(COMMITS, st.booleans())
def test_steps_give_the_latest_of_each_row_in_order(commits: list[Rows], restarts: bool) -> None:
    merge = merge_of(commits)
    assert merge.left == sum(map(len, commits))
    found: list[tuple[bytes, bytes | None]] = []
    while left := merge.left:
        step = merge.step()
        assert step.rows
        found += step.rows.items()
        if restarts:
            merge = merge_of(commits, step.last)
        else:
            assert merge.step() == step, "nothing is dealt with until that is said"
            merge.take(step)
        assert merge.left == left - sum(step.counts)
    latest: Rows = {}
    for rows in commits:
        latest |= rows
    assert found == sorted(latest.items())


def test_a_step_has_a_bounded_size() -> None:
    many = merge_of([{b"%05d" % (3 * row + number): b"x" for row in range(2000)} for number in range(3)])
    large = merge_of([{b"%d" % row: bytes(400_000) for row in range(9)}])
    assert len(many.step().rows) == 500
    assert 1 <= len(large.step().rows) <= 4


def test_nothing_is_left_of_nothing() -> None:
    empty = pa.array([], pa.binary())
    merge = Merge([(empty, empty)])
    assert (merge.left, merge.step().rows) == (0, {})
