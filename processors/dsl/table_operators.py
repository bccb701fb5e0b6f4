"""Operators among tables: they need no stream, and return a table of the same class.

Rule of this module: nothing is changed once it is made. An operator adds to the graph and wraps the new handle.
"""

from collections.abc import Callable
from typing import Any, Self

from millpond.errors import NoHistoryError, TopologyError
from millpond.processors.dsl.wiring.foreign_key_join import join_on_foreign_key, outer_join_on_foreign_key
from millpond.processors.dsl.wiring.suppress import suppress
from millpond.processors.dsl.wiring.table import TableHandle, filtered, mapped, transformed
from millpond.processors.dsl.wiring.table_join import History, join_tables
from millpond.processors.dsl.wrapper import HandleWrapper
from millpond.processors.options.functions import keyed_joiner, keyed_mapper
from millpond.processors.options.joins import JoinType
from millpond.processors.options.materialized import Materialized
from millpond.processors.options.serdes import SerdeLike
from millpond.processors.options.suppressed import Suppressed


class TableOperators(HandleWrapper[TableHandle]):
    """A table of the latest value of each key."""

    @property
    def versioned(self) -> bool:
        """True if the rules for versioned tables apply downstream (KIP-914)."""
        return self._handle.versioned

    def filter(
        self,
        predicate: Callable[[Any, Any], bool],
        materialized: Materialized | None = None,
        *,
        vectorized: bool = False,
        name: str | None = None,
    ) -> Self:
        """Return the rows for which ``predicate(key, value)`` is true; a row for which it turns false is deleted.

        A versioned table's repeated tombstones are kept (KIP-914); other tables' are dropped if the value before is
        known.

        Args:
            predicate: the condition of rows to keep.
            materialized: a store for the rows, and its serdes.
            vectorized: whether ``predicate`` takes columns: it gets Arrow arrays of the keys and the values of many
                rows, and returns an array of as many truth values.
            name: the node's name.
        """
        return self._on(filtered(self._handle, predicate, True, materialized, name, vectorized=vectorized))

    def filter_not(
        self,
        predicate: Callable[[Any, Any], bool],
        materialized: Materialized | None = None,
        *,
        vectorized: bool = False,
        name: str | None = None,
    ) -> Self:
        """Return the rows for which ``predicate(key, value)`` is false; otherwise as ``filter``."""
        return self._on(filtered(self._handle, predicate, False, materialized, name, vectorized=vectorized))

    def map_values(
        self,
        mapper: Callable[..., Any],
        materialized: Materialized | None = None,
        *,
        value_serde: SerdeLike | None = None,
        name: str | None = None,
    ) -> Self:
        """Replace each value by ``mapper(value)``, or ``mapper(key, value)`` if it takes two parameters.

        The mapper is not called for deleted rows. A result of None deletes the row. ``value_serde`` is for the new
        values; the same unless given here or in ``materialized``.
        """
        return self._on(mapped(self._handle, mapper, materialized, value_serde, name))

    def transform_values(
        self,
        transformer: Callable[[Any, Any], Any],
        materialized: Materialized | None = None,
        *,
        value_serde: SerdeLike | None = None,
        name: str | None = None,
    ) -> Self:
        """Replace values as ``map_values`` does, but call ``transformer(key, value)`` for missing rows, too."""
        return self._on(transformed(self._handle, transformer, materialized, value_serde, name))

    def join(
        self,
        other: "TableOperators",
        joiner: Callable[..., Any],
        materialized: Materialized | None = None,
        *,
        foreign_key: Callable[..., Any] | None = None,
        history: History = "latest",
        vectorized: bool = False,
        name: str | None = None,
    ) -> Self:
        """Return the rows of keys in both tables, ``joiner(value, other_value)``, current whichever side changes.

        With versioned tables an update that is not its key's latest makes no result (KIP-914).

        Args:
            other: the table to join with. With ``foreign_key``, its keys are what that returns; otherwise they are this
                table's keys.
            joiner: ``joiner(value, other_value)``, or with three parameters ``joiner(key, value, other_value)``.
            materialized: a store for the result, and its serdes.
            foreign_key: ``foreign_key(value)``, or with two parameters ``foreign_key(key, value)``, returns the key
                of the other table (KIP-213). None joins nothing.
            history: ``"latest"``, or for two versioned tables ``"complete"``: then an update makes a result for every
                time at which it changes one, so that the results, taken by their timestamps, are right for all times.
                The joined table counts as versioned (KIP-914, "Attempt 2").
            vectorized: whether ``joiner`` and ``foreign_key`` take columns: they get Arrow arrays of many rows, where
                there is no other value null, and return an array of as many results. Not with a complete history.
            name: the beginning of the names of the join's nodes.

        Raises:
            TopologyError: the tables are not co-partitioned, cannot have a complete history, or lack a serde.

        >>> from millpond.processors import Materialized, Produced, StreamsBuilder, TopologyDriver
        >>> builder = StreamsBuilder(value_serde="string")
        >>> a, b = (builder.table(t, materialized=Materialized.versioned(history_retention=60_000)) for t in "ab")
        >>> a.join(b, "{}-{}".format, history="complete").to("joined", Produced(value_serde="string"))
        >>> with TopologyDriver(builder.build()) as driver:
        ...     driver.pipe("a", "k", "a0", 0)
        ...     driver.pipe("b", "k", "b2", 2)
        ...     driver.pipe("b", "k", "b4", 4)
        ...     driver.pipe("a", "k", "a1", 1)
        ...     [(value, timestamp) for _, value, timestamp in driver.read("joined")]
        [('a0-b2', 2), ('a0-b4', 4), ('a1-b2', 2), ('a1-b4', 4)]
        """
        return self._join(other, joiner, materialized, foreign_key, JoinType.INNER, history, vectorized, name)

    def left_join(
        self,
        other: "TableOperators",
        joiner: Callable[..., Any],
        materialized: Materialized | None = None,
        *,
        foreign_key: Callable[..., Any] | None = None,
        history: History = "latest",
        vectorized: bool = False,
        name: str | None = None,
    ) -> Self:
        """Join as ``join`` does, but every row of this table has a result; what the other table lacks is None."""
        return self._join(other, joiner, materialized, foreign_key, JoinType.LEFT, history, vectorized, name)

    def outer_join(
        self,
        other: "TableOperators",
        joiner: Callable[..., Any],
        materialized: Materialized | None = None,
        *,
        history: History = "latest",
        vectorized: bool = False,
        name: str | None = None,
    ) -> Self:
        """Join as ``join`` does, but every row of either table has a result; what one table lacks is None."""
        return self._join(other, joiner, materialized, None, JoinType.OUTER, history, vectorized, name)

    def outer_join_on(
        self,
        other: "TableOperators",
        joiner: Callable[..., Any],
        materialized: Materialized | None = None,
        *,
        foreign_key: Callable[..., Any],
        vectorized: bool = False,
        name: str | None = None,
    ) -> tuple[Self, Self]:
        """Return both tables of an outer join by foreign key: ``left_join``, and rows of ``other`` that no row names.

        The first has the keys of this table, the second those of ``other``, with its values. A row comes into the
        second when the last row that names it goes or names another one, and leaves it when the first one comes. What
        happens within a micro-batch counts as a whole. The arguments are as in ``join``; Kafka Streams has no such
        join.

        Raises:
            TopologyError: ``other`` is no table, or a serde is missing.

        >>> from millpond.processors import Materialized, StreamsBuilder, TopologyDriver
        >>> builder = StreamsBuilder(key_serde="string", value_serde="string")
        >>> orders, customers = builder.table("orders"), builder.table("customers")
        >>> named, unnamed = orders.outer_join_on(
        ...     customers, "{} by {}".format, Materialized(value_serde="string"), foreign_key=lambda order: order[-1]
        ... )
        >>> named.to("named")
        >>> unnamed.to("unnamed")
        >>> with TopologyDriver(builder.build()) as driver:
        ...     driver.pipe("customers", "c", "Cy", 1)
        ...     driver.pipe("orders", "1", "tea for c", 2)
        ...     driver.pipe("orders", "1", None, 3)
        ...     [tuple(record) for topic in ("named", "unnamed") for record in driver.read(topic)]
        [('1', 'tea for c by Cy', 2), ('1', None, 3), ('c', 'Cy', 1), ('c', None, 2), ('c', 'Cy', 3)]
        """
        self._check_table(other)
        joined, unnamed = outer_join_on_foreign_key(
            self._handle,
            other._handle,
            keyed_joiner(joiner),
            keyed_mapper(foreign_key),
            materialized or Materialized(),
            name,
            vectorized=vectorized,
        )
        return self._on(joined), self._on(unnamed)

    def _check_table(self, other: object) -> None:
        if not isinstance(other, TableOperators):
            raise TopologyError(
                f"table {self.node!r} can be joined with a table, not with {other!r}; a stream can join a table, and "
                "to_table() makes a table of a stream"
            )

    def _join(
        self,
        other: "TableOperators",
        joiner: Callable[..., Any],
        materialized: Materialized | None,
        foreign_key: Callable[..., Any] | None,
        join_type: JoinType,
        history: History,
        vectorized: bool,
        name: str | None,
    ) -> Self:
        self._check_table(other)
        if history not in ("latest", "complete"):
            raise TopologyError(f"history is {history!r}; give 'latest' or 'complete'")
        left, right, with_key = self._handle, other._handle, keyed_joiner(joiner)
        materialized = materialized or Materialized()
        if foreign_key is None:
            return self._on(
                join_tables(left, right, with_key, materialized, join_type, history, name, vectorized=vectorized)
            )
        if history != "latest":
            raise NoHistoryError(f"the foreign-key join of {self.node!r} with {other.node!r} has no complete history")
        extract = keyed_mapper(foreign_key)
        return self._on(
            join_on_foreign_key(left, right, with_key, extract, materialized, join_type, name, vectorized=vectorized)
        )

    def suppress(self, suppressed: Suppressed) -> Self:
        """Hold updates back, for a time or until their windows close (KIP-328).

        Raises:
            TopologyError: the table is versioned, or is to wait for windows but comes from no windowed aggregation.
        """
        return self._on(suppress(self._handle, suppressed))
