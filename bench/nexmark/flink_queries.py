"""The queries in Flink SQL.

Rule of this module: a query has the form that the suite has for Flink, and gives the columns of ``answers``. It reads
the columns that it needs, and has event time, with the watermark of the suite, where that is of use. Flink is told that
ids are keys. Joins have no bounds of time, as in the suite; interval joins would free state, and take more time.
"""

from typing import Final

from millpond.bench.flink.queries import FlinkQuery, Table, interval
from millpond.bench.nexmark.events import LATEST
from millpond.bench.nexmark.files import AUCTIONS, BIDS, PERSONS
from millpond.bench.spark.inputs import Source

_BID: Final = "auction, bidder, price, channel, url, `dateTime`, extra"
_AUCTION: Final = "itemName, description, initialBid, reserve, `dateTime`, expires, seller, category, extra"
_DAY: Final = "FLOOR(`dateTime` TO DAY)"
_LEVELS: Final = {
    "total": "",
    "rank1": " FILTER (WHERE price < 10000)",
    "rank2": " FILTER (WHERE price >= 10000 AND price < 1000000)",
    "rank3": " FILTER (WHERE price >= 1000000)",
}


def q3() -> FlinkQuery:
    """Join two streams, of which one has the key of the join."""
    sql = """
        SELECT a.id, p.name, p.city, p.state FROM auctions AS a JOIN persons AS p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
    """
    return FlinkQuery(sql, (_table(AUCTIONS, "id, seller, category"), _table(PERSONS, "id, name, city, state")))


def q4() -> FlinkQuery:
    """Aggregate a join, and the updates of that once more."""
    winning = f"SELECT id, category, MAX(price) AS final FROM ({_bids_in_time('price')}) GROUP BY id, category"
    sql = f"""
        SELECT category, CAST(SUM(final) AS DOUBLE) / COUNT(*) AS average FROM ({winning}) GROUP BY category
    """
    auctions = _table(AUCTIONS, "id, category, `dateTime`, expires")
    return FlinkQuery(sql, (auctions, _table(BIDS, "auction, price, `dateTime`")), is_table=True)


def q5() -> FlinkQuery:
    """Join the counts of each window with the greatest of them, as Flink has no rank of windows that keeps ties."""
    counts = """
        SELECT auction, COUNT(*) AS num, window_start, window_end
        FROM TABLE(HOP(TABLE bids, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
        GROUP BY auction, window_start, window_end
    """
    most = f"SELECT MAX(num) AS num, window_start, window_end FROM ({counts}) GROUP BY window_start, window_end"
    sql = f"""
        SELECT c.auction, c.num, c.window_start AS `start`, c.window_end AS `end`
        FROM ({counts}) AS c JOIN ({most}) AS m
        ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.num = m.num
    """
    return FlinkQuery(sql, (_timed(BIDS, "auction, `dateTime`"),))


def q7() -> FlinkQuery:
    """Join bids with the highest price of a window."""
    highest = f"""
        SELECT MAX(price) AS price, window_end FROM TABLE({_tumbling(BIDS)}) GROUP BY window_start, window_end
    """
    sql = f"""
        SELECT b.auction, b.bidder, b.price, b.`dateTime`, b.extra FROM bids AS b JOIN ({highest}) AS w
        ON b.price = w.price WHERE b.`dateTime` BETWEEN w.window_end - INTERVAL '10' SECOND AND w.window_end
    """
    return FlinkQuery(sql, (_timed(BIDS, "auction, bidder, price, `dateTime`, extra"),))


def q8() -> FlinkQuery:
    """Join two windows."""

    def once(source: Source, columns: str) -> str:
        within = f"{columns}, window_start, window_end"
        return f"SELECT {within} FROM TABLE({_tumbling(source)}) GROUP BY {within}"

    sql = f"""
        SELECT p.id, p.name, p.window_start AS `start`
        FROM ({once(PERSONS, "id, name")}) AS p JOIN ({once(AUCTIONS, "seller")}) AS a
        ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end
    """
    return FlinkQuery(sql, (_timed(PERSONS, "id, name, `dateTime`"), _timed(AUCTIONS, "seller, `dateTime`")))


def q9() -> FlinkQuery:
    """Rank the rows of a join, and keep the first."""
    bids = _bids_in_time("bidder", "price", "extra")
    order = "price DESC, bid_dateTime, bid_extra"
    sql = f"""
        SELECT id, {_AUCTION}, bidder, price, bid_dateTime, bid_extra
        FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY {order}) AS place FROM ({bids})) WHERE place = 1
    """
    auctions = _table(AUCTIONS, f"id, {_AUCTION}")
    return FlinkQuery(sql, (auctions, _table(BIDS, "auction, bidder, price, `dateTime`, extra")), is_table=True)


def q11() -> FlinkQuery:
    """Count in sessions."""
    sessions = "SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND)"
    return FlinkQuery(_counted(sessions), (_timed(BIDS, "bidder, `dateTime`"),))


