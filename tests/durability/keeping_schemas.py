"""Schemas are kept at once, as a query does that is built and begins to run."""

import pyarrow as pa

from millpond.stores.durability.manifests.schema_log import keep_schemas, next_schemas
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.rows.schemas import Schemas


def evolve_schemas(storage: Storage, application_id: str, place: str, schema: pa.Schema) -> Schemas:
    """Return the history of a place's schemas with ``schema`` as its newest, which is kept."""
    after = next_schemas(storage, application_id, place, schema, {}, ())
    keep_schemas(storage, application_id, {place: after})
    return after
