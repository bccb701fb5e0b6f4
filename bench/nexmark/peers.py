"""The queries by Spark's own means: its JVM operators, and ``transformWithState`` where there is none.

Rule of this module: a peer is written as somebody would write it who wants the most of Spark, with the watermark of the
suite, and gives the columns that the verbs give. What Spark cannot express in one query is not here: q4 has a greatest
value behind a join, and an average behind that, and q16 counts distinct values.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millpond.bench.nexmark.events import Site
from millpond.bench.nexmark.rows import GRACE
from millpond.bench.nexmark.stateful import HighestBids, LastBid, WinningBid
from millpond.bench.spark.shapes import Inputs, Scale

_BID = ("auction", "bidder", "price", "channel", "url", "dateTime", "extra")
_BID_SCHEMA = "auction long, bidder long, price long, channel string, url string, dateTime long, extra string"
_AUCTION = (
    "id long, itemName string, description string, initialBid long, reserve long, dateTime long, expires long, "
    "seller long, category long, extra string"
)
_OF_AUCTION = "price long, bid_dateTime long, bid_extra string, bidder long"
"""In Python, a time is a number: some of Spark's have a time zone there, and others have none."""


def jvm_q3(site: Site, inputs: Inputs, scale: Scale) -> DataFrame:
    """Join by Spark's join of streams without a watermark, which keeps all rows of both sides."""
    auctions = inputs["auctions"].where("category = 10").select("id", "seller")
    near = inputs["persons"].where("state IN ('OR', 'ID', 'CA')")
    persons = near.select(F.col("id").alias("seller"), "name", "city", "state")
    return auctions.join(persons, "seller").select("id", "name", "city", "state")


def jvm_q5(site: Site, inputs: Inputs, scale: Scale) -> DataFrame:
    """Return a windowed aggregate, and behind it another one that collects the auctions of a window."""
    counts = _late(inputs["bids"]).groupBy(F.window("dateTime", "10 seconds", "2 seconds").alias("window"), "auction")
    num = counts.agg(F.count("*").alias("num"))
    auctions = F.collect_list(F.struct("auction", "num")).alias("auctions")
    most = num.groupBy("window").agg(F.max("num").alias("most"), auctions)
    hot = F.filter("auctions", lambda one: one["num"] == F.col("most"))
    return most.select("window", F.inline(hot))


def jvm_q7(site: Site, inputs: Inputs, scale: Scale) -> DataFrame:
    """Return a windowed aggregate, joined with the bids that it is of."""
    prices = _late(inputs["bids"]).groupBy(F.window("dateTime", "10 seconds").alias("window"))
    highest = prices.agg(F.max("price").alias("highest"))
    bids = _late(inputs["bids"]).select("auction", "bidder", "price", "dateTime", "extra")
    within = F.col("dateTime").between(F.col("window.start"), F.col("window.end"))
    return bids.join(highest, (F.col("price") == F.col("highest")) & within).select(*bids.columns)


def jvm_q8(site: Site, inputs: Inputs, scale: Scale) -> DataFrame:
    """Join by Spark's semi join of streams."""
    window = F.window("dateTime", "10 seconds")["start"]
    persons = _late(inputs["persons"]).select("id", "name", "dateTime", window.alias("start"))
    opened = F.col("dateTime").alias("opened")
    sellers = _late(inputs["auctions"]).select("seller", opened, window.alias("opened_in"))
    ten = F.expr("interval 10 seconds")
    near = F.col("opened").between(F.col("dateTime") - ten, F.col("dateTime") + ten)
    same = (F.col("id") == F.col("seller")) & (F.col("start") == F.col("opened_in"))
    return persons.join(sellers, same & near, "left_semi").select("id", "name", "start")


def stateful_q9(site: Site, inputs: Inputs, scale: Scale) -> DataFrame:
    """Return an auction and its bids by ``transformWithState``: Spark has no greatest row behind a join."""
    auctions = inputs["auctions"].withColumns({name: F.unix_millis(name) for name in ("dateTime", "expires")})
    placed = F.unix_millis("dateTime").alias("bid_dateTime")
    bids = inputs["bids"].select(
        F.col("auction").alias("id"), "price", placed, F.col("extra").alias("bid_extra"), "bidder"
    )
    rows = auctions.unionByName(bids, allowMissingColumns=True).groupBy("id")
    winning = rows.transformWithState(WinningBid(_AUCTION, _OF_AUCTION), f"{_AUCTION}, {_OF_AUCTION}", "Update", "None")
    return winning.withColumns({name: F.timestamp_millis(name) for name in ("dateTime", "expires", "bid_dateTime")})


