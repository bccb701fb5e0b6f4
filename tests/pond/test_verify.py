"""The output of micro-batches is what all rows give at once, and a fault that is planted in it is found."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond import Pond
from millpond.errors import ConfigurationError
from millpond.processors import TimeWindows
from millpond.processors.calls.reports.batch_twin import Differs
from millpond.processors.verbs import aggregates as agg
from tests.drawing import tries
from tests.pond.test_pond import LEFT, RIGHT, TIME, Rows, feed, rows, seconds, verbs


@pytest.mark.parametrize("name", verbs(Pond()))
@settings(max_examples=tries(16), deadline=None, derandomize=True, database=None)
@given(left=rows("t", "a", good=st.sampled_from([True, False, None])), right=rows("u", "b"), data=st.data())
def test_a_healthy_run_differs_in_nothing_however_its_rows_were_cut(
    name: str, left: Rows, right: Rows, data: st.DataObject
) -> None:
    verb = verbs(Pond())[name]
    arriving = data.draw(st.permutations([("left", row) for row in left] + [("right", row) for row in right]))
    with verbs(Pond().in_batches)[name].make(LEFT, RIGHT) as running:
        found = [running.feed(left=[], right=[])] if verb.inputs > 1 else [running.feed([])]
        while arriving:
            size = data.draw(st.integers(1, len(arriving)))
            some, arriving = arriving[:size], arriving[size:]
            sides = {side: [row for mine, row in some if mine == side] for side in ("left", "right")}
            found.append(feed(running, sides, verb.inputs))
        found.append(running.complete())
    whole = (pa.Table.from_pylist(list(left), LEFT), pa.Table.from_pylist(list(right), RIGHT))
    verified = Pond().verify(lambda pond: verbs(pond)[name].make(*whole), pa.concat_tables(found), key=verb.key or ())
    assert verified.equal, str(verified)
    assert (verified.missing, verified.extra, verified.different, verified.differences) == (0, 0, 0, ())


COUNTED = [{"k": key, "t": seconds(second), "a": second} for key in ("x", "y") for second in range(0, 60, 2)]


def counts(pond: Pond) -> pa.Table:
    table = pa.Table.from_pylist(COUNTED, pa.schema([("k", pa.string()), ("t", TIME), ("a", pa.int64())]))
    window = TimeWindows("5 seconds")
    return pond.aggregate(table, {"n": agg.sum("a")}, by="k", time="t", window=window, emit="final")


PLANTS = st.dictionaries(
    st.integers(0, counts(Pond()).num_rows - 1), st.sampled_from(["missing", "twice", "other", "moved"]), max_size=6
)


@settings(max_examples=tries(60), deadline=None, derandomize=True, database=None)
@given(PLANTS)
def test_what_is_planted_is_found_with_its_key_and_columns_and_nothing_else(plants: dict[int, str]) -> None:
    healthy = counts(Pond()).to_pylist()
    written: list[dict[str, Any]] = []
    expected: list[tuple[Any, ...]] = []
    for place, row in enumerate(healthy):
        kind, key = plants.get(place), (row["k"], row["window"]["start"])
        moved = {"start": seconds(1000 + place), "end": seconds(1005 + place)}
        if kind == "missing":
            expected.append((Differs.MISSING, *key, ()))
        elif kind == "twice":
            written += [row, row]
            expected.append((Differs.EXTRA, *key, ()))
        elif kind == "other":
            written.append({**row, "n": row["n"] + 1})
            expected.append((Differs.DIFFERENT, *key, ("n",)))
        elif kind == "moved":
            written.append({**row, "window": moved})
            expected += [(Differs.MISSING, *key, ()), (Differs.EXTRA, row["k"], moved["start"], ())]
        else:
            written.append(row)
    table = pa.Table.from_pylist(written[::-1], counts(Pond()).schema)
    verified = Pond().verify(counts, table, key=["k", "window"])
    found = [(one.differs, one.key["k"], one.key["window"]["start"], one.columns) for one in verified.differences]
    assert sorted(found) == sorted(expected)
    assert (verified.missing, verified.extra, verified.different, verified.rows) == (
        *(sum(one[0] is kind for one in expected) for kind in Differs),
        len(healthy),
    )
    assert verified.equal is not bool(expected)
    for one in verified.differences:
        assert (one.written is None, one.computed is None) == (
            one.differs is Differs.MISSING,
            one.differs is Differs.EXTRA,
        )


def test_rows_without_a_key_are_missing_or_extra_and_those_outside_of_the_interval_do_not_count() -> None:
    healthy = counts(Pond())
    written = pa.Table.from_pylist([{**row, "n": 0} for row in healthy.to_pylist()], healthy.schema)
    for since, until in ((0, 60), (10, 20), (12, 14)):
        begun = [row for row in healthy.to_pylist() if seconds(since) <= row["window"]["start"] < seconds(until)]
        ends: dict[str, Any] = {"since": seconds(since), "until": seconds(until).isoformat()}
        verified = Pond().verify(counts, written, time="window.start", **ends, shown=1)
        assert (verified.rows, verified.missing, verified.extra) == (len(begun),) * 3
        assert len(verified.differences) == min(1, len(begun))


def test_it_is_a_table_in_text_and_in_a_notebook() -> None:
    healthy = counts(Pond())
    assert str(Pond().verify(counts, healthy)) == "rows computed: 24; nothing differs"
    written = [{**row, "n": 7} if row["window"]["start"] == seconds(0) else row for row in healthy.to_pylist()]
    verified = Pond().verify(counts, written[1:], key=["k", "window"])
    head, titles, *lines = str(verified).splitlines()
    assert (head, titles.split()) == (
        "rows computed: 24; 1 missing, 0 extra, 1 different",
        ["key", "columns", "written", "computed"],
    )
    assert sorted(line.split()[0] for line in lines) == ["different", "missing"]
    assert "n=7" in str(verified)
    assert "<td>different</td>" in verified._repr_html_()


def test_what_cannot_be_compared_is_refused_with_what_to_give() -> None:
    def updates(pond: Pond) -> pa.Table:
        return pond.latest(COUNTED, key="k", time="t")

    written = updates(Pond())
    with pytest.raises(ConfigurationError, match=r"; give key=\.\.\., the columns of its key"):
        Pond().verify(updates, written)
    with pytest.raises(ConfigurationError, match="; give time='at', or leave both out"):
        Pond().verify(updates, written, key="k", since=seconds(1))
    with pytest.raises(ConfigurationError, match="the key has 'kk', but the rows only k, t, a"):
        Pond().verify(updates, written, key="kk")
    with pytest.raises(ConfigurationError, match="'written' has no column 'a'"):
        Pond().verify(updates, written.drop_columns(["a"]), key="k")
    assert Pond().verify(updates, written, key="k", time="t", since=seconds(1)).equal
    assert Pond().verify(updates, written, key="k").rows == 2


def test_a_late_row_that_was_lost_shows_in_the_window_that_lacks_it() -> None:
    window = TimeWindows("5 seconds")
    schema: Any = pa.schema([("k", pa.string()), ("t", TIME), ("a", pa.int64())])
    called: Mapping[str, Any] = {"by": "k", "time": "t", "window": window, "emit": "final"}
    parts: Sequence[Rows] = ([COUNTED[0], {**COUNTED[0], "t": seconds(60)}], [{**COUNTED[0], "t": seconds(3), "a": 9}])
    with Pond().in_batches.aggregate(schema, {"n": agg.sum("a")}, **called) as running:
        found = [running.feed(list(part)) for part in parts] + [running.complete()]
    every = pa.Table.from_pylist([dict(row) for part in parts for row in part], schema)
    verified = Pond().verify(
        lambda pond: pond.aggregate(every, {"n": agg.sum("a")}, **called), pa.concat_tables(found), key=["k", "window"]
    )
    (one,) = verified.differences
    assert (one.differs, one.columns, one.key["window"]["start"]) == (Differs.DIFFERENT, ("n",), seconds(0))
    assert one.key["window"]["end"] - one.key["window"]["start"] == timedelta(seconds=5)
