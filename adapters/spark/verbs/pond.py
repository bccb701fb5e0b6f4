"""``Millpond``: verbs on DataFrames, to be chained with Spark's own operations.

Rule of this module: it says which DataFrame a verb reads. What the verb is, ``millpond.processors.calls`` tells, and
how it runs, ``VerbRunner``. Nothing is started. Verbs on one DataFrame are here and in ``top``, those on two
or more in ``joins``.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructType

from millpond.adapters.spark.evolution.evolution import Evolution
from millpond.adapters.spark.job.job import Job
from millpond.adapters.spark.job.options import DEFAULT_MAX_AHEAD, JobOptions, Upgrade, distance_of, size_of
from millpond.adapters.spark.verbs.arguments import named_calls, with_own_gap
from millpond.adapters.spark.verbs.calling import verb
from millpond.adapters.spark.verbs.calls import Begin, StatesOfCalls
from millpond.adapters.spark.verbs.frame_rows import FrameRows
from millpond.adapters.spark.verbs.frames.inputs import check_rows
from millpond.adapters.spark.verbs.frames.sink import announced_columns
from millpond.adapters.spark.verbs.joins import JoinVerbs
from millpond.adapters.spark.verbs.runner import VerbRunner
from millpond.processors.calls.aggregate import call_aggregate
from millpond.processors.calls.apply import call_apply
from millpond.processors.calls.arguments import check_calls, column_names, moment_of
from millpond.processors.calls.calling import unknown_member
from millpond.processors.calls.latest import call_latest
from millpond.processors.calls.own_bounds import session_gap
from millpond.processors.options.given import fitted
from millpond.processors.options.grouping import By
from millpond.processors.options.on_error import OnError
from millpond.processors.verbs.aggregate import Windows
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.keyed_processor import KeyedProcessor
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.durability.manifests.policy import DurabilityPolicy
from millpond.stores.encoding.times import Duration, Instant


class Millpond(JoinVerbs):
    """Verbs on DataFrames, with state on the backend of your choice.

    Each verb is an operator with state of its own, under ``<application_id>.<name>`` in ``state_dir``. Its name, by
    default the verb and its columns, is what a restart finds its state by. Streaming DataFrames give a streaming
    DataFrame (append mode). Static ones are complete: they are processed in the order of time, from empty state, and
    whatever waits for a grace or a window comes out at the end. With ``backfill``, streams go on where static ones end.

    The result of a verb may be the input of another one, which waits for what the first one holds back; ``explain``
    says how long.

    Times are exact to the microsecond; one without a time zone is taken as it is written. Durations are timedeltas, int
    milliseconds or Spark's text (``"5 minutes"``).

    Args:
        application_id: the job's name, part of every path of its state.
        state_dir: where the durable state goes: a path or URI that every executor reaches.
        local_dir: where executors keep their local copies; by default a directory of Spark's own, which is deleted
            with the application.
        partitions: how many tasks share the work of each verb. By default as many as the state has, and for a new verb
            ``spark.sql.shuffle.partitions``, or one per core if nobody has set that. Another number than the state has
            takes an ``evolution``.
        backend: a name, a URL or a supplier; by default the session's ``spark.millpond.backend``, or else ``rocksdb``.
        on_error: what happens to a row that cannot be processed (no key, no time, an unknown operation), or for which a
            processor fails: ``"fail"``, ``"skip"`` or ``"dead-letter"``.
        max_ahead: how far a time may be ahead of the clock of the worker that reads it, or, where that clock is wrong
            by minutes, of the state directory's. A row that is further ahead cannot be processed (``on_error``),
            because it would move stream time for all. None is for times that do not follow the wall clock.
        policy: when to write snapshots, and how much history of the state to retain; by default as much as the
            session's ``spark.sql.streaming.minBatchesToRetain`` calls for.
        reset_stream_time: the moment (a datetime, or text such as ``"2026-06-01T12:00:00Z"``) to which a task's stream
            time is set back if it is later, with the first record that the task gets; once for each moment.
        checksums: whether the rows of the verbs' stores have checksums, which every read verifies; a change at a
            restart converts the local copies.
        upgrade_from: while local copies are upgraded in place: the release of Millpond that wrote them, such as
            ``"0.1.0"``. They stay in use as they are, and new ones are prepared beside them for the next restart
            (KIP-258). What is written meanwhile can be read by that release, so the job can go back to it.
        upgrade_mode: with ``upgrade_from``: ``"in_place"``, or ``"roll_over"`` if this job prepares nothing because
            another one does, with ``warm``, in another ``local_dir``.
        complete: a streaming DataFrame any row of which says that all inputs are complete: then whatever waits for a
            grace or a window comes out.
        evolution: what has changed since the state was written: the number of partitions, or verbs that have other
            names (``renamed``), are gone (``dropped``), or begin with the rows of others (``rekeyed``). The state of a
            verb is carried over when it is called. ``plan`` tells what to declare.
        memory_budget: bytes (or text such as ``"512MiB"``) for all stores that a Python worker serves, for all its
            tasks and queries; by default the session's ``spark.millpond.memory_budget``, or else none.
        share_operators: whether verbs of a chain may share an operator, where a verb has the key of the one before.

    Raises:
        ConfigurationError: an option is missing or invalid.
    """

    @fitted
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
        checksums: bool = False,
        upgrade_from: str | None = None,
        upgrade_mode: str | None = None,
        complete: DataFrame | None = None,
        evolution: Evolution | None = None,
        memory_budget: str | int | None = None,
        share_operators: bool = True,
    ) -> None:
        if complete is not None:
            check_rows("complete", complete)
        options = JobOptions(
            local_dir=local_dir,
            partitions=partitions,
            backend=backend,
            on_error=OnError.of(on_error),
            max_ahead=distance_of(max_ahead),
            policy=policy,
            reset_stream_time=moment_of(reset_stream_time, "reset_stream_time"),
            evolution=evolution,
            checksums=checksums,
            upgrade=Upgrade.of(upgrade_from, upgrade_mode),
            memory_budget=size_of(memory_budget, "memory_budget"),
            shares_operators=share_operators,
        )
        super().__init__(VerbRunner(Job.of(application_id, state_dir, options), complete))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            raise unknown_member(self, name)

    @verb
    def latest(
        self,
        rows: DataFrame,
        *,
        key: str | Sequence[str],
        time: str | Column,
        history: Duration,
        order: str | Column | None = None,
        op: str | Column | None = None,
        ttl: Duration | None = None,
        expired: Literal["silent", "delete"] = "silent",
        name: str | None = None,
        renamed: Mapping[str, str] | None = None,
        dropped: Collection[str] = (),
    ) -> DataFrame:
        """Make a table of a change feed: leave out changes that repeat a key's row, or that come too late.

        Args:
            rows: each sets what its key has from its time on, or deletes it.
            key: the columns of the key.
            time: the column (or expression) with the time of the change.
            history: how long deletes are remembered, and how late a row may be, beyond the bound that its time has from
                another verb. A later row counts only if no other of its key has replaced it by then.
            order: what decides among rows of one key and time, the greatest last, also across micro-batches: a column
                or an expression, such as an offset or a struct of several. Without it a later micro-batch does, and
                within one the rows' bytes: always the same way.
            op: the column that says which rows are deletes; by default the one of the change feed that a verb has made,
                or else none. Understood are upsert, insert, update, delete, c, r, u, d, +I, +U, -U, -D, update_preimage
                and update_postimage.
            ttl: how long the latest row of a key lives after its time, beyond the bound of ``time`` from another verb.
                Once the newest time is so much later, the row is gone as if it had been deleted. A row that is older
                when it comes is dropped and counted. None is for ever.
            expired: what comes out of a row whose ``ttl`` is over: ``"silent"`` for nothing, or ``"delete"`` for a row
                with ``op`` ``delete`` and the time at which it was over.
            name: the verb's name, by which a restart finds its state; by default ``latest`` and its columns.
            renamed, dropped: columns of the input that had another name in an earlier run, or that were there.

        Returns:
            A change feed: the key, the other columns, ``op``, ``sequence`` and ``change_time``.

        Raises:
            ConfigurationError: an argument is missing or invalid, or a column is absent or of a type that does not do.
            StateConflictError: the state is that of another verb, or of other columns.
            DurabilityError: the state could not be read or written.
        """
        start = self._start(renamed, dropped)
        made = call_latest(
            FrameRows(rows),
            start,
            key=key,
            time=time,
            history=history,
            order=order,
            op=op,
            ttl=ttl,
            expired=expired,
            name=name,
        )
        return self._result(start.run, made)

    @verb
    def aggregate(
        self,
        rows: DataFrame,
        calls: Mapping[str, AggregateCall],
        *,
        by: By,
        time: str | Column,
        order: str | Column | None = None,
        key: str | Sequence[str] | None = None,
        op: str | Column | None = None,
        window: Windows | None = None,
        until: Mapping[Instant | str, Windows] | None = None,
        emit: Literal["updates", "final"] = "updates",
        ttl: Duration | None = None,
        expired: Literal["silent", "delete"] = "silent",
        name: str | None = None,
        added: Collection[str] | Mapping[str, Begin] = (),
        renamed: Mapping[str, str] | None = None,
        dropped: Collection[str] = (),
    ) -> DataFrame:
        """Aggregate columns by key, or by key and window.

        Args:
            rows: the rows. If they are a change feed, the rows that it describes are aggregated: what a change replaces
                or deletes leaves its group, and a group without rows is deleted. To count the changes, drop ``op``.
            calls: what is computed, by the name of its column: ``{"orders": count(), "total": sum("amount")}``. See
                ``millpond.processors.verbs.aggregates``.
            by: the columns of the key; null is a key like any other. With ``[]`` all rows have one key, in one task.
                With ``cube("region", "product")``, ``rollup`` or ``grouping_sets`` of ``millpond.processors``, each row
                counts once for each of several sets of columns; names beside them, as in ``["day", cube("region")]``,
                are in every set. Columns that a set lacks are null in its results, and ``grouping_id`` says so.
            time: the column (or expression) with the time of a row.
            order: what decides for ``first``, ``last``, ``collect`` and ``map_agg`` among rows of one key and time, as
                in ``latest``. With a change feed that you name by ``op``, it decides which change of a key counts,
                whatever their times and micro-batches; the order of each key's last change is kept for ever.
            key: with a change feed: the columns by which its rows replace each other. A verb's own feed says them
                itself.
            op: the column (or expression) that says which rows are deletes; by default the one of the change feed that
                a verb has made.
            window: ``TimeWindows``, ``CumulativeWindows``, ``SlidingWindows`` or ``SessionWindows``, each with its
                grace, to which the bound of ``time`` from another verb is added. Later rows are dropped and counted.
                Sessions may have a gap of each row: a column (or expression) with an interval of days to seconds, or an
                integer of milliseconds.
            until: the windows of earlier runs, each by the time at which it ends (a datetime, or text such as
                ``"2026-06-01T12:00:00Z"``). Windows that begin before that time go on as they began; from then on
                ``window`` counts, or the next entry. No row of a later time may have come yet. Windows of time have a
                boundary then; sessions are cut. It stays in the code as long as the verb does.
            emit: ``"updates"`` for each key's last result of every micro-batch that changes it, or ``"final"`` for a
                window's result once, when it has closed.
            ttl: without a window: how long a result lives after the time of its last row, beyond the bound of ``time``
                from another verb. Then it is gone, and the next row of its key begins a new one. A row that is older
                when it comes is dropped and counted. None is for ever.
            expired: what comes out of a result whose ``ttl`` is over: ``"silent"`` for nothing, or ``"delete"`` for a
                row with ``op`` ``delete`` and the time at which it was over.
            name: the verb's name, by which a restart finds its state; by default ``aggregate`` and its columns.
            added: results that an earlier run did not have. They begin empty, as if no row had come. A mapping says for
                each from which time on rows count (a datetime, or text such as ``"2026-12-01T00:00:00Z"``), later than
                all that have come; a window or session that begins before has a null there. Or it has a static
                DataFrame with the columns of ``rows`` and all rows so far: then the result is as if it had always been
                there, which needs an ``Evolution`` of the Millpond and no ``ttl``. Over a change feed, results begin
                empty: a row that is there counts from its next change on.
            renamed, dropped: results that had another name in an earlier run, or that were there. A state goes on under
                its new name; a dropped one is deleted.

        Returns:
            The key, with ``grouping_id`` if there are grouping sets, ``window`` (start and end) if there are windows,
            and the results. Updates are a change feed, with ``op``, ``sequence`` and ``change_time``; a session that
            becomes part of another is deleted.

        Raises:
            ConfigurationError: an argument is missing or invalid, or a column is absent or of a type that does not do.
            StateConflictError: the state is that of another verb, or of other columns, or of calls that are not what
                they were; the message has what to write.
            DurabilityError: the state could not be read or written.
        """
        check_calls(calls, window)
        calls, gap = named_calls(rows, calls), session_gap(window, Column, "F.col")
        start = self._start(None, ())
        states = StatesOfCalls(start, rows, calls, added, renamed or {}, dropped)
        made = call_aggregate(
            FrameRows(rows if gap is None else with_own_gap(rows, gap)),
            states.begin,
            calls,
            by=by,
            time=time,
            order=order,
            key=key,
            op=op,
            window=window,
            until=until,
            emit=emit,
            ttl=ttl,
            expired=expired,
            name=name,
            binding=states,
        )
        filling = states.filling(made.verb, time=time, order=order, window=window, expires=ttl is not None)
        return self._result(start.run, made, filling=filling)

    @verb
    def apply(
        self,
        rows: DataFrame,
        processor: KeyedProcessor,
        *,
        key: str | Sequence[str],
        time: str | Column,
        schema: str | StructType,
        lateness: Duration,
        order: str | Column | None = None,
        optional: Collection[str] = (),
        ttl: Duration | None = None,
        name: str | None = None,
        renamed: Mapping[str, str] | None = None,
        dropped: Collection[str] = (),
        ticks: DataFrame | None = None,
    ) -> DataFrame:
        """Run a processor of your own, by key, with state and timers.

        It sees each key's rows and event-time timers in the order of time. As long as no row is later than
        ``lateness``, its results do not depend on the order of arrival, the number of tasks or the micro-batches.

        Args:
            rows: the rows.
            processor: what handles the rows: a ``KeyedProcessor``.
            key: the columns of the key.
            time: the column (or expression) with the time of a row.
            schema: the columns of the results, as Spark DDL or a ``StructType``.
            lateness: how late a row may be, beyond the bound of its time from another verb, and so how long each row
                waits. A later one is dropped and counted.
            order: what decides among rows of one key and time, as in ``latest``.
            optional: the columns that a result may lack, as in ``Produced``.
            ttl: how long ``context.state`` of a key lives after the processor last set it, by the times of rows and
                timers: one that comes so much later finds none. Timers stay, and find none either. None keeps the state
                until the processor deletes it.
            name: the verb's name, by which a restart finds its state; by default the processor's class and the columns.
            renamed, dropped: columns of the input that had another name in an earlier run, or that were there.
            ticks: for wall-clock timers: a streaming DataFrame any row of which wakes all tasks, so that timers fire
                also where no row comes, such as ``spark.readStream.format("rate").load()``.

        Returns:
            What the processor returned, with the columns of ``schema``. A timestamp in it counts as the time of the row
            or timer that brought it. If the next verb takes an older one for its time, give that verb a grace.

        Raises:
            ConfigurationError: an argument is missing or invalid, or a column is absent or of a type that does not do.
            StateConflictError: the state is that of another verb, or of other columns.
            DurabilityError: the state could not be read or written.
        """
        if ticks is not None:
            check_rows("ticks", ticks)
        label = name or f"{type(processor).__name__}-{'-'.join(column_names(key, 'key'))}"
        columns, results = announced_columns(label, schema, optional)
        start = self._start(renamed, dropped)
        made = call_apply(
            FrameRows(rows),
            start,
            processor,
            key=key,
            time=time,
            results=results,
            lateness=lateness,
            order=order,
            ttl=ttl,
            name=label,
        )
        return self._result(start.run, made, columns=columns, ticks=ticks)
