"""``millpond state list``, ``get`` and so on: what they print, and how they end."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from millpond.adapters.edit import StateEditor
from millpond.adapters.inspect.row_texts import Writer
from millpond.cli import app
from millpond.errors import ConfigurationError
from tests.command_line.documented import KEYS as DOCUMENTED
from tests.command_line.stopped_jobs import Stopped
from tests.inspect.checkpoints import SPECS, Query
from tests.inspect.test_state_inspector import KEYS, filled

# Spark's classes, and what else takes long to import and is of no use here.
HEAVY = ("pyspark", "millpond.adapters.spark", "millpond.processors", "pandas.core")


class Commands:
    """Runs commands on the state of a query."""

    def __init__(self, query: Query) -> None:
        self.query = query

    def run(self, command: str, *arguments: object) -> Any:
        places = [str(self.query.checkpoint), *map(str, arguments), "--state-dir", str(self.query.state)]
        return CliRunner().invoke(app, ["state", command, *places])

    def objects(self, command: str, *arguments: object) -> list[Any]:
        result = self.run(command, *arguments, "--json")
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(filled(tmp_path))


def test_stores_are_listed_with_what_they_are_and_take(commands: Commands) -> None:
    found = {row["store"]: row for row in commands.objects("list")}
    assert sorted(found) == sorted(SPECS)
    assert found["times"] == {
        "store": "times",
        "kind": "timestamped-key-value",
        "key": "string",
        "value": "int64",
        "tasks": 2,
        "sink": "out",
        "application": "app",
        "bytes": found["times"]["bytes"],
    }
    sizes = commands.objects("size")[0]
    assert {name: row["bytes"] for name, row in found.items()} == sizes["stores"]
    lines = commands.run("list").stdout.splitlines()
    assert lines[0] == "store\tkind\tkey\tvalue\ttasks\tsink\tapplication\tbytes"
    assert len(lines) == 1 + len(SPECS)


def test_a_store_is_described(commands: Commands) -> None:
    (found,) = commands.objects("describe", "versions", "--batch", 1)
    assert found["columns"] == {
        "key": "string",
        "value": "int64",
        "valid_from": "timestamp[ms, tz=UTC]",
        "valid_to": "timestamp[ms, tz=UTC]",
    }
    assert tuple(found)[:7] == DOCUMENTED["state list"][:7]
    assert tuple(found)[-4:] == ("batch", "of_tasks", "columns", "state_of_tasks")
    assert found["batch"] == 1
    assert found["state_of_tasks"]["0_0"] == {"files": 2, "commit": 2}
    assert "kind\tversioned\n" in commands.run("describe", "versions").stdout


def test_a_key_is_got_with_times_as_people_write_them(commands: Commands) -> None:
    assert commands.objects("get", "windows", "key 1") == [
        {"key": "key 1", "window_start": "1970-01-01T00:00:00+00:00", "window_end": None, "value": 0},
        {"key": "key 1", "window_start": "1970-01-01T00:00:00.010000+00:00", "window_end": None, "value": 1},
    ]
    assert commands.run("get", "plain", "key 5", "--batch", 0).stdout == "key\tvalue\nkey 5\t0\n"
    (early,) = commands.objects("get", "versions", "key 5", "--as-of", "1970-01-01T00:00:00.009+00:00")
    assert early["value"] == 0


def test_a_key_that_is_not_there_is_told_apart_from_what_is_wrong(commands: Commands) -> None:
    for command in ("get", "history"):
        result = commands.run(command, "versions", "nobody")
        assert result.exit_code == 1
        assert "'nobody' after micro-batch 2" in result.stderr
        assert result.stdout == ""
    for arguments in (("get", "nothing", "a"), ("get", "plain", "a", "--batch", 9), ("history", "plain", "a")):
        assert isinstance(commands.run(*arguments).exception, ConfigurationError)


def test_rows_are_scanned_in_ranges_up_to_a_limit(commands: Commands) -> None:
    rows = commands.objects("scan", "plain", "--from", "key 1", "--to", "key 4")
    assert sorted(row["key"] for row in rows) == KEYS[1:4]
    assert len(commands.objects("scan", "plain", "--limit", 2)) == 2
    assert commands.run("scan", "plain", "--limit", 0).stdout == "key\tvalue\n"
    as_of = commands.objects("scan", "versions", "--as-of", 9)
    assert {row["value"] for row in as_of} == {0}


def test_the_history_of_a_key_has_its_versions_in_order(commands: Commands) -> None:
    found = commands.objects("history", "versions", "key 5")
    assert [row["value"] for row in found] == [0, 1]
    assert found[0]["valid_to"] == found[1]["valid_from"]


def test_stores_are_exported_as_parquet_csv_and_json(commands: Commands, tmp_path: Path) -> None:
    wanted = commands.objects("scan", "times")
    for suffix in ("parquet", "csv", "json"):
        (said,) = commands.objects("export", "times", tmp_path / f"times.{suffix}")
        assert said["rows"] == len(wanted) == len(KEYS)
    table = pq.read_table(tmp_path / "times.parquet")
    assert table["value"].to_pylist() == [row["value"] for row in wanted]
    assert str(table.schema.field("timestamp").type) == "timestamp[ms, tz=UTC]"
    assert [json.loads(line) for line in (tmp_path / "times.json").read_text().splitlines()] == wanted
    with (tmp_path / "times.csv").open() as file:
        assert list(csv.DictReader(file)) == [{**row, "value": str(row["value"])} for row in wanted]
    for name, message in (("times.xlsx", r"ends with '\.xlsx'; give"), ("no/times.csv", "cannot be written")):
        result = commands.run("export", "times", tmp_path / name)
        assert isinstance(result.exception, ConfigurationError)
        assert re.search(message, str(result.exception))


def test_sizes_are_those_of_the_files(commands: Commands) -> None:
    (found,) = commands.objects("size")
    paths = list(commands.query.state.rglob("*.parquet"))
    assert found["batches"] == 3
    assert found["retained_files"] == len(paths) == 6
    assert found["retained_size"] == found["size"] == sum(path.stat().st_size for path in paths)
    assert 0 < found["shared_size"] < found["size"]
    assert sum(found["stores"].values()) < found["size"]
    assert [task["task_id"] for task in found["tasks"]] == ["0_0", "0_1"]
    first = commands.objects("size", "--batch", 0)[0]
    assert first["size"] < found["size"]
    assert first["retained_size"] == found["retained_size"]
    assert "the 3 that are retained need 6 files of" in commands.run("size").stderr


def test_a_look_up_imports_neither_spark_nor_the_processors_nor_pandas(commands: Commands) -> None:
    query = commands.query
    script = (
        "import sys; from millpond.cli import main\n"
        "try: main()\n"
        f"finally: sys.exit(sorted(set({HEAVY!r}) & set(sys.modules)) or 0)"
    )
    arguments = ["state", "get", str(query.checkpoint), "plain", "key 5", "--state-dir", str(query.state)]
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "key\tvalue\nkey 5\t2\n", "")


def test_sizes_are_those_of_the_state_that_was_carried_over_or_edited_after_the_micro_batch(tmp_path: Path) -> None:
    job = Stopped(tmp_path)
    commands = Commands(job.query)
    (before,) = commands.objects("size")
    job.repartitioned(5)
    (carried,) = commands.objects("size")
    assert [task["task_id"] for task in carried["tasks"]] == [f"0_{number}" for number in range(5)]
    with StateEditor.at(str(job.query.checkpoint), str(job.query.state), by="ann") as edits:
        assert edits.delete("counts", "key 1") == 1
        edits.commit()
    (edited,) = commands.objects("size")
    (listed,) = commands.objects("list")
    assert edited["stores"] == {"counts": listed["bytes"]}
    assert len(edited["tasks"]) == listed["tasks"] == 5
    rows = [sum(task["rows"] for task in found["tasks"]) for found in (before, carried, edited)]
    assert rows[2] > rows[1] >= 8
    assert before["retained_size"] < carried["retained_size"] < edited["retained_size"]
    assert edited["retained_size"] == before["retained_size"] + edited["size"]


def test_structs_without_fields_are_exported_where_the_file_has_a_form_for_them(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([{}], pa.struct([])), pa.array([7])], ["key", "value"])
    for suffix in ("parquet", "csv", "json"):
        with Writer(tmp_path / f"all.{suffix}", batch.schema) as writer:
            writer.write(batch)
    assert pq.read_table(tmp_path / "all.parquet").to_pylist() == [{"value": 7}]
    assert (tmp_path / "all.json").read_text() == '{"key": {}, "value": 7}\n'
    assert (tmp_path / "all.csv").read_text() == "key,value\n{},7\n"
