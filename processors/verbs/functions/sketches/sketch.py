"""``Sketched``: the base of functions whose state is a sketch.

Rule of this module: it knows no sketch; the functions know how one is opened, updated and merged.
"""

from abc import abstractmethod
from collections.abc import Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any, ClassVar, Final
from zlib import crc32

import numpy as np
import pyarrow as pa

from millpond.errors import MissingPackageError
from millpond.processors.verbs.functions.columns import Array, Integers, present
from millpond.processors.verbs.functions.function import AggregateFunction
from millpond.stores.encoding.rows.physical import to_physical

_CHECKSUM: Final = 4
"""The bytes of a CRC-32."""


class Opened:
    """A sketch that may have been changed, until it is stored.

    Args:
        function: the function of this state.
        sketch: the library's sketch.
    """

    def __init__(self, function: "Sketched", sketch: Any) -> None:
        self.function = function
        self.sketch = sketch

    def serialize_compact(self) -> bytes:
        """Return the bytes of the state."""
        return self.function.stored(self.sketch)


class Sketched(AggregateFunction):
    """Keeps a sketch of the values that are not null.

    Attributes:
        sealed: whether a state has a checksum in front: the library trusts what it reads, and may crash otherwise.
    """

    state_type = pa.binary()
    sealed: ClassVar[bool] = True

    @abstractmethod
    def empty(self) -> Any:
        """Return a sketch of no values."""

    @abstractmethod
    def read(self, data: bytes) -> Any:
        """Return the sketch with such bytes."""

    @abstractmethod
    def packed(self, sketch: Any) -> bytes:
        """Return the bytes of a sketch."""

    @abstractmethod
    def united(self, left: Any, right: Any) -> Any:
        """Return the sketch of the values of both, which may be one of them."""

    @abstractmethod
    def items(self, values: Array) -> list[Any]:
        """Return values that are not null as items that a sketch takes."""

    @abstractmethod
    def update(self, sketch: Any, items: Sequence[Any], counts: Sequence[int]) -> None:
        """Give a sketch different items, each so many times."""

    def add(self, state: Any, value: Any, time: Any) -> Any:
        if value is None:
            return state
        opened = self._opened(state)
        self.update(opened.sketch, [self.item(value)], [1])
        return opened

    @abstractmethod
    def item(self, value: Any) -> Any:
        """Return a physical value as an item that a sketch takes."""

    def add_columns(self, states: Array, values: Array, times: Array, groups: Integers) -> Array:
        encoded = self.comparable(values.drop_null()).dictionary_encode()
        items = self.items(encoded.dictionary)
        numbers = encoded.indices.to_numpy().astype(np.int64)
        codes, firsts, counts = np.unique(
            groups[present(values)] * max(len(items), 1) + numbers, return_index=True, return_counts=True
        )
        order = np.lexsort((firsts, codes // max(len(items), 1)))
        owners, chosen = np.divmod(codes[order], max(len(items), 1))
        often = counts[order].tolist()
        given = [items[number] for number in chosen.tolist()]
        made = states.to_pylist()
        for start, stop in pairwise(np.flatnonzero(np.diff(owners, prepend=-1, append=-1)).tolist()):
            group = int(owners[start])
            opened = self._opened(made[group])
            self.update(opened.sketch, given[start:stop], often[start:stop])
            made[group] = self.stored(opened.sketch)
        return pa.array(made, pa.binary())

    def comparable(self, values: Array) -> Array:
        """Return values that are not null in a form that is equal where they are one item."""
        return values

    def merge(self, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        return Opened(self, self.united(self._opened(left).sketch, self._opened(right).sketch))

    def merge_columns(self, states: Array, groups: Integers, size: int) -> Array:
        made: list[Any] = [None] * size
        for group, state in zip(groups.tolist(), states.to_pylist(), strict=True):
            made[group] = self.merge(made[group], state)
        return pa.array([one.serialize_compact() if isinstance(one, Opened) else one for one in made], pa.binary())

    def sketches(self, states: Array) -> list[Any]:
        """Return the sketches of a column of states; an empty one where there is none."""
        return [self._opened(state).sketch for state in to_physical(states)]

    def _opened(self, state: Any) -> Opened:
        if isinstance(state, Opened):
            return state
        return Opened(self, self.empty() if state is None else self.read(self.unsealed(state)))

    def stored(self, sketch: Any) -> bytes:
        """Return the bytes of a state."""
        data = self.packed(sketch)
        return crc32(data).to_bytes(_CHECKSUM) + data if self.sealed else data

    def unsealed(self, state: bytes) -> bytes:
        """Return the bytes of the sketch in a state.

        Raises:
            ValueError: the checksum is that of other bytes.
        """
        if not self.sealed:
            return state
        if crc32(state[_CHECKSUM:]).to_bytes(_CHECKSUM) != state[:_CHECKSUM]:
            raise ValueError("the sketch has not the checksum that it was written with")
        return state[_CHECKSUM:]


class Shown(Sketched):
    """A function whose result is the sketch."""

    type = pa.binary()
    nullable = False

    def results(self, states: Array) -> Array:
        nothing = self.packed(self.empty())
        found = [nothing if state is None else self.unsealed(state) for state in states.to_pylist()]
        return pa.array(found, self.type)


def library(function: str, instead: str = "") -> Any:
    """Return the package ``datasketches``.

    Args:
        function: the function that needs it.
        instead: another function that does the same, if there is one.

    Raises:
        ConfigurationError: it is not installed.
    """
    try:
        return import_module("datasketches")
    except ImportError as error:
        other = f", or use {instead}" if instead else ""
        raise MissingPackageError(
            f"{function} needs the package datasketches, which cannot be imported ({error}); "
            f"pip install 'millpond[sketches]'{other}"
        ) from error
