"""``SparkStreams``: runs a topology on DataFrames.

Rule of this module: it builds a plan of DataFrames and starts nothing. Every mistake that can be found early is raised
here, in the driver, before a query starts.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark.counters import counting_ddl, report_counts
from millpond.adapters.spark.group_keys import group_keys
from millpond.adapters.spark.inspection import store_frame
from millpond.adapters.spark.map_side import ProcessAndSend, ProcessToSink, SendToTasks
from millpond.adapters.spark.operator import EXCHANGE_DDL, Stage, TaskOperator
from millpond.adapters.spark.records import SKIP_REASONS
from millpond.adapters.spark.session import check_operator, check_workers, start_coordinator
from millpond.adapters.spark.sink import Sink
from millpond.adapters.spark.source import OnError, Source, select_source
from millpond.adapters.spark.worker import StateSettings
from millpond.errors import ConfigurationError, StateConflictError
from millpond.processors.distribution.execution import Decoder
from millpond.processors.distribution.plan import Plan, make_plan
from millpond.processors.distribution.router import Route, Router, TaskNumbers
from millpond.processors.runtime.topology import Topology
from millpond.stores.backend import BackendSupplier
from millpond.stores.directory import check_plain_name
from millpond.stores.durability.claim import claim
from millpond.stores.durability.storage import Storage
from millpond.stores.registry import supplier

BACKEND_CONF = "spark.millpond.backend"
DEFAULT_BACKEND = "rocksdb"


class SparkStreams:
    """Runs a topology on Spark: DataFrames in, a DataFrame out, state on the backend of your choice.

    Args:
        topology: what to run.
        application_id: the job's name, part of every path of its state.
        state_dir: where the durable state goes: a path or URI that every executor reaches.
        local_dir: where executors keep their local copies; by default a directory of Spark's own, which is deleted
            with the application.
        partitions: how many tasks share the work of each sub-topology; by default ``spark.sql.shuffle.partitions``.
            It is part of the state and cannot be changed later. Ideally a multiple of the shuffle partitions.
        backend: the backend of stores that do not name one: a name, a URL or a supplier; by default the session's
            ``spark.millpond.backend``, or else ``rocksdb``.
        on_error: what happens to a record that cannot be processed: ``"fail"`` or ``"skip"``.

    Raises:
        ConfigurationError: an option is missing or invalid.
    """

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
    ) -> None:
        check_plain_name("application id", application_id)
        self._topology = topology
        self._application_id = application_id
        self._storage = Storage.from_uri(state_dir)
        self._local_dir = local_dir
        self._partitions = partitions
        self._backend = backend
        self._on_error = _policy(on_error)
        if partitions is not None and partitions < 1:
            raise ConfigurationError(f"partitions must be 1 or more, not {partitions}")

    def transform(self, inputs: Mapping[str, DataFrame], *, sink: str | None = None) -> DataFrame:
        """The rows that the topology writes to a sink, as a DataFrame to be written like any other.

        Streaming DataFrames give a streaming DataFrame (append mode), static ones a static DataFrame that is computed
        from empty state.

        Args:
            inputs: a DataFrame for each of the topology's source topics; ``Consumed`` says which column is what.
            sink: which sink; may be left out if there is only one. Only what this sink depends on is run, and its
                state is separate from that of other sinks.

        Raises:
            ConfigurationError: an input is missing or unknown, a column is missing or of the wrong type, the backend
                is unknown, or the session is not set up for it.
            TopologyError: the topology has no such sink.
            StateConflictError: the state directory holds the state of another topology or number of partitions.
        """
        session = _session(inputs)
        plan = make_plan(self._topology, sink, self._partition_count(session))
        _check_inputs(plan, inputs)
        output = Sink.of(plan.sink, self._topology.sinks[plan.sink].produced)
        prepared = {
            topic: select_source(
                inputs[topic], topic, node.consumed, self._on_error, keyed=not plan.is_map_side(plan.readers[topic])
            )
            for topic, node in plan.topics.items()
        }
        check_workers(session)
        if not plan.stages:
            return reduce(DataFrame.union, (_map_only(plan, *pair, output) for pair in prepared.values()))
        settings = self._settings(session, plan)
        numbers = group_keys((part.index for stage in plan.stages for part in stage), plan.partitions)
        stages = _stages(plan, numbers, [source for _, source in prepared.values()], output, settings)
        arriving: dict[int, list[DataFrame]] = {}
        for frame, source in prepared.values():
            level, blobs = _sent(plan, numbers, frame, source)
            arriving.setdefault(level, []).append(blobs)
        return _chain(stages, arriving)

    def read_store(
        self,
        store: str,
        checkpoint: str,
        *,
        sink: str | None = None,
        batch_id: int | None = None,
        schema: str | None = None,
        optional: Collection[str] = (),
    ) -> DataFrame:
        """The content of a store as committed by a query, which may still be running.

        Rows have the columns key, value and timestamp, typed by the serdes, and window_start and window_end where the
        store has windows. Keys and values whose serde has no type in Spark, such as MessagePack's, are strings: JSON as
        far as they have a form in it, with bytes in base64. A versioned store gives every version of every key, with
        its ``valid_from`` as timestamp.

        Args:
            store: the store's name.
            checkpoint: the query's ``checkpointLocation``.
            sink: the sink that the query writes, if the topology has several.
            batch_id: after which micro-batch; by default the last one. Spark retains 100 of them
                (``spark.sql.streaming.minBatchesToRetain``).
            schema, optional: the columns as Spark DDL, and those that not every value has, as in ``Produced``.

        Raises:
            ConfigurationError: the query has no such store, there is no checkpoint, it is that of another query, it has
                no commit (yet) or not that micro-batch (any more), or no session is active.
        """
        session = SparkSession.getActiveSession()
        if session is None:
            raise ConfigurationError("no Spark session is active in this thread; start one before reading a store")
        plan = make_plan(self._topology, sink, self._partition_count(session))
        check_workers(session)
        start_coordinator(session)
        application_id, storage = self._application_id, self._storage
        return store_frame(session, plan, application_id, storage, store, checkpoint, batch_id, schema, optional)

    def _partition_count(self, session: SparkSession) -> int:
        return self._partitions or int(session.conf.get("spark.sql.shuffle.partitions") or 200)

    def _settings(self, session: SparkSession, plan: Plan) -> StateSettings:
        check_operator(session)
        start_coordinator(session)
        chosen = supplier(self._backend or session.conf.get(BACKEND_CONF, None) or DEFAULT_BACKEND)
        for part in plan.parts:
            for spec in part.stores.values():
                supplier(spec.backend or chosen)
        try:
            claim(self._storage, self._application_id, plan.fingerprint)
        except StateConflictError as error:
            raise StateConflictError(
                f"{error} (the number of partitions, here {plan.partitions}, is part of it)"
            ) from error
        return StateSettings(
            application_id=self._application_id,
            sink=plan.sink,
            run=uuid4().hex,
            fingerprint=plan.fingerprint,
            storage=self._storage,
            local_dir=self._local_dir,
            supplier=chosen,
        )


def _stages(
    plan: Plan, numbers: dict[tuple[int, int], int], sources: Sequence[Source], output: Sink, settings: StateSettings
) -> list[Stage]:
    """What each operator runs; the last one writes the sink."""
    decoders = {source.topic: source.decoder for source in sources}
    for topic, consumed in plan.internal_topics.items():
        decoders[topic] = Decoder.of_repartition_topic(topic, consumed)
    sinks: list[Sink | None] = [None] * (len(plan.stages) - 1) + [output]
    return [
        Stage(plan, numbers, {part.index: part for part in parts}, decoders, sink, settings)
        for parts, sink in zip(plan.stages, sinks, strict=True)
    ]


def _sent(plan: Plan, numbers: TaskNumbers, frame: DataFrame, source: Source) -> tuple[int, DataFrame]:
    """One input as blobs, and the position of the first operator that takes some of them."""
    part = plan.readers[source.topic]
    send: SendToTasks | ProcessAndSend
    if plan.is_map_side(part):
        send = ProcessAndSend(part, source, Router(plan, part, numbers))
    else:
        send = SendToTasks(source, Route(plan, source.topic, numbers))
    blobs = frame.mapInArrow(send, counting_ddl(EXCHANGE_DDL))
    level = min(map(plan.entry_level, plan.all_readers(source.topic)))
    return level, report_counts(blobs, f"millpond.{source.topic}", SKIP_REASONS)


def _map_only(plan: Plan, frame: DataFrame, source: Source, output: Sink) -> DataFrame:
    process = ProcessToSink(plan.readers[source.topic], source, output)
    rows = frame.mapInArrow(process, counting_ddl(output.ddl))
    return report_counts(rows, f"millpond.{source.topic}", SKIP_REASONS)


def _chain(stages: Sequence[Stage], arriving: Mapping[int, list[DataFrame]]) -> DataFrame:
    """One operator after the other; each takes what the one before it made, and the inputs that arrive at its level."""
    flow: list[DataFrame] = []
    for level, stage in enumerate(stages):
        frames = reduce(DataFrame.unionByName, flow + arriving.get(level, []))
        ddl = EXCHANGE_DDL if stage.sink is None else stage.sink.ddl
        groups = frames.groupBy("task")
        rows = groups.transformWithStateInPandas(TaskOperator(stage), counting_ddl(ddl), "Append", "None")
        flow = [report_counts(rows, f"millpond.operator.{level}")]
    return flow[0]


def _policy(on_error: str | OnError) -> OnError:
    try:
        return OnError(on_error)
    except ValueError:
        raise ConfigurationError(
            f"on_error is {on_error!r}; give one of {', '.join(repr(policy.value) for policy in OnError)}"
        ) from None


def _session(inputs: Mapping[str, DataFrame]) -> SparkSession:
    if not inputs:
        raise ConfigurationError(
            "there are no inputs; give a DataFrame for each source topic: transform({'topic': df})"
        )
    return next(iter(inputs.values())).sparkSession


def _check_inputs(plan: Plan, inputs: Mapping[str, DataFrame]) -> None:
    known = set(plan.topology.sources)
    missing, strange = sorted(set(plan.topics) - set(inputs)), sorted(set(inputs) - known)
    if missing:
        raise ConfigurationError(
            f"no DataFrame for the topics {missing}; transform needs one for each of {sorted(plan.topics)}"
        )
    if strange:
        raise ConfigurationError(f"the topology reads the topics {sorted(known)}, not {strange}")
    streaming = {inputs[topic].isStreaming for topic in plan.topics}
    if len(streaming) > 1:
        raise ConfigurationError(
            "some inputs are streaming DataFrames and some are static; make all of them one or the other"
        )
