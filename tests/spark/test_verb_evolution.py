"""With which generation each verb goes on, whatever the checkpoint holds in its place. No Spark runs here."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from millpond.adapters.spark.evolution.verb_evolution import VerbEvolution
from millpond.adapters.spark.operator.held_manifests import by_application, explained
from millpond.adapters.spark.session.checkpoint import Checkpoint
from millpond.adapters.spark.worker.worker import StateSettings
from millpond.errors import ConfigurationError, MissingFileError, StateConflictError
from millpond.processors.distribution.plan import Plan
from millpond.stores.backend.memory import MemorySupplier
from millpond.stores.durability import Manifest, Storage, TaskState, read_rows
from millpond.stores.durability.manifests.schema_log import keep_schemas, kept_schemas
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.evolution.evolving import Target
from millpond.stores.evolution.history import History
from millpond.stores.evolution.matching import Declared
from millpond.stores.evolution.record import EvolutionRecord
from millpond.stores.evolution.verbs.declarations import SaidOfVerbs, VerbOf
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from tests.stores.evolution.test_evolving import in_process
from tests.stores.evolution.test_verb_plan import CHECKPOINT, KINDS, Shop, shape

LAST = 7


class HeldBySpark:
    """A checkpoint as far as verbs look at it."""

    location = CHECKPOINT

    def __init__(self, operators: Mapping[int, Collection[Manifest]], batch: int | None = LAST) -> None:
        self._held = batch, operators

    def held(self) -> tuple[int | None, Mapping[int, Collection[Manifest]]]:
        return self._held

    def last(self) -> int | None:
        return self._held[0]


class Running:
    """The settings of a verb that runs, as far as what it finds in its place goes."""

    def __init__(self, shop: Shop, name: str, generation: EvolutionRecord | None, owner: str | None = "shop") -> None:
        self.application_id, self.sink, self.owner = f"{owner or 'shop'}.{name}", name, owner
        self.generation, self.storage = generation, shop.storage
        self.formerly: frozenset[str] = frozenset()


class Planned:
    """A plan, as far as it has operators."""

    def __init__(self, *behind: str) -> None:
        self.behind = behind


def generation(shop: Shop, kind: str, name: str, *behind: str, **given: Any) -> EvolutionRecord | None:
    batch, storage = given.pop("batch", LAST), given.pop("storage", shop.storage)
    into, asked = given.pop("into", False), given.pop("asked", ())
    evolution = VerbEvolution(
        VerbOf("shop", name, given.pop("before", name)),
        History.of(storage, f"shop.{name}", name),
        cast(Plan, Planned(*behind)),
        Target(f"{name}/2", shape(kind, name), Declared()),
        SaidOfVerbs(**given),
        asked,
        into,
    )
    return evolution.generation(cast(Checkpoint, HeldBySpark(shop.operators, batch)), in_process)


def settings(shop: Shop, name: str, record: EvolutionRecord | None, owner: str | None = "shop") -> StateSettings:
    return cast(StateSettings, Running(shop, name, record, owner))


def content(shop: Shop, record: EvolutionRecord, found: Manifest | None) -> list[Any]:
    """Return what a verb's task begins with in the next micro-batch, where it finds a manifest in its place."""
    start = record.start_of("0_0", found, (record.batch or LAST) + 1)
    if start is None:
        return []
    specs = [StoreSpec(one.name, StoreKind.KEY_VALUE, STRING, INT64) for one in record.shape.stores]
    return [next(iter(read_rows(shop.storage, start, spec)))[:2] for spec in specs]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_renamed_verb_goes_on_with_its_state_and_again_at_each_start(shop: Shop, kind: str) -> None:
    shop.ran(kind, "old")
    ((old,),) = shop.operators.values()
    record = generation(shop, kind, "new", renamed={"old": "new"})
    assert record is not None
    assert content(shop, record, old) == [("key", 1)] * len(KINDS[kind])
    assert generation(shop, kind, "new", renamed={"old": "new"}) is None
    assert History.of(shop.storage, "shop.new", "new").newest == record
    assert by_application([old], [settings(shop, "new", record)]) == {}
    with pytest.raises(StateConflictError, match=r"verb 'old' .*task '0_0'.* renamed={'old': 'other'}"):
        by_application([old], [settings(shop, "other", None)])


