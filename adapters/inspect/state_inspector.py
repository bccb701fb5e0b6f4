"""``StateInspector``: the state of a query, found by its checkpoint and its state directory, without Spark.

Rule of this module: it knows which stores there are, from the records that each query keeps of the shape of its state
(``millpond.stores.evolution.history``), and which manifests are theirs. So nobody has to bring the topology. Nothing is
changed, so the query may be running.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final, NamedTuple

from millpond.adapters.inspect.checkpoint.spark_checkpoint import SparkCheckpoint
from millpond.adapters.inspect.columns import KeyColumn, ShownColumn, shown
from millpond.adapters.inspect.packed_columns import PackedKeyColumn, PackedPlaces, of_feed
from millpond.adapters.inspect.store_form import StoreForm, given_as, holds_entries
from millpond.adapters.inspect.store_part import StorePart
from millpond.adapters.inspect.store_view import StoreView
from millpond.errors import (
    AmbiguousError,
    ConfigurationError,
    NoCheckpointError,
    StoreKindError,
    UnknownNameError,
    UnrecordedStateError,
)
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.durability.storage.uris import shown as shown_uri
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.encoding.times import TimeUnit
from millpond.stores.evolution.current_manifests import without_left_behind
from millpond.stores.evolution.history import History, applications_beside, sinks_of
from millpond.stores.evolution.record import BEGINNING, EvolutionRecord, commits_of
from millpond.stores.evolution.shape import StoreShape
from millpond.stores.evolution.verbs.verb_sides import INPUT
from millpond.stores.specs.store_spec import StoreSpec
from millpond.stores.typed.windows.calendar import grid_of
from millpond.stores.typed.windows.grids import EVERYWHERE

_NO_SPECS: Final[Mapping[str, StoreSpec]] = MappingProxyType({})
_WORKERS: Final = 4
_AGGREGATES: Final = "aggregate-state-"
_FEED_ROWS: Final = "rows"
_TOP_ROWS: Final = "top-n-state-"


class InspectedQuery(NamedTuple):
    """One query, as a checkpoint has it.

    Attributes:
        history: the generations of its state.
        record: the record of the generation of the state that the checkpoint has.
        manifests: the manifests with which tasks go on, by task id.
        held: the manifests of its application that the checkpoint holds, of any generation.
        left: whether the query goes on without it: it has begun where the checkpoint stands, with the verb under
            another name, or with others, unless its start has been cut short.
    """

    history: History
    record: EvolutionRecord
    manifests: Mapping[str, Manifest]
    held: Collection[Manifest]
    left: bool = False

    @property
    def subtopologies(self) -> set[int]:
        """The sub-topologies that have stores."""
        return {store.subtopology for store in self.record.shape.stores}

    @property
    def found(self) -> set[int]:
        """The subtopologies of the query that the checkpoint has state of."""
        return self.subtopologies & {int(task.partition("_")[0]) for task in self.manifests}


@dataclass(frozen=True)
class StateInspector:
    """The state of a query. Make it with ``at``.

    Attributes:
        checkpoint: the query's.
        storage: where its durable files are.
        specs: stores whose serdes and limits the user has given, by name.
    """

    checkpoint: SparkCheckpoint
    storage: Storage
    specs: Mapping[str, StoreSpec] = field(default_factory=dict)

    @classmethod
    def at(
        cls, checkpoint: str, state_dir: str, *, workers: int = _WORKERS, specs: Mapping[str, StoreSpec] = _NO_SPECS
    ) -> "StateInspector":
        """Return the state of the query with a checkpoint.

        Args:
            checkpoint: the query's ``checkpointLocation``, a path or URI.
            state_dir: the job's ``state_dir``, a path or URI.
            workers: how many partitions of Spark's state are read at the same time.
            specs: by name, specs of stores that tell more than the state does: serdes of the user's own, how long
                windows are, how long rows are retained. ``Topology.stores`` has them.

        Raises:
            ConfigurationError: there is no checkpoint, or no file system is known for a place.
        """
        return cls(SparkCheckpoint.at(checkpoint, workers), Storage.from_uri(state_dir), specs)

    @property
    def batches(self) -> list[int]:
        """The micro-batches that can be looked at, the first one first.

        Raises:
            DurabilityError: the checkpoint cannot be read.
        """
        return self.checkpoint.batches()

    def stores(self, batch: int | None = None) -> list[StoreView]:
        """Return all stores with which the query goes on, by application, sink and name.

        Args:
            batch: after which micro-batch; None for the last one.

        Raises:
            ConfigurationError: there is no such micro-batch, or no state of Millpond.
            FormatError: something is of a later release, or in a form that cannot be read without Spark.
            MissingFileError, CorruptFileError: a file is gone or damaged.
            DurabilityError: the checkpoint or the state directory cannot be read.
        """
        number = self.checkpoint.chosen(batch)
        return self.stores_of([query for query in self.queries(number) if not query.left], number)

    def stores_of(self, queries: Collection[InspectedQuery], batch: int) -> list[StoreView]:
        """Return the stores of queries that were found after a micro-batch, by application, sink and name.

        Raises:
            ConfigurationError: what is given of a store does not fit it.
            FormatError, CorruptFileError: a schema is of a later release, or damaged.
            DurabilityError: the state directory cannot be read.
        """
        views = [view for query in queries for view in self._views(batch, query)]
        return sorted(views, key=lambda view: (view.application_id, view.sink, view.name))

    def queries(self, batch: int) -> list[InspectedQuery]:
        """Return the queries whose state the checkpoint has after a micro-batch: one, or one for each verb or sink.

        After the last one, also verbs that begin there with the state of others, and those whose state it is.

        Raises as ``stores``.
        """
        held = self.checkpoint.manifests(batch)
        found = without_left_behind(self.storage, held, batch, starting=True)
        if not found:
            raise NoCheckpointError(
                f"the checkpoint {shown_uri(self.checkpoint.storage.uri)} holds no state of Millpond after micro-batch "
                f"{batch}; give the checkpointLocation of a query that has some"
            )
        applications = sorted({one.application_id for one in found})
        standing = [
            query
            for application_id in applications
            for query in self._queries(application_id, batch, [one for one in found if _of(one, application_id)])
        ]
        others = self._others(standing, batch)
        queries = [query for query in standing if not _is_erased(query, standing, others)]
        if not any(query.record.shape.stores for query in standing):
            raise UnrecordedStateError(
                f"{shown_uri(self.storage.uri)} has no record of the state of {applications}, which the checkpoint "
                "names; give the job's own state_dir; if it is that, start the query once with this release, which "
                "keeps records"
            )
        begun = list(self._begun_here(others, held, batch))
        left = [query._replace(left=_is_left(query, queries, begun, batch)) for query in queries]
        return [*left, *(query._replace(left=_is_led_on(query, [*queries, *begun])) for query in begun)]

    def store(
        self,
        name: str,
        *,
        batch: int | None = None,
        sink: str | None = None,
        application_id: str | None = None,
    ) -> StoreView:
        """Return one store.

        Args:
            name: the store's.
            batch: after which micro-batch; None for the last one.
            sink: what its query writes, where that is needed to tell it from others of its name.
            application_id: the application, where that is needed.

        Raises:
            ConfigurationError: there is no such store, or more than one. For the others, see ``stores``.
        """
        return named_store(self.stores(batch), name, sink=sink, application_id=application_id)

    def _queries(self, application_id: str, batch: int, found: Collection[Manifest]) -> Iterator[InspectedQuery]:
        """Yield the queries of an application that the checkpoint belongs to."""
        histories = [History.of(self.storage, application_id, sink) for sink in sinks_of(self.storage, application_id)]
        for history in histories:
            if history.evolved and history.knows(found):
                record, manifests = history.standing(found, batch)
                yield InspectedQuery(history, record, manifests, found)
                return
        queries = [_begun(history, found) for history in histories if history.records]
        taken: set[int] = set()
        for query in sorted(queries, key=lambda one: (-len(one.found), len(one.subtopologies), one.history.sink)):
            if query.found - taken:
                taken |= query.subtopologies
                yield query

    def _others(self, queries: Collection[InspectedQuery], batch: int) -> list[History]:
        """Return the histories of other applications of the queries' jobs, where they may matter."""
        there = {query.history.application_id for query in queries}
        if len(there) < 2 and batch != self.checkpoint.chosen(None):
            return []
        beside = applications_beside(self.storage, [query.history for query in queries])
        left = (one for one in beside if one not in there)
        return [History.of(self.storage, one, sink) for one in left for sink in sinks_of(self.storage, one)]

    def _begun_here(
        self, others: Iterable[History], held: Collection[Manifest], batch: int
    ) -> Iterator[InspectedQuery]:
        """Yield the queries that begin after the last micro-batch with existing state; the checkpoint has none yet."""
        if batch != self.checkpoint.chosen(None):
            return
        there = {one.application_id for one in held}
        for history in others:
            begins = history.application_id not in there and history.begins_with(held, batch)
            if history.newest is not None and begins:
                yield InspectedQuery(history, history.newest, history.newest.bases, ())

    def _views(self, batch: int, query: InspectedQuery) -> Iterator[StoreView]:
        application_id = query.history.application_id
        packed = PackedPlaces.of(self.storage, application_id)
        seen: set[str] = set()
        for shape in query.record.shape.stores:
            if shape.is_global and shape.name in seen:
                continue
            seen.add(shape.name)
            form = self._form(shape, packed)
            mine = {task: one for task, one in query.manifests.items() if task.startswith(f"{shape.subtopology}_")}
            parts = [StorePart(self.storage, mine[task], form) for task in sorted(mine, key=_partition)]
            count = query.record.shape.partitions
            kept = parts[:1] if shape.is_global else parts
            yield StoreView(application_id, query.history.sink, batch, shape, count, form, kept)

    def _form(self, shape: StoreShape, packed: PackedPlaces) -> StoreForm:
        given = self.specs.get(shape.name)
        unit = TimeUnit.MICROSECOND if packed else TimeUnit.MILLISECOND
        if given is not None and given.kind is not shape.kind:
            raise StoreKindError(
                f"store {shape.name!r} is of kind {given.kind.value} in what was given, but the state has one of kind "
                f"{shape.kind.value}; give the topology that the query runs: specs=topology.stores, which is "
                "--topology"
            )
        return StoreForm(
            shape.name,
            shape.kind,
            shape.layout,
            _key_column(shape, packed, given),
            _value_column(shape, packed, given),
            unit,
            given,
            (None if shape.terms is None else grid_of(shape.terms.kept.fixed)) or EVERYWHERE,
        )


