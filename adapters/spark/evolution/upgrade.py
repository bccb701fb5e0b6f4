"""``Upgrade``: KIP-258's options for an upgrade of local copies, checked.

Rule of this module: it checks options. What an upgrade does is up to ``millpond.stores.durability``.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from millpond.errors import ConfigurationError

_RELEASE: Final = re.compile(r"\d+\.\d+(\.\d+)?")


class UpgradeMode(StrEnum):
    """How local copies get a new format."""

    IN_PLACE = "in_place"
    """The old one stays in use, and each task prepares the new one beside it, some rows a micro-batch."""

    ROLL_OVER = "roll_over"
    """The old one stays in use, and another process warms the new one in another ``local_dir``."""


@dataclass(frozen=True)
class Upgrade:
    """An upgrade that is being prepared.

    Attributes:
        release: the release of Millpond whose formats stay in use.
        mode: how the new ones are prepared.
    """

    release: str
    mode: UpgradeMode

    @classmethod
    def of(cls, upgrade_from: str | None, upgrade_mode: str | None) -> Self | None:
        """The upgrade with these options; None without ``upgrade_from``, whatever the mode (KIP-258).

        Raises:
            ConfigurationError: one of them is none that there is, or the mode is missing.

        >>> Upgrade.of("0.1.0", "in_place")
        Upgrade(release='0.1.0', mode=<UpgradeMode.IN_PLACE: 'in_place'>)
        """
        if upgrade_from is None:
            return None
        if not isinstance(upgrade_from, str) or not _RELEASE.fullmatch(upgrade_from):
            raise ConfigurationError(f"upgrade_from is {upgrade_from!r}; give a release of Millpond such as '0.1.0'")
        if upgrade_mode not in list(UpgradeMode):
            raise ConfigurationError(
                f"upgrade_mode is {upgrade_mode!r}; with upgrade_from, give 'in_place' or 'roll_over', or leave "
                "both out to upgrade local copies when their tasks are first opened"
            )
        return cls(upgrade_from, UpgradeMode(upgrade_mode))
