"""The place in which one store of one task is kept and opened.

Rule of this module: every driver opens stores through a ``StoreLocation``, so the choice of the backend, the layout of
directories, migrations and refusals are the same for all of them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from millpond.errors import LocalDirectoryError
from millpond.stores.backend.contract import Backend, BackendSupplier
from millpond.stores.backend.own_files import NOT_OURS, refuse_links
from millpond.stores.backend.registry import supplier
from millpond.stores.specs.directory import store_directory
from millpond.stores.specs.formats import FormatVersion
from millpond.stores.specs.migration import older_versions, open_as, open_directory, usable_as
from millpond.stores.specs.store_spec import StoreSpec


@dataclass(frozen=True)
class StoreLocation:
    """One store of one task.

    Attributes:
        spec: the store.
        supplier: the backend that keeps it.
        directory: the directory of a persistent backend's files.
        levels: the number of parts of that path that are Millpond's own; directories above them may be links.
    """

    spec: StoreSpec
    supplier: BackendSupplier
    directory: Path
    levels: int = 1

    @classmethod
    def of(
        cls, spec: StoreSpec, default: BackendSupplier, *, local_dir: Path, application_id: str, task_id: str
    ) -> Self:
        """Return the place of a store on the backend that its spec names, or on ``default``. Nothing is made or read.

        Raises:
            ConfigurationError: the application's or the task's id is not a plain file name.
            UnknownBackendError, BackendNotInstalledError: the spec names a backend that cannot be had.
        """
        chosen = default if spec.backend is None else supplier(spec.backend)
        directory = store_directory(local_dir, application_id, task_id, chosen.name, spec)
        return cls(spec, chosen, directory, len(directory.relative_to(local_dir).parts))

    def directories(self) -> list[Path]:
        """Return the directories that may hold the backend's files: its own, then those of formats to migrate from."""
        return [self.directory, *map(self._directory_of, older_versions(self.spec.format_version))]

    def others(self) -> list[tuple[FormatVersion, Path]]:
        """Return the existing directories of versions with other rows, such as those of another kind of store."""
        if not self.supplier.persistent:
            return []
        content = self.spec.format_version.content
        others = (version for version in FormatVersion if version.content is not content)
        return [(version, path) for version in others if (path := self._directory_of(version)).is_dir()]

    def refuse_links(self) -> None:
        """Refuse to look for the store's files behind a link.

        Raises:
            StoreError: a directory on the way to them, or their own, is a link.
        """
        try:
            if self.supplier.persistent:
                refuse_links(self.directory, self.levels)
        except OSError as error:
            raise LocalDirectoryError(f"{error.filename} {NOT_OURS}") from error

    def open(self) -> Backend:
        """Return the backend with the store's rows, in the format that the spec asks for; see ``open_directory``.

        Raises:
            StoreError: a link is in the way.
            FormatError: the directory is in a format version that is unknown, or later than the store's kind.
            BackendInUseError: another process or handle has it open, and the engine does not share it.
            CorruptStoreError: the files are damaged.
        """
        self.refuse_links()
        return open_directory(self.supplier, self.directory, self.spec)

    def older(self) -> FormatVersion | None:
        """Return the version of an existing directory that can be used instead of the spec's; None if there is none."""
        if not self.supplier.persistent or self.directory.is_dir():
            return None
        wanted = self.spec.format_version
        there = (other for other in older_versions(wanted) if self._directory_of(other).is_dir())
        return next((other for other in there if usable_as(other, wanted)), None)

    def open_older(self, version: FormatVersion) -> Backend:
        """Return the backend with the store's rows in the directory of ``version``, which stays as it is.

        Raises:
            BackendInUseError: another process or handle has it open, and the engine does not share it.
            CorruptStoreError: the files are damaged.
        """
        wanted, directory = self.spec.format_version, self._directory_of(version)
        return open_as(self.supplier, directory, version, wanted, self.spec.name)

    def _directory_of(self, version: FormatVersion) -> Path:
        return self.directory.with_name(version.directory_name(self.spec.name))
