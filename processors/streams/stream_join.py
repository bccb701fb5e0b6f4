"""One side of a join of two streams: hands its records to the join (``window_join``) and forwards the results.

Both sides of a task have one join. Where the graph allows it, either side only keeps its records, and whichever settles
first has the records of both joined in their order.
"""

from millpond.processors.options.joins import Side
from millpond.processors.runtime.batches.batch import Batch, BatchBuilder
from millpond.processors.runtime.processor import Processor, ProcessorContext
from millpond.processors.streams.window_join import StreamStreamJoinPlan, WindowJoin


class StreamStreamJoin(Processor):
    """Joins the records of one side with what the other side has kept."""

    gathers = True

    def __init__(self, plan: StreamStreamJoinPlan, side: Side) -> None:
        self._plan = plan
        self._side = side

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._join = join = context.shared(self._plan.stores[Side.LEFT], lambda: WindowJoin.of(self._plan, context))
        join.enter(self._side, context)

    def process(self, batch: Batch) -> None:
        self._join.keep(self._side, batch)
        if not self.context.gathers:
            self.settle()

    def settle(self) -> None:
        self.context.forward(self._join.process_kept())

    def complete(self) -> None:
        # The side that comes first lets the records of both go. Both sides have all that is going to come by then,
        # because a topology holds a join's inputs before the join.
        out = BatchBuilder()
        self._join.drain(out, self.context)
        self.context.forward(out.build())
