"""One broker, one witness and one SparkSession for all tests on Kafka."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.kafka.broker import Broker
from tests.kafka.on_spark import session
from tests.kafka.witness import Witness


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(scope="session")
def witness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Witness]:
    with Witness(tmp_path_factory.mktemp("witness")) as witness:
        yield witness


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    spark = session()
    yield spark
    spark.stop()
