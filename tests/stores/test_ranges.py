"""Many ranges of rows read at once: what each range holds, in few scans, without walking through what nobody wants."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import ConfigurationError, SerdeError
from millpond.stores.backend.contract import Entries
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.serdes import STRING
from millpond.stores.typed.ranges import Range, entries_of_ranges
from millpond.stores.typed.windows.session import SessionStore
from millpond.stores.typed.windows.timestamped_window import TimestampedWindowStore
from millpond.stores.typed.windows.windowed import Windowed

numbers = st.integers(0, 400)


def row(number: int) -> bytes:
    return number.to_bytes(4)


def holding(rows: Sequence[int]) -> Transaction:
    """Return a transaction in which every second of the rows is committed, the others are not."""
    transaction = Transaction(MemoryBackend())
    transaction.put_many({row(number): b"x" for number in rows[::2]})
    transaction.commit()
    transaction.put_many({row(number): b"y" for number in rows[1::2]})
    return transaction


class Counted:
    """A scan that counts its calls and the entries that it has given."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self.calls = self.entries = 0

    def __call__(self, start: bytes, stop: bytes) -> Entries:
        self.calls += 1
        for entry in self._transaction.scan(start, stop):
            self.entries += 1
            yield entry


@given(st.sets(numbers), st.lists(numbers, unique=True, max_size=60))
def test_ranges_hold_what_a_scan_of_each_finds(rows: set[int], bounds: list[int]) -> None:
    transaction = holding(sorted(rows))
    bounds = sorted(bounds)
    ranges: list[Range] = [(row(low), row(high)) for low, high in zip(bounds[::2], bounds[1::2], strict=False)]
    one_by_one = [(place, entry) for place, given in enumerate(ranges) for entry in transaction.scan(*given)]
    assert list(entries_of_ranges(transaction.scan, ranges)) == one_by_one
    transaction.rollback()


def test_ranges_that_lie_close_together_are_read_by_few_walks() -> None:
    scan = Counted(holding(range(0, 10_000, 2)))
    ranges = [(row(number), row(number + 1)) for number in range(0, 10_000, 4)]
    assert len(list(entries_of_ranges(scan, ranges))) == 2_500
    assert scan.calls < 10


@pytest.mark.parametrize("wanted", [1, 10, 40])
def test_ranges_that_lie_far_apart_are_read_without_what_lies_between(wanted: int) -> None:
    scan = Counted(holding(range(100_000)))
    ranges = [(row(number), row(number + 1)) for number in range(0, 100_000, 100_000 // wanted)]
    assert len(list(entries_of_ranges(scan, ranges))) == wanted
    assert scan.calls <= 2 * wanted
    assert scan.entries <= 30 * wanted


def session_store() -> SessionStore[str, str]:
    return SessionStore("s", Transaction(MemoryBackend()), STRING, STRING, retention=3_000)


def window_store() -> TimestampedWindowStore[str, str]:
    return TimestampedWindowStore(
        "s", Transaction(MemoryBackend()), STRING, STRING, retention=3_000, window_size=10, retain_duplicates=False
    )


keys = st.sampled_from(["", "a", "a\0", "b", "bb", "ü"])
values = st.sampled_from(["x", "y", None])
spans = st.tuples(st.integers(-50, 9_000), st.integers(0, 900)).map(lambda drawn: (drawn[0], drawn[0] + drawn[1]))
bounds = st.dictionaries(keys, st.tuples(st.integers(-100, 10_000), st.integers(-100, 10_000)))


@given(st.lists(st.tuples(keys, spans, values), max_size=40), bounds)
def test_sessions_of_each_key_are_those_that_are_found_key_by_key(puts: list[Any], asked: dict[str, Any]) -> None:
    store = session_store()
    for key, (start, end), value in puts:
        store.put(Windowed(key, start, end), value)
    found = store.find_sessions_of_each(
        list(asked), [earliest for earliest, _ in asked.values()], [latest for _, latest in asked.values()]
    )
    assert found == [
        [(start, end, value) for (_, start, end), value in store.find_sessions(key, *times)]
        for key, times in asked.items()
    ]


several = st.lists(st.tuples(st.integers(-100, 10_000), st.integers(-100, 3_000)), max_size=4)
spans_of_keys = st.dictionaries(keys, several.map(lambda some: [(start, start + size) for start, size in some]))


@given(st.lists(st.tuples(keys, st.integers(-50, 9_000), values), max_size=40), spans_of_keys)
def test_windows_of_each_key_are_those_that_are_fetched_key_by_key(puts: list[Any], asked: dict[str, Any]) -> None:
    store = window_store()
    for key, start, value in puts:
        store.put(key, value, 7, start)
    found = store.fetch_range_of_each(list(asked), asked.values())
    assert found == [
        sorted({window for span in spans if span[0] <= span[1] for window in store.fetch_range(key, *span)})
        for key, spans in asked.items()
    ]


@given(st.lists(st.lists(st.tuples(keys, spans, values), max_size=12), max_size=5))
def test_put_many_puts_each_session_whatever_the_order(batches: list[list[Any]]) -> None:
    single, batched = session_store(), session_store()
    for batch in batches:
        batch.sort(key=lambda put: put[1][1], reverse=True)  # so that none of them makes an earlier one expire
        for key, (start, end), value in batch:
            single.put(Windowed(key, start, end), value)
        batched.put_many(*([put[column] for put in batch] for column in range(3)))
        assert list(batched.fetch_keys()) == list(single.fetch_keys())
        assert batched.observed_stream_time == single.observed_stream_time
        batched.check()


@pytest.mark.parametrize(
    ("put", "error"),
    [
        (lambda store: store.put_many(["a", "b"], [(0, 9), (0, 9_000)], ["x", 7]), SerdeError),
        (lambda store: store.put_many(["a", 7], [(0, 9), (0, 9_000)], ["x", "y"]), SerdeError),
        (lambda store: store.put_many(["a", "b"], [(9, 0), (0, 9_000)], ["x", "y"]), ConfigurationError),
        (lambda store: store.put_many(["a", "b"], [(0, 9), (0, 2**63)], ["x", "y"]), ConfigurationError),
    ],
)
def test_put_many_of_what_cannot_be_put_changes_nothing(
    put: Callable[[SessionStore[str, Any]], None], error: type[Exception]
) -> None:
    store = session_store()
    store.put(Windowed("k", 0, 5), "x")
    with pytest.raises(error):
        put(store)
    assert list(store.fetch_keys()) == [(Windowed("k", 0, 5), "x")]
    assert store.observed_stream_time == 5
