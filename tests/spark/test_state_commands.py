"""``millpond state``: what it says of a query's state, what it repairs, and the way back that it tells is one."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from millpond.cli import main
from tests.command_line.documented import KEYS
from tests.spark import small_query
from tests.spark.small_query import BATCHES, Query

pytestmark = pytest.mark.spark


def delete_later(directory: Path, last: int) -> None:
    """Delete all files below whose names begin with a number above ``last``, and the hidden ones beside them."""
    for path in list(directory.rglob("*")):
        number = path.name.removeprefix(".").partition(".")[0]
        if path.is_file() and number.isdecimal() and int(number) > last:
            path.unlink()


def go_back(checkpoint: Path, first: int) -> None:
    """Take the second step of the way back to before the micro-batch ``first``."""
    for part, last in (("offsets", first - 1), ("commits", first - 1), ("state", first)):
        delete_later(checkpoint / part, last)


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Iterator[Query]:
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    query = Query(spark, tmp_path)
    query.run()
    yield query
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))


@pytest.mark.slow
def test_damage_is_named_local_copies_are_repaired_and_the_query_goes_back_to_the_micro_batch_that_is_told(
    query: Query, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory, checkpoint = query.directory, query.checkpoint

    def state(command: str, *options: str, place: Path = checkpoint) -> tuple[int, str]:
        places = [str(place), "--state-dir", str(directory / "state"), "--local-dir", str(directory / "local")]
        monkeypatch.setattr(sys, "argv", ["millpond", "state", command, *places, *options])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), "".join(capsys.readouterr())

    def objects(command: str, *options: str) -> Any:
        places = [str(checkpoint), "--state-dir", str(directory / "state"), "--local-dir", str(directory / "local")]
        monkeypatch.setattr(sys, "argv", ["millpond", "state", command, *places, *options, "--json"])
        with pytest.raises(SystemExit):
            main()
        (found,) = map(json.loads, capsys.readouterr().out.splitlines())
        assert tuple(found) == KEYS[f"state {command}"]
        return found

    for options, place, message in (
        ([], directory / "elsewhere", "there is no checkpoint at"),
        (["--batch", "17"], checkpoint, f"no micro-batch 17, only 0 to {BATCHES - 1}"),
        (["--topology", "no_such_module:it"], checkpoint, "there is no topology"),
        (["--topology", f"{small_query.__name__}:DDL"], checkpoint, "is of type str; give what"),
    ):
        code, said = state("verify", *options, place=place)
        assert code == 2
        assert message in said

    topology = ("--topology", f"{small_query.__name__}:topology")
    code, said = state("verify", *topology)
    assert code == 0
    assert "\nsound: 0 broken, 0 healable, 0 harmless findings\n" in said
    written: Any = objects("verify", *topology)
    assert (written["tasks"], written["read"]["files"], written["copies"]) == (1, BATCHES, 1)

    (copy,) = (directory / "local").rglob("counts-v2")
    with (copy / "data.mdb").open("ab") as file:
        file.write(b"more")
    for command in ("verify", "repair"):
        code, said = state(command)
        assert code == 1
        assert f"healable: local copy of task '0_0' of 'job', {copy}: its file data.mdb has" in said
    assert f"with --yes: delete the local copy {copy}" in said
    asked = objects("repair")
    assert asked["repairs"] == [{"what": f"delete the local copy {copy}; the next start restores it", "done": False}]
    assert (asked["sound"], asked["way_back"]) == (False, None)
    assert copy.exists()
    assert state("repair", "--yes", "--orphans")[0] == 0
    assert not copy.exists()

    newest = max((directory / "state").rglob("*.parquet"))
    data = bytearray(newest.read_bytes())
    data[len(data) // 3] ^= 1
    newest.write_bytes(data)
    assert f"To go back to micro-batch {BATCHES - 2}" in objects("repair")["way_back"]
    code, said = state("repair", "--yes")
    assert code == 1
    assert f"broken: durable file of task '0_0' of 'job': the file {newest} " in said
    assert f"To go back to micro-batch {BATCHES - 2}, whose files are all whole" in said

    first = BATCHES - 1
    assert f"offsets/<n> and commits/<n> for n from {first} on, and below state/" in said
    assert f"every file whose name begins with a number above {first}, " in said
    assert f"delete <n> and <n>.compact from {first} on in its _spark_metadata" in " ".join(said.split())
    go_back(checkpoint, first)
    assert query.counts() == {BATCHES - 1}
    query.run()
    assert query.counts() == {BATCHES}
    code, said = state("verify")
    assert code == 0
    assert "not named here: 1 files" in said


@pytest.mark.slow
def test_after_going_back_the_output_is_set_back_or_a_new_place_has_the_rows_that_come_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    query, out, new = Query(spark, tmp_path), tmp_path / "out", tmp_path / "new"

    def by_file_sink(place: Path) -> Callable[[DataFrame], DataStreamWriter]:
        return lambda rows: rows.writeStream.format("parquet").option("path", str(place))

    def by_batches(rows: DataFrame) -> DataStreamWriter:
        def write(batch: DataFrame, number: int) -> None:
            batch.write.mode("overwrite").parquet(f"{new}/batch={number}")

        return rows.writeStream.foreachBatch(write)

    def values(place: Path) -> list[int]:
        return sorted(row.value for row in spark.read.parquet(str(place)).collect())

    query.run(by_file_sink(out))
    all_of_it = values(out)
    assert len(all_of_it) == 10 * BATCHES
    go_back(query.checkpoint, 1)
    delete_later(out / "_spark_metadata", 0)
    assert values(out) == [1] * 10
    query.run(by_file_sink(out))
    assert values(out) == all_of_it
    go_back(query.checkpoint, 1)
    query.run(by_file_sink(tmp_path / "unreadable"))
    with pytest.raises(Exception, match="_spark_metadata"):
        values(tmp_path / "unreadable")
    go_back(query.checkpoint, 1)
    query.run(by_batches)
    assert values(new) == all_of_it[10:]
