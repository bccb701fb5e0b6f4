"""Every reader of bytes that outlive a process or leave it, by name."""

from collections.abc import Callable, Mapping
from typing import Final

from tests.fuzz.durable_readers import durable_readers
from tests.fuzz.operator_readers import operator_readers
from tests.fuzz.reader import Reader
from tests.fuzz.store_readers import store_readers

_ROOMS: Final[tuple[Callable[[], Mapping[str, Reader]], ...]] = (store_readers, operator_readers, durable_readers)


def all_readers() -> dict[str, Reader]:
    """Return all readers; reading the seeds makes them."""
    return {name: reader for room in _ROOMS for name, reader in room().items()}
