"""The files of a checkpoint, where Spark has them: through Hadoop's ``FileSystem``, as the session is set up for it.

Rule of this module: it moves files and does not know what they mean. Hadoop keeps the checksum files of a local file
system in step, and does not show them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from millpond.adapters.backup.copied_files import CopiedFiles
from millpond.adapters.spark.session.session import check_has_jvm
from millpond.errors import StorageError
from millpond.masking import masked
from millpond.stores.durability.storage.uris import shown

_Result = TypeVar("_Result")


class CheckpointFiles(CopiedFiles, Protocol):
    """The file operations that continuing a checkpoint needs; whole directories are copied and deleted like files."""

    def rename(self, source: str, target: str) -> None:
        """Give a file or directory another name, which is free."""


@dataclass(frozen=True)
class HadoopFiles:
    """``CheckpointFiles`` on whatever file system the session's Hadoop configuration knows.

    Attributes:
        session: a classic session; one of Spark Connect has no JVM here.
    """

    session: SparkSession

    @classmethod
    def of(cls, session: SparkSession) -> Self:
        """Return the files that a session reaches.

        Raises:
            ConfigurationError: the session is one of Spark Connect.
        """
        check_has_jvm(session, "the files of a checkpoint")
        return cls(session)

    def qualified(self, path: str) -> str:
        system, place = self._open(path)
        return str(system.makeQualified(place).toString())

    def exists(self, path: str) -> bool:
        system, place = self._open(path)
        return bool(_translated("look for", path, lambda: system.exists(place)))

    def files(self, directory: str) -> Sequence[str]:
        return sorted(str(one.getPath().getName()) for one in self._entries(directory) if one.isFile())

    def directories(self, directory: str) -> Sequence[str]:
        return sorted(str(one.getPath().getName()) for one in self._entries(directory) if one.isDirectory())

    def read(self, path: str) -> str:
        system, place = self._open(path)

        def content() -> bytes:
            stream = system.open(place)
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

        return _translated("read", path, content).decode()

    def write(self, path: str, text: str) -> None:
        system, place = self._open(path)

        def put() -> None:
            stream = system.create(place, False)
            try:
                stream.write(bytearray(text.encode()))
            finally:
                stream.close()

        _translated("write", path, put)

    def copy(self, source: str, target: str) -> None:
        (system, place), (other, there) = self._open(source), self._open(target)
        copying = self._jvm.org.apache.hadoop.fs.FileUtil.copy
        _translated("copy", source, lambda: copying(system, place, other, there, False, self._configuration))

    def rename(self, source: str, target: str) -> None:
        (system, place), (_, there) = self._open(source), self._open(target)
        if not _translated("rename", source, lambda: system.rename(place, there)):
            raise StorageError(f"cannot rename {source} to {target}; see that both may be written, and run it again")

    def delete(self, path: str) -> None:
        system, place = self._open(path)
        _translated("delete", path, lambda: system.delete(place, True))

    def _entries(self, directory: str) -> Sequence[Any]:
        system, place = self._open(directory)
        if not self.exists(directory):
            return ()
        return list(_translated("list", directory, lambda: system.listStatus(place)))

    def _open(self, path: str) -> tuple[Any, Any]:
        place = self._jvm.org.apache.hadoop.fs.Path(path)
        return _translated("reach", path, lambda: place.getFileSystem(self._configuration)), place

    @property
    def _jvm(self) -> Any:
        return self.session._jvm

    @property
    def _configuration(self) -> Any:
        return self.session._jsparkSession.sessionState().newHadoopConf()


def _translated(what: str, path: str, act: Callable[[], _Result]) -> _Result:
    try:
        return act()
    except Py4JJavaError as error:
        raise StorageError(
            f"cannot {what} {shown(path)}: {masked(error.java_exception.toString())}; see to the free space, the "
            "permissions or the connection, and run it again"
        ) from None
