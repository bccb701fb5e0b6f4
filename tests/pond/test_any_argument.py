"""Any value for a parameter of a verb of ``Pond``: the call answers, or is refused in words of its own."""

import inspect
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as _compute
import pyarrow.parquet as pq
import pytest

from millpond import Pond
from millpond.adapters.tables import ParquetTable
from millpond.errors import ConfigurationError
from millpond.processors import TimeWindows
from millpond.processors.pond.verbs import Verbs
from millpond.processors.verbs import aggregates as agg

pc: Any = _compute

AT = datetime(2026, 6, 1, 12, tzinfo=UTC)
ROWS = pa.Table.from_pylist([{"k": "x", "t": AT, "n": 1, "o": "upsert", "yes": True}])
OTHERS = pa.Table.from_pylist([{"k": "x", "u": AT, "m": 1}])
JOIN: dict[str, Any] = {"left": ROWS, "right": OTHERS, "on": "k", "left_time": "t", "right_time": "u"}
BY: dict[str, Any] = {"rows": ROWS, "by": "k", "time": "t"}
CALLS = {"c": agg.count(), "l": agg.last("n")}
GOOD: list[tuple[str, dict[str, Any]]] = [
    ("latest", {"rows": ROWS, "key": "k", "time": "t", "history": "1 hour"}),
    ("latest", {"rows": ROWS, "key": "k", "time": "t", "history": "1 hour", "op": "o"}),
    ("aggregate", {**BY, "calls": CALLS}),
    ("aggregate", {**BY, "calls": CALLS, "window": TimeWindows("1 hour")}),
    ("aggregate", {**BY, "calls": CALLS, "op": "o", "key": "n"}),
    ("top_n", {**BY, "n": 1, "order": "n"}),
    ("deduplicate", {"rows": ROWS, "key": "k", "time": "t", "within": "1 hour"}),
    ("over", {"rows": ROWS, "calls": CALLS, "key": "k", "time": "t"}),
    ("asof_join", {**JOIN, "history": "1 hour"}),
    ("asof_join", {**JOIN, "history": "1 hour", "emit": "updates", "left_key": "n"}),
    ("lookup_join", JOIN),
    ("stream_join", {**JOIN, "within": "1 hour"}),
    ("table_join", JOIN),
    ("multi_join", {"tables": {"a": ROWS, "b": OTHERS}, "on": "k", "time": {"a": "t", "b": "u"}}),
]
"""Calls of each verb, by parameter."""

INPUTS = ("rows", "left", "right", "tables")

ANY: list[Any] = [
    *(None, 5, -1, 2.5, True, 10**30, float("nan"), "", "no such", "\ud800", b"k", object(), dict, pc, len),
    *([], (), {}, [5], ["k"], ["k", None], [["k"]], {"k"}, {"a": 5}, {5: "a"}, {"k": None}, {"a": []}),
    *(pc.field("n"), [pc.field("n")], {"a": pc.field("n")}, timedelta(days=-1), AT, agg.count(), [ROWS, OTHERS]),
]
"""What a parameter may be given."""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> ParquetTable:
    directory: Path = tmp_path_factory.mktemp("table")
    pq.write_table(OTHERS, directory / "1.parquet")
    return ParquetTable(directory)


def columns(given: Any) -> Any:
    """Return what a verb of ``in_batches`` is given in place of rows."""
    if isinstance(given, Mapping):
        return {name: columns(one) for name, one in given.items()}
    return given.schema if isinstance(given, pa.Table) else given


def refusal(pond: Any, verb: str, given: Mapping[str, Any]) -> Exception | None:
    """Return what a call ends in; None if it is answered."""
    try:
        answer = getattr(pond, verb)(**given)
    except Exception as error:
        return error
    if not isinstance(answer, pa.Table):
        answer.close()
    return None


@pytest.mark.parametrize(("verb", "good"), GOOD, ids=lambda value: value if isinstance(value, str) else "")
def test_any_argument_is_answered_or_refused_with_the_verb(
    table: ParquetTable, verb: str, good: dict[str, Any]
) -> None:
    good = {**good, "right": table} if verb == "lookup_join" else good
    assert refusal(Pond(), verb, good) is None
    _, *parameters = inspect.signature(getattr(Verbs, verb)).parameters
    for name in parameters:
        for value in ANY:
            given = {**good, name: value}
            others = {one: columns(what) if one in INPUTS else what for one, what in given.items()}
            for error in (refusal(Pond(), verb, given), refusal(Pond().in_batches, verb, others)):
                if error is not None:
                    said = isinstance(error, ConfigurationError) and str(error).startswith(verb)
                    assert said, f"{verb}({name}={value!r}): {error!r}"
