"""The choice of records of a topic that travel as partial aggregates, where any may.

Rule of this module: what may be combined follows from the graph and from what processors say of themselves, exactly;
what is combined follows from the records alone, so a batch that is run again is sent again in the same way.

Records may be combined if they become one aggregate and nothing else, and if nobody could tell: it forwards only the
last update of each key, and what follows it has no state and leads to no other task. What then may differ is the order
in which the updates of different keys leave the task, which is the order of nothing that they came from.

Combining pays if it leaves few records. Of a sample, the share of the records whose key the sample has just once is
about the share of the other records that have keys of their own (Good and Turing; it takes no assumption about how
keys are spread), so at most that share is left. Where that is too much, the records of keys that the sample has often
are combined nevertheless, if they are many: so a hot key is few records, whatever keys there are beside it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.distribution.exchange import Form
from millpond.processors.distribution.execution import Decoder
from millpond.processors.distribution.header_column import HEADERS
from millpond.processors.distribution.plan import Plan
from millpond.processors.options.records import Produced
from millpond.processors.runtime.batches.columns import Columns, valid
from millpond.processors.runtime.batches.partials import Combiner
from millpond.processors.runtime.order.graph_order import only_reader
from millpond.stores.encoding.serdes import BYTES, FLOAT64, INT64, JSON, MSGPACK, STRING, serde

pc: Any = _compute

FEWEST: Final = 1_000
"""Fewer records travel as they are: looking at them would take as long as sending them."""

SAMPLED: Final = 8
"""The sample is one record in so many."""

OFTEN: Final = 8
"""A key that the sample has so often is hot."""

_MANY: Final = 1 / 4
"""The records of hot keys are combined if they have at least that share of the sample."""

_SPREAD: Final = 2_654_435_761
"""Makes numbers that follow each other look drawn (Knuth's multiplicative hashing)."""

_SOUND: Final = (BYTES, STRING, INT64, FLOAT64, JSON, MSGPACK)
"""Serdes that read all that they write, as something else than None."""


class Sent(NamedTuple):
    """Some of the records of an input.

    Attributes:
        records: the records, or partial aggregates of them.
        form: the form of these.
    """

    records: pa.Table
    form: Form = Form.RECORDS


@dataclass(frozen=True)
class Combining:
    """Combines the records of one input. Travels to the workers.

    Attributes:
        combiner: makes partial aggregates.
        decoder: reads the records later; None if all of them can be read.
        copies: how many keys each record has; combining is decided for each of them.
    """

    combiner: Combiner
    decoder: Decoder | None = None
    copies: int = 1

    def split(self, records: pa.Table) -> Iterator[Sent]:
        """Yield the records, combined where they can be and where it pays.

        Args:
            records: the columns key, value and timestamp, and perhaps headers; then they travel as they are, because
                an update has the headers of its last record. Copies of a record for its keys
                come as all for the first key, then all for the next.
        """
        if records.num_rows < FEWEST or HEADERS in records.column_names or not self._readable(records):
            yield Sent(records)
            return
        size = records.num_rows // self.copies
        sent = [one for copy in range(self.copies) for one in self._sent(records.slice(copy * size, size))]
        for form in Form:
            some = [one.records for one in sent if one.form is form]
            if some:
                yield Sent(pa.concat_tables(some), form)

    def _sent(self, records: pa.Table) -> Iterator[Sent]:
        """Yield the records, which have one key each, as they travel."""
        some, *rest = self._chosen(records)
        partials = self.combiner.combine(some) if some.num_rows else None
        if partials is None:
            yield Sent(records)
            return
        yield Sent(partials, Form.PARTIALS)
        if self.combiner.spares:
            yield Sent(some, Form.SPARES)
        yield from (Sent(others) for others in rest if others.num_rows)

    def _chosen(self, records: pa.Table) -> Sequence[pa.Table]:
        """Return the records that are to be combined, then the others."""
        whole, *lacking = _parted(records, valid(records["key"], records["value"]))
        places: Any = pa.array(_places(whole.num_rows))
        sample = self.combiner.keys(whole.take(places))
        if sample is None:
            return whole.slice(0, 0), records
        if pays(sample, self.combiner.most_new):
            return whole, *lacking
        hot = hot_keys(sample)
        if not len(hot):
            return whole.slice(0, 0), records
        found = pc.is_in(self.combiner.keys(whole), value_set=hot).to_numpy(zero_copy_only=False)
        return *_parted(whole, found), *lacking

    def _readable(self, records: pa.Table) -> bool:
        """Return whether the task could read all records; if not, it has to say so."""
        if self.decoder is None:
            return True
        keys, values = (records[name].combine_chunks() for name in ("key", "value"))
        return self.decoder.decode_columns(Columns(keys, values, np.empty(0, np.int64))) is not None


def _parted(records: pa.Table, mask: npt.NDArray[np.bool_]) -> tuple[pa.Table, pa.Table]:
    """Return the records for which the mask is true, and the others."""
    if mask.all():
        return records, records.slice(0, 0)
    return records.filter(pa.array(mask)), records.filter(pa.array(~mask))


def _places(size: int) -> npt.NDArray[np.int64]:
    """Return the places of the sample among so many records: one of each few, at intervals that have no period."""
    firsts = np.arange(0, size, SAMPLED)
    return np.minimum(firsts + (np.arange(len(firsts)) * _SPREAD >> 13) % SAMPLED, size - 1)


def pays(sample: Any, most_new: float) -> bool:
    """Return whether few enough records would be left if all were combined, by the keys of a sample."""
    counts = pc.value_counts(sample).field("counts").to_numpy()
    return bool(np.count_nonzero(counts == 1) <= most_new * len(sample))


def hot_keys(sample: Any) -> Any:
    """Return the keys that a sample of keys has often; none if all of them together have few records."""
    counted = pc.value_counts(sample)
    counts = counted.field("counts").to_numpy()
    often = counts >= OFTEN
    if counts[often].sum() < _MANY * len(sample):
        return counted.field("values").slice(0, 0)
    return counted.field("values").filter(pa.array(often))


def combiner_of(plan: Plan, topic: str) -> Combiner | None:
    """Return the combiner of the records of a topic; None if they must travel as they are."""
    if len(plan.all_readers(topic)) > 1:
        return None
    reader = only_reader(plan.readers[topic], topic, lambda node: node.operator().promises)
    return None if reader is None else reader.operator().combiner


def of_repartition_topic(plan: Plan, topic: str, produced: Produced) -> Combining | None:
    """Return the combining of a repartition topic's records; None if they are not combined."""
    combiner = combiner_of(plan, topic)
    # They may not be able to read what other serdes have written, and then the task has to say so.
    plain = all(serde(one or BYTES) in _SOUND for one in (produced.key_serde, produced.value_serde))
    return Combining(combiner) if combiner is not None and plain else None


def of_input(plan: Plan, topic: str, decoder: Decoder | None, copies: int = 1) -> Combining | None:
    """Return the combining of records of one of the user's topics; None if they are not combined.

    Args:
        plan: the plan.
        topic: the topic.
        decoder: reads the records later; None if all of them can be read.
        copies: how many keys each record has.
    """
    combiner = combiner_of(plan, topic)
    return None if combiner is None else Combining(combiner, decoder, copies)