def test_verbs_that_change_places_begin_with_their_own_state_wherever_it_was(shop: Shop) -> None:
    for kind, name in (("latest", "gone"), ("aggregate", "stays")):
        shop.ran(kind, name)
    (gone,), (stays,) = shop.operators.values()
    said: dict[str, Any] = {"dropped": ["gone"]}
    record = generation(shop, "aggregate", "stays", **said)
    new = generation(shop, "latest", "new", **said)
    assert record is not None
    assert new is not None
    assert content(shop, record, gone) == content(shop, record, None) == [("key", 1)]
    assert record.bases["0_0"].directory == stays.directory
    assert content(shop, new, stays) == content(shop, new, gone) == []
    assert generation(shop, "aggregate", "stays", **said) is None
    assert by_application([gone, stays], [settings(shop, "stays", record)]) == {"shop.stays": stays}


def test_a_name_is_followed_over_releases_that_were_left_out(shop: Shop) -> None:
    shop.ran("apply", "a")
    record = generation(shop, "apply", "c", renamed={"a": "b", "b": "c"})
    assert record is not None
    assert content(shop, record, None) == [("key", 1)] * 3


def test_who_goes_back_before_the_renaming_carries_over_from_there(shop: Shop) -> None:
    shop.ran("latest", "old")
    first = generation(shop, "latest", "new", renamed={"old": "new"})
    again = generation(shop, "latest", "new", renamed={"old": "new"}, batch=LAST - 3)
    assert first is not None
    assert again is not None
    assert again.generation == first.generation + 1
    assert again.batch == LAST - 3
    assert content(shop, again, None) == [("key", 1)]


def test_a_verb_that_is_nowhere_is_refused_unless_it_may_have_a_place(shop: Shop) -> None:
    shop.ran("aggregate", "total")
    shop.ran("latest", "rates")
    with pytest.raises(StateConflictError, match=r"'rates', 'total' .*none of the verb 'totals'.*{'total': 'totals'}"):
        generation(shop, "aggregate", "totals")
    with pytest.raises(StateConflictError, match=r"state of 'rates' .*if it stands where 'rates' stood"):
        generation(shop, "aggregate", "totals", asked=["total"])
    with pytest.raises(StateConflictError, match=r"none of the verb 'totals'"):
        generation(shop, "aggregate", "totals", renamed={"totl": "totals"})
    assert generation(shop, "aggregate", "totals", into=True) is None
    assert generation(shop, "aggregate", "totals", "rates") is None
    assert generation(shop, "aggregate", "totals", batch=None) is None
    shop.operators[2] = []
    assert generation(shop, "aggregate", "totals") is None


def test_state_that_is_elsewhere_is_told(shop: Shop, tmp_path: Path) -> None:
    shop.ran("aggregate", "total")
    ((held,),) = shop.operators.values()
    typo = Storage.from_uri(tmp_path / "typo")
    for name, said in (("total", {}), ("totals", {"renamed": {"total": "totals"}})):
        with pytest.raises(StateConflictError, match=r"no state of shop/total in .*typo; the checkpoint /c"):
            generation(shop, "aggregate", name, storage=typo, **said)
    running = settings(shop, "total", None)
    missing = MissingFileError("gone")
    assert explained(missing, running, held) is missing
    told = explained(StateConflictError("other"), running, held)
    assert isinstance(told, StateConflictError)
    assert told.sentence == "the verb 'total': other"
    shop.storage = typo
    elsewhere = settings(shop, "total", None)
    assert "no state of shop/total in" in str(explained(missing, elsewhere, held))
    assert explained(missing, elsewhere, None) is missing
    assert explained(missing, settings(shop, "total", None, None), held) is missing


def test_a_verb_begins_empty_where_the_checkpoint_of_its_job_stands_before_its_first_row(shop: Shop) -> None:
    shop.ran("aggregate", "total")
    shop.operators = {0: []}
    shop.ran("latest", "rates")
    for name, said in (("total", {"dropped": ["rates"]}), ("sum", {"renamed": {"total": "sum"}})):
        record = generation(shop, "aggregate", name, before="total", **said)
        assert record is not None
        assert content(shop, record, None) == []


