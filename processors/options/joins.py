"""The description of a join: its type, and the serdes of inputs that are repartitioned or kept."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

from millpond.errors import ArgumentConflictError, InvalidArgumentError, MissingArgumentError
from millpond.processors.options.serdes import SerdeLike
from millpond.stores.encoding.times import Duration, to_millis

AsofHow: TypeAlias = Literal[
    "inner",
    "left",
    "semi",
    "anti",
    "left_outer",
    "leftouter",
    "left_semi",
    "leftsemi",
    "left_anti",
    "leftanti",
]
"""The joins of a stream with versions, in all spellings that Spark has for them."""

TablesHow: TypeAlias = Literal[
    "inner",
    "left",
    "outer",
    "left_outer",
    "leftouter",
    "full",
    "full_outer",
    "fullouter",
]
"""The types of joins of several tables by key."""

TableHow: TypeAlias = TablesHow | Literal["right", "right_outer", "rightouter"]
"""The types of joins of two tables."""

StreamHow: TypeAlias = AsofHow | TableHow
"""The types of joins of two streams."""


class Side(Enum):
    """A side of a join."""

    LEFT = "left"
    RIGHT = "right"

    @property
    def other(self) -> "Side":
        """The opposite side."""
        return Side.RIGHT if self is Side.LEFT else Side.LEFT


class JoinType(Enum):
    """The side that may be missing in a result (KIP-77), or must be; each verb and operator has some of them."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    OUTER = "outer"
    SEMI = "semi"
    ANTI = "anti"

    def keeps(self, side: Side) -> bool:
        """Return whether a row or record of ``side`` has a result even without a match."""
        if side is Side.LEFT:
            return self in (JoinType.LEFT, JoinType.OUTER, JoinType.ANTI)
        return self in (JoinType.RIGHT, JoinType.OUTER)

    @property
    def shows_right(self) -> bool:
        """True if results have something of the right side; otherwise a left row or record has one result at most."""
        return self not in (JoinType.SEMI, JoinType.ANTI)

    def joins(self, left: Any, right: Any) -> bool:
        """Return whether these values of tables have a result; None is a missing value."""
        if left is None:
            return right is not None and self.keeps(Side.RIGHT)
        return right is not None or self.keeps(Side.LEFT)


ASOF_JOINS: Final = (JoinType.INNER, JoinType.LEFT, JoinType.SEMI, JoinType.ANTI)
"""The joins of a stream with versions."""

TABLE_JOINS: Final = (JoinType.INNER, JoinType.LEFT, JoinType.OUTER)
"""The joins of two tables by key."""

FOREIGN_KEY_JOINS: Final = (JoinType.INNER, JoinType.LEFT, JoinType.RIGHT, JoinType.OUTER)
"""The joins of two tables by a foreign key of the left one."""


class AsofDirection(Enum):
    """The version that matches a record: the last one up to its time, the first from its time on, or the closer one.

    Of two that are equally close, the earlier one matches.
    """

    BACKWARD = "backward"
    FORWARD = "forward"
    NEAREST = "nearest"

    @classmethod
    def of(cls, direction: object) -> "AsofDirection":
        """Return the direction of that name.

        Raises:
            ConfigurationError: there is none.
        """
        if not isinstance(direction, str) or direction not in [one.value for one in cls]:
            raise InvalidArgumentError(
                f"direction is {direction!r}; give {' or '.join(repr(one.value) for one in cls)}"
            )
        return cls(direction)

    @classmethod
    def chosen(cls, direction: str, grace: Duration | None, tolerance: Duration | None) -> "AsofDirection":
        """Return the direction of that name, if it has all that it needs.

        Raises:
            ConfigurationError: there is none, or it looks ahead, and the grace or the tolerance is missing.
        """
        found = cls.of(direction)
        if found.looks_ahead and (grace is None or tolerance is None):
            raise MissingArgumentError(
                f"direction is {direction!r}, so each row waits for a match that is later, and nothing says for how "
                "long; give tolerance='10 minutes', how much later it may be, and grace='1 minute', how late it may "
                "come, or grace=0"
            )
        return found

    @property
    def looks_back(self) -> bool:
        """True if a match may be older than its record."""
        return self is not AsofDirection.FORWARD

    @property
    def looks_ahead(self) -> bool:
        """True if a match may be newer than its record."""
        return self is not AsofDirection.BACKWARD

    def ahead(self, tolerance: int | None) -> int:
        """Return how much newer than its record a match may be."""
        return tolerance or 0 if self.looks_ahead else 0


