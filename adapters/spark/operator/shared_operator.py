"""An operator that verbs of a chain share: in each group one task of each verb, one after the other.

The rows of one verb become the input of a later one in this process, without Spark between them. It takes verbs by the
same key: a row of a result has the key of the task that it comes from.

Rule of this module: each task has the state, and the manifest, that it would have in an operator of its own; Spark's
state of a group holds the manifests of all of them. They reach Spark together, after the last task's commit.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from millpond.adapters.inspect.checkpoint.kept_manifest import kept_manifests, kept_value
from millpond.adapters.spark.operator.groups import Group, KeptValue
from millpond.adapters.spark.operator.held_manifests import by_application
from millpond.adapters.spark.operator.operator import reported
from millpond.adapters.spark.operator.stage import Stage
from millpond.adapters.spark.operator.task_run import TaskRun
from millpond.adapters.spark.worker.worker import StateSettings
from millpond.errors import CallChangedError
from millpond.metrics import Stopwatch
from millpond.processors.distribution.exchange import (
    COMPLETE,
    TICK,
    TIME,
    Blob,
    BlobWriter,
    Form,
    time_blobs,
    told_times,
)
from millpond.processors.rows.sink_rows import SinkRows, SinkTables
from millpond.processors.rows.unusable import TopicSource
from millpond.processors.runtime.subtopology import Subtopology
from millpond.processors.verbs.verb import flattened
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.encoding.partitions import partitions_of
from millpond.stores.encoding.rows.tuple_keys import null_rows
from millpond.stores.evolution.verbs.declarations import declaration


class Between(Protocol):
    """The projection of one verb's result to an input of another. Travels to the workers."""

    def rows(self, results: pa.Table) -> pa.Table:
        """Return the rows of the input, of rows of the result."""


@dataclass(frozen=True)
class Feed:
    """An input of a verb that is the result of another one in the same operator.

    Attributes:
        verb: which one, by its place in the operator.
        between: what lies between the two.
        source: how the rows of the input are read.
        clock: the inputs of that verb whose time is the time of this one; empty if this verb needs none.
        alone: whether rows with a null in their key meet nothing, so that any task may have them.
    """

    verb: int
    between: Between
    source: TopicSource
    clock: Collection[str]
    alone: bool


@dataclass(frozen=True)
class SharingVerb:
    """One of the verbs of an operator.

    Attributes:
        name: the verb's.
        stage: what runs: one sub-topology.
        results: its rows as columns, for the verbs behind it, or as they leave the operator if it is the last one.
        feeds: by topic, the inputs that other verbs of the operator make.
        shift: what is added to the numbers of its inputs, which are thus different from those of the other verbs.
        follows_time: whether it is told how far its inputs have come in time.
    """

    name: str
    stage: Stage
    results: SinkTables
    feeds: Mapping[str, Feed]
    shift: int
    follows_time: bool

    @property
    def part(self) -> Subtopology:
        """Its sub-topology."""
        (part,) = self.stage.parts.values()
        return part

    @property
    def topics(self) -> list[str]:
        """Its inputs, by their numbers."""
        return list(self.part.sources)

    def own(self, blobs: Collection[Blob]) -> list[Blob]:
        """Return the blobs of a group that are for this verb, with the numbers that its inputs have by themselves."""
        inputs = range(self.shift, self.shift + len(self.topics))
        shifted = {form.of(number): form.of(number - self.shift) for form in Form for number in inputs}
        found = []
        for blob in blobs:
            if blob.input in (COMPLETE, TICK):
                found.append(blob)
            elif blob.input == TIME and blob.chunk in inputs:
                found.append(blob._replace(chunk=blob.chunk - self.shift))
            elif blob.input in shifted:
                found.append(blob._replace(input=shifted[blob.input]))
        return found


