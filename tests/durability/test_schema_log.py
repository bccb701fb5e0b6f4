"""The schemas of packed rows are kept beside the state, one file a number."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.errors import CorruptFileError, StateConflictError
from millpond.stores.durability.manifests.schema_log import keep_schemas, kept_schemas, next_schemas
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.rows.schemas import Schemas
from tests.durability.keeping_schemas import evolve_schemas

FIRST = pa.schema([]).append(pa.field("rate", pa.string()))
OTHER = pa.schema([]).append(pa.field("rate", pa.float64()))
WIDER = FIRST.append(pa.field("note", pa.string()))


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.from_uri(tmp_path)


def evolve(storage: Storage, schema: pa.Schema) -> int:
    return evolve_schemas(storage, "shop.verb", "right", schema).number


def with_state(tmp_path: Path) -> None:
    (tmp_path / "shop.verb" / "0_1").mkdir()


def test_a_new_schema_becomes_a_file_of_its_own(storage: Storage, tmp_path: Path) -> None:
    assert evolve(storage, FIRST) == 1
    with_state(tmp_path)
    assert [evolve(storage, FIRST), evolve(storage, WIDER), evolve(storage, WIDER)] == [1, 2, 2]
    files = sorted(path.name for path in (tmp_path / "shop.verb").glob("*.json"))
    assert files == ["right-schema-1.json", "right-schema-2.json"]
    kept = kept_schemas(storage, "shop.verb", "right")
    assert kept is not None
    assert kept.current == WIDER


def test_places_whose_names_begin_alike_have_histories_of_their_own(storage: Storage, tmp_path: Path) -> None:
    evolve(storage, FIRST)
    with_state(tmp_path)
    assert evolve_schemas(storage, "shop.verb", "right-key", OTHER).number == 1
    kept = kept_schemas(storage, "shop.verb", "right")
    assert kept is not None
    assert kept.current == FIRST


def test_as_long_as_no_task_has_written_a_row_a_schema_may_become_any_other(storage: Storage, tmp_path: Path) -> None:
    assert [evolve(storage, FIRST), evolve(storage, FIRST), evolve(storage, OTHER)] == [1, 1, 2]
    (tmp_path / "shop.verb" / "dead-letters").mkdir()
    assert evolve(storage, FIRST) == 3
    assert kept_schemas(storage, "shop.verb", "right") is None
    with_state(tmp_path)
    kept = kept_schemas(storage, "shop.verb", "right")
    assert kept is not None
    assert kept.current == FIRST
    with pytest.raises(StateConflictError, match="'rate' cannot become float64"):
        evolve(storage, OTHER)


def following(storage: Storage, schema: pa.Schema, place: str = "right") -> Schemas:
    return next_schemas(storage, "shop.verb", place, schema, {}, ())


def test_the_next_schema_is_not_kept_before_it_is_said_so(storage: Storage, tmp_path: Path) -> None:
    first = following(storage, FIRST)
    assert list(tmp_path.rglob("*")) == []
    keep_schemas(storage, "shop.verb", {"right": first})
    with_state(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert following(storage, WIDER).number == 2
    with pytest.raises(StateConflictError):
        following(storage, OTHER)
    assert sorted(tmp_path.rglob("*")) == before


def test_many_keep_the_same_at_once_and_again(storage: Storage, tmp_path: Path) -> None:
    schemas = {place: following(storage, FIRST, place) for place in ("left", "right")}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: keep_schemas(storage, "shop.verb", schemas), range(32)))
    with_state(tmp_path)
    keep_schemas(storage, "shop.verb", schemas)
    assert kept_schemas(storage, "shop.verb", "left") == schemas["left"]
    assert sorted(path.name for path in (tmp_path / "shop.verb").glob("*schema*")) == [
        "left-schema-1.json",
        "right-schema-1.json",
    ]


def test_of_queries_with_different_schemas_built_before_one_has_run_the_first_to_run_goes_on(
    storage: Storage, tmp_path: Path
) -> None:
    for number, others in enumerate([(FIRST, WIDER), (WIDER.append(pa.field("a", pa.int8())), WIDER)], 1):
        one, other = (following(storage, schema) for schema in others)
        keep_schemas(storage, "shop.verb", {"right": one})
        with_state(tmp_path) if number == 1 else None
        before = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
        with pytest.raises(StateConflictError, match=rf"right-schema-{other.number}.json: .*; build the query again"):
            keep_schemas(storage, "shop.verb", {"left": following(storage, FIRST, "left"), "right": other})
        assert {path: path.read_bytes() for path in tmp_path.rglob("*.json")} == before
        keep_schemas(storage, "shop.verb", {"right": one})
    evolve(storage, WIDER)
    kept = kept_schemas(storage, "shop.verb", "right")
    assert kept is not None
    assert kept.current == WIDER


def test_a_flip_in_any_bit_of_a_schemas_file_is_found(storage: Storage, tmp_path: Path) -> None:
    evolve(storage, WIDER)
    with_state(tmp_path)
    (path,) = (tmp_path / "shop.verb").glob("*.json")
    original = path.read_bytes()
    for bit in range(len(original) * 8):
        damaged = bytearray(original)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(CorruptFileError, match=f"{path.name} is damaged, .*; put an undamaged copy back"):
            kept_schemas(storage, "shop.verb", "right")
    path.write_bytes(original)
    kept = kept_schemas(storage, "shop.verb", "right")
    assert kept is not None
    assert kept.current == WIDER
