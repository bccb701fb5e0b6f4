"""The common part of windowed aggregations: their time, the horizon of their store, and the results as they come out.

Rule of this module: a batch is folded over a copy of the state that it touches, which is read once and written once.
Results are the same as record by record: a window that the store would have forgotten meanwhile is forgotten here too.

Kafka Streams keeps stream time in memory only, and reads final results back from a store that may have dropped them
already. Here stream time is kept beside the windows, and a window that closes is emitted before anything is dropped.

The layout ``WINDOWED_AGGREGATION`` is that of the store's kind (window or session), with metadata for each of the
processors on the store::

    "stream-time-<n>"    a ``KeptTime``: the greatest timestamp that the n-th of them has seen, counted from 0; for
                         final results under a longer grace than before, ahead of it by what was added
    "completion-<n>"     a ``KeptTime``: the stream time at which its input was complete, for final results
    "changed-<n>"        MessagePack: ``[key, start, end, value that has come out]`` of each window up to that time that
                         has changed since and has not come out again, or has been carried from a partition whose time
                         was behind; an end that follows from the start may be nil
    "waiting-<n>"        ``WaitingCounts``, for final results: how many windows will still come out, as of the time up
                         to which windows have closed
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from millpond.errors import BegunAlreadyError
from millpond.processors.aggregations.aggregate import Addition, AggregateSetup, columns_without_nulls, without_nulls
from millpond.processors.aggregations.closing import Closing, Window
from millpond.processors.aggregations.column_fold import ColumnFold
from millpond.processors.aggregations.completion import COMPLETION, Completion
from millpond.processors.aggregations.fold import copier, slotter
from millpond.processors.aggregations.window_fold import Folded, Integers, Standing, WindowFold, reached_since, times_of
from millpond.processors.options.changed_windows import ChangedWindows
from millpond.processors.options.windows import EmitStrategy, SessionWindows, TimeWindows, Windows, own_gap
from millpond.processors.runtime.batches.batch import Batch, BatchBuilder
from millpond.processors.runtime.batches.columns import Columns, Records
from millpond.processors.runtime.batches.partials import Combiner
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.kept_time import STREAM_TIME, KeptTime, stream_time_of
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.runtime.promises import Promises
from millpond.processors.runtime.waiting_counts import WaitingCounts, waiting_of
from millpond.processors.tables.update_cache import UpdateForwarder
from millpond.stores.encoding.column_serdes import ColumnSerde, column_serde
from millpond.stores.encoding.serdes import PLAIN_KEYS, Serde
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME, TimeUnit
from millpond.stores.specs.store_spec import StoreSpec
from millpond.stores.typed.layouts import Layout
from millpond.stores.typed.set_back import SetBack
from millpond.stores.typed.terms import SINCE, USUAL, Term, Terms
from millpond.stores.typed.windows.grids import EVERYWHERE, Grid
from millpond.stores.typed.windows.windowed import Windowed


def _set_back(store: Any, done: SetBack) -> None:
    """Set the stream times back, and those at which inputs were complete."""
    for kept in (STREAM_TIME, COMPLETION):
        for name in store.metadata_names(f"{kept}-"):
            KeptTime(store, name).set_back(done)


WINDOWED_AGGREGATION: Final = Layout("windowed-aggregation", 1, _set_back)

NEVER: Final = MIN_TIME
"""Before all stream time."""


GRACE: Final = "grace"
"""The name of the grace in the notes of the store's terms."""

_RESULT: Final = "result"
"""The name there of results that count only records from some time on."""

_PLACES: Final = ("max_length", "offset", "zone", "week_start")
"""The parameters that move windows of time, or cuts of sessions; windows that do not name them have usual values."""

_MAY_CHANGE: Final = ("size", "advance", "gap", *_PLACES)
"""The parameters of windows that may change from some time on."""


def since_named(what: str, time: int) -> str:
    """Return the name that terms have for something of windows that begin from some time on."""
    return what if time == MIN_TIME else f"{what}{SINCE}{TimeUnit.MICROSECOND.shown(time)}"


def _noted(addition: Addition) -> str:
    """Return the name that terms have for a result that counts only records from some time on."""
    return since_named(f"{_RESULT} {addition.place}", addition.since)