@pytest.mark.parametrize("operators", [{}, {0: [Manifest.empty("stall.total", "0_0", "x")]}])
def test_state_of_another_jobs_checkpoint_is_left_alone(shop: Shop, operators: dict[int, list[Manifest]]) -> None:
    shop.ran("aggregate", "total")
    held, shop.operators = shop.operators, operators
    with pytest.raises(ConfigurationError, match=r"'shop.total', but .*give the checkpointLocation of the query"):
        generation(shop, "aggregate", "sum", before="total", renamed={"total": "sum"})
    shop.operators = held
    record = generation(shop, "aggregate", "sum", before="total", renamed={"total": "sum"})
    assert record is not None
    assert content(shop, record, None) == [("key", 1)]


def test_a_verb_does_not_take_the_state_of_another_in_addition_to_its_own(shop: Shop) -> None:
    for name in ("one", "two"):
        shop.ran("aggregate", name)
    with pytest.raises(StateConflictError, match=r"'one' .* is 'two' now, but the checkpoint /c holds state of both"):
        generation(shop, "aggregate", "two", renamed={"one": "two"})
    assert generation(shop, "aggregate", "two") is None


def test_a_job_under_another_application_id_is_told_the_one_of_its_checkpoint(shop: Shop) -> None:
    shop.ran("aggregate", "total")
    ((held,),) = shop.operators.values()
    told = (
        r"state of 'shop\.total' where the verb 'total' of application 'stall' .* write application_id='shop' again, or"
    )
    with pytest.raises(StateConflictError, match=told):
        by_application([held], [settings(shop, "total", None, "stall")])
    with pytest.raises(StateConflictError, match=r"write the application_id with which 'shop\.total' begins again, or"):
        by_application([held], [settings(shop, "sum", None, "stall")])
    assert by_application([held], [settings(shop, "total", None, "shop")]) == {"shop.total": held}


def test_a_verb_is_not_renamed_to_one_that_had_other_columns_but_to_another_name(shop: Shop) -> None:
    shop.ran("latest", "old")
    keep_schemas(shop.storage, "shop.new", {"input-key": Schemas.first(pa.schema([("k", pa.int64())]))})
    told = (
        r"new/input-key-schema-1\.json has other schemas than .*old.*; give the renamed verb a name that has no state,"
    )
    with pytest.raises(StateConflictError, match=told):
        generation(shop, "latest", "new", renamed={"old": "new"})
    record = generation(shop, "latest", "newest", renamed={"old": "newest"})
    assert record is not None
    assert content(shop, record, None) == [("key", 1)]
    assert kept_schemas(shop.storage, "shop.newest", "input-key") == kept_schemas(shop.storage, "shop.old", "input-key")


def test_a_topology_refuses_what_is_not_its_own(shop: Shop) -> None:
    other = Manifest.empty("other", "0_0", "x")
    topology = settings(shop, "out", None, None)
    with pytest.raises(StateConflictError, match="belongs to task '0_0' of application 'other'"):
        by_application([other], [topology])


def test_what_a_renamed_verb_writes_is_its_own(shop: Shop, tmp_path: Path) -> None:
    shop.ran("latest", "old")
    record = generation(shop, "latest", "new", renamed={"old": "new"})
    assert record is not None
    state = TaskState(
        [StoreSpec("latest", StoreKind.KEY_VALUE, STRING, INT64)],
        MemorySupplier(),
        application_id="shop.new",
        task_id="0_0",
        local_dir=tmp_path / "local",
        storage=shop.storage,
        fingerprint=record.fingerprint,
    )
    with state:
        state.open(record.bases["0_0"])["latest"].put("key", 2)  # type: ignore[attr-defined]
        after = state.commit()
    assert (after.application_id, after.fingerprint) == ("shop.new", record.fingerprint)
    ((before,),) = shop.operators.values()
    shop.operators[0] = [after]
    assert generation(shop, "latest", "new", renamed={"old": "new"}, batch=LAST + 1) is None
    shop.operators[0] = [after, before]  # as that of another task, which has had nothing to do since
    back = generation(shop, "latest", "old", renamed={"new": "old"}, batch=LAST + 1)
    assert back is not None
    assert back.generation == record.generation + 1
    assert content(shop, back, after) == [("key", 2)]
