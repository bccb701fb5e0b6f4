"""The remains of verbs that are gone, in a checkpoint and records: nobody reads them, and an erasure reaches them."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from uuid import uuid4

import pytest

from millpond.adapters.backup.state_copy import copy_state
from millpond.adapters.edit import erase
from millpond.adapters.inspect import StateInspector
from millpond.stores.cleaning.named import Named, broken_tasks
from millpond.stores.durability.parquet.file_faults import broken_file
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.evolution.current_manifests import current_manifests
from millpond.stores.evolution.history import History
from tests.evolution.verb_drafts import TABLES
from tests.evolution.verb_job import OWNER
from tests.evolution.verb_life import Arrival, VerbLife

KEYS = [f"customer-{number}" for number in range(4)]
ROWS = [Arrival(key, 0, number) for number, key in enumerate(KEYS)]
MANY = 12
"""So many micro-batches later, the files of the first ones are deleted."""


def of_fewer_groups(life: VerbLife) -> None:
    """Leave last groups of tasks that never run again, of which the checkpoint has an earlier generation."""
    life.begin(["latest", "totals"], 3, "memory")
    life.batch(ROWS, False)
    life.repartition(2, [])
    for _ in range(MANY):
        life.batch(ROWS, False)
    life.replace_verb(0, "totals", [])


def of_rows_of_another(life: VerbLife) -> None:
    """Have a verb that knows what another one had when it came, and that has had nothing to do since."""
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


@pytest.mark.parametrize("back", [0, 2])
def test_a_verb_that_had_nothing_to_do_since_stays_wherever_the_checkpoint_is_set_back(back: int) -> None:
    """Its generation knows what is left there, and others have begun since, which is what one that is gone looks like.

    Rows of the right side come to the join alone.
    """
    with VerbLife() as life:
        life.begin(["asof", "latest"], 1, "memory")
        life.batch(ROWS, False)
        life.repartition(1, [])
        life.batch(ROWS, False)
        life.batch(ROWS, True)
        life.repartition(1, [])
        life.batch(ROWS, True)
        life.add_verb(2, "totals", [])
        life.batch(ROWS, True)
        life.set_back(back, [])
        check_readers(life)
        life.check()
        life.batch(ROWS, False)
        life.set_back(back, [])
        check_readers(life)
        life.check()


def test_whoever_looks_for_verbs_that_are_gone_reads_each_history_as_often_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also right after all of them were carried over to another shape, when each may be one that is gone."""
    read: Counter[str] = Counter()
    of = History.of

    def counted(storage: Storage, application_id: str, sink: str) -> History:
        read[application_id] += 1
        return of(storage, application_id, sink)

    with VerbLife() as life:
        life.begin(["latest"] * 4, 1, "memory")
        life.batch(ROWS, False)
        life.repartition(1, [])
        held, batch = list(life.job.checkpoint.values()), life.job.batch
        monkeypatch.setattr(History, "of", counted)
        assert len(current_manifests(life.job.storage, held, batch)) == 2 * 4
        assert set(read.values()) <= {2, 3}
        read.clear()
        current = current_manifests(life.job.storage, held, batch)
        assert batch is not None
        read.clear()
        copy_state(life.job.storage, Storage.from_uri(life.directory / "copy"), [OWNER], current, batch)
        assert set(read.values()) == {1}


def check_readers(life: VerbLife) -> None:
    """Check that readers of state find that of the verbs that run, and all of its files."""
    storage, batch = life.job.storage, life.job.batch
    assert batch is not None
    listed = {one.application_id for one in life.job.inspector(storage).stores()}
    assert listed <= {f"{OWNER}.{one.name}" for one in life.drafts}
    held = list(life.job.checkpoint.values())
    current = current_manifests(storage, held, batch)
    assert [one for one in current if broken_file(storage, one)] == []
    assert broken_tasks(storage, [Named("checkpoint", [held], batch)]) == {}
    copied = copy_state(storage, Storage.from_uri(life.directory / "copy" / uuid4().hex), [OWNER], current, batch)
    assert {one.path(file) for one in current for file in one.files} <= copied.keys()


def check_erased(key: str, inspector: StateInspector) -> None:
    report = erase(inspector, [[key]], by="ann")
    assert report.edits
    assert report.traces == ()
