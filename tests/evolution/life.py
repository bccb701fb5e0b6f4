"""The life of a job, whatever happens in it: each micro-batch puts out and each store holds what the oracle says.

That knows nothing but the records of committed micro-batches. Where copies stay plain while timestamps are known, they
show none (-1).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from millpond.adapters.edit import StateEditor, erase
from millpond.adapters.inspect import StateInspector
from millpond.errors import FormatError
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import TaskState, collect_garbage
from millpond.stores.durability.checking.inspection import read_store
from millpond.stores.durability.checking.verification import verify
from millpond.stores.durability.copies.upgrade_mode import UpgradeMode
from millpond.stores.encoding.partitions import partition_of
from millpond.stores.encoding.serdes import STRING
from millpond.stores.evolution.current_manifests import current_manifests
from millpond.stores.evolution.matching import Declared
from millpond.stores.evolution.seeding import Entry as Seed
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.windows.windowed import Windowed
from tests.evolution.job import APPLICATION, Job, Running
from tests.evolution.oracle import UNKNOWN, Entry, Oracle, Record, comparable, shown
from tests.evolution.process import POLICY, RETAINED, Checkpoint, DeathError
from tests.evolution.seeds import entries_of
from tests.evolution.story import BACKENDS, MOST, Story, other
from tests.evolution.topologies import OWN, STORES, Variant

_WAYS: Final = {None: "offline", UpgradeMode.IN_PLACE: "in place", UpgradeMode.ROLL_OVER: "by roll over"}
Batches: TypeAlias = Sequence[tuple[list[Record], list[int]]]
"""The records of micro-batches, and at which step each attempt at one dies."""


class Kept(NamedTuple):
    """A committed micro-batch, with what is known of it.

    Attributes:
        variant: of the topology that has gone on from it.
        written: of the topology that wrote it.
    """

    batch: int | None
    checkpoint: Checkpoint
    variant: Variant
    written: Variant
    oracle: Oracle


class Life(Story):
    """The life of one job, step by step.

    Attributes:
        job: the job.
    """

    job: Job

    def __init__(self) -> None:
        super().__init__()
        self.job = Job(self.directory)
        self.oracle = Oracle()
        self.kept: list[Kept] = []

    def look(self) -> None:
        (self.check_durable, self.check)[self.job.runs % 2]()

    @property
    def running(self) -> Running:
        assert self.job.running is not None
        return self.job.running

    @property
    def variant(self) -> Variant:
        return self.running.variant

    def begin(
        self,
        stores: set[str],
        partitions: int,
        moved: bool,
        stamped: bool,
        versioned: bool,
        backend: str,
        exclusive: bool,
        history: list[Record] | None,
        deaths: Sequence[int],
    ) -> None:
        """Begin with nothing, or with a backfill of ``history``."""
        variant = Variant((), partitions, moved, stamped, versioned=versioned).with_stores(
            {what: what for what in stores}
        )
        running = Running(variant, backend, exclusive=exclusive)
        self.oracle.evolve(None, variant)
        if history is not None:
            self.backfill(running, history, deaths)
        self.job.start(running)
        self.keep()

    def backfill(self, running: Running, records: list[Record], deaths: Sequence[int]) -> None:
        """Run before the first micro-batch, again as long as the process dies; the run is done only once."""
        expected = self.oracle.process(records, running.variant.stamped)
        tables = "kinds" in running.variant.stores
        for death in [*deaths, None, None]:
            try:
                told = self.job.backfill(running, records, death=death)
                assert comparable(told, tables=tables) == comparable(expected, tables=tables)
            except DeathError:
                self.note("killed in a backfill")
        self.note("a backfill")

    def keep(self) -> None:
        now = Kept(self.job.batch, dict(self.job.checkpoint), self.variant, self.variant, self.oracle.copy())
        self.kept = [*self.kept[-RETAINED:], now]

    def keep_restarted(self) -> None:
        """Keep the last micro-batch again, from which the topology of today goes on."""
        if self.kept:
            self.kept[-1] = self.kept[-1]._replace(variant=self.variant, oracle=self.oracle.copy())

    def batch(self, records: list[Record], deaths: Sequence[int] = ()) -> None:
        """Run a micro-batch, which is repeated by a restarted process as long as that dies."""
        expected = self.oracle.process(records, self.variant.stamped)
        for death in [*deaths, None]:
            try:
                told = self.job.run(records, death=death)
                break
            except DeathError:
                self.note("killed in a batch")
                self.start(self.running)
        tables = "kinds" in self.variant.stores
        assert comparable(told, tables=tables) == comparable(expected, tables=tables)
        if any(manifest.prepared for manifest in self.job.checkpoint.values()):
            self.note("prepared")
        self.keep()

    def start(
        self,
        running: Running,
        declared: Declared | None = None,
        seeds: Mapping[str, Sequence[Seed]] | None = None,
        deaths: Sequence[int] = (),
    ) -> None:
        """Restart, again and again if the driver dies on the way."""
        for death in [*deaths, None]:
            try:
                self.job.start(running, declared, seeds, death=death)
                break
            except DeathError:
                self.note("killed while carrying over")

    def evolve(
        self,
        variant: Variant,
        deaths: list[int],
        *,
        since: Variant | None = None,
        seeds: Mapping[str, Sequence[Seed]] | None = None,
    ) -> None:
        """Restart with another topology, and declare what differs from the one that ran until then."""
        before = since or self.variant
        old, new = before.stores, variant.stores
        renamed = {old[what]: new[what] for what in old.keys() & new.keys() if old[what] != new[what]}
        dropped = [old[what] for what in old.keys() - new.keys()]
        converts = before.table is not variant.table and "versions" in old.keys() & new.keys()
        converted = {new["versions"]: variant.table.value} if converts else {}
        declared = Declared(renamed, dropped, converted, accept_loss=True)
        stages = self.job.stages
        self.start(replace(self.running, variant=variant), declared, seeds, deaths)
        self.oracle.evolve(before, variant)
        for what, entries in (seeds or {}).items():
            self.oracle.sow(what, entries, stamped=variant.stamped)
        if self.job.stages != stages:
            self.note("at a new checkpoint")
            self.kept = []
            self.keep()
        else:
            self.keep_restarted()

    def repartition(self, more: int, deaths: list[int]) -> None:
        """Go on with any other number of partitions; beyond the most, begin anew at one."""
        partitions = (self.variant.partitions - 1 + more) % MOST + 1
        grows = partitions > self.variant.partitions
        self.evolve(replace(self.variant, partitions=partitions), deaths)
        self.note("more partitions" if grows else "fewer partitions")

    def add_store(self, which: int, records: list[Record], deaths: list[int]) -> None:
        """Add a store that begins empty, or with seeds that are made of some records."""
        stores = self.variant.stores
        if len(stores) == MOST:
            return
        what = _chosen([one for one in STORES if one not in stores], which)
        entries = entries_of(what, records, versioned=what == "versions" and self.variant.versioned)
        seeds = {what: entries} if entries else {}
        self.evolve(self.variant.with_stores({**stores, what: what}), deaths, seeds=seeds)
        self.note("a store came with seeds" if seeds else "a store came empty")

    def drop_store(self, which: int, deaths: list[int]) -> None:
        stores = self.variant.stores
        what = _chosen(sorted(stores), which)
        left = {one: name for one, name in stores.items() if one != what}
        if not left.keys() - {"kinds"}:
            return
        self.evolve(self.variant.with_stores(left), deaths)
        self.note("a store went")

    def rename_store(self, which: int, deaths: list[int]) -> None:
        stores = self.variant.stores
        what = _chosen(sorted(stores), which)
        name = what if stores[what] != what else f"{what}-too"
        self.evolve(self.variant.with_stores({**stores, what: name}), deaths)
        self.note("a store has another name")

    def convert_store(self, deaths: list[int]) -> None:
        """Make the table of records versioned, or no longer."""
        if "versions" in self.variant.stores:
            self.evolve(replace(self.variant, versioned=not self.variant.versioned), deaths)
            self.note("a store is of another kind")

    def move_stores(self, deaths: list[int]) -> None:
        """Repartition records before they come to the stores, or no more."""
        self.evolve(replace(self.variant, moved=not self.variant.moved), deaths)

    def change_format(self, flips: bool, checksums: bool, upgrade_mode: UpgradeMode | None) -> None:
        """Upgrade what is plain and downgrade what is timestamped, or change the checksums alone."""
        self.restart_in(self.variant.stamped != flips, checksums, upgrade_mode)

    def restart_in(self, stamped: bool, checksums: bool, upgrade_mode: UpgradeMode | None) -> None:
        """Restart with local copies in a format, also in the middle of another change of format."""
        before, upgraded = self.variant, self.running.upgrade_mode is not None
        after = replace(before, stamped=stamped, checksums=checksums)
        self.start(replace(self.running, variant=after, upgrade_mode=upgrade_mode))
        self.oracle.evolve(before, after)
        self.note(
            f"{'downgrade' if before.stamped and not stamped else 'upgrade'} {_WAYS[upgrade_mode]}"
            if stamped != before.stamped
            else "other checksums"
        )
        if upgrade_mode is None and after != before:
            self.note("another format offline")
        if before.stamped and not stamped:
            self.note("a downgrade")
        if upgraded and before.stamped and not stamped:
            self.note("downgrade in the middle of an upgrade")
        if not stamped and not self.opens_plain():
            assert self.oracle.knows_times
        self.keep_restarted()

    def change_format_beside(self, stamped: bool, upgrade_mode: UpgradeMode) -> None:
        """Upgrade, or change the checksums, while the copies in the old format stay in use."""
        checksums = self.variant.checksums if stamped and not self.variant.stamped else not self.variant.checksums
        self.restart_in(stamped or self.variant.stamped, checksums, upgrade_mode)

    def upgrade_in_place(self, stamped: bool, batches: Batches) -> None:
        """Prepare a new format while micro-batches go on; a restart then uses it if it is complete."""
        self.change_format_beside(stamped, UpgradeMode.IN_PLACE)
        for records, deaths in batches:
            self.batch(records, deaths)
        self.check()
        self.job.stop()
        prepared = list(self.job.local.rglob(".*.prepared"))
        self.restart(None, self.running.exclusive)
        self.check()
        if not all(path.exists() for path in prepared):
            self.note("changed over to what was prepared")

    def roll_over(self, stamped: bool, batches: Batches) -> None:
        """Warm copies in a new format elsewhere while micro-batches go on; a restart then uses them."""
        self.change_format_beside(stamped, UpgradeMode.ROLL_OVER)
        warmed = self.directory / f"local-{self.job.runs}"
        for records, deaths in batches:
            self.batch(records, deaths)
            self.job.warm(warmed)
        self.check()
        if warmed.exists():
            self.note("changed over to what was warmed")
        self.job.move_to(warmed)
        self.restart(None, self.running.exclusive)
        self.check()

    def opens_plain(self) -> bool:
        """Return whether no copy is refused because it knows timestamps; else all are deleted, as the error says."""
        try:
            for part, partition in self.job.tasks:
                self.opened(self.job.state(part, partition), f"{part.index}_{partition}")
        except FormatError:
            self.note("a downgrade was refused")
            self.job.lose_local_copies()
            return False
        return True

    def restart(self, upgrade_mode: UpgradeMode | None, exclusive: bool) -> None:
        """Restart with the same topology, with or without ``upgrade_from``."""
        self.start(replace(self.running, upgrade_mode=upgrade_mode, exclusive=exclusive))

    def switch_backend(self, which: int) -> None:
        backend = other(BACKENDS, self.running.backend, which)
        self.start(replace(self.running, backend=backend))
        self.note(f"switch to {backend}")
        if not self.variant.stamped and not self.opens_plain():
            self.note("a copy of before a downgrade was refused")

    def edit_store(self, which: int, undone: bool, deaths: list[int]) -> None:
        """Delete a key from a store while the job is stopped, and perhaps bring it back."""
        rows = [(what, key) for what in sorted(self.variant.stores) for key in self.oracle.keys(what)]
        if not self.job.checkpoint or not rows:
            return
        what, key = rows[which % len(rows)]
        before = self.oracle.copy()

        def delete(inspector: StateInspector) -> None:
            with StateEditor(inspector, "ann", "") as editor:
                editor.delete(self.variant.stores[what], key)
                editor.commit()

        self.edit(delete, deaths)
        self.oracle.forget(key, what)
        self.note("a row was deleted")
        self.check_durable()
        if undone:
            self.edit(_undo, [])
            self.oracle = before
            self.note("a row was brought back")
        self.keep_restarted()

    def erase_key(self, key: str, deaths: list[int]) -> None:
        """Erase a key from all stores while the job is stopped; nobody can go back then."""
        if not self.job.checkpoint:
            return
        self.edit(partial(_erase, key), deaths)
        for what in self.variant.stores:
            self.oracle.forget(key, what)
        self.note("a key was erased")
        self.kept = []

    def edit(self, edit: Callable[[StateInspector], None], deaths: Sequence[int]) -> None:
        """Edit the state, again and again if the process dies on the way."""
        for death in [*deaths, None]:
            try:
                self.job.edit(edit, death=death)
                return
            except DeathError:
                self.note("killed in an edit")

    def set_back(self, which: int, deaths: list[int]) -> None:
        """Go back to an earlier micro-batch, with the topology of today."""
        if len(self.kept) < 2:
            return
        del self.kept[-1 - which % (len(self.kept) - 1) :]
        at, today = self.kept[-1], self.variant
        self.job.batch, self.job.checkpoint, self.oracle = at.batch, dict(at.checkpoint), at.oracle.copy()
        self.evolve(today, deaths, since=at.variant)

    def collect_garbage(self) -> None:
        for manifest in self.job.manifests().values():
            collect_garbage(self.job.storage, manifest, POLICY, self.job.run_id)

    def verify(self) -> None:
        """Check that each micro-batch to go back to is whole, and each copy; read rows if they are of today's kinds."""
        storage = self.job.storage
        retained = [
            manifest
            for kept in self.kept
            for manifest in current_manifests(storage, list(kept.checkpoint.values()), kept.batch)
        ]
        manifests = [*retained, *self.job.manifests().values()]
        specs = {spec.name: spec for part, _ in self.job.tasks for spec in self.job.specs(part)}
        if {kept.written.table for kept in self.kept if kept.checkpoint} - {self.variant.table}:
            specs.pop(self.variant.stores.get("versions", ""), None)
        self.job.stop()
        report = verify(
            self.job.storage,
            lambda: manifests,
            specs={APPLICATION: specs},
            local_dirs=[self.job.local],
            policy=POLICY,
            workers=1,
        )
        assert report.sound, "\n".join(report.lines())

    def check_durable(self) -> None:
        """Check what other jobs and the command line read."""
        manifests = self.job.manifests()
        found: dict[str, dict[Any, Any]] = {name: {} for name in self.variant.stores.values()}
        for part, partition in self.job.tasks:
            manifest = manifests.get(f"{part.index}_{partition}")
            for spec in self.job.specs(part) if manifest is not None else ():
                assert manifest is not None
                store = read_store(self.job.storage, manifest, spec)
                found[spec.name] |= self.entries(spec, store, partition)
        for what, name in self.variant.stores.items():
            assert not shown(found[name], self.oracle.content(what)), what

    def check(self) -> None:
        """Check what the tasks find in their stores."""
        found: dict[str, dict[Any, Any]] = {name: {} for name in self.variant.stores.values()}
        plain: set[str] = set()
        for part, partition in self.job.tasks:
            state, task = self.job.state(part, partition), f"{part.index}_{partition}"
            stores = state.open(self.job.manifests().get(task))
            try:
                for spec in self.job.specs(part):
                    stores[spec.name].check()
                    found[spec.name] |= self.entries(spec, stores[spec.name], partition)
                    if not self.in_new_format(task, spec):
                        plain.add(spec.name)
            finally:
                state.rollback()
        for what, name in self.variant.stores.items():
            expected = self.oracle.content(what)
            if name in plain and what in OWN:
                expected = {key: Entry(entry.value, entry.times | {UNKNOWN}) for key, entry in expected.items()}
            assert not shown(found[name], expected), what

    def in_new_format(self, task: str, spec: StoreSpec) -> bool:
        """Return whether the copy in use is of the format that the spec asks for."""
        backend = self.running.backend
        directory = self.job.local / APPLICATION / task / backend
        return not supplier(backend).persistent or (directory / spec.directory_name).is_dir()

    def entries(self, spec: StoreSpec, store: Any, partition: int) -> dict[Any, tuple[int, int | None]]:
        """Return what a store shows, with each key in the partition where its records come."""
        found: dict[Any, tuple[int, int | None]] = {}
        for key, value in store.fetch_keys() if spec.kind.in_segments else store.scan():
            plain = key.key if isinstance(key, Windowed) else key
            assert partition_of(STRING.serialize(plain), self.variant.partitions) == partition
            entry = tuple(key) if isinstance(key, Windowed) else key
            if spec.kind is StoreKind.VERSIONED:
                found[key, value.timestamp, value.valid_to] = value.value, value.timestamp
            else:
                found[entry] = (value.value, value.timestamp) if spec.kind.stamped else (value, None)
        return found

    def opened(self, state: TaskState, task: str) -> None:
        state.open(self.job.manifests().get(task))
        state.rollback()


def _undo(inspector: StateInspector) -> None:
    StateEditor(inspector, "bob", "").undo()


def _erase(key: str, inspector: StateInspector) -> None:
    erase(inspector, [key], by="ann")


def _chosen(options: Sequence[str], which: int) -> str:
    return options[which % len(options)]
