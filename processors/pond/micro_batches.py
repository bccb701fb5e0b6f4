"""``MicroBatches``: a verb that runs, micro-batch by micro-batch.

Rule of this module: it knows no verb by name. Its arguments have been checked, except for the rows.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from millpond.errors import ConfigurationError, InvalidCallError, RecordError
from millpond.processors.calls.arguments import INPUT, moment_of, named_tables
from millpond.processors.calls.made import Made
from millpond.processors.options.on_error import OnError
from millpond.processors.pond.frames import Frame, table_of
from millpond.processors.pond.local_stores import LocalStores
from millpond.processors.pond.marks import noted
from millpond.processors.pond.matches import LocalRetained, explain_match
from millpond.processors.pond.sides import VerbSide
from millpond.processors.pond.verb_tasks import VerbTasks
from millpond.processors.runtime.failures import DeadLetter
from millpond.processors.verbs.matching.explanation import MatchExplanation
from millpond.processors.verbs.matching.retained import LookedUp, Retained
from millpond.processors.verbs.verb import MICROS
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.encoding.times import Instant
from millpond.stores.specs.directory import check_plain_name


class MicroBatches:
    """A verb that runs: rows go in, and results come out with each micro-batch.

    A verb of ``Pond().in_batches`` makes it. Each is taken in the order of time, so a row is late only by what
    earlier micro-batches have shown. A micro-batch that raises leaves no trace.

    Args:
        made: the verb.
        sides: its inputs.
        backend: the backend of its stores.
        on_error: what happens to rows that cannot be used.

    Raises:
        ConfigurationError: the verb has a name that no directory can have.

    Attributes:
        schema: the columns of the result.
        late_rows: how many rows have been dropped so far because they came too late.
        dead_letters: with ``on_error="dead-letter"``, the rows that were left out so far.
    """

    def __init__(
        self,
        made: Made,
        sides: Sequence[VerbSide],
        *,
        backend: str | BackendSupplier,
        on_error: OnError,
    ) -> None:
        check_plain_name("name", made.verb.name)
        self.schema = noted(made)
        self.late_rows = 0
        self.dead_letters: list[DeadLetter] = []
        self._buried: list[DeadLetter] = []
        self._made, self._sides = made, {side.role: side for side in sides}
        keep_letter = self._buried.append if on_error is OnError.DEAD_LETTER else None
        self._tasks = VerbTasks(made, 1, on_error, keep_letter)
        self._directory = tempfile.TemporaryDirectory(prefix="millpond-")
        self._stores: LocalStores | None = LocalStores(Path(self._directory.name), backend)
        self._number = 0
        self._clock = 0

    @property
    def name(self) -> str:
        """The verb's name."""
        return self._made.verb.name

    @property
    def inputs(self) -> Mapping[str, pa.Schema]:
        """By input (``"input"``, ``"left"`` and ``"right"``, or a table's name), the columns that it was made with."""
        return {role: side.schema for role, side in self._sides.items()}

    @property
    def times(self) -> Mapping[str, str]:
        """By input, the column with the times."""
        return {role: read.rows.paths[read.time][0] for role, read in self._made.selections.items()}

    @property
    def key(self) -> Sequence[str] | None:
        """The columns by which a row of the change feed replaces another one; None if rows that came out stay."""
        return None if self._made.feed is None else self._made.row

    @property
    def state_size(self) -> tuple[int, int]:
        """The number of entries of the stores, and of bytes in their keys and values; each entry is looked at."""
        rows = size = 0
        for backend in self._opened().backends:
            for key, value in backend.scan():
                rows, size = rows + 1, size + len(key) + len(value)
        return rows, size

    def feed(
        self,
        rows: Frame = None,
        *,
        left: Frame = None,
        right: Frame = None,
        tables: Mapping[str, Frame] | None = None,
    ) -> pa.Table:
        """Process the next rows of an input, or of several, as one micro-batch.

        Args:
            rows: the rows of a verb on one input.
            left, right: the rows of a join; one of them may be left out.
            tables: the rows of a ``multi_join``, by name; some tables may be left out.

        Returns:
            The rows that come out.

        Raises:
            ConfigurationError: the verb has no such input, these are no rows, or rows with other columns.
            RecordError: a row cannot be used, or a value cannot be kept.
        """
        with self._named():
            given = {INPUT: rows, "left": left, "right": right, **named_tables(tables)}
            found = {role: one for role, one in given.items() if one is not None}
            others = [role for role in found if role not in self._sides]
            if others or not found:
                asked = "feed(rows)" if INPUT in self._sides else "feed(left=..., right=...), or one of the two"
                if not {INPUT, "left"} & self._sides.keys():
                    each = ", ".join(f"{role!r}: ..." for role in self._sides)
                    asked = f"feed(tables={{{each}}}), or some of them"
                raise InvalidCallError(f"feed was given {' and '.join(map(str, found)) or 'nothing'}; write {asked}")
            return self._micro_batch(
                {role: table_of(role, one, self._sides[role].schema) for role, one in found.items()}
            )

    def advance(self, time: Instant | str) -> pa.Table:
        """Let time pass as if a row of that time had come with each input; one micro-batch without rows.

        Args:
            time: a datetime, or text such as ``"2026-06-01T12:00:00Z"``. One that is earlier than rows changes nothing.

        Returns:
            The rows that come out because nothing waits for their grace or window any more.

        Raises:
            ConfigurationError: it is no time.
        """
        with self._named():
            return self._micro_batch({}, reached=moment_of(time, "the time to advance to"))

    def tick(self, clock: Instant | str) -> pa.Table:
        """Let the clock of the machine show a time, to this micro-batch without rows and to those after it.

        Until then it shows 1970.

        Args:
            clock: a datetime, or text such as ``"2026-06-01T12:00:00Z"``.

        Returns:
            The rows that come out because timers by the wall clock are due.

        Raises:
            ConfigurationError: it is no time.
        """
        with self._named():
            shown = moment_of(clock, "the time of the clock")
            self._clock = 0 if shown is None else shown // MICROS
            return self._micro_batch({}, tick=True)

    def complete(self) -> pa.Table:
        """Let everything come out that waits for later rows, because there are none; one micro-batch.

        Returns:
            The rows that come out.
        """
        return self._micro_batch({}, complete=True)

    def at_once(self, tables: Mapping[str, pa.Table]) -> pa.Table:
        """Return the results of complete inputs: one micro-batch, and all that waits behind it.

        Args:
            tables: by input, in the types that verbs keep.

        Raises:
            RecordError: a row cannot be used, or a value cannot be kept.
        """
        return self._micro_batch(tables, complete=True)

    def explain_match(self, row: Mapping[str, Any]) -> MatchExplanation:
        """Explain why a row of a join has the match that it has, by what the join still keeps.

        A ``lookup_join`` keeps nothing: its table is read in the version that the last micro-batch has read.

        Args:
            row: a row of the result, or one of the left side, by the names of its columns.

        Returns:
            The rows of its key that it could have met, each with why it is the match or is not. ``print`` shows them as
            a table.

        Raises:
            ConfigurationError: the verb is no join, or the row lacks a column that is needed.
            RecordError: a value cannot be kept.
            MissingFileError: the table that it looks up does not keep that version any more.
        """
        with self._named():
            return explain_match(self._made, self._sides, row, self._retained())

    def close(self) -> None:
        """Forget all state. It may be called twice."""
        if self._stores is not None:
            self._stores.close()
            self._stores = None
            self._directory.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _retained(self) -> Retained:
        """Return the stores or tables that tell which rows a row could have met."""
        stores, tables, versions = self._opened(), self._made.verb.tables, self._tasks.versions
        if not tables:
            return LocalRetained(self._tasks.plan, stores)
        if versions:
            return LookedUp(tables, versions, "the last micro-batch")
        return LookedUp(tables, {name: table.newest() for name, table in tables.items()}, "the first micro-batch")

    def _opened(self) -> LocalStores:
        """Return the stores.

        Raises:
            ConfigurationError: they are closed.
        """
        if self._stores is None:
            raise InvalidCallError(f"{self._made.verb.name} is closed; make the verb again")
        return self._stores

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Begin each message about rows with the verb."""
        try:
            yield
        except (ConfigurationError, RecordError) as error:
            if not str(error).startswith("verb "):
                error.args = (f"{self._made.verb.name}: {error}",)
            raise

    def _micro_batch(
        self,
        tables: Mapping[str, pa.Table],
        *,
        reached: int | None = None,
        complete: bool = False,
        tick: bool = False,
    ) -> pa.Table:
        stores = self._opened()
        inputs = {role: [self._sides[role].prepared(table)] for role, table in tables.items()}
        try:
            found = self._tasks.micro_batch(
                self._number, inputs, stores, reached=reached, complete=complete, clock=self._clock, tick=tick
            )
            stores.commit()
        except BaseException:
            stores.rollback()
            raise
        else:
            self._number += 1
            self.late_rows += sum(len(one.records) for one in self._tasks.late)
            self.dead_letters += self._buried
        finally:
            self._tasks.late.clear()
            self._buried.clear()
        made = pa.concat_tables(found) if found else self._made.verb.schema.empty_table()
        return pa.Table.from_arrays(made.columns, schema=self.schema)
