"""The value that Spark's state holds for a group of tasks: the manifest of each.

A group is one task, or, where verbs of a chain share an operator, one task of each of them. The value is::

    version 1   the text of the manifest of the only task
    version 2   a JSON list of the texts of the manifests of several tasks, in the order in which they run

Rule of this module: the layout of a version never changes; another one gets another number.
"""

import json
from collections.abc import Sequence
from typing import Final

from millpond.errors import DamagedRecordError, FormatError
from millpond.stores.durability.manifests.manifest import Manifest

STATE_NAME: Final = "manifest"
STATE_DDL: Final = "version int, manifest string"

OF_ONE: Final = 1
"""The version of a value with one manifest."""

_OF_SEVERAL: Final = 2


def kept_value(manifests: Sequence[Manifest]) -> tuple[int, str]:
    """Return the value that holds these manifests, at least one."""
    texts = [manifest.to_json() for manifest in manifests]
    return (OF_ONE, texts[0]) if len(texts) == 1 else (_OF_SEVERAL, json.dumps(texts))


def kept_manifests(version: int, text: str) -> list[Manifest]:
    """Return the manifests that a value in Spark's state holds.

    Raises:
        FormatError: the value or a manifest is of a version that this release does not know, or damaged.
    """
    if version not in (OF_ONE, _OF_SEVERAL):
        raise FormatError(
            f"the checkpoint holds a value of version {version}, but this release of Millpond knows versions "
            f"{OF_ONE} and {_OF_SEVERAL}; run the release that wrote it, or a newer one"
        )
    return [Manifest.from_json(one) for one in ([text] if version == OF_ONE else _texts(text))]


def _texts(text: str) -> list[str]:
    try:
        texts = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedRecordError(
            f"the checkpoint holds a damaged list of manifests ({error}): {text[:200]!r}"
        ) from error
    if not isinstance(texts, list) or not texts or not all(isinstance(one, str) for one in texts):
        raise DamagedRecordError(f"the checkpoint holds a damaged list of manifests: {text[:200]!r}")
    return texts
