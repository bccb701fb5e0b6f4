"""``Order``: in which order a task takes the records of a micro-batch."""

from enum import StrEnum
from typing import Self

from millpond.processors.options.known_names import choice


class Order(StrEnum):
    """In which order a task takes the records that a micro-batch brings to it."""

    TIME = "time"
    """By event time, over all inputs and whatever files and partitions they came in. So a record is late only by what
    earlier micro-batches have shown, and the answer does not depend on how a micro-batch was packed."""

    ARRIVAL = "arrival"
    """As Kafka Streams takes them: each split of an input in its own order, and of the records that are next the one
    with the smallest timestamp. That is the order of a Kafka partition if a split has all of it, and nothing else."""

    @classmethod
    def of(cls, order: "str | Order") -> Self:
        """Return the order of that name.

        Raises:
            ConfigurationError: there is none.
        """
        return choice("order", order, cls)
