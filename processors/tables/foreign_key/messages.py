"""The messages of the foreign-key join (KIP-213), as bytes in internal topics and in stores.

A subscription and a combined key are byte for byte as in Kafka Streams::

    combined key   length of the foreign key (4 bytes, big-endian), foreign key, primary key
    subscription   version (0, or 1 with a partition; the highest bit says that there is no hash), instruction,
                   hash (16 bytes), primary key, partition (4 bytes, version 1 only)

A response is not, because Kafka Streams' cannot tell an empty foreign value from none. Ours says what it carries::

    response       version (1; the highest bit says that there is no hash), content, hash (16 bytes), foreign value

Kafka Streams has no left rows; its result task reads the left table itself. Ours::

    left row       0x01 if the row names a foreign key, else 0x00; hash (16 bytes), left value

The stores that hold these::

    FOREIGN_KEY_SUBSCRIPTIONS    key-value                  combined key -> hash
    FOREIGN_KEY_LEFT_ROWS        timestamped-key-value      primary key -> left row
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any, Final, NamedTuple

from millpond.errors import SerdeError, UnreadableRowError
from millpond.processors.tables.foreign_key.murmur3 import HASH_SIZE
from millpond.stores.encoding.serdes import BYTES, Serde
from millpond.stores.evolution.carriage import LayoutCarriage
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.layouts import Layout

FOREIGN_KEY_SUBSCRIPTIONS: Final = Layout("foreign-key-subscriptions", 1)
FOREIGN_KEY_LEFT_ROWS: Final = Layout("foreign-key-left-rows", 1)

_NEWEST_SUBSCRIPTION: Final = 1
RESPONSE_VERSION: Final = 1
NO_HASH: Final = 0x80
_HASH_END: Final = 2 + HASH_SIZE
_WITHOUT_FOREIGN_KEY: Final = b"\x00"
_WITH_FOREIGN_KEY: Final = b"\x01"
_LEFT_VALUE: Final = 1 + HASH_SIZE
_LENGTH = struct.Struct(">I")
_PARTITION = struct.Struct(">i")


def subscriptions_spec(name: str, foreign_key_serde: Serde[Any]) -> StoreSpec:
    """Return the spec of the store of subscriptions, in the tasks of the foreign table."""
    layout = replace(FOREIGN_KEY_SUBSCRIPTIONS, key_serde=foreign_key_serde.name)
    return StoreSpec(name, StoreKind.KEY_VALUE, BYTES, BYTES, layout=layout)


def left_rows_spec(name: str, key_serde: Serde[Any]) -> StoreSpec:
    """Return the spec of the store of left rows, in the tasks of the results."""
    return StoreSpec(name, StoreKind.TIMESTAMPED_KEY_VALUE, key_serde, BYTES, layout=FOREIGN_KEY_LEFT_ROWS)


class Instruction(IntEnum):
    """The task of the foreign side for a subscription; the numbers are Kafka Streams'."""

    DELETE_KEY_NO_PROPAGATE = 0
    """Forget the subscription."""
    DELETE_KEY_AND_PROPAGATE = 1
    """Forget the subscription and answer that there is no foreign value."""
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE = 2
    """Keep the subscription and answer, even if there is no foreign value."""
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE = 3
    """Keep the subscription and answer; the lack of a foreign value matters only if there is a result."""


class Content(IntEnum):
    """The content of a response."""

    NOTHING = 0
    """No foreign value: a left join's result has None there, an inner join's result is deleted."""
    VALUE = 1
    """The foreign value."""
    RETRACTION = 2
    """No foreign value either, but that matters only if there is a result."""


FORGET: Final = Instruction.DELETE_KEY_NO_PROPAGATE, Instruction.DELETE_KEY_AND_PROPAGATE
"""The instructions for a foreign key that is no longer named; the second asks for an answer."""
ASK: Final = Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE, Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE
"""The instructions for one that is named; to the second a missing foreign value matters only if there is a result."""

_INSTRUCTIONS: Final = {int(instruction): instruction for instruction in Instruction}
_CONTENTS: Final = {int(content): content for content in Content}


