"""The peculiarities of RocksDB through rocksdict: options, locks, iterators and errors."""

import os
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from millpond.adapters.rocksdb import RocksDbBackend, RocksDbSupplier, lock_holder, translate_errors
from millpond.errors import BackendError, BackendInUseError, ConfigurationError, CorruptStoreError, StoreFullError
from millpond.stores.testing import Child
from millpond.stores.testing.programs import hold

OPTIONS = RocksDbSupplier(
    block_cache=7 * 2**20, bloom_bits=13, write_buffer_size=5 * 2**20, compression="zstd", max_open_files=321
)


def effective(backend: RocksDbBackend, directory: Path) -> dict[str, str]:
    """Return the options that the engine itself says it works with."""
    newest = max(directory.glob("OPTIONS-*"), key=lambda path: path.name)
    written = dict(re.findall(r"^\s*(\w+)=(.*)$", newest.read_text(), flags=re.MULTILINE))
    written["block_cache"] = str(backend._db.property_int_value("rocksdb.block-cache-capacity"))
    return written


def test_the_effective_options_are_those_asked_for_and_the_same_after_each_reopen(tmp_path: Path) -> None:
    for _ in range(3):
        with OPTIONS.open(tmp_path) as backend:
            options = effective(backend, tmp_path)
            backend.write({b"a": bytes(1000)})
        assert options["block_cache"] == str(7 * 2**20)
        assert options["filter_policy"] == "bloomfilter"
        assert options["write_buffer_size"] == str(5 * 2**20)
        assert options["compression"] == "kZSTD"
        assert options["max_open_files"] == "321"


def test_options_may_change_at_a_reopen(tmp_path: Path) -> None:
    with OPTIONS.open(tmp_path) as backend:
        backend.write({b"a": b"1"})
    with RocksDbSupplier(bloom_bits=0, compression="none").open(tmp_path) as backend:
        options = effective(backend, tmp_path)
        assert backend.get(b"a") == b"1"
    assert options["filter_policy"] == "nullptr"
    assert options["compression"] == "kNoCompression"


def test_a_bloom_filter_saves_reads_of_keys_that_are_not_there_before_and_after_a_reopen(tmp_path: Path) -> None:
    for bits in (0, 10):
        with RocksDbSupplier(bloom_bits=bits).open(tmp_path / str(bits)) as backend:
            backend.load((b"%06d" % number, bytes(100)) for number in range(0, 10_000, 2))
        for first in (10_000, 20_000):
            options = RocksDbSupplier(bloom_bits=bits).engine_options()
            options.enable_statistics()
            with RocksDbBackend(tmp_path / str(bits), options, wal=True) as backend:
                backend.write({b"%06d" % number: bytes(100) for number in range(first, first + 10_000, 2)})
                backend._db.flush(True)
                for number in range(first + 1, first + 10_000, 2):
                    assert backend.get(b"%06d" % number) is None
            found = re.search(r"rocksdb\.bloom\.filter\.useful COUNT : (\d+)", options.get_statistics() or "")
            assert found is not None
            assert (int(found[1]) > 4_500) == (bits == 10)


def test_stores_of_one_process_share_one_block_cache(tmp_path: Path) -> None:
    supplier = RocksDbSupplier(block_cache=3 * 2**20)
    with supplier.open(tmp_path / "one") as one, supplier.open(tmp_path / "two") as two:
        for backend in (one, two):
            backend.load((b"%05d" % number, os.urandom(100)) for number in range(2_000))
        used_before = two._db.property_int_value("rocksdb.block-cache-usage")
        list(one.scan())
        assert two._db.property_int_value("rocksdb.block-cache-usage") > used_before


