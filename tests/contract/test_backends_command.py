"""``millpond backends`` says what is installed, broken or not, and ``check`` tells who keeps the contract."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import ConfigurationError
from millpond.stores.backend.registry import try_out
from millpond.stores.testing import run as kit
from millpond.stores.testing.report.figures import measured
from millpond.stores.testing.report.table import table
from tests.contract.distributions import install
from tests.contract.growing import GrowingSupplier
from tests.demo.test_command_line import run

PLUGIN = '''
from dataclasses import dataclass
from typing import ClassVar, Self
from millpond.stores.backend.contract import Backend
from millpond.stores.backend.memory import MemoryBackend, MemorySupplier
from millpond.stores.backend.options import parse_options, parse_size

class Odd(MemoryBackend):
    """Deletes the stop of a range, too, and does not find one of its keys."""
    def get(self, key):
        return None if key == b"key" else super().get(key)
    def delete_range(self, start, stop):
        self.write({key: None for key, _ in self.scan(start, stop + b"\\0")})

@dataclass(frozen=True)
class Right(MemorySupplier):
    name: ClassVar[str] = "right"
    url: str = "odd://me:hunter2@host"
    cache: int = 7
    ratio: float | None = None
    @classmethod
    def from_options(cls, options):
        return cls(**parse_options(cls.name, options, {"cache": parse_size, "url": str}))

class Wrong(MemorySupplier):
    name = "wrong"
    def open(self, directory) -> Odd:
        return Odd()

class Unsaid(MemorySupplier):
    name = "unsaid"
    def open(self, directory):
        return MemoryBackend()
'''


@pytest.fixture
def plugins(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution with backends that are right, wrong and broken, and one that takes the name of another."""
    monkeypatch.setenv("PYTHONPATH", str(site))
    (site / "pond_listed.py").write_text(PLUGIN)
    (site / "pond_raising.py").write_text("1 / 0")
    names = {"right": "pond_listed:Right", "wrong": "pond_listed:Wrong", "unsaid": "pond_listed:Unsaid"}
    install(site, "millpond-odd", **names, raising="pond_raising:Supplier")
    install(site, "millpond-other", right="pond_listed:Right")
    monkeypatch.delitem(sys.modules, "pond_listed", raising=False)


def listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> dict[tuple[str, str], Any]:
    assert run(monkeypatch, "backends", "--json") == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {(backend["name"], backend["distribution"]): backend for backend in found}


@pytest.mark.usefixtures("plugins")
def test_all_backends_are_listed_and_each_broken_one_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = listed(monkeypatch, capsys)
    built_in = {name for name, distribution in found if distribution == "millpond"}
    assert built_in == {"lmdb", "memory", "rocksdb"}
    assert [found[name, "millpond"]["error"] for name in built_in] == [None] * 3
    assert "load" in found["lmdb", "millpond"]["capabilities"]
    assert {"name": "bloom_bits", "type": "int", "default": "10"} in found["rocksdb", "millpond"]["options"]
    wrong = found["wrong", "millpond-odd"]
    assert (wrong["version"], wrong["registered"], wrong["persistent"]) == ("1.0", "pond_listed:Wrong", False)
    assert "delete_range" in wrong["capabilities"]
    assert found["unsaid", "millpond-odd"]["capabilities"] is None
    assert "cannot be imported: ZeroDivisionError" in found["raising", "millpond-odd"]["error"]
    for distribution in ("millpond-odd", "millpond-other"):
        assert "several distributions register this name" in found["right", distribution]["error"]


