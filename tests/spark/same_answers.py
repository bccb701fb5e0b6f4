"""Drawn calls of every verb, on ``Pond`` and on Spark: the same rows, in the same micro-batches.

Rule of this module: rows and calls are drawn without Spark, of the kinds of columns that ``tests.metamorphic`` draws.
``python -m tests.spark.same_answers --draws 200`` compares so many calls; ``--help`` tells the rest.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import reduce
from inspect import getmembers, isfunction
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as _compute
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from millpond import Pond
from millpond.adapters.spark import Millpond
from millpond.adapters.tables import ParquetTable
from millpond.processors import CumulativeWindows, SessionWindows, SlidingWindows, TimeWindows, cube, rollup
from millpond.processors.pond.micro_batches import MicroBatches
from millpond.processors.pond.verbs import Verbs
from millpond.processors.verbs import aggregates
from tests.metamorphic.rules import RESULTS, Totals
from tests.metamorphic.typed_jobs import Draft
from tests.metamorphic.typed_values import KEYS, VALUES, bits
from tests.spark.own_session import own_session
from tests.spark.random_verbs import ZONES

pc: Any = _compute

MOST: Final = 14
"""Rows of a source."""
SPAN: Final = 40
"""In how many units of time all rows lie."""
_BASE: Final = 20_000
"""The day, since 1970, on which they begin."""
_DAY: Final = timedelta(days=1)
_UNREAD: Final = ("interval year to month", "variant", "array<variant>", "void")
"""What Arrow or Parquet has no form for, or what Spark does not read from files of others."""

Field: TypeAlias = Callable[[str], Any]
"""Makes an expression of a column."""
Options: TypeAlias = Callable[[Field], dict[str, Any]]


@dataclass(frozen=True)
class Call:
    """A call of a verb.

    Attributes:
        sides: the sources whose rows it takes, by the names that ``feed`` has for them.
        options: its other arguments.
        one_time: whether the right side's column of times is called as that of the left one.
    """

    sides: Mapping[str, str]
    options: Options
    one_time: bool = False

    def of(self, verbs: Any, verb: str, rows: Mapping[str, Any], field: Field, table: ParquetTable) -> Any:
        """Return what the verb gives.

        Args:
            verbs: the pond.
            verb: its name.
            rows: by source.
            field: makes expressions.
            table: the right side of a lookup.
        """
        given, options = self._given(rows), self.options(field)
        if verb == "multi_join":
            return verbs.multi_join(given, **options)
        if verb == "lookup_join":
            return verbs.lookup_join(given["left"], table, **options)
        return getattr(verbs, verb)(*given.values(), **options)

    def feed(self, running: MicroBatches, rows: Mapping[str, pa.Table]) -> pa.Table:
        """Return what comes out of a micro-batch."""
        given = self._given(rows)
        return running.feed(tables=given) if running.name == "multi_join" else running.feed(**given)

    def _given(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        """Return what it takes for each side."""
        given = {role: rows[source] for role, source in self.sides.items()}
        if self.one_time:
            given["right"] = _with_one_time(given["right"])
        return given


def _with_one_time(rows: Any) -> Any:
    """Return rows of ``b`` with the column of times of ``a``."""
    if isinstance(rows, DataFrame):
        return rows.withColumnRenamed("bt", "at")
    if isinstance(rows, pa.Table):
        return rows.rename_columns(["at" if name == "bt" else name for name in rows.column_names])
    return pa.schema([field.with_name("at") if field.name == "bt" else field for field in rows])


class Round:
    """Rows of three sources, and a call of every verb on them.

    Args:
        number: decides everything.
        verbs: those that are called.
    """

    def __init__(self, number: int, verbs: Iterable[str] = ()) -> None:
        self.number = number
        self.draft = Draft(number)
        self.random = random = Random(number)
        kinds = [kind for kind in VALUES if kind.name not in _UNREAD]
        self.draft.kinds = {source: random.sample(kinds, 3) for source in "abc"}
        keys = [kind for kind in KEYS if kind.name not in _UNREAD]
        self.draft.key, self.draft.primary = keys[number % len(keys)], random.choice(keys)
        times: list[Any] = [pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()]
        self.time: Any = random.choice(times)
        self.unit = _DAY if pa.types.is_date(self.time) else timedelta(seconds=1)
        self.partitions = random.randint(1, 3)
        self.batches = random.randint(1, 4)
        self.zone = random.choice(ZONES)
        self.backend = random.choice(["memory", "memory", "lmdb", "rocksdb"])
        self.on_error = random.choice(["fail", "skip"])
        self.rows = {source: self._rows(source) for source in "abc"}
        self.calls = {verb: DRAWS[verb](self) for verb in verbs or DRAWS}

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def length(self, *choices: int | None) -> Any:
        """Return a length of time, of so many units."""
        chosen = self.pick(*choices)
        return None if chosen is None else chosen * self.unit

    def _rows(self, source: str) -> list[pa.Table]:
        """Return the rows of a source, micro-batch by micro-batch."""
        draft, random = self.draft, self.random
        fields = [pa.field(f.name, self.time) if f.name == f"{source}t" else f
                  for f in draft.rows(source, op=True, primary=source == "a").schema]  # fmt: skip
        schema = pa.schema([*fields, pa.field(f"{source}n", pa.int64()), pa.field(f"{source}y", pa.bool_())])
        chosen = {"k": [*draft.key.neighbors(3, random), None], "p": [*draft.primary.neighbors(3, random), None]}
        for number, kind in enumerate(draft.kinds[source]):
            chosen[f"{source}v{number}"] = [*kind.neighbors(3, random), None]
        chosen |= {f"{source}o": ["upsert", "upsert", "delete"], f"{source}n": [*range(7), None]}
        chosen |= {f"{source}y": [True, False, None]}
        if self.on_error == "skip":
            chosen[f"{source}o"] += [None, "upsert", "unknown"]
        rows = []
        for number in range(random.randint(0, MOST)):
            row = {name: random.choice(values) for name, values in chosen.items()}
            rows.append({**row, f"{source}id": number, f"{source}t": self._moment()})
        bounds = sorted(random.randint(0, len(rows)) for _ in range(self.batches - 1))
        parts = zip([0, *bounds], [*bounds, len(rows)], strict=True)
        return [pa.Table.from_pylist(rows[start:stop], schema) for start, stop in parts]

    def _moment(self) -> int | None:
        """Return the time of a row; several have the same."""
        at = self.random.randrange(SPAN)
        if self.on_error == "skip" and self.random.random() < 0.05:
            return None
        if self.unit == _DAY:
            return _BASE + at
        return (_BASE * 86_400 + at) * 1_000_000 + self.random.choice([0, 0, 0, 1, 999_999])

    def functions(self, source: str) -> dict[str, Any]:
        """Return calls of functions over the columns of a source, in any order of rows of one time."""
        calls, _ = self.draft.calls(source, filtered=False)
        return calls

    def join(self, options: dict[str, Any], made: Options | None = None) -> Call:
        """Return a call on two sides, whose times are of one name or of two."""
        one_time = options["how"] not in ("right", "outer") and self.pick(True, False)
        times = {"time": "at"} if one_time else {"left_time": "at", "right_time": "bt"}
        return Call(
            {"left": "a", "right": "b"},
            lambda field: {"on": "k", **times, **(options if made is None else made(field))},
            one_time,
        )

    def window(self, grace: Any) -> Any:
        """Return windows, and what waits for them."""
        made = self.pick(
            lambda: TimeWindows(self.length(3, 7), grace=grace),
            lambda: TimeWindows(self.length(6), advance=self.length(2), grace=grace),
            lambda: SlidingWindows(self.length(4), grace=grace),
            lambda: SessionWindows(self.length(1, 5), grace=grace),
            lambda: CumulativeWindows(self.length(8), self.length(2), grace=grace),
        )
        return made()


def _key(drawn: Round) -> Any:
    return drawn.pick("k", ["k"], ["k", "p"], ["p", "k"])


def _ttl(drawn: Round) -> dict[str, Any]:
    lives = {"ttl": drawn.length(5, 15), "expired": drawn.pick("silent", "delete")}
    return lives if drawn.pick(True, False, False) else {}


def latest(drawn: Round) -> Call:
    options = {"key": _key(drawn), "time": "at", "history": drawn.length(0, 5, 50), "order": drawn.pick("an", "aid")}
    options |= {**_ttl(drawn), **drawn.pick({}, {"op": "ao"})}
    return Call({"rows": "a"}, lambda field: options)


def aggregate(drawn: Round) -> Call:
    calls, filtered = drawn.functions("a"), drawn.pick(None, "ay", "condition")
    options: dict[str, Any] = {"by": drawn.pick("k", [], ["k", "p"], cube("k", "p"), rollup("k", "ay")), "time": "at"}
    shape = drawn.pick("keys", "windows", "windows", "final", "feed")
    options |= {"order": "aid"}
    if shape == "keys":
        options |= _ttl(drawn)
    elif shape == "feed":
        options |= {"op": "ao", "key": "p"}
    else:
        options |= {"window": drawn.window(drawn.length(0, 3, 20)), "emit": "final" if shape == "final" else "updates"}

    def made(field: Field) -> dict[str, Any]:
        where = field("an") > 2 if filtered == "condition" else filtered
        return {"calls": {name: replace(call, where=where) for name, call in calls.items()}, **options}

    return Call({"rows": "a"}, made)


def top_n(drawn: Round) -> Call:
    order = drawn.pick("an", ["an", "at"], ["at", "aid"], ["ay", "an", "aid"])
    options: dict[str, Any] = {"n": drawn.pick(1, 2, 5), "by": _key(drawn), "order": order, "time": "at"}
    options["descending"] = drawn.pick(
        True, False, *([] if order == "an" else [[drawn.pick(True, False) for _ in order]])
    )
    if drawn.pick(True, False):
        options |= {"window": drawn.window(drawn.length(0, 3, 20)), "emit": drawn.pick("updates", "final")}
    else:
        options |= _ttl(drawn)
    return Call({"rows": "a"}, lambda field: options)


def deduplicate(drawn: Round) -> Call:
    options = {
        "key": _key(drawn),
        "time": "at",
        "within": drawn.length(0, 3, 20),
        "grace": drawn.length(None, 0, 3, 20),
    }
    options["order"] = drawn.pick(None, "an")
    return Call({"rows": "a"}, lambda field: options)


def over(drawn: Round) -> Call:
    calls = {**drawn.functions("a"), "lagged": aggregates.lag("av0", drawn.pick(1, 2))}
    frame = drawn.pick({}, {"last": 1}, {"last": 3}, {"within": drawn.length(0, 9)})
    options = {"key": _key(drawn), "time": "at", "grace": drawn.length(0, 3, 20), "order": drawn.pick(None, "an")}
    options |= {**frame, **drawn.pick({}, {"ttl": drawn.length(9)})}
    return Call({"rows": "a"}, lambda field: {"calls": calls, **options})


def _matching(drawn: Round) -> dict[str, Any]:
    """Return what decides which row is the match, of both joins that look for the version of a time."""
    options: dict[str, Any] = {"how": drawn.pick("inner", "left", "semi", "anti"), "exact": drawn.pick(True, False)}
    options |= {"right_order": drawn.pick("bn", "bid"), "right_op": drawn.pick(None, "bo")}
    options |= {"null_safe": drawn.pick(True, False)}
    if options["how"] == "left" and drawn.pick(True, False):
        options["default"] = {"bn": 99}
    return options


def asof_join(drawn: Round) -> Call:
    options: dict[str, Any] = {**_matching(drawn)}
    conditional = drawn.pick(False, False, True)
    tolerance, grace = drawn.length(None, 2, 9), drawn.length(None, 0, 3, 20)
    shape = drawn.pick("backward", "backward", "forward", "nearest", "updates")
    if shape == "updates":
        options |= {"how": drawn.pick("inner", "left"), "emit": "updates", "left_key": "aid"}
        options |= {"history": drawn.length(3, 50), "tolerance": tolerance}
        if options["how"] != "left":
            options.pop("default", None)
        conditional = False
    elif shape == "backward":
        options |= {"history": drawn.length(20, 50), "tolerance": tolerance, "grace": grace}
    else:
        tolerance, grace = drawn.length(2, 9), drawn.length(9, 20)
        options |= {"direction": shape, "tolerance": tolerance, "grace": grace, "history": tolerance + grace}
    if conditional and tolerance is not None:
        options["otherwise"] = drawn.pick("miss", "next")

    def made(field: Field) -> dict[str, Any]:
        return {**options, **({"where": field("bn") <= field("an")} if conditional else {})}

    return drawn.join(options, made)


def lookup_join(drawn: Round) -> Call:
    options: dict[str, Any] = {"on": "k", "left_time": "at", "right_time": "bt", **_matching(drawn)}
    conditional, tolerance = drawn.pick(False, True), drawn.length(None, 2, 9)
    options |= {"tolerance": tolerance, **({} if drawn.on_error == "fail" else {"right_op": None})}
    if tolerance is not None:
        options |= {"direction": drawn.pick("backward", "forward", "nearest"), "otherwise": drawn.pick("miss", "next")}
    options |= {"columns": drawn.pick(None, ["bn", "bv0"], {"bn": "bn", "named": "bv1"})}
    if not conditional:
        options.pop("otherwise", None)

    def made(field: Field) -> dict[str, Any]:
        return {**options, **({"where": field("bn") <= field("an")} if conditional else {})}

    return Call({"left": "a"}, made)


def stream_join(drawn: Round) -> Call:
    options: dict[str, Any] = {"grace": drawn.length(0, 3, 20)}
    options |= {
        "how": drawn.pick("inner", "left", "right", "outer", "semi", "anti"),
        "null_safe": drawn.pick(True, False),
    }
    reach = drawn.pick("within", "both", "after", "own")
    lengths = drawn.length(0, 2, 9), drawn.length(0, 5)
    unit = drawn.unit // timedelta(milliseconds=1)

    def made(field: Field) -> dict[str, Any]:
        bounds: dict[str, Any] = {"within": lengths[0]}
        if reach == "both":
            bounds = {"before": lengths[0], "after": lengths[1]}
        elif reach == "after":
            bounds = {"after": lengths[1]}
        elif reach == "own":
            bounds = {"before": field("an") * unit, "after": lengths[1], "at_most": 6 * drawn.unit}
        return {**options, **bounds}

    return drawn.join(options, made)


def table_join(drawn: Round) -> Call:
    foreign = drawn.pick(True, False)
    history = drawn.length(None, 5, 50)
    options: dict[str, Any] = {"history": history}
    options |= {
        "left_op": drawn.pick(None, "ao"),
        "right_op": drawn.pick(None, "bo"),
        "null_safe": drawn.pick(True, False),
    }
    options |= {"how": drawn.pick("inner", "left", "outer", *(["right"] if foreign else []))}
    if foreign and drawn.on_error == "fail":
        options["how"] = drawn.pick("inner", "left")
    if history is not None:
        options |= {"left_order": "aid", "right_order": "bid"}
    options |= {"left_key": "p"} if foreign else _ttl(drawn)
    return drawn.join(options)


def multi_join(drawn: Round) -> Call:
    tables = {"some": "a", "others": "b", "more": "c"} if drawn.pick(True, False) else {"some": "a", "others": "b"}
    history = drawn.length(None, 5, 50)
    options: dict[str, Any] = {"on": "k", "time": {name: f"{source}t" for name, source in tables.items()}}
    options |= {"how": drawn.pick("inner", "left", "outer"), "history": history, "null_safe": drawn.pick(True, False)}
    options |= drawn.pick({}, {"op": {name: f"{source}o" for name, source in tables.items()}})
    if history is not None:
        options |= {"order": {name: f"{source}id" for name, source in tables.items()}}
    options |= _ttl(drawn)
    return Call(tables, lambda field: {**options, "name": "multi_join"})


def apply(drawn: Round) -> Call:
    fields = [drawn.draft.key.column("k"), *(field for field in RESULTS if field.name not in ("k", "seen"))]
    schema = pa.schema([*fields, RESULTS.field("seen")])
    options = {"key": "k", "time": "at", "lateness": drawn.length(0, 3, 20), "order": drawn.pick(None, "aid")}
    options |= drawn.pick({}, {"ttl": drawn.length(5)})

    def made(field: Field) -> dict[str, Any]:
        columns = schema if field is pc.field else from_arrow_schema(schema, prefer_timestamp_ntz=True)
        return {"processor": Totals("an"), "schema": columns, **options}

    return Call({"rows": "a"}, made)


DRAWS: Final[Mapping[str, Callable[[Round], Call]]] = {
    draw.__name__: draw
    for draw in (
        latest, aggregate, top_n, deduplicate, over, asof_join, lookup_join, stream_join, table_join, multi_join, apply,
    )
}  # fmt: skip
"""For each verb, what draws a call of it."""


def verbs() -> set[str]:
    """Return the names of all verbs."""
    return {name for name, _ in getmembers(Verbs, isfunction) if not name.startswith("_")}


@dataclass(frozen=True)
class Answer:
    """The results of a verb.

    Attributes:
        schema: the columns, as Spark names their types.
        rows: those of each micro-batch.
    """

    schema: Sequence[tuple[str, str]]
    rows: Sequence[Counter[tuple[bytes, ...]]]


def _columns(schema: Any) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


def _shown(table: pa.Table) -> Counter[tuple[bytes, ...]]:
    """Return rows bit by bit; the numbers of changes, which tasks count each for themselves, in the order of a key."""
    if "sequence" in table.column_names:
        table = table.sort_by("sequence")
        table = table.drop_columns(["sequence"])
    return Counter(bits(table))


def on_pond(drawn: Round, directory: Path, *, streaming: bool) -> dict[str, Answer]:
    """Return the results of the verbs on ``Pond``, fed micro-batch by micro-batch, or at once."""
    table, answers = ParquetTable(directory / "table"), {}
    pond = Pond(backend=drawn.backend, on_error=drawn.on_error)
    whole = {source: pa.concat_tables(parts) for source, parts in drawn.rows.items()}
    for verb, call in drawn.calls.items():
        schemas = {source: rows.schema for source, rows in whole.items()}
        with call.of(pond.in_batches, verb, schemas, pc.field, table) as running:
            columns = _columns(from_arrow_schema(running.schema, prefer_timestamp_ntz=True))
            batches = range(drawn.batches) if streaming else ()
            found = [
                call.feed(running, {source: parts[batch] for source, parts in drawn.rows.items()}) for batch in batches
            ]
            found.append(running.complete() if streaming else call.of(pond, verb, whole, pc.field, table))
        answers[verb] = Answer(columns, [_shown(rows) for rows in found])
    return answers


def on_spark(drawn: Round, directory: Path, spark: SparkSession, *, streaming: bool) -> dict[str, Answer]:
    """Return the results of the verbs in one query, of streams or of static DataFrames."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.timeType.enabled", "true")
    spark.conf.set("spark.sql.session.timeZone", drawn.zone)
    try:
        made, batches = (_streamed if streaming else _at_once)(drawn, directory, spark)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")
        spark.conf.unset("spark.sql.timeType.enabled")
    return {
        verb: Answer(_columns(rows.schema), [_shown(_rows_of(verb, batch)) for batch in batches])
        for verb, rows in made.items()
    }


