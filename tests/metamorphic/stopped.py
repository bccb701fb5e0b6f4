"""Queries that are stopped between micro-batches, so that somebody can edit what their tasks keep."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from millpond.adapters.inspect import StateInspector
from millpond.processors.distribution.plan import Plan
from millpond.processors.distribution.shape_of import shape_of
from millpond.processors.verbs.verb import PackedRows
from millpond.stores.durability import Manifest, Storage
from millpond.stores.durability.manifests.schema_log import Beside, keep_schemas
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.evolution.history import History
from tests.metamorphic.engine import Query
from tests.metamorphic.histories import Chain, Event, rows_of, tables
from tests.metamorphic.keeping import DurableKeeper

Edit = Callable[[StateInspector], None]


class StoppedKeeper(DurableKeeper):
    """Keeps what a query on Spark keeps beside its state as well: records of its generations, and schemas of its rows.

    Args:
        directory: where durable files are.
        schemas: by verb and place.
    """

    def __init__(self, directory: Path, schemas: Mapping[str, Mapping[str, Schemas]]) -> None:
        super().__init__(directory, ("memory",), loses=False)
        self._schemas = schemas
        self.batch = -1
        self._checkpoint = Storage.from_uri(f"file://{directory}/checkpoint")

    def fingerprint_of(self, application: str, plan: Plan) -> str:
        history = History.of(self.storage, application, "out").begun(plan.fingerprint, shape_of(plan))
        keep_schemas(self.storage, application, self._schemas[application])
        assert history.newest is not None
        return history.newest.fingerprint

    def start_of(self, place: str) -> Manifest | None:
        application, _, task_id = place.partition("/")
        record = History.of(self.storage, application, "out").newest
        assert record is not None
        return record.start_of(task_id, self.committed.get(place), self.batch + 1)

    def commit(self) -> None:
        super().commit()
        self.batch += 1

    @property
    def inspector(self) -> StateInspector:
        """Shows what is kept after the last micro-batch."""
        checkpoint: Any = _Checkpoint(self.batch, list(self.committed.values()), self._checkpoint)
        return StateInspector(checkpoint, self.storage)


@dataclass(frozen=True)
class _Checkpoint:
    """The answers of a ``SparkCheckpoint`` of a query that is stopped."""

    batch: int
    held: list[Manifest]
    storage: Storage

    def chosen(self, _: int | None) -> int:
        return self.batch

    def manifests(self, _: int) -> list[Manifest]:
        return self.held


def told(
    chain: Chain,
    before: Sequence[Sequence[Event]],
    edits: Iterable[Edit],
    after: Sequence[Sequence[Event]],
    *,
    seed: int,
    partitions: int,
    complete: bool = False,
) -> list[dict[str, Any]]:
    """Return what comes out of the last verb after edits, without its sequence.

    Args:
        chain: the verbs.
        before: the micro-batches before the edits.
        edits: what is done to the stopped query.
        after: the micro-batches that follow, with the last of which inputs are complete.
        seed: of files, and of the order in which they come.
        partitions: how many tasks each verb has.
        complete: whether inputs are complete with the last micro-batch before the edits, too.
    """
    random = Random(seed)
    with TemporaryDirectory() as directory, closing(StoppedKeeper(Path(directory), schemas_of(chain))) as keeper:
        query = Query(chain.verbs, [partitions] * len(chain.verbs), keeper, random)
        for number, events in enumerate(before):
            query.run(tables(chain, events, 2, random), complete=complete and number == len(before) - 1)
        for edit in edits if keeper.committed else ():
            keeper.restart()
            edit(keeper.inspector)
        query, found = query.restarted(), []
        for number, events in enumerate(after):
            found += query.run(tables(chain, events, 2, random), complete=number == len(after) - 1)
        rows = [row for table in found for row in rows_of(table)]
        return [{name: value for name, value in row.items() if name != "sequence"} for row in rows]


def schemas_of(chain: Chain) -> dict[str, dict[str, Schemas]]:
    found: dict[str, dict[str, Schemas]] = {}
    for made in chain.verbs:
        mine = found.setdefault(made.verb.name, {})
        for topic, input_ in made.verb.inputs.items():
            mine[Beside.KEY.place(topic)] = Schemas.first(input_.keys.schema)
            if isinstance(input_, PackedRows):
                mine[topic] = input_.rows.schemas
    return found
