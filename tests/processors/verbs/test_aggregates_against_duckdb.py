"""RowAggregate in a topology gives what DuckDB gives for the whole input, whatever the batches and restarts."""

import math
import random
from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as _compute
import pytest

from millpond.processors import (
    Consumed,
    CumulativeWindows,
    KStream,
    KTable,
    Materialized,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    TopologyDriver,
)
from millpond.processors.verbs import aggregates as f
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.row_aggregate import RowAggregate
from millpond.stores.encoding.rows.physical import to_physical
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.typed.windows.windowed import Windowed
from tests.processors.verbs.aggregating import EXTENT
from tests.processors.verbs.duck import answered

pc: Any = _compute

COLUMNS: dict[str, pa.DataType] = {
    "i": pa.int64(),
    "d": pa.decimal128(10, 2),
    "w": pa.decimal128(30, 4),
    "x": pa.float64(),
    "s": pa.string(),
    "u": pa.duration("us"),
    "b": pa.bool_(),
}
_COUNTED = ", ".join(
    f"count(*) filter (where {low} < i and i <= {high})"
    for low, high in (("-1000", "-50"), ("-50", "0.5"), ("0.5", "50"), ("50", "1000"))
)
BINS = f"map([-50.0::double, 0.5, 50, 'inf'], [{_COUNTED}])"
CALLS = {
    "n": (f.count(), "count(*)"),
    "n_i": (f.count("i"), "count(i)"),
    "sum_i": (f.sum("i"), "sum(i)::bigint"),
    "sum_d": (f.sum("d"), "sum(d)::decimal(20, 2)"),
    "sum_w": (f.sum("w"), "sum(w)::decimal(38, 4)"),
    "sum_x": (f.sum("x"), "fsum(x)"),
    "avg_i": (f.avg("i"), "avg(i)"),
    "avg_d": (f.avg("d"), "avg(d)"),
    "avg_x": (f.avg("x"), "favg(x)"),
    "var_i": (f.var_samp("i"), "var_samp(i)"),
    "var_d": (f.var_pop("d"), "var_pop(d)"),
    "dev_x": (f.stddev_samp("x"), "stddev_samp(x)"),
    "dev_i": (f.stddev_pop("i", where="b"), "stddev_pop(i) filter (where b)"),
    "covar": (f.covar_samp("x", "i"), "covar_samp(x, i)"),
    "covar_some": (f.covar_pop("i", "d", where="b"), "covar_pop(i, d) filter (where b)"),
    "corr": (f.corr("i", "x"), "nullif(corr(i, x), 'nan'::double)"),
    "weighted": (f.weighted_avg("x", "i"), "sum(x * i) / nullif(sum(i) filter (where x is not null), 0)"),
    "all_b": (f.bool_and("b"), "bool_and(b)"),
    "some_b": (f.bool_or("b"), "bool_or(b)"),
    "and_i": (f.bit_and("i"), "bit_and(i)"),
    "or_i": (f.bit_or("i", where="b"), "bit_or(i) filter (where b)"),
    "xor_i": (f.bit_xor("i"), "bit_xor(i)"),
    "mode_s": (f.mode("s"), "mode(s order by s)"),
    "mode_i": (f.mode("i", where="b"), "mode(i order by i) filter (where b)"),
    "high_i": (f.percentile("i", 0.9), "quantile_cont(i, 0.9)"),
    "low_d": (f.percentile("d", 0.1, where="b"), "quantile_cont(d::double, 0.1) filter (where b)"),
    "mid_x": (f.median("x"), "median(x)"),
    "skew_i": (
        f.skewness("i"),
        "case when count(i) > 2 then skewness(i) * (count(i) - 2) / sqrt(count(i) * (count(i) - 1.0)) "
        "when count(distinct i) = 2 then 0 end",
    ),
    "kurt_x": (f.kurtosis("x"), "case when var_pop(x) > 0 then kurtosis_pop(x) end"),
    "product_x": (f.product("x"), "product(x)"),
    "bins_i": (f.histogram("i", [-50, 0.5, 50]), BINS),
    "n_if": (f.count_if("b"), "coalesce(count_if(b), 0)"),
    "some_s": (f.any_value("s", ignore_nulls=True), "any_value(s order by t)"),
    "about_high": (f.approx_percentile("i", 0.8, 2_000), "quantile_disc(i, 0.8)::double"),
    "extent_i": (EXTENT("i", where="b"), "((max(i) filter (where b)) - (min(i) filter (where b)))::double"),
    "max_u": (f.max("u"), "max(u)"),
    "min_x": (f.min("x"), "min(x)"),
    "max_x": (f.max("x"), "max(x)"),
    "min_s": (f.min("s"), "min(s)"),
    "max_d": (f.max("d"), "max(d)"),
    "max_w": (f.max("w"), "max(w)"),
    "first_s": (f.first("s"), "first(s order by t)"),
    "last_s": (f.last("s"), "last(s order by t)"),
    "last_w": (f.last("w", ignore_nulls=True), "last(w order by t) filter (w is not null)"),
    "all_i": (f.collect("i"), "coalesce(list(i order by t) filter (i is not null), [])"),
    "early_i": (f.collect("i", limit=3), "coalesce(list(i order by t) filter (i is not null), [])[:3]"),
    "distinct_x": (f.count_distinct("x"), "count(distinct x)"),
    "distinct_s": (f.count_distinct("s"), "count(distinct s)"),
    "about_s": (f.approx_count_distinct("s"), "count(distinct s)"),
    "n_some": (f.count(where="b"), "count(*) filter (where b)"),
    "count_some": (f.count("i", where="b"), "count(i) filter (where b)"),
    "sum_some": (f.sum("d", where="b"), "(sum(d) filter (where b))::decimal(20, 2)"),
    "avg_some": (f.avg("i", where="b"), "avg(i) filter (where b)"),
    "min_some": (f.min("s", where="b"), "min(s) filter (where b)"),
    "first_some": (f.first("s", where="b"), "first(s order by t) filter (where b)"),
    "last_some": (f.last("i", where="b"), "last(i order by t) filter (where b)"),
    "last_of_some": (
        f.last("i", ignore_nulls=True, where="b"),
        "last(i order by t) filter (where b and i is not null)",
    ),
    "all_some": (f.collect("i", where="b"), "coalesce(list(i order by t) filter (where b and i is not null), [])"),
    "distinct_some": (f.count_distinct("s", where="b"), "count(distinct s) filter (where b)"),
}


