"""The words of errors of verbs: the verb, the user's own key and columns, and the line to write."""

import dataclasses
import enum
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from millpond import Pond
from millpond.errors import ConfigurationError, RecordError, SerdeError, UserFunctionError
from millpond.processors.verbs import KeyedProcessor
from millpond.processors.verbs import aggregates as agg
from millpond.processors.verbs.encoding.state_values import unfit_state
from millpond.stores.encoding.serdes import MSGPACK

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
ROWS = [{"customer": name, "region": "eu", "at": NOON, "n": n} for n, name in enumerate(("ann", "ben"))]
RESULT_TYPES: dict[str, pa.DataType] = {"customer": pa.string(), "total": pa.int64()}
RESULT = pa.schema(RESULT_TYPES)


class Rule(KeyedProcessor):
    """Does what a test says."""

    def __init__(self, does: Callable[[Any, Any], Any]) -> None:
        self.does = does

    def __deepcopy__(self, memo: object) -> "Rule":
        return self

    def process(self, key: Any, row: Any, context: Any) -> Any:
        return self.does(row, context)


def applied(does: Callable[[Any, Any], Any], pond: Pond | None = None, **options: Any) -> pa.Table:
    how = {"key": "customer", "time": "at", "schema": RESULT, "name": "totals", **options}
    return (pond or Pond()).apply(ROWS, Rule(does), **how)


@pytest.mark.parametrize(
    ("key", "shown"), [("customer", "customer='ann'"), (["customer", "region"], "customer='ann', region='eu'")]
)
def test_an_error_names_the_verb_the_key_and_the_row_in_the_columns_of_the_user(key: Any, shown: str) -> None:
    with pytest.raises(UserFunctionError) as failed:
        applied(lambda row, context: 1 / 0, key=key)
    first, second = str(failed.value).splitlines()
    assert first == (
        f"verb 'totals', {shown}, process of Rule at 2026-06-01T12:00:00.000000 UTC: ZeroDivisionError: division by "
        "zero (task 0_0, row customer='ann', region='eu', at=2026-06-01 12:00:00+00:00, n=0)"
    )
    assert second.startswith(f"raised in <lambda>, {__file__}:")


@pytest.mark.parametrize("wrong", [5, "text", {"customer": "ann"}, [5]])
def test_a_rule_that_returns_no_rows_is_told_what_to_return(wrong: Any) -> None:
    with pytest.raises(UserFunctionError, match=r"^verb 'totals', customer='ann', .*(rows|dicts of columns)") as failed:
        applied(lambda row, context: wrong)
    assert "rule_run" not in str(failed.value)


def test_a_result_without_a_column_is_told_the_verbs_own_argument() -> None:
    def results(row: Any, context: Any) -> Any:
        return [{"customer": row["customer"]}]

    with pytest.raises(UserFunctionError, match=r"^verb 'totals', customer='ann': .*'total' is not an entry") as failed:
        applied(results)
    advised = re.search(r"optional=(\[.*?\])", str(failed.value))
    assert advised is not None
    assert applied(results, optional=eval(advised[1])).num_rows == 2
    with pytest.raises(ConfigurationError, match=r"results of 'totals': the optional column 'totl' .*did you mean"):
        applied(results, optional=["totl"])