class Subscription(NamedTuple):
    """The request of a row of the left table to the foreign side.

    Attributes:
        hash: the hash of the left value's bytes; None where the row was deleted.
        instruction: the task of the foreign side.
        primary_key: the bytes of the left table's key.
        partition: the left task's partition, if it is sent (version 1).
    """

    hash: bytes | None
    instruction: Instruction
    primary_key: bytes
    partition: int | None = None

    def to_bytes(self) -> bytes:
        if self.partition is None:
            return subscription_bytes(self.hash, self.instruction, self.primary_key)
        head = bytes((1 if self.hash is not None else 1 | NO_HASH, self.instruction))
        return b"".join((head, self.hash or b"", self.primary_key, _PARTITION.pack(self.partition)))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Subscription":
        """Return the subscription that ``to_bytes`` wrote.

        Raises:
            SerdeError: it did not, or its version is unknown.
        """
        version, rest = _version_and_rest(data)
        if version > _NEWEST_SUBSCRIPTION:
            raise SerdeError(
                f"a subscription has version {version}, but this release reads versions 0 to {_NEWEST_SUBSCRIPTION}; "
                "run the release that wrote it, or a newer one"
            )
        end = len(data) - (_PARTITION.size if version else 0)
        if end < rest or data[1] not in _INSTRUCTIONS:
            raise SerdeError(f"{data[:40]!r} is no subscription of a foreign-key join")
        partition = _PARTITION.unpack_from(data, end)[0] if version else None
        return cls(data[2:rest] or None, _INSTRUCTIONS[data[1]], data[rest:end], partition)


class Response(NamedTuple):
    """The answer of the foreign side.

    Attributes:
        hash: the hash of the left value that asked; an answer to any value but the current one is stale.
        content: the kind of answer.
        foreign_value: the bytes of the foreign value, empty where there is none.
    """

    hash: bytes | None
    content: Content
    foreign_value: bytes = b""

    def to_bytes(self) -> bytes:
        return response_bytes(self.hash, self.content, self.foreign_value)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Response":
        """Return the response that ``to_bytes`` wrote.

        Raises:
            SerdeError: it did not, or its version is unknown.
        """
        version, rest = _version_and_rest(data)
        if version != RESPONSE_VERSION:
            raise SerdeError(
                f"a response has version {version}, but this release reads version {RESPONSE_VERSION}; run the release "
                "that wrote it, or a newer one"
            )
        if len(data) < rest or data[1] not in _CONTENTS:
            raise SerdeError(f"{data[:40]!r} is no response of a foreign-key join")
        return cls(data[2:rest] or None, _CONTENTS[data[1]], data[rest:])


class LeftRow(NamedTuple):
    """A row of the left table, as the result task keeps it.

    Attributes:
        names_foreign: whether the row names a foreign key, and so gets an answer.
        hash: the hash of the value, as in the row's subscription.
        value: the bytes of the left table's value.
    """

    names_foreign: bool
    hash: bytes
    value: bytes

    def to_bytes(self) -> bytes:
        return left_row_bytes(self.names_foreign, self.hash, self.value)

    @classmethod
    def from_bytes(cls, data: bytes) -> "LeftRow":
        """Return the row that ``to_bytes`` wrote.

        Raises:
            UnreadableRowError: it did not.
        """
        if len(data) < _LEFT_VALUE or data[:1] not in (_WITH_FOREIGN_KEY, _WITHOUT_FOREIGN_KEY):
            raise UnreadableRowError(f"{data[:40]!r} is no left row of a foreign-key join")
        return cls(data[:1] == _WITH_FOREIGN_KEY, data[1:_LEFT_VALUE], data[_LEFT_VALUE:])


_UNHASHED_SUBSCRIPTIONS: Final = [bytes((NO_HASH, instruction)) for instruction in Instruction]
_SUBSCRIPTIONS: Final = [bytes((0, instruction)) for instruction in Instruction]
_UNHASHED_RESPONSES: Final = [bytes((RESPONSE_VERSION | NO_HASH, content)) for content in Content]
_RESPONSES: Final = [bytes((RESPONSE_VERSION, content)) for content in Content]


