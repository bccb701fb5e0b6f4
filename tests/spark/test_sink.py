"""The rows that a sink makes of records: values go out as what they are, or not at all. This needs no session."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import Row, SparkSession
from pyspark.sql import types as T

from millpond.adapters.spark.rows.sink import Sink, arrow_schema
from millpond.errors import RecordError, TopologyError, UserFunctionError
from millpond.processors import Produced, StreamsBuilder
from millpond.processors.distribution.execution import Outputs
from millpond.processors.options.on_error import OnError
from millpond.processors.rows.sink_rows import SinkRows
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.failures import DeadLetter, FailurePolicy
from millpond.processors.runtime.tasks.task import Task
from millpond.stores.typed.windows.windowed import Windowed

NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
NOON_MS = 1_357_041_600_000
NAIVE = NOON.replace(tzinfo=None)
TYPES: Mapping[str, T.DataType] = {
    "boolean": T.BooleanType(),
    "tinyint": T.ByteType(),
    "bigint": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "decimal(10,2)": T.DecimalType(10, 2),
    "string": T.StringType(),
    "binary": T.BinaryType(),
    "date": T.DateType(),
    "timestamp": T.TimestampType(),
    "timestamp_ntz": T.TimestampNTZType(),
    "interval day to second": T.DayTimeIntervalType(),
    "time(6)": T.TimeType(),
    "array<bigint>": T.ArrayType(T.LongType()),
    "array<timestamp>": T.ArrayType(T.TimestampType()),
    "map<string,bigint>": T.MapType(T.StringType(), T.LongType()),
    "struct<a:bigint,b:bigint>": T.StructType([T.StructField("a", T.LongType()), T.StructField("b", T.LongType())]),
    "void": T.NullType(),
    "array<struct<a:interval day to second>>": T.ArrayType(T.StructType([T.StructField("a", T.DayTimeIntervalType())])),
    "array<struct<price:double>>": T.ArrayType(T.StructType([T.StructField("price", T.DoubleType())])),
}
"""Every type that a column of a sink can have, by Spark's name."""


class Pair(NamedTuple):
    """A tuple whose fields are in another order than those of its column."""

    b: int
    a: int


def sink(optional: Collection[str] = (), /, **columns: str) -> Sink:
    """Return a sink with these columns, by their types."""
    schema = T.StructType([T.StructField(name, TYPES[type_]) for name, type_ in columns.items()])
    return Sink("out", "", arrow_schema(schema), None, None, frozenset(optional))


def column_of(type_: str, *entries: Any) -> list[Any]:
    """Return what comes out of the column ``at`` for the entries of so many records."""
    return column_named("at", type_, *entries)


def column_named(name: str, type_: str, *entries: Any) -> list[Any]:
    batch = Batch(["k"] * len(entries), [{name: entry} for entry in entries], [0] * len(entries))
    found: list[Any] = sink(**{name: type_}).to_table(batch)[name].to_pylist()
    return found


@pytest.mark.parametrize(
    ("type_", "entry"),
    [
        ("boolean", True),
        ("tinyint", -5),
        ("bigint", 1 << 62),
        ("bigint", np.int32(5)),
        ("float", 0.5),
        ("float", float("inf")),
        ("double", 0.1),
        ("double", 1 << 53),
        ("double", np.float32(0.5)),
        ("decimal(10,2)", Decimal("1.25")),
        ("decimal(10,2)", 7),
        ("string", "text"),
        ("binary", b"\xff"),
        ("binary", bytearray(b"x")),
        ("date", date(2013, 1, 1)),
        ("timestamp", NOON),
        ("timestamp", NOON.astimezone(timezone(timedelta(hours=5)))),
        ("timestamp", pd.Timestamp(NOON)),
        ("timestamp_ntz", NAIVE),
        ("interval day to second", timedelta(microseconds=1)),
        ("interval day to second", timedelta(microseconds=-(1 << 63))),
        ("array<struct<a:interval day to second>>", [{"a": timedelta(microseconds=-(1 << 63))}, None]),
        ("time(6)", time(12, 30)),
        ("array<bigint>", [1, None]),
        ("array<bigint>", []),
        ("array<timestamp>", [NOON]),
        ("struct<a:bigint,b:bigint>", {"a": 1, "b": None}),
    ],
)
def test_a_value_of_its_columns_type_comes_out_as_it_is(type_: str, entry: Any) -> None:
    assert column_of(type_, None, entry, None) == [None, entry, None]


