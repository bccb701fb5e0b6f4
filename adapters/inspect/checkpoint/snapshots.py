"""One snapshot of Spark's state: a RocksDB, whose tables lie beside a zip file with the rest.

Rule of this module: it puts the files together in a directory of its own and opens them for reading alone. Nothing is
written where Spark keeps them. The zip's file ``metadata`` is a line with its version and a line of JSON, which has the
name of each table in RocksDB and that in the directory ``SSTs``.
"""

import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple
from zipfile import BadZipFile, ZipFile

import rocksdict

from millpond.errors import SparkStateError
from millpond.stores.durability.storage.checked_text import read_count

_METADATA: Final = "metadata"
_KNOWN: Final = ("v1", "v2")
_MOST_FAMILIES: Final = 2**16 - 1
"""The number of families that the two bytes before each key have room for."""


class Snapshot(NamedTuple):
    """The content of a snapshot.

    Attributes:
        rows: of all column families, by key.
        families: the ids of the column families, by name.
    """

    rows: dict[bytes, bytes]
    families: dict[str, int]


def read_snapshot(data: bytes, table: Callable[[str], bytes]) -> Snapshot:
    """Return the snapshot whose zip file holds ``data``.

    Args:
        data: of the zip file.
        table: reads a table, by its name in the directory ``SSTs``.

    Raises:
        FormatError: it is of a version that is not known here.
        ValueError: it is damaged.
        DurabilityError: a table cannot be read.
    """
    with TemporaryDirectory(prefix="millpond-") as directory:
        place = Path(directory)
        try:
            with ZipFile(BytesIO(data)) as archive:
                content = {name: archive.read(name) for name in archive.namelist()}
        except (BadZipFile, EOFError, OSError, RuntimeError) as error:
            raise ValueError(f"it is no whole zip file ({error})") from error
        metadata = _metadata(content.pop(_METADATA, b""))
        for name, part in content.items():
            (place / _plain(name)).write_bytes(part)
        _lay_out_tables(place, metadata, table)
        return Snapshot(_rows(place), _families(metadata))


def _metadata(data: bytes) -> dict[str, Any]:
    version, _, text = data.decode(errors="replace").partition("\n")
    if version not in _KNOWN:
        raise SparkStateError(f"its metadata has version {version[:10]!r}, and only {', '.join(_KNOWN)} are known here")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its metadata cannot be read ({error})") from error
    if not isinstance(found, dict):
        raise ValueError("its metadata is no object")
    return found


def _families(metadata: dict[str, Any]) -> dict[str, int]:
    try:
        families = (metadata.get("columnFamilyMapping") or {}).items()
        return {str(name): read_count(id_, _MOST_FAMILIES) for name, id_ in families}
    except (AttributeError, TypeError) as error:
        raise ValueError(f"its metadata names no column families ({error})") from error


def _lay_out_tables(place: Path, metadata: dict[str, Any], table: Callable[[str], bytes]) -> None:
    try:
        tables = [(one["localFileName"], one["dfsSstFileName"], one["sizeBytes"]) for one in metadata["sstFiles"]]
    except (LookupError, TypeError) as error:
        raise ValueError(f"its metadata names no tables ({error!r})") from error
    for local, name, size in tables:
        content = table(_plain(name))
        if len(content) != size:
            raise ValueError(f"its table {name} has {len(content)} bytes instead of {size}")
        (place / _plain(local)).write_bytes(content)


def _plain(name: Any) -> str:
    """Return a name that does not lead out of its directory."""
    if not isinstance(name, str) or not name or Path(name).name != name:
        raise ValueError(f"it names a file {name!r}")
    return name


def _rows(place: Path) -> dict[bytes, bytes]:
    """Return all rows of the RocksDB in a directory."""
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(False)
    try:
        families = rocksdict.Rdict.list_cf(str(place))
        # Given for each family: otherwise they would be taken from the OPTIONS file, which no checksum protects.
        each = dict.fromkeys(families, options)
        engine: Any = rocksdict.Rdict(str(place), options, each, rocksdict.AccessType.read_only())
        try:
            return _walked(engine)
        finally:
            engine.close()
    except Exception as error:  # rocksdict raises nothing more special
        if type(error) is not Exception:
            raise
        raise ValueError(f"RocksDB cannot read it ({str(error).replace(f'{place}/', '')})") from error


def _walked(engine: Any) -> dict[bytes, bytes]:
    rows = {}
    walk = engine.iter()
    walk.seek_to_first()
    while walk.valid():
        rows[walk.key()] = walk.value()
        walk.next()
    walk.status()  # without it, a damaged block would be the end of the rows
    return rows
