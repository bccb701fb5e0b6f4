"""The rows of one input in a verb's state, as columns with which another verb can begin.

Rule of this module: it reads durable files, part by part, and does not know who begins with the rows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as _compute

from millpond.errors import RekeyedRowsError
from millpond.processors.runtime.kept_time import STREAM_TIME, KeptTime
from millpond.processors.runtime.tasks.stream_time_reset import RESET
from millpond.processors.verbs.encoding.null_keys import NullKeys
from millpond.processors.verbs.rekeying.carriages import CARRIAGES
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.schema_log import Beside, kept_schemas
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.column_keys import TO_THE_END, time_at
from millpond.stores.encoding.keys import DATA, TIME_SIZE, unpack_time
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.evolution.carriage import greatest
from millpond.stores.evolution.conversion import times_of
from millpond.stores.evolution.old_rows import OldRows
from millpond.stores.evolution.record_keys import RecordKeys
from millpond.stores.evolution.verbs.verb_sides import INPUT, Kept, KeptSide
from millpond.stores.typed.expiry import HORIZON_NAME
from millpond.stores.typed.observed_stream_time import METADATA_NAME as OBSERVED
from millpond.stores.typed.timestamped_keyvalue import TIMESTAMP_SIZE
from millpond.stores.typed.versions.version_rows import LIVE

pc: Any = _compute
Array = Any
"""An Arrow array."""

TIME: Final = "timestamp"
DELETED: Final = "deleted"
"""The columns of ``KeptRows.parts`` that are no columns of the rows, behind all others."""


@dataclass(frozen=True)
class KeptRows:
    """The rows of one input in the state of a verb. Travels to the workers.

    Attributes:
        storage: has the durable files.
        verb: the verb's name, for errors.
        side: the input, and the place of its rows.
        manifests: the manifests of the tasks that have state.
        keys: packs keys.
        rows: packs rows.
        times: the type of its times; None if it is not known.
        expressions: the sources of its times, operations and orders, by parameter; None if not known.
    """

    storage: Storage
    verb: str
    side: KeptSide
    manifests: tuple[Manifest, ...]
    keys: KeyCodec
    rows: RowCodec
    times: pa.DataType | None
    expressions: Mapping[str, str] | None

    @classmethod
    def of(
        cls, storage: Storage, application_id: str, verb: str, side: KeptSide, manifests: tuple[Manifest, ...]
    ) -> Self:
        """Return the kept rows of an application.

        Raises:
            StateConflictError: nothing says how its rows are packed.
        """
        places = {what: kept_schemas(storage, application_id, what.place(side.role)) for what in Beside}
        keys, rows = places[Beside.KEY], kept_schemas(storage, application_id, side.role)
        if keys is None or rows is None:
            raise RekeyedRowsError(
                f"nothing in {storage.describe(application_id)} tells how the rows of {side.role!r} are packed that "
                f"the verb {verb!r} keeps; start it once as it was, with this release, which notes it"
            )
        times, given = places[Beside.TIME], places[Beside.EXPRESSIONS]
        return cls(
            storage,
            verb,
            side,
            manifests,
            KeyCodec(keys.current),
            RowCodec(rows),
            None if times is None else times.current.types[0],
            None if given is None else _expressions(side.role, given.current.names),
        )

    @property
    def columns(self) -> pa.Schema:
        """The columns of its rows, the key's among them."""
        own = self.rows.schemas.current
        return pa.schema([*own, *(field for field in self.keys.schema if field.name not in own.names)])

    @property
    def clock(self) -> int | None:
        """The time that the input has reached, in microseconds; None if it was not kept."""
        if self.side.kept is Kept.WAITING:
            known = [KeptTime(old, STREAM_TIME).get() for old in self._olds]
        else:
            found = (old.get_metadata(OBSERVED) for old in self._olds)
            known = [None if data is None else unpack_time(data) for data in found]
        return max((time for time in known if time is not None), default=None)

    @property
    def expires(self) -> bool:
        """True if rows of it have a time to live, or had one."""
        return any(old.get_metadata(HORIZON_NAME) is not None for old in self._olds)

    @property
    def reset(self) -> bytes | None:
        """The moment to which its times were set back last, as a store keeps it; None if they never were."""
        found = [data for old in self._olds if (data := old.get_metadata(RESET)) is not None]
        return greatest(found) if found else None

    def parts(self) -> Iterator[pa.Table]:
        """Yield all rows, some at a time: their columns, ``TIME`` in microseconds, and whether they are ``DELETED``.

        Of a row that is deleted there are the columns of the key; the others are null.

        Raises:
            MissingFileError, CorruptFileError: a file is gone or damaged.
            CorruptStoreError, SerdeError: a row is damaged.
        """
        for old in self._olds:
            keys = RecordKeys.of_store(self.side.store, [old], CARRIAGES)
            for packed, values in old.columns():
                data = pc.starts_with(packed, DATA)
                yield self._table(keys, packed.filter(data), values.filter(data))

    @property
    def _olds(self) -> list[OldRows]:
        store = self.side.store
        return [OldRows(self.storage, manifest, store.name, store.kind) for manifest in self.manifests]

    def _table(self, keys: RecordKeys, packed: Array, values: Array) -> pa.Table:
        """Return rows of the store as columns."""
        kept = self.side.kept
        if kept is Kept.VERSIONS:
            times = time_at(packed, -TIME_SIZE)
            live = pc.starts_with(values, LIVE)
            rows = pc.if_else(live, pc.binary_slice(values, len(LIVE), TO_THE_END), pa.scalar(None, pa.binary()))
        elif kept is Kept.LAST:
            times, rows = times_of(values), pc.binary_slice(values, TIMESTAMP_SIZE, TO_THE_END)
        elif kept is Kept.IN_WINDOWS:
            times, rows = time_at(packed, -keys.rest), values
        else:
            times, rows = time_at(packed, len(DATA)), pc.binary_slice(values, len(LIVE), TO_THE_END)
        own = self.rows.unpack(rows)
        of_key = self._null_keys.unpack(self.keys, keys.of_rows(packed), [self.side.role])
        made = {name: own[name] for name in own.schema.names}
        for name in self.keys.schema.names:
            made[name] = pc.if_else(rows.is_valid(), made[name], of_key[name]) if name in made else of_key[name]
        columns = [made[name] for name in self.columns.names]
        return pa.table([*columns, pa.array(times), rows.is_null()], names=[*self.columns.names, TIME, DELETED])

    @property
    def _null_keys(self) -> NullKeys:
        """The treatment that rows with a null in their key had."""
        if self.side.role == INPUT:
            return NullKeys.EQUAL
        return NullKeys.OWN_SIDE if self.side.kept.is_table else NullKeys.APART


def _expressions(role: str, names: list[str]) -> dict[str, str]:
    """Return the texts given for parameters of an input, which have the name of a join's side in front."""
    pairs = (name.partition("=") for name in names)
    return {parameter.removeprefix(f"{role}_"): text for parameter, _, text in pairs}