def test_containers_of_other_kinds_come_out_too() -> None:
    assert column_of("array<bigint>", (1, 2), {3}, np.array([4])) == [[1, 2], [3], [4]]
    assert column_of("map<string,bigint>", {"a": 1}, [("b", None)]) == [[("a", 1)], [("b", None)]]
    assert column_of("struct<a:bigint,b:bigint>", (1, 2)) == [{"a": 1, "b": 2}]
    assert column_of("void", None) == [None]


@pytest.mark.parametrize(
    "columns_of_times", ["timestamp", "timestamp_ntz", "date", "interval day to second", "time(6)"]
)
@pytest.mark.parametrize("number", [NOON_MS, 1.5, Decimal("1.5"), True, np.int64(5), np.float64(1.5), UUID(int=5)])
def test_a_column_of_times_takes_no_numbers(columns_of_times: str, number: Any) -> None:
    with pytest.raises(RecordError, match=r"sink 'out': column 'at' of type .* cannot hold .* of type .*; it takes"):
        column_of(columns_of_times, None, number)


@pytest.mark.parametrize("integers", ["bigint", "tinyint"])
@pytest.mark.parametrize("other", [1.0, 1.5, Decimal(1), Decimal("1.5"), True, np.bool_(True), "1", UUID(int=5)])
def test_a_column_of_integers_takes_nothing_else(integers: str, other: Any) -> None:
    with pytest.raises(RecordError, match=r"it takes int; make one with round\(value\)"):
        column_of(integers, 1, other)