class Unfit(Enum):
    """The match of a record whose version does not fulfill the condition: none, or the next version that does.

    The next one lies farther from the record, in the direction in which its version was found.
    """

    MISS = "miss"
    NEXT = "next"

    @classmethod
    def chosen(cls, otherwise: str, where: object, tolerance: Duration | None) -> "Unfit":
        """Return the choice of that name, if it has all that it needs.

        Raises:
            ConfigurationError: there is none, or it is the next version, and the condition or the tolerance is missing.
        """
        if not isinstance(otherwise, str) or otherwise not in [one.value for one in cls]:
            raise InvalidArgumentError(
                f"otherwise is {otherwise!r}; give {' or '.join(repr(one.value) for one in cls)}"
            )
        chosen = cls(otherwise)
        if chosen is cls.NEXT and where is None:
            raise ArgumentConflictError(
                "otherwise is 'next', but there is no condition that a version could fail; give where=..., or leave "
                "otherwise out"
            )
        if chosen is cls.NEXT and tolerance is None:
            raise MissingArgumentError(
                "otherwise is 'next', so versions are passed over until one fulfills the condition, and nothing says "
                "how far; give tolerance='10 minutes', how far from a row its match may be"
            )
        return chosen

    def back(self, tolerance: int | None, direction: AsofDirection) -> int:
        """Return how much older than a record the times may be as of which versions are looked up for it."""
        return tolerance or 0 if self is Unfit.NEXT and direction.looks_back else 0


@dataclass(frozen=True)
class Joined:
    """The join of a stream with a table: the serdes of its records, and how long they wait for the table.

    Attributes:
        key_serde, value_serde: the serdes of the stream's records; None for the stream's own.
        grace: how long stream records wait for late records of a versioned table (KIP-923); None to join at once.
        name: the name of the join's node, and the beginning of its repartition topic's name.
        within_history: whether waiting records are joined before the table forgets the values valid at their times, as
            it does when its own time moves on and the stream's does not. Kafka Streams joins them later, with
            nothing.
        tolerance: how much older (or newer, by the direction) than a record the table's value for it may be; None for
            any age. It is no match otherwise. Kafka Streams has no such thing.
        exact: whether a record meets a value of a versioned table that is valid from the record's own time on;
            otherwise it meets the value valid just before, or the first one after it. Kafka Streams has no such thing.
        direction: the value of a versioned table that a record meets: ``"backward"`` for the one valid at its time,
            ``"forward"`` for the first one that became valid from its time on, ``"nearest"`` for the closer one of
            both by the time since which it is valid, and the earlier one if both are equally close. A delete is no
            value: forward, the next value after it counts. The last two wait for the tolerance and the grace together,
            and need both. Kafka Streams has no such thing.
        where: ``where(value, table_value)`` says whether a value of the table is a match for a record's value; None if
            any is. Of a join with ``vectorized=True`` it takes Arrow arrays and returns one of booleans; null is no.
            Kafka Streams has no such thing.
        otherwise: the match of a record whose value of the table does not fulfill ``where``: ``"miss"`` for none;
            ``"next"`` for the next value of a versioned table that does, the next older one, or the next newer one
            that a ``direction`` finds, within the tolerance, which is needed. A delete is not passed over backward.

    Raises:
        ConfigurationError: the grace or the tolerance is not a length of time; or there is no grace, and
            ``within_history`` is wanted; or there is no such direction, or it lacks a grace or a tolerance; or
            ``otherwise`` is neither of the two, or lacks a condition or a tolerance.
    """

    key_serde: SerdeLike | None = None
    value_serde: SerdeLike | None = None
    grace: Duration | None = None
    name: str | None = None
    within_history: bool = False
    tolerance: Duration | None = None
    exact: bool = True
    direction: Literal["backward", "forward", "nearest"] = "backward"
    where: Callable[[Any, Any], Any] | None = None
    otherwise: Literal["miss", "next"] = "miss"

    def __post_init__(self) -> None:
        AsofDirection.chosen(self.direction, self.grace, self.tolerance)
        Unfit.chosen(self.otherwise, self.where, self.tolerance)
        if self.tolerance is not None:
            to_millis(self.tolerance, "tolerance of Joined")
        if self.grace is not None:
            to_millis(self.grace, "grace of Joined")
        elif self.within_history:
            raise MissingArgumentError(
                "within_history is about records that wait, and without a grace none do; give both"
            )


@dataclass(frozen=True)
class StreamJoined:
    """The join of two streams: the serdes of the records, and the stores where they wait for each other.

    Attributes:
        key_serde: the serde of both sides' keys.
        value_serde, other_value_serde: the serdes of the left and the right values.
        name: the beginning of the names of the join's nodes and repartition topics.
        store_name: the beginning of the names of the join's stores; ``name`` unless given.
        backend: a backend name or URL for the join's stores alone; None for the job's.
        checksums: whether each row of these stores has a checksum, which every read verifies; None for the job's
            choice.
    """

    key_serde: SerdeLike | None = None
    value_serde: SerdeLike | None = None
    other_value_serde: SerdeLike | None = None
    name: str | None = None
    store_name: str | None = None
    backend: str | None = None
    checksums: bool | None = None
