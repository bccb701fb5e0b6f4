"""``apply``: runs a ``KeyedProcessor`` over packed rows, in the order of event time.

Stream time is the greatest time of the records of a task, or of all tasks where the driver tells it. A record waits
until stream time is the lateness past its own time; then it is *due*, and so are all records of its key that are not
later, because a record that comes after that is late: it is dropped and counted. A timer for a time waits until stream
time is more than the lateness past it, because records of that very time still count: "paid within 30 minutes" includes
the last moment. So due records and due timers have one order, time by time and at equal times records first, and the
order of a key's records and timers does not depend on when they became due.

A key's state has the event time of the call that set it last: that of the record or timer, or for a wall-clock timer
how far the others have come. With a time to live each call compares that with its own time, so that nothing depends on
how far the task has come meanwhile. The store removes a state that is gone for all calls to come.

Rule of this module: it puts records and timers in order and hands them to the rule; the rule's view of them is
written in ``keyed_processor``. Times are in microseconds.
"""

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from millpond.errors import InvalidArgumentError, InvalidTimeError, RecordError
from millpond.processors.dsl.builder import StreamsBuilder
from millpond.processors.options.records import Consumed, Produced
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.kept_time import KeptTime
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.runtime.topology import Topology
from millpond.processors.tables.time_ordered_buffer import BufferSpec, TimeOrderedBuffer
from millpond.processors.verbs.encoding.ordered_rows import order_and_row
from millpond.processors.verbs.encoding.python_values import check_readable, python_keys, python_rows
from millpond.processors.verbs.key_timers import WATERMARK, KeyTimers, TimerClock, keyed_timers_spec
from millpond.processors.verbs.keyed_processor import KeyedProcessor, TaskScope
from millpond.processors.verbs.rule_run import RuleRun
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.encoding.serdes import BYTES, MSGPACK
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.timestamped_keyvalue import TimestampedKeyValueStore

SOURCE: Final = "input"
"""The topic that ``apply_topology`` reads."""

_MILLISECOND: Final = 1_000


@dataclass(frozen=True)
class ApplySpec:
    """An ``apply`` of that name: the rule, and the other parameters of its operator.

    Attributes:
        name: the name of the result, and the beginning of its stores' names.
        processor: the rule.
        keys, rows: unpack keys and rows.
        lateness: how long records wait for older ones, in microseconds.
        backend: the name or URL of the stores' backend; None for the job's own.
        ordered: whether rows have an order in front, which decides among those of one key and time.
        ttl: how long the state of a key lives after it was last set, in microseconds of event time; None for ever.

    Raises:
        ConfigurationError: ``processor`` is no rule, or cannot be copied; a row has no form in Python; the lateness is
            negative.
    """

    name: str
    processor: KeyedProcessor
    keys: KeyCodec
    rows: RowCodec
    lateness: int
    backend: str | None = None
    ordered: bool = False
    ttl: int | None = None

    def __post_init__(self) -> None:
        where = f"apply {self.name!r}"
        _check_rule(self.processor)
        if self.lateness < 0:
            raise InvalidTimeError(f"the lateness of {where} is {self.lateness} us; it must not be negative")
        check_readable(self.rows.schemas.current, where)
        self.operator()

    @property
    def buffer(self) -> BufferSpec:
        """The records that wait; with an order in front of them, they are in a store of another name.

        Then they wait a moment longer, as others of their time may be late by all of the lateness.
        """
        if self.ordered:
            return BufferSpec(f"{self.name}-ordered", self.lateness + 1, BYTES, BYTES)
        return BufferSpec(f"{self.name}-waiting", self.lateness, BYTES, BYTES)

    @property
    def stores(self) -> list[StoreSpec]:
        """The stores of records that wait, of timers, and of the state by key."""
        return [
            replace(self.buffer.store_spec, backend=self.backend),
            keyed_timers_spec(f"{self.name}-timers", self.backend),
            StoreSpec(
                f"{self.name}-state",
                StoreKind.TIMESTAMPED_KEY_VALUE,
                BYTES,
                MSGPACK,
                backend=self.backend,
                ttl=self.ttl,
            ),
        ]

    def operator(self) -> "Apply":
        """Return a new operator, with a copy of the rule for itself.

        Raises:
            ConfigurationError: the rule cannot be copied.
        """
        try:
            rule = deepcopy(self.processor)
        except Exception as error:  # a user's __deepcopy__ or __reduce__ may raise anything
            raise InvalidArgumentError(
                f"apply {self.name!r} cannot copy its {type(self.processor).__name__}, and every task works on a copy: "
                f"{error}; make connections and the like in open()"
            ) from error
        return Apply(self, rule)


