"""The place at which a stopped query stands, before it is edited."""

from functools import partial
from typing import NamedTuple

from millpond.adapters.inspect.state_inspector import InspectedQuery, StateInspector
from millpond.stores.evolution.evolving import Committed
from millpond.stores.evolution.history import Standing


class Place(NamedTuple):
    """The place at which a query stands.

    Attributes:
        committed: what its checkpoint has; it tells if the query goes on meanwhile.
        standing: the generation of its state.
    """

    committed: Committed
    standing: Standing


def place_of(inspector: StateInspector, query: InspectedQuery, batch: int) -> Place:
    """Return the place at which a query stands after its last micro-batch.

    The place names no other manifests of the checkpoint than those that the query's generation knows: the others are
    other queries', which go on as they are and where they are.
    """
    committed = Committed(batch, query.held, partial(inspector.checkpoint.chosen, None), query.record.origins)
    return Place(committed, Standing(query.record, dict(query.manifests)))
