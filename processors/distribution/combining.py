"""Whether the records of a topic may travel as partial aggregates, and which of them do.

Rule of this module: what may be combined follows from the graph and from what processors say of themselves, exactly;
what is combined follows from the records alone, so a batch that is run again is sent again in the same way.

Records may be combined if one aggregate is all that becomes of them, and if nobody could tell: it forwards only the
last update of each key, and what follows it has no state and leads to no other task. What then may differ is the order
in which the updates of different keys leave the task, which is the order of nothing that they came from.

Combining pays if it leaves few records. Of a sample, the share of the records whose key the sample has just once is
about the share of the other records that have keys of their own (Good and Turing; it takes no assumption about how
keys are spread), so at most that share is left.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from millpond.processors.distribution.execution import Decoder
from millpond.processors.distribution.header_column import HEADERS
from millpond.processors.distribution.plan import Plan
from millpond.processors.options.records import Produced
from millpond.processors.runtime.batches.columns import Columns, valid
from millpond.processors.runtime.batches.partials import Combiner
from millpond.processors.runtime.order.unordered import only_reader
from millpond.stores.encoding.serdes import BYTES, FLOAT64, INT64, JSON, MSGPACK, STRING, serde

FEWEST: Final = 1_000
"""Fewer records travel as they are: looking at them would take as long as sending them."""

SAMPLED: Final = 8
"""The sample is one record in so many."""

_SOUND: Final = (BYTES, STRING, INT64, FLOAT64, JSON, MSGPACK)
"""Serdes that read all that they write, as something else than None."""


class Sent(NamedTuple):
    """Some of the records of an input.

    Attributes:
        records: the records, or partial aggregates of them.
        partial: whether they are partial aggregates.
    """

    records: pa.Table
    partial: bool = False


@dataclass(frozen=True)
class Combining:
    """Combines the records of one input. Travels to the workers.

    Attributes:
        combiner: makes partial aggregates.
        decoder: how the records will be read; None if those that cannot be read are not among them.
        copies: how many keys each record has; whether combining pays is decided for each of them.
    """

    combiner: Combiner
    decoder: Decoder | None = None
    copies: int = 1

    def split(self, records: pa.Table) -> Iterator[Sent]:
        """The records, combined as far as they can be and as it pays.

        Args:
            records: the columns key, value and timestamp, and perhaps headers; then they travel as they are, because
                an update has the headers of its last record. Those that are copies of each other for their keys
                come as all for the first key, then all for the next.
        """
        if records.num_rows < FEWEST or HEADERS in records.column_names or not self._readable(records):
            yield Sent(records)
            return
        size = records.num_rows // self.copies
        sent = [one for copy in range(self.copies) for one in self._sent(records.slice(copy * size, size))]
        for partial in (True, False):
            some = [one.records for one in sent if one.partial is partial]
            if some:
                yield Sent(pa.concat_tables(some), partial)

    def _sent(self, records: pa.Table) -> Iterator[Sent]:
        """Records with one key each."""
        whole, rest = _without_nulls(records)
        partials = self._combined(whole)
        if partials is None:
            yield Sent(records)
            return
        yield Sent(partials, partial=True)
        if rest.num_rows:
            yield Sent(rest)

    def _combined(self, records: pa.Table) -> pa.Table | None:
        keys = self.combiner.keys(records)
        return self.combiner.combine(records) if keys is not None and pays(keys, self.combiner.most_new) else None

    def _readable(self, records: pa.Table) -> bool:
        """Whether the task could read all records; if not, it has to say so."""
        if self.decoder is None:
            return True
        keys, values = (records[name].combine_chunks() for name in ("key", "value"))
        return self.decoder.decode_columns(Columns(keys, values, np.empty(0, np.int64))) is not None


def _without_nulls(records: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The records that have a key and a value, and the others."""
    present = valid(records["key"], records["value"])
    if present.all():
        return records, records.slice(0, 0)
    return records.filter(pa.array(present)), records.filter(pa.array(~present))


def pays(keys: pa.Table, most_new: float) -> bool:
    """Whether few enough records with these keys would be left."""
    places: Any = pa.array(np.arange(0, keys.num_rows, SAMPLED))
    sample = keys.take(places)
    counts: Any = sample.group_by(sample.column_names, use_threads=False).aggregate([([], "count_all")])["count_all"]
    alone = np.count_nonzero(counts.to_numpy() == 1)
    return bool(alone <= most_new * sample.num_rows)


def combiner_of(plan: Plan, topic: str) -> Combiner | None:
    """What makes partial aggregates of the records of a topic; None if they must travel as they are."""
    if len(plan.all_readers(topic)) > 1:
        return None
    reader = only_reader(plan.readers[topic], topic, lambda node: node.operator())
    return None if reader is None else reader.combiner


def of_repartition_topic(plan: Plan, topic: str, produced: Produced) -> Combining | None:
    """How the records of a repartition topic are combined; None if they are not."""
    combiner = combiner_of(plan, topic)
    # What other serdes have written they may not be able to read, and then the task has to say so.
    plain = all(serde(one or BYTES) in _SOUND for one in (produced.key_serde, produced.value_serde))
    return Combining(combiner) if combiner is not None and plain else None


def of_input(plan: Plan, topic: str, decoder: Decoder | None, copies: int = 1) -> Combining | None:
    """How the records of a topic of the user's are combined; None if they are not.

    Args:
        plan: the plan.
        topic: the topic.
        decoder: how the records will be read; None if those that cannot be read are not among them.
        copies: how many keys each record has.
    """
    combiner = combiner_of(plan, topic)
    return None if combiner is None else Combining(combiner, decoder, copies)
