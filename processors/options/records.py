"""How records are read from sources, written to sinks and sent from task to task."""

from dataclasses import dataclass

from millpond.processors.options.serdes import SerdeLike


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
