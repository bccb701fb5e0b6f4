"""The rows of a Spark partition, and what becomes of them: no worker and no session is needed to tell."""

import json
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from millpond.adapters.spark import OnError
from millpond.adapters.spark.operator.map_side import ProcessAndSend, ProcessToSink, SendToTasks
from millpond.adapters.spark.rows.dead_letters import ErrorHandling
from millpond.adapters.spark.rows.records import RecordReader, Source
from millpond.adapters.spark.rows.sink import Sink
from millpond.adapters.spark.session.sent import short_errors
from millpond.errors import RecordError, SerdeError
from millpond.processors import Consumed, Produced, StreamsBuilder
from millpond.processors.distribution.exchange import EXCHANGE_SCHEMA, Blob, gather, windows
from millpond.processors.distribution.plan import make_plan
from millpond.processors.distribution.router import Route, Router
from millpond.processors.rows.event_times import EventTimes
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.serdes import Serde
from millpond.stores.encoding.times import MAX_TIME, TimeUnit

DAY = 86_400_000_000
YEAR_2100 = 4_102_444_800_000
NUMBERS = {(part, partition): 10 * part + partition for part in range(2) for partition in range(2)}


class CountingSerde(Serde[str]):
    """Text that counts how often each of its bytes were read; refuses ``bad``."""

    name = "counting"

    def __init__(self) -> None:
        self.read: Counter[bytes] = Counter()

    def serialize(self, value: str) -> bytes:
        return value.encode()

    def deserialize(self, data: bytes) -> str:
        self.read[data] += 1
        if data.startswith(b"bad"):
            raise SerdeError(f"{data!r} is bad")
        return data.decode()


@pytest.fixture
def keys() -> CountingSerde:
    return CountingSerde()


@pytest.fixture
def values() -> CountingSerde:
    return CountingSerde()


def sent_on(reader: RecordReader, table: pa.Table) -> tuple[pa.Table, Any]:
    """Return the usable records of the table as they travel, and their keys."""
    return reader.packed(reader.usable(table))


@pytest.fixture
def source(keys: CountingSerde, values: CountingSerde) -> Callable[..., Source]:
    """Return how a topic of binary keys and values is read under an ``on_error``."""

    def make(on_error: str, max_ahead: int | None = DAY) -> Source:
        event_times = EventTimes(TimeUnit.MILLISECOND, max_ahead)
        return Source("words", "k", "v", "at", keys, values, True, "", event_times, OnError(on_error))

    return make


def handling(on_error: str, uri: str = "") -> ErrorHandling:
    return ErrorHandling(OnError(on_error), Storage(uri), "app", "out", "run", TimeUnit.MILLISECOND)


def rows(*records: tuple[bytes | None, bytes | None, int | None]) -> pa.RecordBatch:
    columns: Any = zip(*records, strict=True)
    types = (pa.binary(), pa.binary(), pa.int64())
    arrays = [pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=["key", "value", "timestamp"])


GOOD = [(f"k{i}".encode(), f"v{i}".encode(), i) for i in range(100)]
MIXED = [
    *GOOD,
    (b"bad key", b"v", 1),
    (b"k", b"bad value", 1),
    (b"bad both", b"bad and ugly", 1),
    (b"late", b"never", -1),
    (None, None, 5),
]


def test_on_the_map_side_each_key_and_value_is_read_once(
    source: Callable[..., Source], keys: CountingSerde, values: CountingSerde
) -> None:
    builder = StreamsBuilder()
    builder.stream("words", Consumed(keys, values)).map_values(lambda word: word and word.upper()).to(
        "out", Produced(schema="value string")
    )
    (part,) = builder.build().subtopologies
    sink = Sink("out", "value string", pa.schema([("value", pa.string())]), None, None)
    process = ProcessToSink(part, source("skip"), sink, handling("skip"))
    came_out = pa.Table.from_batches(process(iter([rows(*MIXED)])))
    assert came_out["value"].to_pylist() == [*(f"V{i}" for i in range(100)), None, None]
    reported = json.loads(str(came_out["millpond_counters"].to_pylist()[-1]))
    assert reported["counts"] == {"dropped-bad-timestamp": 1, "dropped-bad-value": 2, "dropped-bad-key": 1}
    assert (reported["metrics"]["records.in"], reported["metrics"]["records.out"]) == (len(MIXED), 101)
    assert set(keys.read.values()) == set(values.read.values()) == {1}
    assert (len(keys.read), len(values.read)) == (103, 103)


def test_records_sent_on_from_the_map_side_were_read_once(
    source: Callable[..., Source], keys: CountingSerde, values: CountingSerde
) -> None:
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed(keys, values)).select_key(lambda _, word: word, key_serde="string")
    words.group_by_key().count().to("counts")
    plan = make_plan(builder.build(), None, 2)
    (part,) = plan.map_side
    send = ProcessAndSend(part, source("fail"), Router(plan, part, NUMBERS), handling("fail"), {}, [0])
    sent = pa.Table.from_batches(send(iter([rows(*GOOD[:50]), rows(*GOOD[50:])])))
    assert [row is None for row in sent["millpond_counters"].to_pylist()] == [True, True, False]
    assert set(keys.read.values()) == set(values.read.values()) == {1}


