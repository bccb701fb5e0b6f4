"""Evolution records: the shape of a query's state, and the manifests with which its tasks begin.

Rule of this module: a record is written once, and its existence is the single act that makes an evolution count. It
determines which manifest a task may have, and does nothing. Its JSON carries a version number, and a version never
changes its meaning.

Version 1::

    {"evolution":1,"generation":2,"fingerprint":"9f…/8#2@counts","shape":{…},
     "batch":41 or null,"previous":{"generation":1,"fingerprint":"5c…/4#1@counts","shape":{…}} or null,
     "origins":["commit id",…],"bases":{"1_0":"the manifest as text",…},"crc32":checksum of the text up to here and "}"}

Version 2 has ``"seeded":["store",…]`` before its checksum. It is written only if there are such stores. Version 3 also
has ``"backfill":"id"``, and is written only if there is one.

If somebody has edited the state, ``"edit":{"by":"who","at":milliseconds,"why":"text","rows":{"put counts":2,…}}``
comes last. The state does not depend on it, and releases that do not know it pass over it.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from millpond.errors import AmbiguousError, CheckpointRewoundError, DamagedRecordError, FormatError, MillpondError
from millpond.stores.durability.manifests.claim import GENERATION_MARK
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.storage.checked_text import check_text, checked_text, read_count, read_text
from millpond.stores.durability.storage.durable_file import read_id
from millpond.stores.evolution.shape import Shape

RECORD_VERSION: Final = 1
"""The version that is written as long as nothing needs a later one."""

SEEDED_VERSION: Final = 2

BACKFILL_VERSION: Final = 3

_KNOWN: Final = (RECORD_VERSION, SEEDED_VERSION, BACKFILL_VERSION)

BEGINNING: Final = 0
"""The generation of state that was never carried over to another shape."""


ERASE: Final = "erase"
"""The word of a note for rows that are gone for good."""

UNDO: Final = "undo"
"""The word of a note for an edit that is undone."""


def generation_fingerprint(fingerprint: str, generation: int, sink: str) -> str:
    """Return the fingerprint in a generation's manifests, which names the generation and the query.

    Args:
        fingerprint: the plan's: its topology and number of partitions.
        generation: its number, which is not the beginning's.
        sink: the plain name of the query's output.

    >>> generation_fingerprint("9f/4", 2, "counts")
    '9f/4#2@counts'
    """
    return f"{fingerprint}{GENERATION_MARK}{generation}@{sink}"


@dataclass(frozen=True)
class Previous:
    """The generation from which another was made.

    Attributes:
        generation: its number.
        fingerprint: the fingerprint in its manifests.
        shape: its shape.
    """

    generation: int
    fingerprint: str
    shape: Shape


@dataclass(frozen=True)
class EditNote:
    """A note of an edit of a query's state. It names no key, since an erased key must not stay here.

    Attributes:
        by: the person.
        at: the time, in milliseconds since 1970.
        why: the reason given.
        rows: the numbers of rows, by action and store, such as ``"put counts"``.
    """

    by: str
    at: int
    why: str
    rows: Mapping[str, int]

    @property
    def erases(self) -> bool:
        """True if keys were erased, so that nothing leads back."""
        return any(what.startswith(f"{ERASE} ") for what in self.rows)

    @property
    def undoes(self) -> bool:
        """True if it undid an edit."""
        return any(what.startswith(f"{UNDO} ") for what in self.rows)

    @property
    def can_be_undone(self) -> bool:
        return not (self.erases or self.undoes)

    @property
    def content(self) -> dict[str, Any]:
        """The content for JSON."""
        return {"by": self.by, "at": self.at, "why": self.why, "rows": dict(sorted(self.rows.items()))}

    @classmethod
    def from_content(cls, content: Any) -> Self:
        """Return the note whose ``content`` this is.

        Raises:
            LookupError, TypeError, ValueError: it is no note.
        """
        rows = {read_text(what): read_count(number) for what, number in content["rows"].items()}
        return cls(read_text(content["by"]), read_count(content["at"]), read_text(content["why"]), rows)


@dataclass(frozen=True)
class EvolutionRecord:
    """One generation of a query's state.

    Attributes:
        generation: the number of times that the state was carried over to another shape.
        fingerprint: the fingerprint in the manifests of this generation.
        shape: the shape of the state.
        batch: the micro-batch after which it was carried over; None if there was none.
        previous: the generation that it was made from; None for the beginning.
        origins: the commits of all manifests that the checkpoint had then.
        bases: the manifest with which each task begins, by task id; a task that is missing begins empty.
        seeded: the names of the stores that began with seeds, or, for a verb, with the rows of others; for the
            beginning, of the stores that are to begin with seeds. Places in rows that were filled later are among them
            (``place_mark``).
        backfill: the id of the backfill whose state the tasks begin with; for the beginning, of the first attempt at
            the backfill to come. None for no backfill.
        edit: the note of the edit that made the generation; None if no edit did.
    """

    generation: int
    fingerprint: str
    shape: Shape
    batch: int | None = None
    previous: Previous | None = None
    origins: frozenset[str] = frozenset()
    bases: Mapping[str, Manifest] = field(default_factory=dict)
    seeded: frozenset[str] = frozenset()
    backfill: str | None = None
    edit: EditNote | None = None

    @property
    def awaits_seeds(self) -> bool:
        """True if it is the beginning of a job whose stores are to be seeded, and nothing has run yet."""
        return self.generation == BEGINNING and bool(self.seeded)

    @property
    def awaits_backfill(self) -> bool:
        """True if it is the beginning of a job whose tasks are to begin with the state of a backfill."""
        return self.generation == BEGINNING and self.backfill is not None

    def start_of(self, task_id: str, found: Manifest | None, next_batch: int | None) -> Manifest | None:
        """Return the manifest with which a task starts a micro-batch; None for empty state.

        Args:
            task_id: the task.
            found: the manifest in Spark's state for it, or for a task of an earlier generation in its place.
            next_batch: the number of the micro-batch; None if it has none.

        Raises:
            StateConflictError: the checkpoint does not stand where this generation began, or later.
        """
        if found is not None and found.fingerprint == self.fingerprint:
            return found
        if (found is None or found.commit in self.origins) and self.applies_to(next_batch):
            return self.bases.get(task_id)
        raise CheckpointRewoundError(
            f"the checkpoint of task {task_id!r} holds the state of another topology, or stands at another micro-batch "
            f"than that after which its state was carried over to the present shape ({self._told_batch()}, generation "
            f"{self.generation}); build the query once with evolution=Evolution(checkpoint), which carries over from "
            "where the checkpoint stands, or run the old topology"
        )

    def tasks(self, found: Collection[Manifest], next_batch: int | None) -> dict[str, Manifest]:
        """Return the manifests with which all tasks start a micro-batch, by task id.

        Args:
            found: the manifests in Spark's state, of this generation and of earlier ones.
            next_batch: the number of the micro-batch.

        Raises:
            StateConflictError: as ``start_of``.
            ConfigurationError: two queries of the application share the checkpoint.
        """
        if not self.applies_to(next_batch):
            raise CheckpointRewoundError(f"the checkpoint stands before {self._told_batch()}")
        for manifest in found:
            self.start_of(manifest.task_id, manifest, next_batch)
        current = [one for one in found if one.fingerprint == self.fingerprint]
        by_task = {one.task_id: one for one in current}
        if len(by_task) < len(current):
            raise AmbiguousError(
                f"the checkpoint has the state of several sinks of application {current[0].application_id!r}, and "
                "nothing tells which is whose; go on with stores and partitions as they were, or begin anew, with "
                "another application id and a checkpointLocation for each sink"
            )
        return {**self.bases, **by_task}

    def applies_to(self, next_batch: int | None) -> bool:
        """Return whether a micro-batch is later than the one after which the state was carried over."""
        return self.batch is None or next_batch is None or next_batch > self.batch

    def leads_on(self, batch: int, left: Collection[Manifest]) -> bool:
        """Return whether it was carried over at the checkpoint's micro-batch or before, from manifests left there.

        Args:
            batch: the last micro-batch of the checkpoint.
            left: the manifests in the checkpoint with which the state went on.
        """
        return self.generation > BEGINNING and self.applies_to(batch + 1) and commits_of(left) <= self.origins

    def to_json(self) -> str:
        before = self.previous
        content: dict[str, Any] = {
            "evolution": self._version,
            "generation": self.generation,
            "fingerprint": self.fingerprint,
            "shape": self.shape.content,
            "batch": self.batch,
            "previous": None if before is None else _told(before),
            "origins": sorted(self.origins),
            "bases": {task: manifest.to_json() for task, manifest in sorted(self.bases.items())},
        }
        if self._version >= SEEDED_VERSION:
            content["seeded"] = sorted(self.seeded)
        if self._version >= BACKFILL_VERSION:
            content["backfill"] = self.backfill
        if self.edit is not None:
            content["edit"] = self.edit.content
        return checked_text(content)

    @property
    def _version(self) -> int:
        """The version in which it is written."""
        if self.backfill is not None:
            return BACKFILL_VERSION
        return SEEDED_VERSION if self.seeded else RECORD_VERSION

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the record that ``to_json`` wrote.

        Raises:
            FormatError: this release does not know the version, or the text is not a record.
        """
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _damaged(error, text) from error
        version = content.get("evolution") if isinstance(content, dict) else None
        if type(version) is not int or version not in _KNOWN:
            raise FormatError(
                f"an evolution record has version {version!r}, but this release of Millpond knows versions "
                f"{_KNOWN[0]} to {_KNOWN[-1]}; run the release that wrote it, or a newer one"
            )
        try:
            check_text(text)
            return cls._from_content(content)
        except FormatError:
            raise
        except (LookupError, TypeError, ValueError, MillpondError) as error:
            raise _damaged(error, text) from error

    @classmethod
    def _from_content(cls, content: Any) -> Self:
        before, version = content["previous"], content["evolution"]
        return cls(
            generation=read_count(content["generation"]),
            fingerprint=str(content["fingerprint"]),
            shape=Shape.from_content(content["shape"]),
            batch=None if content["batch"] is None else read_count(content["batch"]),
            previous=None if before is None else _previous(before),
            origins=frozenset(map(str, content["origins"])),
            bases={str(task): Manifest.from_json(manifest) for task, manifest in content["bases"].items()},
            seeded=frozenset(map(read_text, content["seeded"] if version >= SEEDED_VERSION else ())),
            backfill=read_id(content["backfill"]) if version >= BACKFILL_VERSION else None,
            edit=EditNote.from_content(content["edit"]) if "edit" in content else None,
        )

    def _told_batch(self) -> str:
        return "the first micro-batch" if self.batch is None else f"micro-batch {self.batch}"


def commits_of(manifests: Iterable[Manifest]) -> frozenset[str]:
    """Return the commits that made the manifests' versions."""
    return frozenset(manifest.commit for manifest in manifests)


def _told(before: Previous) -> dict[str, Any]:
    return {"generation": before.generation, "fingerprint": before.fingerprint, "shape": before.shape.content}


def _previous(content: Any) -> Previous:
    return Previous(
        read_count(content["generation"]), str(content["fingerprint"]), Shape.from_content(content["shape"])
    )


def _damaged(error: Exception, text: str) -> FormatError:
    return DamagedRecordError(f"an evolution record is damaged ({error!r}): {text[:200]!r}; put an undamaged copy back")
