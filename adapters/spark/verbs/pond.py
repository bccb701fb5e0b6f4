"""``Millpond``: verbs on DataFrames, to be chained with Spark's own operations.

Rule of this module: a verb checks what the user wrote, describes its inputs, and leaves the rest to ``VerbRunner``.
Nothing is started.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T

from millpond.adapters.spark.job import DEFAULT_MAX_AHEAD, Job
from millpond.adapters.spark.verbs.arguments import (
    INPUT,
    On,
    aggregated_input,
    check_calls,
    chosen_join,
    column_names,
    column_pairs,
    emits_final,
    in_micros,
    join_windows,
    other_columns,
)
from millpond.adapters.spark.verbs.inputs import RowInput, check_names
from millpond.adapters.spark.verbs.runner import Evolution, VerbRun, VerbRunner
from millpond.adapters.spark.verbs.sink import announced_columns
from millpond.adapters.spark.verbs.tolerance import Timed, within
from millpond.errors import ConfigurationError
from millpond.processors.options.joins import JoinType
from millpond.processors.options.on_error import OnError
from millpond.processors.verbs.aggregate import WINDOW, AggregatedRows, Windows, aggregate
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.apply import apply_topology
from millpond.processors.verbs.asof_join import asof_join
from millpond.processors.verbs.keyed_processor import KeyedProcessor
from millpond.processors.verbs.latest import latest
from millpond.processors.verbs.row_aggregate import RowAggregate
from millpond.processors.verbs.stream_join import stream_join
from millpond.processors.verbs.table_join import table_join
from millpond.processors.verbs.verb import NullKeys, Verb
from millpond.stores.backend import BackendSupplier
from millpond.stores.durability.policy import DurabilityPolicy
from millpond.stores.serdes import Serde
from millpond.stores.times import Duration, Instant

_LEFT: Final = "left"
_RIGHT: Final = "right"


class Millpond:
    """Verbs on DataFrames, with state on the backend of your choice.

    Each verb is an operator with state of its own, under ``<application_id>.<name>`` in ``state_dir``. Its name, by
    default the verb and its columns, is what a restart finds its state by. Streaming DataFrames give a streaming
    DataFrame (append mode). Static ones are complete: they are processed in the order of time, from empty state, and
    whatever waits for a grace or a window comes out at the end.

    Times are exact to the microsecond; a timestamp without a time zone counts as UTC. Durations are timedeltas, int
    milliseconds or Spark's text (``"5 minutes"``).

    Args:
        application_id: the job's name, part of every path of its state.
        state_dir: where the durable state goes: a path or URI that every executor reaches.
        local_dir: where executors keep their local copies; by default a directory of Spark's own, which is deleted
            with the application.
        partitions: how many tasks share the work of each verb; by default ``spark.sql.shuffle.partitions``. It is part
            of the state and cannot be changed later.
        backend: a name, a URL or a supplier; by default the session's ``spark.millpond.backend``, or else ``rocksdb``.
        on_error: what happens to a row that cannot be processed (no key, no time, an unknown operation), or for which a
            processor fails: ``"fail"``, ``"skip"`` or ``"dead-letter"``.
        max_ahead: how far a time may be ahead of the clock of the worker that reads it; one that is further ahead
            cannot be processed (``on_error``), because it would move stream time for all. None, or a longer time, is
            for times that do not follow the wall clock.
        policy: when to write snapshots, and how much history of the state to retain; by default as much as the
            session's ``spark.sql.streaming.minBatchesToRetain`` calls for.
        reset_stream_time: the moment (a datetime, or text such as ``"2026-06-01T12:00:00Z"``) to which stream time is
            set back where a task's is later, with the first record that the task gets; once for each moment.
        complete: a streaming DataFrame any row of which says that all inputs are complete: then whatever waits for a
            grace or a window comes out.

    Raises:
        ConfigurationError: an option is missing or invalid.
    """

    def __init__(
        self,
        *,
        application_id: str,
        state_dir: str,
        local_dir: str | None = None,
        partitions: int | None = None,
        backend: str | BackendSupplier | None = None,
        on_error: str | OnError = OnError.FAIL,
        max_ahead: Duration | None = DEFAULT_MAX_AHEAD,
        policy: DurabilityPolicy | None = None,
        reset_stream_time: Instant | str | None = None,
        complete: DataFrame | None = None,
    ) -> None:
        job = Job.of(
            application_id,
            state_dir,
            local_dir,
            partitions,
            backend,
            on_error,
            max_ahead,
            policy,
            reset_stream_time,
        )
        self._runner = VerbRunner(job, complete)
        self._verbs: dict[str, tuple[VerbRun, Verb]] = {}

    def asof_join(
        self,
        left: DataFrame,
        right: DataFrame,
        *,
        on: On,
        left_time: str | Column,
        right_time: str | Column,
        history: Duration,
        how: Literal["inner", "left"] = "inner",
        grace: Duration | None = None,
        tolerance: Duration | None = None,
        right_op: str | Column | None = None,
        name: str | None = None,
        renamed: Mapping[str, str] | None = None,
        dropped: Collection[str] = (),
    ) -> DataFrame:
        """Each left row with the right row that was valid at its time: the last one that is not later.

        Args:
            left: the rows to be completed.
            right: versions of what completes them; each is valid from its time until that of the next one with its key.
            on: the columns that must be equal.
            left_time, right_time: the columns (or expressions) with the times: timestamps or dates.
            history: how far back from the newest time seen the versions are kept; an older left row finds none.
            how: ``"inner"``, or ``"left"`` to keep left rows without a match.
            grace: how long a left row waits for late right rows, in event time; by default it is joined at once.
            tolerance: how much older than the left row a match may be; by default as old as the history reaches.
            right_op: the column that says which right rows are deletes, as in a change feed.
            name: of the verb; by default made of ``asof_join`` and the columns.
            renamed, dropped: columns of the inputs that had another name, or were there, in an earlier run.

        Returns:
            All columns of the left side, then those of the right side that are not in ``on``.
        """
        join_type = chosen_join(how, JoinType.INNER, JoinType.LEFT)
        keys = column_pairs(on)
        reach = in_micros(history, "history")
        wait = None if grace is None else in_micros(grace, "grace")
        most = None if tolerance is None else in_micros(tolerance, "tolerance")
        if wait is not None and wait > reach:
            raise ConfigurationError(
                f"grace is {grace!r}, but only a history of {history!r} is kept; make history as long"
            )
        if most is not None:
            left_side, right_side = Timed.of(_LEFT, left, left_time), Timed.of(_RIGHT, right, right_time)
            left, right = left_side.frame, right_side.frame
        rest = other_columns(_RIGHT, right, keys.values(), right_op)
        check_names([*left.columns, *rest], changes=False)
        one = RowInput(_LEFT, left, list(keys), left.columns, left_time)
        other = RowInput(_RIGHT, right, list(keys.values()), rest, right_time, right_op).without_null_keys()
        if join_type is JoinType.INNER:
            one = one.without_null_keys()
        run = self._runner.verb(name or f"asof_join-{'-'.join(keys)}", (one, other), Evolution(renamed or {}, dropped))
        inputs = run.input(one, NullKeys.APART), run.input(other, NullKeys.DROPPED)
        joined = self._result(run, asof_join(run.name, *inputs, join_type, history=reach, grace=wait, columns=rest))
        if most is None:
            return joined
        return within(joined, left_side, right_side, most, rest if join_type is JoinType.LEFT else ())

    def stream_join(
        self,
        left: DataFrame,
        right: DataFrame,
        *,
        on: On,
        left_time: str | Column,
        right_time: str | Column,
        within: Duration | None = None,
        before: Duration | None = None,
        after: Duration | None = None,
        how: Literal["inner", "left", "outer"] = "inner",
        grace: Duration = 0,
        name: str | None = None,
        renamed: Mapping[str, str] | None = None,
        dropped: Collection[str] = (),
    ) -> DataFrame:
        """The pairs of rows with equal keys whose times are close.

        Args:
            left, right: the streams.
            on: the columns that must be equal.
            left_time, right_time: the columns (or expressions) with the times: timestamps or dates.
            within: how far apart the times may be; or else
            before, after: how much older, and how much newer, than the left row the right one may be.
            how: ``"inner"``; ``"left"`` or ``"outer"`` to keep the rows of the left or of both sides that find nobody.
                Such a row comes out once, when its window and grace have passed.
            grace: how late a row may be.
            name: of the verb; by default made of ``stream_join`` and the columns.
            renamed, dropped: columns of the inputs that had another name, or were there, in an earlier run.

        Returns:
            All columns of the left side, then those of the right side that are not in ``on``. Where there is no left
            row, the columns in ``on`` are the right row's.
        """
        join_type = chosen_join(how, *JoinType)
        keys = column_pairs(on)
        rest = other_columns(_RIGHT, right, keys.values())
        check_names([*left.columns, *rest], changes=False)
        windows = join_windows(within, before, after, grace)
        outer = join_type is JoinType.OUTER
        one = RowInput(_LEFT, left, list(keys), left.columns, left_time)
        other = RowInput(_RIGHT, right, list(keys.values()), right.columns if outer else rest, right_time)
        if join_type is JoinType.INNER:
            one = one.without_null_keys()
        if not outer:
            other = other.without_null_keys()
        evolution = Evolution(renamed or {}, dropped)
        run = self._runner.verb(name or f"stream_join-{'-'.join(keys)}", (one, other), evolution)
        inputs = run.input(one, NullKeys.APART), run.input(other, NullKeys.APART)
        shared = keys if outer else {}
        return self._result(run, stream_join(run.name, *inputs, join_type, windows, columns=rest, shared=shared))

    def table_join(
        self,
        left: DataFrame,
        right: DataFrame,
        *,
        on: On,
        left_time: str | Column,
        right_time: str | Column,
        left_key: str | Sequence[str] | None = None,
        left_op: str | Column | None = None,
        right_op: str | Column | None = None,
        how: Literal["inner", "left", "outer"] = "inner",
        history: Duration | None = None,
        name: str | None = None,
        renamed: Mapping[str, str] | None = None,
        dropped: Collection[str] = (),
    ) -> DataFrame:
        """Two change feeds joined into one, kept current whichever side changes.

        Args:
            left, right: change feeds: each row sets what its key has from now on, or deletes it.
            on: the columns that must be equal. They are the right side's key, and the left side's, too, unless
            left_key: the left side's key is other columns: then ``on`` is a foreign key, of which there may be many.
            left_time, right_time: the columns (or expressions) with the times of the changes.
            left_op, right_op: the columns that say which rows are deletes; without one, none are. Understood are
                upsert, insert, update, delete, c, r, u, d, +I, +U, -U, -D, update_preimage and update_postimage.
            how: ``"inner"``, ``"left"``, or, by key, ``"outer"``.
            history: makes the sides versioned: a change that is not its key's latest by time is no result, and deletes
                are remembered that long. Without it changes apply as they arrive.
            name: of the verb; by default made of ``table_join`` and the columns.
            renamed, dropped: columns of the inputs that had another name, or were there, in an earlier run.

        Returns:
            A change feed: the left side's key, its other columns, those of the right side that are not in ``on``, and
            ``op`` (``"upsert"`` or ``"delete"``), ``sequence`` (orders the changes of a key) and ``change_time``.
        """
        keys = column_pairs(on)
        primary = list(keys) if left_key is None else column_names(left_key)
        foreign = [] if primary == list(keys) else list(keys)
        join_type = chosen_join(how, *((JoinType.INNER, JoinType.LEFT) if foreign else JoinType))
        left_rest, right_rest = (
            other_columns(_LEFT, left, primary, left_op),
            other_columns(_RIGHT, right, keys.values(), right_op),
        )
        check_names([*primary, *left_rest, *right_rest], changes=True)
        one = RowInput(_LEFT, left, primary, left_rest, left_time, left_op, foreign)
        other = RowInput(_RIGHT, right, list(keys.values()), right_rest, right_time, right_op)
        evolution = Evolution(renamed or {}, dropped)
        run = self._runner.verb(name or f"table_join-{'-'.join(keys)}", (one, other), evolution)
        reach = None if history is None else in_micros(history, "history")
        inputs = run.input(one), run.input(other)
        return self._result(
            run,
            table_join(run.name, *inputs, join_type, history=reach, left_columns=left_rest, right_columns=right_rest),
        )

    def latest(
        self,
        rows: DataFrame,
        *,
        key: str | Sequence[str],
        time: str | Column,
        history: Duration,
        op: str | Column | None = None,
        name: str | None = None,
        renamed: Mapping[str, str] | None = None,
        dropped: Collection[str] = (),
    ) -> DataFrame:
        """A change feed made a table: without what repeats the row that a key has, and without what comes too late.

        Args:
            rows: each sets what its key has from its time on, or deletes it.
            key: the columns of the key.
            time: the column (or expression) with the time of the change.
            history: how long deletes are remembered, and how late a row may be; one that is later is dropped.
            op: the column that says which rows are deletes, as in ``table_join``; without one, none are.
            name: of the verb; by default made of ``latest`` and the columns.
            renamed, dropped: columns of the input that had another name, or were there, in an earlier run.

        Returns:
            A change feed: the key, the other columns, ``op``, ``sequence`` and ``change_time``.
        """
        keys = column_names(key)
        rest = other_columns(INPUT, rows, keys, op)
        check_names([*keys, *rest], changes=True)
        source = RowInput(INPUT, rows, keys, rest, time, op)
        run = self._runner.verb(name or f"latest-{'-'.join(keys)}", (source,), Evolution(renamed or {}, dropped))
        return self._result(
            run, latest(run.name, run.input(source), history=in_micros(history, "history"), columns=rest)
        )

    def aggregate(
        self,
        rows: DataFrame,
        calls: Mapping[str, AggregateCall],
        *,
        by: str | Sequence[str],
        time: str | Column,
        window: Windows | None = None,
        emit: Literal["updates", "final"] = "updates",
        name: str | None = None,
    ) -> DataFrame:
        """Columns aggregated by key, or by key and window.

        Args:
            rows: the rows.
            calls: what is computed, by the name of its column: ``{"orders": count(), "total": sum("amount")}``. See
                ``millpond.processors.verbs.aggregates``.
            by: the columns of the key; null is a key like any other.
            time: the column (or expression) with the time of a row.
            window: ``TimeWindows``, ``SlidingWindows`` or ``SessionWindows``, each with its grace; later rows are
                dropped and counted.
            emit: ``"updates"`` for each key's last result of every micro-batch that changes it, or ``"final"`` for a
                window's result once, when it has closed.
            name: of the verb; by default made of ``aggregate`` and the columns.

        Returns:
            The key, ``window`` (start and end) if there are windows, and the results. Updates are a change feed, with
            ``op``, ``sequence`` and ``change_time`` as well; a session that becomes part of another is deleted.
        """
        check_calls(calls, window)
        final = emits_final(emit, window)
        keys = column_names(by)
        check_names([*keys, *([WINDOW] if window is not None else []), *calls], changes=not final)
        arguments = {result: call.column for result, call in calls.items() if call.column is not None}
        source = aggregated_input(rows, keys, time, arguments)
        run = self._runner.verb(name or f"aggregate-{'-'.join(keys)}", (source,), Evolution({}, ()))
        types = source.schema(source.values)
        bound = RowAggregate(calls, {name: types.field(name).type for name in source.values})
        packed = AggregatedRows(source.role, run.keys(source), NullKeys.EQUAL, bool(arguments))
        verb = aggregate(run.name, packed, bound, window, final=final)
        return self._result(run, verb, value_serde=bound.input_serde)

    def apply(
        self,
        rows: DataFrame,
        processor: KeyedProcessor,
        *,
        key: str | Sequence[str],
        time: str | Column,
        schema: str,
        lateness: Duration,
        optional: Collection[str] = (),
        name: str | None = None,
        renamed: Mapping[str, str] | None = None,
        dropped: Collection[str] = (),
    ) -> DataFrame:
        """A processor of your own, by key, with state and timers.

        It sees each key's rows and event-time timers in the order of time. As long as no row is later than
        ``lateness``, its results do not depend on the order of arrival, the number of tasks or the micro-batches.

        Args:
            rows: the rows.
            processor: what handles them.
            key: the columns of the key.
            time: the column (or expression) with the time of a row.
            schema: the columns of the results, as Spark DDL.
            lateness: how late a row may be, and so how long each waits; a later one is dropped and counted.
            optional: the columns that not every result has, as in ``Produced``.
            name: of the verb; by default made of the processor's class and the columns.
            renamed, dropped: columns of the input that had another name, or were there, in an earlier run.

        Returns:
            What the processor returned, with the columns of ``schema``.
        """
        keys = column_names(key)
        source = RowInput(INPUT, rows, keys, rows.columns, time)
        label = name or f"{type(processor).__name__}-{'-'.join(keys)}"
        columns, announced = announced_columns(label, schema, optional)
        run = self._runner.verb(label, (source,), Evolution(renamed or {}, dropped))
        packed = run.input(source)
        topology = apply_topology(run.name, processor, packed.keys, packed.rows, in_micros(lateness, "lateness"))
        verb = Verb(topology, {packed.topic: packed}, (announced,))
        return self._result(run, verb, columns=columns)

    def read_store(self, verb: str, store: str, checkpoint: str, *, batch_id: int | None = None) -> DataFrame:
        """The content of a store as committed by a query, which may still be running, with typed columns.

        Args:
            verb: the name of a verb that this object has made.
            store: ``"right"`` of an as-of join, ``"left"`` or ``"right"`` of a table join, ``"latest"``, or
                ``"aggregate"``.
            checkpoint: the ``checkpointLocation`` of the query that runs the verb.
            batch_id: after which micro-batch; by default the last one. Spark retains 100 of them
                (``spark.sql.streaming.minBatchesToRetain``).

        Raises:
            ConfigurationError: there is no such verb or store, or the checkpoint has no commit of it.
        """
        if verb not in self._verbs:
            raise ConfigurationError(f"no verb of this Millpond is called {verb!r}, only {sorted(self._verbs)}")
        run, made = self._verbs[verb]
        return run.store(made, store, checkpoint, batch_id)

    def dead_letters(self, name: str | None = None) -> DataFrame:
        """The rows that ``on_error="dead-letter"`` has left out, with what is known of each.

        The columns are those of ``SparkStreams.dead_letters``.

        Args:
            name: of a verb; by default all verbs.

        Raises:
            ConfigurationError: no session is active.
            DurabilityError: the storage failed.
        """
        return self._runner.job.dead_letters(name)

    def _result(
        self,
        run: VerbRun,
        verb: Verb,
        *,
        value_serde: Serde[Any] | None = None,
        columns: T.StructType | None = None,
    ) -> DataFrame:
        if run.streaming and run.name in self._verbs:
            raise ConfigurationError(
                f"this Millpond has a verb called {run.name!r} already, and each has state of its own; give one of "
                "them another name=..., or make a new Millpond for another run"
            )
        rows = run.result(verb, value_serde=value_serde, columns=columns)
        self._verbs[run.name] = run, verb
        return rows
