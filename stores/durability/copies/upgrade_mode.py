"""``UpgradeMode``: how local copies get a new format while those in the old one stay in use (KIP-258)."""

from enum import StrEnum


class UpgradeMode(StrEnum):
    """The place where the new format is prepared."""

    IN_PLACE = "in_place"
    """Each task prepares it beside the old one, some rows a micro-batch."""

    ROLL_OVER = "roll_over"
    """Another process warms copies in another ``local_dir`` (``millpond.stores.durability.copies.warming``)."""
