"""The schemas of packed rows are kept beside the state, one file a number."""

from pathlib import Path

import pyarrow as pa
import pytest

from millpond.errors import CorruptFileError, StateConflictError
from millpond.stores.durability.schema_log import evolve_schemas, kept_schemas
from millpond.stores.durability.storage import Storage

FIRST = pa.schema([]).append(pa.field("rate", pa.string()))
OTHER = pa.schema([]).append(pa.field("rate", pa.float64()))
WIDER = FIRST.append(pa.field("note", pa.string()))


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.from_uri(tmp_path)


def evolve(storage: Storage, schema: pa.Schema) -> int:
    return evolve_schemas(storage, "shop.verb", "right", schema, {}, ()).number


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
    assert evolve_schemas(storage, "shop.verb", "right-key", OTHER, {}, ()).number == 1
    kept = kept_schemas(storage, "shop.verb", "right")
    assert kept is not None
    assert kept.current == FIRST


def test_as_long_as_no_task_has_written_a_row_a_schema_may_become_any_other(storage: Storage, tmp_path: Path) -> None:
    assert [evolve(storage, FIRST), evolve(storage, OTHER)] == [1, 1]
    (tmp_path / "shop.verb" / "dead-letters").mkdir()
    assert evolve(storage, FIRST) == 1
    with_state(tmp_path)
    with pytest.raises(StateConflictError, match="'rate' cannot become float64"):
        evolve(storage, OTHER)


def test_a_flip_in_any_bit_of_a_schemas_file_is_found(storage: Storage, tmp_path: Path) -> None:
    evolve(storage, WIDER)
    with_state(tmp_path)
    (path,) = (tmp_path / "shop.verb").glob("*.json")
    original = path.read_bytes()
    for bit in range(len(original) * 8):
        damaged = bytearray(original)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(CorruptFileError, match=path.name):
            kept_schemas(storage, "shop.verb", "right")