def jvm_q11(site: Site, inputs: Inputs, scale: Scale) -> DataFrame:
    """Count by Spark's session windows."""
    return _counted(_late(inputs["bids"]), F.session_window("dateTime", "10 seconds"))


def jvm_q12(site: Site, inputs: Inputs, scale: Scale) -> DataFrame:
    """Count by Spark's windows, by the time of arrival."""
    return _counted(inputs["bids"].withWatermark("arrived", "0 seconds"), F.window("arrived", "10 seconds"))


def jvm_q17(site: Site, inputs: Inputs, scale: Scale) -> DataFrame:
    """Aggregate by day with Spark, in update mode."""
    ranks = {"rank1": "price < 10000", "rank2": "price >= 10000 AND price < 1000000", "rank3": "price >= 1000000"}
    day = F.window("dateTime", "1 day").alias("window")
    return (
        _late(inputs["bids"])
        .groupBy("auction", day)
        .agg(
            F.count("*").alias("total_bids"),
            *(F.expr(f"count_if({prices})").alias(f"{rank}_bids") for rank, prices in ranks.items()),
            F.min("price").alias("min_price"),
            F.max("price").alias("max_price"),
            F.avg("price").alias("avg_price"),
            F.sum("price").alias("sum_price"),
        )
    )


def jvm_q18(site: Site, inputs: Inputs, scale: Scale) -> DataFrame:
    """Keep the last bid by Spark's aggregate in update mode, of which each result is a whole row."""
    bids = inputs["bids"]
    last = F.max_by(F.struct("price", "channel", "url", "dateTime", "extra"), F.struct("dateTime", "extra"))
    return bids.groupBy("auction", "bidder").agg(last.alias("last")).select("auction", "bidder", "last.*")


def stateful_q18(site: Site, inputs: Inputs, scale: Scale) -> DataFrame:
    """Keep the last bid by ``transformWithState``."""
    bids = _to_python(inputs["bids"]).groupBy("auction", "bidder")
    return _from_python(bids.transformWithState(LastBid(_BID_SCHEMA), _BID_SCHEMA, "Update", "None"))


def stateful_q19(site: Site, inputs: Inputs, scale: Scale) -> DataFrame:
    """Return the highest bids by ``transformWithState``: Spark's streams have no ``row_number``."""
    bids, ranked = _to_python(inputs["bids"]).groupBy("auction"), f"{_BID_SCHEMA}, rank int"
    return _from_python(bids.transformWithState(HighestBids(_BID_SCHEMA, 10), ranked, "Update", "None"))


def jvm_q20(site: Site, inputs: Inputs, scale: Scale) -> DataFrame:
    """Join by Spark's join of streams, with the bounds that the verbs have."""
    bids = _late(inputs["bids"]).select(*_BID)
    expanded = bids.withColumnsRenamed({"dateTime": "bid_dateTime", "extra": "bid_extra"})
    auctions = _late(inputs["auctions"].where("category = 10"))
    earliest = F.col("bid_dateTime") - _length(site.oldest_auction)
    begun = F.col("dateTime").between(earliest, F.col("bid_dateTime") + _length(site.latest_auction))
    return expanded.join(auctions, (F.col("auction") == F.col("id")) & begun).drop("id")


def _to_python(bids: DataFrame) -> DataFrame:
    return bids.select(*_BID).withColumn("dateTime", F.unix_millis("dateTime"))


def _from_python(bids: DataFrame) -> DataFrame:
    return bids.withColumn("dateTime", F.timestamp_millis("dateTime"))


def _late(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("dateTime", GRACE)


def _counted(bids: DataFrame, window: Column) -> DataFrame:
    return bids.groupBy("bidder", window.alias("window")).agg(F.count("*").alias("bid_count"))


def _length(millis: int) -> Column:
    return F.expr(f"interval {millis} milliseconds")
