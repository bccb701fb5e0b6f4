"""The types of arguments: mypy reads the calls here, and the tests make them."""

from datetime import UTC, datetime
from typing import Any, get_args

import pyarrow as pa
import pytest

from millpond import Pond
from millpond.errors import ConfigurationError
from millpond.processors.calls.arguments import chosen_join
from millpond.processors.options.joins import (
    ASOF_JOINS,
    FOREIGN_KEY_JOINS,
    TABLE_JOINS,
    AsofHow,
    JoinType,
    StreamHow,
    TableHow,
    TablesHow,
)

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
LEFT = [{"k": "a", "t": NOON, "n": 1}]
RIGHT = [{"k": "b", "t": NOON, "m": 1}]
STREAM = [{"k": "b", "u": NOON, "m": 1}]


def spelled(alias: Any) -> set[str]:
    """Return the texts of a type, of which some may be those of another one."""
    return {one for part in get_args(alias) for one in ([part] if isinstance(part, str) else spelled(part))}


@pytest.mark.parametrize(
    ("alias", "joins"),
    [
        (AsofHow, ASOF_JOINS),
        (TablesHow, TABLE_JOINS),
        (TableHow, FOREIGN_KEY_JOINS),
        (StreamHow, JoinType),
    ],
)
def test_each_spelling_of_the_type_is_taken_and_each_of_spark_has_its_type(alias: Any, joins: Any) -> None:
    found = {chosen_join(one, joins) for one in spelled(alias)}
    assert found == set(joins)
    spark = ["inner", "outer", "full", "fullouter", "full_outer", "left", "leftouter", "left_outer", "right"]
    spark += ["rightouter", "right_outer", "semi", "leftsemi", "left_semi", "anti", "leftanti", "left_anti"]
    for one in spark:
        try:
            chosen_join(one, joins)
        except ConfigurationError:
            assert one not in spelled(alias)
        else:
            assert one in spelled(alias)


def test_calls_that_mypy_admits_run() -> None:
    pond, on, time = Pond(), "k", "t"
    times: Any = {"on": "k", "left_time": "t", "right_time": "u", "within": "1 hour"}
    made: list[pa.Table] = [
        pond.asof_join(LEFT, RIGHT, on=on, time=time, how="left_outer", direction="backward", emit="final"),
        pond.asof_join(LEFT, RIGHT, on=on, time=time, how="leftanti"),
        pond.stream_join(LEFT, STREAM, **times, how="left_outer"),
        pond.table_join(LEFT, RIGHT, on=on, time=time, how="leftouter", expired="silent"),
        pond.multi_join({"one": LEFT, "other": RIGHT}, on=on, time=time, how="left_outer"),
        pond.multi_join({"one": LEFT, "other": RIGHT}, on=on, time=time, how={"other": "full_outer"}),
    ]
    assert [one.num_rows for one in made] == [1, 1, 1, 1, 1, 2]
    assert pond.stream_join(LEFT, STREAM, **times, how="full_outer").num_rows == 2


def test_calls_that_mypy_refuses_are_refused() -> None:
    pond = Pond()
    with pytest.raises(ConfigurationError):
        pond.asof_join(LEFT, RIGHT, on="k", time="t", how="full_outer")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        pond.table_join(LEFT, RIGHT, on="k", time="t", how="left_semi")  # type: ignore[arg-type]
