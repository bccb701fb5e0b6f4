"""``RecordProcessor``: a base class for processors of your own that see one record at a time.

What they forward is collected and passed on in batches, so that the operators after them stay fast.
"""

from abc import abstractmethod
from typing import Any

from millpond.processors.runtime.batch import Batch, BatchBuilder
from millpond.processors.runtime.processor import Processor, ProcessorContext
from millpond.processors.runtime.punctuation import Punctuation, PunctuationType, Punctuator
from millpond.stores.times import Duration


class RecordProcessor(Processor):
    """Base class for ``KStream.process``: override ``process_record``, and ``open`` to get stores and schedules.

    One that holds records back also overrides ``process_completion``.

    >>> from millpond.processors import StreamsBuilder, TopologyDriver
    >>> from millpond.stores.serdes import INT64, STRING
    >>> from millpond.stores.specs import StoreKind, StoreSpec
    >>> class FirstOnly(RecordProcessor):
    ...     def open(self):
    ...         self.seen = self.context.store("seen")
    ...
    ...     def process_record(self, key, value, timestamp):
    ...         if self.seen.put_if_absent(key, timestamp) is None:
    ...             self.forward(key, value, timestamp)
    >>> builder = StreamsBuilder()
    >>> builder.add_state_store(StoreSpec("seen", StoreKind.KEY_VALUE, STRING, INT64))
    'seen'
    >>> builder.stream("clicks").process(FirstOnly, stores=["seen"]).to("first-clicks")
    >>> with TopologyDriver(builder.build()) as driver:
    ...     driver.pipe_all("clicks", [("ann", "a", 1), ("ben", "b", 2), ("ann", "c", 3)])
    ...     [record.value for record in driver.read("first-clicks")]
    ['a', 'b']
    """

    _out: BatchBuilder
    _to: str | None = None

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._out = BatchBuilder()
        self.open()

    def open(self) -> None:
        """Called once, before the first record; ``self.context`` is set."""

    @abstractmethod
    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        """Process one record and ``forward`` the results; ``timestamp`` in int milliseconds."""

    def process_completion(self) -> None:
        """Called when the input is complete: ``forward`` everything that waits, and forget that it waits."""

    def forward(self, key: Any, value: Any, timestamp: int, *, to: str | None = None) -> None:
        """Pass a record to all children, or with ``to`` only to the child of that name."""
        if to != self._to:
            self._forward_collected()
            self._to = to
        self._out.add(key, value, timestamp)

    def schedule(self, interval: Duration, kind: PunctuationType, punctuator: Punctuator) -> Punctuation:
        """Call ``punctuator`` every ``interval`` of ``kind``, as ``ProcessorContext.schedule`` says; it may forward."""

        def punctuate(now: int) -> None:
            punctuator(now)
            self._forward_collected()

        return self.context.schedule(interval, kind, punctuate)

    def process(self, batch: Batch) -> None:
        for key, value, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            self.process_record(key, value, timestamp)
        self._forward_collected()

    def complete(self) -> None:
        self.process_completion()
        self._forward_collected()

    def _forward_collected(self) -> None:
        batch, self._out = self._out.build(), BatchBuilder()
        if self._to is None:
            self.context.forward(batch)
        else:
            self.context.forward_to(self._to, batch)
