"""Why rows of a join in this process have the matches that they have, by what its stores hold.

Rule of this module: it changes nothing. How joins decide is up to ``millpond.processors.verbs.matching``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from millpond.processors.calls.made import Made
from millpond.processors.calls.tables import Selection
from millpond.processors.distribution.plan import Plan
from millpond.processors.pond.frames import table_of
from millpond.processors.pond.local_stores import LocalStores
from millpond.processors.pond.sides import VerbSide
from millpond.processors.verbs.joins.asked_rows import SideColumns, asked_row, matching_of
from millpond.processors.verbs.matching.explanation import MatchExplanation
from millpond.processors.verbs.matching.retained import Kept, Retained


@dataclass(frozen=True)
class LocalRetained(Retained):
    """The stores of a verb whose operators have one task each.

    Attributes:
        plan: the plan of the verb.
        stores: the stores.
    """

    plan: Plan
    stores: LocalStores

    def of_key(self, store: str, key: bytes) -> Kept:
        part = next(part for part in self.plan.parts if store in part.stores)
        return self.stores.kept(f"{self.plan.sink}/{part.index}_0", part.stores[store], key)


def explain_match(
    made: Made, inputs: Mapping[str, VerbSide], row: Mapping[str, Any], retained: Retained
) -> MatchExplanation:
    """Explain why a row has the match that it has.

    Args:
        made: the join.
        inputs: its inputs.
        row: a row of its result, or of its left or first side.
        retained: the rows of its stores, or of a table that it looks up.

    Raises:
        ConfigurationError: the verb is no join, the row lacks a column, or has a value that does not fit its column.
        RecordError: a value cannot be kept.
    """
    matching = matching_of(made.verb)
    selections = {role: _whole(read) for role, read in made.selections.items()}
    first, left = next(iter(selections.items()))
    # The other columns of a table are not in each row of its changes.
    needed = [*left.keys, left.time] if matching.timed else left.keys
    sides = {
        role: SideColumns(
            read.foreign or read.keys, read.values, needed if role == first else (), inputs[role].schema.names
        )
        for role, read in selections.items()
    }

    def read(role: str, values: Mapping[str, Any]) -> pa.Table:
        if role in made.verb.tables:
            return table_of(role, [values], made.verb.tables[role].shown)
        side = inputs[role]
        return selections[role].of(side.prepared(table_of(role, [values], side.schema)))

    return matching.explain(asked_row(made.verb, row, sides, read), retained)


def _whole(read: Selection) -> Selection:
    """Return the same without what leaves rows out."""
    return replace(read, keyed=False, rows=replace(read.rows, present=()))
