"""Aggregation by key and window, where windows are others from some time on.

One store has the windows of all eras: each begins within one of them, and none in two. So each era has a processor of
its own on it, which gets the records that may be in its windows, and knows no others. All have one stream time, also
where the records that move it are of other eras.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from millpond.processors.aggregations.aggregate import columns_without_nulls, without_nulls
from millpond.processors.aggregations.window_fold import Integers
from millpond.processors.aggregations.windowed_processor import NEVER, WindowedProcessor
from millpond.processors.options.windows import Span
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.runtime.promises import Promises


class ChangedAggregate(Operator):
    """Lets the processor of each era fold in the records that may be in its windows.

    Args:
        eras: the processors.
        taken: for each, the span of records that may be in its windows.
    """

    def __init__(self, eras: Sequence[WindowedProcessor], taken: Sequence[Span]) -> None:
        self._eras = list(zip(eras, taken, strict=True))
        self.promises = Promises(commutes=all(era.promises.commutes for era in eras))
        for number, era in enumerate(eras):
            # A record that is late for windows of two eras is told of once.
            era.told_by = [(other, span.last) for other, span in self._eras[:number]]

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        for era, _ in self._eras:
            era.init(context)
        if self._eras[0][0].final:
            context.level(CounterName.WAITING, lambda: sum(era.waiting for era, _ in self._eras))

    def process(self, batch: Batch) -> None:
        kept = without_nulls(self.context, batch)
        for era, within in self._parts(np.asarray(kept.timestamps, np.int64)):
            era.process(kept if within.all() else kept.select(within.tolist()))

    def process_columns(self, columns: Columns) -> None:
        kept = columns_without_nulls(self.context, columns)
        for era, within in self._parts(kept.timestamps):
            era.process_columns(kept if within.all() else kept.select(within))

    def advance(self, time: int) -> None:
        for era, _ in self._eras:
            era.reach(time)
        super().advance(time)

    def flush(self) -> None:
        for era, _ in self._eras:
            era.flush()

    def complete(self) -> None:
        for era, _ in self._eras:
            era.complete()

    def _parts(self, times: Integers) -> Iterator[tuple[WindowedProcessor, npt.NDArray[np.bool_]]]:
        """Yield each era that takes some of the records, with a mask of them.

        Afterward it has seen the time of all these records, before the store forgets by the times of the next
        era's: windows that close by then have to be read while they are there.
        """
        reached = int(times.max()) if len(times) else NEVER
        for era, span in self._eras:
            within = (times >= span.first) & (times <= span.last)
            if within.any():
                yield era, within
            era.reach(reached)
