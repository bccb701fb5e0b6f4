"""Why a row of a ``table_join`` is, or is no longer, what the join of its tables has.

Rule of this module: the join follows the latest row of either side; older versions only tell what there was before.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from millpond.processors.options.joins import JoinType
from millpond.processors.verbs.encoding.foreign_keyed import foreign_key_of, without_foreign_key
from millpond.processors.verbs.matching.explanation import Candidate, MatchExplanation
from millpond.processors.verbs.matching.matching import (
    Asked,
    Matching,
    Telling,
    deletes_among,
    differing,
    instant,
    side_called,
)
from millpond.processors.verbs.matching.retained import Kept, Retained, Stored
from millpond.processors.verbs.verb import PackedRows


@dataclass(frozen=True)
class TableMatching(Matching):
    """The rules of a ``table_join``.

    Attributes:
        inputs: the inputs, by role.
        shown: by role, the columns of its rows that are shown.
        join_type: says which keys have a result.
    """

    timed: ClassVar[bool] = False
    inputs: Mapping[str, PackedRows]
    shown: Mapping[str, Sequence[str]]
    join_type: JoinType

    @property
    def needs(self) -> Sequence[str]:
        return ()

    def explain(self, asked: Asked, retained: Retained) -> MatchExplanation:
        side = asked.sides["left"]
        left = retained.of_key("left", side.key)
        key, why_none = self._other_key(side.key, left)
        right = Kept() if key is None else retained.of_key("right", key)
        if not left.rows and not right.rows and "right" in asked.sides:
            right = retained.of_key("right", asked.sides["right"].key)
        found = tuple(self._candidates("left", left, side.time)) + tuple(self._candidates("right", right, side.time))
        verdict = self._verdict(asked, latest_row(left), latest_row(right), why_none)
        now = {one.side: one.row for one in found if one.won}
        notes = tuple(changed_since(self._compared(asked), now, self.shown))
        time = None if side.time is None else instant(side.time, self.inputs["left"].times)
        return MatchExplanation(asked.verb, asked.row, time, found, verdict, notes)

    def _other_key(self, key: bytes, left: Kept) -> tuple[bytes | None, str]:
        """Return the key of the right row, and the reason if there is none."""
        if self.inputs["left"].foreign is None:
            return key, ""
        latest = latest_row(left)
        if latest is None:
            return None, ""
        foreign = foreign_key_of(latest.value)
        return foreign, "" if foreign is not None else "; its foreign key has a null, which equals nothing"

    def _candidates(self, side: str, kept: Kept, time: int | None) -> Iterator[Candidate]:
        return rows_of_key(side, self.inputs[side], self.shown[side], kept, time)

    def _verdict(self, asked: Asked, left: Stored | None, right: Stored | None, why_none: str) -> str:
        there = [f"the {side} side has {'one' if one else 'none'}" for side, one in (("left", left), ("right", right))]
        joins = self.join_type.joins(left, right)
        if self.inputs["left"].foreign is not None and left is None and joins:
            if self._is_of_right_row(asked):
                return (
                    "the join has a row for this right row as long as no left row names it; which ones do is not "
                    "looked up, so explain the row of one that does"
                )
            joins = False
        return f"the join has {'a row' if joins else 'no row'} for this key: {', '.join(there)}{why_none}"

    def _compared(self, asked: Asked) -> Asked:
        """Return the same without a side of which the row has nothing."""
        if self.inputs["left"].foreign is None or not self._is_of_right_row(asked):
            return asked
        return replace(asked, sides={role: side for role, side in asked.sides.items() if role != "left"})

    def _is_of_right_row(self, asked: Asked) -> bool:
        """Return whether a row of a join by foreign key has no left key, and so is a right row alone."""
        packed = self.inputs["left"]
        foreign = packed.foreign.schema.names if packed.foreign is not None else []
        return all(asked.row.get(name) is None for name in packed.keys.schema.names if name not in foreign)


def rows_of_key(
    side: str, packed: PackedRows, shown: Sequence[str], kept: Kept, time: int | None, *, joins: bool = True
) -> Iterator[Candidate]:
    """Yield the rows that a side has of a key, and its deletes between them, with the reason why each counts or not.

    Args:
        side: the role of the side.
        packed: its input.
        shown: the columns of its rows that are shown.
        kept: its rows of the key.
        time: the time of the explained row, in microseconds; None if it has none.
        joins: whether the latest of them joins.
    """
    unpacked = bytes if packed.foreign is None else without_foreign_key
    telling = Telling(side, packed.rows, shown, packed.times, time, unpacked)
    latest, deletes = latest_row(kept), deletes_among(kept.rows)
    for one in kept.rows:
        if one is latest:
            yield telling.stored(one, f"the latest row of its key{'' if joins else ', which does not join'}", won=joins)
        else:
            yield telling.stored(one, "deleted later" if one.until in deletes else "replaced by a later one")
        if one.until is not None and one.until in deletes:
            yield telling.delete(one.until, "a delete")


def changed_since(
    asked: Asked, now: Mapping[str, Mapping[str, Any] | None], shown: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Yield differences between a row and what the state would make of it now.

    Args:
        asked: the row.
        now: by role, the columns that a result has of a side now.
        shown: by role, the columns that are shown.
    """
    for role, side in asked.sides.items():
        (given,) = side.columns.to_pylist()
        row = now.get(role) or dict.fromkeys(shown[role])
        others = differing(row, {name: given[name] for name in row if name in asked.row})
        if others and asked.row.get("op") != "delete":
            yield (
                f"the row has {', '.join(f'{name}={given[name]!r}' for name in others)} of {side_called(role)}, "
                "which is not what its latest row has: another one has come since"
            )


def latest_row(kept: Kept) -> Stored | None:
    """Return the row that is there now."""
    return next((one for one in reversed(kept.rows) if one.until is None), None)
