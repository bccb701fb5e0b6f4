"""A query's checkpoint: its micro-batches, and the manifests that it keeps for them.

Rule of this module: it reads what Spark has committed and changes nothing, so the query may keep running.

Spark's own reader of state looks for a checkpoint below the path as URIs write it, such as ``a%20checkpoint``, and does
not find one whose path URIs write in another way. Such a checkpoint is read without it.
"""

import json
import re
from dataclasses import dataclass
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millpond.adapters.inspect.checkpoint.clone_note import NOTE, CloneNote
from millpond.adapters.inspect.checkpoint.kept_manifest import STATE_NAME, kept_manifests
from millpond.adapters.inspect.checkpoint.retained_batches import no_checkpoint, why_not_retained
from millpond.adapters.inspect.checkpoint.spark_checkpoint import SparkCheckpoint
from millpond.adapters.spark.session.session import start_coordinator
from millpond.errors import ConfigurationError, WrongCheckpointError
from millpond.masking import quoted
from millpond.stores.durability.manifests.manifest import Manifest

_ESCAPED: Final = re.compile(r"[\s%#?\"<>\\^`{|}\[\]\x00-\x1f\x7f]")
"""The characters that Java writes otherwise in the path of a URI."""
_WORKERS: Final = 4


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint of a query.

    Attributes:
        session: reads it.
        location: the query's ``checkpointLocation``.
    """

    session: SparkSession
    location: str

    def batches(self) -> list[int]:
        """Return the micro-batches that were committed and are retained, the first one first."""
        return sorted(int(name) for name in self._files("commits") if name.isdecimal())

    def last(self) -> int | None:
        """Return the last micro-batch that was committed; None if there was none yet, or if there is no checkpoint."""
        return max(self.batches(), default=None)

    def manifests(self, batch_id: int | None = None) -> list[Manifest]:
        """Return the manifests of all tasks of all operators of the query, of all its applications.

        Args:
            batch_id: after which micro-batch; None for the last one.

        Raises:
            ConfigurationError: the checkpoint has none for that micro-batch, or those of another query.
            FormatError: a manifest is damaged, or of a later release.
        """
        if not self._files("metadata"):  # asked first: some releases of Spark make what they do not find
            raise no_checkpoint(self.location)
        found = self._read(batch_id)
        if not found:
            raise self._refusal(batch_id, "it holds no state of Python tasks")
        return found

    def after(self, batch_id: int | None) -> tuple[list[Manifest], int]:
        """Return the manifests as ``manifests`` gives them, and the number of the micro-batch.

        Raises:
            ConfigurationError, FormatError: as ``manifests``.
        """
        found = self.manifests(batch_id)
        return found, self.batches()[-1] if batch_id is None else batch_id

    def newest(self) -> tuple[int | None, list[Manifest]]:
        """Return the last micro-batch that was committed, and the manifests that there are after it.

        None and no manifests if there was none yet, or if there is no checkpoint.

        Raises:
            ConfigurationError: Spark cannot read the checkpoint's state.
            FormatError: a manifest is damaged, or of a later release.
        """
        last, held = self.held()
        return last, [manifest for manifests in held.values() for manifest in manifests]

    def held(self) -> tuple[int | None, dict[int, list[Manifest]]]:
        """Return what ``newest`` returns, by the number of the operator.

        Raises as ``newest``.
        """
        last = self.last()
        return (None, {}) if last is None else (last, self._by_operator(last))

    def _read(self, batch_id: int | None) -> list[Manifest]:
        return [manifest for manifests in self._by_operator(batch_id).values() for manifest in manifests]

    def _by_operator(self, batch_id: int | None) -> dict[int, list[Manifest]]:
        if self._escaped:
            files = SparkCheckpoint.at(self.location, _WORKERS)
            return files.held(files.chosen(batch_id))
        start_coordinator(self.session)
        found: dict[int, list[Manifest]] = {}
        try:
            for operator in self._operators():
                reader = self.session.read.format("statestore").option("stateVarName", STATE_NAME)
                if batch_id is not None:
                    reader = reader.option("batchId", batch_id)
                rows = reader.option("operatorId", operator).load(self.location).select("value.*").collect()
                found[operator] = [one for row in rows for one in kept_manifests(row.version, row.manifest)]
        except PySparkException as error:
            raise self._refusal(batch_id, f"Spark says: {quoted(error)}".splitlines()[0]) from error
        if not self._files(NOTE):
            return found
        ((text,),) = self.session.read.text(f"{self.location}/{NOTE}", wholetext=True).collect()
        note = CloneNote.from_json(text)
        return {number: note.renamed(manifests) for number, manifests in found.items()}

    def of_another_query(self, reason: str) -> ConfigurationError:
        """Return the error for a checkpoint that has other state than what is looked for."""
        return WrongCheckpointError(
            f"the checkpoint {self.location} is not that of a query of this topology, application id and sink "
            f"({reason}); give the checkpointLocation of the query that transform built with them"
        )

    def foreign_operators(self) -> list[str]:
        """Return the operators that have state here and are not Millpond's, as ``1 (dedupe)``.

        Raises:
            ConfigurationError: Spark cannot read the checkpoint.
        """
        if self._escaped:
            return SparkCheckpoint.at(self.location, _WORKERS).foreign_operators()
        known = self.session.read.format("state-metadata").load(self.location)
        columns = known.select("operatorId", "operatorName", "operatorProperties").distinct()
        try:
            operators = columns.orderBy("operatorId").collect()
        except PySparkException as error:
            raise self._refusal(None, f"Spark says: {quoted(error)}".splitlines()[0]) from error
        return [
            f"{row.operatorId} ({row.operatorName})"
            for row in operators
            if _state_names(row.operatorProperties) != [STATE_NAME]
        ]

    @property
    def _escaped(self) -> bool:
        """True if Spark's reader of state does not find the checkpoint."""
        return _ESCAPED.search(self.location) is not None

    def _operators(self) -> list[int]:
        """Return the operators for Python state of the query; several applications may share a query."""
        known = self.session.read.format("state-metadata").load(self.location)
        names = known.select("operatorId", "operatorName").distinct().collect()
        return sorted(row.operatorId for row in names if row.operatorName.startswith("transformWithState"))

    def _refusal(self, batch_id: int | None, reason: str) -> ConfigurationError:
        """Return why there is nothing to read, as far as the checkpoint's files tell it."""
        refusal = why_not_retained(self.location, self.batches(), batch_id)
        return self.of_another_query(reason) if refusal is None else refusal

    def _files(self, part: str) -> list[str]:
        """Return the names of the files there; empty if there is no such place."""
        if self._escaped:
            return SparkCheckpoint.names_in(self.location, part)
        try:
            files = self.session.read.text(f"{self.location}/{part}").inputFiles()
        except PySparkException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return []
        return [path.rpartition("/")[2] for path in files]


def _state_names(properties: str | None) -> list[str]:
    """Return the names of an operator's state variables; of operators that are not for users' state, none."""
    return [str(one["stateName"]) for one in json.loads(properties or "{}").get("stateVariables", [])]
