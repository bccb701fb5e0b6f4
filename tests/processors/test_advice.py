"""Following the advice of errors about functions, records and values: the results are right."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc
import pytest

from millpond.errors import (
    InvalidKeyError,
    RecordError,
    SerdeError,
    StoreClosedError,
    StoreFullError,
    UserFunctionError,
)
from millpond.processors import (
    Batch,
    Consumed,
    KStream,
    KTable,
    Processor,
    ProcessorContext,
    RecordProcessor,
    StreamsBuilder,
    Suppressed,
    TimeWindowedSerde,
    TimeWindows,
    TopologyDriver,
)
from millpond.processors.distribution.execution import Decoder
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.serdes import INT64, STRING, Serde
from millpond.stores.specs.store_spec import StoreKind, StoreSpec

Build = Callable[[KStream], KStream | KTable]

NUMBERS: Final = [("a", 4, 1), ("b", -1, 2), ("a", 9, 3)]
ROOTS: Final = [2.0, 3.0]


def run(build: Build, records: Sequence[tuple[Any, Any, int]], on_error: str = "fail", **options: Any) -> list[Any]:
    """Return the values that come out."""
    builder = StreamsBuilder(key_serde="string", value_serde="msgpack")
    made = build(builder.stream("in", Consumed("string", "msgpack")))
    (made.to_stream() if isinstance(made, KTable) else made).to("out")
    with TopologyDriver(builder.build(), on_error=on_error, **options) as driver:
        driver.pipe_all("in", records)
        return [record.value for record in driver.read("out")]


def test_a_function_is_corrected_and_the_job_restarted_or_what_it_fails_for_is_left_out(tmp_path: Path) -> None:
    def roots(root: Callable[[int], float]) -> Build:
        return lambda stream: stream.map_values(root).group_by_key().reduce(lambda total, value: total + value)

    told = (
        "nothing of this micro-batch was kept; correct it and restart, or leave such records out with on_error='skip'"
    )
    for _ in range(2):
        with pytest.raises(UserFunctionError, match=told):
            run(roots(math.sqrt), NUMBERS, backend="lmdb", local_dir=tmp_path)
    corrected = roots(lambda value: math.sqrt(abs(value)))
    assert run(corrected, NUMBERS, backend="lmdb", local_dir=tmp_path) == [2.0, 1.0, 5.0]
    for on_error in ("skip", "dead-letter"):
        assert run(roots(math.sqrt), NUMBERS, on_error) == [2.0, 5.0]


class AtOnce(Processor):
    """Has done nothing when it fails."""

    def process(self, batch: Batch) -> None:
        self.context.forward(batch.with_values(list(map(math.sqrt, batch.values))))


class Promising(AtOnce):
    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.declare(repeatable=True)


class OneByOne(RecordProcessor):
    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        self.forward(key, math.sqrt(value), timestamp)


def test_a_processor_leaves_records_out_once_it_takes_them_one_by_one_or_says_that_it_is_repeatable() -> None:
    with pytest.raises(UserFunctionError, match=r"give a RecordProcessor, or call context\.declare\(repeatable=True"):
        run(lambda stream: stream.process(AtOnce), NUMBERS, "skip")
    for processor in (OneByOne, Promising):
        assert run(lambda stream, made=processor: stream.process(made), NUMBERS, "skip") == ROOTS  # type: ignore[misc]


@pytest.mark.parametrize(
    ("mapper", "advice"),
    [
        (lambda values: object(), "returned a object, of which Arrow makes no array .*; return an array of one value"),
        (lambda values: [*values, None], "returned 2 values for 1 records; return one for each"),
    ],
)
def test_a_vectorized_function_returns_an_array_of_one_value_for_each_record(
    mapper: Callable[[Any], Any], advice: str
) -> None:
    with pytest.raises(UserFunctionError, match=advice):
        run(lambda stream: stream.map_values(mapper, vectorized=True), NUMBERS)
    assert run(lambda stream: stream.map_values(pc.abs, vectorized=True), NUMBERS) == [4, 1, 9]


@pytest.mark.parametrize("bad", ["trace", ("trace", "x")])
def test_a_header_is_made_a_pair_of_a_text_and_bytes(bad: Any) -> None:
    def forwarding(*headers: Any) -> type[RecordProcessor]:
        class Forwarding(RecordProcessor):
            def process_record(self, key: Any, value: Any, timestamp: int) -> None:
                self.forward(key, value, timestamp, headers=headers)

        return Forwarding

    with pytest.raises(UserFunctionError, match="is not a pair of a text and bytes or None; make it one"):
        run(lambda stream: stream.process(forwarding(bad)), NUMBERS)
    assert run(lambda stream: stream.process(forwarding(("trace", b"x"))), NUMBERS) == [4, -1, 9]


def suppressed(**options: Any) -> list[Any]:
    records = [("a", 1, 1), ("b", 2, 2), ("c", 3, 3), ("d", 4, 50)]
    given = {"wait": 10, "max_records": 2, "emit_early": False} | options
    return run(lambda stream: stream.to_table().suppress(Suppressed.until_time_limit(**given)), records)


def test_a_full_buffer_gets_higher_bounds_or_waits_for_less_or_emits_early() -> None:
    with pytest.raises(StoreFullError, match=r"; raise them, wait for less time, or let a full buffer emit early \["):
        suppressed()
    assert suppressed(max_records=3) == suppressed(wait=1) == suppressed(emit_early=True) == [1, 2, 3]


def test_a_full_buffer_of_final_results_gets_higher_bounds_or_waits_for_less_as_it_cannot_emit_early() -> None:
    def final(size: int = 10, grace: int = 20, most: int = 2) -> list[Any]:
        windows, buffer = TimeWindows(size, grace=grace), Suppressed.until_window_closes(max_records=most)
        records = [("a", 1, 1), ("b", 2, 12), ("c", 3, 23), ("d", 4, 50)]
        return run(lambda stream: stream.group_by_key().windowed_by(windows).count().suppress(buffer), records)

    with pytest.raises(StoreFullError, match=r"bytes; raise them, or give the windows a shorter grace \["):
        final()
    assert final(most=3) == final(grace=0) == [1, 1, 1]


class Moody(Serde[int]):
    """Cannot read for the first time."""

    name = "moody"

    def __init__(self, *moods: bool) -> None:
        self._moods = list(moods)

    def serialize(self, value: int) -> bytes:
        return INT64.serialize(value)

    def deserialize(self, data: bytes) -> int:
        if self._moods and self._moods.pop():
            raise SerdeError("not now")
        return INT64.deserialize(data)


@pytest.mark.parametrize(
    ("key_serde", "value_serde", "advice"),
    [
        (STRING, STRING, "the string serde cannot read "),
        (TimeWindowedSerde(STRING, 10), INT64, "b'a' is too short for a windowed key"),
        (STRING, STRING, "bad value .*; restart with the serdes that wrote it"),
        (STRING, Moody(True), "a record could be read only the second time; is its serde sound?"),
    ],
)
def test_records_are_read_by_sound_serdes_that_wrote_them(
    key_serde: Serde[Any], value_serde: Serde[Any], advice: str
) -> None:
    batch = Batch([STRING.serialize("a")], [INT64.serialize(-1)], [1])
    with pytest.raises(RecordError, match=advice):
        Decoder("in", key_serde, value_serde).decode(batch)
    for sound in (INT64, Moody()):
        assert Decoder("in", STRING, sound).decode(batch).to_batch().values == [-1]


def test_records_without_a_key_are_dropped_or_given_one() -> None:
    spec = StoreSpec("counts", StoreKind.KEY_VALUE, STRING, INT64)
    with Transaction(MemoryBackend()) as transaction:
        store: Any = spec.open(transaction)
        with pytest.raises(InvalidKeyError, match="'counts' cannot hold the key None; drop such records, or give them"):
            store.put(None, 2)
        for key, value in [("a", 1), (None, 2)]:
            if key is not None:
                store.put(key, value)
            store.put(key or "none", value)
        assert list(store.scan()) == [("a", 1), ("none", 2)]


def test_what_is_closed_is_opened_again() -> None:
    spec, backend = StoreSpec("counts", StoreKind.KEY_VALUE, STRING, INT64), MemoryBackend()
    with Transaction(backend) as transaction:
        store: Any = spec.open(transaction)
        store.put("a", 1)
        store.close()
        with pytest.raises(StoreClosedError, match="store 'counts' is closed; open it again from its spec"):
            store.get("a")
        again: Any = spec.open(transaction)
        assert again.get("a") == 1
        transaction.commit()
    with pytest.raises(StoreClosedError, match="the transaction is closed; begin a new one on the backend"):
        transaction.get(b"\1a")
    with Transaction(backend) as another:
        kept: Any = spec.open(another)
        assert kept.get("a") == 1
