"""Generations of a query's state: which one a checkpoint stands in, and with which manifests its tasks go on."""

from dataclasses import replace
from pathlib import Path

import pytest

from millpond.errors import ConfigurationError, FormatError, StateConflictError
from millpond.stores.durability import Manifest, Storage, claim
from millpond.stores.durability.storage.durable_file import DurableFile, FileKind, new_commit_id
from millpond.stores.evolution.history import History
from millpond.stores.evolution.record import EvolutionRecord, Previous, commits_of, generation_fingerprint
from millpond.stores.evolution.shape import Shape, StoreShape
from millpond.stores.specs.store_spec import StoreKind

SHAPE = Shape(2, (StoreShape(0, "counts", StoreKind.KEY_VALUE, "string", "int64", None, "string"),))
WIDER = replace(SHAPE, partitions=5)


def manifest(task: str, fingerprint: str, sequence: int = 1) -> Manifest:
    file = DurableFile(FileKind.SNAPSHOT, sequence, new_commit_id(), 1, 100, 1)
    return replace(Manifest.empty("app", task, fingerprint), snapshot=file)


OLD = [manifest("0_0", "t/2"), manifest("0_1", "t/2")]
WIDER_PRINT = generation_fingerprint("t/5", 1, "out")
BASES = {f"0_{partition}": manifest(f"0_{partition}", WIDER_PRINT) for partition in range(4)}
RECORD = EvolutionRecord(1, WIDER_PRINT, WIDER, 10, Previous(0, "t/2", SHAPE), commits_of(OLD), BASES)
FIRST = EvolutionRecord(0, "t/2", SHAPE)


def history(storage: Storage) -> History:
    return History.of(storage, "app", "out")


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.from_uri(tmp_path)


@pytest.fixture
def evolved(storage: Storage) -> History:
    return history(storage).begun("t/2", SHAPE).keep(RECORD)


def test_a_task_goes_on_with_its_own_manifest_or_begins_with_what_was_made_of_the_old_ones() -> None:
    mine = manifest("0_3", WIDER_PRINT, 7)
    assert RECORD.start_of("0_3", mine, 12) is mine
    assert RECORD.start_of("0_3", OLD[1], 11) == BASES["0_3"]
    assert RECORD.start_of("0_3", None, 11) == BASES["0_3"]
    assert RECORD.start_of("0_4", None, 11) is None


@pytest.mark.parametrize(
    ("found", "next_batch"),
    [(manifest("0_1", "t/2", 9), 11), (OLD[1], 10), (None, 10), (manifest("0_1", "t/5#2@out"), 11)],
    ids=["another commit", "an earlier micro-batch", "an earlier micro-batch, empty", "a later generation"],
)
def test_a_checkpoint_that_stands_elsewhere_is_refused(found: Manifest | None, next_batch: int) -> None:
    with pytest.raises(StateConflictError, match=r"micro-batch 10, generation 1.*evolution=Evolution"):
        RECORD.start_of("0_1", found, next_batch)


def test_the_beginning_takes_its_own_manifests_and_no_others() -> None:
    assert FIRST.start_of("0_0", None, 0) is None
    assert FIRST.start_of("0_0", OLD[0], 3) is OLD[0]
    with pytest.raises(StateConflictError):
        FIRST.start_of("0_0", BASES["0_0"], 3)


def test_a_record_that_is_read_again_is_not_parsed_again(storage: Storage, evolved: History) -> None:
    first, second = history(storage), history(storage)
    assert first.records == evolved.records
    assert all(one is other for one, other in zip(first.records, second.records, strict=True))


def test_a_record_is_read_back_as_it_was_written_and_any_flipped_bit_is_found() -> None:
    text = RECORD.to_json()
    assert EvolutionRecord.from_json(text) == RECORD
    data = text.encode()
    for position in range(0, len(data), 7):
        flipped = bytearray(data)
        flipped[position] ^= 1
        with pytest.raises(FormatError):
            EvolutionRecord.from_json(bytes(flipped).decode(errors="replace"))
    with pytest.raises(FormatError, match="version 4, but this release of Millpond knows versions 1 to 3"):
        EvolutionRecord.from_json(text.replace('{"evolution":1', '{"evolution":4', 1))


