"""The matches of a row of a ``stream_join``, explained.

Rule of this module: it compares the time of one row with those of all rows of its key, as the verb's page says.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from millpond.processors.options.joins import JoinType, Side
from millpond.processors.verbs.matching.explanation import Candidate, MatchExplanation
from millpond.processors.verbs.matching.matching import (
    Asked,
    Matching,
    PackedSide,
    Telling,
    differing,
    forgotten,
    instant,
    length,
)
from millpond.processors.verbs.matching.retained import Retained, Stored
from millpond.processors.verbs.verb import PackedRows


@dataclass(frozen=True)
class StreamMatching(Matching):
    """The rules of a ``stream_join``. Lengths of time are microseconds.

    Attributes:
        inputs: the inputs, by role.
        stores: by role, the store that has its rows.
        shown: by role, the columns of its rows that are shown.
        join_type: says which rows have a result.
        before, after: how much older, and how much newer, than the left row the right one may be.
        reach: reads both bounds of packed left rows, if rows have their own; None if they do not.
    """

    inputs: Mapping[str, PackedRows]
    stores: Mapping[str, str]
    shown: Mapping[str, Sequence[str]]
    join_type: JoinType
    before: int
    after: int
    reach: Callable[[Any], Any] | None = None

    @property
    def needs(self) -> Sequence[str]:
        return () if self.reach is None else self.shown["left"]

    def explain(self, asked: Asked, retained: Retained) -> MatchExplanation:
        right_only = self._is_right_only(asked)
        mine, theirs = ("right", "left") if right_only else ("left", "right")
        side = asked.sides[mine]
        if side.time is None:
            return MatchExplanation(asked.verb, asked.row, None, (), "the row has no time, so nothing is a match")
        kept = retained.of_key(self.stores[theirs], side.key)
        telling = Telling(theirs, self.inputs[theirs].rows, self.shown[theirs], self.inputs[theirs].times, side.time)
        found = [self._candidate(one, side, telling) for one in kept.rows]
        ahead = max(self.before, self.after)
        notes = list(forgotten(kept.since, side.time - ahead, self.inputs[theirs].times))
        matches = sum(one.won for one in found)
        if not right_only:
            found, changed = self._with_mate(asked, found)
            notes += changed
        time = instant(side.time, self.inputs[mine].times)
        return MatchExplanation(asked.verb, asked.row, time, tuple(found), self._verdict(matches, theirs), tuple(notes))

    def _is_right_only(self, asked: Asked) -> bool:
        """Return whether it is a row of the right side that has come out without a left one."""
        left, right = asked.sides["left"], asked.sides.get("right")
        keeps = self.join_type.keeps(Side.RIGHT)
        return keeps and left.time is None and right is not None and right.time is not None

    def _candidate(self, one: Stored, side: PackedSide, telling: Telling) -> Candidate:
        assert side.time is not None
        if telling.side == "right":
            before, after = self._bounds(self.inputs["left"].rows.pack(side.columns)[0])
            behind = side.time - one.time
        else:
            before, after = self._bounds(one.value)
            behind = one.time - side.time
        why = self._why(behind, before, after)
        return telling.stored(one, why or "within the bounds", won=not why)

    def _bounds(self, left: bytes) -> tuple[int, int]:
        """Return how much older, and how much newer, than a left row its matches may be."""
        if self.reach is None:
            return self.before, self.after
        back, ahead = self.reach(pa.array([left], pa.binary()))
        return int(back[0]), int(ahead[0])

    def _why(self, behind: int, before: int, after: int) -> str:
        """Return why a right row that is so much older than the left one is no match; nothing if it is one."""
        if before + after < 0:
            return "the bounds of the left row hold nothing"
        if behind > before:
            return f"the right row is too old by {length(behind - before)}"
        return f"the right row is too new by {length(-behind - after)}" if -behind > after else ""

    def _verdict(self, matches: int, theirs: str) -> str:
        if not matches:
            return f"no match: no {theirs} row of its key that the state has is within the bounds"
        rows = f"{matches} {theirs} {'row is' if matches == 1 else 'rows are'} within the bounds"
        if self.join_type is JoinType.SEMI:
            return f"{rows}; the join shows the left row once"
        return f"{rows}; the join shows only rows without any" if self.join_type is JoinType.ANTI else rows

    def _with_mate(self, asked: Asked, found: list[Candidate]) -> tuple[list[Candidate], list[str]]:
        """Return the candidates, among them the match in the row, and differences from what the state would give."""
        came = asked.sides.get("right")
        if came is None or not self.join_type.shows_right or not self.shown["right"]:
            return found, []
        (given,) = came.columns.to_pylist()
        mates = [one for one in found if one.won and one.row is not None and not differing(one.row, given)]
        if mates:
            told = [replace(one, why=f"{one.why}, and in this row") if one is mates[0] else one for one in found]
            return told, []
        if any(given[name] is not None for name in self.shown["right"]):
            return found, ["the right row that it came out with is not among those that the state has"]
        late = any(one.won for one in found)
        return found, ["the row came out without a match; a right row has come since"] if late else []
