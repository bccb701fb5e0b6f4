"""The change feed of a store between two micro-batches: which of its rows were inserted, updated and deleted.

Rule of this module: a feed is the difference of two looks at the rows that are there, whatever happened in between. It
is the same row as long as its key is, with its window or session, and of a version the time since which it is valid.
The columns of a feed::

    change    "insert", "update" or "delete"
    ...       those that tell which row it is: key; window_start and window_end; valid_from
    before    a struct of the others as they were; null for an insert
    after     the same as they are; null for a delete
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice
from math import gcd
from typing import Any, Final, NamedTuple

import pyarrow as pa

from millpond.adapters.inspect.changed_rows import ALL_DATA, RowsAt, all_rows, changed_rows
from millpond.adapters.inspect.selection import EVERYTHING, Selection
from millpond.adapters.inspect.store_form import KEY, VALID_FROM, WINDOW_END, WINDOW_START, Entry, StoreForm
from millpond.adapters.inspect.store_part import StorePart
from millpond.adapters.inspect.store_view import StoreView
from millpond.errors import ConfigurationError, StoreKindError
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.durability.parquet.rows import local_entries
from millpond.stores.durability.parquet.sources import Fetched
from millpond.stores.durability.parquet.spans import Span
from millpond.stores.encoding.keys import DATA, INDEX, METADATA, terminated
from millpond.stores.encoding.partitions import partitions_of
from millpond.stores.encoding.times import FARTHEST
from millpond.stores.evolution.record_keys import RecordKeys
from millpond.stores.evolution.shape import StoreShape
from millpond.stores.typed.windows.segments import METADATA_NAME as INTERVAL
from millpond.stores.typed.windows.window import SEQUENCE_NAME as SEQUENCE

CHANGE: Final = "change"
BEFORE: Final = "before"
AFTER: Final = "after"

_IDENTITY: Final = (KEY, WINDOW_START, WINDOW_END, VALID_FROM)
_LIMITS: Final = ("retention", "history_retention")
_ROWS: Final = 10_000
"""The number of changes in a batch."""


def changes(before: StoreView, after: StoreView, selection: Selection = EVERYTHING) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a store that differ between two micro-batches, task by task; see the module for the columns.

    Args:
        before: the store after one micro-batch.
        after: the same store after another one, from which the changes are told.
        selection: which rows are compared.

    Raises:
        ConfigurationError: these are not views of one store with the same columns, or the selection does not fit it.
        MissingFileError, CorruptFileError: the durable state is incomplete or damaged.
        SerdeError: a row that has changed cannot be read.
    """
    for part in change_parts(before, after):
        yield from part.rows(selection)


