"""Change feeds that verbs make, as the columns of DataFrames tell them.

Rule of this module: nobody else knows where Spark keeps the mark of a feed's columns.
"""

from pyspark.sql import DataFrame

from millpond.processors.calls.feeds.feeds import FEED, Feed, feed_among


def feed_in(frame: DataFrame) -> Feed | None:
    """The change feed that the rows are of; None if there is none, or columns of several."""
    return feed_among({field.name: field.metadata.get(FEED) for field in frame.schema.fields})
