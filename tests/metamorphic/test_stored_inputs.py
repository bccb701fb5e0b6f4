"""The inputs of a verb of which a store keeps rows; nothing of an earlier run depends on the columns of the others."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from millpond.processors import TimeWindows
from millpond.processors.calls.aggregate import make_aggregate
from millpond.processors.calls.apply import make_apply
from millpond.processors.calls.joins.asof_join import make_asof_join
from millpond.processors.calls.joins.stream_join import make_stream_join
from millpond.processors.calls.joins.table_join import make_table_join
from millpond.processors.calls.latest import make_latest
from millpond.processors.calls.made import Made
from millpond.processors.calls.tables import Rows
from millpond.processors.options.joins import JoinType
from millpond.processors.verbs import aggregates
from millpond.processors.verbs.verb import INSTANT as TIME
from tests.metamorphic.applied import results_of
from tests.metamorphic.engine import Query
from tests.metamorphic.histories import SECOND
from tests.metamorphic.keeping import BackendKeeper
from tests.metamorphic.rules import RESULTS, Totals

SIDES = ("a", "b")
TIMES: Any = {"on": "k", "times": ("at", "bt")}


def table(source: str, *rows: tuple[str, int], note: Any = None) -> pa.Table:
    """Return rows of a key and a second, each with a mark of its source."""
    fields: list[tuple[str, Any]] = [("k", pa.string()), (f"{source}t", TIME), (f"{source}m", pa.string())]
    if note is not None:
        fields.append((f"{source}n", note.type))
    made = [
        {"k": key, f"{source}t": second * SECOND, f"{source}m": f"mark of {source}"}
        | ({} if note is None else {f"{source}n": note.as_py()})
        for key, second in rows
    ]
    return pa.Table.from_pylist(made, pa.schema(fields))


A, B = (Rows.of(source, table(source).schema) for source in SIDES)
FOREIGN = A.select("at", "am", k="k", id="am")


def asof(grace: int | None, left: Rows = A, how: JoinType = JoinType.LEFT) -> Made:
    return make_asof_join("out", left, B, history=60 * SECOND, grace=grace, how=how, **TIMES)


def near(how: JoinType, before: int, after: int) -> Made:
    return make_stream_join("out", A, B, before=before * SECOND, after=after * SECOND, grace=0, how=how, **TIMES)


def folded(window: TimeWindows | None) -> Made:
    calls = {"n": aggregates.count(), "m": aggregates.count("am")}
    return make_aggregate("out", A, calls, by="k", time="at", window=window)


VERBS: dict[str, tuple[Callable[[], Made], str]] = {
    "an as-of join": (lambda: asof(None), "b"),
    "an inner as-of join": (lambda: asof(None, how=JoinType.INNER), "b"),
    "an as-of join with a grace": (lambda: asof(5 * SECOND), "ab"),
    "a join of streams": (lambda: near(JoinType.INNER, 5, 5), "ab"),
    "an outer join of streams": (lambda: near(JoinType.OUTER, 5, 5), "ab"),
    "a join of tables": (lambda: make_table_join("out", A, B, **TIMES), "ab"),
    "a join of versioned tables": (lambda: make_table_join("out", A, B, history=60 * SECOND, **TIMES), "ab"),
    "a join by foreign key": (lambda: make_table_join("out", FOREIGN, B, left_key="id", **TIMES), "ab"),
    "a table": (lambda: make_latest("out", A, key="k", time="at", history=0), "a"),
    "a processor": (
        lambda: make_apply(
            "out", A, Totals("at"), key="k", time="at", results=results_of(RESULTS), lateness=5 * SECOND
        ),
        "a",
    ),
    "an aggregate": (lambda: folded(None), ""),
    "an aggregate by window": (lambda: folded(TimeWindows("10 seconds", grace="1 minute")), ""),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_store_keeps_rows_of_these_inputs_and_of_no_others(verb: str, tmp_path: Path) -> None:
    make, stored = VERBS[verb]
    with closing(BackendKeeper(tmp_path, "memory")) as keeper:
        query = Query([make()], [1], keeper, Random(1))
        query.run({source: [table(source, ("x", 10), ("y", 11))] for source in SIDES})
        kept = b"".join(value for backend in keeper.backends for _, value in backend.scan())
    assert "".join(source for source in SIDES if f"mark of {source}".encode() in kept) == stored


@pytest.mark.parametrize("how", [JoinType.INNER, JoinType.LEFT])
def test_an_asof_join_meets_what_it_has_kept_whatever_has_become_of_its_left_columns(
    how: JoinType, tmp_path: Path
) -> None:
    lefts: list[tuple[Any, Callable[[Rows], Rows]]] = [
        (None, lambda rows: rows),
        (pa.scalar(7), lambda rows: rows),
        (pa.scalar("seven"), lambda rows: rows),
        (pa.scalar([7]), lambda rows: rows.select("k", "at", note="an")),
        (None, lambda rows: rows.select("k", "at")),
    ]
    met = []
    with closing(BackendKeeper(tmp_path, "lmdb")) as keeper:
        for number, (note, chosen) in enumerate(lefts):
            left = table("a", ("x", 20), note=note)
            query = Query([asof(None, chosen(Rows.of("a", left.schema)), how)], [1], keeper, Random(1))
            right = [table("b", ("x", 10))] if number == 0 else []
            (found,) = query.run({"a": [left], "b": right})
            met.append(found["bm"].to_pylist())
            keeper.restart()
    assert met == [["mark of b"]] * len(lefts)
