"""Versioned stores: tables that are joined as of the record's time.

Rule of this module: the engine alone has a row for each version, under key and time, and is asked for the row that is
the answer; it finds no version by itself.
"""

import random
from abc import abstractmethod
from bisect import bisect_right
from typing import Any, ClassVar, Final

from millpond.bench.rows import key_of
from millpond.bench.runs.recording import Values, Work
from millpond.bench.stores.key_values import filled, put_many_work
from millpond.bench.stores.pattern import (
    EngineSide,
    Kind,
    Opened,
    Pattern,
    Plan,
    Step,
    in_batches,
    require,
    sampled,
)
from millpond.bench.stores.sizes import Sizes
from millpond.stores.encoding.keys import pack_time
from millpond.stores.specs.store_spec import StoreKind

VERSIONS: Final = 4
"""The number of versions that each key has before."""

HOUR: Final = 3_600_000
NOW: Final = (VERSIONS - 1) * HOUR
"""The time of the latest version of each key before."""


def _row(key: str, time: int) -> bytes:
    return key.encode() + pack_time(time)


class _Versions(Pattern):
    """A store of ``keys`` rows, a few versions of each key, all of them within the history that it retains."""

    kind = StoreKind.VERSIONED
    limits: ClassVar = {"history_retention": 24 * HOUR}
    step: ClassVar[Kind]
    writes: ClassVar[bool] = False

    def plan(self, sizes: Sizes) -> Plan:
        chance = random.Random(sizes.seed)
        keys = list(map(key_of, range(max(1, sizes.keys // VERSIONS))))
        steps = [(self.step, (chance.choice(keys), self._time(chance, place))) for place in range(sizes.total)]
        before = [batch for version in range(VERSIONS) for batch in filled(keys, version * HOUR)]
        return Plan(before, *self._batches(steps, sizes))

    def _batches(self, steps: list[Step], sizes: Sizes) -> Any:
        return in_batches(steps, sizes, writes=self.writes)

    @abstractmethod
    def _time(self, chance: random.Random, place: int) -> int | None:
        """Return the time of the step at ``place``; None for the latest."""

    def work(self, store: Any, values: Values) -> dict[Kind, Work]:
        return {Kind.PUT_MANY: put_many_work(store, values), self.step: self._step_work(store, values)}

    def engine_work(self, side: EngineSide, values: Values) -> dict[Kind, Work]:
        def rows(argument: Any) -> list[tuple[bytes, bytes]]:
            return sorted((_row(key, time), values.next()) for key, time in zip(*argument, strict=True))

        return {Kind.PUT_MANY: (rows, side.engine.put_many), self.step: self._engine_step_work(side, values)}

    @abstractmethod
    def _step_work(self, store: Any, values: Values) -> Work:
        """Return how a store does the step."""

    @abstractmethod
    def _engine_step_work(self, side: EngineSide, values: Values) -> Work:
        """Return how the engine alone does the step."""

    def check(self, opened: Opened, plan: Plan) -> None:
        times = self._versions(plan)
        for key in sampled(times):
            known = sorted(times[key])
            for as_of in (known[0] - 1, known[len(known) // 2], known[-1] - 1, known[-1], None):
                found = opened.store.get(key, as_of)
                place = len(known) if as_of is None else bisect_right(known, as_of)
                valid_from = known[place - 1] if place else None
                require(None if found is None else found.timestamp, valid_from, f"{key} as of {as_of}")

    def _versions(self, plan: Plan) -> dict[str, set[int]]:
        """Return the times from which versions of each key are valid."""
        times: dict[str, set[int]] = {}
        for kind, argument in plan.steps():
            if kind is Kind.PUT_MANY:
                for key, time in zip(*argument, strict=True):
                    times.setdefault(key, set()).add(time)
            elif kind is Kind.PUT:
                times.setdefault(argument[0], set()).add(argument[1])
        return times


class _VersionedPut(_Versions):
    step = Kind.PUT
    writes = True
    engine_does = "a put of a row under key and time"

    def _step_work(self, store: Any, values: Values) -> Work:
        return (lambda at: (at[0], values.next(), at[1])), lambda version: store.put(*version)

    def _engine_step_work(self, side: EngineSide, values: Values) -> Work:
        def put(row: tuple[bytes, bytes]) -> None:
            side.pending[row[0]] = row[1]

        return (lambda at: (_row(*at), values.next())), put


class VersionedPut(_VersionedPut):
    """A changelog in order."""

    name = "versioned put"
    operation = "a put of a version that is later than all before, of a key by chance"

    def _time(self, chance: random.Random, place: int) -> int:
        return NOW + 1 + place


class LateVersionedPut(_VersionedPut):
    """A changelog out of order: each version belongs between others of its key, within the grace period."""

    name = "versioned put, late"
    operation = "a put of a version between others of its key, within the grace period"

    def _time(self, chance: random.Random, place: int) -> int:
        return chance.randrange(1, NOW)


class _VersionedGet(_Versions):
    """Single reads, as a join makes them for a record."""

    step = Kind.GET
    engine_does = "a get of the row that is the answer"

    def _step_work(self, store: Any, values: Values) -> Work:
        return (lambda at: at), lambda at: store.get(*at)

    def _engine_step_work(self, side: EngineSide, values: Values) -> Work:
        return (lambda at: _answer(*at)), side.get


class VersionedGet(_VersionedGet):
    """Joins of records that are newer than the table."""

    name = "versioned get"
    operation = "a get of the latest version of a key by chance"

    def _time(self, chance: random.Random, place: int) -> None:
        return None


class VersionedGetAsOf(_VersionedGet):
    """Joins of records that come late."""

    name = "versioned get, as of"
    operation = "a get of the version of a key by chance that was valid at a time by chance"

    def _time(self, chance: random.Random, place: int) -> int:
        return chance.randrange(NOW)


class VersionedGetManyAsOf(_Versions):
    """The work of a join with a versioned table on a micro-batch of late records."""

    name = "versioned get_many, as of"
    operation = "a row of a get_many_as_of of a batch, of keys and times by chance"
    engine_does = "the rows that are the answers, the way it reads many"
    step = Kind.GET_MANY

    def _time(self, chance: random.Random, place: int) -> int:
        return chance.randrange(NOW)

    def _batches(self, steps: list[Step], sizes: Sizes) -> Any:
        return (
            [[(self.step, tuple(map(list, zip(*(at for _, at in batch), strict=True))))] for batch in part]
            for part in in_batches(steps, sizes, writes=False)
        )

    def _step_work(self, store: Any, values: Values) -> Work:
        return (lambda at: at), lambda at: store.get_many_as_of(*at)

    def _engine_step_work(self, side: EngineSide, values: Values) -> Work:
        return (lambda at: list(map(_answer, *at))), side.engine.get_many


def _answer(key: str, as_of: int | None) -> bytes:
    """Return the row of the version that is valid then, of those that are there before."""
    return _row(key, NOW if as_of is None else as_of - as_of % HOUR)
