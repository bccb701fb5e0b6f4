"""Byte layouts: the files ``value-and-timestamp`` and ``change`` of the family ``formats``."""

from typing import Any

import pytest

from millpond.errors import SerdeError
from millpond.processors.runtime.change import Change, ChangeSerde
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.serdes import STRING
from millpond.stores.typed.timestamped_keyvalue import (
    UNKNOWN_TIMESTAMP,
    TimestampedKeyValueStore,
    ValueAndTimestamp,
    ValueAndTimestampSerde,
    pack_timestamp,
)
from tests.golden.loader import Case


def concerns(case: Case) -> bool:
    return case.family == "formats" and case.name in {"value-and-timestamp", "change"}


def test_bytes_are_those_of_kafka_streams(case: Case) -> None:
    if case.name == "change":
        check_changes(case.content)
    else:
        check_values_and_timestamps(case.content)


def check_values_and_timestamps(content: dict[str, Any]) -> None:
    serde = ValueAndTimestampSerde(STRING)
    for entry in content["entries"]:
        transaction = Transaction(MemoryBackend())
        store = TimestampedKeyValueStore("golden", transaction, STRING, STRING)
        store.put("k", entry["value"], entry["ts"])
        stored = transaction.get(b"\x01k")
        assert (None if stored is None else stored.hex()) == entry["hex"]
        if entry["value"] is not None:
            expected = ValueAndTimestamp(entry["value"], entry["ts"])
            assert store.get("k") == expected
            assert serde.deserialize(bytes.fromhex(entry["hex"])) == expected
            assert serde.serialize(expected).hex() == entry["hex"]
    for entry in content["plain"]:
        assert pack_timestamp(UNKNOWN_TIMESTAMP).hex() + entry["plain_hex"] == entry["timestamped_hex"]


def check_changes(content: dict[str, Any]) -> None:
    for entry in content["serialize"]:
        serde = ChangeSerde(STRING, entry["upgrade_from"])
        change = Change(entry["new"], entry["old"], entry["is_latest"])
        if "throws" in entry:
            with pytest.raises(SerdeError):
                serde.serialize(change)
        else:
            assert serde.serialize(change).hex() == entry["hex"], entry
    for entry in content["deserialize"]:
        data = bytes.fromhex(entry["hex"])
        if "throws" in entry:
            with pytest.raises(SerdeError):
                ChangeSerde(STRING).deserialize(data)
        else:
            assert ChangeSerde(STRING).deserialize(data) == Change(entry["new"], entry["old"], entry["is_latest"]), (
                entry
            )
