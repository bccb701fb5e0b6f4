"""``Beginning``: the files that a query keeps beside the state of its tasks, from its first row on.

Rule of this module: the process that builds a query only reads, and its workers keep here what was decided then, before
the first of them puts a row. All of them may do it, at the same time and again: each file is put under its name unless
it is there, and a file that is there must say the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from millpond.errors import ConcurrentJobError
from millpond.stores.durability.manifests.schema_log import keep_schemas
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.evolution.history import History
from millpond.stores.evolution.record import EvolutionRecord


@dataclass(frozen=True)
class Beginning:
    """The notes of one query. Travels to the workers.

    Attributes:
        storage: the place of the durable state.
        application_id: the application.
        sink: the plain name of the query's output.
        record: the record of the generation with which it goes on.
        schemas: the histories of the schemas of its rows, by place.
    """

    storage: Storage
    application_id: str
    sink: str
    record: EvolutionRecord
    schemas: Mapping[str, Schemas] = field(default_factory=dict)

    def keep(self, query: str | None = None, *, may_be_empty: bool = True) -> None:
        """Keep the claim, the record, the schemas and a note of the query, as far as they are not there.

        Args:
            query: the id of the query, from its checkpoint; None if it has none.
            may_be_empty: whether it may begin empty although other queries have state: its checkpoint is new, or holds
                state.

        Raises:
            StateConflictError: another query has begun or changed the state since this one was built, or has the state
                with which this one would go on.
            FormatError: a record or a schema is of a later release.
            DurabilityError: the storage failed.
        """
        history = History.of(self.storage, self.application_id, self.sink)
        as_built = self.record.fingerprint, self.record.shape
        known = history.begun(*as_built, keep=False).records
        if self.record.to_json() not in (record.to_json() for record in known):
            raise ConcurrentJobError(
                f"{self.storage.describe(self.application_id)} holds the state of application {self.application_id!r}, "
                f"sink {self.sink!r}, in another shape than this query was built for, as another query has begun or "
                "changed it since, or the state could not be read then; build the query again, and start one after the "
                "other"
            )
        if query is not None and not may_be_empty:
            history.check_query(query)
        history.begun(*as_built).keep_out_older_releases()
        keep_schemas(self.storage, self.application_id, self.schemas)
        if query is not None:
            history.note_query(query)
