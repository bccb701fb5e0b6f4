"""``StoreForm``: the form in which a store's rows are read and shown, as far as the state itself tells it.

Rule of this module: what a record of the state does not tell is never guessed. That is how long a window is, which is
null then, and how long rows are retained, so that all rows are shown that are still there.

Columns, with times in UTC, of milliseconds for topologies and of microseconds for verbs::

    key                                     value    timestamp        key-value; the timestamp where the kind has one
    key    window_start    window_end       value    timestamp        windows and sessions, in the same way
    key                                     value    valid_from    valid_to        versioned
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from millpond.adapters.inspect.columns import KeyColumn, ShownColumn
from millpond.adapters.inspect.selection import Selection
from millpond.errors import StoreKindError
from millpond.stores.backend.contract import Backend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.keys import METADATA
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.encoding.times import FARTHEST, TimeUnit, to_instant, to_instant_micros
from millpond.stores.specs.store_spec import KeyForm, StoreKind, StoreSpec
from millpond.stores.typed.layouts import Layout
from millpond.stores.typed.terms import kept_terms
from millpond.stores.typed.versions.read_only_versioned import HISTORY
from millpond.stores.typed.windows.grids import EVERYWHERE, Grid
from millpond.stores.typed.windows.window import SEQUENCE_NAME

KEY: Final = "key"
WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"
VALUE: Final = "value"
TIMESTAMP: Final = "timestamp"
VALID_FROM: Final = "valid_from"
VALID_TO: Final = "valid_to"

_WINDOWED: Final = "windowed-aggregation"
"""A layout that adds nothing to the rows of its kind but metadata."""

_ROWS: Final = 10_000
"""The number of rows in a batch."""

Entry = tuple[bytes, Any]
"""The bytes of a key, or ``Windowed`` with them, and what the store has for it."""


def with_option(column: str) -> str:
    """Return a column of rows that are put, as errors tell it: with its option on the command line, if it has one.

    >>> with_option("valid_from"), with_option("key")
    ('valid_from (--valid-from)', 'key')
    """
    return column if column in (KEY, VALUE) else f"{column} ({_option(column)})"


def given_as(parameter: str, value: str) -> str:
    """Return a parameter with its value, as errors tell what to give: with its option on the command line.

    >>> given_as("application_id", "shop")
    "application_id='shop' (--application)"
    """
    return f"{parameter}={value!r} ({_option(parameter)})"


def _option(name: str) -> str:
    return f"--{name.removesuffix('_id').replace('_', '-')}"


def holds_entries(layout: Layout | None) -> bool:
    """Return whether the rows of a layout are single entries, as the kind of their store says."""
    return layout is None or layout.name == _WINDOWED


@dataclass(frozen=True)
class StoreForm:
    """The form in which the rows of a store are read and shown. Can be pickled.

    Attributes:
        name: the store's.
        kind: which of the kinds.
        layout: what lies in its rows beyond what the kind says.
        key, value: the columns of keys and values.
        unit: what its times count.
        given: the spec that the user has given, whose limits then count; None if only the state tells of the store.
        grid: where its windows begin and end, if they do so by a rule.
    """

    name: str
    kind: StoreKind
    layout: Layout | None
    key: KeyColumn
    value: ShownColumn
    unit: TimeUnit
    given: StoreSpec | None = None
    grid: Grid = EVERYWHERE

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        fields = [(KEY, self.key.type)]
        if self.kind.key_form is not KeyForm.PLAIN:
            fields += [(WINDOW_START, self._time), (WINDOW_END, self._time)]
        fields += [(VALUE, self.value.type)]
        if self.kind.versioned:
            fields += [(VALID_FROM, self._time), (VALID_TO, self._time)]
        elif self.kind.stamped:
            fields += [(TIMESTAMP, self._time)]
        return pa.schema(fields)

    def open(self, backend: Backend) -> Any:
        """Return the store over a backend that has its rows, with keys and values as bytes.

        Raises:
            FormatError: the rows are of another layout.
        """
        return self._spec(backend).open_read_only(Transaction(backend))

    def open_to_edit(self, transaction: Transaction) -> Any:
        """Return the store over a transaction, likewise, to be changed.

        Raises:
            FormatError: the rows are of another layout.
        """
        spec = self._spec(transaction.backend)
        if self.given is None and self.kind.versioned:
            history = kept_terms(self.name, None, transaction.backend).noted.get(HISTORY)
            spec = spec if history is None else replace(spec, history_retention=history)
        return spec.open(transaction)

    def entries(self, store: Any, selection: Selection) -> Iterator[Entry]:
        """Return the entries that are asked for, of keys in the order of their bytes, but for windows and sessions.

        Raises:
            ConfigurationError, SerdeError: the selection does not fit the store.
        """
        start, stop = (
            None if key is None else self.key.to_bytes(key) for key in (selection.key_from, selection.key_to)
        )
        if selection.as_of is None:
            return iter(store.fetch_keys(start, stop) if self.kind.in_segments else store.scan(start, stop))
        time = self.instant(selection.as_of)
        valid = (entry for entry in store.scan(start, stop) if entry[1].timestamp <= time)
        return (entry for entry in valid if entry[1].valid_to is None or time < entry[1].valid_to)

    def entries_of(self, store: Any, key: bytes) -> list[Entry]:
        """Return the entries of one key; of a versioned store, its latest version."""
        if self.kind.in_segments:
            return list(store.fetch_keys(key, key + b"\x00"))
        found = store.get(key)
        return [] if found is None else [(key, found)]

    def instant(self, time: Any) -> int:
        """Return a point in time as the store has it.

        Raises:
            ConfigurationError: the store keeps no versions, or it is no time.
        """
        if not self.kind.versioned:
            raise StoreKindError(
                f"store {self.name!r} is of kind {self.kind.value} and keeps no versions; leave as_of out, which is "
                "--as-of, or look at an earlier micro-batch"
            )
        return self.time(time, "as_of")

    def time(self, time: Any, what: str) -> int:
        """Return a point in time as the store has it, of milliseconds since 1970 or a datetime.

        Args:
            time: the point in time.
            what: its name in errors.

        Raises:
            ConfigurationError: it is no time.
        """
        return (to_instant if self.unit is TimeUnit.MILLISECOND else to_instant_micros)(time, what)

    def batches(self, entries: Iterable[Entry]) -> Iterator[pa.RecordBatch]:
        """Yield the entries as rows.

        Raises:
            SerdeError: a key or a value cannot be read.
        """
        source = iter(entries)
        while part := list(islice(source, _ROWS)):
            yield self._batch(*zip(*part, strict=True))

    def _batch(self, keys: Sequence[Any], found: Sequence[Any]) -> pa.RecordBatch:
        windowed, stamped = self.kind.key_form is not KeyForm.PLAIN, self.kind.stamped
        columns = [self.key.read([one.key for one in keys] if windowed else keys)]
        if windowed:
            known = self.kind.key_form is KeyForm.SESSION or self.given is not None
            columns += [self._times([one.start for one in keys])]
            columns += [self._times([one.end if known else None for one in keys])]
        values = [one.value for one in found] if stamped else found
        starts = [self.grid.begin(one.start) for one in keys] if windowed else []
        columns += [self.value.read_in(values, starts) if windowed else self.value.read(values)]
        if stamped:
            columns += [self._times([one.timestamp for one in found])]
        if self.kind.versioned:
            columns += [self._times([one.valid_to for one in found])]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    @property
    def _time(self) -> Any:
        return pa.timestamp("us" if self.unit is TimeUnit.MICROSECOND else "ms", "UTC")

    def _times(self, times: Sequence[int | None]) -> Any:
        return pa.array(times, pa.int64()).cast(self._time)

    def _spec(self, backend: Backend) -> StoreSpec:
        """Return the spec of the store with bytes; without a given one, with limits that hide nothing."""
        if self.given is not None:
            limits = {name: getattr(self.given, name) for name in self._limits}
        else:
            limits = dict.fromkeys(self.kind.traits.needed, FARTHEST)
            if "retain_duplicates" in self.kind.traits.optional:
                limits["retain_duplicates"] = backend.get(METADATA + SEQUENCE_NAME.encode()) is not None
        return StoreSpec(self.name, self.kind, BYTES, BYTES, layout=self.layout, **limits)

    @property
    def _limits(self) -> tuple[str, ...]:
        return self.kind.traits.needed + self.kind.traits.optional
