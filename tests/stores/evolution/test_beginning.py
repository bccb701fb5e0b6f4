"""The records that a query keeps with its first row, whichever process does it, and however often."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.errors import StateConflictError
from millpond.stores.durability import Storage
from millpond.stores.durability.manifests.claim import claimed_by
from millpond.stores.durability.manifests.schema_log import next_schemas
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.evolution.beginning import Beginning
from millpond.stores.evolution.history import History
from millpond.stores.evolution.record import EvolutionRecord, Previous
from millpond.stores.evolution.shape import Shape, StoreShape
from millpond.stores.specs.store_spec import StoreKind
from millpond.stores.typed.terms import Terms

STORE = StoreShape(
    0, "counts", StoreKind.KEY_VALUE, STRING.name, INT64.name, None, STRING.name, False, Terms(fixed=(("by", "k"),))
)
SHAPE = Shape(2, (STORE,))
TEXT = pa.schema([]).append(pa.field("name", pa.string()))
NUMBER = pa.schema([]).append(pa.field("name", pa.int64()))


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.from_uri(tmp_path)


def built(storage: Storage, shape: Shape = SHAPE, schema: pa.Schema = TEXT) -> Beginning:
    """Return the beginning of a query that is built: nothing is written."""
    history = History.of(storage, "app", "out").begun(f"t/{shape.partitions}", shape, keep=False)
    assert history.newest is not None
    return Beginning(storage, "app", "out", history.newest, {"in": next_schemas(storage, "app", "in", schema, {}, ())})


def content(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_building_writes_nothing_and_any_number_of_workers_keep_the_same(storage: Storage, tmp_path: Path) -> None:
    beginning = built(storage)
    assert content(tmp_path) == {}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: beginning.keep(), range(32)))
    first = content(tmp_path)
    assert (claimed_by(storage, "app"), len(first)) == ("t/2", 3)
    assert History.of(storage, "app", "out").newest == beginning.record
    built(storage).keep()
    assert content(tmp_path) == first


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"shape": Shape(4, (STORE,))}, id="partitions"),
        pytest.param({"shape": Shape(2, ())}, id="stores"),
        pytest.param({"schema": NUMBER}, id="schema"),
    ],
)
def test_of_two_that_were_built_before_either_ran_the_second_is_refused(
    change: dict[str, object], storage: Storage, tmp_path: Path
) -> None:
    one, other = built(storage), built(storage, **change)  # type: ignore[arg-type]
    one.keep()
    before = content(tmp_path)
    with pytest.raises(StateConflictError, match="build the query again, and start one after the other"):
        other.keep()
    assert content(tmp_path) == before
    one.keep()


def test_a_query_goes_on_in_a_generation_that_is_not_the_newest_any_more(storage: Storage, tmp_path: Path) -> None:
    beginning = built(storage)
    beginning.keep()
    history = History.of(storage, "app", "out")
    previous = Previous(0, "t/2", SHAPE)
    later = EvolutionRecord(1, "t/4#1@out", replace(SHAPE, partitions=4), 3, previous)
    history.keep(later)
    before = content(tmp_path)
    beginning.keep()
    assert content(tmp_path).keys() - before.keys() == {tmp_path / "app" / "topology-evolved"}
    Beginning(storage, "app", "out", later).keep()


@pytest.mark.parametrize(
    ("application", "another"),
    [("app", "another application_id"), ("app.out", "another name")],
    ids=["topology", "verb"],
)
def test_state_begins_empty_in_another_query_only_if_that_is_new_or_has_some(
    application: str, another: str, storage: Storage, tmp_path: Path
) -> None:
    def keep(query: str | None, *, may_be_empty: bool = False) -> None:
        history = History.of(storage, application, "out").begun("t/2", SHAPE, keep=False)
        assert history.newest is not None
        Beginning(storage, application, "out", history.newest).keep(query, may_be_empty=may_be_empty)

    keep(None)
    keep("first")  # nobody knows of others: they were of a release that did not note them
    before = content(tmp_path)
    keep("first")
    keep(None)
    with pytest.raises(StateConflictError, match=f"of the query first in .* in this one, later, .* give it {another}"):
        keep("later")
    assert content(tmp_path) == before
    keep("later", may_be_empty=True)
    for query in ("later", "first"):
        keep(query)
    with pytest.raises(StateConflictError, match="of the query first, later in"):
        keep("last")
    assert [record.generation for record in History.of(storage, application, "out").records] == [0]


def test_a_query_of_several_verbs_keeps_the_beginning_of_each(storage: Storage) -> None:
    for verb in ("one", "other"):
        history = History.of(storage, f"app.{verb}", verb).begun("t/2", SHAPE, keep=False)
        assert history.newest is not None
        Beginning(storage, f"app.{verb}", verb, history.newest).keep(verb, may_be_empty=False)
        assert History.of(storage, f"app.{verb}", verb).queries == {verb}