def test_records_sent_as_they_are_are_read_by_their_task_alone(
    source: Callable[..., Source], keys: CountingSerde, values: CountingSerde
) -> None:
    builder = StreamsBuilder()
    builder.stream("words", Consumed(keys, values)).group_by_key().count().to("counts", Produced(schema="value long"))
    plan = make_plan(builder.build(), None, 2)
    send = SendToTasks(source("fail"), Route(plan, "words", NUMBERS), handling("fail"))
    blobs = pa.Table.from_batches(send(iter([rows(*GOOD)])))
    assert not keys.read
    assert not values.read
    received: list[str] = []
    for number in set(blobs["task"].drop_null().to_pylist()):  # the report is of no task
        mine = [row for row in blobs.select(EXCHANGE_SCHEMA.names).to_pylist() if row["task"] == number]
        for run in gather(Blob(*row.values()) for row in mine):
            received += source("fail").decoder.decode(run.records).to_batch().values
    assert sorted(received) == sorted(f"v{i}" for i in range(100))
    assert set(keys.read.values()) == set(values.read.values()) == {1}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ((b"k", b"bad", 3), r"column 'v': bad value \(key=b'k', value=b'bad', timestamp=3\): b'bad' is bad; clean the"),
        ((b"bad", b"v", 3), r"column 'k': bad key \(key=b'bad', value=b'v', timestamp=3\): b'bad' is bad; clean the"),
    ],
)
def test_an_unreadable_record_fails_its_task_with_topic_column_and_content(
    source: Callable[..., Source], record: tuple[bytes, bytes, int], message: str
) -> None:
    table, _ = sent_on(RecordReader(source("fail"), 7), pa.Table.from_batches([rows(*GOOD, record)]))
    (run,) = windows(table)
    with pytest.raises(RecordError, match=f"topic 'words': {message}"):
        source("fail").decoder.decode(run)


def test_records_sent_as_they_are_are_judged_where_unusable_ones_are_skipped(
    source: Callable[..., Source], keys: CountingSerde, values: CountingSerde
) -> None:
    builder = StreamsBuilder()
    builder.stream("words", Consumed(keys, values)).group_by_key().count().to("counts", Produced(schema="value long"))
    plan = make_plan(builder.build(), None, 2)
    send = SendToTasks(source("skip"), Route(plan, "words", NUMBERS), handling("skip"))
    came_out = pa.Table.from_batches(send(iter([rows(*MIXED)])))
    *others, report = came_out["millpond_counters"].to_pylist()
    assert others == [None, None]
    counted = {"dropped-null-key": 1, "dropped-bad-timestamp": 1, "dropped-bad-value": 2, "dropped-bad-key": 1}
    assert json.loads(str(report))["counts"] == counted
    assert set(keys.read.values()) == set(values.read.values()) == {1}


@pytest.mark.parametrize(
    ("record", "message", "sent"),
    [
        ((b"k", b"v", None), "column 'at': null in row 150 of Spark partition 7 ", True),
        ((b"k", b"v", None), "column 'at': null in row 150 of Spark partition 7 ", False),
        ((b"k", b"v", -1), "column 'at': a time before the year 1970 in row 150 of Spark partition 7 ", True),
        (
            (b"k", b"bad", 3),
            r"column 'v': bad value in row 150 of Spark partition 7 \(key=b'k', value=b'bad'",
            False,
        ),
        (
            (b"bad", b"v", 3),
            r"column 'k': bad key in row 150 of Spark partition 7 \(.*timestamp=3\); clean the input",
            False,
        ),
    ],
)
def test_an_unusable_record_fails_with_topic_column_row_and_content(
    source: Callable[..., Source], record: tuple[bytes, bytes, int | None], message: str, sent: bool
) -> None:
    reader = RecordReader(source("fail"), 7)
    first, second = (pa.Table.from_batches([rows(*chunk)]) for chunk in (GOOD, [*GOOD[:50], record, *GOOD]))

    def read(table: pa.Table) -> None:
        sent_on(reader, table) if sent else list(reader.batches(table))

    read(first)
    with pytest.raises(RecordError, match=f"topic 'words': {message}"):
        read(second)


def test_an_unusable_record_is_cleaned_out_or_left_out(source: Callable[..., Source]) -> None:
    good, bad = (b"k", b"v", 1), (b"k", b"bad", 3)
    fail, skip = RecordReader(source("fail"), 0), RecordReader(source("skip"), 0)
    with pytest.raises(RecordError, match=r"; clean the input, or leave such records out with on_error='skip' or"):
        list(fail.batches(pa.Table.from_batches([rows(good, bad)])))
    for reader, read in ((fail, [good]), (skip, [good, bad])):
        ((batch),) = reader.batches(pa.Table.from_batches([rows(*read)]))
        assert (batch.keys, batch.values) == (["k"], ["v"])
    assert skip.skipped == {"dropped-bad-value": 1}


