"""The schemas of the rows in an application's stores, kept beside its state.

Rule of this module: a schema is a file of its own, written once, under its number; the newest file holds the whole
history, with its CRC-32::

    <application>/<place>-schema-<number>.json      {"crc32":1234567890,"schemas":{…}}

A query is built with the next schema of each place, and keeps it with its first row. As long as no task has written
anything, no row can have a number yet, and the next schema may be any other.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple
from zlib import crc32

import pyarrow as pa

from millpond.errors import (
    ConcurrentJobError,
    CorruptFileError,
    DurabilityError,
    FormatError,
    SerdeError,
    StateConflictError,
    StoresChangedError,
)
from millpond.stores.durability.manifests.manifest import TASK_ID
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.rows.schemas import Schemas

"""The names of tasks; other directories hold no rows."""

_CONTENT: Final = re.compile(rb'\{"crc32":(\d{1,10}),"schemas":(.*)\}', re.DOTALL)
_NAME: Final = re.compile(r"(.+)-schema-(\d{1,9})\.json")


class Beside(StrEnum):
    """A part of an input that has a history of its own beside the history of the input's rows."""

    KEY = "key"
    FOREIGN = "foreign"
    ORDER = "order"
    TIME = "time"
    EXPRESSIONS = "expressions"
    CALLS = "calls"

    def place(self, role: str) -> str:
        """Return the place of its history, for the input that has a role."""
        return f"{role}-{self.value}"


def parted(place: str) -> tuple[str, Beside | None]:
    """Return the role of an input, and the part of it whose history is at a place; None for its rows."""
    for what in Beside:
        if place.endswith(what.place("")):
            return place.removesuffix(what.place("")), what
    return place, None


class SchemaFault(NamedTuple):
    """A file of schemas that is not as it was written.

    Attributes:
        path: the file.
        what: the fault.
        newest: whether rows are read with it; the earlier files of a place are only its past.
    """

    path: str
    what: str
    newest: bool


def kept_schemas(storage: Storage, application_id: str, place: str) -> Schemas | None:
    """Return the history of a place's schemas; None if no state can have rows of them.

    Raises:
        FormatError: a later release wrote it.
        CorruptFileError: its file is not as it was written.
    """
    tasks = filter(TASK_ID.fullmatch, storage.directories(application_id))
    return _newest(storage, application_id, place) if any(tasks) else None


def is_schema(name: str) -> bool:
    """Return whether a file of that name in an application's directory has schemas of rows."""
    return _NAME.fullmatch(name) is not None


def schema_places(storage: Storage, application_id: str) -> list[str]:
    """Return the places of an application that have histories of schemas, sorted.

    Raises:
        DurabilityError: the storage failed.
    """
    names = (file.path.rpartition("/")[2] for file in storage.list(application_id))
    return sorted({match[1] for match in map(_NAME.fullmatch, names) if match is not None})


def next_schemas(
    storage: Storage,
    application_id: str,
    place: str,
    schema: pa.Schema,
    renamed: Mapping[str, str],
    dropped: Collection[str],
) -> Schemas:
    """Return the history of a place's schemas with ``schema`` as its newest. Nothing is written.

    Raises:
        CorruptFileError: the file of the schemas so far is not as it was written.
        StateConflictError: rows of the schemas so far cannot be read as rows of this one.
    """
    before = kept_schemas(storage, application_id, place)
    if before is not None:
        return before.evolved(schema, renamed, dropped, where=f"{place!r} of {application_id!r}")
    without_rows = _newest(storage, application_id, place)
    return Schemas.first(schema) if without_rows is None else without_rows.replaced(schema)


def unkept_schemas(storage: Storage, application_id: str, schemas: Mapping[str, Schemas]) -> Mapping[str, Schemas]:
    """Return the histories from ``next_schemas`` whose newest schema is not kept yet, by place.

    Raises:
        CorruptFileError: the file of the schemas so far is not as it was written.
        StateConflictError: another process has kept another schema since.
    """
    unkept = {}
    for place, after in schemas.items():
        before = _newest(storage, application_id, place)
        if before is not None and _same(after, before):
            continue
        if not _same(Schemas(after.versions[:-1]), before or Schemas(())):
            raise _conflict(storage, application_id, place, after)
        unkept[place] = after
    return unkept


