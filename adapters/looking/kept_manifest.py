"""What Spark's state holds of a task: one small value, its manifest.

Rule of this module: the layout of the value never changes; another one gets another number and name.
"""

from typing import Final

from millpond.errors import FormatError
from millpond.stores.durability.manifest import Manifest

STATE_NAME: Final = "manifest"
STATE_DDL: Final = "version int, manifest string"
STATE_VERSION: Final = 1
"""The version of the value in Spark's state."""


def kept_manifest(version: int, text: str) -> Manifest:
    """The manifest that a value in Spark's state holds.

    Raises:
        FormatError: the value or the manifest is of a version that this release does not know, or damaged.
    """
    if version != STATE_VERSION:
        raise FormatError(
            f"the checkpoint holds a value of version {version}, but this release of Millpond knows version "
            f"{STATE_VERSION}; run the release that wrote it, or a newer one"
        )
    return Manifest.from_json(text)