def type_of(call: AggregateCall) -> pa.DataType:
    """Return the type of what rows bring for a call."""
    type_ = COLUMNS[str(call.column or call.where)]
    if call.second is not None:
        return pa.struct([("first", type_), ("second", COLUMNS[str(call.second)])])
    return pa.struct([("value", type_)]) if call.wraps else type_


TYPES = {name: type_of(call) for name, (call, _) in CALLS.items() if call.takes_values}
ROW = RowAggregate({name: call for name, (call, _) in CALLS.items()}, TYPES)
GAP = 7
SIZE = 50

TABLE_OF_SESSIONS = f"""
    (select *, sum(coalesce(far, 0)) over (partition by k order by t) as session
     from (select *, (t - lag(t) over (partition by k order by t) > {GAP})::int as far from rows))
"""


def random_rows(seed: int, count: int = 400) -> pa.Table:
    """Return rows of a few keys at different times, in any order, with nulls."""
    chance = random.Random(seed)

    def some(make: Callable[[], Any]) -> list[Any]:
        return [None if chance.random() < 0.2 else make() for _ in range(count)]

    times = list(range(0, 3 * count, 3))
    chance.shuffle(times)
    columns = {
        "i": some(lambda: chance.randrange(-100, 100)),
        "d": some(lambda: Decimal(chance.randrange(-(10**9), 10**9)).scaleb(-2)),
        "w": some(lambda: Decimal(chance.randrange(-(10**25), 10**25)).scaleb(-4)),
        "x": some(lambda: chance.choice([0.1, -0.0, 0.0, 1e10, chance.uniform(-5, 5)])),
        "s": some(lambda: chance.choice(["", "a", "bb", "ü", "z"])),
        "u": some(lambda: timedelta(microseconds=chance.randrange(10**12))),
        "b": some(lambda: chance.random() < 0.5),
    }
    keys_and_times = [pa.array(chance.choices("abcde", k=count)), pa.array(times, pa.int64())]
    arrays: list[Any] = [*keys_and_times, *(pa.array(columns[name], type_) for name, type_ in COLUMNS.items())]
    return pa.Table.from_arrays(arrays, ["k", "t", *COLUMNS])