def _streamed(drawn: Round, directory: Path, spark: SparkSession) -> tuple[dict[str, DataFrame], list[pa.Table]]:
    """Return the results of each micro-batch, a file of each source, and of the one that tells that no more come."""
    ends = pa.table({"end": [1]})
    files = {source: [*parts, parts[0].slice(0, 0)] for source, parts in drawn.rows.items()}
    files["end"] = [*[ends.slice(0, 0)] * drawn.batches, ends]
    streams = {}
    for source, parts in files.items():
        for number, part in enumerate(parts):
            _write(part, directory / source, number)
        reader = spark.readStream.schema(_spark_schema(parts[0])).option("maxFilesPerTrigger", 1)
        streams[source] = reader.parquet(str(directory / source))
    made = _called(drawn, directory, streams, complete=streams["end"])
    batches: list[pa.Table] = []
    writer = _together(made).writeStream.foreachBatch(lambda rows, _: batches.append(rows.toArrow()))
    writer = writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True)
    writer.start().awaitTermination()
    return made, batches


def _at_once(drawn: Round, directory: Path, spark: SparkSession) -> tuple[dict[str, DataFrame], list[pa.Table]]:
    """Return the results of static DataFrames."""
    frames = {}
    for source, parts in drawn.rows.items():
        _write(pa.concat_tables(parts), directory / source, 0)
        frames[source] = spark.read.schema(_spark_schema(parts[0])).parquet(f"{directory}/{source}")
    made = _called(drawn, directory, frames)
    return made, [_together(made).toArrow()]


