"""What others put in the place of files of ours is not followed out of the local directory."""

from pathlib import Path

import pytest

from millpond.errors import StoreError
from millpond.stores.durability.copies.lease import LEASE_FILE, Lease


def test_a_lease_that_is_a_link_is_refused_and_nothing_outside_is_written(tmp_path: Path) -> None:
    outside, task = tmp_path / "outside", tmp_path / "local" / "app" / "0_0"
    outside.write_text("somebody else's, and longer than the note of a lease")
    task.mkdir(parents=True)
    (task / LEASE_FILE).symlink_to(outside)
    with pytest.raises(StoreError, match="lease is a symbolic link, which is not followed"):
        Lease(task, 0).acquire()
    assert outside.read_text() == "somebody else's, and longer than the note of a lease"


def test_a_lease_that_is_a_link_to_nothing_makes_no_file(tmp_path: Path) -> None:
    outside, task = tmp_path / "outside", tmp_path / "task"
    task.mkdir()
    (task / LEASE_FILE).symlink_to(outside)
    with pytest.raises(StoreError, match="symbolic link"):
        Lease(task, 0).acquire()
    assert not outside.exists()


def test_a_local_directory_that_is_a_link_itself_is_used(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "local").symlink_to(tmp_path / "disk")
    lease = Lease(tmp_path / "local" / "app" / "0_0", 0)
    lease.acquire()
    lease.release()
    assert (tmp_path / "disk" / "app" / "0_0" / LEASE_FILE).is_file()
