"""The view of a query: of its checkpoint alone, and with its kept progress; in JSON and as tables."""

import json
import re
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from typer.testing import CliRunner

from millpond.adapters.monitor.drawing import drawn
from millpond.adapters.monitor.kept import micro_batch
from millpond.adapters.monitor.kept.kept_progress import ProgressReader, ProgressWriter
from millpond.adapters.monitor.kept.micro_batch import MicroBatch, Report, SourceRead
from millpond.adapters.monitor.overview import OperatorSeen
from millpond.adapters.monitor.query_monitor import QueryMonitor
from millpond.cli import app
from millpond.errors import ConfigurationError, CorruptFileError, FormatError
from millpond.processors import Consumed, Materialized, StreamsBuilder
from tests.inspect.checkpoints import SPECS, Query
from tests.inspect.test_state_inspector import filled

QUERY = "3f"


def kept(batch: int, *, run: str = "r", waiting: int = 5) -> MicroBatch:
    """Return the progress of a micro-batch of the query of ``filled``: 10 rows in 500 ms, 2 s after the one before."""
    figures = {"records.in": 10, "task.duration": 90_000, "plain:commit.rows": 3, "commit.duration": 40_000}
    figures |= {"stream.lag": 3_200_000, "stream.time": 7_000_000}
    operator = Report(
        "app", "operator.0", 2, figures, {"join:dropped-late": 1}, {"join:dropped-late": 1}, {"join:waiting": waiting}
    )
    reports = (Report("app", "clicks", 1, {"records.in": 10, "records.out": 9}), operator)
    sources = (SourceRead("Kafka[clicks]", 10, 40),)
    durations = {"addBatch": 300, "walCommit": 150, "triggerExecution": 500}
    return MicroBatch(QUERY, run, "counts", batch, 1_000_000 + 2_000 * batch, durations, sources, reports)


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return filled(tmp_path)


def run(query: Query, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["top", str(query.checkpoint), *arguments])