def named_store(
    known: Collection[StoreView], name: str, *, sink: str | None = None, application_id: str | None = None
) -> StoreView:
    """Return the store of that name among some.

    Args:
        known: the stores.
        name: its name.
        sink, application_id: where they are needed to tell it from others of its name.

    Raises:
        ConfigurationError: there is no such store, or more than one.
    """
    found = [
        view
        for view in known
        if view.name == name and sink in (None, view.sink) and application_id in (None, view.application_id)
    ]
    if len(found) > 1:
        raise AmbiguousError(f"there are {len(found)} stores {name!r}; say which one: {_places(found)}")
    if not found:
        elsewhere = [view for view in known if view.name == name]
        if elsewhere:
            raise UnknownNameError(
                f"there is no store {name!r} of that sink and application; give those of one that there is: "
                f"{_places(elsewhere)}"
            )
        names = sorted({view.name for view in known})
        close = get_close_matches(name, names, 1)
        hint = f"; did you mean {close[0]!r}?" if close and close[0] != name else ""
        own = sorted({view.name for view in known if view.sink == name})
        if own:
            stores, given = ", ".join(map(repr, own)), given_as("sink", name)
            hint = f"; {name!r} is what {stores} belongs to: give such a store, and {given}"
        raise UnknownNameError(f"there is no store {name!r}, only {', '.join(names)}{hint}")
    return found[0]


