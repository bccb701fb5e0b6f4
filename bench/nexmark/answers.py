"""The answers to the queries, by DuckDB, from all events at once; and the differences of another answer.

Rule of this module: it shares no code with what it checks. All times are integers of milliseconds here, and a query is
that of the suite, but for what ``queries`` says of equal rows and of q12.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as _compute
import pyarrow.parquet as pq

from millpond.errors import MillpondError

pc: Any = _compute

_BATCH: Final = "micro_batch"
_SHOWN: Final = 3
"""The number of differing rows that an error shows."""


@dataclass(frozen=True)
class Answer:
    """The answer to a query.

    Attributes:
        columns: of its rows. Times are milliseconds; ``start`` and ``end`` are those of ``window``.
        sql: gives these columns from ``persons``, ``auctions`` and ``bids``.
        key: the columns of which a later row replaces an earlier one; none if rows that came out stay.
        until: the column with the time up to which a row has to wait for others; None if none waits.
    """

    columns: tuple[str, ...]
    sql: str
    key: tuple[str, ...] = ()
    until: str | None = None


def _columns(text: str) -> tuple[str, ...]:
    return tuple(text.replace(",", " ").split())


_BIDS_IN_TIME: Final = """
    SELECT a.*, b.bidder, b.price, b.dateTime AS bid_dateTime, b.extra AS bid_extra
    FROM auctions a JOIN bids b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
