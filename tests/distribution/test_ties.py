"""Records of one key and time: their values decide which counts last, not how they were packed."""

import random
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.processors.distribution.exchange import PLACE, TURN, Blob, BlobWriter, gather
from millpond.processors.options.order import Order

Record = tuple[str, bytes | None, int]
RECORDS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from([b"x", b"xy", b"y", None]), st.integers(0, 3)),
    min_size=1,
    max_size=30,
)


def blobs(
    splits: list[list[Record]], input_: int = 0, place: bool = False, turns: list[list[int]] | None = None
) -> list[Blob]:
    found: list[Blob] = []
    for split, records in enumerate(splits):
        if records:
            keys, values, times = (list(column) for column in zip(*records, strict=True))
            columns: dict[str, Any] = {
                "key": keys,
                "value": pa.array(values, pa.binary()),
                "timestamp": pa.array(times, pa.int64()),
            }
            columns |= {PLACE: pa.array(range(len(keys)))} if place else {}
            table = pa.table(columns | ({} if turns is None else {TURN: pa.array(turns[split], pa.int64())}))
            found += BlobWriter(split).cut(table, 0, input_)
    return found


def taken(found: list[Blob], ties: set[int]) -> list[tuple[int, Any, Any, int]]:
    return [
        (run.input, *record)
        for run in gather(found, order=Order.TIME, ties=ties)
        for batch in [run.records.to_batch()]
        for record in zip(batch.keys, batch.values, batch.timestamps, strict=True)
    ]


def of_key(records: list[tuple[int, Any, Any, int]], input_: int, key: str) -> list[tuple[Any, int]]:
    return [(value, time) for number, own, value, time in records if (number, own) == (input_, key)]


@settings(deadline=None)
@given(RECORDS, st.integers(1, 4), st.randoms(use_true_random=False))
def test_a_key_s_records_come_by_time_then_value_however_they_were_packed(
    records: list[Record], splits: int, chance: random.Random
) -> None:
    packed: list[list[Record]] = [[] for _ in range(splits)]
    for record in chance.sample(records, len(records)):
        chance.choice(packed).append(record)
    found = taken(blobs(packed) + blobs([records], input_=1), {0})
    assert [time for *_, time in found] == sorted(time for *_, time in found)
    for key in "ab":
        mine = [(value, time) for own, value, time in records if own == key]
        assert of_key(found, 0, key) == sorted(mine, key=lambda one: (one[1], one[0] is not None, one[0] or b""))
        assert of_key(found, 1, key) == sorted(mine, key=lambda one: one[1])


def test_records_of_a_change_feed_come_in_the_order_in_which_they_count() -> None:
    records: list[Record] = [("a", b"2", 5), ("a", b"1", 5), ("a", None, 5), ("a", b"0", 5)]
    assert [value for _, _, value, _ in taken(blobs([records], place=True), {0})] == [b"2", b"1", None, b"0"]


@settings(deadline=None)
@given(RECORDS, RECORDS, st.integers(1, 4), st.randoms(use_true_random=False))
def test_records_that_come_in_turn_keep_that_order_for_each_key_and_otherwise_that_of_time(
    records: list[Record], others: list[Record], splits: int, chance: random.Random
) -> None:
    packed: list[list[Record]] = [[] for _ in range(splits)]
    turns: list[list[int]] = [[] for _ in range(splits)]
    for turn in chance.sample(range(len(records)), len(records)):
        split = chance.randrange(splits)
        packed[split].append(records[turn])
        turns[split].append(turn)
    found = taken(blobs([others]) + blobs(packed, input_=1, turns=turns), {0, 1})
    reached: dict[str, int] = {}
    go_by = []
    for input_, key, _, time in found:
        if input_:
            reached[key] = time = max(time, reached.get(key, 0))
        go_by.append(time)
    assert go_by == sorted(go_by)
    for key in "ab":
        assert of_key(found, 1, key) == [(value, time) for own, value, time in records if own == key]
