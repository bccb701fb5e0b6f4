"""The messages of the foreign-key join, against the bytes that Kafka Streams was recorded to write."""

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import SerdeError
from millpond.processors.tables.foreign_key.messages import (
    Content,
    Instruction,
    LeftRow,
    Response,
    Subscription,
    combined_key,
    primary_key_of,
)
from millpond.processors.tables.foreign_key.murmur3 import murmur3_128, murmur3_128_many
from tests.golden.loader import cases

RECORDED: dict[str, Any] = next(case.content for case in cases(None) if case.id == "formats/foreign-key")


@pytest.mark.parametrize("row", RECORDED["murmur3_128"], ids=lambda row: repr(row["value"]))
def test_the_hash_of_a_left_value_is_that_of_kafka_streams(row: dict[str, Any]) -> None:
    assert struct.unpack(">qq", murmur3_128(row["value"].encode())) == (row["hash0"], row["hash1"])


@settings(deadline=None)
@given(st.lists(st.binary(max_size=70), max_size=40), st.sampled_from([0, 15, 16, 1030]))
def test_many_hashes_are_those_of_the_values_alone(values: list[bytes], more: int) -> None:
    values = [*values, *(bytes([i % 256]) * (i % 50) for i in range(more))]
    assert murmur3_128_many(values) == list(map(murmur3_128, values))


@pytest.mark.parametrize("row", RECORDED["combined_key"], ids=lambda row: repr(row["fk"]))
def test_a_combined_key_is_that_of_kafka_streams(row: dict[str, Any]) -> None:
    foreign_key, primary_key = row["fk"].encode(), row["pk"].encode()
    combined = combined_key(foreign_key, primary_key)
    assert combined.hex() == row["hex"]
    assert combined_key(foreign_key, b"").hex() == row["prefix_hex"]
    assert primary_key_of(combined) == primary_key


@pytest.mark.parametrize(
    "row",
    RECORDED["subscription"],
    ids=lambda row: f"{row['instruction_name']}-{row['left_value']}-{row['upgrade_from']}",
)
def test_a_subscription_is_that_of_kafka_streams(row: dict[str, Any]) -> None:
    hash_ = None if row["left_value"] is None else murmur3_128(row["left_value"].encode())
    # Kafka Streams has sent the partition since 3.4; before, and in Millpond's own topics, there is none.
    partition = None if row["upgrade_from"] == "3.3" else row["partition"]
    subscription = Subscription(hash_, Instruction[row["instruction_name"]], row["pk"].encode(), partition)
    assert subscription.to_bytes().hex() == row["hex"]
    assert Subscription.from_bytes(bytes.fromhex(row["hex"])) == subscription


@pytest.mark.parametrize("hash_", [None, murmur3_128(b"a")])
@pytest.mark.parametrize("content", Content)
def test_a_response_tells_an_empty_foreign_value_from_none(hash_: bytes | None, content: Content) -> None:
    response = Response(hash_, content)
    assert Response.from_bytes(response.to_bytes()) == response


def test_a_response_begins_with_its_version_and_what_it_brings() -> None:
    assert Response(bytes(range(16)), Content.VALUE, b"name").to_bytes() == b"\x01\x01" + bytes(range(16)) + b"name"
    assert Response(None, Content.RETRACTION).to_bytes() == b"\x81\x02"


@pytest.mark.parametrize(("head", "version"), [(b"\x00", 0), (b"\x02", 2), (b"\x82", 2)])
def test_a_response_of_an_unknown_version_is_refused(head: bytes, version: int) -> None:
    with pytest.raises(SerdeError, match=f"a response has version {version}, but this release reads version 1; run"):
        Response.from_bytes(head + bytes(17) + b"name")


@pytest.mark.parametrize("names_foreign", [False, True])
def test_a_left_row_is_a_flag_the_hash_and_the_value(names_foreign: bool) -> None:
    row = LeftRow(names_foreign, murmur3_128(b"value"), b"value")
    assert row.to_bytes() == bytes([names_foreign]) + murmur3_128(b"value") + b"value"
    assert LeftRow.from_bytes(row.to_bytes()) == row


def test_a_subscription_of_an_unknown_version_is_refused() -> None:
    with pytest.raises(SerdeError, match="version 2"):
        Subscription.from_bytes(b"\x02\x00" + bytes(16) + b"key")
