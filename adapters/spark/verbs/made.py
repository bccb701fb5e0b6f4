"""The verbs of one ``Millpond``: their runner, the verbs made so far, and the reading of their state.

Rule of this module: it knows no verb by name.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import types as T

from millpond.adapters.spark.continuation.fork import Fork, Original
from millpond.adapters.spark.copies.warming import Warmth, warm_beside
from millpond.adapters.spark.evolution.evolution import Evolution
from millpond.adapters.spark.job.job import as_html, as_text
from millpond.adapters.spark.session.session import active_session
from millpond.adapters.spark.verbs.frames.backfill import Backfill
from millpond.adapters.spark.verbs.frames.inputs import RowInput
from millpond.adapters.spark.verbs.frames.kept_schemas import ColumnChanges
from millpond.adapters.spark.verbs.frames.verb_run import VerbRun
from millpond.adapters.spark.verbs.planning import asked_verb, planned
from millpond.adapters.spark.verbs.results.matches import explain_match
from millpond.adapters.spark.verbs.results.twins import verified
from millpond.adapters.spark.verbs.results.what_if import Forked, check_stays, compared
from millpond.adapters.spark.verbs.runner import VerbRunner, VerbStart
from millpond.errors import DuplicateNameError, UnknownNameError
from millpond.processors.calls.account import HEAD, Account, explained
from millpond.processors.calls.made import MadeVerb
from millpond.processors.calls.readings import key_names
from millpond.processors.calls.reports.batch_twin import Verification
from millpond.processors.calls.reports.grace_advice import MICROSECOND, GraceAdvice, advice_of_needed
from millpond.processors.calls.reports.what_if import WhatIf
from millpond.processors.distribution.plan import Plan
from millpond.processors.verbs.matching.explanation import MatchExplanation
from millpond.processors.verbs.verb import Verb
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.times import Instant
from millpond.stores.evolution.seeding import Filling
from millpond.stores.evolution.verbs.verb_plan import EvolutionPlan


class MadeVerbs:
    """The verbs that were made, by name.

    Args:
        runner: runs them.
    """

    def __init__(self, runner: VerbRunner) -> None:
        self._runner = runner
        self._verbs: dict[str, tuple[VerbRun, Verb]] = {}
        self._accounts: dict[str, Account] = {}

    def __repr__(self) -> str:
        return as_text("Millpond", {**self._runner.job.facts, "verbs": list(self._accounts)})

    def _repr_html_(self) -> str:
        rows = (account.row for account in self._accounts.values())
        return as_html("Millpond", self._runner.job.facts, HEAD, rows)

    def backfill(self, *, complete: DataFrame | None = None, results: str | None = None) -> Self:
        """Return a Millpond for inputs that have an end; streaming queries then begin with the state that they leave.

        Each verb that is called on the returned Millpond, with static DataFrames, runs at once, and only once: results
        and state are written to durable files, and one record makes them count. The same call on the Millpond itself,
        with streaming DataFrames, goes on from there, so the streams must have the rows that come after the static
        ones, and none of these. The backfill may stay in the code, before the streams: once it was done, the same rows
        are returned, whatever the inputs, and nothing else happens. A backfill that has died on the way is run again.

        The verb returns a static DataFrame with the columns that the stream will have. It may be the input of the next
        verb, and is to be written to the place that the stream is written to.

        Args:
            complete: a static DataFrame any row of which says that no row follows: then whatever waits for a grace or a
                window comes out now. Leave it out if a stream goes on: then what waits comes out of the stream.
            results: the directory for the results, as Spark reaches it; by default one in ``state_dir``. They are
                Parquet files, in a directory for each verb and attempt.

        Raises:
            ConfigurationError: ``complete`` is streaming. Verbs raise it if an input is, or the results of an earlier
                call are gone, and ``StateConflictError`` if the verb has begun without a backfill.
        """
        other = copy(self)
        other._runner = replace(self._runner, backfill=Backfill(complete, results))
        other._verbs = {}
        other._accounts = {}
        return other

    def read_store(self, verb: str, store: str, checkpoint: str, *, batch_id: int | None = None) -> DataFrame:
        """Return the content of a store as committed by a query, which may still be running, with typed columns.

        For a store that keeps versions, the rows are all versions that the state still has, each valid from its
        ``change_time`` until its ``valid_to``, which is null for the versions that the verb sees now:
        ``where("valid_to is null")``. Where rows have a column of that name, that column is shown instead.

        Args:
            verb: the name of a verb that this object has made.
            store: ``"right"`` of an as-of join, ``"left"`` or ``"right"`` of a table join, the name of a table of a
                ``multi_join``, ``"latest"``, ``"aggregate"``, or ``"rows"`` or ``"groups"`` of the aggregate of a
                change feed.
            checkpoint: the ``checkpointLocation`` of the query that runs the verb.
            batch_id: the micro-batch after which to read; by default the last one. Spark retains 100 of them
                (``spark.sql.streaming.minBatchesToRetain``).

        Raises:
            ConfigurationError: there is no such verb or store, or the checkpoint has no commit of it.
        """
        run, made = self._made(verb)
        return run.store(made, store, checkpoint, batch_id)

    def explain_match(
        self, verb: str, row: Row | Mapping[str, Any], checkpoint: str, *, batch_id: int | None = None
    ) -> MatchExplanation:
        """Tell why a row of a join has its match, by what its query has committed; the query may still be running.

        A ``lookup_join`` keeps nothing: its table is read here, in the version that the micro-batch has read.

        Args:
            verb: the name of an ``asof_join``, ``lookup_join``, ``stream_join``, ``table_join`` or ``multi_join`` of
                this object.
            row: a row of its result, or one of its left or first side.
            checkpoint: the ``checkpointLocation`` of the query that runs the verb.
            batch_id: the micro-batch after which the state is looked at, or by which a row of a ``lookup_join`` was
                made; by default the last one.

        Returns:
            The rows of its key that it could have met, with times and deletes, and why each one is the match or is not.
            ``print`` shows them as a table, and so does a notebook. A note says if the state would make another row
            now, because of a late version, or has forgotten the versions of that time.

        Raises:
            ConfigurationError: there is no such join, the row lacks a column that is needed, or the checkpoint has no
                commit of the verb.
            MissingFileError, CorruptFileError: the durable state is incomplete or damaged, or the table does not keep
                the version any more.
        """
        run, made = self._made(verb)
        return explain_match(run, made, row, checkpoint, batch_id)

    def explain(self) -> None:
        """Print what each verb that this object has made knows of time, in the order of their making.

        For each verb, these are its column of time, how late rows may be, its addition to that for rows that earlier
        verbs hold back, what a row waits for and how long it may take to come out, the bound of each time column of the
        result, and what its state keeps. A bound says how much later than its time a row may come: the next verb adds
        it to its own grace, history or lateness, if that column is its time.
        """
        print(explained(self._accounts.values(), self._runner.results.told))

    def plan(self, checkpoint: str) -> EvolutionPlan:
        """Return what becomes of the verbs made so far if their query is started at a checkpoint, as the checkpoint is.

        Make the verbs as for the start, all that the query runs; nothing is started, and nothing is changed. The
        checkpoint is read without Spark. What is printed is a table, and the line to write if something has to be.

        Args:
            checkpoint: the ``checkpointLocation`` of the query.

        Raises:
            ConfigurationError: no file system is known for the checkpoint.
            FormatError: something is of a later release, or in a form that cannot be read without Spark.
            DurabilityError: the checkpoint or the state directory cannot be read.
        """
        runner = self._runner
        asked = {
            name: asked_verb(runner.asked[name], key_names(run.inputs[0]))
            for name, (run, _) in self._verbs.items()
            if run.streaming and name in runner.asked
        }
        return planned(runner.job, checkpoint, asked)

    def warm(self, checkpoint: str) -> Warmth:
        """Warm local copies in this job's ``local_dir`` beside a query that runs on another one, to restart it here.

        Make the verbs as for the restart, all that the query runs; nothing is started. What happens then is told at
        ``SparkStreams.warm``.

        Args:
            checkpoint: the ``checkpointLocation`` of the query that runs the verbs.

        Raises what ``SparkStreams.warm`` raises.
        """
        session = active_session("warming local copies")
        queries = [run.warmed(made) for run, made in self._verbs.values() if made.topology.stores]
        return warm_beside(session, checkpoint, queries)

    def dead_letters(self, name: str | None = None) -> DataFrame:
        """Return the rows that ``on_error="dead-letter"`` has left out, with what is known of each.

        The columns are those of ``SparkStreams.dead_letters``.

        Args:
            name: of a verb; by default all verbs.

        Raises:
            ConfigurationError: there is no session.
            DurabilityError: the storage failed.
        """
        return self._runner.job.dead_letters(name)

    def late_rows(self, name: str | None = None) -> DataFrame:
        """Return the rows that were left out for their time, or whose look-up was too late to find anything.

        The columns are those of ``SparkStreams.late_rows``. Here ``input`` is ``left``, ``right`` or ``input``, and
        ``key`` and ``row`` are JSON of the columns, which ``F.from_json`` reads; a row of ``aggregate`` has the
        arguments of its calls. What a verb adds for its inputs is contained in ``needed``: to take such a row, make
        what the verb was given longer by ``short_by``.

        Args:
            name: of a verb; by default all.

        Raises:
            ConfigurationError: there is no session.
            DurabilityError: the storage failed.
        """
        return self._runner.job.late_rows(name)

    def advise_grace(self, verb: str, *, rows: int | None = None) -> GraceAdvice:
        """Return what longer graces would cost a verb in rows, by the rows that it has left out so far for their time.

        Each grace includes what the verb adds for its inputs, as the column ``needed`` of ``late_rows`` does. For rows
        as they arrived, ``Pond.advise_grace`` tells what any grace costs, also in wrong results and in state.

        Args:
            verb: the name of a verb.
            rows: how many rows it has read, for their share.

        Returns:
            A line for each grace, the shortest first; none if no row was late. ``print`` shows a table, and so does a
            notebook.

        Raises:
            ConfigurationError: there is no session.
            DurabilityError: the storage failed.
        """
        found = self.late_rows(verb).groupBy("needed").count().collect()
        return advice_of_needed(verb, {row["needed"] // MICROSECOND: row["count"] for row in found}, rows)

    def verify(
        self,
        query: Callable[[Self], DataFrame],
        written: DataFrame,
        *,
        key: str | Sequence[str] = (),
        time: str | Column | None = None,
        since: Instant | str | None = None,
        until: Instant | str | None = None,
        shown: int = 20,
    ) -> Verification:
        """Return the differences between rows that a query has written and rows of the same verbs on static DataFrames.

        Rows that came too late, versions that came after their left row had come out, and files that were written twice
        show here. Nothing is written, and no state is read or changed.

        Args:
            query: calls the verbs of the Millpond that it is given, on static DataFrames with all rows that count.
            written: what the query has written, as a static DataFrame. From a change feed, the rows count that are
                there in the end.
            key: the columns that tell a different row from a missing and an extra one. A change feed needs
                them. Results of windows have ``window`` among them, and results of ``top_n`` the rank.
            time: the column (or expression) of the result that says which rows are in the interval.
            since: the beginning of the interval, a datetime or text; None for all from the first.
            until: its end, which is left out; None for all to the last.
            shown: how many differences to show at most.

        Returns:
            How many rows are missing, extra and different, and some of them, each with its key and columns. ``print``
            shows a table, and so does a notebook.

        Raises:
            ConfigurationError: a DataFrame is a stream, the rows have other columns, a change feed has no key, or the
                interval no time.
        """
        twin = copy(self)
        twin._verbs, twin._accounts = {}, {}
        keys = [key] if isinstance(key, str) else list(key)
        return verified(query(twin), written, key=keys, time=time, since=since, until=until, shown=shown)

    def what_if(
        self,
        now: Callable[[Self], DataFrame],
        changed: Callable[[Self], DataFrame],
        checkpoint: str,
        into: str,
        *,
        after: int,
        key: str | Sequence[str] = (),
        evolution: Evolution | None = None,
        shown: int = 20,
    ) -> WhatIf:
        """Return what changed code would have made of the rows that a query has read, in results and state.

        The query is forked as it was after an earlier micro-batch, twice. The code of now goes on at one fork and the
        changed code at the other, over the same rows, micro-batch by micro-batch as the query has read them since. The
        query itself is only read, and may be running. The changed code goes on with the state as it would at a restart,
        or is refused as it would be there.

        Args:
            now: the query as it is: it calls the verbs of the Millpond that it is given, on streaming DataFrames, and
                returns what is written.
            changed: the query with the change. It reads the same sources in the same order.
            checkpoint: the ``checkpointLocation`` of the query.
            into: an empty directory for the forks and their results, as Spark reaches it. ``now`` and ``changed`` in it
                have a ``checkpoint``, ``state`` and ``rows`` each, which nobody deletes.
            after: the micro-batch after which the forks begin. Spark retains 100 of them
                (``spark.sql.streaming.minBatchesToRetain``).
            key: the columns that tell a different row from two rows that only one side has. A change feed needs
                them. Results of windows have ``window`` among them, and results of ``top_n`` the rank.
            evolution: what the change makes of the state, as at a restart at ``checkpoint``, but without ``into``; by
                default the one of this Millpond.
            shown: how many differences to show at most, of the results and of each store.

        Returns:
            How many rows and entries only one of them has or both have with other values, and some of them. For a
            change feed, the rows that are there in the end are compared. ``print`` shows tables, and so does a
            notebook.

        Raises:
            ConfigurationError: the micro-batch is not retained or the last one, something exists at ``into``, the
                query has other sources or verbs of another Millpond, the evolution goes on elsewhere, or the key is
                none of the results.
            StateConflictError: the changed code cannot go on with the state; the message has what to write.
            DurabilityError: a file could not be read or written.
        """
        session, job = active_session("running changed code"), self._runner.job
        said = evolution or job.options.evolution
        check_stays(evolution)
        original = Original.of(session, checkpoint, job.storage, job.application_id, after)
        keys, sides = [key] if isinstance(key, str) else list(key), []
        for what, query, declared in (("now", now, job.options.evolution), ("changed", changed, said)):
            pond = self._at(fork := original.fork(f"{into}/{what}"), declared)
            sides.append(Forked(fork, query(pond), pond._verbs, f"{into}/{what}/rows"))
            sides[-1].check(what, keys)
        runs = [side.run() for side in sides]
        names = {} if said is None else said.renamed
        return compared(
            runs[0], runs[1], original.batches, key=keys, renamed=lambda name: names.get(name, name), shown=shown
        )

    def _at(self, fork: Fork, evolution: Evolution | None) -> Self:
        """Return the same Millpond at a fork, without verbs.

        Args:
            fork: the fork.
            evolution: what is declared of the original.
        """
        runner, twin = self._runner, copy(self)
        there = None if evolution is None else replace(evolution, checkpoint=fork.checkpoint, into=None)
        options = replace(runner.job.options, evolution=there, local_dir=None)
        job = replace(runner.job, storage=replace(Storage.from_uri(fork.state_dir), sync=False), options=options)
        twin._runner = VerbRunner(job, runner.complete)
        twin._verbs, twin._accounts = {}, {}
        return twin

    def _start(self, renamed: Mapping[str, str] | None, dropped: Collection[str]) -> VerbStart:
        """Return the start of a verb, with what the user declares of its inputs' columns."""
        return VerbStart(self._runner, ColumnChanges(renamed or {}, dropped))

    def _made(self, verb: str) -> tuple[VerbRun, Verb]:
        """Return the verb of that name.

        Raises:
            ConfigurationError: there is none.
        """
        if verb not in self._verbs:
            raise UnknownNameError(f"no verb of this Millpond is called {verb!r}, only {sorted(self._verbs)}")
        return self._verbs[verb]

    def _result(
        self,
        run: VerbRun,
        made: MadeVerb[RowInput],
        *,
        columns: T.StructType | None = None,
        ticks: DataFrame | None = None,
        filling: Callable[[Plan], Filling] | None = None,
    ) -> DataFrame:
        if run.named and run.name in self._verbs:
            raise DuplicateNameError(
                f"this Millpond has a verb called {run.name!r} already, and each has state of its own; give one of "
                "them another name=..., or make a new Millpond for another run"
            )
        rows = run.result(made, columns=columns, ticks=ticks, filling=filling)
        for known in (self._verbs, self._accounts):
            known.pop(run.name, None)  # the last one of a name is the one that is shown, behind those before it
        self._verbs[run.name] = run, made.verb
        self._accounts[run.name] = made.account
        return rows
