"""A backend whose rows are outside of its directory passes the kit, and is safe where it does not keep the contract."""

from collections.abc import Collection
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pytest

from millpond.errors import BackendError
from millpond.processors import StreamsBuilder, TopologyDriver
from millpond.stores.specs.formats import FormatVersion
from millpond.stores.specs.migration import open_version
from millpond.stores.testing import BackendSuite, Feature
from tests.contract.outside import NamedByItsPath, OutsideSupplier, away
from tests.drawing import tries
from tests.durability.one_store import add, content, key, task

# Held as long as this module.
_service = TemporaryDirectory(prefix="service-")


class TestOutside(BackendSuite):
    examples = tries(15)
    opt_outs: ClassVar = {Feature.FILES: "a directory has only the name of a store that is elsewhere"}

    def supplier(self) -> OutsideSupplier:
        return OutsideSupplier(_service.name)

    def outside(self) -> Collection[object]:
        return list(Path(_service.name).iterdir())

    def unreachable(self) -> AbstractContextManager[object]:
        return away(_service.name)


@pytest.fixture(autouse=True)
def service(tmp_path: Path) -> None:
    (tmp_path / "service").mkdir()


def test_a_new_directory_that_shows_old_rows_is_refused(tmp_path: Path) -> None:
    supplier = NamedByItsPath(str(tmp_path / "service"))
    for name in ("first", "second"):
        with open_version(supplier, tmp_path / "store", FormatVersion.PLAIN, "counts") as backend:
            backend.write({b"store": name.encode()})
        (tmp_path / "store").rename(tmp_path / name)
        with pytest.raises(BackendError, match=r"'outside' shows rows in .*store, which is new") as refused:
            open_version(supplier, tmp_path / "store", FormatVersion.PLAIN, "counts")
        assert "must not be used" in str(refused.value)
        supplier.destroy(tmp_path / "store")
        (tmp_path / "store").rmdir()


def test_a_backend_that_shows_old_rows_is_used_once_it_keeps_to_its_contract(tmp_path: Path) -> None:
    mistaken = NamedByItsPath(str(tmp_path / "service"))
    with open_version(mistaken, tmp_path / "store", FormatVersion.PLAIN, "counts") as backend:
        backend.write({b"old": b"row"})
    (tmp_path / "store").rename(tmp_path / "away")
    with pytest.raises(BackendError, match=r"until it keeps to BackendSupplier.open, by which a new directory is an"):
        open_version(mistaken, tmp_path / "store", FormatVersion.PLAIN, "counts")
    mended = OutsideSupplier(mistaken.root)
    with open_version(mended, tmp_path / "another", FormatVersion.PLAIN, "counts") as backend:
        assert list(backend.scan()) == []


@pytest.mark.parametrize("mistake", ["deleted by hand", "not destroyed"])
def test_old_state_never_comes_back_from_outside(tmp_path: Path, mistake: str, monkeypatch: Any) -> None:
    supplier = NamedByItsPath(str(tmp_path / "service"))
    with task(tmp_path, supplier) as state:
        manifest = add(state, None, range(1))
    monkeypatch.setattr(NamedByItsPath, "destroy", lambda *_: None)
    (copy,) = (tmp_path / "local").glob("app/0_0/outside/counts")
    if mistake == "deleted by hand":
        copy.rmdir()
    else:
        (copy / "damage").write_text("the seal does not know this file")
    with task(tmp_path, supplier) as state, pytest.raises(BackendError, match="which is new"):
        state.open(manifest)


def test_a_discarded_copy_leaves_nothing_outside_and_is_restored(tmp_path: Path) -> None:
    supplier = OutsideSupplier(str(tmp_path / "service"))
    with task(tmp_path, supplier) as state:
        manifest = add(state, None, range(1))
    (copy,) = (tmp_path / "local").glob("app/0_0/outside/counts")
    before = list((tmp_path / "service").iterdir())
    (copy / "damage").write_text("the seal does not know this file")
    with task(tmp_path, supplier) as state:
        assert content(state, manifest) == {key(0): 1}
    after = list((tmp_path / "service").iterdir())
    assert (len(before), len(after)) == (1, 1)
    assert before != after


def test_a_driver_in_a_temporary_directory_leaves_nothing_outside(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("words").group_by_key().count().to_stream().to("counts")
    supplier = OutsideSupplier(str(tmp_path / "service"))
    with TopologyDriver(builder.build(), backend=supplier) as driver:
        driver.pipe("words", "mill", "x", timestamp=1)
        assert len(list((tmp_path / "service").iterdir())) == 1
    assert list((tmp_path / "service").iterdir()) == []
