"""What the user says of a join: its type, and how the inputs are read where they have to travel or wait."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from millpond.processors.options.serdes import SerdeLike
from millpond.stores.times import Duration


class Side(Enum):
    """A side of a join."""

    LEFT = "left"
    RIGHT = "right"

    @property
    def other(self) -> "Side":
        """The opposite side."""
        return Side.RIGHT if self is Side.LEFT else Side.LEFT


class JoinType(Enum):
    """Which side may be missing in a result (KIP-77)."""

    INNER = "inner"
    LEFT = "left"
    OUTER = "outer"

    def keeps(self, side: Side) -> bool:
        """Whether a row or record of ``side`` that has no match has a result all the same."""
        return self is JoinType.OUTER or (self is JoinType.LEFT and side is Side.LEFT)

    def joins(self, left: Any, right: Any) -> bool:
        """Whether there is a result for these values, of which None is a missing one."""
        if self is JoinType.OUTER:
            return left is not None or right is not None
        return left is not None and (self is JoinType.LEFT or right is not None)


@dataclass(frozen=True)
class Joined:
    """How the inputs of a join are read where they have to travel through a repartition topic.

    Attributes:
        grace: on a stream-table join (KIP-923): how long stream records wait for late table records.
    """

    key_serde: SerdeLike | None = None
    value_serde: SerdeLike | None = None
    grace: Duration | None = None
    name: str | None = None


@dataclass(frozen=True)
class StreamJoined:
    """How two streams are joined: the serdes of the records, and where they wait for each other.

    Attributes:
        key_serde: of both sides' keys.
        value_serde, other_value_serde: of the left and the right values.
        name: what the join's nodes and repartition topics are called after.
        store_name: what the join's stores are called after; ``name`` unless given.
        backend: a backend name or URL for the join's stores alone; None for the job's.
    """

    key_serde: SerdeLike | None = None
    value_serde: SerdeLike | None = None
    other_value_serde: SerdeLike | None = None
    name: str | None = None
    store_name: str | None = None
    backend: str | None = None