def _places(views: Collection[StoreView]) -> str:
    """Return the arguments that tell stores of one name from each other."""
    return ", or ".join(
        f"{given_as('application_id', view.application_id)}, {given_as('sink', view.sink)}" for view in views
    )


def _is_erased(query: InspectedQuery, found: Collection[InspectedQuery], others: Iterable[History]) -> bool:
    """Return whether the files of a query went when keys were erased under another name that its verb got.

    Spark's state may hold manifests of such a verb, beside those of another, when it has none of the other name any
    more.

    Args:
        query: the query.
        found: all whose state the checkpoint has.
        others: what is known of the other applications of the same jobs.
    """
    if len({one.history.application_id for one in found}) < 2:
        return False
    return any(query.history.is_led_on_in(one) for one in others if one.was_erased)


def _is_left(
    query: InspectedQuery, known: Collection[InspectedQuery], begun: Collection[InspectedQuery], batch: int
) -> bool:
    """Return whether a query does not go on, and queries that begin where the checkpoint stands know its state.

    A query that goes on knows those that do not. So if only one of two knows the other, it is the one that may go on.

    Args:
        query: the other one.
        known: all whose state the checkpoint has.
        begun: those that begin there.
        batch: the checkpoint's last micro-batch.
    """
    if _is_led_on(query, begun):
        return True
    mine, own = commits_of(query.held), _origins(query, batch)
    if not any(mine <= one.record.origins for one in begun):
        return False
    beside = [one for one in known if one is not query]
    knows = {(commits_of(one.held) <= own, mine <= _origins(one, batch)) for one in beside}
    if (True, False) in knows:
        return any(query.history.is_led_on_in(one.history) for one in begun)
    return (False, True) in knows or not mine <= own


