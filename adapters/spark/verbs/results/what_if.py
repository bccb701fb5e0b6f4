"""The results of changed code on the rows that a query has read, compared with those of the present code.

Rule of this module: both run on forks, micro-batch by micro-batch as the query has, and everything is compared by
Spark. What a fork is, is up to ``millpond.adapters.spark.continuation.fork``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark.continuation.continuing import source_occurrences
from millpond.adapters.spark.continuation.fork import Fork
from millpond.adapters.spark.evolution.evolution import Evolution
from millpond.adapters.spark.rows.names import named
from millpond.adapters.spark.session.checkpoint import Checkpoint
from millpond.adapters.spark.verbs.frames.told_columns import feed_in
from millpond.adapters.spark.verbs.frames.verb_run import Entries, VerbRun
from millpond.adapters.spark.verbs.results.twins import counting, differing
from millpond.errors import ArgumentConflictError, CannotContinueError, InvalidArgumentError
from millpond.masking import masked_errors
from millpond.processors.calls.feeds import Feed
from millpond.processors.calls.reports.batch_twin import check_key
from millpond.processors.calls.reports.what_if import ChangedRow, Comparison, WhatIf
from millpond.processors.verbs.verb import Verb


@dataclass(frozen=True)
class Ran:
    """The results and the state that a query has made on its fork.

    Attributes:
        rows: its results.
        feed: the change feed that they are; None if they are none.
        stores: by the verb and the store.
    """

    rows: DataFrame
    feed: Feed | None
    stores: Mapping[str, Entries]


def check_stays(evolution: Evolution | None) -> None:
    """Refuse what goes on at a checkpoint that is made anew, whose micro-batches are others.

    Raises:
        ConfigurationError: so it does.
    """
    if evolution is not None and evolution.into is not None:
        raise ArgumentConflictError(
            f"the evolution goes on at {evolution.into}, where sources and operators may be others, and changed code "
            "runs over the micro-batches of the checkpoint as it is; leave into=... out, and change no more than that "
            "allows"
        )


@dataclass(frozen=True)
class Forked:
    """A query on its fork, which has not run yet.

    Attributes:
        fork: where.
        rows: what it gives.
        verbs: the verbs that the fork's Millpond has made, by name.
        place: the directory for its results.
    """

    fork: Fork
    rows: DataFrame
    verbs: Mapping[str, tuple[VerbRun, Verb]]
    place: str

    def check(self, what: str, key: Sequence[str]) -> None:
        """Refuse what cannot be run there, or not be compared.

        Args:
            what: what the query is called.
            key: the columns of the key of the results.

        Raises:
            ConfigurationError: it is no stream, has none of these verbs, or reads other sources than the original, or
                the key is none of the results.
        """
        if not (self.verbs and self.rows.isStreaming):
            fault = "a static DataFrame" if self.verbs else "made with another Millpond"
            raise InvalidArgumentError(
                f"{what!r} returns {fault}; have it call the verbs of the Millpond that it is given, on "
                "streaming DataFrames"
            )
        sources = len(source_occurrences(self.rows))
        if sources != self.fork.sources:
            raise CannotContinueError(
                f"the result of {what!r} reads {sources} sources, and the checkpoint has micro-batches of "
                f"{self.fork.sources}; change what is made of them, and leave the sources as they are"
            )
        check_key(key, self.rows.columns, feed=feed_in(self.rows) is not None)

    def run(self) -> Ran:
        """Run it over all micro-batches of its fork."""
        session, batches = self.rows.sparkSession, self.fork.offsets
        for batch in batches:
            self.fork.plan(batch)
            _run(self.rows, self.fork.checkpoint, self.place)
        written = session.read.schema(self.rows.schema).parquet(*(f"{self.place}/{batch}" for batch in batches))
        return Ran(written, feed_in(self.rows), _stores(session, self.fork.checkpoint, self.verbs))


def _run(rows: DataFrame, checkpoint: str, place: str) -> None:
    """Run the micro-batch that is planned."""

    def save(batch: DataFrame, number: int) -> None:
        with masked_errors():
            batch.write.mode("overwrite").parquet(f"{place}/{number}")

    writer = rows.writeStream.foreachBatch(save).option("checkpointLocation", checkpoint)
    writer.trigger(once=True).start().awaitTermination()


def _stores(session: SparkSession, checkpoint: str, verbs: Mapping[str, tuple[VerbRun, Verb]]) -> dict[str, Entries]:
    """Return the stores of the verbs that have run."""
    _, manifests = Checkpoint(session, checkpoint).newest()
    running = {one.application_id for one in manifests}
    return {
        f"{verb}.{name}": run.entries(made, name, checkpoint)
        for verb, (run, made) in verbs.items()
        if run.job.application_id in running
        for name in made.topology.stores
    }


def compared(
    now: Ran,
    changed: Ran,
    batches: range,
    *,
    key: Sequence[str],
    renamed: Callable[[str], str],
    shown: int,
) -> WhatIf:
    """Return the differences between what both have made.

    Args:
        now, changed: what they have made.
        batches: the micro-batches that they have run.
        key: the columns of the key of the results.
        renamed: what a verb is called in the changed code.
        shown: how many differences to show at most, of each.
    """
    sides = [counting(run.rows, key, run.feed, None, (None, None)) for run in (now, changed)]
    stores = {_renamed(name, renamed): store for name, store in now.stores.items()}
    both = [name for name in stores if name in changed.stores]
    state = {name: _compared_stores(stores[name], changed.stores[name], shown) for name in both}
    return WhatIf(
        batches.start - 1,
        batches.stop - 1,
        _compared(sides[0], sides[1], key, shown),
        state,
        tuple(name for name in stores if name not in both),
        tuple(name for name in changed.stores if name not in both),
    )


def _renamed(store: str, renamed: Callable[[str], str]) -> str:
    verb, _, name = store.rpartition(".")
    return f"{renamed(verb)}.{name}"


def _compared_stores(now: Entries, changed: Entries, shown: int) -> Comparison:
    return _compared(now.rows, changed.rows, [name for name in now.key if name in changed.rows.columns], shown)


def _compared(now: DataFrame, changed: DataFrame, key: Sequence[str], shown: int) -> Comparison:
    """Return the rows of both, by the columns that both have."""
    columns = [name for name in now.columns if name in changed.columns]
    chosen = list(map(named, columns))
    one, other = now.persist(), changed.persist()
    try:
        found = differing(one.select(*chosen), other.select(*chosen), key, shown)
        return Comparison(
            one.count(),
            other.count(),
            found.extra,
            found.missing,
            found.different,
            tuple(map(ChangedRow.of, found.pairs)),
            tuple(name for name in now.columns if name not in columns),
            tuple(name for name in changed.columns if name not in columns),
        )
    finally:
        one.unpersist()
        other.unpersist()
