"""Connections: from a path or URI to the file system that holds the durable files.

Rule of this module: it opens connections and moves no bytes. A connection must not be used on both sides of a fork, so
each process has its own.
"""

import os
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import fs

from millpond.errors import ConfigurationError, StateDirectoryError
from millpond.masking import know, quoted
from millpond.stores.durability.storage.s3 import SCHEME as S3
from millpond.stores.durability.storage.s3 import S3Place
from millpond.stores.durability.storage.uris import shown

_OBJECT_STORES: Final = {"s3", "gcs", "abfs"}
"""Arrow's names for file systems on which a file appears once it is closed, as a whole."""


class Connection(NamedTuple):
    """A file system and a place in it.

    Attributes:
        filesystem: Arrow's, or one like it.
        root: the place.
        put_new: writes a file unless it is there, whatever others do meanwhile, or raises a ``FileExistsError``; None
            if the file system has nothing like it.
    """

    filesystem: Any
    root: str
    put_new: Callable[[str, bytes], None] | None = None

    @property
    def local(self) -> bool:
        """True if it is the file system of this machine."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    @property
    def atomic(self) -> bool:
        """True if a file is there once it is closed, and nothing of it before."""
        return self.filesystem.type_name in _OBJECT_STORES


def connect(uri: str) -> Connection:
    """Return this process's connection.

    Raises:
        ConfigurationError: no file system is known for the URI, or it cannot be reached.
    """
    return _connection(uri, os.getpid())


@lru_cache
def _connection(uri: str, process: int) -> Connection:
    on_s3 = uri.startswith(f"{S3}://")
    know(uri)
    try:
        return Connection(*S3Place.of(uri).connect()) if on_s3 else Connection(*fs.FileSystem.from_uri(uri))
    except (OSError, ImportError, TypeError, pa.ArrowException) as error:
        if isinstance(error, pa.ArrowInvalid) and not on_s3:
            return _fsspec_connection(uri, error)
        raise _unreachable(uri, error) from error


def _fsspec_connection(uri: str, reason: Exception) -> Connection:
    try:
        url_to_fs = import_module("fsspec.core").url_to_fs
    except ImportError:
        raise StateDirectoryError(
            f"the state directory {shown(uri)!r} is on no file system that pyarrow knows "
            f"({quoted(reason)}); install fsspec (pip install fsspec) and its driver for it, or "
            "use a path, s3://, gs://, hdfs:// or abfs://"
        ) from reason
    try:
        filesystem, root = url_to_fs(uri)
    except (ValueError, ImportError, OSError) as error:
        raise _unreachable(uri, error) from error
    handler: Any = fs.FSSpecHandler
    return Connection(fs.PyFileSystem(handler(filesystem)), root)


def _unreachable(uri: str, error: Exception) -> ConfigurationError:
    return StateDirectoryError(f"the state directory {shown(uri)!r} cannot be reached: {quoted(error)}")
