"""A run of records, column by column: the form in which they flow between the processors of a task.

Rule of this module: a batch is never changed. A processor that changes a column makes a new list and passes the other
columns on as they are, so ``map_values`` costs a single list.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, compress, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from millpond.processors.runtime.batches.headers import NO_HEADERS, Headers


class Batch:
    """Records of one stream, or updates of one table, in arrival order; all columns have the same length.

    Attributes:
        keys: the records' keys.
        values: the values; for a table, the new value of each update, None where the row was deleted.
        timestamps: int milliseconds since the epoch.
        olds: for a table, the value before each update; None if no operator needs them, or for a stream.
        latest: for a table, whether each update is its key's newest by timestamp (KIP-914); None means all are.
        positions: where records are taken out of order, the place of each in that order, or of the record that it was
            made of; None where the batch comes in order.
        headers: the headers of each record, or of the record that it was made of; None if no record has any.
    """

    __slots__ = ("headers", "keys", "latest", "olds", "positions", "timestamps", "values")

    def __init__(
        self,
        keys: list[Any],
        values: list[Any],
        timestamps: list[int],
        olds: list[Any] | None = None,
        latest: list[bool] | None = None,
        positions: list[int] | None = None,
        headers: list[Headers] | None = None,
    ) -> None:
        self.keys = keys
        self.values = values
        self.timestamps = timestamps
        self.olds = olds
        self.latest = latest
        self.positions = positions
        self.headers = headers

    def __len__(self) -> int:
        return len(self.keys)

    def to_batch(self) -> "Batch":
        """Return the batch itself, as ``Columns`` return the batch that they turn into."""
        return self

    def __repr__(self) -> str:
        return f"Batch(keys={self.keys!r}, values={self.values!r}, timestamps={self.timestamps!r}, olds={self.olds!r})"

    def rows(self) -> Iterator["Batch"]:
        """Yield the same records, one batch each."""
        olds, latest, positions, headers = self.olds, self.latest, self.positions, self.headers
        for i, (key, value, timestamp) in enumerate(zip(self.keys, self.values, self.timestamps, strict=True)):
            yield Batch(
                [key],
                [value],
                [timestamp],
                None if olds is None else [olds[i]],
                None if latest is None else [latest[i]],
                None if positions is None else [positions[i]],
                None if headers is None else [headers[i]],
            )

    def select(self, keep: list[bool]) -> "Batch":
        """Return the records whose entry in ``keep`` is true; this batch itself if all are."""
        if all(keep):
            return self
        return Batch(
            list(compress(self.keys, keep)),
            list(compress(self.values, keep)),
            list(compress(self.timestamps, keep)),
            None if self.olds is None else list(compress(self.olds, keep)),
            None if self.latest is None else list(compress(self.latest, keep)),
            None if self.positions is None else list(compress(self.positions, keep)),
            None if self.headers is None else list(compress(self.headers, keep)),
        )

    def slice(self, start: int, stop: int) -> "Batch":
        """Return the records from ``start`` up to but not including ``stop``."""
        return Batch(
            self.keys[start:stop],
            self.values[start:stop],
            self.timestamps[start:stop],
            None if self.olds is None else self.olds[start:stop],
            None if self.latest is None else self.latest[start:stop],
            None if self.positions is None else self.positions[start:stop],
            None if self.headers is None else self.headers[start:stop],
        )

    def taken(self, places: Sequence[int] | npt.NDArray[np.int64]) -> "Batch":
        """Return the records at ``places``, in that order."""
        rows = places.tolist() if isinstance(places, np.ndarray) else places
        return Batch(
            list(map(self.keys.__getitem__, rows)),
            list(map(self.values.__getitem__, rows)),
            list(map(self.timestamps.__getitem__, rows)),
            None if self.olds is None else list(map(self.olds.__getitem__, rows)),
            None if self.latest is None else list(map(self.latest.__getitem__, rows)),
            None if self.positions is None else list(map(self.positions.__getitem__, rows)),
            None if self.headers is None else list(map(self.headers.__getitem__, rows)),
        )

    def parts(self, most: int) -> Iterator["Batch"]:
        """Yield the same records, at most so many in a batch."""
        if len(self) <= most:
            yield self
            return
        for start in range(0, len(self), most):
            yield self.slice(start, start + most)

    def with_values(self, values: list[Any]) -> "Batch":
        """Return the same keys, times and headers with other values; a plain stream batch."""
        return Batch(self.keys, values, self.timestamps, None, None, self.positions, self.headers)

    def at(self, positions: npt.NDArray[np.int64]) -> "Batch":
        """Return the same records at these positions."""
        places = positions.tolist()
        return Batch(self.keys, self.values, self.timestamps, self.olds, self.latest, places, self.headers)

    @property
    def headers_of_each(self) -> Iterable[Headers | None]:
        """The headers of each record, None for each if no record has any."""
        return repeat(None, len(self.keys)) if self.headers is None else self.headers

    def latest_at(self, i: int) -> bool:
        """Return whether update ``i`` is the newest of its key by timestamp."""
        return self.latest is None or self.latest[i]

    def position_at(self, i: int) -> int:
        """Return the position of record ``i``; 0 if the batch comes in order."""
        return 0 if self.positions is None else self.positions[i]


def concatenate(batches: Sequence[Batch]) -> Batch:
    """Return the records of many stream batches as one batch."""
    if len(batches) == 1:
        return batches[0]
    return Batch(
        list(chain.from_iterable(batch.keys for batch in batches)),
        list(chain.from_iterable(batch.values for batch in batches)),
        list(chain.from_iterable(batch.timestamps for batch in batches)),
        headers=_filled([(batch.headers, len(batch)) for batch in batches], NO_HEADERS),
    )


def in_order(batches: Sequence[Batch]) -> Batch:
    """Return the records of batches by their positions, as a batch without positions; ties stay as they come.

    >>> left, right = Batch(["a"], [1], [7], positions=[2]), Batch(["b", "c"], [2, 3], [5, 9], positions=[0, 4])
    >>> in_order([left, right]).keys
    ['b', 'a', 'c']
    """
    joined = Batch(
        list(chain.from_iterable(batch.keys for batch in batches)),
        list(chain.from_iterable(batch.values for batch in batches)),
        list(chain.from_iterable(batch.timestamps for batch in batches)),
        _filled([(batch.olds, len(batch)) for batch in batches], None),
        _filled([(batch.latest, len(batch)) for batch in batches], True),
        headers=_filled([(batch.headers, len(batch)) for batch in batches], NO_HEADERS),
    )
    positions = np.array([position for batch in batches for position in batch.positions or ()], np.int64)
    if (positions[1:] >= positions[:-1]).all():
        return joined
    return joined.taken(positions.argsort(kind="stable"))


def _filled(columns: Sequence[tuple[list[Any] | None, int]], default: Any) -> list[Any] | None:
    """Return columns of batches as one, with ``default`` where a batch has none; None where no batch has one."""
    if all(column is None for column, _ in columns):
        return None
    return list(chain.from_iterable([default] * size if column is None else column for column, size in columns))


class BatchBuilder:
    """Collects the output of a processor that makes its records one by one.

    Args:
        olds: whether the values before updates are kept.
        positions: whether positions are kept.

    Attributes:
        current: the headers of the records that are added next; None where they have none.
    """

    __slots__ = ("_headers", "current", "keys", "latest", "olds", "positions", "timestamps", "values")

    def __init__(self, *, olds: bool = False, positions: bool = False) -> None:
        self.keys: list[Any] = []
        self.values: list[Any] = []
        self.timestamps: list[int] = []
        self.olds: list[Any] | None = [] if olds else None
        self.latest: list[bool] | None = None
        self.positions: list[int] | None = [] if positions else None
        self.current: Headers | None = None
        self._headers: list[Headers] | None = None

    def add(
        self, key: Any, value: Any, timestamp: int, old: Any = None, latest: bool = True, position: int = 0
    ) -> None:
        """Append one record. ``old`` and ``position`` are kept only if the builder was made with them."""
        if self.olds is not None:
            self.olds.append(old)
        if self.positions is not None:
            self.positions.append(position)
        if self.latest is not None:
            self.latest.append(latest)
        elif not latest:
            self.latest = [True] * len(self.keys) + [False]
        if self._headers is not None:
            self._headers.append(self.current or NO_HEADERS)
        elif self.current:
            self._headers = [NO_HEADERS] * len(self.keys) + [self.current]
        self.keys.append(key)
        self.values.append(value)
        self.timestamps.append(timestamp)

    def truncate(self, size: int) -> None:
        """Forget all but the first ``size`` records."""
        columns: tuple[list[Any] | None, ...] = (self.keys, self.values, self.timestamps)
        for column in (*columns, self.olds, self.latest, self.positions, self._headers):
            if column is not None:
                del column[size:]

    def build(self) -> Batch:
        return Batch(self.keys, self.values, self.timestamps, self.olds, self.latest, self.positions, self._headers)
