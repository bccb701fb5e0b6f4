"""The storage of durable files: a place that every worker can reach, through ``pyarrow.fs``.

Rule of this module: it moves bytes and does not know what they mean. Paths are relative to the storage's root and
use ``/``. A file is written once, under a name that nobody else uses, and never changed. Once it is written it
survives a loss of power; on a local file system that takes syncing (``millpond.stores.durability.storage.sync``).
There, no symbolic link below the root is followed.
"""

import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from posixpath import join
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit
from uuid import uuid4

from pyarrow import fs

from millpond.errors import DurabilityError, InvalidOptionError, MissingFileError, StateDirectoryError, StorageError
from millpond.masking import quoted
from millpond.stores.backend.own_files import FOLLOWED_NOT, first_link, is_link
from millpond.stores.durability.storage.connections import Connection, connect
from millpond.stores.durability.storage.sync import directory_is_new, sync_file
from millpond.stores.durability.storage.uris import shown

_HADOOP_SCHEMES = {"s3a": "s3", "s3n": "s3"}
_SYNC_VALUES = {"true": True, "false": False}
_DROP_CHUNK = 1 << 24
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
"""The error numbers of file systems without hard links."""


class StoredFile(NamedTuple):
    """A file in a listing: its path below the storage's root, its size, and the time of its last write."""

    path: str
    size: int
    modified_ms: int


