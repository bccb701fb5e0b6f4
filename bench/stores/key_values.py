"""Key-value stores, plain and with timestamps: tables and aggregates without windows.

Rule of this module: the engine alone has the rows under their keys, with no timestamp in them.
"""

import random
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any, ClassVar, Final

from millpond.bench.rows import key_of
from millpond.bench.runs.recording import Values, Work
from millpond.bench.stores.pattern import (
    ENDED,
    Batch,
    EngineSide,
    Kind,
    Opened,
    Pattern,
    Plan,
    in_batches,
    require,
    sampled,
)
from millpond.bench.stores.sizes import Sizes
from millpond.stores.specs.store_spec import StoreKind

SCAN_LENGTH: Final = 100
FILL_BATCH: Final = 10_000
"""Rows of a commit while a store is filled."""


def filled(keys: Sequence[str], time: int = 0) -> list[Batch]:
    """Return batches that put each of the keys."""
    parts = (keys[start : start + FILL_BATCH] for start in range(0, len(keys), FILL_BATCH))
    return [[(Kind.PUT_MANY, (part, [time] * len(part))), ENDED] for part in parts]


def put_many_work(store: Any, values: Values, *, timed: bool = True) -> Work:
    """Return the work that puts rows as columns into a store."""

    def ready(argument: Any) -> tuple[Any, ...]:
        keys, times = argument
        made = [values.next() for _ in keys]
        return (keys, made, times) if timed else (keys, made)

    return ready, lambda columns: store.put_many(*columns)


def engine_put_many(side: EngineSide, values: Values) -> Work:
    """Return the work that puts the same rows into the engine, sorted, the way it takes many."""
    return (
        lambda argument: sorted({key.encode(): values.next() for key in argument[0]}.items()),
        side.engine.put_many,
    )


class _KeyValues(Pattern):
    """A store of ``keys`` rows, and steps on rows by chance, each of them later than all before."""

    kind = StoreKind.TIMESTAMPED_KEY_VALUE
    step: ClassVar[Kind]
    writes: ClassVar[bool] = False

    def plan(self, sizes: Sizes) -> Plan:
        chance = random.Random(sizes.seed)
        steps = [(self.step, (key_of(chance.randrange(sizes.keys)), 1 + place)) for place in range(sizes.total)]
        return Plan(filled(_keys(sizes)), *in_batches(steps, sizes, writes=self.writes))

    def work(self, store: Any, values: Values) -> dict[Kind, Work]:
        filling = put_many_work(store, values, timed=self.kind.stamped)
        return {Kind.PUT_MANY: filling, self.step: self._step_work(store, values)}

    def engine_work(self, side: EngineSide, values: Values) -> dict[Kind, Work]:
        return {Kind.PUT_MANY: engine_put_many(side, values), self.step: self._engine_step_work(side, values)}

    @abstractmethod
    def _step_work(self, store: Any, values: Values) -> Work:
        """Return how a store does the step."""

    @abstractmethod
    def _engine_step_work(self, side: EngineSide, values: Values) -> Work:
        """Return how the engine alone does the step."""

    def check(self, opened: Opened, plan: Plan) -> None:
        newest: dict[str, int] = {}
        for kind, argument in plan.steps():
            if kind is Kind.PUT_MANY:
                newest.update(zip(*argument, strict=True))
            elif self.writes and kind is self.step:
                newest.update([argument])
        require(sum(1 for _ in opened.store.scan()), len(newest), "the number of rows")
        for key in sampled(newest):
            row = opened.store.get(key)
            require(row is not None, True, f"that {key} is there")
            if self.kind.stamped:
                require(row.timestamp, newest[key], f"the timestamp of {key}")


class Put(_KeyValues):
    """A store without timestamps is written."""

    name = "put"
    operation = "a put of a row by chance, in a store without timestamps"
    engine_does = "a put"
    kind = StoreKind.KEY_VALUE
    step = Kind.PUT
    writes = True

    def _step_work(self, store: Any, values: Values) -> Work:
        put = store.put
        return (lambda at: (at[0], values.next())), lambda row: put(*row)

    def _engine_step_work(self, side: EngineSide, values: Values) -> Work:
        def put(row: tuple[bytes, bytes]) -> None:
            side.pending[row[0]] = row[1]

        return (lambda at: (at[0].encode(), values.next())), put


