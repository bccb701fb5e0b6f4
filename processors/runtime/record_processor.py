"""``RecordProcessor``: a base class for processors of your own that see one record at a time.

Forwarded records are collected and passed on in batches, so that the operators after them stay fast. They have the
headers of the record that is being processed, unless others are given.

If the policy leaves such records out, a record for which ``process_record`` fails forwards nothing, nor does a
punctuation that fails. What they had put into stores before stays, as in Kafka Streams: check first, then put.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any

from millpond.processors.runtime.batches.batch import Batch, BatchBuilder
from millpond.processors.runtime.batches.headers import NO_HEADERS, Headers, as_headers
from millpond.processors.runtime.processor import Processor, ProcessorContext
from millpond.processors.runtime.punctuation import Punctuation, PunctuationType, Punctuator
from millpond.stores.encoding.times import Duration


class RecordProcessor(Processor):
    """Base class for ``KStream.process``: override ``process_record``, and ``open`` to get stores and schedules.

    A processor that holds records back also overrides ``process_completion``.

    Attributes:
        headers: the headers of the current record; none in a punctuation, and at the completion.

    >>> from millpond.processors import StreamsBuilder, TopologyDriver
    >>> from millpond.stores.encoding.serdes import INT64, STRING
    >>> from millpond.stores.specs.store_spec import StoreKind, StoreSpec
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

    headers: Headers = NO_HEADERS
    _out: BatchBuilder
    _to: str | None = None
    _full: list[tuple[BatchBuilder, str | None]]
    """The records forwarded before ``_out``, with their child, in runs of one child each."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._out, self._full = BatchBuilder(), []
        self.open()

    def open(self) -> None:
        """Called once, before the first record; ``self.context`` is set."""

    @abstractmethod
    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        """Process one record and ``forward`` the results; ``timestamp`` in int milliseconds."""

    def process_completion(self) -> None:
        """Called when the input is complete: ``forward`` everything that waits, and forget that it waits."""

    def forward(
        self,
        key: Any,
        value: Any,
        timestamp: int,
        *,
        to: str | None = None,
        headers: Iterable[tuple[str, bytes | None]] | None = None,
    ) -> None:
        """Pass a record to all children, or with ``to`` only to the child of that name.

        Args:
            key, value, timestamp: the record's; the timestamp in int milliseconds.
            to: the name of a child.
            headers: pairs of a name and bytes or None; None for ``self.headers``, ``()`` for none.

        Raises:
            TypeError: a header is not such a pair.
        """
        if to != self._to:
            self._full.append((self._out, self._to))
            self._out, self._to = BatchBuilder(), to
        self._out.current = self.headers if headers is None else as_headers(headers)
        self._out.add(key, value, timestamp)

    def schedule(self, interval: Duration, kind: PunctuationType, punctuator: Punctuator) -> Punctuation:
        """Call ``punctuator`` every ``interval`` of ``kind``, as ``ProcessorContext.schedule`` says; it may forward."""

        def punctuate(now: int) -> None:
            mark = self._mark()
            self.headers = NO_HEADERS
            try:
                punctuator(now)
            except Exception:  # a user's code may raise anything
                self._take_back(*mark)
                raise
            self._forward_collected()

        return self.context.schedule(interval, kind, punctuate)

    def process(self, batch: Batch) -> None:
        if self.context.leaves_out:
            self._process_each(batch)
        else:
            self._process_all(batch)
        self._forward_collected()

    def _process_all(self, batch: Batch) -> None:
        key, value, timestamp = None, None, batch.timestamps[0]
        try:
            for key, value, timestamp, self.headers in _rows(batch):
                self.process_record(key, value, timestamp)
        except Exception as error:  # a user's code may raise anything
            self.context.leave_out(error, key, value, timestamp)

    def _process_each(self, batch: Batch) -> None:
        for key, value, timestamp, self.headers in _rows(batch):
            mark = self._mark()
            try:
                self.process_record(key, value, timestamp)
            except Exception as error:  # a user's code may raise anything
                self._take_back(*mark)
                self.context.leave_out(error, key, value, timestamp, headers=self.headers)

    def complete(self) -> None:
        self.headers = NO_HEADERS
        self.process_completion()
        self._forward_collected()

    def _mark(self) -> tuple[int, BatchBuilder, int, str | None]:
        """Return a mark in what has been forwarded, for ``_take_back``."""
        return len(self._full), self._out, len(self._out.keys), self._to

    def _take_back(self, full: int, out: BatchBuilder, size: int, to: str | None) -> None:
        """Forget what has been forwarded since a mark."""
        del self._full[full:]
        out.truncate(size)
        self._out, self._to = out, to

    def _forward_collected(self) -> None:
        collected, self._full, self._out = [*self._full, (self._out, self._to)], [], BatchBuilder()
        for out, to in collected:
            if to is None:
                self.context.forward(out.build())
            else:
                self.context.forward_to(to, out.build())


def _rows(batch: Batch) -> Iterator[tuple[Any, Any, int, Headers]]:
    """Return key, value, timestamp and headers of each record."""
    headers = repeat(NO_HEADERS, len(batch)) if batch.headers is None else batch.headers
    return zip(batch.keys, batch.values, batch.timestamps, headers, strict=True)
