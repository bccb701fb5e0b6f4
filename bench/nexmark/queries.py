"""The queries of Nexmark in verbs, each once, for Spark and for one process.

Rule of this module: a query is what a user would write. It reads the columns that it needs, and lets events be as late
as the suite does. Where the suite leaves open which of equal rows counts, ``extra`` decides, which differs from bid to
bid; without that, nobody could say whether an answer is right.
"""

from typing import Any, Final

from millpond.bench.nexmark.rows import GRACE, Events, Verbs
from millpond.processors import SessionWindows, TimeWindows
from millpond.processors.verbs import aggregates as agg

_DAY: Final = TimeWindows("1 day", grace=GRACE)
_TEN_SECONDS: Final = TimeWindows("10 seconds", grace=GRACE)


def q3(pond: Verbs, events: Events) -> Any:
    """Find local items: who sells in Oregon, Idaho or California in category 10, and which auctions are theirs."""
    col = events.col
    auctions = events.auctions.where(col("category") == 10).select("id", "seller", "dateTime")
    near = events.persons.where(col("state").isin(["OR", "ID", "CA"])).withColumnRenamed("dateTime", "since")
    sellers = near.select("id", "name", "city", "state", "since").withColumnRenamed("id", "seller")
    times = {"left_time": "dateTime", "right_time": "since"}
    return pond.table_join(auctions, sellers, on="seller", left_key="id", **times)


def q4(pond: Verbs, events: Events) -> Any:
    """Compute the average price for a category: of the winning bids of all its auctions."""
    bids = _bids_in_time(pond, events, ["id", "category"], ["price"])
    winning = pond.aggregate(bids, {"final": agg.max("price")}, by=["id", "category"], time="bid_dateTime")
    return pond.aggregate(winning, {"average": agg.avg("final")}, by="category", time="change_time")


def q5(pond: Verbs, events: Events) -> Any:
    """Find hot items: the auctions with the most bids in the last 10 seconds, every 2 seconds."""
    last = TimeWindows("10 seconds", advance="2 seconds", grace=GRACE)
    bids = events.bids.select("auction", "dateTime")
    counts = pond.aggregate(bids, {"num": agg.count()}, by="auction", time="dateTime", window=last, emit="final")
    ended = counts.withColumn("ended", events.col("window.end"))
    beside = pond.over(ended, {"most": agg.max("num")}, key="window", time="ended", within=0)
    return beside.where(events.col("num") == events.col("most"))


def q7(pond: Verbs, events: Events) -> Any:
    """Find the highest bid: the bids with the highest price of 10 seconds."""
    bids = events.bids.select("auction", "bidder", "price", "dateTime", "extra")
    prices = bids.select("price", "dateTime")
    highest = pond.aggregate(
        prices, {"price": agg.max("price")}, by=[], time="dateTime", window=_TEN_SECONDS, emit="final"
    )
    ended = highest.withColumn("ended", events.col("window.end"))
    return pond.stream_join(
        ended, bids, on="price", left_time="ended", right_time="dateTime", before="10 seconds", after=0, grace=GRACE
    )


def q8(pond: Verbs, events: Events) -> Any:
    """Monitor new users: who has come and opened an auction in the same 10 seconds."""
    window = events.tumbling("dateTime", 10)
    persons = events.persons.select("id", "name", "dateTime").withColumn("start", window)
    sellers = events.auctions.select("seller", "dateTime").withColumn("start", window)
    keys, times = {"id": "seller", "start": "start"}, {"left_time": "dateTime", "right_time": "dateTime"}
    return pond.stream_join(persons, sellers, on=keys, **times, within="10 seconds", how="semi", grace=GRACE)


def q9(pond: Verbs, events: Events) -> Any:
    """Find winning bids: the highest of each auction, and the first of several."""
    columns = ["id", "itemName", "description", "initialBid", "reserve", "seller", "category", "extra"]
    bids = _bids_in_time(pond, events, columns, ["bidder", "price", "bid_extra"])
    order, descending = ["price", "bid_dateTime", "bid_extra"], [True, False, False]
    return pond.top_n(bids, 1, by="id", order=order, descending=descending, time="bid_dateTime")


def q11(pond: Verbs, events: Events) -> Any:
    """Count by user sessions: how many bids a user makes without a pause of more than 10 seconds."""
    bids, sessions = events.bids.select("bidder", "dateTime"), SessionWindows("10 seconds", grace=GRACE)
    return pond.aggregate(bids, {"bid_count": agg.count()}, by="bidder", time="dateTime", window=sessions, emit="final")