def keep_schemas(storage: Storage, application_id: str, schemas: Mapping[str, Schemas]) -> None:
    """Keep the newest schema of each place, unless it is there. Several may do it at the same time.

    Args:
        storage: the place of the state.
        application_id: the application.
        schemas: the histories from ``next_schemas``, by place.

    Raises:
        CorruptFileError: the file of the schemas so far is not as it was written.
        StateConflictError: another process has kept another schema since.
    """
    for place, after in unkept_schemas(storage, application_id, schemas).items():
        text = after.to_json().encode()
        path = _path(application_id, place, after.number)
        storage.put_once(path, b'{"crc32":%d,"schemas":%b}' % (crc32(text), text))
        kept = _newest(storage, application_id, place)
        if kept is None or not _same(kept, after):
            raise _conflict(storage, application_id, place, after)


def copy_schemas(storage: Storage, application_id: str, to: str) -> None:
    """Keep an application's schemas for another one, too, which continues its rows. Doing it again is cheap.

    Raises:
        StateConflictError: the other application has schemas of its own.
        DurabilityError: the storage failed.
    """
    for file in storage.list(application_id):
        name = file.path.rpartition("/")[2]
        if is_schema(name):
            text, path = storage.read(file.path), f"{to}/{name}"
            storage.put_once(path, text)
            if storage.read(path) != text:
                raise StoresChangedError(
                    f"{storage.describe(path)} has other schemas than {storage.describe(file.path)}, whose rows are "
                    "to be carried over; give the renamed verb a name that has no state, in renamed and in name=..."
                )


def schema_faults(storage: Storage, application_id: str) -> Iterator[SchemaFault]:
    """Yield what is wrong with the histories of an application's schemas.

    Raises:
        DurabilityError: the storage failed.
    """
    for place in schema_places(storage, application_id):
        newest, *earlier = sorted(_numbers(storage, application_id, place), reverse=True)
        history: Schemas | None = None
        for number in (newest, *earlier):
            path = _path(application_id, place, number)
            try:
                found = _read(storage, path)
            except (DurabilityError, FormatError, SerdeError) as error:
                yield SchemaFault(path, str(error), number == newest)
                continue
            history = history or found
            if len(found.versions) != number or found.versions != history.versions[:number]:
                yield SchemaFault(path, f"it does not hold the schemas 1 to {number}", number == newest)


def _conflict(storage: Storage, application_id: str, place: str, after: Schemas) -> StateConflictError:
    return ConcurrentJobError(
        f"{storage.describe(_path(application_id, place, after.number))}: the schemas of {place!r} are not those that "
        "this query was built with, as another query has begun or changed this state since, or the state could not be "
        "read then; build the query again, and start one after the other"
    )


def _same(one: Schemas, other: Schemas) -> bool:
    """Return whether two histories are equal, including the metadata of columns, which equal fields may differ in."""
    return one.to_json() == other.to_json()


def _newest(storage: Storage, application_id: str, place: str) -> Schemas | None:
    numbers = _numbers(storage, application_id, place)
    return _read(storage, _path(application_id, place, max(numbers))) if numbers else None


def _read(storage: Storage, path: str) -> Schemas:
    content = _CONTENT.fullmatch(storage.read(path))
    if content is None or crc32(content[2]) != int(content[1]):
        raise CorruptFileError(
            f"the file {storage.describe(path)} is damaged, and rows cannot be read without it; put an undamaged copy "
            "back"
        )
    return Schemas.from_json(content[2].decode(errors="surrogateescape"))


def _numbers(storage: Storage, application_id: str, place: str) -> list[int]:
    found = [_NAME.fullmatch(file.path.rpartition("/")[2]) for file in storage.list(application_id)]
    return [int(match[2]) for match in found if match is not None and match[1] == place]


def _path(application_id: str, place: str, number: int) -> str:
    return f"{application_id}/{place}-schema-{number}.json"
