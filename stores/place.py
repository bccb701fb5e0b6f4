"""Where one store of one task is kept, and how it is opened there.

Rule of this module: every driver opens stores through a ``StorePlace``, so the choice of the backend, the layout of
directories, migrations and refusals are the same for all of them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from millpond.stores.backend import Backend, BackendSupplier
from millpond.stores.directory import store_directory
from millpond.stores.migration import older_versions, open_directory
from millpond.stores.registry import supplier
from millpond.stores.specs import StoreSpec


@dataclass(frozen=True)
class StorePlace:
    """One store of one task.

    Attributes:
        spec: the store.
        supplier: the backend that keeps it.
        directory: where a persistent backend keeps its files.
    """

    spec: StoreSpec
    supplier: BackendSupplier
    directory: Path

    @classmethod
    def of(
        cls, spec: StoreSpec, default: BackendSupplier, *, local_dir: Path, application_id: str, task_id: str
    ) -> Self:
        """The place of a store on the backend that its spec names, or on ``default``. Nothing is made or read.

        Raises:
            ConfigurationError: the application's or the task's id is not a plain file name.
            UnknownBackendError, BackendNotInstalledError: the spec names a backend that cannot be had.
        """
        chosen = default if spec.backend is None else supplier(spec.backend)
        return cls(spec, chosen, store_directory(local_dir, application_id, task_id, chosen.name, spec))

    def directories(self) -> list[Path]:
        """Where the backend may have files: the directory, then those of the formats that it can be migrated from."""
        others = older_versions(self.spec.format_version)
        return [self.directory, *(self.directory.with_name(other.directory_name(self.spec.name)) for other in others)]

    def open(self) -> Backend:
        """The backend with the store's rows, in the format that the spec asks for; see ``open_directory``.

        Raises:
            FormatError: the directory is in a format version that is unknown, or later than the store's kind.
            BackendInUseError: somebody else has it open, and the engine does not share it.
            CorruptStoreError: the files are damaged.
        """
        return open_directory(self.supplier, self.directory, self.spec)
