"""``CloneNote``: the names under which the state of a cloned query was written, as its checkpoint tells.

Spark's state cannot be written without Spark, so the manifests in the checkpoint of a clone keep the application id of
the original until their tasks run again. A file beside them says what it is now::

    <checkpoint>/millpond-clone.json    {"version": 1, "application": "flights-b", "former": ["flights", …]}

In the state directory of the clone, each application has a note of its own for its workers
(``millpond.stores.durability.manifests.former_names``).

Rule of this module: every reader of a checkpoint sees the present names alone.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Self

from millpond.errors import DamagedRecordError
from millpond.stores.durability.manifests.former_names import under
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.storage.checked_text import read_text

NOTE: Final = "millpond-clone.json"
_VERSION: Final = 1


@dataclass(frozen=True)
class CloneNote:
    """The present and the former names of a cloned query's job.

    Attributes:
        application: its application id.
        former: the ids under which manifests of it may have been written.
    """

    application: str
    former: tuple[str, ...]

    def renamed(self, manifests: Iterable[Manifest]) -> list[Manifest]:
        """Return manifests under the present name; those of other jobs as they are."""
        return [replace(one, application_id=self._now(one.application_id)) for one in manifests]

    def cloned(self, application: str) -> "CloneNote":
        """Return the note of a clone of the clone, under another name."""
        return CloneNote(application, (*self.former, self.application))

    def _now(self, application_id: str) -> str:
        names = (under(application_id, former, self.application) for former in self.former)
        return next((name for name in names if name is not None), application_id)

    def to_json(self) -> str:
        return json.dumps({"version": _VERSION, "application": self.application, "former": self.former})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the note that ``to_json`` wrote.

        Raises:
            FormatError: it is of a version that this release does not know, or damaged.
        """
        try:
            content = json.loads(text)
            if content["version"] != _VERSION:
                raise ValueError(f"its version is {content['version']!r}, and this release knows {_VERSION}")
            return cls(read_text(content["application"]), tuple(map(read_text, content["former"])))
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            raise DamagedRecordError(
                f"{NOTE} in the checkpoint is damaged, or of a later release ({error!r}): {text[:200]!r}; put an "
                "undamaged copy back, or run the release that wrote it"
            ) from error