def test_all_stores_of_a_process_keep_within_one_budget(tmp_path: Path) -> None:
    budget = 8 * 2**20
    supplier = RocksDbSupplier(memory_budget=budget)
    with ExitStack() as stack:
        backends = [stack.enter_context(supplier.open(tmp_path / str(number))) for number in range(8)]
        unflushed = 0
        for part in range(60):
            for number, backend in enumerate(backends):
                rows = {b"%02d-%05d" % (part, row): os.urandom(1_000) for row in range(100)}
                backend.write({**rows, b"store": b"%d" % number})
            tables = [one._db.property_int_value("rocksdb.cur-size-all-mem-tables") for one in backends]
            unflushed = max(unflushed, sum(tables))
        # 48 MB were written: without the budget, all of it would lie in tables of up to 64 MiB each. However slowly the
        # engine writes them out, there is never more than the budget and what one write adds to it.
        assert unflushed < 1.5 * budget
        assert {one._db.property_int_value("rocksdb.block-cache-capacity") for one in backends} == {budget}
        for number, backend in enumerate(backends):
            assert sum(1 for _ in backend.scan()) == 6_001
            assert backend.get(b"store") == b"%d" % number
            assert backend._db.property_int_value("rocksdb.block-cache-usage") < 1.5 * budget


def test_a_budget_may_be_limited_while_stores_are_open(tmp_path: Path) -> None:
    supplier = RocksDbSupplier().with_memory_budget(10 * 2**20)
    with supplier.open(tmp_path / "one") as one, supplier.open(tmp_path / "two") as two:
        one.load((b"%05d" % number, os.urandom(1_000)) for number in range(9_000))
        assert sum(1 for _ in one.scan()) == 9_000
        assert two._db.property_int_value("rocksdb.block-cache-usage") > 6 * 2**20
        supplier.limit_memory(4 * 2**20)
        for backend in (one, two):
            assert backend._db.property_int_value("rocksdb.block-cache-capacity") == 4 * 2**20
            assert backend._db.property_int_value("rocksdb.block-cache-usage") < 5 * 2**20
        for part in range(40):
            two.write({b"%02d-%05d" % (part, row): os.urandom(1_000) for row in range(300)})
            assert two._db.property_int_value("rocksdb.cur-size-all-mem-tables") < 6 * 2**20
        assert (sum(1 for _ in one.scan()), sum(1 for _ in two.scan())) == (9_000, 12_000)
        supplier.limit_memory(10 * 2**20)
        assert one._db.property_int_value("rocksdb.block-cache-capacity") == 10 * 2**20


def test_a_budget_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'memory_budget'.*at least"):
        RocksDbSupplier(memory_budget=2**20)
    with pytest.raises(ConfigurationError, match="leave out block_cache"):
        RocksDbSupplier(memory_budget=2**30, block_cache=2**20)


def test_a_directory_in_use_names_itself_and_the_process_that_holds_it(tmp_path: Path) -> None:
    with Child(hold, RocksDbSupplier(), tmp_path) as child:
        assert child.read() == "open"
        with pytest.raises(BackendInUseError, match=rf"{tmp_path} is in use by process {child.pid};"):
            RocksDbSupplier().open(tmp_path)
        assert lock_holder(tmp_path / "LOCK") == child.pid
    with RocksDbSupplier().open(tmp_path):
        with pytest.raises(BackendInUseError, match=rf"{tmp_path} is in use by this process \({os.getpid()}\)"):
            RocksDbSupplier().open(tmp_path)
        assert lock_holder(tmp_path / "LOCK") == os.getpid()


def test_nobody_holds_the_lock_of_a_file_that_is_not_locked_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "LOCK").touch()
    assert lock_holder(tmp_path / "LOCK") is None
    assert lock_holder(tmp_path / "none") is None


def test_a_scan_with_a_bound_survives_that_its_caller_drops_the_bound(tmp_path: Path) -> None:
    with RocksDbSupplier().open(tmp_path) as backend:
        backend.write({b"a%05d" % number: bytes(500) for number in range(2_000)})
        for reverse in (False, True):
            scan = backend.scan(b"a", bytes([97, 255]), reverse=reverse)
            others = [bytes([number % 251 + 1, number % 256]) for number in range(10_000)]
            assert sum(1 for _ in scan) == 2_000
            assert len(others) == 10_000


