"""The benchmark of damage: a flip goes all the way, and is counted for what became of it."""

from pathlib import Path

from millpond.bench import damage


def test_no_flip_is_silent(tmp_path: Path) -> None:
    figures = damage.run(["lmdb"], 2, directory=tmp_path)
    kinds = {(row["kind"], row["file"]) for row in figures["files"]}
    assert {("lmdb", "data.mdb"), ("lmdb", ".rates-v3.seal"), ("durable", "snapshot.parquet")} < kinds
    for row in figures["files"]:
        assert row["flips"] == sum(row.get(outcome, 0) for outcome in damage.OUTCOMES) > 0
        assert row.get("silent", 0) == 0
