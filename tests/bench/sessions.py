"""In place of a session of Spark, where a test needs none."""

from pyspark.sql import SparkSession


def no_session() -> SparkSession:
    raise AssertionError("a session is started, though nothing runs in it")
