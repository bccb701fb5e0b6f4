"""Backends by name and URL, through entry points of installed distributions."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.adapters.lmdb import LmdbSupplier
from millpond.adapters.rocksdb import RocksDbSupplier
from millpond.errors import BackendNotInstalledError, ConfigurationError, UnknownBackendError
from millpond.stores.backend.memory import MemorySupplier
from millpond.stores.backend.registry import backend_names, open_backend, supplier
from tests.contract.distributions import install


def test_the_built_in_backends_come_by_entry_points() -> None:
    assert {"memory", "lmdb", "rocksdb"} <= set(backend_names())
    assert supplier("memory") == MemorySupplier()
    assert supplier("lmdb") == LmdbSupplier()
    assert supplier("rocksdb") == RocksDbSupplier()


def test_a_url_carries_options() -> None:
    assert supplier("rocksdb://?block_cache=64MiB&wal=off") == RocksDbSupplier(block_cache=2**26, wal=False)
    assert supplier("lmdb://?map_size=4GB&sync=true") == LmdbSupplier(map_size=4 * 10**9, sync=True)
    assert supplier("memory://") == MemorySupplier()


def test_a_supplier_is_taken_as_it_is_and_travels_by_pickle() -> None:
    given = RocksDbSupplier(block_cache=1)
    assert supplier(given) is given
    assert pickle.loads(pickle.dumps(supplier("rocksdb://?block_cache=1"))) == given


def test_open_backend_takes_a_name_a_url_or_a_supplier(tmp_path: Path) -> None:
    for backend in ("lmdb", "lmdb://?readahead=no", LmdbSupplier()):
        with open_backend(backend, tmp_path / "store") as opened:
            opened.write({b"k" * 1000: b"1"})
            assert opened.get(b"k" * 1000) == b"1"


@pytest.mark.parametrize(
    ("backend", "reason"),
    [
        ("rocksdb:///var/lib", "where stores live is not part of it"),
        ("rocksdb?block_cache=1", "neither a name nor a URL"),
        ("rocksdb://?no_such=1", "its options are block_cache, bloom_bits"),
        ("rocksdb://?block_cache=much", "'block_cache' of the backend 'rocksdb' is 'much', but must be a size"),
        ("rocksdb://?block_cache=1&block_cache=2", "gives the option 'block_cache' twice"),
        ("rocksdb://?compression=zip", "must be one of none, lz4, snappy, zstd"),
        ("lmdb://?sync=perhaps", "must be true or false"),
        ("lmdb://?map_size=", "is '', but must be a size"),
        ("memory://?size=1", "it has no options"),
        (7, "is of type int"),
    ],
)
def test_a_backend_that_makes_no_sense_is_refused_with_the_reason(backend: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        supplier(backend)
    assert reason in str(refused.value)


def test_values_that_make_no_sense_are_refused_where_a_supplier_is_made_too() -> None:
    with pytest.raises(ConfigurationError, match="'compression' of the backend 'rocksdb' is 'zip', but must be one of"):
        RocksDbSupplier(compression="zip")
    with pytest.raises(
        ConfigurationError, match="'write_buffer_size' of the backend 'rocksdb' is 1, but must be at least"
    ):
        RocksDbSupplier(write_buffer_size=1)
    with pytest.raises(ConfigurationError, match="'map_size' of the backend 'lmdb' is 0, but must be at least 32768"):
        supplier("lmdb://?map_size=0")


def test_an_unknown_name_lists_the_known_ones_and_the_closest() -> None:
    with pytest.raises(UnknownBackendError) as unknown:
        supplier("rocksbd")
    assert "there is no backend 'rocksbd', only lmdb, memory, rocksdb" in str(unknown.value)
    assert "did you mean 'rocksdb'?" in str(unknown.value)


def test_a_package_without_metadata_works_once_it_is_installed(tmp_path: Path) -> None:
    sources = Path(sys.modules["millpond"].__file__ or "").parents[1]
    code = f"import sys; sys.path = [{str(sources)!r}, *{[p for p in sys.path if 'site-packages' not in p]!r}]\n"
    nothing = "from importlib import metadata\nmetadata.MetadataPathFinder.find_distributions = lambda *a, **k: []\n"
    search = f"sys.path += {[p for p in sys.path if 'site-packages' in p]!r}\n"
    search += "from millpond.stores.backend.registry import supplier\nprint(supplier('memory').name)"

    def run(installed: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code + installed + search]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)

    assert "UnknownBackendError" in run(nothing).stderr
    assert "is missing; install it (pip install millpond, or pip install -e . in its s" in run(nothing).stderr
    assert run("").stdout == "memory\n"


def test_a_third_party_backend_is_found_by_its_entry_point_even_after_it_was_missed(site: Path, tmp_path: Path) -> None:
    (site / "pond_thing.py").write_text(
        "from millpond.stores.backend.memory import MemorySupplier\n"
        "class ThingSupplier(MemorySupplier):\n    name = 'thing'\n"
    )
    with pytest.raises(UnknownBackendError):
        supplier("thing")
    install(site, "millpond-thing", thing="pond_thing:ThingSupplier")
    assert "thing" in backend_names()
    assert type(supplier("thing")).__name__ == "ThingSupplier"
    with open_backend("thing://", tmp_path / "store") as backend:
        assert backend.get(b"a") is None


def test_a_backend_whose_package_is_missing_names_the_package_and_the_cure(site: Path) -> None:
    (site / "pond_lacking.py").write_text("import no_such_engine.core\n")
    install(site, "millpond-lacking", lacking="pond_lacking:Supplier")
    with pytest.raises(BackendNotInstalledError) as missing:
        supplier("lacking")
    assert "the backend 'lacking' of the distribution millpond-lacking needs the module 'no_such_engine" in str(
        missing.value
    )
    assert "pip install no_such_engine" in str(missing.value)


def test_a_backend_whose_package_is_broken_says_why(site: Path) -> None:
    (site / "pond_broken.py").write_text("raise ImportError('libengine.so.7: cannot open shared object file')\n")
    install(site, "millpond-broken", broken="pond_broken:Supplier")
    with pytest.raises(BackendNotInstalledError, match=r"libengine\.so\.7"):
        supplier("broken")


def test_a_name_that_two_distributions_register_is_an_error_that_names_both(site: Path) -> None:
    install(site, "millpond-one", twice="pond_one:Supplier")
    install(site, "millpond-two", twice="pond_two:Supplier")
    with pytest.raises(ConfigurationError) as refused:
        supplier("twice")
    assert "millpond-one (pond_one:Supplier)" in str(refused.value)
    assert "millpond-two (pond_two:Supplier)" in str(refused.value)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("pond_odd:NotThere", "there is no such thing"),
        ("pond_odd:function", "is no subclass of"),
        ("pond_odd:Other", "its own name is 'memory'"),
    ],
)
def test_an_entry_that_is_no_supplier_is_refused_with_its_distribution(site: Path, target: str, reason: str) -> None:
    (site / "pond_odd.py").write_text(
        "from millpond.stores.backend.memory import MemorySupplier as Other\ndef function(options): ...\n"
    )
    install(site, "millpond-odd", odd=target)
    with pytest.raises(ConfigurationError) as refused:
        supplier("odd")
    assert reason in str(refused.value)
    assert "the distribution millpond-odd" in str(refused.value)
