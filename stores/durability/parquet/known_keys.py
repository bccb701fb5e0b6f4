"""The files of a version that can have rows of a span: those too large to know, and small ones that have some.

Rule of this module: of small files it reads the keys alone, and each file once. Most of a version's files are small
deltas, and most of them have none of the keys that are looked up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.parquet.reading import read_keys
from millpond.stores.durability.parquet.sources import FileSource
from millpond.stores.durability.parquet.spans import Span
from millpond.stores.durability.storage.durable_file import DurableFile

_SMALL: Final = 1 << 18
"""The size of a file, in bytes, up to which reading its keys is better than searching it."""


class KnownKeys:
    """The keys of one store in the small files of one version, read once they are needed.

    Args:
        source: the source of the files.
        manifest: the version.
        store: the store's name.
    """

    def __init__(self, source: FileSource, manifest: Manifest, store: str) -> None:
        self._source = source
        self._manifest = manifest
        self._store = store

    def having(self, span: Span) -> Manifest:
        """Return the version with only the files that can have a row within the span.

        Raises:
            MissingFileError, CorruptFileError, FormatError, DurabilityError: a file cannot be read.
        """
        manifest = self._manifest
        if span.whole:
            return manifest
        snapshot, parts = manifest.snapshot, manifest.parts
        base = [file for file in manifest.base if self._may_have(file, span)]
        return replace(
            manifest,
            snapshot=snapshot if base else None,
            parts=None if parts is None else parts._replace(files=tuple(base)),
            deltas=tuple(delta for delta in manifest.deltas if self._may_have(delta, span)),
        )

    def _may_have(self, file: DurableFile, span: Span) -> bool:
        keys = self._keys.get(file)
        return keys is None or any(map(span.has_any, keys))

    @cached_property
    def _keys(self) -> Mapping[DurableFile, Sequence[Any]]:
        """The keys in each small file, by row group; read in the order in which a source fetches them ahead."""
        small = (file for file in self._manifest.files if file.size <= _SMALL)
        return {file: list(read_keys(self._source, self._manifest, file, self._store)) for file in small}
