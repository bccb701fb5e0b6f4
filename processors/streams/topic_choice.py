"""The sink of records whose topic a function chooses for each of them (KIP-303)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from millpond.errors import InvalidArgumentError
from millpond.processors.options.functions import positional_parameters
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.headers import NO_HEADERS
from millpond.processors.runtime.current_record import RecordMetadata
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.streams.stateless import StreamSplit


class StreamToTopics(StreamSplit):
    """Sends each record to the sink of the topic that ``extractor`` chooses.

    Args:
        extractor: ``extractor(key, value)`` or ``extractor(key, value, context)``.
        sinks: the sinks by their topics.
    """

    def __init__(self, extractor: Callable[..., str], sinks: Mapping[str, str]) -> None:
        super().__init__(tuple(sinks.values()))
        self._extractor = extractor
        self._sinks = sinks
        self._informed = positional_parameters(extractor) == 3

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        # The topic of a task's only input needs no look at single records.
        self._many_topics = self._informed and len(context.topics) > 1
        self.promises = replace(self.promises, record_by_record=self._many_topics)

    def choose(self, batch: Batch) -> list[str | None]:
        columns: list[Sequence[object]] = [batch.keys, batch.values]
        if self._informed:
            topic = self._topic()
            headers = (one or NO_HEADERS for one in batch.headers_of_each)
            columns.append([RecordMetadata(topic, *row) for row in zip(batch.timestamps, headers, strict=True)])
        return list(map(self._sink, map(self._extractor, *columns)))

    def _topic(self) -> str | None:
        """Return the topic that the task has taken the records from; None if it has held them back."""
        if not self._many_topics:
            return self.context.topics[0]
        current = self.context.record_metadata
        return None if current is None else current.topic

    def _sink(self, topic: str) -> str:
        if not isinstance(topic, str):
            raise InvalidArgumentError(f"the function chose {topic!r} as a topic; return the topic's name as text")
        if topic not in self._sinks:
            raise InvalidArgumentError(
                f"the function chose the topic {topic!r}, which is not among those that it may choose, "
                f"{list(self._sinks)}; add it: to(extractor, topics={[*self._sinks, topic]})"
            )
        return self._sinks[topic]