def change_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of the change feed of a store whose rows have those of ``schema``."""
    content = pa.struct([field for field in schema if field.name not in _IDENTITY])
    identity = [field for field in schema if field.name in _IDENTITY]
    sides = [pa.field(name, content) for name in (BEFORE, AFTER)]
    return pa.schema([pa.field(CHANGE, pa.string()), *identity, *sides])


def change_parts(before: StoreView, after: StoreView) -> list["ChangePart"]:
    """Return the parts of a change feed, which are independent of each other; see ``changes``."""
    was, now = before.partitions, after.partitions
    if (before.name, before.kind) != (after.name, after.kind) or not before.schema.equals(after.schema):
        raise _refusal(before, after, "they have not the same columns")
    if after.shape.is_global:
        return [ChangePart(tuple(before.parts), after.parts[0] if after.parts else None)] if before.parts else []
    if was != now and after.shape.layout is not None:
        raise _refusal(before, after, f"it was kept by {was} tasks and is kept by {now}")
    together = gcd(was, now)
    news = {_number(part): part for part in after.parts}
    found = []
    for number in range(now):
        olds = tuple(part for part in before.parts if _number(part) % together == number % together)
        if olds or number in news:
            owner = None if was == now else _Owner(before.shape, number, now)
            found.append(ChangePart(olds, news.get(number), owner))
    return found


class _Owner(NamedTuple):
    """The partition whose rows are compared, where rows of several were together before.

    Attributes:
        shape: the store as it was.
        number: the partition.
        partitions: how many there are.
    """

    shape: StoreShape
    number: int
    partitions: int

    def belonging(self, duplicates: bool, rows: Any) -> Sequence[bool]:
        """Return which rows belong to the partition."""
        keys = RecordKeys(self.shape, None, duplicates=duplicates).of_rows(rows)
        found: list[bool] = (partitions_of(keys, self.partitions) == self.number).tolist()
        return found


class _Change(NamedTuple):
    """An entry as it was, and as it is; None where there is none."""

    before: Entry | None
    after: Entry | None


@dataclass(frozen=True)
class ChangePart:
    """The change feed of one task. Can be pickled, and be read wherever the state directory can be reached.

    Attributes:
        before: the tasks that had its rows.
        after: the task; None if it has no state.
        owner: which of their rows are the task's; None for all.
    """

    before: tuple[StorePart, ...]
    after: StorePart | None
    owner: _Owner | None = None

    def rows(self, selection: Selection = EVERYTHING) -> Iterator[pa.RecordBatch]:
        """Yield the changes of the rows that are asked for, as a stream.

        Raises what ``changes`` raises.
        """
        with ExitStack() as stack:
            found = self._changes(selection, stack)
            while some := list(islice(found, _ROWS)):
                batch = _batch(some, self._form)
                if batch.num_rows:
                    yield batch

    @property
    def _form(self) -> StoreForm:
        return (self.after or self.before[0]).form

    def _changes(self, selection: Selection, stack: ExitStack) -> Iterator[_Change]:
        olds = [_rows_at(part, stack) for part in self.before]
        new = None if self.after is None else _rows_at(self.after, stack)
        beside = [one.metadata() for one in olds]
        beside_new = {} if new is None else new.metadata()
        duplicates = any(METADATA + SEQUENCE.encode() in one for one in (*beside, beside_new))
        belonging = None if self.owner is None else partial(self.owner.belonging, duplicates)
        span = _span(self._form, selection)
        intervals = {one.get(METADATA + INTERVAL.encode()) for one in (*beside, beside_new) if one}
        if len(intervals) > 1:
            found = iter([all_rows(olds, new, span, belonging)])
        else:
            numbered = duplicates or self._form.kind.versioned
            found = changed_rows(olds, new, span, belonging, numbered=numbered)
        for rows in found:
            before: dict[Any, Entry] = {}
            for part, metadata, some in zip(self.before, beside, rows.before, strict=True):
                before |= _entries(part.form, metadata, some, selection)
            after = {} if self.after is None else _entries(self.after.form, beside_new, rows.after, selection)
            for name in _merged(list(before), list(after)):
                change = _Change(before.get(name), after.get(name))
                if change.before != change.after:
                    yield change


def _rows_at(part: StorePart, stack: ExitStack) -> RowsAt:
    source = stack.enter_context(Fetched(part.storage, part.manifest))
    return RowsAt(source, part.manifest, part.form.name, part.form.kind)


def _span(form: StoreForm, selection: Selection) -> Span:
    """Return the span in which the selected rows lie; all data for stores in segments of time."""
    if form.kind.in_segments:
        return ALL_DATA
    ends = (None if key is None else form.key.to_bytes(key) for key in (selection.key_from, selection.key_to))
    first, stop = (key if key is None or not form.kind.versioned else terminated(key) for key in ends)
    return Span(DATA if first is None else DATA + first, INDEX if stop is None else DATA + stop)


def _entries(
    form: StoreForm, metadata: Mapping[bytes, bytes], rows: Mapping[bytes, bytes], selection: Selection
) -> dict[Any, Entry]:
    """Return the entries that some rows of a task are, by what tells which they are, in the order of the rows.

    Entries of one window that are only told apart by their order, where it may have several, are numbered.
    """
    backend = MemoryBackend()
    backend.load(local_entries(form.kind.format_version, sorted((*metadata.items(), *rows.items()))))
    seen: Counter[Any] = Counter()
    found = {}
    for entry in form.entries(_without_limits(form).open(backend), selection) if rows else ():
        name = (entry[0], entry[1].timestamp) if form.kind.versioned else entry[0]
        found[name, seen[name]] = entry
        seen[name] += 1
    return found


def _without_limits(form: StoreForm) -> StoreForm:
    """Return the form of all rows that are there, expired ones too."""
    if form.given is None:
        return form
    limits: Any = {name: FARTHEST for name in _LIMITS if getattr(form.given, name) is not None}
    return replace(form, given=replace(form.given, **limits))


def _merged(before: Sequence[Any], after: Sequence[Any]) -> Iterator[Any]:
    """Yield all names of two lists, in the order of either where they have the same one."""
    kept, left, rest = set(before), set(after), iter(before)
    for name in after:
        if name in kept:
            for other in rest:
                if other == name:
                    break
                if other not in left:
                    yield other
        yield name
    yield from (other for other in rest if other not in left)


def _batch(found: Sequence[_Change], form: StoreForm) -> pa.RecordBatch:
    """Return changes as rows, without updates of bytes that are shown as the same."""
    schema = change_schema(form.schema)
    before, after = _Shown.of([one.before for one in found], form), _Shown.of([one.after for one in found], form)
    names = ["insert" if one.before is None else "delete" if one.after is None else "update" for one in found]
    places = zip(before.places, after.places, strict=True)
    known = [old if new is None else before.rows.num_rows + new for old, new in places]
    identity = pa.concat_tables([before.rows, after.rows]).take(pa.array(known, pa.int64())).combine_chunks()
    contents = [side.contents(schema.field(AFTER).type) for side in (before, after)]
    columns = [identity.column(field.name).combine_chunks() for field in list(schema)[1:-2]]
    batch = pa.RecordBatch.from_arrays([pa.array(names, pa.string()), *columns, *contents], schema=schema)
    told = [repr(old) != repr(new) for old, new in zip(*(one.to_pylist() for one in contents), strict=True)]
    return batch if all(told) else batch.filter(pa.array(told))


class _Shown(NamedTuple):
    """One side of changes.

    Attributes:
        rows: its entries as rows.
        places: the row of each change; None where this side has none.
    """

    rows: pa.Table
    places: list[int | None]

    @classmethod
    def of(cls, entries: Sequence[Entry | None], form: StoreForm) -> "_Shown":
        """Return the entries, as far as there are any."""
        numbers = count()
        rows = pa.Table.from_batches(form.batches(one for one in entries if one is not None), form.schema)
        return cls(rows, [None if one is None else next(numbers) for one in entries])

    def contents(self, type_: Any) -> Any:
        """Return, for each change, a struct of the columns that do not identify the row."""
        taken = pa.array(self.places, pa.int64())
        rows = self.rows.combine_chunks().take(taken).combine_chunks()
        columns = [rows.column(field.name).combine_chunks() for field in type_]
        return pa.StructArray.from_arrays(columns, fields=list(type_), mask=taken.is_null())


def _number(part: StorePart) -> int:
    """Return the partition of a task."""
    return int(part.task_id.rpartition("_")[2])


def _refusal(before: StoreView, after: StoreView, reason: str) -> ConfigurationError:
    told = " and ".join(
        f"{view.name!r} after micro-batch {view.batch} ({view.kind}: "
        f"{', '.join(f'{field.name} {field.type}' for field in view.schema)})"
        for view in (before, after)
    )
    return StoreKindError(
        f"the changes between the stores {told} cannot be told: {reason}; compare micro-batches that are both "
        "before it became another one, or both after"
    )
