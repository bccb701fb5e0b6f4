"""The words of a page on each benchmark: its title, and the limits of its numbers.

Rule of this module: each benchmark of ``documents.BENCHMARKS`` has its words here.
"""

from collections.abc import Mapping
from typing import Final

TITLES: Final = {
    "engines": "Storage engines side by side",
    "stores": "State stores side by side",
    "processors": "Stream processors side by side",
    "spark": "Streaming queries on Spark side by side",
    "nexmark": "The queries of Nexmark on Spark side by side",
    "latency": "Latency at a fixed rate on Spark side by side",
}

ABOUT: Final = {
    "nexmark": (
        "Nexmark is the suite by which stream processors are compared: an auction site with persons, auctions and "
        "bids (github.com/nexmark/nexmark). Each query is asked of the same events. A row is an event of any "
        "kind, whether the query reads it or not.",
        "All answers are right: each contender first answered each query in a run of its own, and as many rows as "
        "the table says were compared with what DuckDB answers from all events. Who answers wrongly has no figures.",
    ),
}
"""What a reader has to know before the figures of a benchmark."""

_ASKED = {
    "nexmark": {
        "q3": "who sells in three states in a category",
        "q4": "the average of the winning bids of a category",
        "q5": "the auctions with the most bids of 10 seconds, every 2 seconds",
        "q7": "the bids with the highest price of 10 seconds",
        "q8": "who has come and opened an auction in the same 10 seconds",
        "q9": "the winning bid of each auction",
        "q11": "bids of a user in a session",
        "q12": "bids of a user that arrive in 10 seconds",
        "q16": "bids, bidders and auctions of a channel on a day, by level of the price",
        "q17": "bids and prices of an auction on a day",
        "q18": "the last bid of each bidder for each auction",
        "q19": "the ten highest bids of an auction",
        "q20": "bids, each with its auction, of a category",
    },
}

_OF_ALL = {
    "Your machine, and tomorrow.": "Ratios mean more than rates. Between two runs of the same command on a shared "
    "machine lies a tenth or two; the slowest and the fastest run say how much to believe.",
}
_OF_DATA = {
    "Data larger than memory.": "What a cache does not hold comes from the page cache of the system, as long as there "
    "is memory for it, and not from the disk.",
    "A full tree.": "Compactions, which decide how an LSM tree does over days, hardly begin in a small store.",
}
_OF_PROMISES = {
    "Losses of power.": "What is said of durability is what the settings ask of the system. Who promises less has less "
    "to do, so compare those that promise the same.",
}
_OF_SPARK = {
    "A cluster.": "All runs on one machine, so nothing crosses a network, and no node is lost.",
    "Days.": "A query gets the rows of a few micro-batches. State that grows, compactions and restarts come later.",
    **_OF_PROMISES,
}
_OWN = {
    "engines": {
        "Your data.": "Keys have one length, values another, and nothing compresses.",
        **_OF_DATA,
        "Several threads or processes.": "There is one caller, in Python, which takes a part of each operation that no "
        "engine can help.",
        **_OF_PROMISES,
        "Stores and queries.": "A typed store does more than its engine, and Spark more than a store.",
    },
    "stores": {
        "Your data.": "Rows are made, by a pattern of keys and times; yours may be late more often, or wider.",
        **_OF_DATA,
        "Several tasks.": "There is one task and one caller, in Python, which takes a part of each step.",
        **_OF_PROMISES,
        "Queries.": "Nothing here reads from a source, shuffles or writes a sink, as a query on Spark does.",
    },
    "processors": {
        "Your data.": "Records are made, small, and spread over their keys as the settings say.",
        "Spark.": "A topology runs in one process and on one core, without partitions, shuffles and micro-batches of "
        "Spark.",
        "Your functions.": "What a topology calls for each record does next to nothing here.",
        **_OF_PROMISES,
    },
    "spark": {
        "Your data.": "Inputs are made, and lie in files on this machine. To find and read them is in the time of "
        "Spark's micro-batches, and the sink throws rows away.",
        **_OF_SPARK,
    },
    "nexmark": {
        "Your data.": "Events are made, as the suite says, and lie in files on this machine, or in topics of Kafka if "
        "the settings say so; Flink has them in memory. To find and read them is in the time of Spark's micro-batches, "
        "and the sink throws rows away.",
        **_OF_SPARK,
    },
    "latency": {
        "Your source and sink.": "Rows are made by Spark's workers on this machine, at the moment at which they are "
        "read, and the sink throws results away. A broker and a sink that lasts add their own.",
        "More than it takes.": "The rate is given, so throughputs are alike. Only who cannot take it has no result.",
        **_OF_SPARK,
    },
}


def turn(benchmark: str) -> str:
    """Return the name of what is repeated for each contender."""
    return "round" if benchmark in ("spark", "nexmark") else "run"


def asked(benchmark: str, workload: str) -> str | None:
    """Return what a query asks, if its name does not say it."""
    return _ASKED.get(benchmark, {}).get(workload)


def limits(benchmark: str) -> Mapping[str, str]:
    """Return what the numbers of a benchmark do not show, and why."""
    return {**_OWN[benchmark], **_OF_ALL}