def q12() -> FlinkQuery:
    """Count in windows, by the time of arrival."""
    arrivals = Table.of("bids", _schema(BIDS, "bidder, arrived"), _watermark("arrived", 1))
    return FlinkQuery(_counted("TUMBLE(TABLE bids, DESCRIPTOR(arrived), INTERVAL '10' SECOND)"), (arrivals,))


def q16() -> FlinkQuery:
    """Aggregate by day, distinct values too."""
    calls = ", ".join(
        f"COUNT({what}){prices} AS {level}_{name}"
        for what, name in (("*", "bids"), ("DISTINCT bidder", "bidders"), ("DISTINCT auction", "auctions"))
        for level, prices in _LEVELS.items()
    )
    sql = f"""
        SELECT channel, `start`, `start` + INTERVAL '1' DAY AS `end`, latest,
            {_all_levels("bids", "bidders", "auctions")}
        FROM (SELECT channel, {_DAY} AS `start`, MAX(`dateTime`) AS latest, {calls} FROM bids GROUP BY channel, {_DAY})
    """
    return FlinkQuery(sql, (_table(BIDS, "channel, bidder, auction, price, `dateTime`"),), is_table=True)


def q17() -> FlinkQuery:
    """Aggregate by day."""
    counts = ", ".join(f"COUNT(*){prices} AS {level}_bids" for level, prices in _LEVELS.items())
    sql = f"""
        SELECT auction, `start`, `start` + INTERVAL '1' DAY AS `end`, {_all_levels("bids")}, min_price, max_price,
            CAST(sum_price AS DOUBLE) / total_bids AS avg_price, sum_price
        FROM (SELECT auction, {_DAY} AS `start`, {counts}, MIN(price) AS min_price, MAX(price) AS max_price,
            SUM(price) AS sum_price FROM bids GROUP BY auction, {_DAY})
    """
    return FlinkQuery(sql, (_table(BIDS, "auction, price, `dateTime`"),), is_table=True)


def q18() -> FlinkQuery:
    """Rank bids, and keep the first; of equal times, which are many, a deduplication by time would keep any."""
    ranked = (
        f"SELECT {_BID}, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY `dateTime` DESC, extra DESC) AS place"
    )
    return FlinkQuery(f"SELECT {_BID} FROM ({ranked} FROM bids) WHERE place = 1", (_table(BIDS, _BID),), is_table=True)


def q19() -> FlinkQuery:
    """Rank bids, and show the rank."""
    ranked = f"SELECT {_BID}, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, `dateTime`, extra) AS `rank`"
    return FlinkQuery(f"SELECT * FROM ({ranked} FROM bids) WHERE `rank` <= 10", (_table(BIDS, _BID),), is_table=True)


def q20() -> FlinkQuery:
    """Join bids with their auctions."""
    sql = f"""
        SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.`dateTime` AS bid_dateTime, b.extra AS bid_extra,
            {_of_auction(_AUCTION)}
        FROM bids AS b JOIN auctions AS a ON b.auction = a.id WHERE a.category = 10
    """
    return FlinkQuery(sql, (_table(AUCTIONS, f"id, {_AUCTION}"), _table(BIDS, _BID)))


def _table(source: Source, columns: str, *parts: str) -> Table:
    """Return the table of these columns, with the key if it is the first of them."""
    key = ["PRIMARY KEY (id) NOT ENFORCED"] if columns.startswith("id,") else []
    return Table.of(source.name, _schema(source, columns), *parts, *key)


def _timed(source: Source, columns: str) -> Table:
    """Return the same, with event time."""
    return _table(source, columns, _watermark("`dateTime`", LATEST * 1_000))


def _schema(source: Source, columns: str) -> str:
    """Return some of the columns of a source, with their types."""
    chosen = columns.replace("`", "").split(", ")
    return ", ".join(column for column in source.schema.split(", ") if column.split()[0] in chosen)


def _watermark(column: str, millis: int) -> str:
    """Return the watermark of rows that may be so late."""
    return f"WATERMARK FOR {column} AS {column} - {interval(millis)}"


def _tumbling(source: Source) -> str:
    return f"TUMBLE(TABLE {source.name}, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND)"


def _counted(windows: str) -> str:
    return f"""
        SELECT bidder, COUNT(*) AS bid_count, window_start AS `start`, window_end AS `end` FROM TABLE({windows})
        GROUP BY bidder, window_start, window_end
    """


def _bids_in_time(*columns: str) -> str:
    """Return the join of auctions with some columns of the bids that came while they were open."""
    of_bid = ", ".join(f"b.{name} AS bid_{name}" if name == "extra" else f"b.{name}" for name in columns)
    return f"""
        SELECT a.*, {of_bid}, b.`dateTime` AS bid_dateTime FROM auctions AS a JOIN bids AS b ON a.id = b.auction
        WHERE b.`dateTime` BETWEEN a.`dateTime` AND a.expires
    """


def _of_auction(columns: str) -> str:
    return ", ".join(f"a.{name}" for name in columns.split(", "))


def _all_levels(*names: str) -> str:
    return ", ".join(f"{level}_{name}" for name in names for level in _LEVELS)
