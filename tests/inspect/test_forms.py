"""The forms that are read: compressed streams, names of aggregates, keys from the command line."""

import math
import pickle
from collections.abc import Callable
from typing import Any

import msgpack
import pyarrow as pa
import pytest

from millpond.adapters.inspect.aggregated_column import AggregatedColumn
from millpond.adapters.inspect.checkpoint.compression import decompressed
from millpond.adapters.inspect.columns import SerdeColumn, shown
from millpond.adapters.inspect.packed_columns import PackedKeyColumn
from millpond.adapters.inspect.store_form import StoreForm
from millpond.errors import ConfigurationError, FormatError, SerdeError
from millpond.processors.verbs.aggregates import approx_percentile, collect, count, first, histogram, max, sum
from millpond.processors.verbs.kept_calls import CallChanges, KeptCall, evolved_calls, first_calls
from millpond.processors.verbs.row_aggregate import RowAggregate
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.encoding.serdes import STRING, serde
from millpond.stores.encoding.times import TimeUnit
from millpond.stores.specs.store_spec import StoreKind
from millpond.stores.typed.timestamped_keyvalue import ValueAndTimestamp
from millpond.stores.typed.windows.grids import CumulativeGrid
from millpond.stores.typed.windows.windowed import Windowed
from tests.inspect.checkpoints import lz4
from tests.processors.verbs.aggregating import EXTENT, PAIRS

NEAR = approx_percentile("x", 0.5)
TEXT = b"so much state, " * 999
SHORT = b"a" * 20


def packed_lz4(data: bytes) -> bytes:
    """Return data in one block that is packed."""
    plain = lz4(data)
    block = pa.compress(data, "lz4_raw", asbytes=True)
    head = b"LZ4Block\x20" + len(block).to_bytes(4, "little") + plain[13:21]
    return head + block + plain[-21:]


def snappy(data: bytes) -> bytes:
    blocks = [pa.compress(part, "snappy", asbytes=True) for part in (data[:700], data[700:])]
    framed = b"".join(len(block).to_bytes(4) + block for block in blocks if block != b"\x00")
    return b"\x82SNAPPY\x00" + (1).to_bytes(4) + (1).to_bytes(4) + framed


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("compress", [lz4, packed_lz4, snappy, zstd])
def test_streams_are_decompressed_whole_or_refused(compress: Callable[[bytes], bytes]) -> None:
    for text in (SHORT, TEXT):
        data = compress(text)
        assert decompressed(data) == text
        for size in range(9, len(data), max_step(len(data))):
            try:
                assert decompressed(data[:size]) != text
            except (ValueError, FormatError):
                continue


def max_step(size: int) -> int:
    return size // 50 or 1


def test_aggregates_are_shown_by_the_names_of_their_functions_where_no_others_are_kept() -> None:
    calls = {
        "n": count(),
        "total": sum("a"),
        "top": max("b"),
        "all": collect("c"),
        "early": first("d", ignore_nulls=True),
    }
    types: dict[str, Any] = {
        "total": pa.decimal128(10, 2),
        "top": pa.timestamp("us", "UTC"),
        "all": pa.struct([("x", pa.int32()), ("y", pa.map_(pa.string(), pa.list_(pa.float32())))]),
        "early": pa.string(),
    }
    aggregate = RowAggregate(calls, types)
    column = AggregatedColumn(aggregate.state_serde.name)
    columns: Any = column.type
    assert [field.name for field in columns] == ["count", "sum", "max", "collect", "first"]
    state = aggregate.aggregator(b"", (5, 150, 7, [1, [["k", [0.5]]]], "tea"), aggregate.initializer())
    (row,) = column.read([aggregate.state_serde.serialize(state)]).to_pylist()
    assert row["count"] == 1
    assert str(row["sum"]) == "1.50"
    assert row["collect"] == [{"0": 1, "1": [("k", [0.5])]}]
    assert row["first"] == "tea"


def test_states_of_functions_of_ones_own_are_shown_as_json_and_options_are_read_as_they_are_written() -> None:
    calls = {"extent": EXTENT("x"), "pairs": PAIRS("x", "y"), "bins": histogram("x", [1, 2.5]), "near": NEAR}
    pair = pa.struct([("first", pa.int64()), ("second", pa.string())])
    types = {name: pair if name == "pairs" else pa.int64() for name in calls}
    aggregate = RowAggregate(calls, types)
    column = AggregatedColumn(aggregate.state_serde.name)
    state = aggregate.initializer()
    for number in (7, 9, 2):
        state = aggregate.aggregator(b"", (5, number, [number, "a"], number, number), state)
    rows = [aggregate.state_serde.serialize(one) for one in (state, aggregate.initializer())]
    assert column.read(rows).to_pylist() == [
        {
            "user_defined": "[2, 9]",
            "user_defined_2": """{"(7, 'a')": 1, "(9, 'a')": 1, "(2, 'a')": 1}""",
            "histogram": [(1.0, 0), (2.5, 1), (math.inf, 2)],
            "approx_percentile": 7.0,
        },
        {
            "user_defined": None,
            "user_defined_2": None,
            "histogram": [(1.0, 0), (2.5, 0), (math.inf, 0)],
            "approx_percentile": None,
        },
    ]


