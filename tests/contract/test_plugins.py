"""Errors of plugins: each names the distribution, and comes before anything depends on the plugin."""

import importlib
import shutil
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TypeAlias

import pytest

from millpond.adapters.lmdb import LmdbSupplier
from millpond.adapters.rocksdb import RocksDbSupplier
from millpond.demo import job
from millpond.errors import BackendNotInstalledError, ConfigurationError, StoreError
from millpond.stores.backend.memory import MemorySupplier
from millpond.stores.backend.registry import open_backend, supplier, try_out
from tests.contract.distributions import install

BEGINNING = """
from dataclasses import dataclass
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.backend.memory import MemoryBackend, MemorySupplier
from millpond.stores.backend.options import parse_options, parse_size

"""

HOLLOW = """
class Supplier(BackendSupplier):
    name = "odd"
"""
WITHOUT_FROM_OPTIONS = """
class Supplier(BackendSupplier):
    name = "odd"
    def open(self, directory):
        return MemoryBackend()
"""
FROM_OPTIONS_GIVES_NOTHING = """
class Supplier(MemorySupplier):
    name = "odd"
    @classmethod
    def from_options(cls, options):
        cls()
"""
FROM_OPTIONS_FAILS = """
class Supplier(MemorySupplier):
    name = "odd"
    @classmethod
    def from_options(cls, options):
        return {}["redis://:hunter2@host"]
"""
FROM_OPTIONS_ENDS = """
class Supplier(MemorySupplier):
    name = "odd"
    @classmethod
    def from_options(cls, options):
        raise SystemExit(2)
"""
OF_ANOTHER_CONTRACT = """
class Supplier(MemorySupplier):
    name = "odd"
    contract = 2
"""
RAISES_ON_IMPORT = "1 / 0"
ENDS_ON_IMPORT = "raise SystemExit('usage: odd [--help]')"
WANTS_ANOTHER_MILLPOND = "from millpond.stores.backend.contract import Backend, SupportsMiracles"
WANTS_A_MODULE_OF_ANOTHER_MILLPOND = "import millpond.stores.miracles"

REFUSED = {
    "hollow": (HOLLOW, "that has no from_options and no open"),
    "without from_options": (WITHOUT_FROM_OPTIONS, "that has no from_options"),
    "from_options gives nothing": (FROM_OPTIONS_GIVES_NOTHING, "from_options gives nothing instead of a Supplier"),
    "from_options fails": (FROM_OPTIONS_FAILS, "from_options failed for no options: KeyError"),
    "of another contract": (OF_ANOTHER_CONTRACT, "version 2 of the backend contract, but Millpond"),
    "raises on import": (RAISES_ON_IMPORT, "cannot be imported: ZeroDivisionError: division by zero"),
    "ends on import": (ENDS_ON_IMPORT, "cannot be imported: SystemExit: usage: odd [--help]"),
    "from_options ends": (FROM_OPTIONS_ENDS, "from_options failed for no options: SystemExit: 2"),
    "wants another Millpond": (WANTS_ANOTHER_MILLPOND, "written for another release of Millpond than this one"),
    "wants a module": (WANTS_A_MODULE_OF_ANOTHER_MILLPOND, "written for another release of Millpond than this one"),
}

ANOTHER_NAME = """
class Supplier(MemorySupplier):
    name = "strange"
"""
WORKS = """
class Supplier(MemorySupplier):
    name = "odd"
"""
ADVISED = {
    "of another name": (ANOTHER_NAME, "its own name is 'strange'; register it as 'strange', or write name = 'odd"),
    "of another contract": (OF_ANOTHER_CONTRACT, "; install releases of the two that go together"),
    "raises on import": (RAISES_ON_IMPORT, "; report it to those who made that distribution"),
    "wants another Millpond": (WANTS_ANOTHER_MILLPOND, "; install releases of the two that go together"),
}