@pytest.mark.parametrize("change", [{"a": b"1"}, {b"a": "1"}, {b"a": 1}, {"a": None}])
def test_a_write_of_one_row_that_is_not_bytes_is_refused_and_writes_nothing(tmp_path: Path, change: Any) -> None:
    with RocksDbSupplier().open(tmp_path) as backend:
        backend.write({b"a": b"0"})
        with pytest.raises((KeyError, ValueError), match="bytes"):
            backend.write(change)
        assert list(backend.scan()) == [(b"a", b"0")]


def test_a_write_of_one_row_shows_the_last_entry_anew(tmp_path: Path) -> None:
    with RocksDbSupplier().open(tmp_path) as backend:
        backend.write({b"a": b"0", b"b": b"0"})
        assert backend.last(b"a", b"z") == (b"b", b"0")
        backend.write({b"c": b"1"})
        assert backend.last(b"a", b"z") == (b"c", b"1")
        backend.write({b"c": None})
        assert backend.last(b"a", b"z") == (b"b", b"0")


@pytest.mark.parametrize("value", [b"1", None])
def test_a_write_of_one_row_without_a_log_leaves_no_log(tmp_path: Path, value: bytes | None) -> None:
    with RocksDbSupplier(wal=False).open(tmp_path) as backend:
        backend.write({b"a": value})
        assert [path.stat().st_size for path in tmp_path.glob("*.log")] == [0]


def test_load_leaves_only_the_files_of_the_engine(tmp_path: Path) -> None:
    with RocksDbSupplier().open(tmp_path) as backend:
        backend.load((b"%06d" % number, b"") for number in range(1_000))
        assert not list(tmp_path.glob("load-*"))
        assert backend.entry_count() == 1_000


def test_the_last_entry_is_found_past_many_deleted_ones(tmp_path: Path) -> None:
    with RocksDbSupplier().open(tmp_path) as backend:
        backend.write({b"%06d" % number: b"" for number in range(5_000)})
        assert backend.last(b"0", b"1") == (b"004999", b"")
        backend.delete_range(b"000010", b"1")
        assert backend.last(b"0", b"1") == (b"000009", b"")
        backend.write({b"000009": None})
        assert backend.last(b"000005", b"1") == (b"000008", b"")
        assert backend.last(b"000009", b"1") is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Corruption: block checksum mismatch", CorruptStoreError),
        ("IO error: No such file or directory: While open a file for random read: 000009.sst", CorruptStoreError),
        ("IO error: No space left on device: While appending to file: 000004.log", StoreFullError),
        ("IO error: Disk quota exceeded: While appending to file: 000004.log", StoreFullError),
        ("IO error: While lock file: /x/LOCK: Resource temporarily unavailable", BackendInUseError),
        ("Invalid argument: anything else", BackendError),
    ],
)
def test_each_error_of_rocksdict_becomes_one_of_millponds_that_names_the_directory(
    tmp_path: Path, text: str, kind: type[BackendError]
) -> None:
    error = Exception(text)
    with pytest.raises(BackendError, match=str(tmp_path)) as raised, translate_errors(tmp_path):
        raise error
    assert type(raised.value) is kind
    assert raised.value.__cause__ is error


def test_errors_that_are_not_rocksdicts_pass_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(KeyError), translate_errors(tmp_path):
        raise KeyError("x")


@pytest.mark.parametrize("made_before", [False, True])
def test_a_file_of_the_package_that_it_may_not_use_is_no_error_of_the_system(tmp_path: Path, made_before: bool) -> None:
    if made_before:
        RocksDbSupplier().open(tmp_path).close()
        (tmp_path / "rocksdict-config.json").unlink()
    (tmp_path / "rocksdict-config.json").mkdir()
    with pytest.raises(BackendError, match=rf"{tmp_path} cannot be used \(Is a directory.*may be read and written"):
        RocksDbSupplier().open(tmp_path)
