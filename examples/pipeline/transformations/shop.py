"""A Declarative Pipeline of three tables with verbs: orders without repeats, each at the rate of its time, and totals.

``spark-pipelines run`` reads it by ``spark-pipeline.yml``, which has the settings that it needs.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark import Millpond, configure, with_schema
from millpond.processors.verbs import aggregates

ORDERS = "id long, currency string, amount double, ordered timestamp"
RATES = "currency string, rate double, quoted timestamp"
PRICED = "id long, currency string, price double, ordered timestamp"

spark = configure(SparkSession.active())
pond = Millpond(application_id="shop", state_dir=str(spark.conf.get("spark.shop.state")))


def files(name: str, schema: str) -> DataFrame:
    return spark.readStream.schema(schema).json(f"{spark.conf.get('spark.shop.input')}/{name}")


@dp.table
def orders() -> DataFrame:
    return pond.deduplicate(files("orders", ORDERS), key="id", time="ordered", within="1 day")


@dp.table
def priced() -> DataFrame:
    rows, rates = with_schema(spark.readStream.table("orders"), ORDERS), files("rates", RATES)
    found = pond.asof_join(rows, rates, on="currency", left_time="ordered", right_time="quoted", history="1 day")
    return found.select("id", "currency", (F.col("amount") * F.col("rate")).alias("price"), "ordered")


@dp.table
def totals() -> DataFrame:
    rows = with_schema(spark.readStream.table("priced"), PRICED)
    return pond.aggregate(rows, {"total": aggregates.sum("price")}, by="currency", time="ordered")