def test_aggregates_are_shown_by_the_names_of_their_results_where_these_are_kept() -> None:
    def kept(calls: dict[str, Any]) -> dict[str, KeptCall]:
        types = {name: pa.int64() for name, call in calls.items() if call.column is not None}
        return RowAggregate(calls, types, ordered=True).kept(dict.fromkeys(types, "v"))

    history = Schemas.first(first_calls(kept({"n": count(), "total": sum("v")})))
    changes = CallChanges(["early"], {"total": "much"}, ["n"])
    calls = {"early": first("v", ignore_nulls=True), "much": sum("v")}
    history = evolved_calls(history, kept(calls), changes, "totals")
    column: Any = pickle.loads(pickle.dumps(AggregatedColumn("aggregate-state-1: count(null); sum(int)", history)))
    assert [field.name for field in column.type] == ["early", "much"]
    assert column.serde == "aggregate-state-1: first(int, ignore_nulls=True); sum(int)"
    states: list[list[Any]] = [[7, 40], [None, 41, [b"at 5", 2]]]
    assert column.read(list(map(msgpack.packb, states))).to_pylist() == [
        {"early": None, "much": 40},
        {"early": 2, "much": 41},
    ]


def test_a_window_that_begins_before_the_time_since_which_a_result_is_true_is_shown_without_it() -> None:
    calls = {"n": KeptCall("count(null)", None), "much": KeptCall("sum(int)", "v")}
    history = evolved_calls(Schemas.first(first_calls({"n": calls["n"]})), calls, CallChanges({"much": 10}), "totals")
    column = AggregatedColumn("aggregate-state-1: count(null)", history)
    states = list(map(msgpack.packb, ([3], [2, 7], [2, 7])))
    assert column.read_in(states, [0, 9, 10]).to_pylist() == [
        {"n": 3, "much": None},
        {"n": 2, "much": None},
        {"n": 2, "much": 7},
    ]


def test_of_windows_that_start_together_each_is_shown_by_when_they_start() -> None:
    """They are kept by their last steps, which all begin when the result is true."""
    calls = {"n": KeptCall("count(null)", None), "much": KeptCall("sum(int)", "v")}
    history = evolved_calls(Schemas.first(first_calls({"n": calls["n"]})), calls, CallChanges({"much": 10}), "totals")
    column = AggregatedColumn("aggregate-state-1: count(null)", history)
    kind, grid = StoreKind.TIMESTAMPED_WINDOW, CumulativeGrid(20, 10)
    form = StoreForm("aggregate", kind, None, SerdeColumn(STRING), column, TimeUnit.MICROSECOND, grid=grid)
    state = ValueAndTimestamp(msgpack.packb([2, 7]), 15)
    kept: list[tuple[Any, Any]] = [(Windowed(b"a", place, place + 10), state) for place in (10, 20, 30)]
    (rows,) = form.batches(kept)
    values: Any = rows["value"]
    assert values.field("much").to_pylist() == [None, 7, 7]


@pytest.mark.parametrize(
    "name",
    [
        "aggregate-state-2: count(null)",
        "aggregate-state-1: median(int)",
        "aggregate-state-1: ",
        "aggregate-state-1: sum(int, x=y)",
    ],
)
def test_aggregates_that_are_not_known_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError):
        AggregatedColumn(name)


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [
        ("string", "tea", "tea"),
        ("int64", "-7", -7),
        ("float64", "0.5", 0.5),
        ("bytes", "00ff", b"\x00\xff"),
        ("json", '{"b": 1, "a": 2}', {"a": 2, "b": 1}),
        ("msgpack", "[1, null]", [1, None]),
        ("struct<a:long>", '{"a": 1}', {"a": 1}),
    ],
)
def test_keys_of_the_command_line_are_those_of_the_serde(name: str, text: str, key: object) -> None:
    column = shown(name, None)
    assert column.to_bytes(column.parse(text)) == serde(name).serialize(key)


def test_a_key_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'seven' is no value of the int64 serde"):
        shown("int64", None).parse("seven")
    with pytest.raises(SerdeError):
        SerdeColumn(serde("int64")).read([b"too short"])


def test_packed_keys_are_given_by_name_in_order_or_alone() -> None:
    codec = KeyCodec(pa.table({"shop": ["a"], "day": pa.array(["2026-01-02"]).cast(pa.date32())}).schema)
    column = PackedKeyColumn(codec)
    (wanted,) = codec.pack(pa.table({"shop": ["a"], "day": pa.array(["2026-01-02"]).cast(pa.date32())}))
    for text in ('["a", "2026-01-02"]', '{"day": "2026-01-02", "shop": "a"}'):
        assert column.to_bytes(column.parse(text)) == wanted
    single = PackedKeyColumn(KeyCodec(pa.schema([("shop", pa.string())])))
    assert single.to_bytes(single.parse("7")) == single.to_bytes({"shop": "7"}) == single.to_bytes("7")
    for key in (["a"], {"shop": "a"}, {"shop": "a", "day": "no day"}, {"shop": 7, "day": "2026-01-02"}):
        with pytest.raises(ConfigurationError, match=r"is no key of \(shop string, day date32"):
            column.to_bytes(key)
