"""``Description``: a job's use of its state, in the few numbers that decide on its backend.

Rule of this module: it is plain data, and it knows no backend. Sizes are bytes, shares are of all operations.
"""

import re
from dataclasses import dataclass
from typing import Final

from millpond.bench.engines.run import DURABILITIES
from millpond.errors import ConfigurationError

_COUNT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgb]?)", re.IGNORECASE)
_TIMES: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}
_MOST: Final = 10**15


def parse_count(text: str) -> int:
    """Return a number of things, with or without a letter for thousands, millions or billions.

    >>> parse_count("20M"), parse_count("1.5k"), parse_count("300")
    (20000000, 1500, 300)
    """
    match = _COUNT.fullmatch(text.strip().replace(",", "").replace("_", ""))
    if match is None or (found := float(match[1]) * _TIMES[match[2].lower()]) > _MOST:
        raise ValueError("a number such as 500000, 20M or 1.5G")
    return int(found)


@dataclass(frozen=True)
class Description:
    """A job's state on one machine, and the work on it.

    Args:
        keys: rows of all stores that the machine holds.
        key_bytes: of each key.
        value_bytes: of each value.
        reads: the share of operations that read a row.
        scans: the share that read rows in key order. What is left of all shares writes a row.
        scan_rows: rows that a scan reads.
        memory_bytes: what state may take of the machine's memory, the system's page cache included.
        disk_bytes: what local copies may take of the machine's disk.
        workers: processes that share the memory, as an executor has one for each of its cores.
        batch: rows of a commit, in one store of one task.
        durability: ``none``, or ``synced`` if each commit is to be on the disk when it returns.
        expiring: the share that put a new row behind all others or delete one of the first, half and half, as windows
            do that follow each other and expire.

    Raises:
        ConfigurationError: a number makes no sense.
    """

    keys: int
    key_bytes: int
    value_bytes: int
    reads: float
    scans: float
    scan_rows: int
    memory_bytes: int
    disk_bytes: int
    workers: int = 1
    batch: int = 1_000
    durability: str = "none"
    expiring: float = 0.0

    def __post_init__(self) -> None:
        for name in ("keys", "key_bytes", "scan_rows", "memory_bytes", "disk_bytes", "workers", "batch"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{_option(name)} is {getattr(self, name)}, but must be at least 1")
        if self.value_bytes < 0:
            raise ConfigurationError(f"--value-size is {self.value_bytes}, but must be at least 0")
        for name in ("reads", "scans", "expiring"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigurationError(f"--{name} is {getattr(self, name):g}, but a share is between 0 and 1")
        together = self.reads + self.scans + self.expiring
        if together > 1 + 1e-9:
            raise ConfigurationError(
                f"--reads, --scans and --expiring are {together:g} together, but shares of all operations are at most "
                "1; what is left are the writes"
            )
        if self.durability not in DURABILITIES:
            raise ConfigurationError(f"--durability is {self.durability!r}, but must be {' or '.join(DURABILITIES)}")
        if self.keys > 256**self.key_bytes:
            raise ConfigurationError(
                f"there are not {self.keys:,} keys of {self.key_bytes} bytes; give a longer --key-size"
            )

    @property
    def writes(self) -> float:
        """The share of operations that write a row by chance."""
        return max(0.0, 1 - self.reads - self.scans - self.expiring)

    @property
    def row_bytes(self) -> int:
        """Of a key and its value."""
        return self.key_bytes + self.value_bytes

    @property
    def data_bytes(self) -> int:
        """Of all keys and values."""
        return self.keys * self.row_bytes

    @property
    def worker_memory(self) -> int:
        """The memory that one worker may take, in bytes."""
        return self.memory_bytes // self.workers


def _option(name: str) -> str:
    return "--" + name.replace("_bytes", "-size" if name == "key_bytes" else "").replace("_", "-")