@pytest.mark.parametrize(
    ("type_", "entry", "message"),
    [
        (
            "timestamp",
            NAIVE,
            r"'at' of type timestamp cannot hold datetime.* of type datetime; it takes datetime with a",
        ),
        ("timestamp", pd.Timestamp("2013-01-01T12:00:00.000000001Z"), "Timestamp; it takes datetime with a time zone"),
        ("timestamp", date(2013, 1, 1), "of type date .*; it takes datetime with a time zone"),
        ("timestamp_ntz", NOON, "of type timestamp_ntz .* of type datetime; it takes datetime without a time zone"),
        ("date", NOON, r"of type datetime; it takes date; make one of a datetime with value.date\(\)"),
        ("date", NAIVE, "of type datetime; it takes date"),
        ("date", pd.NaT, "it takes date"),
        ("time(6)", time(12, tzinfo=UTC), "it takes time without a time zone"),
        ("interval day to second", pd.Timedelta(1, "ns"), "it takes timedelta"),
        ("boolean", 1, "'at' of type boolean cannot hold 1 of type int .*; it takes bool"),
        ("double", True, "'at' of type double cannot hold True of type bool; it takes float or int"),
        ("float", True, "it takes float or int"),
        ("float", 1e39, "cannot hold 1e.39 of type float; it takes float or int up to 3.4e38"),
        ("double", Decimal("0.1"), "it takes float or int"),
        ("double", (1 << 53) + 1, "exactly representable"),
        ("decimal(10,2)", Decimal("1.255"), "'at' of type decimal.* cannot hold Decimal.* it takes Decimal or int of"),
        ("decimal(10,2)", 10**9, "of no more digits than the type has"),
        ("decimal(10,2)", 0.1, r"make one with Decimal\(str\(value\)\)"),
        ("string", b"text", r"'at' of type string cannot hold b'text' of type bytes; it takes str"),
        ("string", 5, "it takes str"),
        ("binary", "text", r"cannot hold 'text' of type str; it takes bytes; make them of text with value.encode\(\)"),
        ("array<bigint>", b"\x01", "'at' of type array<bigint> cannot hold b'.x01' of type bytes; it takes list"),
        ("struct<a:bigint,b:bigint>", Row(b=1, a=2), r"cannot hold Row.* of type Row; it takes dict"),
        ("struct<a:bigint,b:bigint>", Pair(b=1, a=2), r"of type Pair; it takes dict"),
        ("struct<a:bigint,b:bigint>", (1,), r"Tuple size must be equal"),
        ("array<timestamp>", [NOON, NOON_MS], r"'at.element' of type timestamp cannot hold 1357041600000 of type int"),
        ("array<timestamp>", (NAIVE,), r"'at.element' of type timestamp .*; it takes datetime with a time zone"),
        ("array<bigint>", np.array([1.5]), "'at.element' of type bigint cannot hold .* it takes int"),
        ("map<string,bigint>", {b"a": 1}, "'at.key' of type string cannot hold b'a'"),
        ("map<string,bigint>", [("a", 1.5)], "'at.value' of type bigint cannot hold 1.5 of type float"),
        ("struct<a:bigint,b:bigint>", {"a": 1, "b": 1.5}, "'at.b' of type bigint cannot hold 1.5"),
        ("struct<a:bigint,b:bigint>", (1, 1.5), "'at.b' of type bigint cannot hold 1.5"),
        ("void", 5, "'at' of type void cannot hold 5"),
    ],
)
def test_a_value_that_would_be_changed_is_refused_with_what_to_write(type_: str, entry: Any, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        column_of(type_, None, entry)


@pytest.mark.parametrize(
    ("type_", "value", "written", "expected"),
    [
        ("boolean", 1, "bool(value)", True),
        ("bigint", 1.6, "round(value)", 2),
        ("bigint", 1.6, "int(value)", 1),
        ("float", "1.5", "float(value)", 1.5),
        ("double", Decimal("0.1"), "float(value)", 0.1),
        ("double", (1 << 53) + 1, "float(value)", float(1 << 53)),
        ("decimal(10,2)", 0.1, "Decimal(str(value))", Decimal("0.10")),
        ("decimal(10,2)", Decimal("1.255"), "value.quantize(Decimal('0.01'))", Decimal("1.26")),
        ("string", b"text", "value.decode()", "text"),
        ("string", 5, "str(value)", "5"),
        ("binary", "text", "value.encode()", b"text"),
        ("date", NOON, "value.date()", NOON.date()),
        ("date", NOON_MS, "datetime.fromtimestamp(ms / 1000, UTC).date()", NOON.date()),
        ("timestamp", NOON_MS, "datetime.fromtimestamp(ms / 1000, UTC)", NOON),
        ("timestamp", NAIVE, "value.replace(tzinfo=UTC)", NOON),
        ("timestamp", pd.Timestamp("2013-01-01T12:00:00.000000001Z"), "value.floor('us')", NOON),
        ("timestamp_ntz", NOON_MS, "datetime.fromtimestamp(ms / 1000, UTC).replace(tzinfo=None)", NAIVE),
        ("timestamp_ntz", pd.Timestamp("2013-01-01T12:00:00.000000001"), "value.floor('us')", NAIVE),
        ("interval day to second", 1500, "timedelta(milliseconds=ms)", timedelta(milliseconds=1500)),
        ("interval day to second", pd.Timedelta(1001, "ns"), "value.floor('us')", timedelta(microseconds=1)),
        ("time(6)", NOON, "value.time()", time(12)),
        ("time(6)", time(12, tzinfo=UTC), "value.replace(tzinfo=None)", time(12)),
        ("array<bigint>", b"\x01", "list(value)", [1]),
        ("map<string,bigint>", {"a": 1}.items(), "dict(value)", [("a", 1)]),
        ("struct<a:bigint,b:bigint>", Row(b=1, a=2), "value.asDict()", {"a": 2, "b": 1}),
        ("struct<a:bigint,b:bigint>", Pair(b=1, a=2), "value._asdict()", {"a": 2, "b": 1}),
    ],
)
def test_what_a_refusal_says_to_write_makes_a_value_that_the_column_takes(
    type_: str, value: Any, written: str, expected: Any
) -> None:
    with pytest.raises(RecordError) as refused:
        column_of(type_, value)
    assert written in str(refused.value)
    names = {"value": value, "ms": value, "UTC": UTC, "Decimal": Decimal, "datetime": datetime, "timedelta": timedelta}
    assert column_of(type_, eval(written, names)) == [expected]


@pytest.mark.parametrize(
    ("type_", "value", "advice", "other"),
    [
        ("float", 1e39, "or make the column a double", "double"),
        ("timestamp_ntz", NOON, "or make the column a timestamp", "timestamp"),
        ("void", 5, "it takes None; give the column the type of its values", "bigint"),
    ],
)
def test_a_column_of_the_type_that_a_refusal_says_takes_the_value(
    type_: str, value: Any, advice: str, other: str
) -> None:
    with pytest.raises(RecordError, match=advice):
        column_of(type_, value)
    assert column_of(other, value) == [value]


def test_milliseconds_for_a_timestamp_are_refused_with_what_makes_a_datetime_of_them() -> None:
    with pytest.raises(RecordError) as refused:
        column_of("timestamp", NOON_MS)
    assert refused.value.sentence == (
        "sink 'out': column 'at' of type timestamp cannot hold 1357041600000 of type int; it takes datetime with a "
        "time zone; make one of milliseconds with datetime.fromtimestamp(ms / 1000, UTC), of a datetime that is UTC "
        "with value.replace(tzinfo=UTC), of one with nanoseconds with value.floor('us'), or use the record's own "
        "column 'timestamp'"
    )
    assert column_of("timestamp", datetime.fromtimestamp(NOON_MS / 1000, UTC)) == [NOON]


def test_whole_keys_and_values_are_no_exception() -> None:
    batch = Batch([NOON_MS], [True], [0])
    with pytest.raises(RecordError, match="column 'key' of type timestamp cannot hold 1357041600000"):
        sink(key="timestamp").to_table(batch)
    with pytest.raises(RecordError, match="column 'value' of type double cannot hold True"):
        sink(value="double").to_table(batch)


def test_the_records_own_times_are_milliseconds() -> None:
    batch = Batch([Windowed("a", NOON_MS, NOON_MS + 1000)], [1], [NOON_MS + 500])
    columns = dict.fromkeys(("window_start", "window_end", "timestamp"), "timestamp")
    times = [NOON, NOON + timedelta(seconds=1), NOON + timedelta(milliseconds=500)]
    assert sink(key="string", value="bigint", **columns).to_table(batch).to_pylist() == [
        {"key": "a", "value": 1, **dict(zip(columns, times, strict=True))}
    ]
    assert sink(timestamp="timestamp_ntz").to_table(batch).to_pylist() == [{"timestamp": times[2].replace(tzinfo=None)}]
    assert sink(timestamp="bigint").to_table(batch).to_pylist() == [{"timestamp": NOON_MS + 500}]
    with pytest.raises(RecordError, match="column 'timestamp': a time in milliseconds is out of range"):
        sink(timestamp="timestamp").to_table(Batch(["a"], [1], [1 << 62]))
    with pytest.raises(RecordError, match="column 'timestamp' of type date cannot hold"):
        sink(timestamp="date").to_table(batch)


def test_an_entry_called_like_a_windows_bound_is_milliseconds_or_a_datetime() -> None:
    assert column_named("window_start", "timestamp", NOON_MS) == [NOON]
    assert column_named("window_start", "timestamp", NOON) == [NOON]


def records(*values: Any) -> Batch:
    return Batch(["k"] * len(values), list(values), [0] * len(values))


AMOUNTS = records(None, {"amount": 1, "rate": 0.5}, {"amount": 2})


def test_a_misspelled_column_is_refused_with_the_nearest_entry() -> None:
    with pytest.raises(RecordError) as refused:
        sink(key="string", amuont="bigint").to_table(AMOUNTS)
    assert refused.value.sentence == (
        "sink 'out': column 'amuont' is not an entry of a value with the entries ['amount', 'rate']; did you mean "
        "'amount'? If only some values have it, say so: Produced(..., optional=('amuont',))"
    )
    with pytest.raises(RecordError, match="did you mean 'timestamp'"):
        sink(timestmp="bigint").to_table(AMOUNTS)
    with pytest.raises(RecordError, match=r"column 'weight' .* entries \['amount', 'rate'\]. If only some"):
        sink(weight="string").to_table(AMOUNTS)


def test_an_entry_that_some_values_lack_is_null_only_where_the_sink_calls_it_optional() -> None:
    with pytest.raises(RecordError, match=r"column 'rate' is not an entry of a value with the entries \['amount'\]"):
        sink(amount="bigint", rate="double").to_table(AMOUNTS)
    rows = sink(["rate"], amount="bigint", rate="double").to_table(AMOUNTS)
    assert rows["amount"].to_pylist() == [None, 1, 2]
    assert rows["rate"].to_pylist() == [None, 0.5, None]


def test_entries_of_nested_values_are_named_by_their_path() -> None:
    orders = records({"items": None}, {"items": [None, {"price": 1.5}]}, {"items": [{"prices": 1.5}]})
    columns = {"items": "array<struct<price:double>>"}
    with pytest.raises(RecordError, match=r"column 'items.element.price' is not an entry .*; did you mean 'prices'"):
        sink(**columns).to_table(orders)
    rows = sink(["items.element.price"], **columns).to_table(orders)
    assert rows["items"].to_pylist() == [None, [None, {"price": 1.5}], [{"price": None}]]


def test_a_dict_that_makes_entries_up_is_asked_for_those_it_has() -> None:
    counts = defaultdict(int, a=1)
    with pytest.raises(RecordError, match="column 'b' is not an entry"):
        sink(a="bigint", b="bigint").to_table(records(counts))
    assert counts == {"a": 1}


def test_a_value_that_is_no_dict_has_no_entries() -> None:
    with pytest.raises(
        RecordError,
        match=r"an entry of a dict value, but a value is of type int; .* of the whole value is called 'value'",
    ):
        sink(["amount"], amount="bigint").to_table(records(5))
    assert sink(value="bigint").to_table(records(5)).to_pylist() == [{"value": 5}]


@pytest.mark.spark
def test_optional_columns_are_those_of_the_schema(spark: SparkSession) -> None:
    schema = "key string, amount long, items array<struct<price: double>>"
    made = Sink.of("out", Produced(schema=schema, optional=("amount", "items.element.price")))
    assert made.optional == {"amount", "items.element.price"}
    assert Sink.of("out", Produced(schema=schema, optional="amount")).optional == {"amount"}
    with pytest.raises(TopologyError, match=r"sink 'out': the optional column 'amuont' .*; did you mean 'amount'"):
        Sink.of("out", Produced(schema=schema, optional=["amuont"]))
    with pytest.raises(TopologyError, match=r"has 'key', 'amount', .*, 'items.element.price'"):
        Sink.of("out", Produced(schema=schema, optional=["prices"]))
    with pytest.raises(TopologyError, match="optional columns need a schema"):
        Sink.of("out", Produced("string", "string", optional=["amount"]))


def outputs_of(batch: Batch, policy: FailurePolicy | None = None) -> Outputs:
    """Return what a task has written that was given these records."""
    builder = StreamsBuilder(key_serde="string", value_serde="msgpack")
    builder.stream("in").to("out")
    (part,) = builder.build().subtopologies
    task = Task(part, {}, policy=policy)
    task.process("in", batch)
    return Outputs.of(task)


CHANGES = records(None, {"a": None}, {"a": 1, "op": "theirs", "sequence": 7})


def test_a_delete_and_a_row_of_nulls_differ_in_their_op() -> None:
    rows = sink(a="bigint", op="string").to_table(CHANGES, 0).to_pylist()
    assert rows == [{"a": None, "op": "delete"}, {"a": None, "op": "upsert"}, {"a": 1, "op": "theirs"}]
    assert sink(value="bigint", op="string").to_table(records(1, None), 0)["op"].to_pylist() == ["upsert", "delete"]


def test_rows_are_numbered_through_all_tables_of_a_task_unless_they_have_a_number() -> None:
    rows = SinkRows(sink(sequence="bigint"), 0)
    outputs = outputs_of(CHANGES)
    tables = [*rows.to_tables(outputs, 2), *rows.to_tables(outputs_of(records()), 2), *rows.to_tables(outputs, 9)]
    assert [table["sequence"].to_pylist() for table in tables] == [[0, 1], [7], [3, 4, 7]]


def test_a_record_that_does_not_fit_its_column_is_one_that_fails_at_the_sink() -> None:
    misfits = records({"a": 1}, {"a": "one"}, {"b": 2}, {"a": 3})
    rows, letters = SinkRows(sink(a="bigint", sequence="bigint"), 0), list[DeadLetter]()
    with pytest.raises(
        UserFunctionError,
        match=r"^operator 'KSTREAM-SINK-0000000001' of task 0_0 \(reads 'in'\): InvalidValueError: sink 'out'",
    ):
        list(rows.to_tables(outputs_of(misfits)))
    outputs = outputs_of(misfits, FailurePolicy(OnError.DEAD_LETTER, letters.append))
    assert [table.to_pydict() for table in rows.to_tables(outputs)] == [{"a": [1, 3], "sequence": [0, 1]}]
    assert [letter.value for letter in letters] == [{"a": "one"}, {"b": 2}]
    assert {letter.operator for letter in letters} == {"KSTREAM-SINK-0000000001"}


def test_columns_of_changes_are_plain_entries_in_a_content_and_under_other_types() -> None:
    with pytest.raises(RecordError, match="column 'op' is not an entry"):
        sink(op="string").to_table(CHANGES)
    with pytest.raises(RecordError, match="column 'op' is not an entry"):
        sink(op="bigint").to_table(CHANGES, 0)
