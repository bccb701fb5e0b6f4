"""The benchmark of damage: a flip goes all the way, and is counted for what became of it."""

from pathlib import Path

from typer.testing import CliRunner

from millpond.bench.durability import damage
from millpond.cli import app


def test_no_flip_is_silent(tmp_path: Path) -> None:
    figures = damage.run(["lmdb"], 2, directory=tmp_path)
    kinds = {(row["kind"], row["file"]) for row in figures["files"]}
    assert {("lmdb", "data.mdb"), ("lmdb", ".rates-v3.seal"), ("durable", "snapshot.parquet")} < kinds
    for row in figures["files"]:
        assert row["flips"] == sum(row.get(outcome, 0) for outcome in damage.OUTCOMES) > 0
        assert row.get("silent", 0) == 0


def test_fewer_flips_than_none_are_refused() -> None:
    refused = CliRunner().invoke(app, ["bench", "damage", "--flips", "-1"])
    assert refused.exit_code == 2
    assert "--flips" in refused.output