def q12(pond: Verbs, events: Events) -> Any:
    """Count by processing time windows: how many bids of a user arrive in 10 seconds."""
    bids, windows = events.bids.select("bidder", "arrived"), TimeWindows("10 seconds")
    return pond.aggregate(bids, {"bid_count": agg.count()}, by="bidder", time="arrived", window=windows, emit="final")


def q16(pond: Verbs, events: Events) -> Any:
    """Compute channel statistics: a channel's bids, bidders and auctions on a day, by the level of the price."""
    bids, ranks = events.bids.select("channel", "bidder", "auction", "price", "dateTime"), _ranks(events)
    calls = {
        "latest": agg.max("dateTime"),
        "total_bids": agg.count(),
        **{f"{rank}_bids": agg.count(where=prices) for rank, prices in ranks.items()},
        "total_bidders": agg.count_distinct("bidder"),
        **{f"{rank}_bidders": agg.count_distinct("bidder", where=prices) for rank, prices in ranks.items()},
        "total_auctions": agg.count_distinct("auction"),
        **{f"{rank}_auctions": agg.count_distinct("auction", where=prices) for rank, prices in ranks.items()},
    }
    return pond.aggregate(bids, calls, by="channel", time="dateTime", window=_DAY)


def q17(pond: Verbs, events: Events) -> Any:
    """Compute auction statistics: how many bids an auction has on a day, and at which prices."""
    bids = events.bids.select("auction", "price", "dateTime")
    calls = {
        "total_bids": agg.count(),
        **{f"{rank}_bids": agg.count(where=prices) for rank, prices in _ranks(events).items()},
        "min_price": agg.min("price"),
        "max_price": agg.max("price"),
        "avg_price": agg.avg("price"),
        "sum_price": agg.sum("price"),
    }
    return pond.aggregate(bids, calls, by="auction", time="dateTime", window=_DAY)


def q18(pond: Verbs, events: Events) -> Any:
    """Find last bid: the last one that a bidder has made for an auction."""
    bids = events.bids.select("auction", "bidder", "price", "channel", "url", "dateTime", "extra")
    return pond.top_n(bids, 1, by=["bidder", "auction"], order=["dateTime", "extra"], descending=True, time="dateTime")


def q19(pond: Verbs, events: Events) -> Any:
    """Find an auction's top 10 prices: its ten highest bids."""
    bids = events.bids.select("auction", "bidder", "price", "channel", "url", "dateTime", "extra")
    order, descending = ["price", "dateTime", "extra"], [True, False, False]
    return pond.top_n(bids, 10, by="auction", order=order, descending=descending, time="dateTime")


def q20(pond: Verbs, events: Events) -> Any:
    """Expand bids with their auctions, of category 10."""
    bids = events.bids.select("auction", "bidder", "price", "channel", "url", "dateTime", "extra")
    expanded = bids.withColumnRenamed("dateTime", "bid_dateTime").withColumnRenamed("extra", "bid_extra")
    return pond.stream_join(
        expanded,
        events.auctions.where(events.col("category") == 10),
        on={"auction": "id"},
        left_time="bid_dateTime",
        right_time="dateTime",
        before=events.site.oldest_auction,
        after=events.site.latest_auction,
        grace=GRACE,
    )


def _bids_in_time(pond: Verbs, events: Events, auctions: list[str], bids: list[str]) -> Any:
    """Join these columns of auctions with those of each bid that came while the auction was open."""
    renamed = events.bids.withColumnRenamed("dateTime", "bid_dateTime").withColumnRenamed("extra", "bid_extra")
    return pond.stream_join(
        events.auctions.select(*auctions, "dateTime", "expires"),
        renamed.select("auction", "bid_dateTime", *bids),
        on={"id": "auction"},
        left_time="dateTime",
        right_time="bid_dateTime",
        before=0,
        after=events.col("expires") - events.col("dateTime"),
        at_most=events.site.longest_auction,
        grace=GRACE,
    )


def _ranks(events: Events) -> dict[str, Any]:
    """Return the conditions of prices, by the name of their level."""
    price = events.col("price")
    return {
        "rank1": price < 10_000,
        "rank2": (price >= 10_000) & (price < 1_000_000),
        "rank3": price >= 1_000_000,
    }