def windowed_aggregation_spec(
    spec: StoreSpec, windows: Windows, emit: EmitStrategy, additions: Sequence[Addition] = ()
) -> StoreSpec:
    """Return the spec of a window or session store that also keeps the stream time of the processors on it.

    Args:
        spec: the store's spec.
        windows: the windows that records are folded into.
        emit: the time at which results go out.
        additions: the parts of the aggregates that count only records from some time on.
    """
    eras = [(MIN_TIME, windows)]
    if isinstance(windows, ChangedWindows):
        eras = [(span.first, one) for span, one in zip(windows.spans, windows.eras, strict=True)]
    first = eras[0][1]
    lengths, named = dict[str, Term](), set[str]()
    for since, one in eras:
        named |= one.terms.keys() & set(_PLACES)
        every = {name: USUAL[name] for name in _PLACES if name in named} | dict(one.terms)
        lengths |= {since_named(name, since): value for name, value in every.items()}
    fixed = {"windows": type(first).__name__, **lengths, "emit": emit.value}
    noted = {since_named(GRACE, since): one.grace for since, one in eras}
    # With a shorter one, windows whose final results have not come out would be forgotten.
    lasting = tuple(noted) if emit is EmitStrategy.ON_WINDOW_CLOSE else ()
    noted |= {_noted(one): one.since for one in additions}
    terms = Terms(
        tuple(fixed.items()),
        tuple(noted.items()),
        lasting,
        maker="a windowed aggregation",
        changing=_MAY_CHANGE if isinstance(first, TimeWindows | SessionWindows) and own_gap(first) is None else (),
    )
    return replace(spec, layout=WINDOWED_AGGREGATION, terms=terms)


Change = tuple[tuple[Any, int, int], Any, bool, bool]
"""A window's id, start and end; its key; whether it was there before the batch, and whether it is there now."""

_new = tuple.__new__


class Closes(NamedTuple):
    """The closing of windows.

    Attributes:
        fetch: reads the store's windows between two times, both included: their places, or their ends.
        closed: the last of these times whose window has closed, by stream time.
        end: the end of a window by its place, if windows go by their places; None if they go by their ends.
        grid: the times at which windows may begin.
    """

    fetch: Callable[[int, int], Iterable[Any]]
    closed: Callable[[int], int]
    end: Callable[[int], int] | None = None
    grid: Grid = EVERYWHERE

    @property
    def by_end(self) -> bool:
        """True if windows go by their ends."""
        return self.end is None


