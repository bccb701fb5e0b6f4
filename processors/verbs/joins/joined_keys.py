"""The key of a join by foreign key that keeps right rows: the left key, and beside it the foreign key.

A right row that no left row names has no left key, and the right key is its foreign key. So a left row that names
another right row from now on is deleted under its former key. A key is made of columns, since a foreign key
that has a null, and so names nothing, is shown as it is.

Rule of this module: it alone knows that key, and no Python object is made of a column's value.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import nulls
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.promises import Promises
from millpond.processors.verbs.verb import PackedRows, nullable, widest
from millpond.stores.encoding.rows.tuple_keys import KeyCodec


@dataclass(frozen=True)
class JoinedKeys:
    """Makes the keys of results.

    Attributes:
        left, right: the sides; left rows have a foreign key in front.
    """

    left: PackedRows
    right: PackedRows

    @cached_property
    def codec(self) -> KeyCodec:
        """The codec of the keys: the columns of the left key, then those of the foreign key that are not in it."""
        named = widest(self._foreign.schema, self.right.keys.schema)
        fields = {field.name: field for field in (*self.left.keys.schema, *named)}
        return KeyCodec(nullable(pa.schema(list(fields.values()))))

    def of_left(self, keys: Sequence[bytes], rows: Sequence[bytes]) -> list[bytes]:
        """Return the keys of results of left rows, by their own keys."""
        known = self.left.keys.unpack(keys)
        if len(known.schema) < len(self.codec.schema):
            columns = self.left.columns_of(rows)
            for name in self.codec.schema.names[len(known.schema) :]:
                known = known.append_column(name, columns[name])
        return self._packed({name: known[name] for name in known.column_names}, len(keys))

    def of_right(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return the keys of right rows that no left row names, by their own keys."""
        columns = self.right.keys.unpack(keys).columns
        return self._packed(dict(zip(self._foreign.schema.names, columns, strict=True)), len(keys))

    @property
    def _foreign(self) -> KeyCodec:
        assert self.left.foreign is not None
        return self.left.foreign

    def _packed(self, columns: dict[str, Any], size: int) -> list[bytes]:
        schema = self.codec.schema
        found = [
            columns[field.name].cast(field.type) if field.name in columns else nulls(size, field.type)
            for field in schema
        ]
        return self.codec.pack(pa.table(found, schema=schema))


class LeftResults(Operator):
    """Gives the updates of the results of left rows their keys; one whose key is another one now is deleted first.

    Args:
        keys: makes the keys.
    """

    promises = Promises(repeatable=True)

    def __init__(self, keys: JoinedKeys) -> None:
        self._keys = keys

    def process(self, batch: Batch) -> None:
        assert batch.olds is not None
        befores, nows = (self._keys_of(batch.keys, values) for values in (batch.olds, batch.values))
        keys: list[bytes] = []
        values: list[Any] = []
        times: list[int] = []
        for before, now, value, time in zip(befores, nows, batch.values, batch.timestamps, strict=True):
            changed = [] if before is None or before == now else [(before, None)]
            for key, result in changed if now is None else [*changed, (now, value)]:
                keys.append(key)
                values.append(result)
                times.append(time)
        self.context.forward(Batch(keys, values, times))

    def _keys_of(self, keys: Sequence[bytes], values: Sequence[Any]) -> list[bytes | None]:
        there = [place for place, value in enumerate(values) if value is not None]
        made = self._keys.of_left([keys[place] for place in there], [values[place][0] for place in there])
        found: list[bytes | None] = [None] * len(keys)
        for place, key in zip(there, made, strict=True):
            found[place] = key
        return found


class RightResults(Operator):
    """Makes results of right rows that no left row names.

    Args:
        keys: makes their keys.
    """

    promises = Promises(repeatable=True)

    def __init__(self, keys: JoinedKeys) -> None:
        self._keys = keys

    def process(self, batch: Batch) -> None:
        values = [None if row is None else (None, row) for row in batch.values]
        self.context.forward(Batch(self._keys.of_right(batch.keys), values, batch.timestamps))
