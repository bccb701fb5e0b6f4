"""The place of local copies: jobs of the same names do not meet, and what earlier releases left is found."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from millpond.adapters.spark import SparkStreams
from millpond.adapters.spark.worker.local_directories import beside, directories_of, query_directory, take_over
from millpond.stores.durability import Storage
from millpond.stores.durability.copies.lease import Lease
from millpond.stores.specs.directory import state_of_query
from millpond.stores.specs.store_spec import StoreKind
from tests.spark.conftest import RunStream
from tests.spark.test_upgrades import counts
from tests.spark.test_warming import DDL, never_thrown_away


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.from_uri(tmp_path / "state")


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """A ``local_dir`` with a copy that an earlier release has left."""
    (tmp_path / "local/sink/app/0_0/lmdb/counts").mkdir(parents=True)
    return tmp_path / "local"


def test_queries_meet_only_if_both_their_sink_and_their_state_directory_are_the_same(
    storage: Storage, tmp_path: Path
) -> None:
    another = Storage.from_uri(tmp_path / "another")
    directories = [query_directory(tmp_path, sink, place) for sink in ("a", "a@b") for place in (storage, another)]
    assert len(set(directories)) == 4
    assert query_directory(tmp_path, "a", storage) == directories[0]


@pytest.mark.slow
@pytest.mark.spark
def test_jobs_of_the_same_names_leave_each_others_copies_alone(
    spark: SparkSession, tmp_path: Path, run_stream: RunStream
) -> None:
    def run(job: str) -> list[int]:
        spark.createDataFrame([("mill", "", 1)], DDL).write.mode("append").parquet(f"{tmp_path}/in-{job}")
        streams = SparkStreams(
            counts(StoreKind.KEY_VALUE),
            application_id="job",
            state_dir=f"{tmp_path}/state-{job}",
            local_dir=f"{tmp_path}/local",
            backend="lmdb",
        )
        words = spark.readStream.schema(DDL).parquet(f"{tmp_path}/in-{job}")
        rows = streams.transform({"words": words})
        return [row[1] for row in run_stream(rows, out=f"out-{job}", checkpoint=f"checkpoint-{job}")]

    def copies() -> dict[str, Path]:
        return {str(path): path for path in tmp_path.glob("local/*/job/*/lmdb/counts")}

    assert run("one") == [1]
    with never_thrown_away(copies()):
        assert run("another") == [1]
        with never_thrown_away(copies()):
            assert run("one") == run("another") == [1, 2]
    assert len(copies()) == 2


def test_a_copy_that_an_earlier_release_has_left_is_taken_over_once(storage: Storage, local: Path) -> None:
    take_over(local, "sink", storage, "app", "0_0")
    taken = query_directory(local, "sink", storage) / "app/0_0/lmdb/counts"
    assert taken.is_dir()
    assert not (local / "sink/app/0_0").exists()
    (local / "sink/app/0_0/lmdb/new").mkdir(parents=True)
    for task in ("0_0", "0_1"):
        take_over(local, "sink", storage, "app", task)
    assert (local / "sink/app/0_0/lmdb/new").is_dir()
    assert [path.name for path in taken.parents[2].iterdir()] == ["0_0"]


def test_a_copy_that_somebody_uses_stays_where_it_is(storage: Storage, local: Path) -> None:
    lease = Lease(local / "sink/app/0_0", 0.0)
    lease.acquire()
    take_over(local, "sink", storage, "app", "0_0")
    lease.release()
    assert (local / "sink/app/0_0/lmdb/counts").is_dir()
    assert not query_directory(local, "sink", storage).exists()


def test_the_copies_to_be_verified_are_those_of_the_state_directory_and_of_earlier_releases(
    storage: Storage, local: Path, tmp_path: Path
) -> None:
    places = [query_directory(local, "sink", Storage.from_uri(tmp_path / name)) for name in ("state", "another")]
    for place in (*places, local / ".hidden"):
        place.mkdir()
    beside(places[0]).mkdir()
    assert directories_of(local, storage) == [local / "sink", places[0]], "what a standby restores is not in use yet"
    assert state_of_query(beside(places[0]).name) == storage.place
    assert directories_of(tmp_path / "nowhere", storage) == ()