@pytest.mark.usefixtures("plugins")
def test_the_list_is_one_for_people_and_shows_no_password(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = listed(monkeypatch, capsys)["right", "millpond-odd"]["options"]
    assert [tuple(option.values()) for option in options] == [
        ("url", "str", "'odd://***@host'"),
        ("cache", "int", "7"),
        ("ratio", "float | None", "None"),
    ]
    assert run(monkeypatch, "backends") == 0
    said = capsys.readouterr().out
    assert "wrong  (millpond-odd 1.0, pond_listed:Wrong)\n    keeps nothing beyond its process; no checksums" in said
    assert "    optional methods: only known once it is open" in said
    assert "    sync: bool, False by default" in said
    assert re.search(r"^raising  .*\n    cannot be used: .*ZeroDivisionError", said, re.MULTILINE)
    assert "hunter2" not in said


@pytest.mark.usefixtures("plugins")
def test_a_check_says_what_is_there_and_which_sentence_is_broken(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigurationError, match=r"see what else it breaks: millpond backends check wrong \["):
        try_out("wrong")
    assert run(monkeypatch, "backends", "check", "wrong", "--opt-out", "speed=it has none") == 2
    assert "the features are files, one file, defaults, each with a reason" in capfd.readouterr().err
    assert run(monkeypatch, "backends", "check", "wrong", "--opt-out", "files") == 2
    assert "--opt-out is 'files'; give FEATURE=REASON, as in --opt-out 'files=it has none'" in capfd.readouterr().err
    arguments = ("--opt-out", "files=it has none", "--examples", "1")
    assert run(monkeypatch, "backends", "check", "wrong", *arguments) == 1
    said = capfd.readouterr().out
    seen = "get_many, last, delete_range, load, entry_count, memory_use"
    assert f"Odd has {seen}; opted out of files: it has none" in said
    assert "Backend.delete_range says: Delete the entries with ``start <= key < stop``, atomically." in said
    assert re.search(r"\b\d+ failed, \d+ passed", said)


def test_a_check_of_a_backend_that_keeps_the_contract_succeeds(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "backends", "check", "memory", "--examples", "1") == 0
    assert re.search(r"\b\d+ passed", capfd.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lmbd"], "did you mean 'lmdb'?"),
        (["lmdb://?no_such_option=1"], "no_such_option"),
        (["memory", "--opt-out", "speed=too slow"], "the features are files, one file, defaults"),
        (["memory", "--opt-out", "files= "], "each with a reason"),
    ],
)
def test_what_cannot_be_checked_is_refused_before_anything_runs(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "backends", "check", *arguments) == 2
    assert message in capsys.readouterr().err


def test_without_the_extra_a_check_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kit, "find_spec", lambda name: None if name == "hypothesis" else object())
    assert run(monkeypatch, "backends", "check", "memory") == 2
    assert "the conformance kit needs hypothesis: pip install 'millpond[testing]'" in capsys.readouterr().err


def test_a_report_is_a_table_beside_memory(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ("check", "lmdb", "--examples", "1", "--report", "--changes", "10000")
    monkeypatch.setattr(kit, "run_kit", lambda backend, *_, **__: kit.Outcome(backend, True, 1, 0, 0, {}))
    assert run(monkeypatch, "backends", *arguments) == 0
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in capfd.readouterr().out.splitlines()]
    assert table[:2] == [["", "lmdb", "memory"], ["---", "---:", "---:"]]
    figures = {name: (float(lmdb.replace(",", "")), float(memory.replace(",", ""))) for name, lmdb, memory in table[2:]}
    assert all(min(figures[name]) > 1_000 for name in figures if name.endswith("per s"))
    assert figures["syncs per flush"] == (1, 0)
    assert figures["syncs per write"] == (0, 0)
    assert figures["disk after 10,000 changes of 40,000 keys, times the content"][0] > 1
    assert figures["files meanwhile at most"] == (2, 0)


def test_a_report_shows_what_grows() -> None:
    """In a backend whose rows are those of memory, and which never lets go of anything."""
    grown = measured(GrowingSupplier(), 20_000)
    assert grown.open_before is not None
    assert grown.open_after is not None
    assert grown.memory_before is not None
    assert grown.memory_after is not None
    assert grown.open_after - grown.open_before == 18
    assert grown.memory_after - grown.memory_before > 10 * 2**20
    assert grown.gets_among_many_per_s < grown.gets_per_s / 5
    assert grown.files_most > 15
    assert grown.disk_after > 2 * grown.content
    lines = dict(line.strip("| ").rsplit(" | ", 1) for line in table([grown]).splitlines()[2:])
    assert lines["open files, more after 20,000 changes of 40,000 keys than after a tenth of them"] == "18"
