"""A loss of power at any moment of any commit: every manifest that was kept still opens, with all that it names.

Manifests are kept only after ``commit`` has returned them. Local copies are gone: those of another boot
are not trusted (``tests/durability/test_damage.py``).
"""

import shutil
from pathlib import Path

import pyarrow as pa

from millpond.stores.durability import Manifest, Storage, TaskState
from millpond.stores.durability.manifests.schema_log import kept_schemas
from tests.crash.durable_task import commit, content, expected, task
from tests.crash.power import OUTCOMES, Disk
from tests.durability.keeping_schemas import evolve_schemas

BATCHES = 9
"""Enough for snapshots, deltas over them, and garbage that is deleted."""
RETAINED = 2
"""The policy of the task retains the last manifest and the one before."""


class Keeper:
    """Commits one batch after the other, and cuts the power at every sync of them."""

    def __init__(self, directory: Path) -> None:
        (directory / "disk").mkdir(parents=True)
        self.disk = Disk(directory / "disk")
        self.kept: list[Manifest] = []
        self.cuts = 0
        self._after = directory / "after"

    def run(self) -> None:
        with self.disk.watched(self.cut_power):
            for number in range(1, BATCHES + 1):
                # Every batch is run by a process of its own, as it were: it knows nothing of earlier syncs.
                with task(self.disk.root, "memory", local="../local") as state:
                    self.kept.append(commit(state, self.kept[-1] if self.kept else None, number))
                self.cut_power(RETAINED)

    def cut_power(self, manifests: int = 1) -> None:
        """Go on after a loss of power from each of the last manifests, whatever it has left."""
        self.cuts += 1
        for name, survives in OUTCOMES.items():
            self.disk.after_power_cut(self._after, survives)
            for number in range(max(0, len(self.kept) - manifests), len(self.kept)):
                with task(self._after, "memory") as state:
                    self._go_on(state, number, name)
            shutil.rmtree(self._after)

    def _go_on(self, state: TaskState, number: int, outcome: str) -> None:
        where = f"cut {self.cuts}, {outcome}, manifest {number + 1}"
        assert content(state, self.kept[number]) == expected(number + 1), where
        again = commit(state, self.kept[number], number + 2)
        assert content(state, again) == expected(number + 2), where


def test_a_loss_of_power_at_any_sync_of_any_commit_loses_nothing_that_was_kept(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path)
    keeper.run()
    assert keeper.cuts > 3 * BATCHES


def test_a_loss_of_power_leaves_the_schemas_before_or_those_after(tmp_path: Path) -> None:
    disk, after = Disk(tmp_path / "disk"), tmp_path / "after"
    storage = Storage.from_uri(disk.root / "state")
    columns = [pa.field(name, pa.int64()) for name in "abc"]
    seen = set()

    def cut_power() -> None:
        for survives in OUTCOMES.values():
            disk.after_power_cut(after, survives)
            (after / "state" / "app" / "0_0").mkdir(
                parents=True, exist_ok=True
            )  # once there is state, schemas may not begin anew
            found = kept_schemas(Storage.from_uri(after / "state"), "app", "in")
            seen.add(0 if found is None else found.number)
            shutil.rmtree(after)

    (disk.root / "state" / "app" / "0_0").mkdir(parents=True)
    with disk.watched(cut_power):
        for number in (1, 2, 3):
            seen.clear()
            kept = evolve_schemas(storage, "app", "in", pa.schema(columns[:number]))
            assert kept.number == number
            assert seen <= {number - 1, number}
            seen.clear()
            cut_power()
            assert seen == {number}
