"""The parts that tests of verbs share: random rows, and answers in a form in which they can be compared."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from millpond.processors.distribution import combining
from millpond.processors.verbs import combining as row_combining
from millpond.processors.verbs.combining import RowCombiner
from millpond.processors.verbs.verb import INSTANT as TIME
from tests.drawing import tries
from tests.metamorphic.histories import SECOND, WAYS, Answer, Chain, Event, Way, answer_of
from tests.metamorphic.oracle import Row

EXAMPLES = 36
TWO = st.lists(WAYS, min_size=2, max_size=2)
LENGTHS = st.sampled_from([0, 1, 3, 8, 20])
"""Seconds."""
NULLABLE = ["a", "b", "", None]
KEYS = ["a", "b", "c", ""]


def histories(examples: int = EXAMPLES) -> settings:
    """Return the same histories each time; with ``make soak`` others, and more of them."""
    soaks = "MILLPOND_SOAK_SECONDS" in os.environ
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(
        max_examples=examples * 20 if soaks else tries(examples),
        derandomize=not soaks,
        database=None,
        deadline=None,
        suppress_health_check=checks,
    )


@contextmanager
def combined(most_new: float, *, often: int = 1 << 30) -> Iterator[pytest.MonkeyPatch]:
    """Have few rows combined as many are.

    Args:
        most_new: all are where at most such a share of them have a key of their own.
        often: otherwise those of keys that come so often.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(combining, "FEWEST", 2)
        patch.setattr(combining, "SAMPLED", 1)
        patch.setattr(combining, "OFTEN", often)
        patch.setattr(row_combining, "MOST_LEFT", 1)
        patch.setattr(RowCombiner, "most_new", most_new)
        yield patch


def schema(source: str, *, op: bool = False, id_: bool = False) -> pa.Schema:
    columns: list[tuple[str, Any]] = [("id", pa.int64())] if id_ else []
    columns += [("k", pa.string()), (f"{source}t", TIME), (f"{source}v", pa.int64())]
    return pa.schema([*columns, (f"{source}o", pa.string())] if op else columns)


def rows_of(
    source: str, keys: Sequence[Any], most: int = 10, *, op: bool = False, until: int = 40
) -> st.SearchStrategy[list[Event]]:
    """Return rows of a source, no two of one key and time."""
    one = st.tuples(
        st.sampled_from(keys),
        st.integers(0, until),
        st.none() | st.integers(0, 9),
        st.sampled_from(["upsert", "upsert", "delete"]),
    )
    listed = st.lists(one, max_size=most, unique_by=lambda row: row[:2])
    return listed.map(lambda some: [event(source, *row, with_op=op) for row in some])


def event(source: str, key: Any, second: int, value: int | None, op: str, *, with_op: bool) -> Event:
    at = (1_000 + second) * SECOND
    row = {"k": key, f"{source}t": at, f"{source}v": value, **({f"{source}o": op} if with_op else {})}
    return Event(source, at, row)


def own(events: Iterable[Event], source: str) -> list[Row]:
    return [event.row for event in events if event.source == source]


def frozen(row: Row) -> frozenset[tuple[str, Any]]:
    """Return the row without its nulls."""
    return frozenset((name, _hashable(value)) for name, value in row.items() if value is not None)


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, _hashable(one)) for name, one in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def bag(rows: Iterable[Row]) -> Counter[frozenset[tuple[str, Any]]]:
    return Counter(map(frozen, rows))


def table(rows: Mapping[Any, Row], *without: str) -> dict[Any, frozenset[tuple[str, Any]]]:
    return {key: frozen({name: row[name] for name in row if name not in without}) for key, row in rows.items()}


def answers(chain: Chain, events: Sequence[Event], delays: Mapping[str, int], ways: Iterable[Way]) -> Iterator[Answer]:
    for way in ways:
        yield answer_of(chain, events, {source: delay * SECOND for source, delay in delays.items()}, way)
