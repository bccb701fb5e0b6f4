"""The life of a chain of verbs in one operator: each verb holds, and the last one puts out, what the oracle says.

The oracle knows the total of each key, and which keys each verb has heard of since it began.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple

import pyarrow as pa

from millpond.adapters.spark.evolution.evolution import Evolution
from millpond.processors.rows.sink_rows import PartRows
from millpond.processors.runtime.batches.batch import Batch
from tests.evolution.chain_job import SCHEMA, ChainJob
from tests.evolution.process import RETAINED, DeathError
from tests.evolution.story import BACKENDS, Story, other
from tests.evolution.verb_drafts import SECOND
from tests.metamorphic.histories import rows_of
from tests.metamorphic.operators import Values

MOST: Final = 5
"""So many verbs it has at most."""
PARTITIONS: Final = 3


class Totals(NamedTuple):
    """The number of rows that a key has had, and the sum of their values."""

    n: int = 0
    v: int | None = None

    def with_row(self, value: int | None) -> "Totals":
        return Totals(self.n + 1, self.v if value is None else (self.v or 0) + value)


@dataclass(frozen=True)
class Told:
    """The knowledge after a micro-batch.

    Attributes:
        totals: of all keys.
        tables: what each verb holds, by its number.
    """

    totals: Mapping[str, Totals] = field(default_factory=dict)
    tables: Mapping[int, Mapping[str, Totals]] = field(default_factory=dict)

    def grown(self, rows: Sequence[tuple[str, int | None]], verbs: Sequence[int]) -> "Told":
        totals = dict(self.totals)
        for key, value in rows:
            totals[key] = totals.get(key, Totals()).with_row(value)
        now = {key: totals[key] for key, _ in rows}
        return Told(totals, {number: {**self.tables.get(number, {}), **now} for number in verbs})


@dataclass(frozen=True)
class KeptBatch:
    """A committed micro-batch: what it left, and what was known then."""

    batch: int
    values: Values
    told: Told
    numbers: tuple[int, ...]


class ChainLife(Story):
    """The life of a chain, step by step."""

    job: ChainJob

    def __init__(self) -> None:
        super().__init__()
        self.job = ChainJob(self.directory)
        self.chain: dict[int, str] = {}
        """The names of the verbs, by their numbers, in the order of the chain."""
        self.told = Told()
        self.kept: list[KeptBatch] = []
        self.partitions = 1
        self.backend = "memory"
        self.evolution = Evolution("checkpoint")
        self._numbers = 0
        self._rows = 0
        self._random = Random(0)

    def begin(self, verbs: int, partitions: int, backend: str) -> None:
        self.partitions, self.backend = partitions, backend
        self.start(dict(self.new() for _ in range(verbs)), says=False)

    def new(self) -> tuple[int, str]:
        self._numbers += 1
        return self._numbers, f"verb-{self._numbers}"

    def start(
        self, chain: Mapping[int, str], deaths: Sequence[int] = (), *, says: bool = True, into: bool = False
    ) -> None:
        """Restart with these verbs, again and again if the driver dies on the way."""
        for death in [*deaths, None]:
            try:
                self.job.start(
                    list(chain.values()), self.partitions, self.backend, self.evolution if says else None,
                    into=into, death=death,
                )  # fmt: skip
                break
            except DeathError:
                self.note("killed while carrying over")
        self.chain = dict(chain)
        if into:
            self.kept = []
        assert self.job.operator is not None
        assert [verb.name for verb in self.job.operator.verbs] == list(chain.values())

    def batch(self, rows: Sequence[tuple[str, int | None]], deaths: Sequence[int] = ()) -> None:
        """Run a micro-batch, which is repeated by a restarted query as long as it dies."""
        splits = self.splits(rows)
        for death in [*deaths, None]:
            try:
                found = self.job.run(splits, self._random, death=death)
                break
            except DeathError:
                self.note("killed in a batch")
                self.start(self.chain)
        self.told = self.told.grown(rows, list(self.chain))
        self.check_told([row for table in found for row in rows_of(table)], {key for key, _ in rows})
        assert self.job.batch is not None
        now = KeptBatch(self.job.batch, dict(self.job.values), self.told, tuple(self.chain))
        self.kept = [*self.kept[-RETAINED:], now]

    def splits(self, rows: Sequence[tuple[str, int | None]]) -> list[pa.Table]:
        made = []
        for key, value in rows:
            self._rows += 1
            made.append({"k": key, "t": self._rows * SECOND, "v": value})
        return [pa.Table.from_pylist(made[at::2], SCHEMA) for at in range(2)]

    def check_told(self, rows: Sequence[Mapping[str, Any]], keys: set[str]) -> None:
        """Check that the last verb tells of each key that has had rows, and what its total is."""
        last = {row["k"]: row for row in sorted(rows, key=lambda row: int(row["sequence"]))}
        told = {key: Totals(row["n"], row["v"]) for key, row in last.items()}
        assert {row["op"] for row in rows} <= {"upsert"}
        assert told == {key: self.told.totals[key] for key in keys}

    def check(self) -> None:
        """Check what the tasks of each verb find in their stores."""
        assert self.job.operator is not None
        for (number, name), verb in zip(self.chain.items(), self.job.operator.verbs, strict=True):
            stores = self.job.operator.mades[name].verb.stores
            (store,) = [one for one in ("latest", "aggregate") if one in stores]
            parts = stores[store]
            shown = PartRows(parts, pa.schema([one for some in parts for one in some.schema]))
            entries = self.job.stored(verb, store)
            rows = rows_of(shown.to_table(Batch(*map(list, zip(*entries, strict=True))))) if entries else []
            found = {row["k"]: Totals(row["n"], row["v"]) for row in rows}
            assert len(found) == len(rows)
            assert found == self.told.tables.get(number, {}), name

    def evolve(self, chain: Mapping[int, str], deaths: Sequence[int], *, into: bool = False) -> None:
        """Restart with other verbs, and say of their names what is to be said, beside what was said before."""
        before = self.evolution
        renamed = {old: chain[number] for number, old in self.chain.items() if chain.get(number, old) != old}
        gone = {name for number, name in self.chain.items() if number not in chain}
        gone |= {old for name in gone for old in before.of_verbs.former(name)}
        names = {**before.renamed, **renamed}
        self.evolution = Evolution(
            "checkpoint",
            {old: new for old, new in names.items() if not {old, new} & gone},
            [*before.dropped, *sorted(gone)],
        )
        self.start(chain, deaths, into=into)

    def rename_verb(self, which: int, deaths: Sequence[int]) -> None:
        number = list(self.chain)[which % len(self.chain)]
        self.evolve({**self.chain, number: f"{self.new()[1]}-again"}, deaths)

    def add_verb(self, which: int, into: bool, deaths: Sequence[int]) -> None:
        """Add one verb, behind any other; at the end it needs no other checkpoint."""
        if len(self.chain) < MOST:
            place = 1 + which % len(self.chain)
            verbs = list(self.chain.items())
            last = place == len(verbs)
            self.evolve(dict([*verbs[:place], self.new(), *verbs[place:]]), deaths, into=into or not last)
            self.note("a verb came at the end" if last else "a verb came between")

    def drop_verb(self, which: int, into: bool, deaths: Sequence[int]) -> None:
        """Drop one verb, but not the first; the last one needs no other checkpoint."""
        if len(self.chain) > 1:
            place = 1 + which % (len(self.chain) - 1)
            verbs = list(self.chain.items())
            last = place == len(verbs) - 1
            self.evolve(dict([*verbs[:place], *verbs[place + 1 :]]), deaths, into=into or not last)
            self.note("a verb went at the end" if last else "a verb went between")

    def repartition(self, more: int, deaths: Sequence[int]) -> None:
        self.partitions = (self.partitions - 1 + more) % PARTITIONS + 1
        self.evolve(self.chain, deaths)

    def restart(self, says: bool) -> None:
        """Restart with the same verbs, with or without what was said of them."""
        self.start(self.chain, says=says)

    def switch_backend(self, which: int) -> None:
        self.backend = other(BACKENDS, self.backend, which)
        self.start(self.chain)

    def set_back(self, which: int, deaths: Sequence[int]) -> None:
        """Go back to an earlier micro-batch, with the verbs of today."""
        if len(self.kept) < 2:
            return
        del self.kept[which % (len(self.kept) - 1) + 1 :]
        at = self.kept[-1]
        self.job.batch, self.job.values, self.told = at.batch, dict(at.values), at.told
        self.start(self.chain, deaths)
        self.note("went back")
