"""What a checkpoint and records still tell of verbs that are gone: nobody reads it, and an erasure reaches it."""

from collections.abc import Callable
from functools import partial

import pytest

from millpond.adapters.backup.state_copy import copy_state
from millpond.adapters.edit import erase
from millpond.adapters.inspect import StateInspector
from millpond.stores.cleaning.named import Named, broken_tasks
from millpond.stores.durability.parquet.file_faults import broken_file
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.evolution.history import current_manifests
from tests.evolution.verb_drafts import TABLES
from tests.evolution.verb_job import OWNER
from tests.evolution.verb_life import Arrival, VerbLife

KEYS = [f"customer-{number}" for number in range(4)]
ROWS = [Arrival(key, 0, number) for number, key in enumerate(KEYS)]
MANY = 12
"""So many micro-batches later, the files of the first ones are deleted."""


def of_fewer_groups(life: VerbLife) -> None:
    """The last groups of tasks never run again, so what the checkpoint has of them is of an earlier generation."""
    life.begin(["latest", "totals"], 3, "memory")
    life.batch(ROWS, False)
    life.repartition(2, [])
    for _ in range(MANY):
        life.batch(ROWS, False)
    life.replace_verb(0, "totals", [])


def of_rows_of_another(life: VerbLife) -> None:
    """It knows what another one had when it came, and that has had nothing to do since."""
    life.begin(["asof", "latest"], 1, "memory")
    life.batch(ROWS, False)
    life.rekey_verb(1, TABLES.index("latest"), (0, 0), False, False, [])
    life.batch(ROWS, False)
    life.add_verb(0, "totals", [])
    for _ in range(MANY):
        life.batch(ROWS, False)
    life.drop_verb(2, [])


@pytest.mark.parametrize("gone", [of_fewer_groups, of_rows_of_another])
@pytest.mark.parametrize("batches", [0, 1, MANY])
def test_nobody_reads_what_there_is_of_a_verb_that_is_gone_and_an_erasure_reaches_it(
    gone: Callable[[VerbLife], None], batches: int
) -> None:
    with VerbLife() as life:
        gone(life)
        life.batch(ROWS, False)
        for key in KEYS[:3]:
            check_readers(life)
            life.edit(partial(check_erased, key), [])
            life.told = {number: told.without(key) for number, told in life.told.items()}
            life.start(life.drafts)
            life.check()
            for _ in range(batches):
                life.batch(ROWS[3:], False)
        check_readers(life)
        life.check()


def check_readers(life: VerbLife) -> None:
    """Whoever reads state finds that of the verbs that run, and all of its files."""
    storage, batch = life.job.storage, life.job.batch
    assert batch is not None
    listed = {one.application_id for one in life.job.inspector(storage).stores()}
    assert listed <= {f"{OWNER}.{one.name}" for one in life.drafts}
    held = list(life.job.checkpoint.values())
    current = current_manifests(storage, held, batch)
    assert [one for one in current if broken_file(storage, one)] == []
    assert broken_tasks(storage, [Named("checkpoint", [held], batch)]) == {}
    copied = copy_state(storage, Storage.from_uri(life.directory / "copy" / str(batch)), [OWNER], current, batch)
    assert {one.path(file) for one in current for file in one.files} <= copied.keys()


def check_erased(key: str, inspector: StateInspector) -> None:
    report = erase(inspector, [[key]], by="ann")
    assert report.edits
    assert report.traces == ()
