"""Histories of rows, and the ways in which they come: late within bounds, in micro-batches and files at random."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa
from hypothesis import strategies as st

from millpond.processors.calls.made import Made
from tests.metamorphic.engine import Query
from tests.metamorphic.keeping import MEMORY, BackendKeeper, DurableKeeper, Keeper
from tests.metamorphic.operators import OperatedQuery, Place

SECOND: Final = 1_000_000
CLOSING: Final = "~"
"""The key of rows that come at the end, far in the future, so that all others come out."""
TICK: Final = "*"
"""The source of rows that all sources have at the same time and in the same micro-batch, with a key of their own."""
TICKING: Final = "."
FAR: Final = 1_000_000 * SECOND
"""The time of the first rows that close a history."""
BACKENDS: Final = ("memory", "lmdb", "rocksdb")


@dataclass(frozen=True)
class Event:
    """A row.

    Attributes:
        source: whose it is.
        at: its time, in microseconds.
        row: its columns, by name.
    """

    source: str
    at: int
    row: Mapping[str, Any]


@dataclass(frozen=True)
class Way:
    """The way in which a history comes.

    Attributes:
        seed: of everything else.
        batches: into how many micro-batches it is cut; 0 for one with each row.
        splits: in how many files a micro-batch of a source comes.
        partitions: how many tasks verbs have, one after the other, again and again.
        deaths: how likely it is that a micro-batch dies.
        restarts: how likely it is that the query is ended behind a micro-batch, and begun anew.
        shared: whether verbs run in the operators of Spark, and share them where they may.
        apart: whether each of them has one of its own there.
        complete: whether the last micro-batch tells that inputs are complete; otherwise rows far in the future come.
        backend: of the stores; None for all in turn, with durable files.
    """

    seed: int
    batches: int
    splits: int
    partitions: tuple[int, ...]
    deaths: float = 0.0
    complete: bool = True
    backend: str | None = "memory"
    restarts: float = 0.0
    shared: bool = False
    apart: bool = False

    def partitions_of(self, verbs: int) -> list[int]:
        """Return the partitions of each verb; few where stores are files."""
        most = 8 if self.backend == "memory" else 2
        return [min(self.partitions[number % len(self.partitions)], most) for number in range(verbs)]


WAYS: Final = st.builds(
    Way,
    seed=st.integers(0, 1 << 32),
    batches=st.integers(0, 6),
    splits=st.integers(1, 4),
    partitions=st.lists(st.sampled_from([1, 1, 2, 3, 8]), min_size=1, max_size=3).map(tuple),
    deaths=st.sampled_from([0.0, 0.0, 0.3]),
    complete=st.booleans(),
    backend=st.sampled_from([*["memory"] * 9, "lmdb", "rocksdb", None, None]),
)
SHARING: Final = st.builds(
    replace, WAYS, shared=st.just(True), partitions=st.integers(1, 3).map(lambda number: (number,)),
    deaths=st.sampled_from([0.0, 0.5]), restarts=st.sampled_from([0.0, 0.5]),
)  # fmt: skip
"""The ways of verbs that share operators."""


@dataclass(frozen=True)
class Chain:
    """Verbs, each of which may read what those before it put out, and the sources that they read.

    Attributes:
        verbs: the verbs.
        schemas: of the rows of each source.
        times: which of their columns has the time.
        key: which has the key.
    """

    verbs: Sequence[Made]
    schemas: Mapping[str, pa.Schema]
    times: Mapping[str, str]
    key: str = "k"


@dataclass
class Answer:
    """The output.

    Attributes:
        key: the column with the key.
        tables: of the last verb, in the order of micro-batches.
        late: of each verb, the late records of each micro-batch, as key, value, time, reached and short.
        batches: which rows each micro-batch had.
    """

    key: str = "k"
    tables: list[pa.Table] = field(default_factory=list)
    late: dict[str, list[list[Any]]] = field(default_factory=dict)
    batches: list[list[Event]] = field(default_factory=list)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The rows, without those that close; times are microseconds."""
        return [row for table in self.tables for row in rows_of(table) if row.get(self.key) != CLOSING]


def arrivals(events: Sequence[Event], delays: Mapping[str, int], random: Random) -> list[Event]:
    """Return the rows in an order in which none is later than the delay of its source; sources go first in their order.

    Args:
        events: the rows.
        delays: by how much those of each source may be late, in microseconds.
        random: decides.
    """
    ranks = [TICK, *delays]

    def place(event: Event) -> tuple[int, int, float]:
        most = delays.get(event.source, 0) // SECOND
        delay = random.choice([0, most, random.randint(0, most)]) * SECOND
        return event.at + delay, ranks.index(event.source), random.random()

    return sorted(events, key=place)


