"""``Operator``: a processor as tasks run it, with what only the operators that come with Millpond promise and do.

A processor of a user's is run by an operator that promises no more than the processor has declared.
"""

from collections.abc import Callable
from typing import Final

from millpond.errors import TopologyError
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns, Records
from millpond.processors.runtime.batches.partials import Combiner
from millpond.processors.runtime.processor import Processor, ProcessorContext
from millpond.processors.runtime.promises import Promises


class Operator(Processor):
    """A processor with promises by which a task is run, and with more calls than a user's processor gets.

    Attributes:
        promises: its promises; settled by the end of ``init``.
    """

    promises: Promises = Promises()

    @property
    def combiner(self) -> Combiner | None:
        """The combiner that aggregates its records before they reach it, if only the last updates are forwarded.

        By default None: it must have the records themselves.
        """
        return None

    def process_partials(self, partials: Records, rest: Columns | None = None) -> bool:
        """Process partial aggregates, which its ``combiner`` has made; never none.

        Args:
            partials: the partial aggregates.
            rest: if its ``combiner`` has spares, the records of the micro-batch that are in none of them, in the order
                of time; None for none.

        Returns:
            False if it must have the records themselves, and there are spares; then nothing has changed.
        """
        raise TopologyError(f"{type(self).__name__} takes no partial aggregates")

    def advance(self, time: int) -> None:
        """Learn that the time of the input is ``time``: forward what waits for it, then tell the children.

        An operator that has a stream time of its own overrides this; it does what a record of that time would do
        for the others, and calls this one last.
        """
        self.context.advance(time)

    def expire(self, time: int) -> None:
        """Let the entries of the store that it ``fills`` expire as of ``time``, and forward deletes if configured."""

    def settle(self) -> None:
        """Process what was kept, if ``context.gathers``: everything that comes before it has arrived."""

    def flush(self) -> None:
        """Forward what was held back, and store what must last; called before each commit, parents before children.

        It may be called several times before a commit.
        """


class _OfAUser(Operator):
    """Runs a processor that is no operator. Its ``process`` is the processor's own: no call lies between."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._processor.init(context)
        self.promises = context.declared()

    @property
    def process(self) -> Callable[[Batch], None]:
        return self._processor.process

    @property
    def process_columns(self) -> Callable[[Columns], None]:
        return self._processor.process_columns

    def complete(self) -> None:
        self._processor.complete()

    def close(self) -> None:
        self._processor.close()


_ONCE: Final = {
    "repeatable": "call context.declare(repeatable=True) in init, or in open of a RecordProcessor",
    "record_by_record": "call context.declare(record_by_record=True) in init, or in open of a RecordProcessor",
    "flush": "forward in process what it has held back, or in complete; if it is something else, give it another name",
}
"""The attributes that classes of processors had in earlier releases, and the code to write instead."""


def as_operator(processor: Processor) -> Operator:
    """Return a processor as tasks run it.

    Raises:
        TopologyError: its class has something by which earlier releases went, and this one does not.
    """
    if isinstance(processor, Operator):
        return processor
    for name, instead in _ONCE.items():
        if hasattr(processor, name):
            raise TopologyError(
                f"the processor {type(processor).__name__} has {name!r}, of which earlier releases took notice, and "
                f"this one does not; {instead}"
            )
    return _OfAUser(processor)
