"""The formats that a task writes so that an older release can follow: KIP-258's version probing by release name.

Rule of this module: it chooses numbers by ``millpond.releases`` and refuses state that no number makes readable. The
choice is in force from the next commit on. A manifest is readable once all its files are, so the first commit is a
snapshot if the last manifest is not.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from millpond.errors import UpgradeFromError
from millpond.releases import THIS_RELEASE, Numbered, Release, newest_number, oldest_reader
from millpond.stores.durability.manifests.claim import GENERATION_MARK
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.specs.store_spec import StoreSpec

WITH_A_PART: Final = 3
"""The format of a durable file that has a part of a snapshot; any other has an earlier one."""


@dataclass(frozen=True)
class FormatNumbers:
    """The numbers that a task writes.

    Attributes:
        file_format: the format of durable files that have no part of a snapshot.
        in_steps: whether files with a part may be written.
        reader: the oldest release that reads files without a part; manifests follow it.
        wanted: the release that must read them.
    """

    file_format: int
    in_steps: bool
    reader: Release
    wanted: Release

    @classmethod
    def to_be_read_by(cls, release: Release | None) -> Self:
        """Return the highest numbers that ``release`` reads; None stands for this release.

        Raises:
            ConfigurationError: it reads none.
        """
        wanted = release or THIS_RELEASE
        newest = newest_number(Numbered.DURABLE_FILE, wanted)
        if newest is None:
            raise UpgradeFromError(
                f"release {wanted} of Millpond reads no durable files; give release "
                f"{oldest_reader(Numbered.DURABLE_FILE, 1)} or a newer one"
            )
        file_format = min(newest, WITH_A_PART - 1)
        return cls(file_format, newest >= WITH_A_PART, oldest_reader(Numbered.DURABLE_FILE, file_format), wanted)

    def reads(self, manifest: Manifest) -> bool:
        """Return whether the release reads the manifest and all its files."""
        return manifest.oldest_reader <= self.wanted


def check_older_reader(release: Release, specs: Iterable[StoreSpec], *, evolved: bool) -> None:
    """Refuse a release that cannot follow, whatever the numbers.

    Args:
        release: the release that is to read the state.
        specs: the stores.
        evolved: whether the state was, or may be, carried over to another shape.

    Raises:
        ConfigurationError: a store has a layout that the release does not know, or the state has evolution records that
            it does not know.
    """
    if evolved and newest_number(Numbered.EVOLUTION_RECORD, release) is None:
        raise UpgradeFromError(
            f"release {release} knows no state that was carried over to another shape, so nothing leads back to it; "
            f"leave out upgrade_from, or give release {oldest_reader(Numbered.EVOLUTION_RECORD, 1)} or a newer one"
        )
    for spec in specs:
        if spec.layout is not None and newest_number(Numbered.LAYOUT, release) is None:
            raise UpgradeFromError(
                f"release {release} does not know the layout {spec.layout.name!r} of store {spec.name!r}, so it cannot "
                f"have written this state, and nothing leads back to it; leave out upgrade_from, or give release "
                f"{oldest_reader(Numbered.LAYOUT, spec.layout.version)} or a newer one"
            )


def is_evolved(fingerprint: str) -> bool:
    """Return whether manifests with that fingerprint belong to state that was carried over."""
    return GENERATION_MARK in fingerprint
