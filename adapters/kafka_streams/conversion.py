"""From the bytes of entries to values, with the serdes that the Java client's serializers have here.

=====================  ==========  =================  =====================================
Kafka's serializer     serde       column             bytes
=====================  ==========  =================  =====================================
ByteArray, any other   ``bytes``   binary             as they are
String                 ``string``  string             UTF-8
Long                   ``int64``   int64              eight, signed, big-endian
Double                 ``float64`` double             eight, IEEE 754, big-endian
of JSON                ``json``    string, as JSON    UTF-8
=====================  ==========  =================  =====================================
"""

from typing import Any, Final

import pyarrow as pa

from millpond.adapters.kafka_streams.entries import Entry
from millpond.errors import MissingSerdeError, SerdeError, UnreadableRowError
from millpond.stores.encoding.serdes import BYTES, FLOAT64, INT64, JSON, STRING, Serde

COLUMN_TYPES: Final[dict[Serde[Any], Any]] = {
    BYTES: pa.binary(),
    STRING: pa.string(),
    INT64: pa.int64(),
    FLOAT64: pa.float64(),
    JSON: pa.string(),
}
"""The serdes of which keys and values can be, and the type that their columns have."""


class Conversion:
    """Reads keys and values with their serdes, and checks them.

    Args:
        store: what errors call the store.
        key_serde: of the keys.
        value_serde: of the values.

    Attributes:
        key_serde, value_serde: the same.

    Raises:
        ConfigurationError: a serde is none of ``COLUMN_TYPES``.
    """

    def __init__(self, store: str, key_serde: Serde[Any], value_serde: Serde[Any]) -> None:
        for what, given in (("key", key_serde), ("value", value_serde)):
            if given not in COLUMN_TYPES:
                known = ", ".join(serde.name for serde in COLUMN_TYPES)
                raise MissingSerdeError(
                    f"the {what}s of store {store!r} cannot be read by the serde {given.name!r}, which writes nothing "
                    f"that Kafka's serializers write; choose one of {known}"
                )
        self._store = store
        self.key_serde = key_serde
        self.value_serde = value_serde

    def key(self, entry: Entry) -> Any:
        """Return the entry's key.

        Raises:
            UnreadableRowError: its bytes are not what the serde writes.
        """
        key = self._read("key", self.key_serde, entry.key, entry)
        if self.key_serde.serialize(key) != entry.key:
            raise self._unreadable("key", self.key_serde, entry, "it writes other bytes for this key")
        return key

    def value(self, entry: Entry) -> Any:
        """Return the entry's value; None for a tombstone.

        Raises:
            UnreadableRowError: its bytes are not what the serde writes.
        """
        return None if entry.value is None else self._read("value", self.value_serde, entry.value, entry)

    def _read(self, what: str, serde: Serde[Any], data: bytes, entry: Entry) -> Any:
        try:
            found = serde.deserialize(data)
        except SerdeError as error:
            raise self._unreadable(what, serde, entry, str(error)) from error
        if found is None:
            raise self._unreadable(what, serde, entry, "it is null, which no store keeps")
        return found

    def _unreadable(self, what: str, serde: Serde[Any], entry: Entry, reason: str) -> UnreadableRowError:
        return UnreadableRowError(
            f"store {self._store!r}: the {what} of the entry with the key 0x{entry.key.hex()} is none of the serde "
            f"{serde.name!r}: {reason}; choose another --{what}-serde, such as bytes, which takes anything"
        )