class SharedOperator:
    """Runs the tasks of several verbs, each with what one micro-batch brings to it.

    Args:
        verbs: the verbs, each behind those whose results it takes.
    """

    def __init__(self, verbs: Sequence[SharingVerb]) -> None:
        self._verbs = verbs

    def tables(self, group: Group) -> Iterator[pa.Table]:
        """Yield the output of the last task of a group."""
        attempt, running = group.attempt, [verb.stage.settings for verb in self._verbs]
        kept = _Kept(group.kept, running)
        for settings in running:  # also of a verb that has no rows yet: it stays in this operator
            attempt.begin(settings, partial(kept.found, settings.application_id))
        results: list[list[pa.Table]] = []
        times: list[Mapping[str, int]] = []
        for verb in self._verbs:
            watch = Stopwatch()
            _, partition = verb.stage.tasks[group.number]
            run = TaskRun(verb.stage, verb.part, partition, group.wall_clock, attempt)
            mine = verb.own(group.blobs)
            for topic, feed in verb.feeds.items():
                fed = _Fed(verb, topic, feed, run)
                mine += [*fed.blobs(results[feed.verb]), *fed.time(times[feed.verb])]
            results.append([])
            times.append({verb.topics[input_]: time for input_, time in told_times(mine).items()})
            if not verb.follows_time:
                mine = [blob for blob in mine if blob.input != TIME]
            if not mine:
                continue
            before = kept.found(verb.stage.settings.application_id) if run.keeps_state else None
            tables = run.tables(mine, before, SinkRows(verb.results, attempt.batch or 0).to_tables)
            if verb is not self._verbs[-1]:
                results[-1] += tables
                tables = iter(())
            yield from reported(tables, self._verbs[-1].stage.schema, run, watch, verb.name)
            kept.keep(run)
        kept.hand_over()


class _Kept:
    """The manifests of a group's tasks, in Spark's state, by application: each has one task in a group."""

    def __init__(self, state: KeptValue, running: Sequence[StateSettings]) -> None:
        self._state = state
        self._running = running
        self._manifests: dict[str, Manifest] | None = None
        self._changed = False

    def found(self, application_id: str) -> Manifest | None:
        """Return the manifest of an application's task before the micro-batch; None if it had none."""
        return self._all().get(application_id)

    def keep(self, run: TaskRun) -> None:
        """Take what a task has committed."""
        if run.manifest is not None:
            self._all()[run.manifest.application_id] = run.manifest
            self._changed = True

    def hand_over(self) -> None:
        """Have Spark commit them."""
        if self._changed:
            self._state.update(kept_value(list(self._all().values())))

    def _all(self) -> dict[str, Manifest]:
        if self._manifests is None:
            stored = self._state.get()
            found = [] if stored is None else kept_manifests(*stored)
            self._manifests = by_application(found, self._running)
        return self._manifests


class _Fed:
    """An input of a task that the task of another verb makes.

    Args:
        verb: whose input it is.
        topic: the input.
        feed: how it is made.
        run: the task; what is left out of the input counts in it.
    """

    def __init__(self, verb: SharingVerb, topic: str, feed: Feed, run: TaskRun) -> None:
        self._input = verb.topics.index(topic)
        self._number = verb.stage.group_keys[run.part.index, run.partition]
        self._feed = feed
        self._run = run

    def blobs(self, results: Collection[pa.Table]) -> Iterator[Blob]:
        """Yield the rows of the input, of rows of the other verb's result, as if they had been sent."""
        feed, run = self._feed, self._run
        box = run.stage.handling.box(f"{feed.source.topic}-{run.task_id}", run.attempt)
        reader, writer = feed.source.reader(run.partition, box.keep_letter), BlobWriter(run.partition)
        for table in results:
            rows = feed.between.rows(table)
            usable = reader.usable(rows) if rows.num_rows else rows
            if usable.num_rows:
                records, keys = reader.packed(usable)
                self._check(usable, keys)
                yield from writer.cut(records, self._number, self._input)
        box.write()
        run.counts.update(reader.skipped)

    def time(self, times: Mapping[str, int]) -> list[Blob]:
        """Return blobs that tell the task how far the input has come, by how far the other verb's inputs have."""
        told = [times[topic] for topic in self._feed.clock if topic in times]
        return time_blobs(max(told), self._input, self._run.partition, [self._number]) if told else []

    def _check(self, rows: pa.Table, keys: Any) -> None:
        """Make sure that no row is where another task looks for it."""
        away = partitions_of(keys, self._run.stage.plan.partitions) != self._run.partition
        if self._feed.alone:
            away &= ~null_rows(flattened(rows["key"]))
        if away.any():
            raise CallChangedError(
                f"rows of {self._feed.source.topic!r} of the verb {self._run.stage.plan.sink!r} have other keys than "
                "the verb before it; give both an operator of their own, which they get at another checkpoint: "
                f"Millpond(share_operators=False, {declaration(None, into='a new checkpoint')})"
            )
