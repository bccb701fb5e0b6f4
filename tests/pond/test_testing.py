"""The helpers that ship for tests of jobs: rules on rows, clocks, and rows in any micro-batches."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

import millpond
from millpond import Pond
from millpond.errors import ConfigurationError, RecordError, UserFunctionError
from millpond.processors.pond.any_batches import AnyBatches
from millpond.processors.pond.testing import answer, cuts
from millpond.processors.verbs import KeyContext, KeyedProcessor, Timer
from millpond.processors.verbs import aggregates as agg

DAY = datetime(2026, 6, 1, tzinfo=UTC)
ROWS = [{"k": key, "at": DAY + timedelta(minutes=minute)} for key, minute in (("a", 0), ("b", 5), ("a", 9), ("b", 7))]
TEXT: pa.DataType = pa.string()
COLUMNS = pa.schema([("k", TEXT), ("at", pa.timestamp("us", "UTC"))])
RESULT = pa.schema([("k", TEXT), ("n", pa.int64())])
RULE: dict[str, Any] = {"key": "k", "time": "at", "schema": RESULT}


class Counted(KeyedProcessor):
    """Counts rows, and tells of them when an hour has passed by the clock of the machine, or none are left."""

    def process(self, key: Any, row: Mapping[str, Any], context: KeyContext) -> None:
        context.state.set(context.state.get(0) + 1)
        context.set_wall_clock_timer("1 hour")

    def on_timer(self, key: Any, timer: Timer, context: KeyContext) -> Iterator[dict[str, Any]]:
        yield {"k": key, "n": context.state.get()}


class Failing(Counted):
    def process(self, key: Any, row: Mapping[str, Any], context: KeyContext) -> None:
        raise KeyError("amount")


def test_timers_by_the_clock_fire_when_a_test_lets_it_show_their_time() -> None:
    with Pond().in_batches.apply(COLUMNS, Counted(), **RULE, lateness=0) as running:
        running.tick("2026-06-01T12:00:00Z")
        assert running.feed(ROWS).num_rows == 0
        assert running.tick("2026-06-01T12:59:59Z").num_rows == 0
        told = running.tick(datetime(2026, 6, 1, 13, tzinfo=UTC)).to_pylist()
        assert sorted(row["n"] for row in told) == [2, 2]
        with pytest.raises(ConfigurationError, match="Counted-k: the time of the clock is 'noon'"):
            running.tick("noon")


@given(cuts(ROWS))
def test_rows_come_in_any_micro_batches_and_all_of_them_come(batches: list[Sequence[Mapping[str, Any]]]) -> None:
    assert sorted((row for batch in batches for row in batch), key=repr) == sorted(ROWS, key=repr)
    counted = Pond().in_batches.aggregate(COLUMNS, {"n": agg.count()}, by="k", time="at")
    assert answer(counted, batches) == [{"k": "a", "n": 2}, {"k": "b", "n": 2}]


@given(cuts(ROWS, in_order=True))
def test_rows_that_come_in_order_stay_so(batches: list[Sequence[Mapping[str, Any]]]) -> None:
    assert [row for batch in batches for row in batch] == ROWS


def test_a_join_is_fed_by_its_sides() -> None:
    left, right = [{"k": "a", "at": DAY, "n": 1}], [{"k": "a", "at": DAY, "m": 2}]
    sides = [pa.Table.from_pylist(rows).schema for rows in (left, right)]
    joined = Pond().in_batches.asof_join(*sides, on="k", time="at", history="1 hour")
    assert [row["m"] for row in answer(joined, [{"right": right}, {"left": left}])] == [2]


def test_what_fails_in_a_rule_is_told_with_its_key_and_its_row() -> None:
    with pytest.raises(UserFunctionError, match=r"process of Failing at 2026-06-01T00:00:00.*'a'"):
        Pond().apply(ROWS, Failing(), **RULE)
    assert Pond(on_error="skip").apply(ROWS, Failing(), **RULE).num_rows == 0


def test_a_result_that_is_no_row_of_the_schema_is_told_with_its_column() -> None:
    class Named(Counted):
        def process(self, key: Any, row: Mapping[str, Any], context: KeyContext) -> Any:
            return [{"k": key, "n": "many"}]

    with pytest.raises(RecordError, match="column 'n' of type int64 cannot hold 'many' of type str"):
        Pond().apply(ROWS, Named(), **RULE)
    with pytest.raises(ConfigurationError, match="apply: schema is 'n long'; give the columns of the results"):
        Pond().apply(ROWS, Counted(), key="k", time="at", schema="n long")  # type: ignore[arg-type]


MODULE = """
import pyarrow as pa
from datetime import datetime
from millpond.processors.verbs import aggregates as agg

AT = pa.schema([("k", pa.string()), ("at", pa.timestamp("us"))])
ROWS = [{"k": "a", "at": datetime(2026, 6, 1, hour)} for hour in range(6)]

def test_same(any_batches):
    found = any_batches(lambda pond: pond.aggregate(AT, {"n": agg.count()}, by="k", time="at"), ROWS)
    assert found == [{"k": "a", "n": 6}]

def test_other(any_batches):
    any_batches(lambda pond: pond.latest(AT, key="k", time="at", history=0, name="last"), ROWS)
    any_batches(lambda pond: pond.deduplicate(AT, key="k", time="at", within="1 day"), ROWS)
"""


def test_the_fixture_fails_where_micro_batches_change_the_answer_and_shows_them(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(MODULE)
    source = str(Path(millpond.__file__).parents[1])
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": source}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "millpond.pytest_plugin"]
    done = subprocess.run([*command, "test_own.py"], cwd=tmp_path, env=alone, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "all rows in one micro-batch give" in done.stdout


def test_the_fixture_feeds_both_sides_of_a_join_and_the_tables_of_more() -> None:
    left, right = [{"k": "a", "at": DAY, "n": 1}], [{"k": "a", "at": DAY, "m": 2}, {"k": "b", "at": DAY, "m": 3}]
    one, other = (pa.Table.from_pylist(rows).schema for rows in (left, right))
    fed = AnyBatches("seed")
    for in_order in (True, False):
        joined = fed(
            lambda pond: pond.stream_join(one, other, on="k", time="at", within=0, grace="1 day"),
            left=left, right=right, in_order=in_order,
        )  # fmt: skip
        assert [(row["n"], row["m"]) for row in joined] == [(1, 2)]
    tables = {"one": one, "other": other}
    found = fed(
        lambda pond: pond.multi_join(tables, on="k", time="at", how="outer"), tables={"one": left, "other": right}
    )
    assert [(row["k"], row["n"], row["m"]) for row in found] == [("a", 1, 2), ("b", None, 3)]


def test_who_does_not_ask_for_the_fixture_loads_nothing_of_millpond() -> None:
    code = (
        "import sys; import millpond.pytest_plugin; print([one for one in sys.modules if one.startswith('millpond.')])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "['millpond.pytest_plugin']"
