"""Calls as one writes them who comes from pandas, Polars, Spark or SQL: each is told in words of its own what to write.

What each is told is a line of ``calls_from_elsewhere.txt``; write it anew with ``python -m
tests.pond.test_calls_from_elsewhere``, and review its difference.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from millpond import Pond
from millpond.errors import MillpondError
from millpond.processors import TimeWindows
from millpond.processors.verbs import KeyedProcessor
from millpond.processors.verbs import aggregates as agg
from millpond.processors.verbs.aggregates.elsewhere import FUNCTIONS, LINES

TOLD = Path(__file__).with_name("calls_from_elsewhere.txt")
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
ROWS = pa.Table.from_pylist([{"k": "a", "o": "x", "t": NOON, "n": 1}, {"k": "b", "o": "x", "t": NOON, "n": 2}])
OTHERS = pa.Table.from_pylist([{"k": "a", "t": NOON, "m": 1}])
SCHEMA = pa.schema([("k", pa.string())])
TOTAL = {"total": agg.sum("n")}
ANY: Any = agg
POND: Any = Pond()


class Rule(KeyedProcessor):
    def process(self, key: Any, row: Any, context: Any) -> None:
        pass


def total(calls: Any = TOTAL, **options: Any) -> object:
    return POND.aggregate(ROWS, calls, **{"by": "k", "time": "t", **options})


def asof(*others: Any, **options: Any) -> object:
    return POND.asof_join(ROWS, *(others or (OTHERS,)), **{"on": "k", "time": "t", **options})


def latest(**options: Any) -> object:
    return POND.latest(ROWS, **{"key": "k", "time": "t", **options})


def first(*n: Any, **options: Any) -> object:
    return POND.top_n(ROWS, *n, **{"by": "k", "order": "n", "time": "t", **options})


def applied(rule: Any, **options: Any) -> object:
    return POND.apply(ROWS, rule, **{"key": "k", "time": "t", "schema": SCHEMA, **options})


CALLS: dict[str, Callable[[], object]] = {
    "columns of rows that will come": lambda: POND.latest(SCHEMA, key="k", time="t"),
    "a function by its name": lambda: total({"total": "sum"}),
    "a named aggregation of pandas": lambda: total({"total": ("n", "mean")}),
    "calls as one text": lambda: total("count"),
    "one call without a name": lambda: total(agg.sum("n")),
    "a list of calls": lambda: total([agg.sum("n"), agg.count()]),
    "a function of NumPy": lambda: total({"total": np.sum}),
    "a builtin": lambda: total({"total": len}),
    "a function that was not called": lambda: total({"total": agg.sum}),
    "a star": lambda: total({"total": agg.count("*")}),
    "two columns": lambda: total({"total": ANY.sum("n", "m")}),
    "a sum of texts": lambda: total({"total": agg.sum("k")}),
    "mean": lambda: ANY.mean("n"),
    "nunique": lambda: ANY.nunique("n"),
    "row_number": lambda: ANY.row_number(),
    "a misspelled function": lambda: ANY.cuont(),
    "groupby": lambda: POND.aggregate(ROWS, TOTAL, groupby="k", time="t"),
    "by a set": lambda: total(by={"k"}),
    "by a number": lambda: total(by=0),
    "by nothing": lambda: total(by=None),
    "a list of one time": lambda: total(time=["t"]),
    "an expression as time": lambda: total(time=pc.field("t")),
    "a time of texts": lambda: total(time="k"),
    "a moment as time": lambda: total(time=NOON),
    "a window as text": lambda: total(window="1 minute"),
    "a window as pandas has it": lambda: total(window=pd.Timedelta("1h")),
    "a window as Spark has it": lambda: total(window=("1 minute", "30 seconds")),
    "the class of windows": lambda: total(window=TimeWindows),
    "an abbreviated unit": lambda: TimeWindows("1min"),
    "a length of NumPy": lambda: TimeWindows(np.timedelta64(1, "m")),  # type: ignore[arg-type]
    "a length of float": lambda: TimeWindows(60.0),  # type: ignore[arg-type]
    "an advance without its name": lambda: TimeWindows("1 minute", "30 seconds"),  # type: ignore[call-arg]
    "slide": lambda: TimeWindows("1 minute", slide="30 seconds"),  # type: ignore[call-arg]
    "a negative grace": lambda: TimeWindows("1 minute", grace="-1 second"),
    "an output mode": lambda: total(emit="append"),
    "emit as a bool": lambda: total(emit=True),
    "final without a window": lambda: total(emit="final"),
    "by of merge_asof": lambda: asof(by="k"),
    "left_on": lambda: POND.asof_join(ROWS, OTHERS, left_on="k", time="t"),
    "allow_exact_matches": lambda: asof(allow_exact_matches=False),
    "strategy": lambda: asof(strategy="forward"),
    "suffixes": lambda: asof(suffixes=("_l", "_r")),
    "a condition as on": lambda: asof(on=pc.field("k") == pc.field("k")),
    "a function as on": lambda: asof(on=lambda left, right: left),
    "pairs as on": lambda: asof(on=[("k", "k")]),
    "an outer join of times": lambda: asof(how="outer"),
    "how as None": lambda: asof(how=None),
    "a direction in capitals": lambda: asof(direction="BACKWARD"),
    "a length that is none": lambda: asof(tolerance="1 hours ago"),
    "a negative tolerance": lambda: asof(tolerance=-5),
    "an offset of pandas": lambda: asof(history=pd.DateOffset(days=1)),
    "months": lambda: asof(history="1 month"),
    "exact as text": lambda: asof(exact="yes"),
    "a name in place of rows": lambda: asof("others"),
    "one side": lambda: POND.asof_join(ROWS, on="k", time="t"),
    "arguments by position": lambda: POND.asof_join(ROWS, OTHERS, "k", "t"),
    "a misspelled column": lambda: asof(on="kk"),
    "no window of a stream": lambda: POND.stream_join(ROWS, OTHERS, on="k", time="t"),
    "a pair as within": lambda: POND.stream_join(ROWS, OTHERS, on="k", time="t", within=("0 seconds", "1 hour")),
    "a cross join": lambda: POND.stream_join(ROWS, OTHERS, on="k", time="t", within="1 hour", how="cross"),
    "an anti join of tables": lambda: POND.table_join(ROWS, OTHERS, on="k", time="t", how="anti"),
    "tables in a list": lambda: POND.multi_join([ROWS, OTHERS], on="k", time="t", how="left"),
    "an order of SQL": lambda: latest(order="n desc"),
    "no time to live": lambda: latest(ttl=0),
    "latest by": lambda: POND.latest(ROWS, by="k", time="t"),
    "no rows": lambda: POND.latest(None, key="k", time="t"),
    "a key twice": lambda: latest(key=["k", "k"]),
    "a number as name": lambda: latest(name=5),
    "a number in text": lambda: first("3"),
    "a number of float": lambda: first(2.0),
    "a number of NumPy": lambda: first(np.int64(3)),
    "an order as a dict": lambda: first(2, order={"n": "desc"}),
    "ascending": lambda: first(2, ascending=False),
    "partition_by": lambda: POND.top_n(ROWS, 2, partition_by="k", order="n", time="t"),
    "subset": lambda: POND.deduplicate(ROWS, subset=["k"], time="t", within="1 hour"),
    "within as None": lambda: POND.deduplicate(ROWS, key="k", time="t", within=None),
    "rows_between": lambda: POND.over(ROWS, TOTAL, key="k", time="t", rows_between=(-1, 0)),
    "last in text": lambda: POND.over(ROWS, TOTAL, key="k", time="t", last="3"),
    "the class of a rule": lambda: applied(Rule),
    "a function as a rule": lambda: applied(lambda row: row),
    "a schema as a dict": lambda: applied(Rule(), schema={"k": "string"}),
    "a schema of Spark": lambda: applied(Rule(), schema="k string"),
    "a negative lateness": lambda: applied(Rule(), lateness=timedelta(hours=-1)),
    "an optional column that is none": lambda: applied(Rule(), optional="kk"),
    "a misspelled verb": lambda: POND.agregate(ROWS),
    "group_by": lambda: POND.group_by("k"),
    "join": lambda: POND.join(ROWS, OTHERS, on="k"),
}


def told(call: Callable[[], object]) -> str:
    """Return what a wrong call is told, in one line; an unknown name is an ``AttributeError``, as always in Python."""
    with pytest.raises((MillpondError, AttributeError)) as refused:
        call()
    error = refused.value
    said = error.sentence if isinstance(error, MillpondError) else str(error)
    return re.sub(r" at 0x[0-9a-f]+", "", " ".join(said.split()))


def test_each_call_from_elsewhere_is_told_what_to_write() -> None:
    found = {name: told(call) for name, call in CALLS.items()}
    assert "".join(f"{name}: {said}\n" for name, said in found.items()) == TOLD.read_text()


def test_what_stands_for_a_name_from_elsewhere_is_there() -> None:
    assert set(FUNCTIONS.values()) <= set(agg.__all__)
    assert set(re.findall(r"aggregates\.(\w+)", " ".join(LINES.values()))) <= set(agg.__all__)
    assert not (set(FUNCTIONS) | set(LINES)) & set(agg.__all__)


def test_the_line_for_an_aggregate_from_elsewhere_is_followed() -> None:
    for wrong in ({"total": ("n", "mean")}, {"total": ("n", "sum")}, {"total": ("k", "size")}, {"total": len}):
        line = told(lambda wrong=wrong: total(wrong)).rpartition("such as ")[2]  # type: ignore[misc]
        assert total({"total": eval(line, {"aggregates": agg})})
    for window in (("1 minute", "30 seconds"), "1 minute", TimeWindows):
        line = told(lambda window=window: total(window=window)).rpartition("such as ")[2]  # type: ignore[misc]
        assert total(window=eval(line, {"TimeWindows": TimeWindows}))
    assert total({"total": eval(told(CALLS["a star"]).rpartition(" by ")[2], vars(agg).copy())})
    line = told(CALLS["the class of a rule"]).rpartition("give an object: ")[2]
    assert applied(eval(line, {"Rule": Rule})) == applied(Rule())


def test_names_that_a_pond_lacks_are_lacking_in_the_way_of_python() -> None:
    assert not hasattr(POND, "join")
    assert not hasattr(agg, "mean")


if __name__ == "__main__":
    TOLD.write_text("".join(f"{name}: {told(call)}\n" for name, call in CALLS.items()))