def test_a_query_begins_once_and_goes_by_its_newest_record(storage: Storage, evolved: History) -> None:
    again = history(storage)
    assert again == evolved
    assert again.begun("t/5", WIDER) == again
    assert again.newest == RECORD
    assert (again.evolved, again.partitions, again.next_generation) == (True, 5, 2)
    with pytest.raises(StateConflictError, match="by another job at the same time"):
        again.keep(replace(RECORD, batch=11))


def test_state_of_a_release_without_records_begins_with_what_its_claim_tells(storage: Storage) -> None:
    claim(storage, "app", "t/200")
    assert history(storage).partitions == 200
    same_topology = history(storage).begun("t/5", WIDER).newest
    assert same_topology == EvolutionRecord(0, "t/200", replace(SHAPE, partitions=200))
    another = history(storage).begun("other/5", WIDER).newest
    assert another == EvolutionRecord(0, "t/200", Shape(200, ()))
    assert history(storage).records == ()
    history(storage).begun("t/200", replace(SHAPE, partitions=200))
    assert history(storage).newest == same_topology


def test_what_the_beginning_was_is_remembered_even_if_it_had_no_record(storage: Storage) -> None:
    claim(storage, "app", "t/2")
    history(storage).begun("t/5", WIDER).keep(RECORD)
    assert history(storage).records == (FIRST, RECORD)


@pytest.mark.parametrize(
    ("found", "batch", "generation"),
    [
        (OLD, 10, 1),
        (OLD, 12, 1),
        ([OLD[0], manifest("0_3", WIDER_PRINT, 2)], 12, 1),
        (OLD, 9, 0),
        ([manifest("0_0", "t/2", 5)], 12, 0),
        ([], None, 0),
    ],
    ids=["just carried", "no rows since", "one task since", "set back", "an older release in between", "begun anew"],
)
def test_a_checkpoint_stands_in_the_newest_generation_that_its_manifests_allow(
    evolved: History, found: list[Manifest], batch: int | None, generation: int
) -> None:
    standing = evolved.standing(found, batch)
    assert standing.record.generation == generation
    own = {one.task_id: one for one in found if one.fingerprint == standing.record.fingerprint}
    assert standing.manifests == (BASES | own if generation else own)


def test_a_checkpoint_of_another_query_and_one_of_two_sinks_are_refused(storage: Storage, evolved: History) -> None:
    with pytest.raises(StateConflictError, match="give the checkpointLocation of this query"):
        evolved.standing([manifest("0_0", "u/2")], 3)
    other = manifest("0_1", "t/2")
    with pytest.raises(
        ConfigurationError, match=r"several sinks of .*; go on with .* as they were, or begin anew, with"
    ):
        evolved.standing([*OLD, other], 3)
    assert [FIRST.start_of(one.task_id, one, 4) for one in (*OLD, other)] == [*OLD, other]
    for sink in ("out", "beside"):
        anew = History.of(storage, f"another.{sink}", sink).begun("t/5", WIDER)
        assert anew.standing([], None).manifests == {}
        mine = replace(manifest("0_4", "t/5"), application_id=f"another.{sink}")
        assert anew.standing([mine], 0).manifests == {"0_4": mine}


def test_state_that_was_carried_over_is_claimed_by_its_record_and_keeps_older_releases_out(
    storage: Storage, evolved: History
) -> None:
    claim(storage, "app", RECORD.fingerprint)
    evolved.keep_out_older_releases()
    evolved.keep_out_older_releases()
    claims = [file.path for file in storage.list("app") if "/topology-" in file.path]
    assert len(claims) == 2
    claim(storage, "app", "t/2")
    with pytest.raises(StateConflictError, match="another topology"):
        claim(storage, "app", "t/5")


def test_state_is_the_querys_own_unless_records_say_whose_it_is(storage: Storage) -> None:
    claim(storage, "app", "t/2")
    unknown = history(storage).begun("u/2", WIDER)
    assert not unknown.may_have_tasks()
    storage.put("app/0_1/lineage/file", b"")
    assert unknown.may_have_tasks()
    History.of(storage, "app", "another").begun("t/2", SHAPE)
    assert not unknown.may_have_tasks()
    storage.put("app/7_0/lineage/file", b"")
    assert unknown.may_have_tasks()
    assert history(storage).begun("t/2", SHAPE).may_have_tasks()


def test_a_query_without_tasks_of_its_own_may_begin_beside_others(storage: Storage) -> None:
    begun = history(storage).begun("t/2", SHAPE)
    assert not begun.may_have_tasks()
    storage.put("app/7_0/lineage/file", b"")
    assert not begun.may_have_tasks()
