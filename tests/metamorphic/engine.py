"""A query of verbs on Spark without Spark: micro-batches in splits, blobs in any order, tasks with what they keep.

A micro-batch counts once all of its tasks have committed; one that dies before is run again, by a process that finds
what the other has left. What a verb puts out is what the next one reads, in as many splits as there were tasks. Verbs
that share operators are run in ``operators``.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as _compute
from pyspark import cloudpickle

from millpond.processors.calls.made import Made
from millpond.processors.distribution.exchange import (
    Blob,
)
from millpond.processors.distribution.plan import Plan
from millpond.processors.options.on_error import OnError
from millpond.processors.pond.verb_tasks import VerbTasks
from millpond.processors.runtime.late import LateRecords
from millpond.processors.runtime.subtopology import Subtopology
from tests.metamorphic.keeping import Keeper

pc: Any = _compute
shipping: Any = cloudpickle

ON_ERROR = OnError.FAIL
Tables = Mapping[str, Sequence[pa.Table]]
"""The splits of each input."""


class DeathError(Exception):
    """The process is gone."""


@dataclass
class Deaths:
    """Ends a process when it has run so many tasks; None for never."""

    left: int | None = None

    def step(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise DeathError


@dataclass
class DyingKeeper:
    """The stores of a keeper, in a process that may be gone before each task."""

    keeper: Keeper
    deaths: Deaths

    def task(self, place: str, part: Subtopology, plan: Plan) -> AbstractContextManager[Mapping[str, Any]]:
        self.deaths.step()
        return self.keeper.task(place, part, plan)


class RunningVerb(VerbTasks):
    """A verb whose blobs come in any order, in a process that may be gone before each task."""

    random: Random

    def run(
        self, batch: int, inputs: Tables, complete: bool, keeper: Keeper, deaths: Deaths, random: Random
    ) -> list[pa.Table]:
        """Run one micro-batch; return what comes out of each task of the last operator."""
        self.random = random
        results = self.micro_batch(batch, inputs, DyingKeeper(keeper, deaths), complete=complete)
        random.shuffle(results)
        return results

    def _by_task(self, blobs: Sequence[Blob]) -> dict[int, list[Blob]]:
        return super()._by_task(self.random.sample(blobs, len(blobs)))


class Query:
    """Verbs that are run together, each after those whose rows it reads.

    Args:
        chain: the verbs.
        partitions: of each.
        keeper: where their tasks keep what they keep.
        random: in which order blobs come.

    Attributes:
        late: by verb, what its tasks have told of late records, micro-batch by micro-batch.
    """

    def __init__(self, chain: Sequence[Made], partitions: Sequence[int], keeper: Keeper, random: Random) -> None:
        self._verbs = [RunningVerb(made, number, ON_ERROR) for made, number in zip(chain, partitions, strict=True)]
        self._keeper = keeper
        self._random = random
        self._batch = 0
        self.late: dict[str, list[list[LateRecords]]] = {made.verb.name: [] for made in chain}

    def restarted(self) -> "Query":
        """Return the query that goes on with what this one keeps, with verbs as they come to another process."""
        self._keeper.restart()
        chain, partitions = zip(*((verb.made, verb.partitions) for verb in self._verbs), strict=True)
        query = Query(shipping.loads(shipping.dumps(chain)), partitions, self._keeper, self._random)
        query._batch = self._batch
        query.late = self.late
        return query

    @property
    def told(self) -> dict[str, list[list[Any]]]:
        """By verb, the late records of each micro-batch, as key, value, time, reached and short."""
        return {name: [_told(some) for some in told] for name, told in self.late.items()}

    def run(self, inputs: Tables, *, complete: bool = False, deaths: Sequence[int] = ()) -> list[pa.Table]:
        """Run one micro-batch, which dies after so many tasks each time, and then lives; return the last rows."""
        for death in [*deaths, None]:
            for verb in self._verbs:
                verb.late = []
            try:
                results = self._run(inputs, complete, Deaths(death))
                break
            except DeathError:
                self._keeper.die()
        self._keeper.commit()
        for verb in self._verbs:
            self.late[verb.made.verb.name].append(verb.late)
        self._batch += 1
        return results

    def _run(self, inputs: Tables, complete: bool, deaths: Deaths) -> list[pa.Table]:
        known: dict[str, Sequence[pa.Table]] = dict(inputs)
        results: list[pa.Table] = []
        for verb in self._verbs:
            made = verb.made
            own = {topic: known.get(source, ()) for topic, source in made.sources.items()}
            results = verb.run(self._batch, own, complete, self._keeper, deaths, self._random)
            known[made.verb.name] = results
        return results


def _told(late: Sequence[Any]) -> list[tuple[Any, ...]]:
    found = []
    for one in late:
        batch = one.records.to_batch()
        found += list(
            zip(batch.keys, batch.values, batch.timestamps, one.reached.tolist(), one.short.tolist(), strict=True)
        )
    return found
