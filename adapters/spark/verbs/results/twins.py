"""Rows that a query has written beside those that the same verbs make of static DataFrames.

Rule of this module: Spark compares, and only rows that differ come to the driver.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millpond.adapters.spark.rows.names import named
from millpond.adapters.spark.verbs.frames.inputs import field_of, micros
from millpond.adapters.spark.verbs.frames.told_columns import feed_in
from millpond.errors import StreamingOrStaticError
from millpond.processors.calls.arguments import moment_of
from millpond.processors.calls.feeds import Feed
from millpond.processors.calls.reports.batch_twin import (
    RowDifference,
    Unequal,
    Verification,
    check_interval,
    check_key,
    paired,
)
from millpond.stores.encoding.times import Instant

_SURPLUS: Final = "millpond_surplus"
_ROWS: Final = "millpond_rows"
_DELETE: Final = "delete"


class Differing(NamedTuple):
    """The differences between two sides.

    Attributes:
        missing: how many rows only the other side has.
        extra: how many rows only the one side has.
        different: of how many keys both have rows with other values.
        pairs: the first of these, the one side as what was written.
    """

    missing: int
    extra: int
    different: int
    pairs: tuple[RowDifference, ...]


def verified(
    computed: DataFrame,
    written: DataFrame,
    *,
    key: Sequence[str],
    time: str | Column | None,
    since: Instant | str | None,
    until: Instant | str | None,
    shown: int,
) -> Verification:
    """Return the differences between what was written and what was computed.

    Args:
        computed: the result of verbs on static DataFrames.
        written: the rows that came out of the query.
        key: the columns of the key.
        time: the column (or expression) by which rows count, if only those of an interval do.
        since: from when on they do; None for all from the beginning.
        until: the time before which they do; None for all to the end.
        shown: how many differences to show at most.

    Raises:
        ConfigurationError: a DataFrame is a stream, rows have other columns, a change feed has no key, or the interval
            no time.
    """
    for what, frame in (("what the query gives", computed), ("written", written)):
        if frame.isStreaming:
            raise StreamingOrStaticError(
                f"{what} is a streaming DataFrame, and rows are compared when all are there; give static ones, such as "
                "spark.read.parquet(...)"
            )
    check_interval(time, since, until)
    feed = feed_in(computed)
    check_key(key, computed.columns, feed=feed is not None)
    for name in computed.columns:
        field_of("written", written, name)
    ends = moment_of(since, "since"), moment_of(until, "until")
    one, other = (
        counting(frame.select(*map(named, computed.columns)), key, feed, time, ends) for frame in (written, computed)
    )
    other = other.persist()
    try:
        found = differing(one, other, key, shown)
        return Verification(other.count(), found.missing, found.extra, found.different, found.pairs)
    finally:
        other.unpersist()


def counting(
    rows: DataFrame,
    key: Sequence[str],
    feed: Feed | None,
    time: str | Column | None,
    ends: tuple[int | None, int | None],
) -> DataFrame:
    """Return the rows that count: of a change feed, those that are there in the end."""
    if feed is not None and feed.sequence is not None and feed.op is not None:
        whole = F.struct(*map(named, rows.columns))
        last = rows.groupBy(*map(named, key)).agg(F.max_by(whole, named(feed.sequence)).alias(_ROWS))
        rows = last.select(f"{_ROWS}.*").where(named(feed.op) != _DELETE)
    if time is not None:
        column = F.col(time) if isinstance(time, str) and time not in rows.columns else time
        for end, later in zip(ends, (True, False), strict=True):
            if end is not None:
                at = micros("input", rows, column)
                rows = rows.where(at >= end if later else at < end)
    return rows if feed is None else rows.drop(*map(named, feed.changes))


def differing(one: DataFrame, other: DataFrame, key: Sequence[str], shown: int) -> Differing:
    """Return which rows are not on both sides, as often on the one as on the other.

    Args:
        one, other: the sides, with the same columns.
        key: the columns of the key; none if rows have none.
        shown: how many differences to show at most.
    """
    columns = [named(name) for name in other.columns]
    both = one.select(*columns, F.lit(1).alias(_SURPLUS)).unionAll(other.select(*columns, F.lit(-1).alias(_SURPLUS)))
    unequal = both.groupBy(*columns).agg(F.sum(_SURPLUS).alias(_SURPLUS)).where(F.col(_SURPLUS) != 0)
    surplus, whole = F.col(_SURPLUS), F.struct(*columns, _SURPLUS)
    groups = unequal.groupBy(*map(named, key)) if key else unequal.groupBy(*columns)
    extra, missing = (F.sum(F.greatest(count, F.lit(0))) for count in (surplus, -surplus))
    told = groups.agg(extra.alias("extra"), missing.alias("missing"), F.collect_list(whole).alias(_ROWS)).select(
        "extra", "missing", F.least("extra", "missing").alias("both"), _ROWS
    )
    told = told.persist()
    try:
        counts = told.agg(
            *(F.coalesce(F.sum(part), F.lit(0)).alias(name) for name, part in {
                "missing": F.col("missing") - F.col("both"), "extra": F.col("extra") - F.col("both"),
                "different": F.col("both")}.items())
        ).collect()[0]  # fmt: skip
        found = [row for group in told.limit(shown).collect() for row in group[_ROWS]]
    finally:
        told.unpersist()
    given = [row.asDict(recursive=True) for row in found]
    differing = [Unequal({name: row[name] for name in other.columns}, row[_SURPLUS]) for row in given]
    pairs = tuple(paired(differing, key))[:shown]
    return Differing(counts["missing"], counts["extra"], counts["different"], pairs)
