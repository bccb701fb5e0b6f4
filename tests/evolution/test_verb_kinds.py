"""The stores of each verb tell which one it is, and another one does not go on with them."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import StateConflictError
from millpond.processors import JoinWindows, TimeWindows, Topology
from millpond.processors.calls.aggregate import bound_anew
from millpond.processors.calls.feed_aggregate import Changes, make_feed_aggregate
from millpond.processors.calls.tables import Rows
from millpond.processors.distribution.plan import make_plan
from millpond.processors.distribution.shape_of import shape_of
from millpond.processors.options.joins import JoinType
from millpond.processors.verbs.aggregates import count
from millpond.stores.evolution.shape import Shape
from millpond.stores.evolution.verbs.verb_kinds import check_kind, kind_of
from tests.evolution.parameters import (
    of_aggregate,
    of_apply,
    of_asof_join,
    of_deduplicate,
    of_latest,
    of_multi_join,
    of_over,
    of_stream_join,
    of_table_join,
    of_top_n,
)


def of_feed() -> Topology:
    """Return an aggregate of a change feed."""
    columns: list[Any] = [("id", pa.int64()), ("k", pa.string()), ("at", pa.timestamp("us")), ("op", pa.string())]
    rows = Rows.of("changes", pa.schema(columns))
    feed = Changes(["id"], "op", "at", late=True)
    made = make_feed_aggregate("v", rows, {"n": count()}, feed, by="k", time="at", binding=bound_anew)
    return made.verb.topology


VERBS: list[tuple[str, Callable[[], Topology]]] = [
    ("latest", of_latest),
    ("aggregate", of_aggregate),
    ("aggregate", lambda: of_aggregate(windows=TimeWindows(10))),
    ("aggregate", of_feed),
    ("top_n", of_top_n),
    ("top_n", lambda: of_top_n(windows=TimeWindows(10), final=True)),
    ("deduplicate", of_deduplicate),
    ("deduplicate", lambda: of_deduplicate(waits=False)),
    ("over", of_over),
    ("apply", of_apply),
    ("asof_join", of_asof_join),
    ("stream_join", lambda: of_stream_join(JoinWindows(5))),
    ("table_join", of_table_join),
    ("multi_join", of_multi_join),
    ("multi_join", lambda: of_multi_join(["aggregate", "deduplicate"], [JoinType.OUTER])),
]


def shape(topology: Topology) -> Shape:
    return shape_of(make_plan(topology, None, 2))


@pytest.mark.parametrize(("kind", "verb"), VERBS)
def test_the_stores_of_a_verb_tell_which_one_it_is(kind: str, verb: Callable[[], Topology]) -> None:
    assert kind_of("v", shape(verb())) == kind


@pytest.mark.parametrize(("kind", "verb"), [one for one in VERBS if one[0] != "top_n"])
def test_a_verb_does_not_go_on_with_the_state_of_a_top_n(kind: str, verb: Callable[[], Topology]) -> None:
    with pytest.raises(StateConflictError, match=rf"the state of the verb 'v' is that of a top_n; 'v' is an? {kind}"):
        check_kind("v", shape(of_top_n()), "v", shape(verb()))
