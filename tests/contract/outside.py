"""A backend whose rows are not in its directory, as with a service, and such backends with one mistake each.

A directory has nothing but a file that names its store. All stores are LMDB environments below ``root``, which stands
for the service, so that other processes see them, too.
"""

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, ClassVar, Self
from uuid import UUID, uuid4

from millpond.adapters.lmdb import LmdbBackend
from millpond.errors import BackendInUseError, BackendUnavailableError, ConfigurationError, CorruptStoreError
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.backend.engine import make_directory

if TYPE_CHECKING:
    from collections.abc import Iterator


# Held as long as this module.
_default = TemporaryDirectory(prefix="service-")


class OutsideBackend(LmdbBackend):
    """The store of ``directory``."""

    def __init__(self, supplier: "OutsideSupplier", directory: Path) -> None:
        self._supplier = supplier
        super().__init__(supplier.place(directory), map_size=2**20, sync=False, readahead=True)


@dataclass(frozen=True)
class OutsideSupplier(BackendSupplier):
    """Stores below ``root``, whatever their directories are called."""

    name: ClassVar[str] = "outside"

    root: str = _default.name

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        for option in options.keys() - {"root"}:
            raise ConfigurationError(f"the backend {cls.name!r} has no option {option!r}; its options are root")
        return cls(**options)

    def open(self, directory: Path) -> OutsideBackend:
        if not Path(self.root).is_dir():
            raise BackendUnavailableError(f"the service of {directory} is not there now; try again later")
        with _named(directory):
            return OutsideBackend(self, directory)

    def destroy(self, directory: Path) -> None:
        try:
            place = str(UUID((directory / "id").read_text()))
        except (OSError, ValueError):
            return
        rmtree(Path(self.root, place), ignore_errors=True)

    def place(self, directory: Path) -> Path:
        """Return the place of the rows of a directory's store; a new directory gets a new place."""
        make_directory(directory)
        file = directory / "id"
        draft = directory / f".{uuid4()}"
        draft.write_text(str(uuid4()))
        try:
            file.hardlink_to(draft)  # of several processes the first one names it
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        return Path(self.root, str(UUID(file.read_text())))


@contextmanager
def _named(directory: Path) -> "Iterator[None]":
    try:
        yield
    except BackendInUseError as error:
        raise BackendInUseError(f"the store of {directory} is open already; close it there first") from error


class NamedByItsPath(OutsideSupplier):
    """Finds again what was under a path, although the directory is another one."""

    def place(self, directory: Path) -> Path:
        make_directory(directory)
        return Path(self.root, sha256(str(directory).encode()).hexdigest())

    def destroy(self, directory: Path) -> None:
        if directory.is_dir():
            rmtree(self.place(directory), ignore_errors=True)


class LeavesItsRows(OutsideSupplier):
    """Deletes nothing."""

    def destroy(self, directory: Path) -> None:
        return None


class DestroysAll(OutsideSupplier):
    """Deletes the rows of all stores."""

    def destroy(self, directory: Path) -> None:
        for place in Path(self.root).iterdir() if directory.is_dir() else ():
            rmtree(place, ignore_errors=True)


class DestroysNoDamagedStore(OutsideSupplier):
    """Fails where a directory is not as it was."""

    def destroy(self, directory: Path) -> None:
        if directory.is_dir():
            rmtree(Path(self.root, str(UUID((directory / "id").read_text()))), ignore_errors=True)


class TakesAbsenceForDamage(OutsideSupplier):
    """Says that a store is damaged where the service is not there."""

    def open(self, directory: Path) -> OutsideBackend:
        try:
            return super().open(directory)
        except BackendUnavailableError as error:
            raise CorruptStoreError(str(error)) from error


@contextmanager
def away(root: str) -> "Iterator[None]":
    """The service is not there."""
    place, elsewhere = Path(root), Path(f"{root}-away")
    place.rename(elsewhere)
    yield
    elsewhere.rename(place)