"""
_LEVELS: Final = {
    "rank1": "price < 10000",
    "rank2": "price >= 10000 AND price < 1000000",
    "rank3": "price >= 1000000",
}


def _by_level(call: str, name: str) -> str:
    """Return a call for all rows, and for those of each level of the price."""
    levels = [f"{call} FILTER (WHERE {prices}) AS {level}_{name}" for level, prices in _LEVELS.items()]
    return ", ".join([f"{call} AS total_{name}", *levels])


def _in_tumbling(times: str, millis: int) -> str:
    return f'{times} // {millis} * {millis} AS "start", {times} // {millis} * {millis} + {millis} AS "end"'


_LEVELS_OF_BIDS: Final = "total_bids, rank1_bids, rank2_bids, rank3_bids"
_BID: Final = "auction, bidder, price, channel, url, dateTime, extra"

ANSWERS: Final[Mapping[str, Answer]] = {
    "q3": Answer(
        _columns("id, name, city, state"),
        """SELECT a.id, p.name, p.city, p.state FROM auctions a JOIN persons p ON a.seller = p.id
           WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
        key=("id",),
    ),
    "q4": Answer(
        _columns("category, average"),
        f"""SELECT category, sum(final)::DOUBLE / count(*) AS average
            FROM (SELECT id, category, max(price) AS final FROM ({_BIDS_IN_TIME}) GROUP BY id, category)
            GROUP BY category""",
        key=("category",),
    ),
    "q5": Answer(
        _columns("auction, num, start, end"),
        """SELECT auction, num, "start", "start" + 10000 AS "end"
           FROM (SELECT *, max(num) OVER (PARTITION BY "start") AS most
                 FROM (SELECT auction, "start", count(*) AS num
                       FROM (SELECT auction, dateTime // 2000 * 2000 - step * 2000 AS "start"
                             FROM bids, range(5) steps(step))
                       GROUP BY auction, "start"))
           WHERE num = most""",
        until="end",
    ),
    "q7": Answer(
        _columns("auction, bidder, price, dateTime, extra"),
        """SELECT b.auction, b.bidder, b.price, b.dateTime, b.extra
           FROM bids b JOIN (SELECT max(price) AS highest, dateTime // 10000 * 10000 + 10000 AS "end"
                             FROM bids GROUP BY "end") w
           ON b.price = w.highest AND b.dateTime BETWEEN w."end" - 10000 AND w."end" """,
        until="dateTime",
    ),
    "q8": Answer(
        _columns("id, name, start"),
        """SELECT DISTINCT p.id, p.name, p.dateTime // 10000 * 10000 AS "start"
           FROM persons p JOIN auctions a ON p.id = a.seller AND p.dateTime // 10000 = a.dateTime // 10000""",
    ),
    "q9": Answer(
        _columns(
            "id, itemName, description, initialBid, reserve, dateTime, expires, seller, category, extra, bidder, "
            "price, bid_dateTime, bid_extra"
        ),
        f"""SELECT * FROM ({_BIDS_IN_TIME})
            QUALIFY row_number() OVER (PARTITION BY id ORDER BY price DESC, bid_dateTime, bid_extra) = 1""",
        key=("id",),
    ),
    "q11": Answer(
        _columns("bidder, bid_count, start, end"),
        """SELECT bidder, count(*) AS bid_count, min(dateTime) AS "start", max(dateTime) + 10000 AS "end"
           FROM (SELECT *, sum(begins) OVER (PARTITION BY bidder ORDER BY dateTime) AS session
                 FROM (SELECT bidder, dateTime, CASE WHEN dateTime - lag(dateTime) OVER of_bidder <= 10000
                              THEN 0 ELSE 1 END AS begins
                       FROM bids WINDOW of_bidder AS (PARTITION BY bidder ORDER BY dateTime)))
           GROUP BY bidder, session""",
        until="end",
    ),
    "q12": Answer(
        _columns("bidder, bid_count, start, end"),
        f"""SELECT bidder, count(*) AS bid_count, {_in_tumbling("arrived", 10_000)}
            FROM bids GROUP BY bidder, "start", "end" """,
        until="end",
    ),
    "q16": Answer(
        _columns(
            f"channel, start, end, latest, {_LEVELS_OF_BIDS}, {_LEVELS_OF_BIDS.replace('bids', 'bidders')}, "
            f"{_LEVELS_OF_BIDS.replace('bids', 'auctions')}"
        ),
        f"""SELECT channel, {_in_tumbling("dateTime", 86_400_000)}, max(dateTime) AS latest,
                   {_by_level("count(*)", "bids")}, {_by_level("count(DISTINCT bidder)", "bidders")},
                   {_by_level("count(DISTINCT auction)", "auctions")}
            FROM bids GROUP BY channel, "start", "end" """,
        key=("channel", "start"),
    ),
    "q17": Answer(
        _columns(f"auction, start, end, {_LEVELS_OF_BIDS}, min_price, max_price, avg_price, sum_price"),
        f"""SELECT auction, {_in_tumbling("dateTime", 86_400_000)}, {_by_level("count(*)", "bids")},
                   min(price) AS min_price, max(price) AS max_price,
                   sum(price)::DOUBLE / count(*) AS avg_price, sum(price)::BIGINT AS sum_price
            FROM bids GROUP BY auction, "start", "end" """,
        key=("auction", "start"),
    ),
    "q18": Answer(
        _columns(_BID),
        f"""SELECT {_BID} FROM bids
            QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC, extra DESC) = 1""",
        key=("bidder", "auction"),
    ),
    "q19": Answer(
        _columns(f"{_BID}, rank"),
        f"""SELECT {_BID}, row_number() OVER (PARTITION BY auction ORDER BY price DESC, dateTime, extra) AS rank
            FROM bids QUALIFY rank <= 10""",
        key=("auction", "rank"),
    ),
    "q20": Answer(
        _columns(
            "auction, bidder, price, channel, url, bid_dateTime, bid_extra, itemName, description, initialBid, "
            "reserve, dateTime, expires, seller, category, extra"
        ),
        """SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime AS bid_dateTime, b.extra AS bid_extra,
                  a.itemName, a.description, a.initialBid, a.reserve, a.dateTime, a.expires, a.seller, a.category,
                  a.extra
           FROM bids b JOIN auctions a ON b.auction = a.id WHERE a.category = 10""",
    ),
}


