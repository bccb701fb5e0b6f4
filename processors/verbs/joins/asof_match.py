"""Why a left row of an ``asof_join`` or a ``lookup_join`` has met the version that it has met.

Rule of this module: it walks through the versions of one key as the page of the verb says it, one after the other.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from millpond.processors.options.joins import AsofDirection, JoinType, Side, Unfit
from millpond.processors.verbs.matching.explanation import Candidate, MatchExplanation
from millpond.processors.verbs.matching.matching import (
    Asked,
    Matching,
    Telling,
    deletes_among,
    differing,
    forgotten,
    instant,
    length,
)
from millpond.processors.verbs.matching.retained import Kept, Retained, Stored
from millpond.processors.verbs.projections import JoinedRows, pairs
from millpond.processors.verbs.verb import PackedRows


class _Found(NamedTuple):
    """The result of the search in one direction.

    Attributes:
        version: the version; None if there is none.
        passed: the versions that were passed over on the way.
    """

    version: Stored | None
    passed: Sequence[Stored] = ()


@dataclass(frozen=True)
class AsofMatching(Matching):
    """The rules of an ``asof_join``, or a ``lookup_join``. Lengths of time are microseconds.

    Attributes:
        left, right: the inputs.
        rows: the columns of a result, also where it shows no right ones.
        join_type: says which left rows have a result.
        tolerance, exact, direction, where, unfit: as in the verb.
        corrected: whether results are a change feed, whose deletes show no right row.
    """

    left: PackedRows
    right: PackedRows
    rows: JoinedRows
    join_type: JoinType
    tolerance: int | None
    exact: bool
    direction: AsofDirection
    where: Callable[[Any, Any], Any] | None
    unfit: Unfit
    corrected: bool = False

    @property
    def needs(self) -> Sequence[str]:
        return () if self.where is None else self.left.rows.schemas.current.names

    def explain(self, asked: Asked, retained: Retained) -> MatchExplanation:
        side = asked.sides["left"]
        if side.time is None:
            return MatchExplanation(asked.verb, asked.row, None, (), "the row has no time, so nothing is a match")
        kept = retained.of_key("right", side.key)
        walk = _Walk(self, side.time, kept, self._fits(side.columns, kept.rows))
        winner, _ = walk.winner
        right = Telling("right", self.right.rows, self.rows.right_names, self.right.times, side.time)
        candidates = tuple(sorted(walk.candidates(right), key=lambda one: one.since))
        reached = side.time - (self.tolerance or 0 if self.direction.looks_back and self.unfit is Unfit.NEXT else 0)
        notes = [*forgotten(kept.since, reached, self.right.times), *self._changed(asked, winner, kept.version)]
        if kept.version is not None:
            notes.insert(0, f"the rows are those of {kept.version}")
        time = instant(side.time, self.left.times)
        return MatchExplanation(asked.verb, asked.row, time, candidates, self._verdict(walk), tuple(notes))

    def _fits(self, left: pa.Table, rows: Sequence[Stored]) -> Mapping[int, bool]:
        """Return whether each version fulfills the condition, by its time."""
        if self.where is None:
            return {one.time: True for one in rows}
        packed: Any = pa.array([self.left.rows.pack(left)[0]] * len(rows), pa.binary())
        fits = self.where(packed, pa.array([one.value for one in rows], pa.binary())) if rows else pa.array([])
        return {one.time: fit is True for one, fit in zip(rows, fits.to_pylist(), strict=True)}

    def _verdict(self, walk: "_Walk") -> str:
        winner, why = walk.winner
        if winner is None:
            return f"no match: {why}" + ("" if self.join_type.keeps(Side.LEFT) else "; the join shows no such row")
        hidden = "; the join shows only rows without one" if self.join_type is JoinType.ANTI else ""
        return f"the match is that of {instant(winner.time, self.right.times)}: {why}{hidden}"

    def _changed(self, asked: Asked, winner: Stored | None, version: str | None) -> Iterator[str]:
        """Yield differences between the row and what the state, or a version of a table, would make of it."""
        came = asked.sides.get("right")
        deleted = self.corrected and asked.row.get("op") == "delete"
        if came is None or deleted or not self.join_type.shows_right:
            return
        left: Any = pa.array([None], pa.binary())
        right: Any = pa.array([None if winner is None else winner.value], pa.binary())
        shown = self.rows.of_pairs(pairs(left, right))[len(self.rows.left_names) :]
        now = {name: column.to_pylist()[0] for name, column in zip(self.rows.right_names, shown, strict=True)}
        (given,) = came.columns.to_pylist()
        others = differing(now, given)
        if others:
            source, why = "the state now", "a version has come since, or has been forgotten"
            if version is not None:
                source, why = "that version of the table", "the micro-batch of the row has read another one"
            yield (
                f"the row came out with {', '.join(f'{name}={given[name]!r}' for name in others)}, but {source} has "
                f"{', '.join(f'{name}={now[name]!r}' for name in others)}: {why}"
            )


class _Walk:
    """The way through the versions of the key of one row.

    Args:
        rule: the rules of the join.
        time: the time of the row.
        kept: the versions.
        fits: by their times, whether they fulfill the condition.
    """

    def __init__(self, rule: AsofMatching, time: int, kept: Kept, fits: Mapping[int, bool]) -> None:
        self._rule, self._time, self._kept, self._rows, self._fits = rule, time, kept, kept.rows, fits
        apart = 0 if rule.exact else 1
        self._last, self._first = time - apart, time + apart
        direction = rule.direction
        self._before = self._older() if direction.looks_back else _Found(None)
        self._after = self._newer() if direction.looks_ahead else _Found(None)
        self.winner = self._winner()

    def candidates(self, right: Telling) -> Iterator[Candidate]:
        """Yield all versions and deletes, each with why it is the match or not."""
        winner, why = self.winner
        for one in self._kept.outdone:
            yield right.stored(one, "another row of its key and time counts")
        for one in self._rows:
            won = winner is not None and one.time == winner.time
            yield right.stored(one, why if won else self._why_not(one), won=won)
        for time in deletes_among(self._rows):
            hides = self._rule.direction.looks_back and self._delete() == time
            yield right.delete(time, "a delete, so nothing was valid at the row's time" if hides else "a delete")

    def _older(self) -> _Found:
        """Return the version that was valid at the row's time, behind those that are passed over."""
        passed: list[Stored] = []
        found = self._valid(self._last)
        while found is not None and self._passes(found):
            passed.append(found)
            found = self._valid(found.time - 1)
        return _Found(found, passed)

    def _newer(self) -> _Found:
        """Return the first version from the row's time on that is not passed over, within the tolerance."""
        passed: list[Stored] = []
        for one in self._rows:
            if one.time >= self._first and not self._too_far(one):
                if not self._passes(one):
                    return _Found(one, passed)
                passed.append(one)
        return _Found(None, passed)

    def _winner(self) -> tuple[Stored | None, str]:
        """Return the match and the reason for it, or the reason why there is none."""
        before, after, time = self._before.version, self._after.version, self._time
        found = before if after is None else after
        if before is not None and after is not None and after.time - time >= time - before.time:
            found = before
        if found is None:
            return None, self._nothing()
        if self._too_far(found):
            return None, f"what was valid is older than the row by {length(time - found.time)}, past the tolerance"
        if not self._fits[found.time] and self._rule.unfit is Unfit.MISS:
            return None, "where is not true of the version that was found"
        return found, self._why(found)

    def _why(self, found: Stored) -> str:
        passed = " of which where is true" if self._before.passed or self._after.passed else ""
        if self._rule.direction is AsofDirection.NEAREST:
            return f"the closest one{passed}"
        if found.time > self._time or self._rule.direction is AsofDirection.FORWARD:
            return f"the first one {'from the time of the row on' if self._rule.exact else 'after the row'}{passed}"
        if passed:
            return f"the last one up to the row{passed}"
        return "valid at the time of the row" if self._rule.exact else "valid just before the row"

    def _nothing(self) -> str:
        """Return why there is no version at all."""
        if not self._rows:
            return f"{'the state' if self._kept.version is None else 'the table'} has no version of its key"
        if self._before.passed or self._after.passed:
            return "where is true of none within the tolerance"
        if not self._rule.direction.looks_back:
            return "no version follows within the tolerance"
        deleted = self._delete()
        where = "" if deleted is None else f", as the key was deleted at {instant(deleted, self._rule.right.times)}"
        return f"nothing was valid at its time{where}" + (
            ", and no version follows within the tolerance" if self._rule.direction.looks_ahead else ""
        )

    def _why_not(self, one: Stored) -> str:
        rule, behind = self._rule, self._time - one.time
        if one in self._before.passed or one in self._after.passed:
            return "passed over: where is not true"
        if one in (self._before.version, self._after.version):
            if self._too_far(one):
                return f"past the tolerance by {length(behind - (rule.tolerance or 0))}"
            return "where is not true" if not self._fits[one.time] else "another one is closer"
        if not behind and not rule.exact:
            return "of the row's own time, which exact=False leaves out"
        if behind < 0 and not rule.direction.looks_ahead:
            return "newer than the row"
        if behind > 0 and not rule.direction.looks_back:
            return "older than the row"
        if behind < 0:
            return "past the tolerance" if self._too_far(one) else "behind another one that follows the row"
        return "was over before the row's time"

    def _valid(self, time: int) -> Stored | None:
        """Return the version that was valid then."""
        found = (one for one in self._rows if one.time <= time and (one.until is None or time < one.until))
        return next(found, None)

    def _delete(self) -> int | None:
        """Return the delete because of which nothing was valid at the row's time; None if there is none."""
        if self._valid(self._last) is not None:
            return None
        return max((time for time in deletes_among(self._rows) if time <= self._last), default=None)

    def _passes(self, one: Stored) -> bool:
        return self._rule.unfit is Unfit.NEXT and not self._fits[one.time] and not self._too_far(one)

    def _too_far(self, one: Stored) -> bool:
        most = self._rule.tolerance
        return most is not None and abs(self._time - one.time) > most