OPENS = """
@dataclass(frozen=True)
class Supplier(MemorySupplier):
    name = "odd"
    cache: int = 0
    ratio: float = 0.5
    label: str | None = None
    @classmethod
    def from_options(cls, options):
        return cls(**parse_options(cls.name, options, {"cache": parse_size}))
    def open(self, directory):
        return {OPENED}
"""
NOT_OPENED = {
    "nothing": ("None", "open gives nothing instead of a millpond.stores.backend.contract.Backend"),
    "a stranger": ("{}", "open gives an object of type dict instead of"),
    "an error": ("{}['x']", "failed to open .*: KeyError: 'x'"),
    "the end of the process": ("exit('enough')", "failed to open .*: SystemExit: enough"),
}


Plugin: TypeAlias = Callable[[str], str]
_numbers = count()


@pytest.fixture
def plugin(site: Path) -> Plugin:
    """Installs the distribution millpond-odd with a backend whose code is given; returns the backend's name."""

    def put(code: str) -> str:
        name = f"odd{next(_numbers)}"  # a class that was found under a name is kept
        (site / f"pond_{name}.py").write_text(BEGINNING + code.replace('"odd"', repr(name)))
        install(site, "millpond-odd", **{name: f"pond_{name}:Supplier"})
        return name

    return put


@pytest.mark.parametrize("what", REFUSED)
def test_a_broken_plugin_is_refused_with_its_distribution_and_the_reason(plugin: Plugin, what: str) -> None:
    code, reason = REFUSED[what]
    name = plugin(code)
    with pytest.raises(ConfigurationError) as refused:
        supplier(name)
    assert not isinstance(refused.value, BackendNotInstalledError)
    assert reason in str(refused.value)
    assert "the distribution millpond-odd" in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("what", ADVISED)
