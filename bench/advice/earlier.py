"""Times that ``millpond bench engines --json`` has measured before, in place of runs now.

Rule of this module: what cannot speak for the description is refused, and what speaks less well is said.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from millpond.bench.advice.candidates import Candidate
from millpond.bench.advice.description import Description
from millpond.bench.advice.measuring import (
    Effort,
    Measurements,
    Say,
    as_measured,
    room,
    times_of,
)
from millpond.bench.documents import Document
from millpond.errors import ConfigurationError

_FAR: Final = 2
"""The factor by which a size may differ."""

_MACHINE: Final = ("cpu", "cores", "memory_gib")


def measured_before(
    description: Description,
    candidates: Sequence[Candidate],
    results: Document,
    effort: Effort,
    say: Say = lambda what: None,
) -> Measurements:
    """Return the times of ``results``, with memory and disk measured now, which that benchmark does not tell."""
    rows = int(_number(results.settings, "records"))
    ratio = results.settings.get("cache_ratio")
    scaled = isinstance(ratio, int | float) and not _far(ratio, description.data_bytes / description.memory_bytes)
    backends = []
    for one in candidates:
        say(f"memory and disk of {one.backend}")
        times = times_of(description, results, f"{one.backend} (Millpond)", rows)
        found = as_measured(description, one, room(description, one, effort), {"given": times})
        backends.append(replace(found, cache_scaled=found.cache_scaled and scaled))
    return Measurements(tuple(backends), results.settings, rows)


def refuse_other(description: Description, results: Document, here: Mapping[str, Any], origin: str) -> list[str]:
    """Return the reasons for which earlier results speak less well for a description.

    Args:
        description: of the job.
        results: what was measured before.
        here: this machine, as ``millpond.bench.report.machine`` says.
        origin: where the results come from.

    Raises:
        ConfigurationError: they cannot speak for it: another machine, or sizes that are too different.
    """
    if results.benchmark != "engines":
        raise ConfigurationError(f"{origin} has figures of {results.benchmark}; give a file of millpond bench engines")
    other = [name for name in _MACHINE if results.machine.get(name) != here.get(name)]
    if other:
        then = ", ".join(f"{name} {results.machine.get(name)!r} there and {here.get(name)!r} here" for name in other)
        raise ConfigurationError(f"{origin} was measured on another machine ({then}); measure on this one")
    settings = results.settings
    for name, wanted in (
        ("key_bytes", description.key_bytes),
        ("value_bytes", description.value_bytes),
        ("batch", description.batch),
    ):
        found = _number(settings, name)
        if _far(found, wanted):
            raise ConfigurationError(
                f"{origin} was measured with {name} {found:,.0f}, and {wanted:,} are described, more than {_FAR} times "
                "as much or as little; measure again with these, or leave out --measurements"
            )
    synced = {one.durability for one in results.contenders if one.kind == "backend"} & {"flushed after each write"}
    if bool(synced) != (description.durability == "synced"):
        raise ConfigurationError(f"{origin} was not measured with --durability {description.durability}; measure again")
    return list(_warnings(description, results, here))


def _warnings(description: Description, results: Document, here: Mapping[str, Any]) -> Iterator[str]:
    for name, version in results.machine["packages"].items():
        if name in ("millpond", "lmdb", "rocksdict") and here["packages"].get(name) != version:
            yield f"The times are of {name} {version}, and {here['packages'].get(name)} is installed."
    found, wanted = results.settings.get("value_bytes"), description.value_bytes
    if found != wanted:
        yield f"The times are of values of {found} bytes, and {wanted} are described."
    ratio = results.settings.get("cache_ratio")
    if not isinstance(ratio, int | float):
        yield "The times were measured with caches as they come, however large the data will be."
    elif _far(ratio, description.data_bytes / description.memory_bytes):
        asked = description.data_bytes / description.memory_bytes
        yield f"The times were measured with data {ratio:g} times the cache; described are {asked:.2g} times memory."


def _number(settings: Mapping[str, Any], name: str) -> float:
    found = settings.get(name)
    if not isinstance(found, int | float):
        raise ConfigurationError(f"the results do not say their {name}; measure again with millpond bench engines")
    return float(found)


def _far(found: float, wanted: float) -> bool:
    less, more = sorted((max(found, 1e-9), max(wanted, 1e-9)))
    return more > _FAR * less