class WindowedProcessor(Operator):
    """Drops records without a key or a value, keeps stream time, and forwards updates or final results.

    Args:
        setup: the computation, and its store.
        emit: the time at which results go out.
        key_serde: the serde of the windowed keys.

    Attributes:
        told_by: other processors that report late records, each up to some time.
    """

    def __init__(self, setup: AggregateSetup, emit: EmitStrategy, key_serde: Serde[Any]) -> None:
        self._setup = setup
        self.promises = Promises(commutes=setup.aggregation.commutes)
        self._config = setup.config
        self._update = setup.aggregation.update
        self._initializer = setup.aggregation.initializer
        self._copy = copier(setup.spec.value_serde)
        self._encode = setup.spec.key_serde.serialize
        self._slots = slotter(setup.spec.key_serde)
        self._final = emit is EmitStrategy.ON_WINDOW_CLOSE
        self._caching = setup.caching
        self._windowed_serde = key_serde
        assert setup.spec.retention is not None
        self._retention = setup.spec.retention
        self._late = 0
        self._late_at: list[int] | None = None
        self.told_by: Sequence[tuple[WindowedProcessor, int]] = ()

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        caching = self._caching and not self._final
        self._updates = UpdateForwarder(context, self._windowed_serde, caching=caching)
        self._store = context.store(self._setup.spec.name)
        self._kept_time = KeptTime(self._store, stream_time_of(self._setup.number))
        saved = self._kept_time.get()
        self._stream_time = self._saved_time = NEVER if saved is None else saved
        setup = self._setup
        self._closes = self.closes()
        if saved is None and setup.span.first != MIN_TIME:
            self._stream_time = self._begun()
        for addition in setup.aggregation.additions:
            self._check_free(addition)
        resumed = self._resumed(self._stream_time)
        self._seen = None if self._final or resumed == self._stream_time else self._stream_time
        self._stream_time = resumed
        self._completion = Completion(
            self._store, setup.number, self._encode, setup.spec.value_serde, end=self._closes.end
        )
        self._completion.close(self._closed)
        self._waiting = 0
        if self._final:
            self._kept_count = WaitingCounts(self._store, waiting_of(setup.number), 1, self._scan_waiting)
            (self._waiting,) = self._kept_count.bring_up(None if self._stream_time == NEVER else self._closed)
            self._saved_waiting = self._waiting
            context.level(CounterName.WAITING, lambda: self.waiting)
        self._columns = self._make_column_fold()

    def _begun(self) -> int:
        """Return the stream time of windows that are others than those before them, when they are met first.

        Raises:
            StateConflictError: they begin at a time that records have reached, which are not in them.
        """
        before = KeptTime(self._store, stream_time_of(self._setup.number - 1)).get()
        since = self._setup.span.first
        if before is not None and before >= since:
            shown = TimeUnit.MICROSECOND.shown
            earliest = shown(self._closes.grid.next(before))
            raise BegunAlreadyError(
                f"the windows of the store {self._setup.spec.name!r} are to be others from {shown(since)} on, but rows "
                f"have come up to {shown(before)}, and some would be missing in them; the earliest time that is free "
                f"is {earliest!r}: write it in until"
            )
        return NEVER if before is None else before

    def _check_free(self, addition: Addition) -> None:
        """Refuse a new result that counts records from some time on, if such records have come already.

        Raises:
            StateConflictError: they have come, and would be missing in the result.
        """
        name, _, since = addition
        if self._stream_time < since or self._store.noted(_noted(addition)) is not None:
            return
        shown, another = TimeUnit.MICROSECOND.shown, f"{name}_2"
        earliest = shown(self._stream_time + 1)
        raise BegunAlreadyError(
            f"the result {name!r} of the store {self._setup.spec.name!r} is to be true since {shown(since)}, but rows "
            f"have come up to {shown(self._stream_time)}, and some would be missing in it; the earliest time that is "
            f"free is {earliest!r}: give the result a name that is free, such as {another!r}, with "
            f"added={{{another!r}: {earliest!r}}}, dropped=[{name!r}]"
        )

    def _resumed(self, stream_time: int) -> int:
        """Return the stream time to go on with, so that closed windows stay closed under any grace.

        Under a longer grace, it is ahead by the difference. Under a shorter one, records of closed windows are late. If
        updates come out, the time seen is kept, and a note says how long windows have really stayed open. So the time
        is ahead as long as it must be, and not under a grace that is as short as it was.
        """
        before: int | None = self._store.noted(since_named(GRACE, self._setup.span.first))
        if before is None or stream_time == NEVER:
            return stream_time
        return stream_time + max(self.grace - before, 0)

    def _make_column_fold(self) -> WindowFold | None:
        """Return the fold over whole columns; None if values, state or results have to be objects."""
        spec, fold = self._setup.spec, self._setup.aggregation.columns
        keys, values = column_serde(spec.key_serde), column_serde(spec.value_serde)
        untold = self._config.send_olds and self._final
        if not (self._final or self._caching) or untold or spec.key_serde not in PLAIN_KEYS:
            return None
        if fold is None or keys is None or values is None or not values.takes(fold.result):
            return None
        return self.column_fold(fold, keys, values)

    @property
    def _closed(self) -> int:
        """The time up to which windows have closed; results in those after it wait."""
        return NEVER if self._stream_time == NEVER else max(self._closes.closed(self._stream_time), NEVER)

    def _scan_waiting(self) -> list[int]:
        return [len(self.load_closing(MAX_TIME).stored)]

    @property
    def combiner(self) -> Combiner | None:
        combiner = self._setup.aggregation.combiner
        forwards_last = self._final or self._caching
        return combiner if combiner is not None and combiner.spares and forwards_last else None

    def process(self, batch: Batch) -> None:
        kept = without_nulls(self.context, batch)
        if len(kept):
            self.context.attempt(self._fold, kept)

    def process_columns(self, columns: Columns) -> None:
        fold = self._columns
        if fold is None or self._completion.happened or not fold.takes(columns, self._stream_time):
            self.process(columns.to_batch())
            return
        kept = columns_without_nulls(self.context, columns)
        if len(kept):
            self._fold_columns(kept, fold)

    def process_partials(self, partials: Records, rest: Columns | None = None) -> bool:
        fold = self._columns
        if fold is None or self._completion.happened or not isinstance(partials, Columns):
            return False
        columns = partials.slice(0, 0) if rest is None else rest
        if not all(fold.takes(some, self._stream_time) for some in (partials, columns) if len(some)):
            return False
        kept = columns.present(values=True)
        try:
            folded = fold.fold(kept, Standing(self._stream_time, self.newest(), self._waiting), partials)
        except pa.ArrowInvalid:
            folded = None
        if folded is None:
            return False
        self.context.count(CounterName.DROPPED_NULL, len(columns) - len(kept))
        self._take(kept, folded)
        self._see(max(int(some.timestamps.max()) for some in (partials, kept) if len(some)))
        return True

    def _fold_columns(self, columns: Columns, fold: WindowFold) -> None:
        try:
            folded = fold.fold(columns, Standing(self._stream_time, self.newest(), self._waiting))
        except pa.ArrowInvalid:
            folded = None  # A row is damaged, and reading them one by one says which and why.
        if folded is None:
            self._fold_parts(fold.cut(columns, self._stream_time), fold)
            return
        self._take(columns, folded)
        self._see(int(columns.timestamps.max()))

    def _take(self, columns: Columns, folded: Folded) -> None:
        """Go on with the outcome of folding some records."""
        self._late, self._late_at = folded.late, None
        self._note_late(columns, self._stream_time)
        self._stream_time, self._waiting = folded.stream_time, folded.waiting
        self._updates.replaced(folded.replaced)
        self._updates.send_columns(folded.results)

    def _fold_parts(self, parts: list[Columns], fold: WindowFold) -> None:
        if len(parts) == 1:
            self.process(parts[0].to_batch())
            return
        for part in parts:
            self._fold_columns(part, fold)

    def _fold(self, batch: Batch) -> None:
        stream_time, changed = self._stream_time, self._completion.memory()
        self._late_at = None
        try:
            updates = self.fold(batch)
        except Exception:  # a user's code may raise anything
            self._stream_time = stream_time
            self._completion.restore(changed)
            raise
        self._note_late(batch, stream_time)
        self._see(max(batch.timestamps))
        self._updates.send(updates)

    def _note_late(self, records: Records, stream_time: int) -> None:
        """Count the records that the last fold left out, once for each window, and tell of them.

        Args:
            records: the records of the last fold.
            stream_time: the stream time before the first of them.
        """
        if self._late:
            times = times_of(records)
            reached = reached_since(stream_time, times)
            short = self.short_by(records, reached)
            late = short > 0
            if self._late_at is not None:
                late = np.isin(np.arange(len(times)), self._late_at)
            for other, last in self.told_by:
                late &= (times > last) | (other.short_by(records, reached) <= 0)
            self.context.count(CounterName.DROPPED_LATE, self._late)
            self.context.tell_late(CounterName.DROPPED_LATE, records, late, reached, short, self.grace)

    def advance(self, time: int) -> None:
        self.reach(time)
        super().advance(time)

    def reach(self, time: int) -> None:
        """Let stream time be ``time``, if that is later; children are not told."""
        if time > self._stream_time:
            if self._final:
                closing = self.load_closing(time)
                self._send_closed(closing)
            self._stream_time = time
        self._see(time)

    def _see(self, time: int) -> None:
        """Note the time of a record, where stream time is ahead of those that have come."""
        if self._seen is not None:
            seen = max(self._seen, time)
            self._seen = seen if seen < self._stream_time else None

    @property
    def final(self) -> bool:
        """True if only final results come out."""
        return self._final

    @property
    def waiting(self) -> int:
        """The number of windows that wait for their final results."""
        return self._waiting

    def _send_closed(self, closing: Closing) -> None:
        """Forward the results of windows that no record changes any more."""
        out = BatchBuilder(olds=self._config.send_olds)
        for window in closing.due(closing.last):
            self.emit(out, window, closing.stored[window[:3]])
        self._waiting -= len(closing.stored)
        self._updates.send(out.build())

    @abstractmethod
    def fold(self, batch: Batch) -> Batch:
        """Fold in records, all with keys and values, write the store, and return the updates or final results.

        It sets ``_late`` to how many are late, each for every window, and, where ``short_by`` does not say which,
        ``_late_at`` to their places. If it raises, it has written nothing.
        """

    @property
    @abstractmethod
    def grace(self) -> int:
        """The time after its end for which a window takes records, in milliseconds."""

    @abstractmethod
    def short_by(self, records: Records, reached: Integers) -> Integers:
        """Return by how much the grace was too short for late records; 0 or less for those in time.

        Args:
            records: the records.
            reached: stream time at each.
        """

    def flush(self) -> None:
        time = self._stream_time if self._seen is None else self._seen
        moved = time != self._saved_time
        if self._final and (moved or self._waiting != self._saved_waiting):
            self._kept_count.put(self._closed, [self._waiting])
            self._saved_waiting = self._waiting
        if moved:
            self._kept_time.put(time)
            self._saved_time = time
        self._store.note(since_named(GRACE, self._setup.span.first), self.grace - (self._stream_time - time))
        self._completion.close(self._closed)
        self._completion.save(closed=self._closed)
        self._updates.flush()

    def complete(self) -> None:
        if not self._final or self._stream_time == NEVER:
            return
        # Windows begin after stream time where a partition that was ahead has become one with others.
        closing = self.load_closing(MAX_TIME)
        place = 2 if self._closes.by_end else 1
        last = max((window[place] for window in closing.stored), default=self._stream_time)
        self._send_closed(closing)
        self._completion.let_out_all(max(last, self._stream_time))

    def load_closing(self, newest: int) -> Closing:
        """Return the stored windows that close by the stream time ``newest`` and have not come out."""
        closes = self._closes
        by_end = closes.by_end
        closing = Closing(closes.closed(max(self._stream_time, newest)))
        first = closes.closed(self._stream_time) + 1
        if self._stream_time != NEVER and first <= closes.grid.last(closing.last):
            found = list(closes.fetch(first, closing.last))
            ids = self._slots([key for (key, _, _), _ in found])
            for id_, ((key, start, end), state) in zip(ids, found, strict=True):
                window = Window(id_, start, end, key)
                if not self._completion.has_let_out(window):
                    closing.stored[window[:3]] = state
                    closing.add(end if by_end else start, self._encode(key), window)
        return closing

    def emit(self, out: BatchBuilder, window: Window, state: Any) -> None:
        """Add the final result of a window, if it has one; ``state`` is what the store has for it."""
        result = None if state is None else self.result(window, state)
        if result is not None:
            _, place, end, key = window
            before = self._completion.before(window) if self._completion.happened else None
            out.add(_new(Windowed, (key, self._closes.grid.begin(place), end)), *result, before)

    def note_changes(self, closing: Closing, closed: int, changes: Iterable[Change]) -> None:
        """Keep up the number of windows that wait, once the records of a batch are folded in.

        Args:
            closing: the windows that closed within the batch.
            closed: the time up to which windows had closed before it.
            changes: the changes of windows by records.
        """
        gone = set(closing.stored)
        now_closed, position = self._closed, 2 if self._closes.by_end else 1
        let_out = self._completion.has_let_out if self._completion.happened else None
        waiting = self._waiting + self._completion.take_returned()
        for place, key, was_there, is_there in changes:
            time = place[position]
            gone.discard(place)
            if was_there and time > closed and (let_out is None or not let_out(Window(*place, key))):
                waiting -= 1
            if is_there and time > now_closed:
                waiting += 1
        self._waiting = waiting - len(gone)

    def key_times(
        self, batch: Batch, ids: list[Any], ends: list[int] | None = None
    ) -> tuple[dict[Any, Any], list[int], list[int]]:
        """Return the keys of a batch by their ``ids``, and for each its records' least timestamp and greatest end.

        Args:
            batch: the records.
            ids: tell their keys from others.
            ends: the times until which they last; by default, their timestamps.
        """
        keys = dict(zip(ids, batch.keys, strict=True))
        first, last = dict.fromkeys(keys, max(batch.timestamps)), dict.fromkeys(keys, NEVER)
        for id_, timestamp, end in zip(ids, batch.timestamps, ends or batch.timestamps, strict=True):
            if timestamp < first[id_]:
                first[id_] = timestamp
            if end > last[id_]:
                last[id_] = end
        return keys, list(first.values()), list(last.values())

    def column_fold(self, fold: ColumnFold, keys: ColumnSerde, values: ColumnSerde) -> WindowFold | None:
        """Return the fold of whole columns into these windows; None if they have to be objects.

        Args:
            fold: the aggregate.
            keys, values: the store's serdes, for whole columns.
        """
        return None

    @abstractmethod
    def closes(self) -> Closes:
        """Return the closing of windows; the store is open."""

    @abstractmethod
    def result(self, window: Window, state: Any) -> tuple[Any, int] | None:
        """Return value and timestamp of a final result from the store's entry for a window; None for no value."""

    def newest(self) -> int:
        """Return the stream time by which the store forgets windows."""
        observed: int | None = self._store.observed_stream_time
        return NEVER if observed is None else observed
