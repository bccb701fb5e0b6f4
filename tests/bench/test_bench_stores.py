"""The benchmark of typed stores takes any backend; what an engine alone would take is there where one is known."""

import json
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from millpond.bench import store_tables
from millpond.bench.engines.raw import RawMemory, engine_class
from millpond.cli import app
from millpond.errors import ConfigurationError
from tests.contract.distributions import install

BACKEND = """
from pathlib import Path
from dataclasses import dataclass
from millpond.stores.memory import MemorySupplier

@dataclass(frozen=True)
class Supplier(MemorySupplier):
    name = "aside"
    token: str = ""
    @classmethod
    def from_options(cls, options):
        return cls(**options)
    def destroy(self, directory):
        with open(Path(__file__).parent / "destroyed", "a") as names:
            names.write(directory.name + chr(10))
"""


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The metadata of a distribution with a backend, to which entry points can be added."""
    (tmp_path / "aside_backend.py").write_text(BACKEND)
    install(tmp_path, "millpond-aside", aside="aside_backend:Supplier")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "millpond_aside-1.0.dist-info" / "entry_points.txt"


def register(points: Path, engine: str) -> None:
    points.write_text(f"{points.read_text()}\n[millpond.bench.engines]\naside = {engine}\n")


@pytest.mark.usefixtures("distribution")
def test_a_backend_whose_engine_is_not_known_is_measured_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backends = ["--backend", "aside://?token=hunter2", "--backend", "memory"]
    sizes = ["--kind", "session", "--keys", "500", "--no-checksums", "--repeat", "1"]
    arguments = ["bench", "stores", *backends, *sizes, "--directory", str(tmp_path), "--json", "-"]
    monkeypatch.setattr(sys, "argv", ["millpond", *arguments])
    ended = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    assert "hunter2" not in ended.output
    figures = json.loads(ended.stdout)
    assert figures["rounds"] == 1
    for rows in (figures["results"], figures["footprint"], figures["restore"]):
        assert {row["backend"] for row in rows} == {"aside://?token=***", "memory"}
    for row in figures["results"]:
        assert row["store"]["per_second"] > 0
        alone = row["backend"] != "memory" or row["operation"] == "find sessions"
        assert (row["raw"] is None) == (row["overhead"] is None) == alone
    for row in figures["restore"]:
        assert row["restore_s"] > 0
        assert (row["load_s"] is None) == (row["ratio_with_reading"] is None) == (row["backend"] != "memory")
    assert (tmp_path / "destroyed").read_text().splitlines() == ["store"]
    console = Console(record=True, width=130)
    store_tables.print_results(console, figures)
    assert console.export_text().count("aside://?token=***") == 4


def test_a_distribution_registers_the_engine_of_its_backend(distribution: Path) -> None:
    assert engine_class("aside") is None
    register(distribution, "millpond.bench.engines.raw:RawMemory")
    assert engine_class("aside") is RawMemory


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        ("millpond.bench.engines.raw:RawMammoth", "cannot be imported: AttributeError"),
        ("missing_module:Engine", "cannot be imported: ModuleNotFoundError"),
        ("millpond.stores.memory:MemoryBackend", "no subclass of millpond.bench.engines.engine.RawEngine"),
    ],
)
def test_what_is_registered_and_is_no_engine_is_refused_by_its_distribution(
    distribution: Path, engine: str, why: str
) -> None:
    register(distribution, engine)
    with pytest.raises(ConfigurationError, match=f"the distribution millpond-aside registers '{engine}'.*{why}"):
        engine_class("aside")