class Oracle:
    """The answers of the queries on some events.

    Args:
        events: the rows of ``persons``, ``auctions`` and ``bids``, as Arrow tables.
    """

    def __init__(self, events: Mapping[str, pa.Table]) -> None:
        self._connection = duckdb.connect()
        self._found: set[str] = set()
        for name, rows in events.items():
            self._connection.register(name, in_millis(rows))

    @classmethod
    def of_files(cls, place: Path, sources: Sequence[str], batches: int) -> "Oracle":
        """Return the oracle of the events in the first ``batches`` micro-batches written below ``place``."""
        numbers = range(batches)
        files = {
            name: [path for number in numbers for path in sorted((place / name).glob(f"{number:06d}-*"))]
            for name in sources
        }
        return cls({name: pa.concat_tables(map(pq.read_table, paths)) for name, paths in files.items()})

    def compared(self, query: str, rows: pa.Table, until: int | None = None) -> int:
        """Return how many rows of an answer are right: all of them.

        Args:
            query: its name.
            rows: the answer, as ``final_rows`` gives it.
            until: rows that wait for others are compared up to this time, in milliseconds; None if none waits any more.

        Raises:
            MillpondError: the answer is another one.
        """
        answer = ANSWERS[query]
        if query not in self._found:
            self._connection.execute(f"CREATE TABLE {query} AS {answer.sql}")
            self._found.add(query)
        self._connection.register("answer", rows.select(list(answer.columns)))
        named = ", ".join(f'"{name}"' for name in answer.columns)
        settled = "" if until is None or answer.until is None else f'WHERE "{answer.until}" <= {until}'
        right, given = (f"SELECT {named} FROM {source} {settled}" for source in (query, "answer"))
        missing, extra = (self._rows(f"{one} EXCEPT ALL {other}") for one, other in ((right, given), (given, right)))
        if missing or extra:
            raise MillpondError(
                f"the answer to {query} is wrong: {len(missing):,} rows are missing, such as {missing[:_SHOWN]}, and "
                f"{len(extra):,} are there that should not be, such as {extra[:_SHOWN]}"
            )
        ((count,),) = self._rows(f"SELECT count(*) FROM ({given})")
        return int(count)

    def _rows(self, sql: str) -> list[Any]:
        return self._connection.execute(sql).fetchall()


def final_rows(query: str, batches: Sequence[pa.Table]) -> pa.Table:
    """Return the rows that there are in the end of those that came out with each micro-batch, in milliseconds.

    Of a change feed, the last change of a key counts, unless it is a delete; of updates without a ``sequence``, the row
    of the last micro-batch.
    """
    answer = ANSWERS[query]
    numbered = [
        in_millis(rows).append_column(_BATCH, pa.repeat(number, len(rows))) for number, rows in enumerate(batches)
    ]
    rows = pa.concat_tables(numbered, promote_options="permissive")
    if not answer.key:
        return rows
    latest = ", ".join(f'"{name}" DESC' for name in (_BATCH, "sequence") if name in rows.column_names)
    key = ", ".join(f'"{name}"' for name in answer.key)
    last = f"SELECT * FROM rows QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY {latest}) = 1"
    there = "WHERE op <> 'delete'" if "op" in rows.column_names else ""
    connection = duckdb.connect()
    connection.register("rows", rows)
    found: pa.Table = connection.sql(f"SELECT * FROM ({last}) {there}").to_arrow_table()
    return found


def in_millis(rows: pa.Table) -> pa.Table:
    """Return the rows with their times as integers of milliseconds, and start and end of a window as columns."""
    flat = rows.flatten() if "window" in rows.column_names else rows
    names = [name.removeprefix("window.") for name in flat.column_names]
    columns: list[Any] = [
        one.cast(pa.timestamp("ms", one.type.tz)).cast(pa.int64()) if pa.types.is_timestamp(one.type) else one
        for one in flat.columns
    ]
    return pa.table(dict(zip(names, columns, strict=True)))