class Get(_KeyValues):
    """A store without timestamps is read."""

    name = "get"
    operation = "a get of a row by chance, in a store without timestamps"
    engine_does = "a get"
    kind = StoreKind.KEY_VALUE
    step = Kind.GET

    def _step_work(self, store: Any, values: Values) -> Work:
        return (lambda at: at[0]), store.get

    def _engine_step_work(self, side: EngineSide, values: Values) -> Work:
        return (lambda at: at[0].encode()), side.get


class Upsert(_KeyValues):
    """The work of a table and an aggregate on each record."""

    name = "upsert"
    operation = "a get of a row by chance and a put of a later one with its timestamp"
    engine_does = "a get and a put"
    step = Kind.UPSERT
    writes = True

    def _step_work(self, store: Any, values: Values) -> Work:
        get, put = store.get, store.put

        def upsert(row: tuple[str, bytes, int]) -> None:
            get(row[0])
            put(*row)

        return (lambda at: (at[0], values.next(), at[1])), upsert

    def _engine_step_work(self, side: EngineSide, values: Values) -> Work:
        def upsert(row: tuple[bytes, bytes]) -> None:
            side.get(row[0])
            side.pending[row[0]] = row[1]

        return (lambda at: (at[0].encode(), values.next())), upsert


class Scan(_KeyValues):
    """The work of a range query and a foreign-key join."""

    name = "scan"
    operation = f"a scan of {SCAN_LENGTH} rows from a key by chance on"
    engine_does = "the same scan"
    step = Kind.SCAN

    def _step_work(self, store: Any, values: Values) -> Work:
        return (lambda at: at[0]), lambda key: deque(islice(store.scan(key), SCAN_LENGTH), maxlen=0)

    def _engine_step_work(self, side: EngineSide, values: Values) -> Work:
        return (lambda at: at[0].encode()), lambda key: side.engine.scan(key, SCAN_LENGTH)


class _Columns(_KeyValues):
    """The same rows in steps of a whole batch each."""

    def plan(self, sizes: Sizes) -> Plan:
        chance = random.Random(sizes.seed)
        keys = [key_of(chance.randrange(sizes.keys)) for _ in range(sizes.total)]
        steps = []
        for start in range(0, sizes.total, sizes.batch):
            part = keys[start : start + sizes.batch]
            steps.append((self.step, (part, [1 + start] * len(part))))
        batches = [[step, ENDED] if self.writes else [step] for step in steps]
        first = sizes.warming // sizes.batch
        return Plan(filled(_keys(sizes)), batches[:first], batches[first:])


class PutMany(_Columns):
    """The work of a table and an aggregate on a micro-batch of rows or columns."""

    name = "put_many"
    operation = "a row of a put_many of a batch, by chance"
    engine_does = "the same rows, sorted, the way it takes many"
    step = Kind.PUT_MANY
    writes = True

    def _step_work(self, store: Any, values: Values) -> Work:
        return put_many_work(store, values)

    def _engine_step_work(self, side: EngineSide, values: Values) -> Work:
        return engine_put_many(side, values)


class GetMany(_Columns):
    """The work of a join with a table and an aggregate on a micro-batch."""

    name = "get_many"
    operation = "a row of a get_many of a batch, by chance"
    engine_does = "the same, the way it reads many"
    step = Kind.GET_MANY

    def _step_work(self, store: Any, values: Values) -> Work:
        return (lambda at: at[0]), store.get_many

    def _engine_step_work(self, side: EngineSide, values: Values) -> Work:
        return (lambda at: list(map(str.encode, at[0]))), side.engine.get_many


def _keys(sizes: Sizes) -> list[str]:
    return list(map(key_of, range(sizes.keys)))