def _called(drawn: Round, directory: Path, rows: Mapping[str, DataFrame], **options: Any) -> dict[str, DataFrame]:
    pond = Millpond(
        application_id="drawn", state_dir=f"{directory}/state", partitions=drawn.partitions, backend=drawn.backend,
        on_error=drawn.on_error, **options,
    )  # fmt: skip
    table = ParquetTable(directory / "table")
    return {verb: call.of(pond, verb, rows, F.col, table) for verb, call in drawn.calls.items()}


def _spark_schema(rows: pa.Table) -> Any:
    return from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)


def _write(rows: pa.Table, directory: Path, number: int) -> None:
    """Write the file of a micro-batch: a stream takes the oldest first."""
    directory.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, directory / f"{number}.parquet")
    os.utime(directory / f"{number}.parquet", (1_000_000 + number, 1_000_000 + number))


def _together(made: Mapping[str, DataFrame]) -> DataFrame:
    """Return the results of verbs in one DataFrame, with a column for each of them."""
    named = [
        rows.select(F.struct(*(F.col(f"`{name}`") for name in rows.columns)).alias(verb)) for verb, rows in made.items()
    ]
    return reduce(lambda some, more: some.unionByName(more, allowMissingColumns=True), named)


def _rows_of(verb: str, batch: pa.Table) -> pa.Table:
    column: Any = batch[verb].combine_chunks()
    column = column.filter(column.is_valid())
    return pa.Table.from_arrays(column.flatten(), schema=pa.schema(list(column.type)))


