"""The merge of several topics' records, against a literal reading of the rule."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.order.time_order import merge, reached_by_key
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME
from tests.drawing import tries

Taken = list[tuple[str, int, int]]


def _batch(timestamps: list[int]) -> Batch:
    return Batch([f"k{i}" for i in range(len(timestamps))], list(range(len(timestamps))), timestamps)


def _merged(inputs: dict[str, list[int]]) -> list[tuple[str, Batch]]:
    merged = merge({topic: _batch(times) for topic, times in inputs.items()})
    return [(topic, run.to_batch()) for topic, run in merged]


def _records(runs: list[tuple[str, Batch]]) -> Taken:
    return [
        (topic, value, timestamp)
        for topic, run in runs
        for value, timestamp in zip(run.values, run.timestamps, strict=True)
    ]


def _naive(inputs: dict[str, list[int]]) -> Taken:
    queues = {topic: list(enumerate(times)) for topic, times in inputs.items()}
    taken: Taken = []
    while any(queues.values()):
        topic = min((name for name in queues if queues[name]), key=lambda name: queues[name][0][1])
        taken.append((topic, *queues[topic].pop(0)))
    return taken


def _stable_sort(inputs: dict[str, list[int]]) -> Taken:
    ranked: list[tuple[int, int, int, Taken]] = []
    for rank, (topic, times) in enumerate(inputs.items()):
        ranked.extend((max(times[: i + 1]), rank, i, [(topic, i, time)]) for i, time in enumerate(times))
    return [record for *_, records in sorted(ranked) for record in records]


times_of_keys = st.lists(st.tuples(st.integers(-9, 9) | st.integers(MIN_TIME, MAX_TIME), st.integers(0, 3)), max_size=9)


@settings(max_examples=tries(400))
@given(times_of_keys)
def test_what_a_key_has_reached_is_its_largest_timestamp_however_far_apart(
    given_: list[tuple[int, int]],
) -> None:
    times, keys = (np.array([one[place] for one in given_], np.int64) for place in (0, 1))
    expected = [max(time for time, key in given_[: place + 1] if key == of) for place, (_, of) in enumerate(given_)]
    assert reached_by_key(times, keys).tolist() == expected


inputs_of_few_times = st.dictionaries(st.sampled_from("abcde"), st.lists(st.integers(0, 8), max_size=12), max_size=5)


@settings(max_examples=tries(400))
@given(inputs_of_few_times)
def test_the_next_record_is_always_of_the_topic_whose_head_has_the_smallest_timestamp(
    inputs: dict[str, list[int]],
) -> None:
    assert _records(_merged(inputs)) == _naive(inputs)


@settings(max_examples=tries(400))
@given(inputs_of_few_times)
def test_that_is_a_stable_sort_by_the_largest_timestamp_a_topic_has_shown(inputs: dict[str, list[int]]) -> None:
    assert _records(_merged(inputs)) == _stable_sort(inputs)


@given(inputs_of_few_times)
def test_runs_are_not_empty_and_neighbors_are_of_different_topics(inputs: dict[str, list[int]]) -> None:
    runs = _merged(inputs)
    assert all(len(run) for _, run in runs)
    assert all(first[0] != second[0] for first, second in pairwise(runs))


def test_the_topic_named_first_wins_among_equal_timestamps() -> None:
    assert [topic for topic, _ in _merged({"b": [1, 1], "a": [1]})] == ["b", "a"]
    assert [topic for topic, _ in _merged({"a": [1], "b": [1, 1]})] == ["a", "b"]


def test_a_single_topic_is_passed_on_as_it_is() -> None:
    batch = _batch([3, 1, 2])
    ((topic, run),) = merge({"quiet": _batch([]), "only": batch})
    assert topic == "only"
    assert run is batch


def test_nothing_makes_nothing() -> None:
    assert list(merge({})) == []
    assert _merged({"a": [], "b": []}) == []


def test_old_values_and_latest_flags_travel_with_their_records() -> None:
    updates = Batch(["a", "b"], [1, 2], [5, 15], [None, 0], [True, False])
    runs = dict(enumerate(merge({"updates": updates, "other": _batch([10])})))
    assert runs[0][1].olds == [None]
    assert runs[2][1].olds == [0]
    assert runs[2][1].latest == [False]
