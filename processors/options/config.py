"""What the user writes beside an operator: serdes, columns, stores and names. Plain descriptions, checked when used."""

from dataclasses import dataclass, replace
from typing import Any, Self

from millpond.errors import TopologyError
from millpond.stores.serdes import Serde, serde
from millpond.stores.specs import StoreKind, StoreSpec
from millpond.stores.times import Duration, to_millis

SerdeLike = str | Serde[Any]
"""A serde, or the name of one: ``bytes``, ``string``, ``int64``, ``float64``, ``json``, ``msgpack``, ``pickle``."""


def same_serde(one: SerdeLike | None, other: SerdeLike | None) -> bool:
    """Whether both are known and write the same bytes."""
    return one is not None and other is not None and serde(one).name == serde(other).name


def _serde(value: SerdeLike | None) -> Serde[Any] | None:
    return None if value is None else serde(value)


@dataclass(frozen=True)
class Consumed:
    """How the records of a source topic are read.

    Attributes:
        key_serde, value_serde: how keys and values become bytes in stores and between tasks.
        key, timestamp: where the source is a DataFrame, its columns with the key and the event time (a timestamp
            column, or a long of milliseconds); ``"key"`` and ``"timestamp"`` unless named.
        value: the column with the value; None takes the column ``"value"`` where there is one, and else the whole row
            as a dict.
        name: the source node's name.
    """

    key_serde: SerdeLike | None = None
    value_serde: SerdeLike | None = None
    key: str = "key"
    timestamp: str = "timestamp"
    value: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class Produced:
    """How records are written to a sink.

    Attributes:
        key_serde, value_serde: the serdes, where they cannot be known from the stream.
        schema: where the sink is a DataFrame, its columns as Spark DDL (``"carrier string, count long"``). ``key``,
            ``value`` and ``timestamp`` mean the record's own; any other column is that entry of a dict value.
        name: the sink node's name.
    """

    key_serde: SerdeLike | None = None
    value_serde: SerdeLike | None = None
    schema: str | None = None
    name: str | None = None


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


@dataclass(frozen=True)
class Repartitioned:
    """How records travel to the tasks of their keys; ``name`` names the repartition topic."""

    key_serde: SerdeLike | None = None
    value_serde: SerdeLike | None = None
    name: str | None = None


@dataclass(frozen=True)
class Grouped:
    """How records are read after they were grouped by another key; ``name`` names the repartition topic."""

    key_serde: SerdeLike | None = None
    value_serde: SerdeLike | None = None
    name: str | None = None


@dataclass(frozen=True)
class Materialized:
    """The store that holds a table.

    Attributes:
        name: the store's name; one is generated where it is None.
        kind: which kind of store; None for the operator's own default.
        backend: a backend name or URL for this store alone; None for the job's.
        key_serde, value_serde: None for those of the operator's input, or its result's own.
        history_retention: of a versioned store: how far back versions can be read, and, unless ``grace`` says
            otherwise, how late a record may be (KIP-889).
        grace: of a versioned store: how late a record may be.
        retention: of a window or session store: how long a window is kept after stream time has passed its start.
        caching: emit only the last update of a key in each micro-batch.
    """

    name: str | None = None
    kind: StoreKind | None = None
    backend: str | None = None
    key_serde: SerdeLike | None = None
    value_serde: SerdeLike | None = None
    history_retention: Duration | None = None
    grace: Duration | None = None
    retention: Duration | None = None
    caching: bool = False

    @classmethod
    def versioned(cls, name: str | None = None, *, history_retention: Duration, **options: Any) -> Self:
        """A versioned store (KIP-889, KIP-914); ``options`` are the other attributes."""
        return cls(name, StoreKind.VERSIONED, history_retention=history_retention, **options)

    @classmethod
    def with_serdes(cls, key_serde: SerdeLike | None = None, value_serde: SerdeLike | None = None) -> Self:
        """Serdes only: asks for no store where the operator needs none."""
        return cls(key_serde=key_serde, value_serde=value_serde)

    def with_caching(self, caching: bool = True) -> Self:
        """The same with ``caching`` on: only the last update of a key in each micro-batch is emitted."""
        return replace(self, caching=caching)

    @property
    def has_store(self) -> bool:
        """Whether this asks for a store even where the operator needs none."""
        return self.name is not None or self.kind is not None

    def spec(
        self,
        default_name: str,
        default_kind: StoreKind,
        key_serde: SerdeLike | None,
        value_serde: SerdeLike | None,
        *,
        retention: int | None = None,
        window_size: int | None = None,
    ) -> StoreSpec:
        """The description of the store. ``retention`` is what a window or session store has unless this says otherwise.

        Raises:
            TopologyError: a serde is not known, here or from the input.
        """
        name = self.name or default_name
        key, value = _serde(self.key_serde or key_serde), _serde(self.value_serde or value_serde)
        if key is None or value is None:
            missing = "key" if key is None else "value"
            raise TopologyError(
                f"store {name!r} has no {missing} serde: name one in Materialized({missing}_serde=...), in Consumed, "
                f"or as StreamsBuilder({missing}_serde=...)"
            )
        return StoreSpec(
            name=name,
            kind=self.kind or default_kind,
            key_serde=key,
            value_serde=value,
            backend=self.backend,
            history_retention=None if self.history_retention is None else to_millis(self.history_retention),
            grace=None if self.grace is None else to_millis(self.grace),
            retention=retention if self.retention is None else to_millis(self.retention, "retention"),
            window_size=window_size,
        )