def records(rows: pa.Table) -> list[tuple[bytes, tuple[Any, ...], int]]:
    """Key, input and timestamp of each row."""
    physical = {name: to_physical(rows[name]) for name in COLUMNS}
    keys: list[Any] = rows["k"].to_pylist()
    times: list[Any] = rows["t"].to_pylist()
    inputs = zip(times, *(_argument(physical, call) for call, _ in CALLS.values() if call.takes_values), strict=True)
    return [(key.encode(), row, time) for key, row, time in zip(keys, inputs, times, strict=True)]


def _argument(physical: Mapping[str, list[Any]], call: AggregateCall) -> list[Any]:
    """Return what rows bring for a call."""
    values = physical[str(call.column or call.where)]
    if call.second is not None:
        values = [list(pair) for pair in zip(values, physical[str(call.second)], strict=True)]
    if call.where is None:
        return values
    conditions = physical[str(call.where)]
    given = [[value] for value in values] if call.wraps else values
    return [value if counts else None for value, counts in zip(given, conditions, strict=True)]


def driven(
    build: Callable[[KStream], KTable],
    rows: pa.Table,
    seed: int,
    *,
    backend: str = "memory",
    folder: Path | None = None,
) -> dict[Any, dict[str, Any]]:
    """Return the last result of each key, after micro-batches of any size; with a folder, with a restart after each."""
    chance, waiting, found = random.Random(seed), records(rows), {}
    builder = StreamsBuilder(key_serde=BYTES)
    build(builder.stream("in", Consumed(BYTES, ROW.input_serde))).to("out")
    topology = builder.build()
    driver = TopologyDriver(topology, backend=backend, local_dir=folder)
    while waiting:
        size = chance.randint(1, 60)
        driver.pipe_all("in", waiting[:size])
        waiting = waiting[size:]
        found.update({record.key: record.value for record in driver.read("out")})
        if folder is not None:
            driver.close()
            driver = TopologyDriver(topology, backend=backend, local_dir=folder)
    driver.close()
    kept = {key: state for key, state in found.items() if state is not None}
    return dict(zip(kept, ROW.results(list(kept.values())).to_pylist(), strict=True))


def asked(rows: pa.Table, table: str, by: str) -> dict[Any, dict[str, Any]]:
    """Return what DuckDB says, by key, or by key and whatever ``by`` adds to it."""
    columns = ", ".join(f"{sql} as {name}" for name, (_, sql) in CALLS.items())
    answer = answered(f"select {by}, {columns} from {table} group by all", rows=rows)
    size = len(answer[0]) - len(CALLS)
    return {row[:size]: dict(zip(CALLS, row[size:], strict=True)) for row in answer}


def assert_equal(found: dict[Any, dict[str, Any]], expected: dict[Any, dict[str, Any]]) -> None:
    assert found.keys() == expected.keys()
    for key, row in expected.items():
        for name, value in row.items():
            if isinstance(value, float):
                assert math.isclose(found[key][name], value, rel_tol=1e-9, abs_tol=1e-6), (key, name)
            elif isinstance(value, dict):
                assert dict(found[key][name]) == value, (key, name)
            else:
                assert found[key][name] == value, (key, name)