def test_a_record_without_a_key_is_unusable_only_where_its_key_decides_where_it_goes(
    source: Callable[..., Source],
) -> None:
    table = pa.Table.from_batches([rows((None, b"v", 1))])
    ((batch),) = RecordReader(source("fail"), 0).batches(table)
    assert (batch.keys, batch.values, batch.timestamps) == ([None], ["v"], [1])
    with pytest.raises(RecordError, match="column 'k': null key in row 0"):
        sent_on(RecordReader(source("fail"), 0), table)


def test_bytes_of_keys_are_those_of_the_rows_that_are_left(source: Callable[..., Source]) -> None:
    reader = RecordReader(source("skip"), 0)
    table, keys = sent_on(reader, pa.Table.from_batches([rows((b"bad", b"v", 1), (b"a", b"bad", 2), (b"b", b"v", 3))]))
    assert keys.to_pylist() == table["key"].to_pylist() == [b"b"]
    assert reader.skipped == {"dropped-bad-value": 1, "dropped-bad-key": 1}


@pytest.mark.parametrize("sent", [True, False])
def test_a_timestamp_far_ahead_of_the_wall_clock_fails_and_says_what_to_do(
    source: Callable[..., Source], sent: bool
) -> None:
    reader = RecordReader(source("fail"), 7)
    table = pa.Table.from_batches([rows(*GOOD, (b"k", b"v", YEAR_2100))])
    message = (
        r"topic 'words': column 'at': a time ahead of the clock in row 100 of Spark partition 7 "
        r"\(.*timestamp=4102444800000\): "
        r"2100-01-01T00:00:00\+00:00 is more than 1 day, 0:00:00 \(max_ahead\) ahead of the wall clock, 20\d\d-.*; "
        r"if .* set max_ahead=None or a longer one; clean the input, or leave such records out with"
    )
    with pytest.raises(RecordError, match=message):
        sent_on(reader, table) if sent else list(reader.batches(table))


def test_timestamps_too_far_ahead_are_skipped_and_counted_and_none_is_without_a_limit(
    source: Callable[..., Source],
) -> None:
    now = int(time.time() * 1000)
    records = [(b"k", b"v", at) for at in (now + DAY // 1000 - 60_000, now + DAY // 1000 + 60_000, YEAR_2100, MAX_TIME)]
    table = pa.Table.from_batches([rows(*records)])
    reader = RecordReader(source("skip"), 0)
    assert sent_on(reader, table)[0].num_rows == 1
    assert reader.skipped == {"dropped-future-timestamp": 3}
    assert sent_on(RecordReader(source("fail", None), 0), table)[0].num_rows == 4


def test_what_is_left_out_is_kept_with_the_reason_and_once_however_often_it_is_read(
    source: Callable[..., Source], keys: CountingSerde, values: CountingSerde, tmp_path: Path
) -> None:
    builder = StreamsBuilder()
    builder.stream("words", Consumed(keys, values)).map_values(int, name="number").to(
        "out", Produced(schema="value long")
    )
    (part,) = builder.build().subtopologies
    sink = Sink("out", "value long", pa.schema([("value", pa.int64())]), None, None)
    process = ProcessToSink(part, source("dead-letter"), sink, handling("dead-letter", str(tmp_path)))
    for _ in range(2):
        came_out = process(iter([rows((b"a", b"1", 1), (b"b", b"x", 2), (b"c", b"bad\xff", 3), (b"d", b"2", -4))]))
        assert pa.Table.from_batches(came_out)["value"].to_pylist() == [1, None]
    (file,) = (tmp_path / "app" / "dead-letters" / "out").iterdir()
    assert file.name == "run-static-words-0.parquet"
    letters = pq.read_table(file)
    assert set(zip(*letters.select(["name", "topic", "query", "batch_id"]).to_pydict().values(), strict=True)) == {
        ("out", "words", "run", None)
    }
    assert list(
        zip(*letters.drop_columns(["failed_at", "error", "timestamp", "headers"]).to_pydict().values(), strict=True)
    ) == [
        ("app", "out", "words", None, "split-0", "run", None, "dropped-bad-timestamp", "d", "2", b"d", b"2"),
        ("app", "out", "words", None, "split-0", "run", None, "dropped-bad-value", "c", "YmFk/w==", b"c", b"bad\xff"),
        ("app", "out", "words", "number", "0_0", "run", None, "dropped-user-error", "b", "x", None, None),
    ]
    assert [str(error).partition(":")[0] for error in letters["error"].to_pylist()] == [
        "column 'at'",
        "column 'v'",
        "ValueError",
    ]
    assert letters["timestamp"].cast(pa.int64()).to_pylist() == [-4_000, 3_000, 2_000]
    assert letters["headers"].to_pylist() == [None] * 3


def test_an_error_of_a_record_is_reported_by_its_message_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)
    with pytest.raises(OSError, match="disk"), short_errors():
        raise OSError("disk")
    assert "SPARK_HIDE_TRACEBACK" not in os.environ
    with pytest.raises(RecordError), short_errors():
        raise RecordError("one record")
    assert os.environ["SPARK_HIDE_TRACEBACK"]