@dataclass(frozen=True, repr=False)
class Storage:
    """A directory on a file system or object store. It can be pickled; each process makes its own connection.

    Build it with ``from_uri``.

    Attributes:
        uri: its path or URI.
        sync: whether files on a local file system are synced; other file systems keep what they have taken.
    """

    uri: str
    sync: bool = field(default=True, kw_only=True)

    @classmethod
    def from_uri(cls, uri: str | Path) -> Self:
        """Return the storage at a path or URI: local, ``s3://``, ``gs://``, ``hdfs://``, ``abfs://``, or fsspec's.

        Options of the file system go into the URI: the options of ``s3://`` are the attributes of
        ``millpond.stores.durability.storage.s3.S3Options``, the others are those of ``pyarrow.fs.FileSystem.from_uri``.
        A local directory takes ``file:///directory?sync=false``: its files are not synced, which saves some of the time
        of a commit, and a loss of power may cost commits that were kept.

        Raises:
            ConfigurationError: no file system is known for the URI, or it cannot be reached.
        """
        text = str(uri)
        if not isinstance(uri, str | Path) or not text:
            raise StateDirectoryError(
                f"the state directory is {uri!r}; give a path or a URI such as s3://bucket/prefix"
            )
        scheme, separator, rest = text.partition("://")
        if not separator:
            storage = cls(str(Path(text).absolute()))
        elif scheme == "file":
            place, sync = _without_sync(text)
            storage = cls(place, sync=sync)
        else:
            storage = cls(_HADOOP_SCHEMES.get(scheme, scheme) + separator + rest)
        storage._connect()
        return storage

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown(self.uri)!r})"

    def _connect(self) -> Connection:
        return connect(self.uri)

    def _locate(self, path: str) -> tuple[Any, str]:
        """Return the file system, and the location of ``path`` on it, no part of which is a link.

        Raises:
            DurabilityError: a part is a link; the root itself may be one.
        """
        connection = self._connect()
        if connection.local:
            self._refuse_links(connection.root, path)
        return connection.filesystem, join(connection.root, path)

    def _locate_name(self, path: str) -> tuple[Any, str]:
        """Return the same for a path to be replaced, deleted or looked at by name, as is done to a link itself."""
        connection = self._connect()
        directory = path.rpartition("/")[0]
        if connection.local and directory:
            self._refuse_links(connection.root, directory)
        return connection.filesystem, join(connection.root, path)

    def _refuse_links(self, root: str, path: str) -> None:
        link = first_link(root, path)
        if link is not None:
            raise StorageError(
                f"{link} is {FOLLOWED_NOT}; put what it leads to in its place, or delete it if it is a stranger's"
            )

    @property
    def remote(self) -> bool:
        """True if it answers more slowly than a local file system, so that several questions at once pay off."""
        return not self._connect().local

    @property
    def place(self) -> str:
        """The id, of 16 hexadecimal digits, of its location, whatever options and secrets the URI has."""
        if "://" not in self.uri:
            return _digest(f"//{self.uri.rstrip('/')}")
        uri = urlsplit(self.uri)
        secrets, _, host = uri.netloc.rpartition("@")
        # The container of an abfs URI stands where others have a user; secrets come in pairs.
        netloc = host if ":" in secrets else uri.netloc
        if uri.scheme == "file":  # the same as by its path
            return _digest(f"//{netloc}{unquote(uri.path).rstrip('/')}")
        return _digest(f"{uri.scheme}//{netloc}{uri.path.rstrip('/')}")

    def describe(self, path: str) -> str:
        """Return the full name of a file, for messages: without options and secrets of the URI."""
        return join(shown(self.uri), path)

    @contextmanager
    def writing(self, path: str, *, keep: bool = False) -> Iterator[Any]:
        """A binary stream into the new file ``path``; directories above it are created. It is deleted after an error.

        Args:
            path: the file.
            keep: leave the file there if closing it fails, because others may have written the same, so that it is
                either theirs or complete.

        Raises:
            DurabilityError: the storage failed.
        """
        filesystem, location = self._locate(path)
        try:
            stream = _open_output(filesystem, location)
            try:
                yield stream
            except BaseException:
                with suppress(OSError):
                    stream.close()
                _delete_if_possible(filesystem, location)
                raise
            try:
                stream.close()
                self._make_safe(filesystem, location)
            except BaseException:
                if not keep:
                    _delete_if_possible(filesystem, location)
                raise
        except OSError as error:
            raise self._unwritable(path, error) from error

    def put(self, path: str, content: bytes) -> None:
        """Write a small file that is found by its name alone: it appears whole, or not at all.

        Raises:
            DurabilityError: the storage failed; an object store may have taken the file all the same.
        """
        connection = self._connect()
        if connection.local:
            self._name(self._drafted(path, content), path)
            return
        with self.writing(path, keep=connection.atomic) as stream:
            stream.write(content)

    def put_once(self, path: str, content: bytes) -> None:
        """Write a small file as ``put`` does, unless it is there already: then that one stays.

        If several processes do it at the same time, all of them read the same afterwards, as long as the file system is
        a local one with hard links, or has conditional puts (``s3://`` with boto3). On any other the last one wins.

        Raises:
            DurabilityError: the storage failed; an object store may have taken the file all the same.
        """
        connection = self._connect()
        if connection.put_new is not None:
            self._put_new(connection.put_new, path, content)
        elif path not in (file.path for file in self.list(path.rpartition("/")[0])):
            if connection.local:
                self._name(self._drafted(path, content), path, once=True)
            else:
                self.put(path, content)

    def _put_new(self, put_new: Callable[[str, bytes], None], path: str, content: bytes) -> None:
        try:
            put_new(self._locate(path)[1], content)
        except FileExistsError:
            return
        except OSError as error:
            raise self._unwritable(path, error) from error

    def _drafted(self, path: str, content: bytes) -> str:
        """Return the path of a complete file beside ``path``, which nobody looks for."""
        draft = f"{path}.{uuid4().hex}"
        with self.writing(draft) as stream:
            stream.write(content)
        return draft

    def _name(self, draft: str, path: str, *, once: bool = False) -> None:
        """Give a draft on a local file system its name; ``once``: if that is taken, delete the draft."""
        filesystem, location = self._locate_name(path)
        try:
            if not (once and _linked(self._locate(draft)[1], location)):
                filesystem.move(self._locate(draft)[1], location)
            self._make_safe(filesystem, location)
        except OSError as error:
            raise self._unwritable(path, error) from error

    def _make_safe(self, filesystem: Any, location: str) -> None:
        if not (self.sync and isinstance(filesystem, fs.LocalFileSystem)):
            return
        try:
            sync_file(location, self._connect().root)
        except OSError as error:
            raise OSError(
                f"it cannot be synced ({quoted(error)}); if its file system cannot do that at all, give the state "
                "directory as file:///directory?sync=false"
            ) from error

    def reading(self, path: str) -> Any:
        """Return the file ``path``, open for reading at any position.

        Raises:
            MissingFileError: there is no such file.
            DurabilityError: the storage failed.
        """
        filesystem, location = self._locate(path)
        try:
            return filesystem.open_input_file(location)
        except FileNotFoundError as error:
            quoted(error)
            raise MissingFileError(f"the file {self.describe(path)} does not exist") from error
        except OSError as error:
            raise self._unreadable(path, error) from error

    def read(self, path: str) -> bytes:
        """Return the whole content of a small file.

        Raises:
            MissingFileError: there is no such file.
            DurabilityError: the storage failed.
        """
        with self.reading(path) as file:
            try:
                content: bytes = file.read()
            except OSError as error:
                raise self._unreadable(path, error) from error
        return content

    def probe(self, path: str) -> None:
        """Read the file to its end, to tell a failing storage from a damaged file.

        Raises:
            MissingFileError: there is no such file.
            DurabilityError: the storage failed.
        """
        with self.reading(path) as file:
            try:
                while file.read(_DROP_CHUNK):
                    pass
            except OSError as error:
                raise self._unreadable(path, error) from error

    def list(self, directory: str) -> Sequence[StoredFile]:
        """Return the files directly in ``directory``, sorted by path; none if it does not exist.

        Raises:
            DurabilityError: the storage failed.
        """
        files = [info for info in self._entries(directory) if info.type == fs.FileType.File]
        return sorted(
            StoredFile(join(directory, info.base_name), info.size, (info.mtime_ns or 0) // 1_000_000) for info in files
        )

    def sizes(self, directory: str, names: Sequence[str]) -> Mapping[str, int]:
        """Return the sizes of the files ``names`` in ``directory`` that exist, by name.

        A local file system is asked for each file, however many others the directory has. Any other takes longer to
        answer than to list, so it is asked once.

        Raises:
            DurabilityError: the storage failed.
        """
        filesystem, location = self._locate(directory)
        if not isinstance(filesystem, fs.LocalFileSystem):
            wanted = {join(directory, name): name for name in names}
            return {wanted[file.path]: file.size for file in self.list(directory) if file.path in wanted}
        try:
            found: Sequence[Any] = filesystem.get_file_info([join(location, name) for name in names])
        except OSError as error:
            raise self._unlistable(directory, error) from error
        return {info.base_name: info.size for info in found if info.type == fs.FileType.File}

    def clock_ms(self, path: str) -> int:
        """Return the time by the clock that dates the files here, in milliseconds since 1970; 0 if none does.

        The new, empty file ``path`` is written for it, and deleted again.

        Raises:
            DurabilityError: the storage failed.
        """
        with self.writing(path, keep=True):
            pass
        try:
            filesystem, location = self._locate(path)
            return (filesystem.get_file_info(location).mtime_ns or 0) // 1_000_000
        except OSError as error:
            raise self._unlistable(path, error) from error
        finally:
            self.delete(path)

    def unreachable(self, directory: str) -> DurabilityError | None:
        """Return why the content of ``directory`` cannot be listed now; None if it can.

        Raises:
            DurabilityError: it is a symbolic link, which is not followed, reachable or not.
        """
        self._locate(directory)
        try:
            self._entries(directory)
        except DurabilityError as error:
            return error
        return None

    def directories(self, directory: str) -> Sequence[str]:
        """Return the names of the directories directly in ``directory``, sorted; none if it does not exist.

        Raises:
            DurabilityError: the storage failed.
        """
        found = self._entries(directory)
        return sorted(info.base_name for info in found if info.type == fs.FileType.Directory)

    def _entries(self, directory: str) -> Sequence[Any]:
        filesystem, location = self._locate(directory)
        try:
            found: Sequence[Any] = filesystem.get_file_info(fs.FileSelector(location, allow_not_found=True))
        except FileNotFoundError:  # Arrow did not find it and then asked whether it is there: made meanwhile
            return ()
        except OSError as error:
            raise self._unlistable(directory, error) from error
        return found

    def delete(self, path: str) -> None:
        """Delete a file; one that does not exist is no error.

        Raises:
            DurabilityError: the storage failed.
        """
        try:
            _delete(*self._locate_name(path))
        except OSError as error:
            raise StorageError(f"cannot delete {self.describe(path)}: {quoted(error)}") from error

    def delete_directory(self, path: str) -> None:
        """Delete a directory with all that is in it; one that does not exist is no error.

        Raises:
            DurabilityError: the storage failed.
        """
        filesystem, location = self._locate(path)
        try:
            filesystem.delete_dir(location)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(f"cannot delete {self.describe(path)}: {quoted(error)}") from error

    def delete_empty(self, path: str) -> None:
        """Delete a directory that nothing is in; any other stays.

        Raises:
            DurabilityError: the storage failed.
        """
        connection = self._connect()
        if connection.local:
            with suppress(OSError):
                os.rmdir(self._locate(path)[1])
        elif not self._entries(path):
            self.delete_directory(path)

    def is_link(self, path: str) -> bool:
        """Return whether a file or directory is a symbolic link, which only local file systems have."""
        return self._connect().local and is_link(self._locate_name(path)[1])

    def _unlistable(self, directory: str, error: OSError) -> DurabilityError:
        return StorageError(f"cannot list {self.describe(directory)}: {quoted(error)}")

    def _unwritable(self, path: str, error: OSError) -> DurabilityError:
        return StorageError(
            f"cannot write {self.describe(path)}: {quoted(error)}; check the free space, the permissions and the "
            "connection"
        )

    def _unreadable(self, path: str, error: OSError) -> DurabilityError:
        return StorageError(
            f"cannot read {self.describe(path)}: {quoted(error)}; check the permissions and the connection"
        )


def _digest(place: str) -> str:
    return sha256(place.encode()).hexdigest()[:16]


def _without_sync(uri: str) -> tuple[str, bool]:
    """Return the URI without the option ``sync``, and that option's value."""
    place, _, query = uri.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    value = options.pop("sync", "true")
    if value not in _SYNC_VALUES:
        raise InvalidOptionError(f"the state directory {shown(uri)!r} says sync={value}; say sync=true or sync=false")
    return place + ("?" + urlencode(options) if options else ""), _SYNC_VALUES[value]


def _open_output(filesystem: Any, location: str) -> Any:
    try:
        return filesystem.open_output_stream(location)
    except FileNotFoundError:
        filesystem.create_dir(location.rpartition("/")[0], recursive=True)
        directory_is_new(location)
        return filesystem.open_output_stream(location)


def _linked(draft: str, location: str) -> bool:
    """Link ``location`` to the draft and remove that; return False if the file system has no hard links."""
    try:
        os.link(draft, location)
    except FileExistsError:
        pass
    except OSError as error:
        if error.errno in _NO_LINKS:
            return False
        raise
    os.unlink(draft)
    return True


def _delete_if_possible(filesystem: Any, location: str) -> None:
    with suppress(OSError):
        _delete(filesystem, location)


def _delete(filesystem: Any, location: str) -> None:
    with suppress(FileNotFoundError):
        filesystem.delete_file(location)
