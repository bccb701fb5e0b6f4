"""The readers of what operators keep in stores and send to each other.

Rule of this module: an operator's store is filled by the operator, and the rows that come of it are the seeds.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millpond.adapters.inspect.top_column import TopColumn
from millpond.processors.aggregations.aggregate import Aggregation
from millpond.processors.aggregations.closing import Window
from millpond.processors.aggregations.completion import Completion
from millpond.processors.distribution.exchange import COMPLETE, Blob, gather, to_ipc
from millpond.processors.options.joins import Side
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.batches.headers import Headers
from millpond.processors.runtime.kept_time import KeptTime
from millpond.processors.streams.unpaired_records import WaitingRecords
from millpond.processors.streams.unpaired_rows import unpaired_records_spec
from millpond.processors.tables.foreign_key.messages import (
    Content,
    Instruction,
    LeftRow,
    Response,
    Subscription,
    combined_key,
    primary_key_of,
)
from millpond.processors.tables.suppress_buffer import SuppressBuffer, suppress_buffer_spec
from millpond.processors.tables.time_ordered_buffer import TimeOrderedBuffer, buffer_spec
from millpond.processors.verbs import aggregates
from millpond.processors.verbs.aggregates import UserAggregate
from millpond.processors.verbs.encoding.foreign_keyed import (
    foreign_key_of,
    foreign_keys_of,
    with_foreign_keys,
    without_foreign_key,
    without_foreign_keys,
)
from millpond.processors.verbs.functions.top import STATE_SERDE, first_rows
from millpond.processors.verbs.key_timers import KeyTimers, TimerClock, keyed_timers_spec
from millpond.processors.verbs.row_aggregate import RowAggregate
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.encoding.serdes import BYTES, STRING
from millpond.stores.encoding.times import MAX_TIME
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.windows.grids import EvenGrid
from tests.fuzz.reader import Reader, attempt, framed, rows_of, transaction_over, unframed

HASH: Final = bytes(range(16))


def operator_reader(spec: StoreSpec, fill: Callable[[Any], None], *reads: Callable[[Any], Any]) -> Reader:
    """Return a reader of something that operators keep in a store of that spec.

    Args:
        spec: of the store.
        fill: has the operator write something into the store.
        reads: have it read; each gets the store.
    """

    def read(data: bytes) -> None:
        transaction = transaction_over(data)
        store = spec.open(transaction)
        attempt(store.check, *[lambda read=read: read(store) for read in (*reads, fill)], store.flush)
        transaction.rollback()

    transaction = Transaction(MemoryBackend())
    store = spec.open(transaction)
    fill(store)
    store.flush()
    return Reader(read, (rows_of(transaction),))


BUFFER: Final = buffer_spec("s", 10, STRING, STRING, "a test")


def _buffer(store: Any) -> TimeOrderedBuffer:
    return TimeOrderedBuffer(BUFFER, store)


def _fill_buffer(store: Any) -> None:
    headers: list[Headers] = [(), (("trace", b"1"), ("trace", None)), (("trace", b""),)]
    _buffer(store).pass_through(Batch(["a", None, "b\0"], ["one", "two", None], [30, 25, 31], headers=headers))


PLAIN: Final = buffer_spec("s", 10, BYTES, BYTES, "a test")


def _fill_plain(store: Any) -> None:
    TimeOrderedBuffer(PLAIN, store).pass_through(Batch([b"a", b"b\0"], [b"one", b"two"], [30, 31]))


def _move_columns(store: Any) -> Columns:
    nothing: Any = pa.array([], pa.binary())
    return TimeOrderedBuffer(PLAIN, store).move_columns(Columns(nothing, nothing, np.empty(0, np.int64)), 100)


def _suppressed(store: Any) -> SuppressBuffer:
    return SuppressBuffer(store, STRING)


def _fill_suppressed(store: Any) -> None:
    buffer = _suppressed(store)
    buffer.load([b"a", b"b"], None)
    buffer.put(b"a", 100, 100, "one", None, ())
    buffer.put(b"a", 101, 101, "two", "one", (("trace", b"1"),))
    buffer.put(b"b", 103, 103, None, "x", ())
    buffer.stream_time = 103
    buffer.save()
    buffer.save_totals()


def _waiting(store: Any) -> WaitingRecords:
    return WaitingRecords(store, STRING, {Side.LEFT: STRING, Side.RIGHT: STRING})


def _fill_waiting(store: Any) -> None:
    records = _waiting(store)
    records.begin(200)
    records.add(115, 100, Side.LEFT, b"a", b"one")
    records.add(115, 100, Side.LEFT, b"a", b"two")
    records.add(120, 105, Side.RIGHT, b"b", b"three")
    records.advance(110)
    records.end()


def _advance_waiting(store: Any) -> None:
    records = _waiting(store)
    records.begin(MAX_TIME)
    records.advance(MAX_TIME)
    records.end()


def _timers(store: Any) -> KeyTimers:
    return KeyTimers(store, TimerClock.EVENT_TIME)


def _fill_timers(store: Any) -> None:
    timers = _timers(store)
    timers.set(b"a", b"remind", 2_000_000)
    timers.set(b"b\0", b"", 2_500_000)
    timers.cancel(b"b", b"")
    timers.save()
    KeptTime(store, "watermark").put(1_500_000)


def _fire_timers(store: Any) -> None:
    timers = _timers(store)
    timers.load(3_000_000)
    while timers.pop(3_000_000):
        pass
    timers.save()


WINDOW: Final = Window("a", 0, 10, "a")


def _completion(store: Any) -> Completion:
    return Completion(store, 0, STRING.serialize, STRING, end=EvenGrid(10).end)


def _fill_completion(store: Any) -> None:
    _completion(store).let_out_all(5)
    completion = _completion(store)
    completion.change(WINDOW, "before")
    completion.change(Window("b", 1, 11, "b"), None)
    completion.save(closed=-1)


def _read_completion(store: Any) -> None:
    completion = _completion(store)
    completion.before(WINDOW)
    completion.save(closed=0)


def _kept_operator_readers() -> dict[str, Reader]:
    aggregation = StoreSpec("s", StoreKind.KEY_VALUE, STRING, STRING)
    return {
        "time-ordered buffer": operator_reader(BUFFER.store_spec, _fill_buffer, lambda store: _buffer(store).drain()),
        "time-ordered buffer, by columns": operator_reader(PLAIN.store_spec, _fill_plain, _move_columns),
        "suppress buffer": operator_reader(
            suppress_buffer_spec("s", STRING),
            _fill_suppressed,
            lambda store: _suppressed(store).prior(b"a"),
            lambda store: _suppressed(store).load([b"a", b"b"], 100),
            lambda store: _suppressed(store).load([], None),
        ),
        "unpaired records": operator_reader(
            unpaired_records_spec("s", STRING), _fill_waiting, lambda store: _waiting(store).drain(), _advance_waiting
        ),
        "keyed timers": operator_reader(keyed_timers_spec("s"), _fill_timers, _fire_timers),
        "completion": operator_reader(aggregation, _fill_completion, _read_completion),
        "kept time": operator_reader(
            aggregation,
            lambda store: KeptTime(store, "stream-time").put(200),
            lambda store: KeptTime(store, "stream-time").get(),
        ),
    }


def _message_readers() -> dict[str, Reader]:
    columns = pa.schema([("k", pa.string())])
    rows = with_foreign_keys(KeyCodec(columns), pa.table({"k": ["p", None]}), pa.array([b"\x91\x01"] * 2))
    subscription = Subscription(HASH, Instruction(2), b"o1")
    response = Response(HASH, Content.VALUE, b"name")
    return {
        "subscription": Reader(
            Subscription.from_bytes, (subscription.to_bytes(), subscription._replace(hash=None, partition=3).to_bytes())
        ),
        "response": Reader(Response.from_bytes, (response.to_bytes(), response._replace(hash=None).to_bytes())),
        "left row": Reader(LeftRow.from_bytes, (LeftRow(True, HASH, b"ada:tea").to_bytes(),)),
        "combined key": Reader(primary_key_of, (combined_key(b"ada", b"o1"),)),
        "row with a foreign key": Reader(
            lambda data: attempt(
                lambda: foreign_key_of(data),
                lambda: without_foreign_key(data),
                lambda: foreign_keys_of(pa.array([data])),
                lambda: without_foreign_keys(pa.array([data])),
            ),
            tuple(rows.to_pylist()),
        ),
    }


PAIR: Final = pa.struct([("first", pa.int64()), ("second", pa.float64())])
VALUES: Final[dict[str, pa.DataType]] = {"int": pa.int64(), "float": pa.float64(), "wide": pa.decimal128(30, 2)}


def _aggregate() -> RowAggregate:
    calls, types = {}, {}
    for name in ("sum", "avg", "min", "max", "first", "last", "collect", "count_distinct"):
        for kind, type_ in VALUES.items():
            calls[f"{name} {kind}"] = getattr(aggregates, name)(kind)
            types[f"{name} {kind}"] = type_
    calls["about"] = aggregates.approx_count_distinct("int")
    types["about"] = pa.int64()
    for kind, type_ in VALUES.items():
        calls[f"var_pop {kind}"], types[f"var_pop {kind}"] = aggregates.var_pop(kind), type_
    for kind, type_ in VALUES.items():
        calls[f"median {kind}"], types[f"median {kind}"] = aggregates.median(kind), type_
    calls["corr"], types["corr"] = aggregates.corr("int", "float"), PAIR
    calls["mode"], types["mode"] = aggregates.mode("int"), pa.int64()
    for name in ("hll_sketch_agg", "theta_sketch_agg", "kll_sketch_agg", "approx_top_k"):
        calls[name], types[name] = getattr(aggregates, name)("int"), pa.int64()
    for name in ("skewness", "kurtosis", "product", "geometric_mean"):
        calls[name], types[name] = getattr(aggregates, name)("float"), pa.float64()
    calls["near"], types["near"] = aggregates.approx_percentile("float", 0.5), pa.float64()
    calls["bins"], types["bins"] = aggregates.histogram("int", [1, 5]), pa.int64()
    calls["own"], types["own"] = OWN("int"), pa.int64()
    return RowAggregate(calls, types)


OWN: Final = UserAggregate(
    name="own", zero=list, update=lambda s, v: [*s, v], merge=list.__add__, type=pa.list_(pa.int64())
)


def _aggregate_readers() -> dict[str, Reader]:
    row = _aggregate()
    values = {"int": 3, "float": 2.5, "wide": (10**20).to_bytes(16)}
    value = (
        1_000_000,
        *[values[kind] for _ in range(8) for kind in VALUES],
        3,
        *values.values(),
        *values.values(),
        [3, 0.5],
        3,
        *[3] * 4,
        *[0.5] * 5,
        *[3] * 2,
    )
    encoded = row.input_serde.serialize(value)

    def read(data: bytes) -> None:
        states, inputs = [found for _, found in unframed(data)][:2] + [b""] * (2 - len(list(unframed(data))[:2]))
        serde = row.state_serde
        attempt(
            lambda: row.results([serde.deserialize(states)]),
            lambda: serde.serialize(row.aggregator(b"k", value, serde.deserialize(states))),
            lambda: row.aggregator(b"k", row.input_serde.deserialize(inputs), row.initializer()),
            lambda: serde.serialize(row.merger(b"k", serde.deserialize(states), serde.deserialize(states))),
        )

    state = row.initializer()
    seeds = [row.state_serde.serialize(state)]
    for _ in range(2):
        state = row.aggregator(b"k", value, state)
        seeds.append(row.state_serde.serialize(state))
    return {"states of aggregates": Reader(read, tuple(framed([(b"", seed), (b"", encoded)]) for seed in seeds))}


def _merged(kept: Aggregation, state: Any) -> Any:
    assert kept.merger is not None
    return kept.merger(b"k", state, state)


def _top_readers() -> dict[str, Reader]:
    codec = RowCodec(Schemas.first(pa.schema([("id", pa.int64())])))
    kept, column = first_rows("out", KeyCodec(pa.schema([])), 2), TopColumn(codec)
    rows = [(b"\x10", row) for row in codec.pack(pa.table({"id": [7, 8, 9]}))]

    def read(data: bytes) -> None:
        attempt(
            lambda: column.read([data]),
            lambda: STATE_SERDE.serialize(kept.update(b"k", rows[0], STATE_SERDE.deserialize(data))),
            lambda: STATE_SERDE.serialize(_merged(kept, STATE_SERDE.deserialize(data))),
        )

    state = kept.initializer()
    seeds = [STATE_SERDE.serialize(state)]
    for row in rows:
        state = kept.update(b"k", row, state)
        seeds.append(STATE_SERDE.serialize(state))
    return {"states of top_n": Reader(read, tuple(seeds))}


def _read_blobs(data: bytes) -> None:
    blobs = []
    for place, (head, records) in enumerate(unframed(data)):
        input_ = head[0] % 3 - 1 if head else 0
        blobs.append(Blob(0, input_, place % 2, place, records))
    for run in gather(blobs, keep_order=[1]):
        np.array(run.records.timestamps, np.int64)


def _blobs() -> tuple[bytes, ...]:
    keys, values = pa.array([b"a", None]), pa.array([b"v", b"w"])
    blob = to_ipc(pa.table({"key": keys, "value": values, "timestamp": pa.array([5, 6])}))
    ends = bytes([COMPLETE + 1])
    return framed([(b"\1", blob)]), framed([(b"\1", blob), (b"\2", blob), (b"\2", blob), (ends, b"")])


def operator_readers() -> dict[str, Reader]:
    """Return all of them."""
    return {
        **_kept_operator_readers(),
        **_message_readers(),
        **_aggregate_readers(),
        **_top_readers(),
        "blobs between tasks": Reader(_read_blobs, _blobs()),
    }