class Color(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Part:
    n: int = 1


UNFIT = [
    {1, 2},
    frozenset([1]),
    range(3),
    1 + 2j,
    2**70,
    "a\ud800",
    Color.RED,
    Part(),
    type("Plain", (), {})(),
    np.int64(3),
    np.float32(1.5),
    np.array([1, 2]),
    pd.Timestamp("2026-06-01"),
    pd.Timedelta("1h"),
    pd.NaT,
    pd.Series([1]),
    pd.DataFrame({"a": [1]}),
    pa.scalar(3),
    pa.array([1]),
]


@pytest.mark.parametrize("value", UNFIT, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("around", [lambda part: part, lambda part: {"a": [1, part]}], ids=["alone", "in a dict"])
def test_what_state_cannot_hold_is_told_with_the_line_that_makes_it_hold(value: Any, around: Any) -> None:
    with pytest.raises(SerdeError):
        MSGPACK.serialize(around(value))
    said = unfit_state(around(value)).sentence
    assert said.startswith("state holds None, bool, int of 64 bits, float, str, bytes, datetime,")
    line = said.rpartition("; write ")[2].removesuffix(" for it")
    names = {"value": value, "dataclasses": dataclasses, "Decimal": Decimal}
    MSGPACK.serialize(around(eval(line, names)))


def test_a_rule_that_sets_such_state_is_told_so_at_its_own_line() -> None:
    with pytest.raises(UserFunctionError, match=r"customer='ann', .*\{1, 2\}, of type set; write sorted\(") as failed:
        applied(lambda row, context: context.state.set({1, 2}))
    assert f"raised in <lambda>, {__file__}:" in str(failed.value)


def test_what_is_too_deep_or_nothing_in_particular_is_told_too() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert "write fewer levels of lists for it" in str(unfit_state(endless))
    assert "write a str, a number or a list of its parts for it" in str(unfit_state(object()))


def test_rows_that_cannot_be_used_are_told_by_verb_and_input() -> None:
    rows = [*ROWS, {"customer": "ann", "region": "eu", "at": None, "n": 1}]
    with pytest.raises(RecordError, match=r"^verb 'newest', input: column 'at': null in row 2 "):
        Pond().latest(rows, key="customer", time="at", name="newest")
    others = [{"customer": "ann", "at": at, "m": 1} for at in (NOON, None)]
    with pytest.raises(RecordError, match=r"^verb 'priced', right: column 'at': null in row 1 "):
        Pond().asof_join(ROWS, others, on="customer", time="at", name="priced")


def test_functions_of_ones_own_fail_by_verb_key_and_columns() -> None:
    function = agg.UserAggregate(
        name="broken", type=pa.int64(), zero=lambda: 0, update=lambda state, value: 1 // 0, merge=lambda one, other: one
    )
    with pytest.raises(RecordError) as failed:
        Pond().aggregate(ROWS, {"b": function("n")}, by=["customer", "region"], time="at", name="sums")
    assert re.match(r"verb 'sums'.*customer='ann', region='eu'", str(failed.value), re.DOTALL)
    assert "KSTREAM" not in str(failed.value)
    assert "=b'" not in str(failed.value)


def test_dead_letters_have_the_columns_of_keys_and_rows() -> None:
    pond = Pond(on_error="dead-letter")
    with pond.in_batches.apply(
        pa.Table.from_pylist(ROWS).schema,
        Rule(lambda row, context: 1 // row["n"] and ()),
        key=["customer", "region"],
        time="at",
        schema=RESULT,
        lateness=timedelta(0),
        name="totals",
    ) as running:
        running.feed(ROWS)
        running.complete()
        (letter,) = running.dead_letters
    assert (letter.operator, letter.key) == ("totals", {"customer": "ann", "region": "eu"})
    assert letter.value == ROWS[0]


def test_all_nodes_of_a_verb_are_called_by_its_name_and_where_it_has_two_inputs_by_these() -> None:
    columns = pa.Table.from_pylist(ROWS).schema
    types: dict[str, pa.DataType] = {"customer": pa.string(), "at": pa.timestamp("us", "UTC"), "m": pa.int64()}
    other = pa.schema(types)
    verbs = Pond().in_batches
    sides: dict[str, Any] = {"on": "customer", "time": "at", "name": "own"}
    made = [
        verbs.aggregate(columns, {"n": agg.count()}, by="customer", time="at", name="own"),
        verbs.stream_join(columns, other, within="1 hour", how="left", **sides),
        verbs.table_join(
            columns,
            other.remove(0).append(pa.field("region", pa.string())),
            left_key="customer",
            on="region",
            time="at",
            name="own",
        ),
    ]
    for one, expected in zip(made, [{"own"}, *[{"own", "own.left", "own.right"}] * 2], strict=True):
        assert {node.shown for node in one._made.verb.topology.nodes.values()} == expected