def document(query: Query, *arguments: str) -> Any:
    result = run(query, "--json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_checkpoint_and_the_state_tell_how_far_a_query_is_and_what_it_keeps(query: Query) -> None:
    query._write("offsets/3", "v1\n{}\n{}")
    found = document(query, "--state-dir", str(query.state))
    assert (found["query"], found["batch"], found["open_batch"]) == (QUERY, 2, 3)
    assert [one["number"] for one in found["batches"]] == [0, 1, 2]
    assert all(one["took"] >= 0 and one["rows"] is None for one in found["batches"])
    assert {one["store"]: one["tasks"] for one in found["stores"]} == dict.fromkeys(SPECS, 2)
    assert [(one["task"], one["commit"]) for one in found["tasks"]] == [("0_0", 3), ("0_1", 3)]
    assert [one["size"] for one in found["tasks"]] == [
        sum(file.size for file in manifest.files) for manifest in query.manifests
    ]
    assert all(0 < sum(one["stores"].values()) <= one["size"] for one in found["tasks"])
    (note,) = found["notes"]
    assert "watch(spark, keep=DIRECTORY)" in note


def test_kept_progress_tells_rates_lag_parts_and_what_waits(query: Query, tmp_path: Path) -> None:
    writer = ProgressWriter.at(str(tmp_path / "progress"))
    for batch in range(3):
        writer.keep(kept(batch))
    found = document(query, "--progress", str(tmp_path / "progress"))
    last = found["batches"][-1]
    assert (last["took"], last["rows"], last["per_second"], last["processed_per_second"]) == (500, 10, 5.0, 20.0)
    assert last["steps"] == {"addBatch": 300, "walCommit": 150, "other": 50}
    assert last["work"] == {"commit": 40.0, "other": 50.0}
    assert found["sources"] == [{"name": "Kafka[clicks]", "rows": 10, "per_second": 5.0, "behind": 40}]
    assert [(one["operator"], one["lag"], one["waiting"]) for one in found["operators"]] == [
        ("clicks", None, 0),
        ("operator.0", 3200, 5),
    ]
    assert [(one["node"], one["reason"], one["records"]) for one in found["reasons"]] == [
        ("join", "dropped-late", 3),
        ("join", "waiting", 5),
    ]
    lines = {line for box in found["drawing"]["boxes"] for line in box["lines"]}
    assert {"clicks", "10 in", "app", "operator.0: lag 3.2 s", "5 wait"} <= lines
    (note,) = found["notes"]
    assert "--state-dir" in note


def test_the_tables_show_it_all_once_where_there_is_no_terminal(query: Query, tmp_path: Path) -> None:
    ProgressWriter.at(str(tmp_path / "progress")).keep(kept(2))
    result = run(query, "--progress", str(tmp_path / "progress"), "--state-dir", str(query.state))
    assert result.exit_code == 0
    for text in (
        "counts",
        "micro-batch 2 committed",
        "Kafka[clicks]",
        "operator.0",
        "3.2 s",
        "waiting",
        "versions",
        "0_1",
    ):
        assert text in result.stdout


def test_a_checkpoint_that_vanishes_or_is_begun_anew_is_said(query: Query) -> None:
    watched = QueryMonitor(str(query.checkpoint))
    assert watched.look().query == QUERY
    query._write("metadata", '{"id":"4a"}')
    assert watched.look().notes[0] == "the checkpoint was begun anew: this is query 4a, and no longer 3f"
    rmtree(query.checkpoint)
    with pytest.raises(ConfigurationError, match="there is no checkpoint"):
        watched.look()
    assert isinstance(run(query).exception, ConfigurationError)


def test_a_checkpoint_with_a_damaged_id_is_named_and_watched_once_it_is_put_back(query: Query) -> None:
    whole = (query.checkpoint / "metadata").read_text()
    for damaged in ('{"id":"../3f"}', "{}", whole[:5]):
        query._write("metadata", damaged)
        with pytest.raises(CorruptFileError, match=r"checkpoint/metadata is damaged .*; put an undamaged copy back \["):
            QueryMonitor(str(query.checkpoint)).look()
    query._write("metadata", whole)
    assert QueryMonitor(str(query.checkpoint)).look().query == QUERY


def test_state_that_cannot_be_read_is_a_note(query: Query) -> None:
    query.commit(2, {"spark.sql.streaming.stateStore.encodingFormat": "avro"})
    found = document(query, "--state-dir", str(query.state))
    assert found["batch"] == 2
    assert found["tasks"] == []
    assert any("encodingFormat=avro" in note for note in found["notes"])


def test_a_topology_that_is_given_is_drawn_with_what_waits_and_what_stores_take(query: Query, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    table = builder.table("prices", Consumed("string", "int64"), Materialized("plain"))
    clicks = builder.stream("clicks", Consumed("string", "int64"))
    clicks.join(table, lambda one, other: one).to("out")
    topology = builder.build()
    ProgressWriter.at(str(tmp_path / "progress")).keep(kept(2))
    seen = QueryMonitor(str(query.checkpoint), str(query.state), str(tmp_path / "progress"), topology).look()
    drawing, boxes = seen.drawing, {box.id: box for box in seen.drawing.boxes}
    assert drawing.complete
    assert boxes["topic clicks"].lines == ("clicks", "topic", "10 in")
    (size,) = [one.size for one in seen.stores if one.store == "plain"]
    assert boxes["store 0 plain"].lines[0] == "plain"
    assert boxes["store 0 plain"].lines[2] == (f"{size} B" if size < 1000 else f"{size / 1000:.1f} kB")
    assert all(boxes[arrow.start].y < boxes[arrow.stop].y for arrow in drawing.arrows)
    for one in drawing.boxes:
        for other in drawing.boxes:
            apart = one.x + one.width <= other.x or other.x + other.width <= one.x
            assert one.id == other.id or one.y != other.y or apart


def test_only_the_last_micro_batches_are_kept_and_none_that_the_query_has_gone_back_from(tmp_path: Path) -> None:
    writer = ProgressWriter.at(str(tmp_path))
    writer.kept = 3
    for batch in range(6):
        writer.keep(kept(batch))
    reader = ProgressReader(writer.storage, QUERY)
    assert [one.batch for one in reader.newest(10)] == [3, 4, 5]
    writer.keep(kept(4, run="another", waiting=8))
    assert [one.batch for one in reader.newest(10)] == [3, 4]
    assert reader.newest(1)[0].reports[1].waiting == {"join:waiting": 8}


def test_progress_that_is_damaged_is_deleted_and_that_of_a_newer_release_read_by_that(
    query: Query, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "progress"
    for batch in range(3):
        ProgressWriter.at(str(directory)).keep(kept(batch))
    path = directory / QUERY / "1.json"
    newer = path.read_text().replace('"progress":2', '"progress":3')
    path.write_text("[")

    def notes() -> str:
        return "\n".join(QueryMonitor(str(query.checkpoint), None, str(directory)).look().notes)

    assert re.search(f"{path}: .* is damaged .*; delete the file \\[", notes(), re.MULTILINE)
    path.unlink()
    assert [one.batch for one in ProgressReader(ProgressWriter.at(str(directory)).storage, QUERY).newest(9)] == [0, 2]
    assert str(path) not in notes()
    for batch in range(3):
        (directory / QUERY / f"{batch}.json").write_text(newer)
    assert re.search(r"has version 3, but .*; run the release that wrote it, or a newer one \[", notes(), re.MULTILINE)
    monkeypatch.setattr(micro_batch, "_READ", (1, 2, 3))
    assert "has version" not in notes()
    assert len(ProgressReader(ProgressWriter.at(str(directory)).storage, QUERY).newest(9)) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "damaged"),
        ('{"progress":3}', "has version 3"),
        (kept(1).to_json().replace('"batch":1', '"batch":-1'), "damaged"),
        (kept(1).to_json().replace('"addBatch":300', '"addBatch":"x"'), "damaged"),
        ('{"progress":2,"query":[]}', "damaged"),
    ],
)
def test_progress_that_is_damaged_or_newer_is_refused(text: str, message: str) -> None:
    assert MicroBatch.from_json(kept(1).to_json()) == kept(1)
    with pytest.raises(FormatError, match=message):
        MicroBatch.from_json(text)


def test_what_a_verb_tells_is_drawn_under_its_name_and_no_input() -> None:
    def seen(operator: str, lag: int | None) -> OperatorSeen:
        return OperatorSeen("app.totals", operator, 1, 1, 10, 10, lag, None, 0, 0, 0, {})

    told = [seen("totals.input", None), seen("totals", 3200), seen("totals.operator.1", 1200)]
    lines = {line for box in drawn(None, told, [], []).boxes for line in box.lines}
    assert {"lag 3.2 s", "operator.1: lag 1.2 s", "10 in"} <= lines
