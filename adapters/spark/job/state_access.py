"""``StateAccess``: the state of a topology's job, for those who read it or restart it beside the query.

Rule of this module: it starts no query, and changes nothing that a running one uses.
"""

from collections.abc import Collection

from pyspark.sql import DataFrame

from millpond.adapters.spark.copies.warming import Warmth, warm_beside
from millpond.adapters.spark.job.job import Job, as_html, as_text
from millpond.adapters.spark.job.worker_settings import warm_query
from millpond.adapters.spark.reading.inspection import CommittedStore, plain_rows, seed_rows
from millpond.adapters.spark.session.session import active_session, check_workers
from millpond.errors import ArgumentConflictError
from millpond.processors.runtime.topology import Topology


class StateAccess:
    """The stores, local copies and dead letters of a topology's job."""

    def __init__(self, topology: Topology, job: Job) -> None:
        self._topology = topology
        self._job = job

    def __repr__(self) -> str:
        return as_text("SparkStreams", {**self._job.facts, "sinks": list(self._topology.sinks)})

    def _repr_html_(self) -> str:
        sinks = ", ".join(self._topology.sinks)
        return as_html("SparkStreams", {**self._job.facts, "sinks": sinks})

    def read_store(
        self,
        store: str,
        checkpoint: str,
        *,
        sink: str | None = None,
        batch_id: int | None = None,
        schema: str | None = None,
        optional: Collection[str] = (),
        for_seeds: bool = False,
    ) -> DataFrame:
        """Return the content of a store as committed by a query, which may still be running.

        Rows have the columns key, value and timestamp, typed by the serdes, and window_start and window_end where the
        store has windows. Keys and values whose serde has no type in Spark, such as MessagePack's, are strings: JSON as
        far as they have a form in it, with bytes in base64. A versioned store gives every version of every key, with
        its ``valid_from`` as timestamp.

        Args:
            store: the store's name.
            checkpoint: the query's ``checkpointLocation``.
            sink: the sink that the query writes, if the topology has several.
            batch_id: the micro-batch to read after; by default the last one. Spark retains 100 of them
                (``spark.sql.streaming.minBatchesToRetain``).
            schema, optional: the columns as Spark DDL, and those that not every value has, as in ``Produced``.
            for_seeds: for ``seeds`` of another job, whose store has the same serdes: values without a type in Spark,
                and JSON, are bytes as the serde wrote them; a delete in a versioned store is a row without a value.

        Raises:
            ConfigurationError: the query has no such store, there is no checkpoint, it is that of another query, it has
                no commit (yet) or not that micro-batch (any more), there is no session, or ``for_seeds`` comes with a
                schema.
        """
        session = active_session("reading a store")
        plan = self._job.plan(session, self._topology, sink)
        check_workers(session)
        found = CommittedStore(plan, self._job.application_id, self._job.storage, store, checkpoint, batch_id)
        if for_seeds and schema is not None:
            raise ArgumentConflictError(
                "rows for seeds have columns of their own; leave out either schema or for_seeds"
            )
        rows = seed_rows(found.spec) if for_seeds else plain_rows(found.spec, schema, optional)
        return found.frame(session, rows, rows.columns, deletes=for_seeds)

    def warm(self, checkpoint: str, *, sink: str | None = None) -> Warmth:
        """Warm local copies in this job's ``local_dir`` beside a query that runs on another one, to restart it here.

        Build this object as for the restart: without ``upgrade_from``, with a ``local_dir`` of its own, in a session of
        its own. Each call brings the copies, in the formats that the topology asks for, to the micro-batch that the
        query committed last: restored the first time, caught up from then on. Spark's tasks do it, one for each task
        of the query, so the copies are on the machines that Spark chooses. Nothing else is written anywhere
        (KIP-258's roll over).

        Args:
            checkpoint: the ``checkpointLocation`` of the query.
            sink: the sink that the query writes, if the topology has several.

        Returns:
            The micro-batch at which all copies stand, and how many the query has committed since.

        Raises:
            ConfigurationError: there is no ``local_dir``, it has copies in another format, no store keeps copies on
                disk, there is no checkpoint, or that of another query, or there is no session.
            DurabilityError: the durable state is incomplete or damaged, or the storage failed.
            BackendInUseError: another process has a task open in the directory.
            StoreFullError: there is no room for a copy.
        """
        session = active_session("warming local copies")
        plan = self._job.plan(session, self._topology, sink)
        return warm_beside(session, checkpoint, [warm_query(self._job, session, plan)])

    def dead_letters(self, name: str | None = None) -> DataFrame:
        """Return the records that ``on_error="dead-letter"`` has left out, with what is known of each.

        The columns are ``failed_at`` (timestamp), ``application``, ``name`` (of the sink), ``topic``, ``operator``
        (null for an unusable input record), ``task``, ``query``, ``batch_id`` (bigint), ``reason`` (a counter),
        ``error``, ``key`` and ``value`` (text), ``timestamp`` (the record's), ``key_bytes`` and ``value_bytes``
        (binary, where the record has bytes), and ``headers`` (the record's, an array of structs of ``key`` and
        ``value``; null if it has none). The query may be running: the DataFrame has the files of when it is made.

        Args:
            name: of the sink; by default all.

        Raises:
            ConfigurationError: there is no session.
            DurabilityError: the storage failed.
        """
        return self._job.dead_letters(name)

    def late_rows(self, name: str | None = None) -> DataFrame:
        """Return the records that were left out for their time, or whose look-up was too late to find anything.

        The columns are ``seen_at`` (timestamp), ``application``, ``name`` (of the sink), ``input`` (the topics that the
        operator reads), ``operator``, ``task``, ``query``, ``batch_id`` (bigint), ``reason`` (a counter), ``key`` and
        ``row`` (text), ``time`` (the record's), ``clock`` (how far stream time was), ``late_by`` (by how much that is
        later), ``short_by`` (by how much the grace or history was too short), ``needed`` (how long would have been
        enough), ``key_bytes`` and ``value_bytes`` (where the record has bytes). Lengths are intervals. The query may be
        running: the DataFrame has the files of when it is made.

        Args:
            name: of a sink; by default all.

        Raises:
            ConfigurationError: there is no session.
            DurabilityError: the storage failed.
        """
        return self._job.late_rows(name)