def subscription_bytes(hash_: bytes | None, instruction: Instruction, primary_key: bytes) -> bytes:
    """Return the bytes of a subscription without a partition."""
    if hash_ is None:
        return _UNHASHED_SUBSCRIPTIONS[instruction] + primary_key
    return _SUBSCRIPTIONS[instruction] + hash_ + primary_key


def response_bytes(hash_: bytes | None, content: Content, foreign_value: bytes = b"") -> bytes:
    """Return the bytes of a response."""
    if hash_ is None:
        return _UNHASHED_RESPONSES[content] + foreign_value
    return _RESPONSES[content] + hash_ + foreign_value


def left_row_bytes(names_foreign: bool, hash_: bytes, value: bytes) -> bytes:
    """Return the bytes of a left row."""
    return (_WITH_FOREIGN_KEY if names_foreign else _WITHOUT_FOREIGN_KEY) + hash_ + value


def read_subscriptions(messages: Sequence[bytes]) -> Iterator[tuple[bytes | None, int, bytes]]:
    """Yield hash, instruction and primary key of each subscription, as ``Subscription.from_bytes`` reads them."""
    for data in messages:
        if len(data) >= _HASH_END and data[0] == 0 and data[1] in _INSTRUCTIONS:
            yield data[2:_HASH_END], data[1], data[_HASH_END:]
        else:
            yield Subscription.from_bytes(data)[:3]


def read_responses(messages: Sequence[bytes]) -> Iterator[tuple[bytes | None, int, bytes]]:
    """Yield hash, content and foreign value of each response, as ``Response.from_bytes`` reads them."""
    for data in messages:
        if len(data) >= _HASH_END and data[0] == RESPONSE_VERSION and data[1] in _CONTENTS:
            yield data[2:_HASH_END], data[1], data[_HASH_END:]
        else:
            yield Response.from_bytes(data)


def read_left_rows(rows: Sequence[bytes | None]) -> Iterator[tuple[bool, bytes, bytes] | None]:
    """Yield the fields that ``LeftRow.from_bytes`` reads in each row; None where there is no row."""
    for data in rows:
        if data is None:
            yield None
        elif len(data) >= _LEFT_VALUE and data[0] <= 1:
            yield data[0] == 1, data[1:_LEFT_VALUE], data[_LEFT_VALUE:]
        else:
            yield LeftRow.from_bytes(data)


def combined_key(foreign_key: bytes, primary_key: bytes) -> bytes:
    """Return the key of a subscription; without a primary key the prefix of all subscriptions of the foreign key."""
    return _LENGTH.pack(len(foreign_key)) + foreign_key + primary_key


def primary_key_of(combined: bytes) -> bytes:
    """Return the primary key in a combined key.

    Raises:
        SerdeError: it is no combined key.
    """
    return combined[_end_of_foreign_key(combined) :]


def _foreign_key_of(combined: bytes) -> bytes:
    return combined[_LENGTH.size : _end_of_foreign_key(combined)]


def _end_of_foreign_key(combined: bytes) -> int:
    end = _LENGTH.size + int.from_bytes(combined[: _LENGTH.size])
    if len(combined) < end:
        raise SerdeError(f"{combined[:40]!r} is no combined key of a foreign-key join")
    return end


FOREIGN_KEY_SUBSCRIPTIONS_CARRIAGE: Final = LayoutCarriage(_foreign_key_of, other_key=primary_key_of)
FOREIGN_KEY_LEFT_ROWS_CARRIAGE: Final = LayoutCarriage()


def _version_and_rest(data: bytes) -> tuple[int, int]:
    """Return the version of a message, and where it goes on after its hash."""
    if not data:
        raise SerdeError("a message of a foreign-key join is empty")
    return data[0] & ~NO_HASH, 2 + (0 if data[0] & NO_HASH else HASH_SIZE)