def cut(events: Sequence[Event], way: Way, random: Random) -> list[list[Event]]:
    """Return the rows in micro-batches, some of which may be empty."""
    if way.batches == 0:
        return [[event] for event in events]
    ends = sorted(random.randint(0, len(events)) for _ in range(way.batches - 1))
    return [list(events[start:end]) for start, end in zip([0, *ends], [*ends, len(events)], strict=True)]


def tables(chain: Chain, events: Sequence[Event], splits: int, random: Random) -> dict[str, list[pa.Table]]:
    """Return the rows of a micro-batch in files, in any order."""
    found = {}
    for source, schema in chain.schemas.items():
        files: list[list[Mapping[str, Any]]] = [[] for _ in range(splits)]
        rows = rows_from(chain, events, source)
        random.shuffle(rows)
        for row in rows:
            random.choice(files).append(row)
        found[source] = [pa.Table.from_pylist(file, schema) for file in files]
    return found


def rows_from(chain: Chain, events: Sequence[Event], source: str) -> list[Mapping[str, Any]]:
    """Return the rows of a source, with those that all have."""
    schema, time = chain.schemas[source], chain.times[source]
    return [
        {**_blank(schema), chain.key: TICKING, time: event.at} if event.source == TICK else event.row
        for event in events
        if event.source in (source, TICK)
    ]


def ticking(events: Sequence[Event]) -> list[Event]:
    """Return the rows, and a row of each source whenever there is one: so all sources come as far at the same time."""
    return [*(Event(TICK, at, {}) for at in sorted({event.at for event in events})), *events]


def run(chain: Chain, batches: Sequence[Sequence[Event]], way: Way) -> Answer:
    """Return what comes out of the last verb."""
    with TemporaryDirectory(dir=MEMORY) as directory, closing(_keeper(Path(directory), way)) as keeper:
        random, answer = Random(way.seed), Answer(chain.key)
        query = _query(chain, keeper, random, way)
        endings = [] if way.complete else _closing(chain)
        for number, events in enumerate([*batches, *endings]):
            last = way.complete and number == len(batches) - 1
            deaths = [random.randint(0, 6) for _ in range(1 + (random.random() < way.deaths))]
            dies = deaths if random.random() < way.deaths else []
            inputs = tables(chain, events, way.splits, random)
            answer.tables += query.run(inputs, complete=last, deaths=dies)
            if way.restarts and random.random() < way.restarts:
                query = query.restarted()
        answer.late = query.told
        answer.batches = [list(events) for events in batches]
        return answer


def _query(chain: Chain, keeper: Keeper | Place, random: Random, way: Way) -> Query | OperatedQuery:
    partitions = way.partitions_of(len(chain.verbs))
    if isinstance(keeper, Place):
        return OperatedQuery(chain.verbs, partitions, keeper, random, shared=not way.apart)
    return Query(chain.verbs, partitions, keeper, random)


def _keeper(directory: Path, way: Way) -> Keeper | Place:
    loses = bool(way.seed % 2)
    if way.shared:
        return Place(directory, BACKENDS if way.backend is None else [way.backend], loses=loses)
    if way.backend is not None:
        return BackendKeeper(directory, way.backend)
    return DurableKeeper(directory, BACKENDS, loses=loses)


def _closing(chain: Chain) -> list[list[Event]]:
    """Return rows far in the future: one micro-batch for each verb to let go what waits, and one more."""
    return [
        [
            Event(source, number * FAR, {**_blank(schema), chain.key: CLOSING, chain.times[source]: number * FAR})
            for source, schema in chain.schemas.items()
        ]
        for number in range(1, len(chain.verbs) + 2)
    ]


def _blank(schema: pa.Schema) -> dict[str, Any]:
    blanks: dict[str, Any] = {"int64": 0, "string": "upsert"}
    return {field.name: blanks.get(str(field.type)) for field in schema}


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows, with times in microseconds."""
    columns = {name: _plain(table[name]) for name in table.column_names}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _plain(column: Any) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        plain: list[Any] = column.cast(pa.int64()).to_pylist()
        return plain
    if pa.types.is_struct(column.type):
        whole: Any = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        fields = [_plain(one) for one in whole.flatten()]
        return list(zip(*fields, strict=True))
    listed: list[Any] = column.to_pylist()
    return listed


def answer_of(chain: Chain, events: Sequence[Event], delays: Mapping[str, int], way: Way) -> Answer:
    """Return what comes out of rows that come in a way of their own."""
    random = Random(way.seed + 1)
    return run(chain, cut(arrivals(events, delays, random), way, random), way)


def current(rows: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the table that a change feed leaves: the last row of each key, unless it is a delete."""
    last: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for row in sorted(rows, key=lambda row: int(row["sequence"])):
        last[tuple(row[key] for key in keys)] = row
    left = {key: row for key, row in last.items() if row["op"] == "upsert"}
    return {key: {name: row[name] for name in row if name not in ("op", "sequence")} for key, row in left.items()}
