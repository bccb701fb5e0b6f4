"""``over`` of ``Millpond``: each row with results of the rows of its key up to it.

Rule of this module: it says which DataFrame the verb reads. What the verb is, ``millpond.processors.calls`` tells, and
how it runs, ``VerbRunner``. Nothing is started.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame

from millpond.adapters.spark.verbs.arguments import named_calls
from millpond.adapters.spark.verbs.calling import verb
from millpond.adapters.spark.verbs.calls import (
    added_calls,
    arguments_of,
    call_states,
    check_added,
    conditions_of,
    seconds_of,
)
from millpond.adapters.spark.verbs.frame_rows import FrameRows
from millpond.adapters.spark.verbs.frames.inputs import RowInput
from millpond.adapters.spark.verbs.frames.kept_schemas import ColumnChanges
from millpond.adapters.spark.verbs.runner import VerbStart
from millpond.adapters.spark.verbs.top import TopVerbs
from millpond.errors import InvalidEvolutionError
from millpond.processors.calls.arguments import check_calls
from millpond.processors.calls.over import call_over
from millpond.processors.calls.readings import ARGUMENT, Packing
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.kept_calls import CallChanges
from millpond.processors.verbs.ordered.over_spec import STORE, Calls
from millpond.stores.encoding.times import Duration
from millpond.stores.evolution.matching import check_said


def renamed_results(calls: Collection[str], renamed: Mapping[str, str]) -> dict[str, str]:
    """Return the new names of results among ``renamed``."""
    return {old: new for old, new in renamed.items() if new in calls}


def column_changes(
    calls: Collection[str], renamed: Mapping[str, str], dropped: Collection[str], values: Collection[str]
) -> ColumnChanges:
    """Return the declarations of columns, among them the hidden ones with arguments of calls.

    Args:
        calls: the names of the results.
        renamed, dropped: of results and columns, as the user gave them.
        values: the columns that are packed.
    """
    results = renamed_results(calls, renamed)
    columns = {old: new for old, new in renamed.items() if old not in results}
    hidden = {f"{ARGUMENT}{old}": f"{ARGUMENT}{new}" for old, new in results.items()}
    behind = {old: new for old, new in hidden.items() if new in values}
    return ColumnChanges({**columns, **behind}, [*dropped, *(f"{ARGUMENT}{name}" for name in dropped)])


@dataclass
class _KeptCalls:
    """Begins an ``over``, and binds its calls to the places that they have in its state.

    Attributes:
        start: begins it with what is declared of columns, among them the hidden ones with arguments.
        rows, calls, added, renamed, dropped: as the user gave them.
    """

    start: VerbStart
    rows: DataFrame
    calls: Mapping[str, AggregateCall]
    added: Collection[str]
    renamed: Mapping[str, str]
    dropped: Collection[str]

    def __post_init__(self) -> None:
        check_said(self.renamed, self.dropped)
        check_added(self.added)

    def begin(self, name: str, inputs: Sequence[RowInput]) -> Packing:
        """Return the packing of the verb's rows.

        Raises what ``VerbStart`` raises.
        """
        (rows,) = inputs
        self.start.changes = column_changes(self.calls, self.renamed, self.dropped, rows.values)
        return self.start(name, inputs)

    def bind(self, bind: Callable[..., Calls]) -> Calls:
        """Return the calls, bound to the places of their states.

        Raises what ``call_states`` raises.
        """
        run, rows, calls, first = self.start.run, self.rows, self.calls, bind()
        if isinstance(self.added, Mapping):
            raise InvalidEvolutionError(
                f"the verb {run.name!r}: added is a mapping, but results of over begin with the rows that have not "
                f"come out yet; give a list of their names, added={list(self.added)}"
            )
        renamed = renamed_results(calls, self.renamed)
        beside = {old: new for old, new in self.renamed.items() if old not in renamed}
        changes = CallChanges(added_calls(self.added, run.name), renamed, self.dropped, beside=beside)
        kept = first.kept(arguments_of(rows, calls), conditions_of(rows, calls), seconds_of(rows, calls))
        states = call_states(run, run.inputs[0], kept, changes, first.slots.name, STORE)
        return bind(slots=states.slots)


class OverVerbs(TopVerbs):
    """Verbs that show each row beside others of its key."""

    @verb
    def over(
        self,
        rows: DataFrame,
        calls: Mapping[str, AggregateCall],
        *,
        key: str | Sequence[str],
        time: str | Column,
        last: int | None = None,
        within: Duration | None = None,
        grace: Duration = 0,
        order: str | Column | None = None,
        ttl: Duration | None = None,
        name: str | None = None,
        added: Collection[str] = (),
        renamed: Mapping[str, str] | None = None,
        dropped: Collection[str] = (),
    ) -> DataFrame:
        """Return each row, once, with aggregates of the rows of its key up to it, and with values of earlier ones.

        It is what ``OVER (PARTITION BY key ORDER BY time)`` gives in a batch. The rows of a key count in the order of
        ``time``. Each waits until nothing earlier can come, so the answer is that of all rows that are in time,
        whatever files, micro-batches and tasks they come in, and what has come out stays right.

        The aggregates are of all rows up to each one, itself included (``ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT
        ROW``), of the ``last`` so many, or of those ``within`` some time before it, with all that have its time
        (``RANGE BETWEEN``). Verbs with other frames can follow one another; they share an operator.

        The state has, of each key, the aggregates of its last row, and with ``last``, ``within`` or ``lag`` the
        arguments of the rows that the next one may reach; and the rows that wait.

        Args:
            rows: the rows. They stay once they have come: a change feed is refused.
            calls: what is computed, by the name of its column: a function of ``millpond.processors.verbs.aggregates``,
                or ``lag("column", 2)`` for the value of the second row before each.
            key: the columns by which rows belong together; null is a value like any other.
            time: the column (or expression) with the time of a row.
            last: the number of rows of an aggregate at most, the row itself included.
            within: the rows of an aggregate: rows at most so much earlier than the row, and all of its own time.
                Without both, of all rows up to it.
            grace: how late a row may be, beyond the bound of ``time`` from another verb, and so how long each row waits
                for earlier ones; later rows are dropped and counted. With 0 it waits for the next time.
            order: what decides among rows of one key and time, the least first: a column or an expression. Without it
                the other columns do, always the same way.
            ttl: after how long without a row a key is forgotten, and its next row is the first; None for never.
            name: the verb's name, by which a restart finds its state; by default ``over`` and its columns.
            added: results that an earlier run did not have. They are of the rows that have not come out yet.
            renamed, dropped: results, and columns of the input, that had another name in an earlier run, or that were
                there.

        Returns:
            The key, the other columns, and the results. A row comes out with its own time, which is at least the grace
            behind the clock.

        Raises:
            ConfigurationError: an argument is missing or invalid, a column is absent or of a type that does not do, or
                the rows are a change feed.
            StateConflictError: the state is that of another verb, of other columns or frames, of another order, or of
                calls that are not what they were; the message has what to write.
            DurabilityError: the state could not be read or written.
        """
        check_calls(calls, None)
        calls = named_calls(rows, calls)
        kept = _KeptCalls(self._start(None, ()), rows, calls, added, renamed or {}, dropped)
        made = call_over(
            FrameRows(rows),
            kept.begin,
            calls,
            key=key,
            time=time,
            last=last,
            within=within,
            grace=grace,
            order=order,
            ttl=ttl,
            name=name,
            binding=kept.bind,
        )
        return self._result(kept.start.run, made)