def differences(drawn: Round, spark: SparkSession, *, streaming: bool = True) -> dict[str, str]:
    """By verb, how the answers differ, of streams or of complete rows, with the call."""
    with tempfile.TemporaryDirectory(prefix="same-answers-") as name:
        directory = Path(name)
        (directory / "table").mkdir()
        for number, part in enumerate(drawn.rows["b"]):
            pq.write_table(part, directory / "table" / f"{number}.parquet")
        here, there = (
            on_pond(drawn, directory, streaming=streaming),
            on_spark(drawn, directory, spark, streaming=streaming),
        )
    return {
        verb: f"{drawn.calls[verb].options(pc.field)}\n{_told(here[verb], there[verb])}"
        for verb in drawn.calls
        if here[verb] != there[verb]
    }


def _told(here: Answer, there: Answer) -> str:
    if here.schema != there.schema:
        return f"Pond {here.schema}\nSpark {there.schema}"
    if len(here.rows) != len(there.rows):
        return f"{len(here.rows)} micro-batches, {len(there.rows)} on Spark"
    lines = []
    for batch, (one, other) in enumerate(zip(here.rows, there.rows, strict=True)):
        if one != other:
            lines.append(f"micro-batch {batch}: only Pond {_plain(one - other)}\n  only Spark {_plain(other - one)}")
    return "\n".join(lines)


def _plain(rows: Counter[tuple[bytes, ...]]) -> str:
    return str([[value.hex() for value in row] for row in rows.elements()][:4])


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, and tell what differs; 1 if anything does."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the number of the first round")
    parser.add_argument("--draws", type=int, default=200, help="end after so many calls")
    parser.add_argument("--at-once", action="store_true", help="of complete rows, not of streams")
    parser.add_argument("--verb", action="append", choices=list(DRAWS), help="only this one; may be repeated")
    chosen = parser.parse_args(arguments)
    spark = own_session()
    spark.sparkContext.setLogLevel("OFF")
    number, done, differing = chosen.seed, 0, 0
    while done < chosen.draws:
        began = time.monotonic()
        drawn = Round(number, chosen.verb or ())
        try:
            found = differences(drawn, spark, streaming=not chosen.at_once)
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"[:3000]}
        for verb, told in found.items():
            print(f"round {number}, {verb}: {told}", flush=True)
        print(f"round {number}: {time.monotonic() - began:.1f} s", flush=True)
        done, differing, number = done + len(drawn.calls), differing + len(found), number + 1
    spark.stop()
    print(f"{done} calls, {differing} differences")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
