"""Where a query stands that is to be edited."""

from functools import partial
from typing import NamedTuple

from millpond.adapters.inspect.state_inspector import InspectedQuery, StateInspector
from millpond.stores.evolution.evolving import Committed
from millpond.stores.evolution.history import Standing


class Place(NamedTuple):
    """Where a query stands.

    Attributes:
        committed: what its checkpoint has; it tells if the query goes on meanwhile.
        standing: the generation of its state.
    """

    committed: Committed
    standing: Standing


def place_of(inspector: StateInspector, query: InspectedQuery, batch: int) -> Place:
    """Where a query stands after its last micro-batch.

    The checkpoint's other manifests are not told of, but those that its generation knows: they are of others, which go
    on as they are and where they are.
    """
    committed = Committed(batch, query.held, partial(inspector.checkpoint.chosen, None), query.record.origins)
    return Place(committed, Standing(query.record, dict(query.manifests)))
