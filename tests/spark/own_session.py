"""The SparkSession of a job in a process of its own."""

import os
import sys

from pyspark.sql import SparkSession

from millpond.adapters.spark import configure
from tests import quick_spark


def own_session() -> SparkSession:
    """Return a session of two cores and two shuffle partitions, set up for Millpond."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
        configure(SparkSession.builder.master("local[2]"))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config(map=quick_spark.configuration())
        .getOrCreate()
    )
