"""``Continuation``: the steps that make a checkpoint which goes on where another one stands.

Rule of this module: the order of things. The new checkpoint is built as a draft beside its place and then renamed; it
counts once it is there and the draft is not. So a process that dies at any step leaves nothing that counts, and the
next one begins anew. The old checkpoint is only read.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from posixpath import basename
from typing import Final, TypeAlias

from millpond.adapters.spark.continuation.files import CheckpointFiles
from millpond.adapters.spark.continuation.logs import CheckpointLogs, committed_after, continued_commit
from millpond.adapters.spark.continuation.sources import origins_of
from millpond.errors import ConcurrentJobError, DurabilityError, PlaceTakenError

VoidBatch: TypeAlias = Callable[[str], Sequence[str]]
"""Has Spark run the micro-batch that a checkpoint has planned, and tells what Spark calls each of its sources."""

_SNAPSHOT: Final = re.compile(r"1((?:_[^.]*)?\.zip(?:\.crc)?)")
"""The first micro-batch's files in a state store without a changelog; releases with checksums keep them beside."""

_METADATA: Final = "_metadata/v2"


@dataclass(frozen=True)
class Continuation:
    """A checkpoint that goes on where another one stands.

    Attributes:
        files: the file system of both.
        old, new: their locations, qualified.
    """

    files: CheckpointFiles
    old: str
    new: str

    @classmethod
    def between(cls, files: CheckpointFiles, old: str, new: str) -> "Continuation":
        """Return the continuation of the checkpoint at ``old``, to be made at ``new``.

        Raises:
            ConfigurationError: they are the same place, or one is within the other.
        """
        places = [files.qualified(old), files.qualified(new)]
        if f"{places[0]}/".startswith(f"{places[1]}/") or f"{places[1]}/".startswith(f"{places[0]}/"):
            raise PlaceTakenError(
                f"the checkpoint {old} cannot be continued at {new}; give into=... a new place beside it, of which "
                "neither is within the other"
            )
        return cls(files, *places)

    @property
    def draft(self) -> str:
        """The path at which the new checkpoint is built."""
        return f"{self.new}.millpond-draft"

    def is_made(self) -> bool:
        """Return whether the new checkpoint is there, complete.

        Raises:
            ConfigurationError: it is that of another query.
            DurabilityError: it cannot be read.
        """
        if self.files.exists(self.draft) or not self.files.exists(f"{self.new}/metadata"):
            return False
        before = f"{self.old}/metadata"
        if self.files.exists(before) and self.files.read(before) != self.files.read(f"{self.new}/metadata"):
            raise PlaceTakenError(
                f"there is a checkpoint at {self.new} that does not continue {self.old}, but is that of another query; "
                "give into=... a place where nothing is, or give the checkpoint that this one goes on for"
            )
        return True

    def make(
        self,
        occurrences: Sequence[int],
        partitions: int,
        run_void_batch: VoidBatch,
        declared: Mapping[int, int | None] | None,
        after: Collection[int] = (),
    ) -> None:
        """Make the new checkpoint, which stands after the last committed micro-batch of the old one.

        Args:
            occurrences: the number of each source of the query, wherever the plan reads it; one that is read twice is
                there twice.
            partitions: the shuffle partitions of the query.
            run_void_batch: runs the query's micro-batch without rows, which makes the empty state of its operators.
            declared: for each source the old one that it continues, as far as it has to be said.
            after: the micro-batches after which state was carried over, which have to be the last one.

        Raises:
            ConfigurationError: there is nothing to continue, the new place is taken, or sources have to be declared.
            StateConflictError: a micro-batch was committed since state was carried over.
            DurabilityError: the file system failed, or Spark's state is not as it should be.
        """
        old = CheckpointLogs.read(self.files, self.old)
        if passed := sorted(set(after) - {old.last}):
            raise ConcurrentJobError(
                f"state was carried over after micro-batch {passed[0]} of the checkpoint {self.old}, which stands at "
                f"{old.last} by now: a job goes on there. Stop it, and build this one again"
            )
        self._begin_anew(old.last)
        self.files.write(f"{self.draft}/metadata", old.identity)
        nothing = old.offsets[old.last].continued([None] * len(occurrences), partitions)
        self.files.write(f"{self.draft}/offsets/0", nothing.text())
        sources = run_void_batch(self.draft)
        if len(sources) != len(set(occurrences)):
            raise DurabilityError(f"Spark reads the sources {sources}, but the plan has {len(set(occurrences))}")
        origins = origins_of(sources, old, declared)
        self._renumber_state(old.last)
        self._copy_sources(origins)
        self._write_logs(old, [origins[source] for source in occurrences], partitions)
        self.files.rename(self.draft, self.new)

    def _begin_anew(self, last: int) -> None:
        """Remove what an earlier attempt has left."""
        files = self.files
        if files.files(self.new) or files.directories(self.new):
            if not files.exists(self.draft):
                raise PlaceTakenError(f"there are files at {self.new} already; give into=... a place without any")
            if committed_after(files, self.new, last):
                raise PlaceTakenError(
                    f"the checkpoint {self.new} is in use, but {self.draft} beside it says that it is not complete; "
                    "delete that directory if the query at the former is sound, or else give into=... another place"
                )
        files.delete(self.new)  # before the draft, whose absence would make it count
        files.delete(self.draft)

    def _renumber_state(self, last: int) -> None:
        """Make the empty state that of the micro-batch ``last``. Spark's version of state is one more than that."""
        state = f"{self.draft}/state"
        for operator in self.files.directories(state):
            for part in self.files.directories(f"{state}/{operator}"):
                if part.isdecimal():
                    self._renumber_stores(f"{state}/{operator}/{part}", last + 1)
            self._renumber_metadata(f"{state}/{operator}/{_METADATA}", last)

    def _renumber_stores(self, directory: str, version: int) -> None:
        for name in self.files.files(directory):
            snapshot = _SNAPSHOT.fullmatch(name)
            if snapshot is None:
                raise DurabilityError(
                    f"{directory}/{name} is no snapshot of Spark's RocksDB state store; set up the session with "
                    "millpond.adapters.spark.configure(spark), and run it again"
                )
            if version > 1:
                self.files.rename(f"{directory}/{name}", f"{directory}/{version}{snapshot[1]}")
        for store in self.files.directories(directory):
            if store != "SSTs" and not store.startswith("_"):
                self._renumber_stores(f"{directory}/{store}", version)

    def _renumber_metadata(self, directory: str, last: int) -> None:
        """Write the new paths into metadata, because Spark finds the schemas of an operator's state by full paths."""
        for name in self.files.files(directory):
            text = self.files.read(f"{directory}/{name}")
            moved = text.replace(f"{self.draft}/", f"{self.new}/")
            if f"{basename(self.draft)}/" in moved:
                raise DurabilityError(f"{directory}/{name} names schemas elsewhere than below {self.draft}: {text}")
            self.files.delete(f"{directory}/{name}")
            self.files.write(f"{directory}/{last}", moved)

    def _copy_sources(self, origins: Sequence[int | None]) -> None:
        """Copy what each source remembers, such as the files that it has read."""
        self.files.delete(f"{self.draft}/sources")
        for source, origin in enumerate(origins):
            before = f"{self.old}/sources/{origin}"
            if origin is not None and self.files.exists(before):
                self.files.copy(before, f"{self.draft}/sources/{source}")

    def _write_logs(self, old: CheckpointLogs, origins: Sequence[int | None], partitions: int) -> None:
        made = self.files.read(f"{self.draft}/commits/0")
        for log in ("commits", "offsets"):
            self.files.delete(f"{self.draft}/{log}")
        for batch, offsets in old.offsets.items():
            text = offsets.continued(origins, partitions).text()
            self.files.write(f"{self.draft}/offsets/{batch}", text)
        self.files.write(f"{self.draft}/commits/{old.last}", continued_commit(old.commit, made))
