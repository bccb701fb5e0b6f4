"""``over`` of ``Millpond``: each row with results of the rows of its key up to it.

Rule of this module: it says which DataFrame the verb reads. What the verb is, ``millpond.processors.calls`` tells, and
how it runs, ``VerbRunner``. Nothing is started.
"""

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import Column, DataFrame

from millpond.adapters.spark.verbs.arguments import named_calls
from millpond.adapters.spark.verbs.calling import verb
from millpond.adapters.spark.verbs.frame_rows import FrameRows
from millpond.adapters.spark.verbs.top import TopVerbs
from millpond.processors.calls.arguments import check_calls
from millpond.processors.calls.over import call_over
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.stores.encoding.times import Duration


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
        renamed: Mapping[str, str] | None = None,
        dropped: Collection[str] = (),
    ) -> DataFrame:
        """Each row, once, with aggregates of the rows of its key up to it, and with values of those before it.

        It is what ``OVER (PARTITION BY key ORDER BY time)`` gives in a batch. The rows of a key count in the order of
        ``time``. Each waits until nothing earlier can come, so the answer is that of all rows that are in time,
        whatever files, micro-batches and tasks they come in, and what has come out stays right.

        The aggregates are of all rows up to each one, itself included (``ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT
        ROW``), of the ``last`` so many, or of those ``within`` some time before it, with all that have its time
        (``RANGE BETWEEN``). Verbs with other frames can follow one another; they share an operator.

        The state has, of each key, the aggregates of its last row, and with ``last``, ``within`` or ``lag`` the
        arguments of the rows that the next one may reach; and the rows that wait.

        Args:
            rows: the rows. They stay once they have come: a change feed, whose rows are replaced and deleted, is
                refused.
            calls: by the name of the result, a call of ``millpond.processors.verbs.aggregates``: one that aggregates,
                or ``lag("column", 2)`` for the value of the second row before each.
            key: the columns by which rows belong together; null is a value like any other.
            time: the column (or expression) with the time of a row.
            last: of how many rows at most an aggregate is, each row itself included.
            within: how much earlier than a row the rows are at most that an aggregate is of.
            grace: how late a row may be, beyond the bound that ``time`` has from another verb, and so how long each
                waits for earlier ones; later rows are dropped and counted. With 0 it waits for the next time.
            order: what decides among rows of one key and time, the least first: a column or an expression. Without it
                the other columns do, always in the same way.
            ttl: after how long without a row a key is forgotten, and its next row is the first; None for never.
            name: of the verb; by default made of ``over`` and the columns.
            renamed, dropped: columns of the input that had another name, or were there, in an earlier run.

        Returns:
            The key, the other columns, and the results. A row comes out with its own time, which is no later than that
            of the clock less the grace.

        Raises:
            ConfigurationError: an argument is missing or invalid, a column is absent or of a type that does not do, or
                the rows are a change feed.
            StateConflictError: the state is that of another verb, of other columns, calls or frames, or another order.
            DurabilityError: the state could not be read or written.
        """
        check_calls(calls, None)
        start = self._start(renamed, dropped)
        made = call_over(
            FrameRows(rows),
            start,
            named_calls(rows, calls),
            key=key,
            time=time,
            last=last,
            within=within,
            grace=grace,
            order=order,
            ttl=ttl,
            name=name,
        )
        return self._result(start.run, made)