def store(*, caching: bool, **options: Any) -> Materialized:
    return Materialized("store", key_serde=BYTES, value_serde=ROW.state_serde, caching=caching, **options)


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_groups(seed: int, caching: bool) -> None:
    rows = random_rows(seed)

    def build(stream: KStream) -> KTable:
        return stream.group_by_key().aggregate(ROW.initializer, ROW.aggregator, store(caching=caching))

    found = {(key.decode(),): row for key, row in driven(build, rows, seed).items()}
    assert_equal(found, asked(rows, "rows", "k"))


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_groups_after_restarts(backend: str, tmp_path: Path) -> None:
    rows = random_rows(9)

    def build(stream: KStream) -> KTable:
        return stream.group_by_key().aggregate(ROW.initializer, ROW.aggregator, store(caching=True))

    found = {(key.decode(),): row for key, row in driven(build, rows, 9, backend=backend, folder=tmp_path).items()}
    assert_equal(found, asked(rows, "rows", "k"))


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_windows(seed: int, caching: bool) -> None:
    rows = random_rows(seed)

    def build(stream: KStream) -> KTable:
        windowed = stream.group_by_key().windowed_by(TimeWindows(SIZE, grace=10_000))
        return windowed.aggregate(ROW.initializer, ROW.aggregator, store(caching=caching))

    found = {(key.key.decode(), key.start): row for key, row in driven(build, rows, seed).items()}
    assert_equal(found, asked(rows, "rows", f"k, t // {SIZE} * {SIZE}"))


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
@pytest.mark.parametrize("caching", [True, False])
def test_cumulative_windows(caching: bool, backend: str, tmp_path: Path) -> None:
    """Each row is joined to the ends of its window: there is no cumulative window in SQL but in Flink's."""
    rows, (size, step, offset) = random_rows(3), (4 * SIZE, SIZE, SIZE // 2)

    def build(stream: KStream) -> KTable:
        windowed = stream.group_by_key().windowed_by(CumulativeWindows(size, step, grace=10_000, offset=offset))
        return windowed.aggregate(ROW.initializer, ROW.aggregator, store(caching=caching))

    folder = None if backend == "memory" else tmp_path
    answer = driven(build, rows, 3, backend=backend, folder=folder)
    found = {(key.key.decode(), key.start, key.end): row for key, row in answer.items()}
    start = f"t - ((t - {offset}) % {size} + {size}) % {size}"
    ends = f"select *, {start} as start, unnest(range(({start}) + {step}, ({start}) + {size} + 1, {step})) as stop"
    assert_equal(found, asked(rows, f"(select * from ({ends} from rows) where t < stop)", "k, start, stop"))


HOURS = 3_600_000
BEGIN = 1_772_600_000_000
"""In March 2026, some days before clocks change in America and weeks before they do in Europe."""

CALENDARS = {
    "day": TimeWindows("1 day", zone="America/New_York", grace=10**11),
    "week": TimeWindows("1 week", zone="Europe/Berlin", grace=10**11),
    "month": TimeWindows("1 month", zone="Europe/Berlin", grace=10**11),
    "quarter": TimeWindows("3 months", zone="America/New_York", grace=10**11),
    "year": TimeWindows("1 year", zone="Asia/Kathmandu", grace=10**11),
}


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("unit", CALENDARS)
def test_windows_of_the_calendar(unit: str, caching: bool, backend: str, tmp_path: Path) -> None:
    rows = random_rows(len(unit))
    times: Any = rows["t"]
    moved = pc.add(pc.multiply(times, HOURS if unit == "day" else 10 * HOURS), BEGIN)
    rows = rows.set_column(1, "t", moved)
    windows = CALENDARS[unit]
    assert windows.calendar is not None

    def build(stream: KStream) -> KTable:
        windowed = stream.group_by_key().windowed_by(windows)
        return windowed.aggregate(ROW.initializer, ROW.aggregator, store(caching=caching))

    folder = None if backend == "memory" else tmp_path
    answer = driven(build, rows, 1, backend=backend, folder=folder)
    found = {(key.key.decode(), key.start, key.end): row for key, row in answer.items()}
    zone = windows.calendar.zone
    begun = f"date_trunc('{unit}', epoch_ms(t) at time zone 'UTC' at time zone '{zone}')"
    bounds = (f"epoch_ms(({one}) at time zone '{zone}')" for one in (begun, f"{begun} + interval 1 {unit}"))
    assert_equal(found, asked(rows, "rows", f"k, {', '.join(bounds)}"))
    assert len({end - start for _, start, end in found}) > (unit not in ("year", "quarter"))


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_sessions_that_merge(seed: int, caching: bool) -> None:
    rows = random_rows(seed)

    def build(stream: KStream) -> KTable:
        windowed = stream.group_by_key().windowed_by(SessionWindows(GAP, grace=10_000))
        return windowed.aggregate(ROW.initializer, ROW.aggregator, ROW.merger, store(caching=caching))

    found = {key: row for key, row in driven(build, rows, seed).items() if isinstance(key, Windowed)}
    by_start = {(key.key.decode(), key.start): row for key, row in found.items()}
    assert len(by_start) > 100
    starts = f"(select *, min(t) over (partition by k, session) as start from {TABLE_OF_SESSIONS})"
    assert_equal(by_start, asked(rows, starts, "k, start"))
