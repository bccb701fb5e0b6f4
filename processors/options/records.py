"""The reading of records from sources, their writing to sinks, and their way from task to task."""

from collections.abc import Collection
from dataclasses import dataclass

from millpond.processors.options.serdes import SerdeLike


@dataclass(frozen=True)
class Consumed:
    """The reading of a source topic's records.

    Attributes:
        key_serde, value_serde: the serdes of keys and values in stores and between tasks.
        key: for a DataFrame, the column with the key.
        timestamp: for a DataFrame, the column with the event time: a timestamp, or a long of milliseconds. A record's
            own timestamp has milliseconds, so a timestamp's microseconds are cut off there, and in the column
            ``timestamp`` of the output. The column stays exact where it is part of the value, as of a whole row.
        value: for a DataFrame, the column with the value; None for the column ``"value"`` if there is one, or else for
            the whole row as a dict.
        name: the source node's name.
        op: for a DataFrame that is a change feed, the column with a row's operation: upsert, insert, update, delete, c,
            r, u, d, +I, +U, -U, -D, update_preimage or update_postimage. A delete's value is None; rows with the value
            before an update are left out.
        headers: for a DataFrame, the column with the headers, an array of structs of key (string) and value (binary),
            as Spark's Kafka source gives it with ``includeHeaders``; None if records have no headers.
    """

    key_serde: SerdeLike | None = None
    value_serde: SerdeLike | None = None
    key: str = "key"
    timestamp: str = "timestamp"
    value: str | None = None
    name: str | None = None
    op: str | None = None
    headers: str | None = None


@dataclass(frozen=True)
class Produced:
    """The writing of records to a sink.

    Attributes:
        key_serde, value_serde: the serdes of keys and values; None for the stream's own.
        schema: for a DataFrame, its columns as Spark DDL (``"carrier string, count long"``). ``key``, ``value`` and
            ``timestamp`` are the record's own; any other column is the entry of that name in a dict value. Unless the
            value has such an entry, ``op string`` is ``"upsert"`` or ``"delete"`` (the value is None), ``sequence
            long`` orders the changes of a key, and ``headers array<struct<key string, value binary>>`` has the record's
            headers, null if there are none.
        name: the sink node's name.
        optional: the columns of ``schema`` whose entry a value may lack; they are null then. A value that lacks any
            other fails the query. One in a nested column goes by its path, as in Spark: ``"items.element.price"``.
    """

    key_serde: SerdeLike | None = None
    value_serde: SerdeLike | None = None
    schema: str | None = None
    name: str | None = None
    optional: Collection[str] = ()


@dataclass(frozen=True)
class Repartitioned:
    """The way of records to the tasks of their keys; the repartition topic is named after ``name``."""

    key_serde: SerdeLike | None = None
    value_serde: SerdeLike | None = None
    name: str | None = None


@dataclass(frozen=True)
class Grouped:
    """The serdes of records that are grouped by another key; the repartition topic is named after ``name``."""

    key_serde: SerdeLike | None = None
    value_serde: SerdeLike | None = None
    name: str | None = None
