"""Help that teaches: every command has examples that the parser takes, and says what is of which unit."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from millpond.cli import app
from tests.command_line.commands import ANSWERING, COMMANDS, ROOT
from tests.packaging.code_blocks import ROOT as REPOSITORY

EXAMPLES = [
    pytest.param(line, id=line)
    for command in [ROOT, *COMMANDS.values()]
    for line in (command.epilog or "").split("\n\n")
    if line.startswith("millpond ")
]


def taught(name: str) -> list[str]:
    """Return the examples of a command."""
    lines = (COMMANDS[name].epilog or "").split("\n\n")
    return [line for line in lines if line.startswith("millpond ")]


@pytest.mark.parametrize("name", ANSWERING)
def test_every_command_has_one_to_three_examples_of_itself_and_a_page_to_read_next(name: str) -> None:
    assert 1 <= len(taught(name)) <= 3
    assert all(f"{line} ".startswith(f"millpond {name} ") for line in taught(name))
    pages = re.findall(r"[\w/-]+\.md", COMMANDS[name].epilog)
    assert pages
    assert all((REPOSITORY / page).exists() for page in pages)


@pytest.mark.parametrize("name", COMMANDS)
def test_lines_of_help_end_where_the_terminal_does(name: str) -> None:
    said = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "5000"}).stdout
    paragraphs = [" ".join(part.split()) for part in (COMMANDS[name].callback.__doc__ or "").split("\n\n")]
    assert [part for part in paragraphs if part not in [line.strip() for line in said.splitlines()]] == []


@pytest.mark.parametrize("line", EXAMPLES)
def test_the_parser_takes_every_example(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(line, comments=True)[1:]
    words = words[: next((n for n, word in enumerate(words) if word in ("|", ">")), len(words))]
    taken: list[dict[str, Any]] = []
    for command in COMMANDS.values():
        monkeypatch.setattr(command, "callback", lambda **given: taken.append(given))
    assert not ROOT.main(words, prog_name="millpond", standalone_mode=False)
    assert len(taken) == (0 if "--help" in words else 2 if words[:2] == ["backends", "check"] else 1)


@pytest.mark.parametrize("line", EXAMPLES)
def test_what_is_shown_of_an_example_is_what_is_to_be_typed(line: str) -> None:
    from rich.text import Text

    assert Text.from_markup(line).plain == line


def test_commands_stand_in_groups_in_the_order_in_which_a_newcomer_needs_them() -> None:
    said = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "100"}).stdout
    groups = [
        "To begin with",
        "demo",
        "backends",
        "The state of your queries",
        "state",
        "top",
        "Other systems",
        "import",
    ]
    places = [re.search(rf"^\S+ {one}\b", said, re.MULTILINE) for one in groups]
    found = [place.start() for place in places if place is not None]
    assert len(found) == len(groups)
    assert found == sorted(found)


def test_what_takes_a_value_says_of_what_kind() -> None:
    silent = [
        f"{name} {option.opts[0]}"
        for name in ANSWERING
        for option in COMMANDS[name].params
        if option.param_type_name == "option" and not option.is_flag and option.metavar is None
    ]
    assert silent == []


def test_a_length_of_time_has_a_unit_everywhere(tmp_path: Path) -> None:
    for words in (
        ["top", "c", "--interval", "5"],
        ["ui", "c", "--interval", "5"],
        ["state", "warm", "c", "--state-dir", "s", "--local-dir", "l", "--interval", "5"],
        ["state", "clean", "--state-dir", str(tmp_path), "--older-than", "5"],
    ):
        error = CliRunner().invoke(app, words).exception
        assert "'5'; give a unit: '5 milliseconds', or '5 seconds'" in str(error)
