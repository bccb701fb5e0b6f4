"""Why rows of joins have their matches, by what their queries have committed on each backend."""

from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark import Evolution, Millpond
from millpond.adapters.spark.session.checkpoint import Checkpoint
from millpond.errors import ConfigurationError
from millpond.processors.verbs.matching.explanation import MatchExplanation
from millpond.stores.durability.manifests.manifest import Manifest
from tests.spark.test_verbs import Job, job

__all__ = ["job"]

pytestmark = pytest.mark.spark

ORDERS = "id int, currency string, at timestamp, most int, minutes int"
RATES = "currency string, since timestamp, rate int, op string"


def orders(job: Job) -> DataFrame:
    return job.rows(
        ORDERS,
        (1, "EUR", "2026-01-01 10:10", 7, 5),
        (2, "EUR", "2026-01-01 10:20", 9, 30),
        (3, "USD", "2026-01-01 10:20", 9, 30),
        (4, "EUR", "2026-01-01 10:40", 9, 1),
        (5, None, "2026-01-01 10:40", 9, 1),
    )


def rates(job: Job) -> list[DataFrame]:
    return [
        job.rows(RATES, ("EUR", "2026-01-01 10:00", 7, "upsert"), ("EUR", "2026-01-01 10:15", 12, "upsert")),
        job.rows(RATES, ("EUR", "2026-01-01 10:30", 8, "delete"), ("USD", "2026-01-01 10:25", 3, "upsert")),
    ]


def won(told: MatchExplanation) -> list[Any]:
    return [(one.side, one.row["rate"]) for one in told.winners if one.row is not None and "rate" in one.row]


