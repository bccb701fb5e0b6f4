"""``millpond explain``: the page of an error wherever one is, found by whatever somebody has of its message."""

import json
from pathlib import Path

import pytest

from millpond.cli.explaining import known_pages
from millpond.errors import StateConflictError, UnknownColumnError
from tests.demo.test_command_line import run
from tests.packaging.codes import every_error

CODES = {kind.code for kind in every_error()} - {"MILLPOND-ERROR"}


def test_there_is_a_page_of_every_code_beside_the_package() -> None:
    assert known_pages().keys() == CODES


@pytest.mark.parametrize(
    "said",
    [
        "MILLPOND-UNKNOWN-COLUMN",
        "unknown-column",
        "UnknownColumnError",
        str(UnknownColumnError("the DataFrame has no column 'a'")),
        f"{StateConflictError('first')}\n\nIt was the cause:\n{UnknownColumnError('then')}\nSQLSTATE: 1",
    ],
)
def test_a_code_is_found_in_what_somebody_has(
    said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "explain", said) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"MILLPOND-UNKNOWN-COLUMN\n\n{UnknownColumnError.__doc__}\n\n    ")
    assert "```" not in shown
    assert "](" not in shown


def test_all_codes_are_listed_with_what_they_mean(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "explain") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in lines] == sorted(CODES)
    assert f"{UnknownColumnError.code}: {UnknownColumnError.__doc__}" in lines


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("MILLPOND-UNKNOWN-COLUM", "; did you mean 'UNKNOWN-COLUMN'?"),
        ("zzz", "; millpond explain lists all of them"),
    ],
)
def test_what_is_no_code_is_refused_with_one_that_is(
    said: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "explain", said) == 2
    assert f"there is no code MILLPOND-{said.upper().removeprefix('MILLPOND-')}{told} [" in capsys.readouterr().err
    assert run(monkeypatch, "explain") == 0


def test_an_error_of_a_command_that_is_asked_for_json_is_an_object_with_its_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(monkeypatch, "doctor", str(tmp_path), "--json") == 2
    shown = capsys.readouterr()
    found = json.loads(shown.err.splitlines()[-1])
    assert shown.out == ""
    assert found["error"].startswith("there is no checkpoint at ")
    assert (found["code"], found["exit_code"]) == ("MILLPOND-NO-CHECKPOINT", 2)
    assert run(monkeypatch, "doctor", str(tmp_path)) == 2
    assert capsys.readouterr().err.startswith("millpond: there is no checkpoint at ")
