"""Why a row of a ``multi_join`` is, or is no longer, what the join of its tables has.

Rule of this module: as ``table_match``, for any number of sides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from millpond.processors.options.joins import JoinType
from millpond.processors.tables.multi_join import shown_sides
from millpond.processors.verbs.joins.table_match import changed_since, latest_row, rows_of_key
from millpond.processors.verbs.matching.explanation import MatchExplanation
from millpond.processors.verbs.matching.matching import Asked, Matching, instant
from millpond.processors.verbs.matching.retained import Kept, Retained
from millpond.processors.verbs.verb import PackedRows


@dataclass(frozen=True)
class MultiMatching(Matching):
    """The rules of a ``multi_join``.

    Attributes:
        inputs: the inputs, by role, the first one first.
        shown: by role, the columns of its rows that are shown.
        types: the type of the join of each input but the first with those before it.
    """

    timed: ClassVar[bool] = False
    inputs: Mapping[str, PackedRows]
    shown: Mapping[str, Sequence[str]]
    types: Sequence[JoinType]

    @property
    def needs(self) -> Sequence[str]:
        return ()

    def explain(self, asked: Asked, retained: Retained) -> MatchExplanation:
        first = next(iter(self.inputs))
        own = asked.sides[first]
        found = {role: self._kept(role, asked, retained) for role in self.inputs}
        there = {role: latest_row(kept) is not None for role, kept in found.items()}
        joined = self._joined(there)
        rows = tuple(
            one
            for role, kept in found.items()
            for one in rows_of_key(role, self.inputs[role], self.shown[role], kept, own.time, joins=joined[role])
        )
        now = {one.side: one.row for one in rows if one.won}
        time = None if own.time is None else instant(own.time, self.inputs[first].times)
        notes = tuple(changed_since(asked, now, self.shown))
        return MatchExplanation(asked.verb, asked.row, time, rows, _verdict(there, joined), notes)

    def _kept(self, role: str, asked: Asked, retained: Retained) -> Kept:
        """Return what a side has of the key; nothing if a null in it equals nothing, and the row is of another side."""
        keys = {side.key for side in asked.sides.values()}
        side = asked.sides.get(role, asked.sides[next(iter(self.inputs))])
        if len(keys) > 1 and all(asked.row.get(name) is None for name in self.shown[role]):
            return Kept()
        return retained.of_key(role, side.key)

    def _joined(self, there: Mapping[str, bool]) -> dict[str, bool]:
        """Return, by side, whether the result shows its row, from whether there is one."""
        shown = shown_sides([np.array([one]) for one in there.values()], self.types)
        return {role: bool(one[0]) for role, one in zip(there, shown, strict=True)}


def _verdict(there: Mapping[str, bool], joined: Mapping[str, bool]) -> str:
    told = ", ".join(f"{role!r} has {'one' if one else 'none'}" for role, one in there.items())
    return f"the join has {'a row' if any(joined.values()) else 'no row'} for this key: {told}"
