"""The conversion of a store to another kind: plain, timestamped or versioned, each of them from each other.

Rule of this module: the rows of the new kind are as if the entries of the old store had been put into it in the order
of time. So nothing comes too late, and nothing expires. It works on whole columns as durable files have them, and knows
neither partitions nor its callers. Losses are counted in ``millpond.stores.evolution.losses``.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.errors import UnreadableRowError
from millpond.stores.encoding.column_keys import TO_THE_END, pack_times, time_at, unescaped_column
from millpond.stores.encoding.column_serdes import from_big_endian, to_big_endian
from millpond.stores.encoding.keys import DATA, TERMINATOR, TIME_SIZE, pack_time
from millpond.stores.evolution.old_rows import Columns, OldRows, as_rows
from millpond.stores.specs.formats import FormatVersion
from millpond.stores.specs.store_spec import StoreKind
from millpond.stores.typed.expiry import CLOCK_NAME, TIMED_NAME
from millpond.stores.typed.observed_stream_time import METADATA_NAME as OBSERVED
from millpond.stores.typed.terms import TERMS
from millpond.stores.typed.timestamped_keyvalue import TIMESTAMP_SIZE, UNKNOWN_TIMESTAMP
from millpond.stores.typed.versions.version_row_columns import Integers, stems_of
from millpond.stores.typed.versions.version_rows import LIVE, TOMBSTONE

pc: Any = _compute
Array = Any
"""An Arrow array."""

CONVERTIBLE: Final = (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.VERSIONED)
"""The kinds that can become each other."""

_LEFT_OUT: Final = (OBSERVED, TERMS, CLOCK_NAME, TIMED_NAME)
"""Metadata that stores of another kind do not have; timers are written again."""

_NOTHING: Final = b""
_END: Final = len(TERMINATOR)


@dataclass(frozen=True)
class Conversion:
    """The conversion of the rows of one store to another kind.

    Attributes:
        before, after: two different kinds that can become each other.
        valid_from: the time from which a value without a known timestamp is valid as a version, in milliseconds; None
            if nobody has declared it, which suffices as long as all timestamps are known.
        observed: for a store that becomes versioned, the latest of its times in each old partition that has any.
    """

    before: StoreKind
    after: StoreKind
    valid_from: int | None = None
    observed: Mapping[int, int] = field(default_factory=dict)

    @property
    def read_as(self) -> StoreKind:
        """The kind that reads the old rows, with their timestamps if the new kind has any."""
        if self.before.versioned:
            return self.before
        return StoreKind.TIMESTAMPED_KEY_VALUE if self.after.stamped else self.after

    def observed_in(self, partition: int | None) -> int | None:
        """Return the stream time that one old partition has observed, or, for None, the latest of all."""
        return max(self.observed.values(), default=None) if partition is None else self.observed.get(partition)

    def columns(self, old: Iterable[Columns]) -> Iterator[Columns]:
        """Return the rows of the new kind, in key order.

        Args:
            old: the rows of the old kind, as ``read_as`` reads them.

        Raises:
            UnreadableRowError: a row of a versioned store is damaged.
        """
        if self.after.versioned:
            return (_versions(keys, values, self.valid_from) for keys, values in map(_data_rows, old))
        if self.before.versioned:
            return (versions.entries(stamped=self.after.stamped) for versions in latest_versions(old))
        return map(_data_rows, old)


class Versions(NamedTuple):
    """Some versions of a versioned store.

    Attributes:
        stems: the beginnings of the rows: all but the time.
        starts: the packed times.
        versions: the bytes of the versions.
    """

    stems: Array
    starts: Array
    versions: Array

    @property
    def times(self) -> Integers:
        """The times from which they are valid."""
        return time_at(self.starts, 0)

    def entries(self, *, stamped: bool) -> Columns:
        """Return the rows of a key-value store with these values, timestamped or plain."""
        keys = unescaped_column(pc.binary_slice(self.stems, len(DATA), -_END))
        values = pc.binary_slice(self.versions, len(LIVE), TO_THE_END)
        if stamped:
            values = pc.binary_join_element_wise(to_big_endian(pa.array(self.times)), values, _NOTHING)
        return pc.binary_join_element_wise(DATA, keys, _NOTHING), values


def latest_versions(old: Iterable[Columns]) -> Iterator[Versions]:
    """Yield the latest version of each key of a versioned store, without tombstones.

    Raises:
        UnreadableRowError: a row is damaged.
    """
    held: Columns | None = None
    for keys, values in old:
        keys, values = _data_rows((keys, values))
        if held is not None:
            keys, values = pa.concat_arrays([held[0], keys]), pa.concat_arrays([held[1], values])
        stems = pc.binary_slice(keys, 0, -TIME_SIZE)
        last = pc.not_equal(stems[:-1], stems[1:])
        yield _live(keys[:-1].filter(last), values[:-1].filter(last))
        held = keys[-1:], values[-1:]  # the next part may have later versions of its key
    if held is not None:
        yield _live(*held)


def _data_rows(columns: Columns) -> Columns:
    """Yield rows without those of an index, which come behind them."""
    keys, values = columns
    number = pc.sum(pc.starts_with(keys, DATA)).as_py() or 0
    return keys.slice(0, number), values.slice(0, number)


def _live(keys: Array, values: Array) -> Versions:
    """Return the rows of versions that are no tombstones."""
    stems = pc.binary_slice(keys, 0, -TIME_SIZE)
    live = pc.starts_with(values, LIVE)
    damaged = pc.invert(pc.and_(pc.ends_with(stems, TERMINATOR), pc.or_(live, pc.equal(values, TOMBSTONE))))
    if pc.any(damaged).as_py():
        row = keys.filter(damaged)[0].as_py()
        raise UnreadableRowError(f"the row {row!r} is no version of a key, or its value is damaged")
    return Versions(stems.filter(live), pc.binary_slice(keys.filter(live), -TIME_SIZE, TO_THE_END), values.filter(live))


def times_of(values: Array) -> Integers:
    """Return the timestamps of values of a timestamped store."""
    times: Integers = from_big_endian(pc.binary_slice(values, 0, TIMESTAMP_SIZE), pa.int64()).to_numpy()
    return times


def _versions(keys: Array, values: Array, valid_from: int | None) -> Columns:
    """Return each value of a timestamped store as the only version of its key, which needs no row in the index."""
    times = times_of(values)
    if valid_from is not None:
        times = np.where(times == UNKNOWN_TIMESTAMP, valid_from, times)
    stems = stems_of(pc.binary_slice(keys, len(DATA), TO_THE_END))
    rows = pc.binary_join_element_wise(stems, TERMINATOR, pack_times(times), _NOTHING)
    return rows, pc.binary_join_element_wise(LIVE, pc.binary_slice(values, TIMESTAMP_SIZE, TO_THE_END), _NOTHING)


class ConvertedRows:
    """An old store in one old partition as a store of the new kind: the counterpart of ``OldRows`` for that.

    Args:
        old: the store, read as ``conversion.read_as``.
        conversion: the conversion.
        observed: the stream time that it has observed; None where the new kind knows none, or there was none.
    """

    def __init__(self, old: OldRows, conversion: Conversion, observed: int | None) -> None:
        self.name = old.name
        self.kind = conversion.after
        self._old = old
        self._conversion = conversion
        self._observed = observed

    @property
    def format_version(self) -> FormatVersion:
        """The format, as ``OldRows.format_version``."""
        version = self.kind.format_version
        return version if version is FormatVersion.TIMESTAMPED else FormatVersion.PLAIN

    @property
    def holds_any(self) -> bool:
        """True if the old store has a row."""
        return self._old.holds_any

    @cached_property
    def metadata(self) -> dict[str, bytes]:
        """The metadata, by name: of the observed stream time, as a store of the new kind has it."""
        kept = {name: data for name, data in self._old.metadata.items() if name not in _LEFT_OUT}
        return kept if self._observed is None else {**kept, OBSERVED: pack_time(self._observed)}

    def get_metadata(self, name: str) -> bytes | None:
        """Return the metadata under that name."""
        return self.metadata.get(name)

    def metadata_names(self, prefix: str) -> list[str]:
        """Return the names of the metadata that begin with ``prefix``."""
        return [name for name in self.metadata if name.startswith(prefix)]

    def columns(self) -> Iterator[Columns]:
        """Yield all rows but metadata, in key order."""
        return (part for part in self._conversion.columns(self._old.columns()) if len(part[0]))

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Return the same as objects."""
        rows: Any = as_rows(self.columns())
        return chain.from_iterable(zip(*some, strict=True) for some in rows)