def _check_rule(processor: object) -> None:
    """Refuse a value that is not a rule.

    Raises:
        ConfigurationError: it is none.
    """
    if isinstance(processor, type) and issubclass(processor, KeyedProcessor):
        raise InvalidArgumentError(
            f"processor is the class {processor.__name__}; give an object: {processor.__name__}()"
        )
    if not isinstance(processor, KeyedProcessor):
        raise InvalidArgumentError(
            f"processor is {processor!r}; give an object of a subclass of KeyedProcessor, whose process(self, key, "
            "row, context) returns rows"
        )


def apply_topology(
    name: str,
    processor: KeyedProcessor,
    keys: KeyCodec,
    rows: RowCodec,
    lateness: int,
    backend: str | None = None,
    *,
    ordered: bool = False,
    ttl: int | None = None,
) -> Topology:
    """Return the topology that runs a rule on the topic ``input`` and writes its results to the topic ``name``.

    The keys of its records are packed keys and the values packed rows. The results have the same keys, and dicts as
    values.

    Args:
        name: the name of the result, and of the node that counts late records.
        processor: the rule.
        keys, rows: unpack keys and rows.
        lateness: how long records wait for older ones, in microseconds.
        backend: the name or URL of the stores' backend; None for the job's own.
        ordered: whether rows have an order in front.
        ttl: how long the state of a key lives after it was last set, in microseconds of event time; None for ever.

    Raises:
        ConfigurationError: as for ``ApplySpec``.
    """
    spec = ApplySpec(name, processor, keys, rows, lateness, backend, ordered, ttl)
    builder = StreamsBuilder(key_serde=BYTES, value_serde=MSGPACK)
    rows_in = builder.stream(SOURCE, Consumed(BYTES, BYTES))
    results = rows_in.process(spec.operator, stores=spec.stores, name=name, keeps_key=True, value_serde=MSGPACK)
    results.to(name, Produced())
    return builder.build()


