"""What the processors of windowed aggregations share: their time, their store's horizon, what goes out and when.

Rule of this module: a batch is folded over a copy of the state that it touches, which is read once and written once.
Results are the same as record by record: a window that the store would have forgotten meanwhile is forgotten here too.

Kafka Streams keeps stream time in memory only, and reads final results back from a store that may have dropped them
already. Here stream time is kept beside the windows, and a window that closes is emitted before anything is dropped.

The layout ``WINDOWED_AGGREGATION`` is that of the store's kind (window or session), with metadata for each of the
processors on the store::

    "stream-time-<n>"    a ``KeptTime``: the greatest timestamp that the n-th of them has seen, counted from 0
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from millpond.processors.aggregations.aggregate import AggregateSetup, without_nulls
from millpond.processors.aggregations.closing import Closing, Window
from millpond.processors.aggregations.fold import copier, slotter
from millpond.processors.options.windows import EmitStrategy
from millpond.processors.runtime.batch import Batch
from millpond.processors.runtime.kept_time import KeptTime, stream_time_of
from millpond.processors.runtime.processor import Processor, ProcessorContext
from millpond.processors.tables.update_cache import UpdateForwarder
from millpond.stores.layouts import Layout
from millpond.stores.serdes import Serde
from millpond.stores.specs import StoreSpec
from millpond.stores.times import MIN_TIME

WINDOWED_AGGREGATION: Final = Layout("windowed-aggregation", 1)

NEVER: Final = MIN_TIME
"""Before all stream time."""


def windowed_aggregation_spec(spec: StoreSpec) -> StoreSpec:
    """The spec of a window or session store that also keeps the stream time of the processors on it."""
    return replace(spec, layout=WINDOWED_AGGREGATION)


class WindowedProcessor(Processor):
    """Drops records without a key or a value, keeps stream time, and forwards updates or final results.

    Args:
        setup: what is computed, and where it is kept.
        emit: when results go out.
        key_serde: of the windowed keys.
    """

    def __init__(self, setup: AggregateSetup, emit: EmitStrategy, key_serde: Serde[Any]) -> None:
        self._setup = setup
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

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        caching = self._caching and not self._final
        self._updates = UpdateForwarder(context, self._windowed_serde, caching=caching)
        self._store = context.store(self._setup.spec.name)
        self._kept_time = KeptTime(self._store, stream_time_of(self._setup.number))
        saved = self._kept_time.get()
        self._stream_time = self._saved_time = NEVER if saved is None else saved

    def process(self, batch: Batch) -> None:
        kept = without_nulls(self.context, batch)
        if not len(kept):
            return
        self._updates.send(self.fold(kept))

    @abstractmethod
    def fold(self, batch: Batch) -> Batch:
        """Fold in records, all with keys and values, write the store, and return the updates or final results."""

    def flush(self) -> None:
        if self._stream_time != self._saved_time:
            self._kept_time.put(self._stream_time)
            self._saved_time = self._stream_time
        self._updates.flush()

    def load_closing(
        self, batch: Batch, reach: int, ended: Callable[[int, int], Iterable[Any]], *, by_end: bool, grid: int = 1
    ) -> Closing:
        """The windows of the store that ``batch`` is going to close.

        Args:
            batch: the records to come.
            reach: a window is closed once stream time is this far past its start, or ``by_end`` its end.
            ended: reads the store's windows between two such times, both included.
            by_end: whether windows close by their ends.
            grid: such times are multiples of this.
        """
        closing = Closing(max(self._stream_time, *batch.timestamps, NEVER) - reach)
        first = self._stream_time - reach + 1
        if self._stream_time != NEVER and first <= closing.last - closing.last % grid:
            for (key, start, end), state in ended(first, closing.last):
                raw = self._encode(key)
                (id_,) = self._slots([key])
                window = Window(id_, start, end, key)
                closing.stored[window[:3]] = state
                closing.add(end if by_end else start, raw, window)
        return closing

    def newest(self) -> int:
        """The stream time by which the store forgets windows."""
        observed: int | None = self._store.observed_stream_time
        return NEVER if observed is None else observed
