"""``Pond`` gives what ``Millpond`` gives, for every verb, and takes the same arguments."""

from inspect import signature

import pytest
from pyspark.sql import SparkSession

from millpond.adapters.spark import Millpond
from millpond.processors.pond.verbs import Verbs
from tests.spark.same_answers import DRAWS, Round, differences, verbs

RESTARTED = {"renamed", "dropped", "added", "until"}
"""What tells of an earlier run of a query; ``Pond`` keeps nothing beyond one."""
ON_SPARK = {**dict.fromkeys(DRAWS, RESTARTED), "apply": {*RESTARTED, "ticks"}}
"""``ticks`` is a stream; ``MicroBatches.tick`` stands for it."""
COMPLETE = {"latest": {"history"}, "asof_join": {"history"}, "apply": {"lateness"}}
"""How late rows may come, which says nothing of rows that are complete; ``in_batches`` asks for it, too."""


def test_every_verb_is_drawn() -> None:
    assert DRAWS.keys() == verbs()


@pytest.mark.parametrize("verb", sorted(verbs()))
def test_both_take_the_same_arguments_in_the_same_order(verb: str) -> None:
    here = signature(getattr(Verbs, verb)).parameters
    there = signature(getattr(Millpond, verb)).parameters
    assert [name for name in there if name not in ON_SPARK[verb]] == list(here)
    others = {name for name, one in here.items() if (one.default, one.kind) != (there[name].default, there[name].kind)}
    assert others == COMPLETE.get(verb, set())


@pytest.mark.spark
def test_complete_rows_give_the_same_on_spark(spark: SparkSession) -> None:
    assert differences(Round(1), spark, streaming=False) == {}


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_streams_give_the_same_on_spark_micro_batch_by_micro_batch(spark: SparkSession, seed: int) -> None:
    assert differences(Round(seed), spark) == {}


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 8))
def test_more_complete_rows_give_the_same_on_spark(spark: SparkSession, seed: int) -> None:
    assert differences(Round(seed), spark, streaming=False) == {}
