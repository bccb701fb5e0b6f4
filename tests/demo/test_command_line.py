"""``millpond demo`` refuses what cannot work before it writes or starts anything, and says what to do."""

import sys
from pathlib import Path

import pytest

from millpond import __version__
from millpond.cli import main
from millpond.demo import session
from millpond.errors import ConfigurationError


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Return the exit code of ``millpond`` with these arguments."""
    monkeypatch.setattr(sys, "argv", ["millpond", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_the_version_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"millpond {__version__}\n"


def test_the_help_says_what_exit_codes_mean_and_how_a_shell_completes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--help") == 0
    said = capsys.readouterr().out
    for what in ("Exit codes: 0", "3 an unexpected", "--debug", "--install-completion", "--show-completion"):
        assert what in said


def test_an_error_that_nobody_expected_is_a_message_and_its_trace_is_there_if_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise LookupError("no such thing")

    monkeypatch.setattr("millpond.stores.backend.catalog.described", broken)
    assert run(monkeypatch, "backends") == 3
    said = capsys.readouterr().err
    assert "millpond: an error that nobody expected: LookupError: no such thing" in said
    assert "millpond --debug ..." in said
    assert "Traceback" not in said
    monkeypatch.setattr(sys, "argv", ["millpond", "--debug", "backends"])
    with pytest.raises(LookupError, match="no such thing"):
        main()
    monkeypatch.setattr(sys, "argv", ["millpond", "--debug", "demo", "--backend", "rocksdv"])
    with pytest.raises(ConfigurationError):
        main()
    assert run(monkeypatch, "demo", "--backend", "rocksdv") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--backend", "rocksdv"], "rocksdb"),
        (["--backend", "lmdb://?no_such_option=1"], "no_such_option"),
        (["--batch-rows", "0"], "Invalid value for '--batch-rows'"),
        (["--max-batches", "-1"], "Invalid value for '--max-batches'"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_by_name(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    assert run(monkeypatch, "demo", "--out", str(tmp_path / "out"), *arguments) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_without_java_the_message_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert run(monkeypatch, "demo", "--out", str(tmp_path / "out")) == 2
    assert "apt-get install openjdk-17-jre-headless" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_java_that_is_too_old_is_refused_with_its_release(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert run(monkeypatch, "demo", "--out", str(tmp_path / "out")) == 2
    assert "is release 11" in capsys.readouterr().err


def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    for module in ("report", "job", "truth"):
        monkeypatch.delitem(sys.modules, f"millpond.demo.{module}", raising=False)
        monkeypatch.delattr(f"millpond.demo.{module}", raising=False)
    assert run(monkeypatch, "demo") == 2
    assert "the demo needs pandas: pip install 'millpond[demo]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "release"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_292"', 1),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "24-ea" 2025-03-18', 24),
        ("command not found", 0),
    ],
)
def test_javas_release_is_read_from_what_it_says(said: str, release: int) -> None:
    assert session.java_release(said) == release
