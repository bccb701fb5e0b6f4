"""What all tests share: JVMs that are soon ready, and which tests stay together where several processes run them."""

import os

import pytest

os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
"""What a JVM compiles at length, and collects in threads, pays only for programs that run longer than a test."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One process has all tests on Spark, and so one SparkSession; of the others, it has whole files."""
    for item in items:
        on_spark = item.get_closest_marker("spark") is not None
        item.add_marker(pytest.mark.xdist_group("spark" if on_spark else str(item.path)))
