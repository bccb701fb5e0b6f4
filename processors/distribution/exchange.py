"""Records on their way between tasks: Arrow blobs, each a run of one input's records for one task.

Rule of this module: it moves columns and knows nothing of serdes or processors. The layout of a row in transit::

    task     int     the number of the task that the records are for
    input    int     which of the sub-topology's source topics, by position, or COMPLETE, TICK, TIME, or as partials_of
                     or spares_of says
    split    int     the part of the input, or the task's partition, that sent it
    chunk    int     its place among the blobs of that split
    records  binary  an Arrow IPC stream of the columns key, value, timestamp (int64, milliseconds), and, if one of
                     the records has headers, headers: a list of structs of key (string) and value (binary), or, if
                     records of one key and time come in order, place (int64)

So the order in which a split's records arrived survives a shuffle that keeps no order. A blob whose input is COMPLETE
has no records (empty bytes): it tells the task that its inputs are complete. Neither has one whose input is TICK: it
is there so that the task runs. One whose input is TIME tells how far an input has come in time, wherever its records
went: ``chunk`` says which input, and ``records`` is the time (8 bytes, signed, big-endian). A blob may hold partial
aggregates in place of the records of an input (``millpond.processors.runtime.batches.partials``), which have no order;
another one may have these records as spares, which count only if the task cannot take the partial aggregates.
What is for the task ``MANIFESTS`` is the text of a manifest (UTF-8), on its way to the end of the chain of operators.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.errors import SerdeError
from millpond.processors.distribution.header_column import (
    HEADERS,
    HEADERS_TYPE,
    has_nameless,
    headers_of,
    with_headers_column,
)
from millpond.processors.options.order import Order
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns, Records
from millpond.processors.runtime.order.time_order import (
    Regroup,
    owners_of,
    places_taken,
    reached_by_key,
    runs_of,
    without_ties,
)

pc: Any = _compute

PLACE: Final = "place"
"""The column, beside those of records, that decides among those of one key and time in place of their values."""

TURN: Final = "turn"
"""The column, beside those of records, by which each of a key comes after the one before it, whatever their times."""

_COLUMNS: Final = ["key", "value", "timestamp"]
_PLACED_COLUMNS: Final = [*_COLUMNS, PLACE]
_TURN_COLUMNS: Final = [*_COLUMNS, TURN]
_HEADED_COLUMNS: Final = [*_COLUMNS, HEADERS]
_NUMBERS: Any = [(name, pa.int32()) for name in ("task", "input", "split", "chunk")]
EXCHANGE_SCHEMA: Final[pa.Schema] = pa.schema([*_NUMBERS, ("records", pa.binary())])
BLOB_BYTES: Final = 96 << 10
"""About how large a blob may get: 10,000 of them fit into a binary column of Arrow, which holds 2 GiB."""

COMPLETE: Final = -1
"""Takes the place of the input in a blob that tells that all inputs are complete."""

TICK: Final = -(1 << 31)
"""Takes the place of the input in a blob that brings nothing, so that its task runs and sees what time it is."""

TIME: Final = TICK + 1
"""Takes the place of the input in a blob that tells the greatest timestamp of an input's records in one split."""

MANIFESTS: Final = -1
"""Takes the place of the task in a blob with a task's manifest: no task has that number."""


def partials_of(input_: int) -> int:
    """Return the code that a blob of partial aggregates has in place of its input.

    >>> partials_of(0), partials_of(3)
    (-2, -8)
    """
    return COMPLETE - 1 - 2 * input_


def spares_of(input_: int) -> int:
    """Return the code that a blob of spares, the records behind partial aggregates, has in place of its input.

    >>> spares_of(0), spares_of(3)
    (-3, -9)
    """
    return COMPLETE - 2 - 2 * input_


class Form(Enum):
    """The content of a blob."""

    PARTIALS = "partial aggregates"
    SPARES = "records of which there are partial aggregates, too"
    RECORDS = "records"

    def of(self, input_: int) -> int:
        """Return the code of an input in a blob of this form."""
        codes = {Form.PARTIALS: partials_of, Form.SPARES: spares_of}
        return codes[self](input_) if self in codes else input_


WINDOW_ROWS: Final = 1 << 18
WINDOW_BYTES: Final = 32 << 20
"""The records that may become Python objects at a time: at most so many, and about so many bytes in columns."""

