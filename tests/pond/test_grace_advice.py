"""The cost of graces is what each row says of them, and the longest that is proposed costs nothing."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond import Pond
from millpond.errors import ConfigurationError
from millpond.processors import SessionWindows, TimeWindows
from millpond.processors.calls.reports.grace_advice import advice_of_needed, lateness_of, proposed_graces
from millpond.processors.pond import MicroBatches
from millpond.processors.verbs import aggregates as agg
from tests.drawing import tries

START = datetime(2026, 6, 1, 12, tzinfo=UTC)
TIME: pa.DataType = pa.timestamp("us", "UTC")
ROWS: Any = pa.schema([("k", pa.string()), ("t", TIME), ("a", pa.int64())])
OTHERS: Any = pa.schema([("k", pa.string()), ("u", TIME), ("b", pa.int64())])
Rows = Sequence[Mapping[str, Any]]


def seconds(number: int) -> datetime:
    return START + timedelta(seconds=number)


def arriving(time: str, value: str) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Return rows in the order in which they came, most of them soon after their time."""
    one = st.fixed_dictionaries(
        {
            "k": st.sampled_from(["x", "y"]),
            time: st.integers(0, 60).map(seconds),
            value: st.integers(0, 9),
            "late": st.sampled_from([0, 0, 0, 1, 4, 20, 45]),
        }
    )
    made = st.lists(one, min_size=1, max_size=20, unique_by=lambda row: (row["k"], row[time]))
    return made.map(lambda rows: [came(row, time) for row in rows])


def came(row: Mapping[str, Any], time: str) -> dict[str, Any]:
    rest = {name: value for name, value in row.items() if name != "late"}
    return {**rest, "arrived": row[time] + timedelta(seconds=row["late"])}


def batch_of(row: Mapping[str, Any], every: int) -> int:
    return int(row["arrived"].timestamp()) // every


def counting(grace: timedelta) -> MicroBatches:
    window = TimeWindows("10 seconds", grace=grace)
    return Pond().in_batches.aggregate(ROWS, {"n": agg.count()}, by="k", time="t", window=window, emit="final")


@settings(max_examples=tries(80), deadline=None, derandomize=True, database=None)
@given(rows=arriving("t", "a"), every=st.sampled_from([1, 5, 30]), graces=st.lists(st.integers(0, 50), min_size=1))
def test_rows_are_late_and_windows_wrong_as_the_rule_says_row_by_row(rows: Rows, every: int, graces: list[int]) -> None:
    given = [timedelta(seconds=number) for number in graces]
    advice = Pond().advise_grace(counting, rows=rows, arrived="arrived", every=f"{every} seconds", graces=given)
    assert [line.grace for line in advice.lines] == sorted(set(given))
    for line in advice.lines:
        late = []
        for row in rows:
            before = [one["t"] for one in rows if batch_of(one, every) < batch_of(row, every)]
            begin = int((row["t"] - START).total_seconds()) // 10 * 10
            if before and max(before) >= seconds(begin + 10) + line.grace:
                late.append((row["k"], begin))
        assert line.late == len(late)
        assert line.share == len(late) / len(rows)
        assert line.wrong == len(set(late))
        assert line.state_rows is not None
        assert line.state_rows > 0


VERBS: dict[str, Callable[[timedelta], MicroBatches]] = {
    "latest": lambda grace: Pond().in_batches.latest(ROWS, key="k", time="t", history=grace),
    "windows": counting,
    "updates": lambda grace: Pond().in_batches.aggregate(
        ROWS, {"n": agg.sum("a")}, by="k", time="t", window=TimeWindows("10 seconds", grace=grace)
    ),
    "ranks": lambda grace: Pond().in_batches.top_n(
        ROWS, 2, by="k", order="a", time="t", window=TimeWindows("10 seconds", grace=grace)
    ),
    "sessions": lambda grace: Pond().in_batches.aggregate(
        ROWS, {"n": agg.sum("a")}, by="k", time="t", window=SessionWindows("5 seconds", grace=grace), emit="final"
    ),
    "pairs": lambda grace: Pond().in_batches.stream_join(
        ROWS, OTHERS, on="k", left_time="t", right_time="u", within="5 seconds", grace=grace, how="outer"
    ),
    "asof": lambda grace: Pond().in_batches.asof_join(
        ROWS, OTHERS, on="k", left_time="t", right_time="u", history=grace, grace=grace, how="left"
    ),
}