class Apply(Operator):
    """Hands the records and timers of all keys to a rule, in order."""

    def __init__(self, spec: ApplySpec, rule: KeyedProcessor) -> None:
        self._spec = spec
        self._rule = rule

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        waiting, timers, state = (context.store(spec.name) for spec in self._spec.stores)
        self._buffer = TimeOrderedBuffer(self._spec.buffer, waiting)
        context.level(CounterName.WAITING, lambda: self._buffer.waiting)
        self._event, self._wall = KeyTimers(timers, TimerClock.EVENT_TIME), KeyTimers(timers, TimerClock.WALL_CLOCK)
        self._kept_watermark = KeptTime(timers, WATERMARK)
        kept = self._kept_watermark.get()
        self._watermark = MIN_TIME if kept is None else kept
        self._state: TimestampedKeyValueStore[bytes, Any] = state
        now = context.wall_clock * _MILLISECOND
        self._scope = TaskScope(state, self._event, self._wall, now, self._reached())
        self._rule.open()
        context.at_wall_clock(self._punctuate)

    def process(self, batch: Batch) -> None:
        released, _ = self._buffer.pass_through(self._in_time(batch))
        if self._buffer.stream_time is not None:
            self._advance(self._buffer.stream_time - self._spec.lateness)
            self._run(released, self._watermark)

    def advance(self, time: int) -> None:
        released = self._buffer.advance(time)
        assert self._buffer.stream_time is not None
        self._advance(self._buffer.stream_time - self._spec.lateness)
        self._run(released, self._watermark)
        super().advance(time)

    def complete(self) -> None:
        """Process all that waits, and fire all event-time timers, also those that are set meanwhile.

        A record that comes nevertheless, and is older than the newest one, is late. States whose time to live was over
        for a timer that has set one are over for it, too.
        """
        if self._buffer.stream_time is not None:
            self._advance(self._buffer.stream_time)
            self._run(self._buffer.drain(), MAX_TIME, last=True)

    def close(self) -> None:
        self._rule.close()

    def _in_time(self, batch: Batch) -> Batch:
        """Return the records that are not late; the others are counted."""
        time, lateness, watermark = self._buffer.stream_time, self._spec.lateness, self._watermark
        times = np.asarray(batch.timestamps, np.int64)
        reached = np.maximum(np.maximum.accumulate(times), MIN_TIME if time is None else time)
        bounds = np.maximum(reached, MIN_TIME + lateness) - lateness
        bounds = np.maximum(bounds, watermark)
        late = times < bounds
        if not late.any():
            return batch
        self.context.count(CounterName.DROPPED_LATE, int(np.count_nonzero(late)))
        self.context.tell_late(CounterName.DROPPED_LATE, self._plain(batch), late, reached, bounds - times, lateness)
        return batch.select((~late).tolist())

    def _advance(self, watermark: int) -> None:
        """Advance the watermark: no earlier record is processed from now on, whatever the lateness becomes."""
        if watermark > self._watermark:
            self._watermark = watermark
            self._kept_watermark.put(watermark)

    def _reached(self) -> int:
        """Return how far event time has come for all keys' states: past the watermark only at the end of input."""
        observed = None if self._state.expiry is None else self._state.expiry.observed
        return self._watermark if observed is None else max(self._watermark, observed)

    def _run(self, records: Batch, before: int, *, last: bool = False) -> None:
        """Process records that are due, and fire event-time timers for times before ``before``.

        Args:
            records: the records, by time.
            before: later than all of them, or equal to the latest.
            last: whether no record will follow.
        """
        run = self._new_run({*records.keys, *self._event.load(before)})
        records, rows = self._readable(self._in_order(records))
        for key, row, time in zip(records.keys, rows, records.timestamps, strict=True):
            run.fire(self._event, time)
            run.record(key, row, time)
        self._scope.input_complete = last
        run.fire(self._event, before)
        self._scope.input_complete = False
        self._finish(run)

    def _in_order(self, records: Batch) -> Batch:
        """Return records that are due without their orders, which decide among those of one key and time."""
        if not self._spec.ordered:
            return records
        places = zip(records.timestamps, records.keys, records.values, range(len(records)), strict=True)
        return self._plain(records.taken([place for *_, place in sorted(places)]))

    def _plain(self, records: Batch) -> Batch:
        """Return the records without their orders."""
        if not self._spec.ordered:
            return records
        return records.with_values([order_and_row(value)[1] for value in records.values])

    def _readable(self, records: Batch) -> tuple[Batch, list[dict[str, Any]]]:
        """Return the records with rows that Python can hold, and these rows."""
        unpack = self._spec.rows.unpack
        try:
            return records, python_rows(unpack(records.values))
        except RecordError:
            rows: list[dict[str, Any]] = []
            kept = []
            for key, value, time in zip(records.keys, records.values, records.timestamps, strict=True):
                try:
                    rows += python_rows(unpack([value]))
                    kept.append(True)
                except RecordError as error:
                    self.context.leave_out(error, key, value, time)
                    kept.append(False)
            return records.select(kept), rows

    def _punctuate(self, now: int) -> None:
        """Fire the wall-clock timers that are due; ``now`` is in milliseconds."""
        self._scope.wall_clock = now * _MILLISECOND
        before = self._scope.wall_clock + 1
        run = self._new_run(self._wall.load(before))
        run.fire(self._wall, before)
        self._finish(run)

    def _new_run(self, keys: set[bytes]) -> RuleRun:
        packed = list(keys)
        unpacked = python_keys(self._spec.keys.unpack(packed))
        return RuleRun(self.context, self._rule, self._scope, dict(zip(packed, unpacked, strict=True)))

    def _finish(self, run: RuleRun) -> None:
        """Keep the changes, and forward the results."""
        self._event.save()
        self._wall.save()
        if self._state.expiry is not None:
            self._state.expiry.observe(self._watermark)
        self._scope.reached = self._reached()
        self.context.forward(run.out.build())
