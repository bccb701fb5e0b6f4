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


def standing_of(inspector: StateInspector, query: InspectedQuery, batch: int) -> Place:
    """Where a query stands after its last micro-batch.

    Raises:
        MillpondError: the checkpoint cannot be read, as ``StateInspector.stores`` says.
    """
    checkpoint = inspector.checkpoint
    mine = [one for one in checkpoint.manifests(batch) if one.application_id == query.history.application_id]
    committed = Committed(batch, mine, partial(checkpoint.chosen, None))
    return Place(committed, Standing(query.record, dict(query.manifests)))