@pytest.mark.parametrize("name", VERBS)
@settings(max_examples=tries(24), deadline=None, derandomize=True, database=None)
@given(rows=arriving("t", "a"), others=arriving("u", "b"), every=st.sampled_from([1, 10]))
def test_the_longest_grace_that_is_proposed_loses_nothing_whatever_the_verb(
    name: str, rows: Rows, others: Rows, every: int
) -> None:
    inputs: dict[str, Any] = {"left": rows, "right": others} if name in ("pairs", "asof") else {"rows": rows}
    advice = Pond().advise_grace(VERBS[name], **inputs, arrived="arrived", every=f"{every} seconds")
    assert (advice.lines[0].grace, advice.rows) == (timedelta(), sum(map(len, inputs.values())))
    assert (advice.lines[-1].late, advice.lines[-1].wrong) == (0, 0)
    assert advice.enough is not None
    assert advice.enough <= advice.lines[-1].grace


@settings(max_examples=tries(60), deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 5)), min_size=1), st.integers(1, 3))
def test_lateness_is_against_the_newest_time_of_all_earlier_micro_batches(
    rows: list[tuple[int, int]], inputs: int
) -> None:
    sides = [rows[number::inputs] for number in range(inputs)]
    made = [(np.array([t for t, _ in side], np.int64), np.array([b for _, b in side], np.int64)) for side in sides]
    expected = [
        max([0, *(other - time for other, earlier in rows if earlier < batch)])
        for side in sides
        for time, batch in side
    ]
    assert lateness_of(made).tolist() == expected
    assert int(proposed_graces(lateness_of(made))[-1] / timedelta(microseconds=1)) >= max(expected)


@given(st.dictionaries(st.integers(1, 10**9), st.integers(1, 50), max_size=8))
def test_the_late_rows_of_a_job_say_how_many_would_still_be_late(needed: dict[int, int]) -> None:
    advice = advice_of_needed("job", needed, None)
    for line in advice.lines:
        micros = line.grace // timedelta(microseconds=1)
        assert line.late == sum(count for length, count in needed.items() if length > micros)
    assert bool(advice.lines) is bool(needed)
    assert not advice.lines or advice.lines[-1].late == 0


def test_advice_is_a_table_in_text_and_in_a_notebook() -> None:
    rows = [
        came({"k": "x", "t": seconds(second), "a": 1, "late": 25 if second == 3 else 0}, "t") for second in range(40)
    ]
    advice = Pond().advise_grace(counting, rows=rows, arrived="arrived", every="1 second", graces=[0, "20 seconds"])
    size, others = (f"{one:,}" for one in (advice.lines[0].state_rows or 0, advice.lines[0].state_bytes or 0))
    assert str(advice).splitlines()[:3] == [
        "aggregate-k: 40 rows",
        "  grace  late rows    share  wrong results  state rows  state bytes",
        f"0:00:00          1  2.5000%              1  {size:>10}  {others:>11}",
    ]
    assert (advice.lines[1].late, advice.enough) == (0, timedelta(seconds=20))
    assert "<td>2.5000%</td>" in advice._repr_html_()


def test_what_cannot_be_played_is_refused_with_what_to_give() -> None:
    rows = [came({"k": "x", "t": START, "a": 1, "late": 0}, "t")]
    how: dict[str, Any] = {"arrived": "arrived", "every": "1 second"}
    with pytest.raises(ConfigurationError, match=r"; give rows=\.\.\., left="):
        Pond().advise_grace(counting, left=rows, **how)
    with pytest.raises(ConfigurationError, match="; give how often a micro-batch begins"):
        Pond().advise_grace(counting, rows=rows, arrived="arrived", every=0)
    with pytest.raises(ConfigurationError, match="; give one of timestamps, which says of each row when it came"):
        Pond().advise_grace(counting, rows=rows, arrived="a", every="1 second")
    with pytest.raises(ConfigurationError, match="has no column 'came'"):
        Pond().advise_grace(counting, rows=rows, arrived="came", every="1 second")
    assert Pond().advise_grace(counting, rows=rows, **how).enough == timedelta()
