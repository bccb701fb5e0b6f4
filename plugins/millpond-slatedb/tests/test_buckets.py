"""Faults of a bucket: losses, other names, absence; and the processes that can open a store."""

import json
import logging
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from millpond_slatedb import SlateDbSupplier
from s3_server import BUCKET, S3Server

from millpond.errors import BackendInUseError, BackendUnavailableError, ConfigurationError, CorruptStoreError
from millpond.stores.backend import Backend
from millpond.stores.backend.registry import supplier, try_out

pytest_plugins = ("s3_server",)


def below(server: S3Server, prefix: str = "stores", timeout: float = 60.0) -> SlateDbSupplier:
    return SlateDbSupplier(f"s3://{BUCKET}/{prefix}", server.endpoint, timeout=timeout)


def filled(server: S3Server, directory: Path) -> SlateDbSupplier:
    """Return the supplier of a store in ``directory`` with one row that was flushed."""
    chosen = below(server)
    with chosen.open(directory) as backend:
        backend.write({b"a": b"1"})
        backend.flush()
    return chosen


def test_a_name_with_a_bucket_in_it_is_a_backend(server: S3Server) -> None:
    assert supplier(server.url()) == below(server)
    try_out(server.url())


def test_rows_that_the_bucket_has_lost_are_missed(server: S3Server, tmp_path: Path) -> None:
    chosen = filled(server, tmp_path / "store")
    server.delete(*server.keys())
    with pytest.raises(CorruptStoreError, match="does not have all rows any more: there is nothing below stores/"):
        chosen.open(tmp_path / "store")


def test_a_change_that_was_flushed_and_is_lost_is_missed(server: S3Server, tmp_path: Path) -> None:
    chosen = filled(server, tmp_path / "store")
    record = json.loads((tmp_path / "store" / "store.json").read_text())
    (tmp_path / "store" / "store.json").write_text(json.dumps({**record, "flushed": record["flushed"] + 1}))
    with pytest.raises(CorruptStoreError, match=r"its last change is number \d+, and \d+ was flushed"):
        chosen.open(tmp_path / "store")
    (tmp_path / "store" / "store.json").write_text(json.dumps(record))
    with chosen.open(tmp_path / "store") as backend:
        assert backend.get(b"a") == b"1"
    chosen.destroy(tmp_path / "store")


def test_an_engine_that_has_shut_down_by_itself_is_closed(server: S3Server, tmp_path: Path) -> None:
    chosen = filled(server, tmp_path / "store")
    backend: Any = chosen.open(tmp_path / "store")
    backend._calls.change(backend._db.shutdown())
    backend.close()
    with chosen.open(tmp_path / "store") as again:
        assert again.get(b"a") == b"1"
    chosen.destroy(tmp_path / "store")


def test_a_copy_of_a_directory_takes_the_store_from_who_had_it(server: S3Server, tmp_path: Path) -> None:
    chosen = filled(server, tmp_path / "store")
    first = chosen.open(tmp_path / "store")
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    with chosen.open(tmp_path / "copy") as second:
        assert second.get(b"a") == b"1"
        with pytest.raises(BackendInUseError, match="has been opened elsewhere since"):
            _write_on(first)
        with suppress(BackendInUseError):  # SlateDB may have noticed by itself, and says so at the close as well
            first.close()
        assert second.get(b"b") is None
    chosen.destroy(tmp_path / "store")


def _write_on(backend: Backend) -> None:
    for number in range(100):
        backend.write({b"b": b"%d" % number})
        backend.flush()


def test_another_bucket_or_prefix_does_not_have_the_rows(
    server: S3Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = filled(server, tmp_path / "store")
    other = below(server, "others")
    with pytest.raises(CorruptStoreError, match=f"they are in s3://{BUCKET}/stores"):
        other.open(tmp_path / "store")
    with caplog.at_level(logging.WARNING):
        other.destroy(tmp_path / "store")
    assert f"stays in s3://{BUCKET}/stores, for you to delete" in caplog.text
    chosen.destroy(tmp_path / "store")
    assert server.keys() == []


def test_what_was_not_answered_in_time_is_done_when_the_bucket_is_back(server: S3Server, tmp_path: Path) -> None:
    chosen = below(server, timeout=2.0)
    backend = chosen.open(tmp_path / "store")
    with server.away():
        backend.write({b"a": b"1"})
        assert backend.get(b"a") == b"1"
        with pytest.raises(BackendUnavailableError, match="it has not answered in 2 s"):
            backend.flush()
    backend.flush()
    backend.close()
    with below(server).open(tmp_path / "store") as again:
        assert again.get(b"a") == b"1"
    below(server).destroy(tmp_path / "store")


def test_a_backend_without_a_bucket_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="name one, as in 'slatedb://\\?url=s3://bucket/prefix'"):
        SlateDbSupplier().open(tmp_path / "store")
    supplier("slatedb").destroy(tmp_path / "store")
