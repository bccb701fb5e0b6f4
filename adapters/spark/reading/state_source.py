"""``spark.read.format("millpond")``: the content and the changes of a query's stores, as DataFrames.

Rule of this module: it passes on. Options, which come as text, become arguments of a look
(``millpond.adapters.inspect``), whose parts become Spark's partitions. Whatever is wrong with an option is found before
a task runs. ``load`` fixes the micro-batch, so all that is done with one DataFrame sees the same state, even if the
query goes on meanwhile.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Final, Self
from weakref import WeakSet

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from millpond.adapters.inspect.changes import ChangePart, change_parts, change_schema
from millpond.adapters.inspect.columns import KeyColumn
from millpond.adapters.inspect.selection import Selection
from millpond.adapters.inspect.state_inspector import StateInspector
from millpond.adapters.inspect.store_form import StoreForm
from millpond.adapters.inspect.store_part import StorePart
from millpond.adapters.spark.reading.pushed_filters import narrowed
from millpond.adapters.spark.rows.sink import arrow_schema
from millpond.adapters.spark.session.sent import short_errors
from millpond.errors import ArgumentConflictError, InvalidOptionError, MissingArgumentError
from millpond.masking import SecretsInUse
from millpond.processors.options.known_names import did_you_mean
from millpond.stores.encoding.times import time_in

PUSHDOWN_CONF: Final = "spark.sql.python.filterPushdown.enabled"

_registered: WeakSet[SparkSession] = WeakSet()
"""Sessions that know the source; Spark warns where one is made known again."""

FORMAT: Final = "millpond"

_NEEDED: Final = {
    "checkpoint": "the query's checkpointLocation",
    "state_dir": "the job's state_dir",
    "store": "the store's name",
}
_NUMBERS: Final = ("batch", "changes_from")


def register_state_source(session: SparkSession) -> None:
    """Let a session read stores by ``spark.read.format("millpond")``, where ``configure`` has not done so.

    It also lets Spark tell Python data sources which filters follow (``spark.sql.python.filterPushdown.enabled``), so
    that a look for some keys reads little else.

    >>> from pyspark.sql import SparkSession
    >>> def counts(spark: SparkSession, checkpoint: str, state_dir: str) -> "DataFrame":
    ...     register_state_source(spark)
    ...     look = spark.read.format("millpond").options(checkpoint=checkpoint, state_dir=state_dir)
    ...     return look.option("store", "counts").load()
    """
    session.conf.set(PUSHDOWN_CONF, "true")
    if session not in _registered:
        with _active(session):
            session.dataSource.register(StateSource)
        _registered.add(session)


@contextmanager
def _active(session: SparkSession) -> Iterator[None]:
    """Have a session be the active one, in which Spark looks whether there is a source of that name already."""
    before = SparkSession.getActiveSession()
    if before is None or before is session or not hasattr(session, "sparkContext"):
        yield
        return
    session.createDataFrame([], "id long")
    yield
    before.createDataFrame([], "id long")


@dataclass(frozen=True)
class StateOptions:
    """The options that a user has given.

    Attributes:
        checkpoint: the query's ``checkpointLocation``.
        state_dir: the job's ``state_dir``.
        store: the store's name.
        batch: after which micro-batch; None for the last one.
        sink: what the query writes, where several have such a store.
        application: the ``application_id``, where several have such a store.
        as_of: of a versioned store, the time whose versions are wanted; None for all.
        key_from: the first key; None for all from the beginning.
        key_to: the key before which to end; None for all to the end.
        changes_from: the micro-batch since which changes are wanted, instead of rows; None for rows.
    """

    checkpoint: str
    state_dir: str
    store: str
    batch: int | None = None
    sink: str | None = None
    application: str | None = None
    as_of: str | None = None
    key_from: str | None = None
    key_to: str | None = None
    changes_from: int | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Self:
        """Return the options as Spark has them.

        Raises:
            ConfigurationError: one is missing, unknown or no such thing.
        """
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise InvalidOptionError(
                    f"format {FORMAT!r} has no option {name!r}{did_you_mean(name, known)}; its options are "
                    f"{', '.join(known)}"
                )
        for name, what in _NEEDED.items():
            if not given.get(name):
                raise MissingArgumentError(
                    f"format {FORMAT!r} needs the option {name!r}, {what}; add .option({name!r}, ..)"
                )
        found: dict[str, Any] = {**given, **{name: _number(name, given[name]) for name in _NUMBERS if name in given}}
        return cls(**found)

    def selection(self, form: StoreForm) -> Selection:
        """Return which rows of a store are asked for.

        Raises:
            ConfigurationError: it has no such keys, or keeps no versions.
        """
        keys = {name: getattr(self, name) for name in ("key_from", "key_to")}
        parsed = {name: form.key.parse(text) for name, text in keys.items() if text is not None}
        for key in parsed.values():
            form.key.to_bytes(key)
        as_of = None if self.as_of is None else time_in(self.as_of, "as_of")
        if as_of is not None:
            form.instant(as_of)
        return Selection(**parsed, as_of=as_of)


def _number(name: str, text: str) -> int:
    if not text.isdecimal():
        raise InvalidOptionError(f"the option {name!r} is {text!r}; give the number of a micro-batch, such as 0")
    return int(text)


@dataclass(frozen=True)
class ReadRequest:
    """The request of a reader.

    Attributes:
        schema: the columns.
        parts: parts that a task of its own each can read.
        selection: which rows.
        key: the column of the store's keys.
    """

    schema: pa.Schema
    parts: Sequence[StorePart | ChangePart]
    selection: Selection
    key: KeyColumn

    @classmethod
    def by(cls, options: StateOptions) -> "ReadRequest":
        """Return the request that options ask for.

        Raises:
            ConfigurationError: there is no such checkpoint, micro-batch or store, or the selection does not fit it.
            FormatError: something is of a later release, or in a form that cannot be read so.
            DurabilityError: the checkpoint or the state directory cannot be read.
        """
        inspector = StateInspector.at(options.checkpoint, options.state_dir)
        place = {"sink": options.sink, "application_id": options.application}
        view = inspector.store(options.store, batch=options.batch, **place)
        selection = options.selection(view.form)
        if options.changes_from is None:
            return cls(view.schema, view.parts, selection, view.form.key)
        if options.changes_from > view.batch:
            raise ArgumentConflictError(
                f"changes_from is micro-batch {options.changes_from}, but the changes end with {view.batch}; give an "
                f"earlier one, or that: .option('changes_from', {view.batch})"
            )
        before = inspector.store(options.store, batch=options.changes_from, **place)
        return cls(change_schema(view.schema), change_parts(before, view), selection, view.form.key)

    @property
    def columns(self) -> T.StructType:
        """The columns as Spark has them."""
        return from_arrow_schema(self.schema, prefer_timestamp_ntz=True)


class StateSource(DataSource):
    """The source itself, which ``register_state_source`` makes known; ``StateOptions`` has its options."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> T.StructType:
        with short_errors():
            return self._asked.columns

    def reader(self, schema: T.StructType) -> DataSourceReader:
        """Return the reader of the store.

        Raises:
            ConfigurationError: the user has given columns that are not those of the store.
        """
        columns = self.schema()
        if not arrow_schema(schema).equals(arrow_schema(columns)):
            raise ArgumentConflictError(
                f"the schema {schema.simpleString()} was given, but the store has {columns.simpleString()}; leave "
                ".schema(...) out, and select or cast columns afterwards"
            )
        return StateReader(self._asked, schema)

    @cached_property
    def _asked(self) -> ReadRequest:
        """Found once, for ``schema``, and then passed on with this object."""
        return ReadRequest.by(StateOptions.of(self.options))


class StateReader(DataSourceReader):
    """Reads what is asked for.

    Args:
        asked: what that is.
        columns: as Spark has them.
    """

    def __init__(self, asked: ReadRequest, columns: T.StructType) -> None:
        self._secrets = SecretsInUse()
        self._asked = asked
        self._schema = arrow_schema(columns)

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._asked = replace(self._asked, selection=narrowed(self._asked.selection, filters, self._asked.key))
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(part) for part in self._asked.parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Where there is no part, Spark asks for one all the same.
        with short_errors():
            batches = () if partition.value is None else partition.value.rows(self._asked.selection)
            for batch in batches:
                yield from pa.Table.from_batches([batch]).cast(self._schema).to_batches()
