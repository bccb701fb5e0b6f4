"""``Pond``: the verbs of ``Millpond`` on tables, in this process.

Rule of this module: it says what rows a verb takes, all at once or in micro-batches; ``MicroBatches`` runs it.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import pyarrow as pa

from millpond.errors import InvalidArgumentError, MissingArgumentError
from millpond.processors.calls.arguments import INPUT, LEFT, RIGHT, named_tables
from millpond.processors.calls.made import Made
from millpond.processors.calls.reports.batch_twin import Verification
from millpond.processors.calls.reports.grace_advice import GraceAdvice
from millpond.processors.options.given import fitted
from millpond.processors.options.on_error import OnError
from millpond.processors.pond.frames import Frame, kept_schema, table_of
from millpond.processors.pond.micro_batches import MicroBatches
from millpond.processors.pond.playing import Recording, advise_grace
from millpond.processors.pond.sides import VerbSide
from millpond.processors.pond.twins import verified
from millpond.processors.pond.verbs import Verbs
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.encoding.times import Duration, Instant


class PondInBatches(Verbs[pa.Schema, MicroBatches]):
    """The verbs on rows that come in micro-batches: each is given the columns of its inputs, and gives what runs."""

    def _side(self, role: str, rows: pa.Schema) -> VerbSide:
        if not isinstance(rows, pa.Schema):
            raise InvalidArgumentError(
                f"{role!r} is of type {type(rows).__name__}; give the columns of the rows that will come, a "
                "pyarrow.Schema, such as table.schema"
            )
        return VerbSide.of(role, kept_schema(role, rows))

    def _result(self, made: Made, sides: Sequence[VerbSide]) -> MicroBatches:
        return MicroBatches(made, sides, backend=self._backend, on_error=self._on_error)

    def _history(self, history: Duration | None, what: str = "history") -> Duration:
        if history is None:
            raise MissingArgumentError(f"{what} is missing; give how late rows may come, such as {what}='1 hour'")
        return history


class Pond(Verbs[Frame, pa.Table]):
    """The verbs of ``Millpond`` on tables, in this process, without Spark and Java.

    Rows are a ``pyarrow.Table``, a DataFrame of pandas, Polars or any library that exports Arrow streams, or a list
    of dicts. They are complete: they are processed in the order of time, and whatever waits for a grace or a window
    comes out at the end. For rows that come piece by piece, see ``in_batches``.

    Times are exact to the microsecond. Durations are timedeltas, int milliseconds or text (``"5 minutes"``).

    Args:
        backend: the backend of the state while a verb runs: a name, a URL or a supplier.
        on_error: what happens to a row that cannot be processed (no key, no time, an unknown operation), or for which
            your own function fails: ``"fail"``, ``"skip"`` or ``"dead-letter"``.

    Raises:
        UnknownBackendError, BackendNotInstalledError: there is no such backend, or it is not installed.
        ConfigurationError: there is no such policy.

    >>> from datetime import datetime
    >>> trades = [{"symbol": "ACME", "t": datetime(2026, 6, 1, 12, 0, 5), "size": 100}]
    >>> quotes = [{"symbol": "ACME", "t": datetime(2026, 6, 1, 12, 0, 3), "bid": 9.5}]
    >>> Pond().asof_join(trades, quotes, on="symbol", time="t").select(["symbol", "size", "bid"]).to_pylist()
    [{'symbol': 'ACME', 'size': 100, 'bid': 9.5}]
    """

    @fitted
    def __init__(self, *, backend: str | BackendSupplier = "memory", on_error: str | OnError = OnError.FAIL) -> None:
        super().__init__(backend, on_error)

    @property
    def in_batches(self) -> PondInBatches:
        """The same verbs on rows that come in micro-batches of your own cutting.

        Each is given schemas (``pyarrow.Schema``) in place of rows, and returns a ``MicroBatches``.
        """
        return PondInBatches(self._backend, self._on_error)

    def advise_grace(
        self,
        make: Callable[[timedelta], MicroBatches],
        *,
        rows: Frame = None,
        left: Frame = None,
        right: Frame = None,
        tables: Mapping[str, Frame] | None = None,
        arrived: str,
        every: Duration,
        graces: Sequence[Duration] | None = None,
    ) -> GraceAdvice:
        """Return the cost of some graces for a verb: rows that come too late, results that are wrong, and state.

        The rows, such as those of a day, are played through the verb as they arrived, once for each grace.

        Args:
            make: makes the verb of ``in_batches`` with a grace, or a history, which it is given as a timedelta.
            rows: the rows of a verb on one input.
            left, right: the rows of a join.
            tables: the rows of a ``multi_join``, by name.
            arrived: the column that says when a row arrived, of all inputs; the verb need not read it.
            every: the length of a micro-batch.
            graces: the graces to try; by default those for which 1 %, 0.1 %, 0.01 % and none of the rows come later.

        Returns:
            A line for each grace, the shortest first. ``print`` shows a table, and so does a notebook.

        Raises:
            ConfigurationError: the verb has other inputs, a column is absent, or something is no length of time.
            RecordError: a row cannot be used.
        """
        given = {INPUT: rows, LEFT: left, RIGHT: right, **named_tables(tables)}
        found = {role: table_of(role, one) for role, one in given.items() if one is not None}
        return advise_grace(make, Recording.of(found, arrived, every), graces)

    def verify(
        self,
        query: "Callable[[Pond], pa.Table]",
        written: Frame,
        *,
        key: str | Sequence[str] = (),
        time: str | None = None,
        since: Instant | str | None = None,
        until: Instant | str | None = None,
        shown: int = 20,
    ) -> Verification:
        """Compare the rows that came out of a verb with its result of all rows at once.

        Args:
            query: calls the verb, or a chain of them, of the Pond that it is given, on complete rows.
            written: the rows that came out, such as those of all micro-batches. Of a change feed, rows count that are
                there in the end.
            key: the columns by which a row that is different is told from one that is missing and one that is extra.
                A change feed needs them; those of windows have ``window`` among them.
            time: the column of times, for an interval; of a struct, its path, such as ``"window.start"``.
            since: the beginning of the interval, a datetime or text; None for all from the first.
            until: its end, which is left out; None for all to the last.
            shown: how many differences to show.

        Returns:
            How many rows are missing, extra and different, and the first of them, each with its key and columns.

        Raises:
            ConfigurationError: the rows have other columns, a change feed has no key, or the interval no time.
            RecordError: a row cannot be used.
        """
        keys = [key] if isinstance(key, str) else list(key)
        return verified(query(self), written, key=keys, time=time, since=since, until=until, shown=shown)

    def _side(self, role: str, rows: Frame) -> VerbSide:
        table = table_of(role, rows)
        return VerbSide.of(role, table.schema, table)

    def _result(self, made: Made, sides: Sequence[VerbSide]) -> pa.Table:
        given = {side.role: side.table for side in sides if side.table is not None}
        with MicroBatches(made, sides, backend=self._backend, on_error=self._on_error) as run:
            found = run.at_once(given)
            self.dead_letters += run.dead_letters
        return found

    def _history(self, history: Duration | None, what: str = "history") -> Duration:
        return 0 if history is None else history
