"""Partial aggregates: one record in place of many of the same key, made before they travel to the task of that key.

Rule of this module: it is the contract of their makers and of the processors that take them. A processor that takes
them ends with the stores, the results and the counts that the records themselves would have given.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import pyarrow as pa

from millpond.stores.encoding.serdes import Serde


class Combiner(ABC):
    """Makes partial aggregates of records. Travels to the workers.

    Attributes:
        spares: whether the records travel beside their partial aggregates, for a task that cannot take these.
        value_serde: the serde of the partial aggregates.
        most_new: all records are combined if at most this share of a sample of one in eight has a key of its own there.
    """

    spares: bool = False
    value_serde: Serde[Any]
    most_new: ClassVar[float] = 0.6

    @abstractmethod
    def keys(self, records: pa.Table) -> Any:
        """Return the keys, an Arrow array in which equal entries are the same key; None if there is no such array.

        Args:
            records: the columns key, value and timestamp (int64) of records without a null key or value.
        """

    @abstractmethod
    def combine(self, records: pa.Table) -> pa.Table | None:
        """Return one partial aggregate for each of ``keys``, in any order.

        Args:
            records: records for which there are ``keys``.

        Returns:
            The columns key, value (what ``value_serde`` reads) and timestamp, which is the greatest of the key's.
            None if the result could then differ from that of the records.
        """
