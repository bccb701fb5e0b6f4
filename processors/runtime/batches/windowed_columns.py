"""Windowed keys as an Arrow column: to the engine a type of its own, so that they become ``Windowed`` and no dicts."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.stores.encoding.numbering import numbered
from millpond.stores.typed.windows.windowed import Windowed


class WindowedType(pa.ExtensionType):
    """The type of windowed keys: a struct of ``key``, ``start`` and ``end``.

    Args:
        key: the type of the keys.
    """

    def __init__(self, key: pa.DataType) -> None:
        fields: Any = [("key", key), ("start", pa.int64()), ("end", pa.int64())]
        super().__init__(pa.struct(fields), "millpond.windowed")

    def __hash__(self) -> int:
        return hash((self.extension_name, self.storage_type))

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: Any, serialized: bytes) -> "WindowedType":
        return cls(storage_type.field("key").type)

    def __arrow_ext_class__(self) -> type["WindowedArray"]:
        return WindowedArray


class WindowedArray(pa.ExtensionArray):  # type: ignore[type-arg]
    """A column of windowed keys.

    >>> windowed_keys(pa.array(["a"]), np.array([10]), np.array([20])).to_pylist()
    [Windowed(key='a', start=10, end=20)]
    """

    def entries(self, name: str) -> Any:
        """Return the column ``key``, ``start`` or ``end``."""
        storage: Any = self.storage
        return storage.field(name)

    @property
    def numbers(self) -> npt.NDArray[np.int64]:
        """Numbers that are equal for equal keys."""
        numbers: npt.NDArray[np.int64] = self.entries("key").dictionary_encode().indices.to_numpy().astype(np.int64)
        for bound in ("start", "end"):
            distinct, places = numbered(self.entries(bound).to_numpy())
            numbers = numbered(numbers * len(distinct) + places)[1]
        return numbers

    def to_pylist(self, **options: Any) -> list[Any]:
        """Return the keys as ``Windowed``."""
        columns = (self.entries(name).to_pylist() for name in Windowed._fields)
        return list(map(Windowed._make, zip(*columns, strict=True)))


def windowed_keys(keys: Any, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> WindowedArray:
    """Return keys, an Arrow array, with the starts and ends of their windows."""
    kind: Any = WindowedType(keys.type)
    storage = pa.StructArray.from_arrays([keys, pa.array(starts), pa.array(ends)], fields=list(kind.storage_type))
    made: Any = pa.ExtensionArray.from_storage(kind, storage)
    assert isinstance(made, WindowedArray)
    return made
