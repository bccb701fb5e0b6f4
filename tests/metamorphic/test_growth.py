"""However long the history of one key is, a row of it makes a verb read about as many rows of its stores."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from millpond.processors import SessionWindows, SlidingWindows, TimeWindows
from millpond.processors.calls.aggregate import make_aggregate
from millpond.processors.calls.deduplicate import make_deduplicate
from millpond.processors.calls.joins.asof_join import make_asof_join
from millpond.processors.calls.joins.stream_join import make_stream_join
from millpond.processors.calls.joins.table_join import make_table_join
from millpond.processors.calls.latest import make_latest
from millpond.processors.calls.made import Made
from millpond.processors.calls.over import make_over
from millpond.processors.calls.tables import Rows
from millpond.processors.calls.top_n import make_top_n
from millpond.processors.options.joins import JoinType
from millpond.processors.verbs import aggregates
from millpond.processors.verbs.ordered.over_spec import Frame
from millpond.stores.backend.contract import Entries
from millpond.stores.backend.memory import MemoryBackend
from tests.metamorphic.checking import schema
from tests.metamorphic.engine import Query
from tests.metamorphic.histories import SECOND
from tests.metamorphic.keeping import BackendKeeper

FEW, MANY, IN_A_BATCH = 1_600, 6_400, 50
"""Among few rows, those of a micro-batch are already so far apart that they are sought and not passed by one walk."""
MORE = 1.5

PASSED = {"asof_join": 40}
"""A look-up of an older version passes up to 8 versions in a range and 32 in a walk before it seeks. Among few rows
there are not so many between two look-ups; among many, reading all that lie between them would be 64 for each."""

LONG = 10**6 * SECOND
GRACE = 10**9
SOURCE = schema("a")
BY_TIME = {"n": aggregates.count(), "l": aggregates.last("av")}
ROWS = Rows.of("a", SOURCE)
BOTH = {"a": SOURCE, "b": schema("b")}
OTHER = Rows.of("b", BOTH["b"])


def aggregate(window: Any) -> Made:
    return make_aggregate("out", ROWS, BY_TIME, by="k", time="at", window=window)


def stream_join() -> Made:
    times, reach = ("at", "bt"), 2 * SECOND
    return make_stream_join("out", ROWS, OTHER, on="k", times=times, before=reach, after=reach, grace=LONG)


CASES: dict[str, tuple[Callable[[], Made], dict[str, pa.Schema]]] = {
    "latest": (lambda: make_latest("out", ROWS, key="k", time="at", history=LONG), {"a": SOURCE}),
    "asof_join": (
        lambda: make_asof_join("out", ROWS, OTHER, on="k", times=("at", "bt"), history=LONG, how=JoinType.LEFT),
        BOTH,
    ),
    "stream_join": (stream_join, BOTH),
    "table_join": (lambda: make_table_join("out", ROWS, OTHER, on="k", times=("at", "bt"), history=LONG), BOTH),
    "by key": (lambda: aggregate(None), {"a": SOURCE}),
    "top_n": (lambda: make_top_n("out", ROWS, 3, by="k", order="at", time="at", descending=(True,)), {"a": SOURCE}),
    "deduplicate": (lambda: make_deduplicate("out", ROWS, key="k", time="at", within=LONG, grace=GRACE), {"a": SOURCE}),
    "over": (
        lambda: make_over(
            "out",
            ROWS,
            {"n": aggregates.count(), "v": aggregates.lag("av")},
            key="k",
            time="at",
            frame=Frame(within=LONG),
            grace=GRACE,
            ttl=LONG,
        ),
        {"a": SOURCE},
    ),
    "by window": (lambda: aggregate(TimeWindows(7_000, grace=GRACE)), {"a": SOURCE}),
    "by sliding window": (lambda: aggregate(SlidingWindows(3_000, grace=GRACE)), {"a": SOURCE}),
    "by session": (lambda: aggregate(SessionWindows(500, grace=GRACE)), {"a": SOURCE}),
}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many rows have been read of engines, as the one item of a list."""
    count = [0]
    scan, get_many = MemoryBackend.scan, MemoryBackend.get_many

    def counted(entries: Entries) -> Entries:
        for entry in entries:
            count[0] += 1
            yield entry

    def counting_get_many(engine: MemoryBackend, keys: Any) -> list[bytes | None]:
        count[0] += len(keys)
        return get_many(engine, keys)

    monkeypatch.setattr(MemoryBackend, "scan", lambda *args, **options: counted(scan(*args, **options)))
    monkeypatch.setattr(MemoryBackend, "get_many", counting_get_many)
    return count


def rows_at(columns: pa.Schema, times: list[int]) -> pa.Table:
    kinds: dict[str, Any] = {"k": ["a"] * len(times), "t": [SECOND * time for time in times], "v": times}
    found = [pa.array(kinds[field.name[-1]]).cast(field.type) for field in columns]
    return pa.Table.from_arrays(found, schema=columns)


def run(made: Made, schemas: dict[str, pa.Schema], times: list[int], directory: Path) -> None:
    with closing(BackendKeeper(directory, "memory")) as keeper:
        query = Query([made], [1], keeper, Random(0))
        for start in range(0, len(times), IN_A_BATCH):
            some = times[start : start + IN_A_BATCH]
            query.run({source: [rows_at(columns, some)] for source, columns in schemas.items()})


ORDERS = [(case, order) for case in CASES for order in ("in order", "reversed", "shuffled")]
"""Of sessions, those that end after a late row are all read, since the last of them may have begun before it."""
ORDERS = [one for one in ORDERS if one[0] != "by session" or one[1] == "in order"]


@pytest.mark.parametrize(("case", "order"), ORDERS)
def test_a_row_reads_as_much_of_a_long_history_as_of_a_short_one(
    case: str, order: str, read: list[int], tmp_path: Path
) -> None:
    make, schemas = CASES[case]
    shares = []
    for size in (FEW, MANY):
        times = list(range(size))
        if order == "reversed":
            times.reverse()
        if order == "shuffled":
            Random(1).shuffle(times)
        read[0] = 0
        run(make(), schemas, times, tmp_path / str(size))
        shares.append(read[0] / size)
    assert shares[1] <= max(MORE * shares[0] + 1, PASSED.get(case, 0))