COLUMNS_FROM: Final = 500
"""Shorter runs are objects at once: what a call for a whole column costs is then more than what it saves.

Unless runs are as long as that on average: what a few short ones give as objects would make objects of what they meet.
"""


class Blob(NamedTuple):
    """One row in transit."""

    task: int
    input: int
    split: int
    chunk: int
    records: bytes


class BlobWriter:
    """Cuts the records of one split into blobs, numbering them as they leave."""

    def __init__(self, split: int) -> None:
        self._split = split
        self._chunk = 0

    def scatter(
        self, records: pa.Table, partitions: npt.NDArray[np.uint32], tasks: Sequence[int], input_: int
    ) -> Iterator[Blob]:
        """Yield the blobs of ``records``: the i-th record goes to ``tasks[partitions[i]]``."""
        order = np.argsort(partitions.astype(np.uint16 if len(tasks) <= 1 << 16 else np.uint32), kind="stable")
        bounds = np.searchsorted(partitions[order], np.arange(len(tasks) + 1))
        positions: Any = pa.array(order)
        sorted_records = records.take(positions)
        for task, start, stop in zip(tasks, bounds, bounds[1:], strict=False):
            if start < stop:
                yield from self.cut(sorted_records.slice(start, stop - start), task, input_)

    def cut(self, records: pa.Table, task: int, input_: int) -> Iterator[Blob]:
        """Yield the records as blobs of about ``BLOB_BYTES``, all for one task."""
        step = max(1, records.num_rows * BLOB_BYTES // max(1, records.nbytes))
        for start in range(0, records.num_rows, step):
            yield Blob(task, input_, self._split, self._chunk, to_ipc(records.slice(start, step)))
            self._chunk += 1


def signal_blobs(signal: int, tasks: Iterable[int]) -> list[Blob]:
    """Return the blobs that tell tasks something, and bring no records.

    Args:
        signal: ``COMPLETE`` or ``TICK``.
        tasks: the numbers of the tasks, those of all stages: operators pass on what is for the tasks of others.
    """
    return [Blob(task, signal, 0, 0, b"") for task in tasks]


def time_blobs(time: int, input_: int, split: int, tasks: Iterable[int]) -> list[Blob]:
    """Return the blobs that tell tasks the greatest timestamp of the records of an input in a split."""
    return [Blob(task, TIME, split, input_, time.to_bytes(8, signed=True)) for task in tasks]


def told_times(blobs: Iterable[Blob]) -> dict[int, int]:
    """Return the greatest timestamp of each input in all its splits, as far as blobs tell it.

    >>> told_times([*time_blobs(5, 0, 0, [7]), *time_blobs(-3, 1, 0, [7]), *time_blobs(9, 0, 1, [7])])
    {0: 9, 1: -3}
    """
    times: dict[int, int] = {}
    for blob in blobs:
        if blob.input == TIME:
            time = int.from_bytes(blob.records, signed=True)
            times[blob.chunk] = max(time, times.get(blob.chunk, time))
    return dict(sorted(times.items()))


def manifest_blob(subtopology: int, partition: int, text: str) -> Blob:
    """Return the blob with the manifest of a task."""
    return Blob(MANIFESTS, 0, partition, subtopology, text.encode())


def to_record_batch(blobs: Iterable[Blob]) -> pa.RecordBatch:
    """Return the blobs as rows of ``EXCHANGE_SCHEMA``."""
    columns = list(zip(*blobs, strict=True)) or [()] * len(EXCHANGE_SCHEMA)
    return pa.record_batch(
        [pa.array(column, type_) for column, type_ in zip(columns, EXCHANGE_SCHEMA.types, strict=True)],
        schema=EXCHANGE_SCHEMA,
    )


def to_ipc(records: pa.Table) -> bytes:
    """Return the records as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, records.schema) as writer:
        for batch in records.combine_chunks().to_batches():
            writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


class Run(NamedTuple):
    """Records of one input that are taken together.

    Attributes:
        input: the number of the input.
        records: the records, keys and values as they traveled, with positions where they are taken out of order.
        settled: whether every record before the last one in that order has been taken; None where they come in order.
    """

    input: int
    records: Records
    settled: bool | None = None


def is_complete(blobs: Iterable[Blob]) -> bool:
    """Return whether one of the blobs tells that the inputs are complete."""
    return any(blob.input == COMPLETE for blob in blobs)


def gather(
    blobs: Iterable[Blob],
    keep_order: Collection[int] = (),
    regroup: Regroup[int] | None = None,
    reached: Callable[[int], None] | None = None,
    order: Order = Order.TIME,
    ties: Collection[int] = (),
    unordered: Collection[int] = (),
) -> Iterator[Run]:
    """Yield the records of one task in the order in which it must see them, in runs of a limited size.

    Each split of each input is a queue in arrival order, and an input whose records come in turn is one queue in that
    order, which it keeps for each key; queues are ordered by input, then by split
    (``millpond.processors.runtime.order.time_order``). Once the inputs are complete, nothing can come later, and the
    records are in the order of time whatever ``order`` says.

    Args:
        blobs: all blobs of the task, in any order.
        keep_order: inputs whose queues keep the order of each key in the order of time.
        regroup: makes runs longer; they then have positions.
        reached: told the greatest timestamp of each input, before the first run.
        order: the order.
        ties: inputs of which, in the order of time, records of one key and time go by their values
            (``millpond.processors.runtime.order.time_order``); those of the others come by split.
        unordered: inputs without headers that may come as they lie, if they are all that there is.

    Raises:
        SerdeError: a blob is damaged.
    """
    placed = sorted(blobs, key=_position)
    queues: dict[tuple[int, int], list[pa.Table]] = {}
    for blob in placed:
        if blob.input < 0:
            continue
        queues.setdefault((blob.input, blob.split), []).append(_records(blob))
    tables: dict[int, list[pa.Table]] = {}
    for (input_, _), parts in queues.items():
        tables.setdefault(input_, []).extend(parts)
    inputs = {i: _in_turn(_joined(i, parts)) for i, parts in tables.items()}
    _tell(reached, inputs)
    if all(input_ in unordered and HEADERS not in table.column_names for input_, table in inputs.items()):
        yield from (Run(input_, window) for input_, table in inputs.items() for window in windows(table))
        return
    if is_complete(placed):
        order = Order.TIME
    kept = keep_order if order is Order.TIME else ()
    turns = [i for i, table in inputs.items() if TURN in table.column_names]
    waiting = [(i, queue) for (i, _), queue in queues.items() if i not in turns] + [(i, [inputs[i]]) for i in turns]
    waiting.sort(key=lambda one: one[0])
    places = places_taken([_times_to_go_by(queue, i in kept or i in turns) for i, queue in waiting], order)
    numbers = cache(lambda: _numbers_of_keys(inputs.values()))
    if ties and order is Order.TIME:
        places = _settled(inputs, places, [i for i in ties if i not in keep_order and i not in turns], numbers)
    if len(inputs) < 2:
        for input_, table in inputs.items():
            in_order = table if places is None else _taken(table, places)
            yield from (Run(input_, window) for window in windows(in_order))
        return
    if places is None:
        places = np.arange(sum(table.num_rows for table in inputs.values()))
    yield from _interleave(inputs, places, numbers, regroup)


def _settled(
    inputs: Mapping[int, pa.Table],
    places: npt.NDArray[np.int64] | None,
    ties: Collection[int],
    numbers: Callable[[], npt.NDArray[np.int64]],
) -> npt.NDArray[np.int64] | None:
    """Return the order of records with equal keys and times sorted by value in ``ties``; None for as they lie."""
    sizes = [table.num_rows for table in inputs.values()]
    starts = list(accumulate(sizes, initial=0))
    owners = None if places is None or len(sizes) < 2 else owners_of(places, sizes)
    for place, (input_, table) in enumerate(inputs.items()):
        if input_ not in ties:
            continue
        start, stop = starts[place], starts[place + 1]
        slots: Any = slice(start, stop) if owners is None else owners == place
        rows = np.arange(stop - start) if places is None else places[slots] - start
        times = table.column("timestamp").to_numpy()[rows]
        by = table.column(PLACE if PLACE in table.column_names else "value")
        settled = without_ties(rows, times, lambda: numbers()[start:stop], by)  # noqa: B023
        if settled is not rows:
            places = np.arange(starts[-1]) if places is None else places
            places[slots] = settled + start
    return places


def with_spares(blobs: Iterable[Blob], input_: int) -> list[Blob]:
    """Return blobs with the spares of an input in place of their partial aggregates.

    >>> blobs = [Blob(0, code, 0, 0, b"") for code in (0, partials_of(0), spares_of(0), spares_of(1))]
    >>> [blob.input for blob in with_spares(blobs, 0)]
    [0, 0, -5]
    """
    spares, partials = spares_of(input_), partials_of(input_)
    return [blob._replace(input=input_) if blob.input == spares else blob for blob in blobs if blob.input != partials]


def without_input(blobs: Iterable[Blob], input_: int) -> list[Blob]:
    """Return the blobs without those of an input, except for those that tell its time."""
    return [blob for blob in blobs if blob.input not in (input_, partials_of(input_), spares_of(input_))]


def spared(blobs: Iterable[Blob]) -> list[int]:
    """Return the inputs of which some partial aggregates came with the records that they are of."""
    codes = {blob.input for blob in blobs if TIME < blob.input < COMPLETE}
    return sorted(number for number, spare in map(_split_code, codes) if spare)


def _split_code(code: int) -> tuple[int, bool]:
    """Return the input of partial aggregates or spares, and whether it is spares."""
    number, spare = divmod(COMPLETE - 1 - code, 2)
    return number, bool(spare)


def gather_partials(blobs: Iterable[Blob], reached: Callable[[int], None] | None = None) -> Iterator[Run]:
    """Yield the partial aggregates of one task, in runs of a limited size; ``reached`` is as in ``gather``.

    Raises:
        SerdeError: a blob is damaged.
    """
    tables: dict[int, list[pa.Table]] = {}
    for blob in sorted(blobs, key=_position):
        if TIME < blob.input < COMPLETE:
            number, spare = _split_code(blob.input)
            if not spare:
                tables.setdefault(number, []).append(_records(blob))
    inputs = {i: _joined(i, parts) for i, parts in tables.items()}
    _tell(reached, inputs)
    for input_, table in inputs.items():
        yield from (Run(input_, window) for window in windows(table))


def _tell(reached: Callable[[int], None] | None, inputs: Mapping[int, pa.Table]) -> None:
    if reached is not None:
        for table in inputs.values():
            reached(pc.max(table.column("timestamp")).as_py())


def _records(blob: Blob) -> pa.Table:
    """Return the records of a blob. Arrow trusts what it reads, and may end the process over what is not valid."""
    try:
        records = pa.ipc.open_stream(pa.py_buffer(blob.records)).read_all()
        records.validate(full=True)
        named = records.column_names in (_COLUMNS, _HEADED_COLUMNS, _PLACED_COLUMNS, _TURN_COLUMNS)
        if not named or records.schema.field("timestamp").type != pa.int64():
            raise pa.ArrowInvalid(f"its columns are {records.schema}")
        if HEADERS in records.column_names:
            if records.schema.field(HEADERS).type != HEADERS_TYPE:
                raise pa.ArrowInvalid(f"its columns are {records.schema}")
            if pc.any(has_nameless(records[HEADERS])).as_py():
                raise pa.ArrowInvalid("it has a header without a name")
        if not records.num_rows or records["timestamp"].null_count:
            raise pa.ArrowInvalid("it has no records, or one without a timestamp")
    except (pa.ArrowException, OSError, ValueError) as error:
        raise SerdeError(
            f"records for task {blob.task} from part {blob.split} of input {blob.input} are damaged: {error}; restart "
            "the query, which sends them again"
        ) from error
    return records


def _joined(input_: int, parts: Sequence[pa.Table]) -> pa.Table:
    """Return the records of an input, which all have the same columns but for their headers."""
    try:
        if any(HEADERS in part.column_names for part in parts):
            parts = [with_headers_column(part) for part in parts]
        return pa.concat_tables(parts)
    except pa.ArrowException as error:
        raise SerdeError(
            f"records of input {input_} have other columns than the rest: {error}; restart the query, which sends them "
            "again"
        ) from error


def _in_turn(table: pa.Table) -> pa.Table:
    """Return the records of an input; records that come in turn keep that order."""
    if TURN not in table.column_names:
        return table
    turns = table.column(TURN).to_numpy()
    return table if (turns[1:] >= turns[:-1]).all() else _taken(table, turns.argsort(kind="stable"))


def _position(blob: Blob) -> tuple[int, int, int]:
    return blob.input, blob.split, blob.chunk


def _timestamps(parts: Iterable[pa.Table]) -> npt.NDArray[np.int64]:
    return np.concatenate([part.column("timestamp").to_numpy() for part in parts])


def _times_to_go_by(queue: Sequence[pa.Table], keep_order: bool) -> npt.NDArray[np.int64]:
    """Return the timestamps of a queue, with ``keep_order`` none of them less than one of its key before it."""
    times = _timestamps(queue)
    if not keep_order or (times[1:] >= times[:-1]).all():
        return times
    return reached_by_key(times, _numbers_of_keys(queue))


def _numbers_of_keys(tables: Iterable[pa.Table]) -> npt.NDArray[np.int64]:
    """Return a number for each key; one for all if they are of several types, and so may be equal."""
    columns = [table.column("key") for table in tables]
    if len({column.type for column in columns}) > 1:
        return np.zeros(sum(map(len, columns)), np.int64)
    column: Any = pa.chunked_array([chunk for column in columns for chunk in column.chunks])
    keys = column.dictionary_encode(null_encoding="encode")
    return np.concatenate([chunk.indices.to_numpy() for chunk in keys.chunks]).astype(np.int64)


def _interleave(
    tables: dict[int, pa.Table],
    order: npt.NDArray[np.int64],
    numbers: Callable[[], npt.NDArray[np.int64]],
    regroup: Regroup[int] | None,
) -> Iterator[Run]:
    """Yield each input's records in their merged order, cut wherever another input has to come between."""
    sizes = [table.num_rows for table in tables.values()]
    owners = owners_of(order, sizes)
    positions = None
    if regroup is not None:
        times = _timestamps(tables.values())[order]
        positions = regroup(list(tables), owners, times, lambda: numbers()[order])
    if positions is not None:
        order, owners = order[positions], owners[positions]
    starts = accumulate(sizes, initial=0)
    cursors = [
        _Cursor(input_, windows(_taken(table, order[owners == place] - start)))
        for place, (start, (input_, table)) in enumerate(zip(starts, tables.items(), strict=False))
    ]
    counted = list(runs_of(owners))
    least = COLUMNS_FROM if len(owners) < COLUMNS_FROM * len(counted) else 1
    runs = (run for owner, count in counted for run in cursors[owner].take(count, least))
    yield from runs if positions is None else _placed(runs, positions)


def _taken(table: pa.Table, places: npt.NDArray[np.int64]) -> pa.Table:
    chosen: Any = pa.array(places)
    return table.take(chosen)


def _placed(runs: Iterable[Run], positions: npt.NDArray[np.int64]) -> Iterator[Run]:
    """Yield the runs with the positions of their records, in the order of the runs."""
    settled = np.maximum.accumulate(positions) == np.arange(len(positions))
    start = 0
    for run in runs:
        stop = start + len(run.records)
        yield Run(run.input, run.records.at(positions[start:stop]), bool(settled[stop - 1]))
        start = stop


class _Cursor:
    """Hands out an input's records a few at a time."""

    def __init__(self, input_: int, windows: Iterator[Records]) -> None:
        self._input = input_
        self._windows = windows
        self._current: Records | None = None
        self._at = 0

    def take(self, count: int, columns_from: int) -> Iterator[Run]:
        """Yield the next ``count`` records; runs that are shorter than ``columns_from`` as objects."""
        while count:
            if self._current is None or self._at == len(self._current):
                self._current, self._at = next(self._windows), 0
            current, start = self._current, self._at
            stop = self._at = min(start + count, len(current))
            size = stop - start
            count -= size
            yield Run(self._input, (current if size >= columns_from else current.to_batch()).slice(start, stop))


def windows(records: pa.Table) -> Iterator[Records]:
    """Yield the records in order, in runs of at most ``WINDOW_ROWS`` and, on average, ``WINDOW_BYTES``.

    Records with headers are objects, since columns have none.
    """
    step = max(1, min(WINDOW_ROWS, records.num_rows * WINDOW_BYTES // max(1, records.get_total_buffer_size())))
    for start in range(0, records.num_rows, step):
        window = records.slice(start, step)
        keys, values, times = (_whole(window.column(name)) for name in _COLUMNS)
        columns = Columns(keys, values, times.to_numpy())
        headers = headers_of(window)
        if headers is None:
            yield columns
        else:
            batch = columns.to_batch()
            yield Batch(batch.keys, batch.values, batch.timestamps, headers=headers)


def _whole(column: Any) -> Any:
    """Return a column of a table as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
