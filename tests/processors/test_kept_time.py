"""Times that processors keep: their bytes, and that no other version of them is ever misread."""

import pytest

from millpond.errors import CorruptStoreError, FormatError
from millpond.processors.runtime.kept_time import STREAM_TIME, KeptTime, stream_time_of
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.keys import pack_time
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME
from millpond.stores.typed.keyvalue import KeyValueStore


@pytest.fixture
def store() -> KeyValueStore[bytes, bytes]:
    return KeyValueStore("waiting", Transaction(MemoryBackend()), BYTES, BYTES)


@pytest.mark.parametrize("time", [MIN_TIME, -1, 0, 1_700_000_000_000, MAX_TIME])
def test_a_kept_time_comes_back(store: KeyValueStore[bytes, bytes], time: int) -> None:
    assert KeptTime(store, STREAM_TIME).get() is None
    KeptTime(store, STREAM_TIME).put(time)
    assert KeptTime(store, STREAM_TIME).get() == time


def test_a_kept_time_is_its_version_and_the_time(store: KeyValueStore[bytes, bytes]) -> None:
    KeptTime(store, "punctuation-ticking-0").put(1000)
    assert store.get_metadata("punctuation-ticking-0") == b"\x01\x80\x00\x00\x00\x00\x00\x03\xe8"


def test_stream_times_have_one_spelling() -> None:
    assert STREAM_TIME == "stream-time"
    assert [stream_time_of(number) for number in (0, 1)] == ["stream-time-0", "stream-time-1"]


@pytest.mark.parametrize(
    ("data", "version"),
    [
        (pack_time(0), 0),
        (b"\x01" + bytes(7), 0),
        (b"\x00" + pack_time(0), 0),
        (b"\x02" + pack_time(0), 2),
        (b"\x02", 2),
        (b"\xff" + pack_time(0) * 2, 255),
    ],
)
def test_another_version_is_refused_by_number(store: KeyValueStore[bytes, bytes], data: bytes, version: int) -> None:
    store.keep_metadata(STREAM_TIME, data)
    with pytest.raises(FormatError) as refused:
        KeptTime(store, STREAM_TIME).get()
    assert refused.value.sentence == (
        f"store 'waiting' keeps 'stream-time' in version {version}, but this release reads version 1; "
        "run the release that wrote it or a newer one, and delete nothing"
    )


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x01" + bytes(9)])
def test_bytes_that_are_no_time_are_damage(store: KeyValueStore[bytes, bytes], data: bytes) -> None:
    store.keep_metadata(STREAM_TIME, data)
    with pytest.raises(CorruptStoreError, match=r"'waiting' has the damaged time 'stream-time'"):
        KeptTime(store, STREAM_TIME).get()
