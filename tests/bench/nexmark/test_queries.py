"""Each query of Nexmark in verbs answers what DuckDB does, on every backend, however events are cut and ordered."""

from functools import cache

import pyarrow as pa
import pytest

from millpond.bench.nexmark import queries
from millpond.bench.nexmark.answers import ANSWERS, Oracle
from millpond.bench.nexmark.files import events_of
from millpond.errors import MillpondError
from tests.bench.nexmark.played import EVENTS, SITE, answered

BACKENDS = ("memory", "lmdb", "rocksdb")


@cache
def oracle() -> Oracle:
    return Oracle(events_of(SITE, 0, EVENTS))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ANSWERS)
def test_a_query_in_verbs_answers_what_duckdb_does_from_all_events(name: str, backend: str) -> None:
    assert oracle().compared(name, answered(name, backend, BACKENDS.index(backend))) > 1


def test_there_is_a_function_of_each_query() -> None:
    assert {name for name in vars(queries) if name.startswith("q")} == {*ANSWERS}


@pytest.mark.parametrize("name", ["q5", "q18"])
def test_an_answer_that_is_wrong_is_told_with_what_is_missing_and_what_should_not_be_there(name: str) -> None:
    right = answered(name, "memory", 1)
    with pytest.raises(MillpondError, match=f"the answer to {name} is wrong: 1 rows are missing.* 0 are there"):
        oracle().compared(name, right.slice(1))
    twice = pa.concat_tables([right, right.slice(0, 1)])
    with pytest.raises(MillpondError, match=f"the answer to {name} is wrong: 0 rows are missing.* 1 are there"):
        oracle().compared(name, twice)


def test_windows_that_may_not_be_over_are_left_out_of_a_comparison() -> None:
    right = answered("q12", "memory", 1).to_pylist()
    until = sorted({row["end"] for row in right})[3]
    over = [row for row in right if row["end"] <= until]
    assert 0 < len(over) < len(right)
    assert oracle().compared("q12", pa.Table.from_pylist(over), until) == len(over)
    with pytest.raises(MillpondError, match="1 rows are missing"):
        oracle().compared("q12", pa.Table.from_pylist(over[1:]), until)
