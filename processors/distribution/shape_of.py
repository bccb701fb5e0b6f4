"""The shape of a plan's state.

Rule of this module: it describes what is compared with the existing state, and decides nothing.
"""

from millpond.processors.distribution.plan import Plan
from millpond.processors.runtime.subtopology import Subtopology
from millpond.stores.encoding.serdes import BYTES, serde
from millpond.stores.evolution.shape import Shape, StoreShape
from millpond.stores.specs.store_spec import StoreSpec


def shape_of(plan: Plan) -> Shape:
    """Return the shape of the state of a plan's tasks: the stores of all that its sink depends on."""
    stores = (_store_shape(part, spec) for part in plan.parts for spec in part.stores.values())
    return Shape(plan.partitions, tuple(stores), plan.behind)


def _store_shape(part: Subtopology, spec: StoreSpec) -> StoreShape:
    return StoreShape(
        part.index,
        spec.name,
        spec.kind,
        spec.key_serde.name,
        spec.value_serde.name,
        spec.layout,
        _record_key_serde(part) or spec.key_serde.name,
        spec.name in part.global_stores,
        spec.terms,
    )


def _record_key_serde(part: Subtopology) -> str | None:
    """Return the name of the serde by whose bytes records find their task; None if all of them go to every task."""
    own = (source for source in part.sources.values() if not source.broadcast and not source.without_window)
    return next((serde(source.consumed.key_serde or BYTES).name for source in own), None)
