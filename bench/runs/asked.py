"""Checks of what is asked of a benchmark: what makes no sense is refused before anything runs.

Rule of this module: it knows no benchmark; each hands in what it knows, and the numbers that it was given.
"""

from collections.abc import Collection, Iterable
from pathlib import Path

from millpond.errors import ConfigurationError
from millpond.masking import masked


def check_known(what: str, names: Iterable[str], known: Collection[str]) -> None:
    """Refuse a name that is none of those that are known.

    Args:
        what: a noun for what has such a name, such as ``workload``.
        names: what was asked for.
        known: all names that there are. They may have commas in them.

    Raises:
        ConfigurationError: a name is unknown.
    """
    several = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    for name in names:
        if name not in known:
            raise ConfigurationError(f"there is no {what} {masked(name)!r}; the {several} are {'; '.join(known)}")


def check_least(sizes: object, **least: int) -> None:
    """Refuse attributes of ``sizes`` that are below the least that makes sense, which stands behind their names.

    Raises:
        ConfigurationError: one of them is.
    """
    for name, lowest in least.items():
        if getattr(sizes, name) < lowest:
            raise ConfigurationError(f"{name} is {getattr(sizes, name)}, but must be at least {lowest}")


def check_turns(repeat: int, directory: Path | None, timeout_s: float | None) -> None:
    """Refuse what no benchmark can do that has several runs.

    Raises:
        ConfigurationError: nothing is to be run, no time is given for it, or there is no such directory.
    """
    if repeat < 1:
        raise ConfigurationError(f"repeat is {repeat}, but must be at least 1")
    if timeout_s is not None and not timeout_s > 0:
        raise ConfigurationError(f"the timeout is {timeout_s} s, but must be above 0; leave it out to wait for ever")
    check_directory(directory)


def check_directory(directory: Path | None) -> None:
    """Refuse a place for files that is not there; None is the temporary directory.

    Raises:
        ConfigurationError: there is no such directory.
    """
    if directory is not None and not directory.is_dir():
        raise ConfigurationError(f"{directory} is no directory; make it first, on the file system to measure")


def check_cache_ratio(ratio: float | None) -> None:
    """Refuse a ratio of data to cache that no cache can have; None leaves caches as they come.

    Raises:
        ConfigurationError: it is not above 0.
    """
    if ratio is not None and not ratio > 0:
        raise ConfigurationError(f"the ratio of data to cache is {ratio}, but must be above 0")


def cache_bytes(data_bytes: int, ratio: float | None) -> int | None:
    """Return the bytes of a cache that so much data is ``ratio`` times as large as; None leaves it as it comes."""
    return None if ratio is None else max(1, int(data_bytes / ratio))
