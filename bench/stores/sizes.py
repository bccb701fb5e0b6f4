"""The sizes of a store, and of the work on it."""

from dataclasses import dataclass, replace
from typing import Final

from millpond.bench.rows import VALUE_SIZE, key_of
from millpond.bench.runs.asked import check_least

KEY_SIZE: Final = len(key_of(0))
"""Bytes of a key."""


@dataclass(frozen=True)
class Sizes:
    """The size of a store, and of the work on it.

    Args:
        keys: rows of the store before; where windows and sessions come and go, their number follows from ``records``.
        records: operations that are measured.
        batch: operations of a commit.
        warm_up: operations before those that are measured; whole batches of them are done.
        seed: of all chance.

    Raises:
        ConfigurationError: a number makes no sense.
    """

    keys: int
    records: int
    batch: int = 1_000
    warm_up: int = 0
    seed: int = 1

    def __post_init__(self) -> None:
        check_least(self, keys=1, records=1, batch=1, warm_up=0, seed=0)

    @property
    def warming(self) -> int:
        """Operations that are not measured, in whole batches."""
        return -(-self.warm_up // self.batch) * self.batch

    @property
    def total(self) -> int:
        """All operations, with those that are not measured."""
        return self.warming + self.records

    @property
    def data_bytes(self) -> int:
        """Bytes of all keys and values that are there before."""
        return self.keys * (KEY_SIZE + VALUE_SIZE)

    def with_keys(self, keys: int) -> "Sizes":
        """Return these sizes with another number of keys."""
        return replace(self, keys=keys)
