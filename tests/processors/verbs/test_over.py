"""``over`` gives what DuckDB gives of all rows in time, in whatever micro-batches and order they come."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import ConfigurationError, RecordError, SerdeError
from millpond.processors.verbs import aggregates as agg
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.ordered.over import over
from millpond.processors.verbs.ordered.over_spec import Calls, Frame, OverSpec
from millpond.processors.verbs.verb import PackedRows, Verb
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from tests.processors.verbs.duck import answered
from tests.processors.verbs.running import Rows, an_input, cut, run, running

KEY = {"k": pa.string()}
VALUE: dict[str, pa.DataType] = {
    "t": pa.int64(),
    "id": pa.int64(),
    "x": pa.int64(),
    "f": pa.float64(),
    "s": pa.string(),
}
ROWS = pa.schema([pa.field(name, type_) for name, type_ in {**KEY, **VALUE}.items()])
ORDER = KeyCodec(pa.schema([("order", pa.int64())]))

CALLS: dict[str, tuple[AggregateCall, str]] = {
    "n": (agg.count(), "count(*) over {frame}"),
    "some": (agg.count("x"), "count(x) over {frame}"),
    "total": (agg.sum("x"), "(sum(x) over {frame})::bigint"),
    "least": (agg.min("s"), "min(s) over {frame}"),
    "most": (agg.max("f"), "max(f) over {frame}"),
    "began": (agg.first("id"), "first_value(id) over {frame}"),
    "all": (agg.collect("id"), "list(id) over {frame}"),
    "previous": (agg.lag("x"), "lag(x) over {order}"),
    "third": (agg.lag("s", 3), "lag(s, 3) over {order}"),
}
FRAMES = {
    "whole": (Frame(), "rows between unbounded preceding and current row"),
    **{f"{n} rows": (Frame(rows=n), f"rows between {n - 1} preceding and current row") for n in (1, 2, 3, 7, 16)},
    **{f"within {d}": (Frame(within=d), f"range between {d} preceding and current row") for d in (0, 1, 6, 40)},
}


def made(calls: Mapping[str, AggregateCall], frame: Frame, late: int, ttl: int | None = None) -> Verb:
    rows: PackedRows = replace(an_input("input", KEY, VALUE), order=ORDER)
    arguments = {name: str(call.column) for name, call in calls.items() if call.takes_values}
    bound = Calls(calls, {name: VALUE[column] for name, column in arguments.items()})
    return over("out", rows, bound, arguments, frame, late=late, ttl=ttl, columns=list(VALUE))


def some_rows(chance: random.Random, late: int, most: int = 60) -> list[dict[str, Any]]:
    """Return rows that come at most so late."""
    rows: list[dict[str, Any]] = [
        {
            "k": chance.choice(["a", "b", "a\x00", None]), "t": chance.randint(-30, 60), "id": number, "order": number,
            "x": chance.choice([None, 1, -5, 1_000]), "f": chance.choice([None, 0.5, -1.0]),
            "s": chance.choice([None, "", "b"]),
        }
        for number in range(chance.randint(0, most))
    ]  # fmt: skip
    return sorted(rows, key=lambda row: row["t"] + chance.randint(0, late))


def asked(rows: Rows, names: Sequence[str], frame: str, ttl: int | None) -> list[tuple[Any, ...]]:
    """Return what DuckDB answers; a key that has had no row for longer than ``ttl`` begins anew."""
    table = pa.Table.from_pylist([{name: row[name] for name in ROWS.names} for row in rows], ROWS)
    far = 10**9 if ttl is None else ttl
    # A range is of one column; within rows, id decides among equal times.
    order = f"(partition by k, life order by t{'' if frame.startswith('range') else ', id'} {frame})"
    plain = "(partition by k, life order by t, id)"
    results = [CALLS[name][1].format(frame=order, order=plain) for name in names]
    text = f"""
        with far as (select *, coalesce(t - lag(t) over (partition by k order by t, id) > {far}, false) as far from r),
        lives as (select *, sum(far::int) over (partition by k order by t, id) as life from far)
        select k, t, id, x, f, s, {", ".join(results)} from lives
    """
    return sorted(answered(text, r=table), key=lambda row: row[2])


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("seed", range(5))
def test_each_row_has_what_duckdb_gives_of_all(seed: int, frame: str) -> None:
    chance = random.Random(f"{seed} {frame}")
    late, ttl = chance.choice([0, 1, 10]), chance.choice([None, None, 5, 25])
    ranged = FRAMES[frame][0].within is not None
    # Of rows of one time, SQL leaves open which comes first in a range.
    possible = [name for name in CALLS if not (ranged and name in ("began", "all"))]
    names = chance.sample(possible, chance.randint(1, len(possible)))
    rows = some_rows(chance, late)
    verb = made({name: CALLS[name][0] for name in names}, FRAMES[frame][0], late, ttl)
    answers = [run(verb, list(cut(rows, chance)), backend=one) for one in ("memory", "lmdb", "rocksdb")]
    columns = [*ROWS.names, *names]
    found = sorted((tuple(row[name] for name in columns) for row in answers[0]), key=lambda row: row[2])
    assert found == asked(rows, names, FRAMES[frame][1], ttl)
    assert answers[0] == answers[1] == answers[2]
    assert [row["t"] for row in answers[0]] == sorted(row["t"] for row in answers[0])


def test_sums_that_columns_cannot_hold_are_made_one_by_one_and_one_that_leaves_its_type_is_refused() -> None:
    most = 2**63 - 1
    rows = [{"k": "a", "t": time, "id": time, "order": 0, "x": x} for time, x in enumerate((most, -most, most, -1))]
    verb = made({"total": agg.sum("x"), "recent": agg.sum("x")}, Frame(rows=3), 0)
    assert [row["total"] for row in run(verb, [rows])] == [most, 0, most, -1]
    with pytest.raises(RecordError, match=r"'total', sum\(x\): .*cast the column to a wider type"):
        run(made({"total": agg.sum("x")}, Frame(), 0), [[*rows[:1], {**rows[0], "t": 1}]])


def test_results_may_have_any_names() -> None:
    calls = {"time": agg.sum("x"), "0": agg.lag("x"), "row": agg.lag("id"), "results": agg.count()}
    rows = [{"k": "a", "t": time, "id": time, "order": 0, "x": 1} for time in range(3)]
    found = run(made(calls, Frame(rows=2), 0), [rows[:1], rows[1:]])
    expected = [(1, None, None, 1), (2, 1, 0, 2), (2, 1, 1, 2)]
    assert [tuple(row[name] for name in calls) for row in found] == expected


def test_what_comes_after_the_end_of_the_input_is_late_if_it_is_no_newer() -> None:
    row = {"k": "a", "order": 0, "x": 1}
    with running(made({"n": agg.count()}, Frame(), 10)) as driver:
        driver.pipe({"input": [{**row, "t": 5, "id": 0}, {**row, "t": 9, "id": 1}]}, {"input": "t"})
        driver.complete()
        driver.pipe({"input": [{**row, "t": 9, "id": 2}, {**row, "t": 10, "id": 3}]}, {"input": "t"})
        driver.complete()
        assert [(found["id"], found["n"]) for found in driver.read()] == [(0, 1), (1, 2), (3, 3)]


def test_there_has_to_be_a_call() -> None:
    with pytest.raises(ConfigurationError, match="there is nothing to show of the rows before each"):
        made({}, Frame(), 0)


def test_the_state_of_a_key_is_what_the_page_of_formats_shows() -> None:
    calls = {"total": agg.sum("x"), "previous": agg.lag("x")}
    rows = an_input("input", KEY, VALUE)
    bound = Calls(calls, dict.fromkeys(calls, pa.int64()))
    serde = OverSpec(0, True, False, bound, dict.fromkeys(calls, "x"), rows.rows, Frame(), None).state_serde
    state = bytes.fromhex("9591020cc0c09107")
    assert serde.serialize([[2], 12, [7]]) == state
    assert serde.columns.read(pa.array([state])).storage.to_pylist() == [{"times": [2], "state 0": 12, "of 1": [7]}]
    for damaged in (
        b"",
        b"\x95\x91",
        bytes.fromhex("9590"),
        bytes.fromhex("959102c0c0c0"),
        bytes.fromhex("95900cc0c09107"),
    ):
        with pytest.raises(SerdeError, match="is no state of over-state-1: aggregate-state-1"):
            serde.deserialize(damaged)
