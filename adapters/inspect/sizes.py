"""The size of a query's durable state: by task, by store, and for all micro-batches that one can go back to.

Rule of this module: it counts what manifests name. What none of them names is garbage, and is for
``millpond state repair``.
"""

from collections import Counter
from collections.abc import Collection, Iterable, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from millpond.adapters.inspect.state_inspector import StateInspector
from millpond.adapters.inspect.store_part import StorePart
from millpond.adapters.inspect.store_view import StoreView
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.parquet.reading import bytes_of_stores
from millpond.stores.durability.storage.storage import Storage


@dataclass(frozen=True)
class TaskSize:
    """The size of one task's state.

    Attributes:
        application_id: the application.
        task_id: the task.
        files: how many files make its state.
        size: their bytes.
        deltas: how many of them are deltas.
        rows: rows of all stores in them; a row that was changed after the snapshot counts again.
        stores: the bytes of each store's rows; what is missing to ``size`` are footers.
    """

    application_id: str
    task_id: str
    files: int
    size: int
    deltas: int
    rows: int
    stores: dict[str, int]


@dataclass(frozen=True)
class StateSize:
    """The size of a query's state after one micro-batch, and of all that retained micro-batches need.

    Attributes:
        batch: the micro-batch.
        tasks: by application and task.
        batches: how many micro-batches are retained.
        retained_files: how many files they need together, each counted once.
        retained_size: the bytes of these.
        shared_size: the bytes of those that more than one of them needs.
    """

    batch: int
    tasks: tuple[TaskSize, ...]
    batches: int
    retained_files: int
    retained_size: int
    shared_size: int

    @property
    def size(self) -> int:
        """The bytes of all files that make the state."""
        return sum(task.size for task in self.tasks)

    @property
    def stores(self) -> dict[str, int]:
        """The bytes of each store, over all tasks."""
        total: Counter[str] = Counter()
        for task in self.tasks:
            total.update(task.stores)
        return dict(sorted(total.items()))

    def to_dict(self) -> dict[str, Any]:
        """Return the same as JSON has it."""
        tasks = [{**vars(task)} for task in self.tasks]
        return {**vars(self), "tasks": tasks, "size": self.size, "stores": self.stores}


def state_size(inspector: StateInspector, batch: int | None = None) -> StateSize:
    """Return how much durable state a query has.

    Args:
        inspector: the state.
        batch: after which micro-batch; None for the last one.

    Raises:
        ConfigurationError: there is no such micro-batch, or no state of Millpond.
        MissingFileError, CorruptFileError: a file is gone or damaged.
        FormatError: something is of a later release, or in a form that cannot be read without Spark.
    """
    number = inspector.checkpoint.chosen(batch)
    batches = inspector.batches
    by_batch = {one: list(inspector.checkpoint.manifests(one)) for one in batches}
    goes_on = _standing(inspector, number)
    by_batch[batches[-1]] += goes_on if number == batches[-1] else _standing(inspector, batches[-1])
    with ThreadPoolExecutor(inspector.checkpoint.workers, "millpond-inspect") as pool:
        tasks = pool.map(lambda manifest: task_size(inspector.storage, manifest, {}), goes_on)
        found = sorted(tasks, key=lambda task: (task.application_id, task.task_id))
    sizes, uses = _files(by_batch.values())
    shared = sum(size for path, size in sizes.items() if uses[path] > 1)
    return StateSize(number, tuple(found), len(batches), len(sizes), sum(sizes.values()), shared)


def _standing(inspector: StateInspector, batch: int) -> list[Manifest]:
    """Return the manifests with which tasks go on; after state was carried over, the checkpoint has fewer."""
    queries = (query for query in inspector.queries(batch) if not query.left)
    found = (manifest for query in queries for manifest in query.manifests.values())
    return list({(manifest.directory, manifest.commit): manifest for manifest in found}.values())


def bytes_by_store(inspector: StateInspector, views: Sequence[StoreView]) -> list[int]:
    """Return how many bytes of durable files the rows of each store take, over its tasks.

    Raises what ``state_size`` raises.
    """
    manifests = {_version(part): part.manifest for view in views for part in view.parts}
    with ThreadPoolExecutor(inspector.checkpoint.workers, "millpond-inspect") as pool:
        sizes = pool.map(lambda manifest: task_size(inspector.storage, manifest, {}).stores, manifests.values())
        found = dict(zip(manifests, sizes, strict=True))
    return [sum(found[_version(part)].get(view.name, 0) for part in view.parts) for view in views]


def _version(part: StorePart) -> tuple[str, str]:
    return part.manifest.directory, part.manifest.commit


def task_size(storage: Storage, manifest: Manifest, known: MutableMapping[str, Counter[str]]) -> TaskSize:
    """Return the size of a task's state.

    Args:
        storage: the state directory.
        manifest: the version of the task's state.
        known: by path, the bytes that each store has of files that were read before; what is read is added. A durable
            file never changes.

    Raises what ``state_size`` raises.
    """
    stores: Counter[str] = Counter()
    for file in manifest.stored:
        path = manifest.path(file)
        if path not in known:
            known[path] = bytes_of_stores(storage, manifest, file)
        stores.update(known[path])
    return TaskSize(
        manifest.application_id,
        manifest.task_id,
        len(manifest.stored),
        sum(file.size for file in manifest.stored),
        len(manifest.deltas),
        sum(file.own_rows for file in manifest.files),
        dict(sorted(stores.items())),
    )


def _files(batches: Iterable[Collection[Manifest]]) -> tuple[dict[str, int], Counter[str]]:
    """Return the size of each file that any micro-batch needs, and how many need it."""
    sizes: dict[str, int] = {}
    uses: Counter[str] = Counter()
    for manifests in batches:
        files = {manifest.path(file): file.size for manifest in manifests for file in manifest.files}
        sizes |= files
        uses.update(files.keys())
    return sizes, uses
