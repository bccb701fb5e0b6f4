"""One side of a join of two streams: hands its records to the join (``window_join``), which forwards the results.

Both sides of a task have one join. Where the graph allows it, either side only keeps its records, and whichever settles
first has the records of both joined in their order.
"""

from millpond.processors.options.joins import Side
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns, Records
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.runtime.promises import Promises
from millpond.processors.streams.vectorized_window_join import VectorizedWindowJoin
from millpond.processors.streams.window_join import StreamStreamJoinPlan, WindowJoin


class StreamStreamJoin(Operator):
    """Joins the records of one side with those that the other side has kept.

    Args:
        plan: the plan of the join.
        side: the side.
        vectorized: whether the joiner takes columns.
    """

    promises = Promises(gathers=True, commutes=True)

    def __init__(self, plan: StreamStreamJoinPlan, side: Side, *, vectorized: bool = False) -> None:
        self._plan = plan
        self._side = side
        self._kind = VectorizedWindowJoin if vectorized else WindowJoin

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._join: WindowJoin = context.shared(
            self._plan.stores[Side.LEFT], lambda: self._kind.of(self._plan, context)
        )
        self._join.enter(self._side, context)

    def process(self, batch: Batch) -> None:
        self._take(batch)

    def process_columns(self, columns: Columns) -> None:
        self._take(columns)

    def _take(self, records: Records) -> None:
        self._join.keep(self._side, records)
        if not self.context.gathers:
            self.settle()

    def settle(self) -> None:
        self._join.process_kept(self.context)

    def advance(self, time: int) -> None:
        self._join.advance(time, self.context)
        super().advance(time)

    def complete(self) -> None:
        # The side that comes first lets the records of both go. Both sides have all that is going to come by then,
        # because a topology holds a join's inputs before the join.
        self._join.drain(self.context)
