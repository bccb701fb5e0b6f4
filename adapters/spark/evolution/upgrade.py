"""``Upgrade``: KIP-258's options for an upgrade of local copies, checked.

Rule of this module: it checks options. What an upgrade does is up to ``millpond.stores.durability``.
"""

from dataclasses import dataclass
from typing import Self

from millpond.errors import UpgradeFromError
from millpond.processors.options.choices import choice
from millpond.releases import Release, older_release
from millpond.stores.durability.copies.upgrade_mode import UpgradeMode


@dataclass(frozen=True)
class Upgrade:
    """An upgrade that is being prepared.

    Attributes:
        release: the release of Millpond whose formats stay in use, and which can read all that is written.
        mode: how the new ones are prepared.
    """

    release: Release
    mode: UpgradeMode

    @classmethod
    def of(cls, upgrade_from: str | None, upgrade_mode: str | None) -> Self | None:
        """Return the upgrade with these options; None without ``upgrade_from``, whichever the mode is (KIP-258).

        Raises:
            ConfigurationError: one of them is none that there is, or the mode is missing.

        >>> Upgrade.of("0.1.0", "in_place")
        Upgrade(release=Release(major=0, minor=1, patch=0), mode=<UpgradeMode.IN_PLACE: 'in_place'>)
        """
        mode = None if upgrade_mode is None else choice("upgrade_mode", upgrade_mode, UpgradeMode)
        if upgrade_from is None:
            return None
        release = older_release(upgrade_from)
        if mode is None:
            raise UpgradeFromError(
                f"upgrade_mode is {upgrade_mode!r}; with upgrade_from, give 'in_place' or 'roll_over', or leave "
                "both out to upgrade local copies when their tasks are first opened"
            )
        return cls(release, mode)