def _is_led_on(query: InspectedQuery, others: Collection[InspectedQuery]) -> bool:
    """Return whether another generation was made of a query's newest one; several may have one beginning."""
    own = query.history.unerased
    evolved = own is not None and own.generation > BEGINNING
    return evolved and any(query.history.is_led_on_in(one.history) for one in others)


def _origins(query: InspectedQuery, batch: int) -> frozenset[str]:
    """Return the origins of the newest generation that a start, not an edit, has made there or before."""
    made = query.history.unedited_at(batch)
    return frozenset() if made is None else made.origins


def _of(manifest: Manifest, application_id: str) -> bool:
    return manifest.application_id == application_id


def _begun(history: History, found: Collection[Manifest]) -> InspectedQuery:
    """Return a query whose state was never carried over, with the manifests that can be its own.

    Raises:
        ConfigurationError: nothing tells which are.
    """
    record = history.records[0]
    mine = [one for one in found if one.fingerprint == record.fingerprint]
    by_task = {one.task_id: one for one in mine}
    if len(by_task) < len(mine):
        raise AmbiguousError(
            f"the checkpoint has the state of several sinks of application {history.application_id!r} that share "
            "tasks, and nothing tells which is whose; give each sink a checkpoint of its own"
        )
    return InspectedQuery(history, record, by_task, found)


def _partition(task_id: str) -> int:
    return int(task_id.partition("_")[2])


def _key_column(shape: StoreShape, packed: PackedPlaces, given: StoreSpec | None) -> KeyColumn:
    is_packed = holds_entries(shape.layout) and shape.key_serde == BYTES.name
    if is_packed and of_feed([shape]):
        return PackedKeyColumn(_group_keys(shape, packed))
    column = packed.key_column(shape.name) if is_packed else None
    return column or shown(shape.key_serde, None if given is None else given.key_serde)


def _value_column(shape: StoreShape, packed: PackedPlaces, given: StoreSpec | None) -> ShownColumn:
    column = packed.row_column(shape.name) if shape.layout is None and shape.value_serde == BYTES.name else None
    if column is None and shape.value_serde.startswith(_AGGREGATES):
        column = _aggregated(shape.value_serde, packed.calls)
    if packed.calls is not None and (of_feed([shape]) or shape.name == _FEED_ROWS):
        column = _of_feed(shape, packed, packed.calls)
    if shape.value_serde.startswith(_TOP_ROWS) and INPUT in packed.rows:
        column = _top_rows(packed.rows[INPUT])
    return column or shown(shape.value_serde, None if given is None else given.value_serde)


def _top_rows(codec: RowCodec) -> ShownColumn:
    """Return the column of the first rows of keys."""
    # Only now, because it brings all processors with it, and most queries have none.
    from millpond.adapters.inspect.top_column import TopColumn

    return TopColumn(codec)


def _group_keys(shape: StoreShape, packed: PackedPlaces) -> KeyCodec:
    """Return the codec of the groups' keys; the terms of the store tell if there are grouping sets."""
    return packed.group_keys(by_sets=shape.terms is not None and "by" in shape.terms.kept.fixed)


def _of_feed(shape: StoreShape, packed: PackedPlaces, calls: Schemas) -> ShownColumn | None:
    """Return the column of rows of a change feed, or of their groups; None if this release does not know a call."""
    # Only now, because it brings all processors with it, and most queries have none.
    from millpond.adapters.inspect.feed_columns import FeedRowColumn, GroupColumn

    try:
        return FeedRowColumn(_group_keys(shape, packed), calls) if shape.name == _FEED_ROWS else GroupColumn(calls)
    except ConfigurationError:
        return None


def _aggregated(name: str, calls: Schemas | None) -> ShownColumn | None:
    """Return the column of aggregates; None if this release, or what is installed, cannot read them."""
    # Only now, because it brings all processors with it, and most queries have none.
    from millpond.adapters.inspect.aggregated_column import AggregatedColumn

    try:
        return AggregatedColumn(name, calls)
    except ConfigurationError:
        return None
