"""``SparkStreams``: runs a topology on DataFrames.

Rule of this module: it builds a plan of DataFrames, and starts nothing but a backfill, and a query where that has
several sinks. Every mistake that can be found early is raised here, in the driver, before a query starts. What the
job has kept is in ``state_access``.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millpond.adapters.spark.evolution.evolution import Evolution
from millpond.adapters.spark.job.backfill import backfilled
from millpond.adapters.spark.job.inputs import check_inputs, check_ticks, session_of
from millpond.adapters.spark.job.job import Job
from millpond.adapters.spark.job.options import DEFAULT_MAX_AHEAD, JobOptions, Upgrade, distance_of, size_of
from millpond.adapters.spark.job.state_access import StateAccess
from millpond.adapters.spark.job.worker_settings import worker_settings
from millpond.adapters.spark.operator.dataflow import Dataflow
from millpond.adapters.spark.operator.on_workers import OnWorkers
from millpond.adapters.spark.outputs.output import OutputLike
from millpond.adapters.spark.outputs.query import SeveralSinks, chosen
from millpond.adapters.spark.rows.flat_rows import FlatRows
from millpond.adapters.spark.rows.sink import Sink
from millpond.adapters.spark.rows.source import select_source
from millpond.adapters.spark.session.session import check_workers
from millpond.errors import ArgumentConflictError, StreamingOrStaticError
from millpond.processors.calls.arguments import moment_of
from millpond.processors.distribution.plan import Plan
from millpond.processors.options.given import fitted
from millpond.processors.options.on_error import OnError
from millpond.processors.runtime.topology import Topology
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.durability.manifests.policy import DurabilityPolicy
from millpond.stores.encoding.times import Duration, Instant, TimeUnit


class SparkStreams(StateAccess):
    """Runs a topology on Spark: DataFrames in, a DataFrame out, state on the backend of your choice.

    Args:
        topology: what to run.
        application_id: the job's name, part of every path of its state.
        state_dir: where the durable state goes: a path or URI that every executor reaches.
        local_dir: where executors keep their local copies; by default a directory of Spark's own, which is deleted
            with the application.
        partitions: how many tasks share the work of each sub-topology. By default as many as the state has, and for a
            new job ``spark.sql.shuffle.partitions``, or one per core if nobody has set that. Ideally a multiple of the
            shuffle partitions. Another number than the state has takes an ``evolution``.
        backend: the backend of stores that do not name one: a name, a URL or a supplier; by default the session's
            ``spark.millpond.backend``, or else ``rocksdb``.
        on_error: what happens to a record that cannot be processed, or for which a function of yours fails: ``"fail"``,
            ``"skip"`` or ``"dead-letter"``.
        max_ahead: how far a timestamp may be ahead of the clock of the worker that reads it, or where that is wrong by
            minutes, of the state directory's; one that is further ahead cannot be processed (``on_error``), because it
            would move stream time for all. None, or a longer time, is for timestamps that do not follow the wall clock.
        policy: when to write snapshots, and how much history of the state to retain; by default as much as the
            session's ``spark.sql.streaming.minBatchesToRetain`` calls for.
        reset_stream_time: the moment (a datetime, or text such as ``"2026-06-01T12:00:00Z"``) to which stream time is
            set back where a task's is later, with the first record that the task gets; once for each moment.
        evolution: what has changed since the state was written: another number of partitions, stores that were renamed,
            dropped or added. The state is carried over when ``transform`` is called.
        checksums: whether the rows of stores that do not say it themselves have checksums, which every read verifies; a
            change at a restart converts the local copies.
        upgrade_from: while local copies are upgraded in place: the release of Millpond that wrote them, such as
            ``"0.1.0"``. They stay in use as they are, and new ones are prepared beside them for the next restart
            (KIP-258). What is written meanwhile can be read by that release, so the job can go back to it.
        upgrade_mode: with ``upgrade_from``: ``"in_place"``, or ``"roll_over"`` if this job prepares nothing because
            another one does, with ``warm``, in another ``local_dir``.
        seeds: the entries with which new stores begin, by the store's name: static DataFrames with the columns of
            ``read_store(for_seeds=True)``. Stores are new when the job begins, or when its state is carried over and
            they continue no other. Seeds may stay in the code; they are not sent downstream.
        memory_budget: bytes (or text such as ``"512MiB"``) for all stores that a Python worker serves, of all its tasks
            and queries; by default the session's ``spark.millpond.memory_budget``, or else none.

    Raises:
        ConfigurationError: an option is missing or invalid.
    """

    @fitted
    def __init__(
        self,
        topology: Topology,
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
        evolution: Evolution | None = None,
        checksums: bool = False,
        upgrade_from: str | None = None,
        upgrade_mode: str | None = None,
        seeds: Mapping[str, DataFrame] | None = None,
        memory_budget: str | int | None = None,
    ) -> None:
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
            seeds=seeds or {},
        )
        super().__init__(topology, Job.of(application_id, state_dir, options))

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        *,
        sink: str | None = None,
        complete: DataFrame | None = None,
        ticks: DataFrame | None = None,
    ) -> DataFrame:
        """Return the rows that the topology writes to a sink, as a DataFrame to be written like any other.

        Streaming DataFrames give a streaming DataFrame (append mode), static ones a static DataFrame that is computed
        from empty state.

        Args:
            inputs: a DataFrame for each of the topology's source topics; ``Consumed`` says which column is what.
            sink: which sink; may be left out if there is only one. Only what this sink depends on is run, and its
                state is separate from that of other sinks.
            complete: a DataFrame any row of which says that the inputs are complete: then whatever waits for a grace, a
                window or a suppression comes out. For static inputs, ``spark.range(1)`` will do.
            ticks: a streaming DataFrame any row of which wakes all tasks, so that wall-clock punctuations fire also
                where no record comes, such as ``spark.readStream.format("rate").load()``. Without it they fire in
                micro-batches that bring their task records.

        Raises:
            ConfigurationError: an input is missing or unknown, a column is missing or of the wrong type, the backend
                is unknown, the session is not set up for it, or ticks cannot wake any task.
            TopologyError: the topology has no such sink.
            StateConflictError: the state directory holds the state of another topology or number of partitions, and
                what ``evolution`` declares does not lead to this one.
            DurabilityError: the state could not be read or written.
        """
        session, job = session_of(inputs), self._job.looking()
        plan = self._one_sink(job, session, sink)
        flow = replace(self._flow(session, plan, inputs, complete), ticks=ticks)
        streaming = any(inputs[topic].isStreaming for topic in plan.topics)
        check_ticks(ticks, plan, streaming=streaming)
        if not plan.stages:
            return flow.without_operators()
        return flow.with_operators(worker_settings(job, session, plan, TimeUnit.MILLISECOND, streaming=streaming))

    def start(
        self,
        inputs: Mapping[str, DataFrame],
        *,
        sinks: Mapping[str, OutputLike | None],
        checkpoint_location: str,
        complete: DataFrame | None = None,
        ticks: DataFrame | None = None,
        trigger: Mapping[str, Any] | None = None,
        query_name: str | None = None,
    ) -> StreamingQuery:
        """Start one query that writes several sinks, from one state: in a micro-batch every task runs once.

        The sinks of a micro-batch are written one after the other, by name. A query that dies on the way repeats the
        micro-batch, with the same rows. Then files (``FileOutput``) and Delta tables have each row exactly once;
        functions, other tables and other formats get it at least once, so let a function replace what it wrote for the
        same number of the micro-batch.

        The state is that of these sinks together, apart from that of ``transform`` for any of them. Where other calls
        ask for the sink, its name is theirs with ``~`` between them: ``read_store(..., sink="counts~sums")``.

        Args:
            inputs: a streaming DataFrame for each source topic that the sinks depend on.
            sinks: for every sink of the topology where its rows go: a ``FileOutput``, ``FormatOutput``,
                ``TableOutput`` or ``MergeOutput``, a function of a DataFrame and the number of the micro-batch, or None
                if it is not to be written. What only such sinks depend on does not run.
            checkpoint_location: the query's checkpoint; it keeps the names of the sinks, which must stay the same.
            complete, ticks: as in ``transform``.
            trigger: the arguments of Spark's ``DataStreamWriter.trigger``, such as ``{"availableNow": True}``.
            query_name: the name of the query in Spark.

        Raises:
            ConfigurationError: as ``transform``; or an input is static, an output is invalid or does not fit its sink,
                two sinks have one path, or the session is one of Spark Connect.
            TopologyError: a sink is unknown or missing, none is written, or one has no columns that Spark knows.
            StateConflictError: as ``transform``; or the checkpoint is that of a query of other sinks, or files of
                another query are where a sink is to be written.
            DurabilityError: the state or the checkpoint could not be read or written.
        """
        session, job = session_of(inputs), self._job.looking()
        plan = job.plan(session, self._topology, chosen(sinks, list(self._topology.sinks)))
        flow = replace(self._flow(session, plan, inputs, complete), ticks=ticks)
        check_ticks(ticks, plan, streaming=True)
        if not all(inputs[topic].isStreaming for topic in plan.topics):
            raise StreamingOrStaticError(
                "some inputs are static DataFrames, and a query runs on streaming ones; for static ones call transform "
                "for each sink, and write what it returns"
            )
        if self._job.options.evolution is not None and self._job.options.evolution.into is not None:
            raise ArgumentConflictError(
                "Evolution(into=...) needs the DataFrame of transform; a query of several sinks goes on at its own "
                "checkpoint, so leave into out"
            )
        several = SeveralSinks.of(session, flow.sinks, sinks)
        settings = worker_settings(job, session, plan, TimeUnit.MILLISECOND, streaming=True) if plan.stages else None
        return several.start(flow.with_all_sinks(settings), checkpoint_location, trigger, query_name)

    def backfill(
        self,
        inputs: Mapping[str, DataFrame],
        *,
        sink: str | None = None,
        complete: DataFrame | None = None,
        results: str | None = None,
    ) -> DataFrame:
        """Return the topology's output for inputs that have an end; a streaming query then begins with their state.

        It runs now, and only once: results and state are written to durable files, and one record makes them count. The
        streaming query that ``transform`` builds for the same sink goes on from there, so its inputs must have the rows
        that come after these, and none of these. The call may stay in the code, before ``transform``: once the backfill
        was done, the same rows are returned, whatever the inputs, and nothing else happens. A backfill that has died on
        the way is run again.

        Args:
            inputs: a static DataFrame for each of the topology's source topics.
            sink: which sink; may be left out if there is only one. Each has a state, and so a backfill, of its own.
            complete: a DataFrame any row of which says that no record follows: then whatever waits for a grace, a
                window or a suppression comes out now. Leave it out if the stream goes on in time: what waits then
                comes out of the stream, together with what the stream has to add.
            results: the directory for the results, as Spark reaches it; by default one in ``state_dir``. They are
                Parquet files, in a directory for each attempt.

        Returns:
            A static DataFrame with the columns of ``transform``, to be written to wherever the stream is written.

        Raises:
            ConfigurationError: as ``transform``; or an input is streaming, the topology keeps no state for the sink, or
                the results of an earlier call are gone.
            TopologyError: the topology has no such sink.
            StateConflictError: the query has begun without a backfill, or another job runs it at the same time.
            DurabilityError: the state could not be read or written.
        """
        session = session_of(inputs)
        plan = self._one_sink(self._job, session, sink)
        flow = self._flow(session, plan, inputs, complete)
        if any(inputs[topic].isStreaming for topic in plan.topics):
            raise StreamingOrStaticError(
                "a backfill takes inputs that have an end, so static DataFrames; give streaming ones to transform"
            )
        if not plan.stages:
            raise ArgumentConflictError(
                f"the topology keeps no state for the sink {plan.sink!r}, so there is nothing that a streaming query "
                "could begin with; call transform with the static DataFrames, and write what it returns"
            )
        rows = partial(flow.with_operators, backfill=True)
        return backfilled(session, self._job, plan, rows, TimeUnit.MILLISECOND, results)

    def _one_sink(self, job: Job, session: SparkSession, sink: str | None) -> Plan:
        """Return the plan for a sink that is a query's only one."""
        plan = job.plan(session, self._topology, sink)
        if len(plan.sinks) > 1:
            raise ArgumentConflictError(
                f"{sink!r} are several sinks, and a DataFrame has the rows of one; call start, with an output for each"
            )
        return plan

    def _flow(
        self, session: SparkSession, plan: Plan, inputs: Mapping[str, DataFrame], complete: DataFrame | None
    ) -> Dataflow:
        """Return the plan on its inputs, which are checked."""
        check_inputs(plan, inputs, complete)
        options = self._job.options
        outputs = [Sink.of(sink, self._topology.sinks[sink].produced) for sink in plan.sinks]
        # A run that keeps no state writes nothing beside it, not even to see its clock.
        keeps = bool(plan.stages) and any(inputs[topic].isStreaming for topic in plan.topics)
        prepared = {
            topic: select_source(
                inputs[topic],
                topic,
                node.consumed,
                options.on_error,
                keyed=not plan.is_map_side(plan.readers[topic]),
                max_ahead=options.max_ahead,
                storage=self._job.storage if keeps else None,
            )
            for topic, node in plan.topics.items()
        }
        check_workers(session)
        handling = self._job.handling(plan.sink, TimeUnit.MILLISECOND)
        sources = {topic: source for topic, (_, source) in prepared.items()}
        frames = {topic: FlatRows.of(frame) for topic, (frame, _) in prepared.items()}
        return Dataflow(OnWorkers(plan, sources, handling), frames, outputs, complete)