def test_a_broken_plugin_works_once_another_release_of_it_is_installed(
    plugin: Plugin, site: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    code, advice = ADVISED[what]
    name = plugin(code)
    with pytest.raises(ConfigurationError, match=advice):
        try_out(name)
    if code == ANOTHER_NAME:
        install(site, "millpond-strange", strange=f"pond_{name}:Supplier")
        try_out("strange")
    monkeypatch.delitem(sys.modules, f"pond_{name}", raising=False)  # as a new process has it
    (site / f"pond_{name}.py").write_text(BEGINNING + WORKS.replace('"odd"', repr(name)))
    importlib.invalidate_caches()
    try_out(name)


def test_a_plugin_works_once_what_it_needs_is_installed(
    plugin: Plugin, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = f"pond_needed{next(_numbers)}"
    name = plugin(f"from {needed}.engine import open_engine\n{WORKS}")
    with pytest.raises(BackendNotInstalledError, match=f"{needed}', which is not installed; pip install {needed} \\["):
        try_out(name)
    (site / needed).mkdir()
    (site / needed / "engine.py").write_text("raise ImportError('libengine.so: cannot open shared object file')")
    importlib.invalidate_caches()
    with pytest.raises(BackendNotInstalledError, match=r"be imported .*libengine.*; install what it needs again"):
        try_out(name)
    for module in (needed, f"{needed}.engine", f"pond_{name}"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    (site / needed / "engine.py").write_text("open_engine = None  # whole again")
    importlib.invalidate_caches()
    try_out(name)


def test_of_two_distributions_with_one_name_the_other_works_once_one_is_uninstalled(plugin: Plugin, site: Path) -> None:
    name = plugin(WORKS)
    install(site, "millpond-twin", **{name: "millpond.stores.backend.memory:MemorySupplier"})
    owners = r"the distribution millpond-odd \(.*\) and the distribution millpond-twin \(.*\)"
    with pytest.raises(ConfigurationError, match=f"registered by {owners}; uninstall all but one of them \\["):
        try_out(name)
    shutil.rmtree(site / "millpond_twin-1.0.dist-info")
    try_out(name)


@pytest.mark.parametrize("what", NOT_OPENED)
def test_a_plugin_that_does_not_open_is_named_too(plugin: Plugin, tmp_path: Path, what: str) -> None:
    opened, reason = NOT_OPENED[what]
    name = plugin(OPENS.replace("{OPENED}", opened))
    with pytest.raises(StoreError, match=f"of the distribution millpond-odd.*{reason}"):
        open_backend(name, tmp_path / "store")
    with pytest.raises(
        ConfigurationError, match=r"of the distribution millpond-odd does not work here: BrokenBackendError"
    ):
        try_out(name)


def test_an_option_of_another_type_than_declared_is_refused(plugin: Plugin) -> None:
    made = type(supplier(plugin(OPENS.replace("{OPENED}", "MemoryBackend()"))))
    right = made(cache=1, ratio=1, label="x")  # type: ignore[call-arg]
    assert supplier(right) is right
    for options, reason in (
        ({"cache": "64MiB"}, "option 'cache' .* is '64MiB', but must be of type int"),
        ({"cache": True}, "option 'cache' .* is True, but must be of type int"),
        ({"ratio": "1"}, "option 'ratio' .* is '1', but must be of type float"),
        ({"label": 7}, "option 'label' .* is 7, but must be of type str or None"),
        ({"cache": 2**63}, "option 'cache' .* but must be below 2\\*\\*63"),
    ):
        with pytest.raises(ConfigurationError, match=reason) as refused:
            supplier(made(**options))
        assert "the distribution millpond-odd" in str(refused.value)


def test_options_of_a_url_that_a_plugin_does_not_parse_are_refused(plugin: Plugin) -> None:
    code = OPENS.replace("{OPENED}", "MemoryBackend()")
    name = plugin(code.replace('cls(**parse_options(cls.name, options, {"cache": parse_size}))', "cls(**options)"))
    with pytest.raises(ConfigurationError, match=r"'cache' .*millpond-odd is '5', but must be of type int"):
        supplier(f"{name}://?cache=5")


def test_an_absurd_size_is_refused(plugin: Plugin) -> None:
    name = plugin(OPENS.replace("{OPENED}", "MemoryBackend()"))
    for url in (f"{name}://?cache=9000000TiB", "lmdb://?map_size=1" + "0" * 30):
        with pytest.raises(ConfigurationError, match=r"must be a size such as .*, below 8388608 TiB"):
            supplier(url)


def test_options_of_the_built_in_backends_have_their_types_too() -> None:
    with pytest.raises(ConfigurationError, match=r"'map_size' .* is '1GiB', but must be a whole number, at least"):
        LmdbSupplier(map_size="1GiB")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="'wal' of the backend 'rocksdb' of the distribution millpond is 'no'"):
        supplier(RocksDbSupplier(wal="no"))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"'map_size' of .* but must be below"):
        supplier(LmdbSupplier(map_size=2**80))


def test_a_size_that_the_machine_does_not_have_fails_when_it_is_tried_out() -> None:
    with pytest.raises(ConfigurationError, match=r"of the distribution millpond does not work here: StoreFullError"):
        try_out("lmdb://?map_size=1000000TiB")


def test_a_backend_that_works_is_tried_out_without_a_word() -> None:
    for backend in ("memory", "lmdb", "rocksdb", MemorySupplier()):
        try_out(backend)


def test_the_demo_refuses_a_broken_plugin_before_it_starts_spark(
    plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = plugin(OPENS.replace("{OPENED}", "None"))
    monkeypatch.setattr("millpond.demo.job.session", None)
    options = job.Options(name, tmp_path / "out", tmp_path / "checkpoint", str(tmp_path / "state"), 100)
    with pytest.raises(ConfigurationError, match="the distribution millpond-odd does not work here"):
        job.prepare(options)
    assert not (tmp_path / "checkpoint").exists()
