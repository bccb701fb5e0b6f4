"""``put_columns``: whole Arrow columns of bytes into a ``KeyValueStore``.

Rule of this module: no Python object is made of a key or a value; an engine gets bytes.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as _compute

from millpond.stores.backend.column_changes import put_column
from millpond.stores.encoding.keys import DATA
from millpond.stores.typed.keyvalue import KeyValueStore

pc: Any = _compute


def put_columns(store: KeyValueStore[bytes, bytes], keys: Any, values: Any) -> None:
    """Set each key to the value at the same position; null deletes it, and a repeated key's last one counts.

    Args:
        store: a store whose serdes take bytes as they are.
        keys: an Arrow array of bytes without nulls.
        values: as many bytes.
    """
    put_column(store.transaction, pc.binary_join_element_wise(pa.scalar(DATA), keys, b""), values)