@pytest.mark.parametrize(
    "backend", [pytest.param("memory", marks=pytest.mark.long), "lmdb", pytest.param("rocksdb", marks=pytest.mark.long)]
)
def test_rows_of_all_joins_are_explained_from_what_is_committed(
    job: Job, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint is asked once for each row, however many stores the join has."""
    asked: list[str] = []
    manifests = Checkpoint.manifests

    def asking(checkpoint: Checkpoint, batch_id: int | None = None) -> list[Manifest]:
        asked.append(checkpoint.location)
        return manifests(checkpoint, batch_id)

    monkeypatch.setattr(Checkpoint, "manifests", asking)
    left, parts = orders(job), rates(job)
    job.arrive("orders", left)
    for part in parts:
        job.arrive("rates", part)
    how: dict[str, Any] = {"on": "currency", "left_time": F.col("at"), "right_time": "since", "how": "left"}

    def made() -> tuple[Any, dict[str, DataFrame]]:
        pond = job.pond(backend=backend)
        streams = job.stream("orders", left), job.stream("rates", parts[0])
        return pond, {
            "priced": pond.asof_join(
                *streams, **how, history="1 day", grace="1 hour", tolerance="1 hour", where="rate <= most",
                otherwise="next", right_op="op", name="priced",
            ),
            "near": pond.stream_join(
                *streams, **how, before=F.make_dt_interval(mins="minutes"), after=0, at_most="1 hour", grace="1 hour",
                name="near",
            ),
            "joined": pond.table_join(*streams, **how, left_key="id", history="1 day", right_op="op", name="joined"),
        }  # fmt: skip

    _, results = made()
    late = job.rows(RATES, ("USD", "2026-01-01 11:45", 1, "upsert"), ("EUR", "2026-01-01 11:45", 1, "upsert"))
    job.arrive("rates", late)
    job.arrive("orders", job.rows(ORDERS, (6, "GBP", "2026-01-01 11:45", 0, 0)))
    for name, rows in results.items():
        job.run(rows, name)
    pond, results = made()  # another process asks
    explained: dict[str, list[tuple[Row, MatchExplanation]]] = {}
    asked.clear()
    for name, rows in results.items():
        found = job.spark.read.schema(rows.schema).parquet(f"{job.directory}/{name}").orderBy("id", "rate").collect()
        place = f"{job.directory}/{name}-checkpoint"
        asked_for = {"priced": (1, 2, 3, 4, 5), "near": (2, 4), "joined": (3, 5)}[name]
        explained[name] = [(row, pond.explain_match(name, row, place)) for row in found if row["id"] in asked_for]
        assert asked
        assert len(asked) <= len(explained[name])
        asked.clear()
    assert {row["id"]: won(told) for row, told in explained["priced"]} == {
        1: [("right", 7)],
        2: [("right", 7)],
        3: [],
        4: [],
        5: [],
    }
    for row, told in explained["priced"]:
        assert [rate for _, rate in won(told)] == ([] if row["rate"] is None else [row["rate"]])
        assert told.notes == ()
        assert told.time is not None
    by_id = {row["id"]: told for row, told in explained["priced"]}
    assert [one.why for one in by_id[2].candidates][:2] == [
        "the last one up to the row of which where is true",
        "passed over: where is not true",
    ]
    assert "deleted" in by_id[4].verdict
    assert [one.older_by for one in by_id[1].winners] == [timedelta(minutes=10)]
    pairs = sorted((row["id"], row["rate"]) for row, _ in explained["near"])
    assert pairs == sorted(
        (row["id"], rate)
        for row, told in explained["near"]
        for _, rate in (won(told) or [("right", None)])
        if rate == row["rate"]
    )
    assert all(len(won(told)) == (2 if row["id"] == 2 else 0) for row, told in explained["near"])
    for row, told in explained["joined"]:
        if row["op"] == "upsert" and row["id"] in (3, 5):
            assert told.verdict.startswith("the join has a row for this key: the left side has one")
            assert bool(told.notes) is (row["id"] == 3 and row["rate"] != 1)


def test_an_earlier_micro_batch_knows_less_and_what_is_not_there_is_refused(job: Job, spark: SparkSession) -> None:
    left, parts = orders(job), rates(job)
    how: dict[str, Any] = {"on": "currency", "right_time": "since", "history": "1 day"}
    job.arrive("rates", parts[0])
    job.arrive("orders", left)
    pond = job.pond()
    stream = job.stream("orders", left)
    joined = pond.asof_join(stream, job.stream("rates", parts[0]), **how, left_time=stream["at"], name="priced")
    job.run(joined)
    job.arrive("rates", job.rows(RATES, ("EUR", "2026-01-01 10:05", 4, "upsert")))
    job.run(joined)
    place = f"{job.directory}/out-checkpoint"
    (row,) = (row for row in job.spark.read.parquet(f"{job.directory}/out").collect() if row["id"] == 1)
    assert won(pond.explain_match("priced", row, place, batch_id=0)) == [("right", 7)]
    told = pond.explain_match("priced", row.asDict(), place)
    assert won(told) == [("right", 4)]
    assert "rate=7" in told.notes[0]
    with pytest.raises(ConfigurationError, match="no verb of this Millpond is called 'other', only"):
        pond.explain_match("other", row, place)
    with pytest.raises(ConfigurationError, match="does not fit 'left'"):
        pond.explain_match("priced", {**row.asDict(), "at": "ten"}, place)
    pond.latest(stream, key="id", time="at", history=0, name="newest")
    with pytest.raises(ConfigurationError, match="'newest' is no join"):
        pond.explain_match("newest", row, place)
    other = job.pond(application_id="other")
    tied = other.asof_join(stream, job.stream("rates", parts[0]), **how, left_time=stream["at"] + F.expr("interval 1 h"
                           "our"), name="tied")  # fmt: skip
    job.run(tied, "tied")
    with pytest.raises(ConfigurationError, match="make the verb with one of names, such as"):
        other.explain_match("tied", row, f"{job.directory}/tied-checkpoint")
    named = job.pond(application_id="named")
    later = F.col("at") + F.expr("interval 1 hour")
    job.run(named.asof_join(stream, job.stream("rates", parts[0]), **how, left_time=later, name="named"), "named")
    assert won(named.explain_match("named", row, f"{job.directory}/named-checkpoint")) == [("right", 12)]


@pytest.mark.slow
def test_a_join_in_the_operator_of_another_verb_is_explained_whatever_partitions_it_has(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    shape, kept = "currency string, at timestamp, id int", "currency string, since timestamp, rate int"
    sold = job.rows(shape, *((name, "2026-01-01 10:00", id_) for id_, name in enumerate(("EUR", "USD", "GBP", "CHF"))))
    known = job.rows(kept, *((name, "2026-01-01 09:00", rate) for rate, name in enumerate(("EUR", "GBP"))))
    job.arrive("sold", sold)
    job.arrive("known", known)
    place = f"{job.directory}/out-checkpoint"

    def joined(pond: Millpond) -> DataFrame:
        newest = pond.latest(job.stream("sold", sold), key="currency", time="at", history="1 day", name="newest")
        left = newest.where(F.col("currency").isNotNull()).withColumnRenamed("change_time", "changed")
        right = job.stream("known", known)
        return pond.table_join(
            left, right, on="currency", left_time="changed", right_time="since", how="left", name="joined"
        )

    for partitions in (2, 3):
        pond = job.pond(partitions=partitions, evolution=Evolution(place))
        job.run(joined(pond))
        pond.explain()
        assert "operator   that of newest" in capsys.readouterr().out
        for currency, rate in (("EUR", 0), ("USD", None), ("GBP", 1), ("CHF", None if partitions == 2 else 5)):
            told = pond.explain_match("joined", {"currency": currency}, place)
            assert "the left side has one" in told.verdict
            assert ("the right side has one" in told.verdict) is (rate is not None)
            assert [one.row["rate"] for one in told.candidates if one.side == "right" and one.row] == (
                [] if rate is None else [rate]
            )
        job.arrive("known", job.rows(kept, ("CHF", "2026-01-01 09:00", 5)))
