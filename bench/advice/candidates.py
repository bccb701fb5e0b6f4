"""``Candidate``: a backend to be measured for a description, with its URLs, and the options that follow.

Rule of this module: an option is given only if the backend's supplier declares it and the user's URL does not. Which
option sizes a cache or a table of writes is told by the engine (``RawEngine.cache_option``, ``buffer_option``), so that
plugins take part.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Final
from urllib.parse import parse_qsl

from millpond.bench.advice.description import Description
from millpond.bench.advice.judgement import NOISE
from millpond.bench.advice.measured import Choice, Room, Spread, with_options
from millpond.bench.engines.engine import LEAST_BUFFER
from millpond.bench.engines.raw import engine_class
from millpond.bench.numbers import size
from millpond.masking import masked
from millpond.stores.backend.registry import supplier

_LEAST_CACHE: Final = 64 * 2**10
_MIB: Final = 2**20


@dataclass(frozen=True)
class Cache:
    """The cache of a backend that can be set.

    Attributes:
        option: of the backend, a number of bytes.
        given: bytes that it has by default, or as the user's URL says.
        wanted: bytes that suit the description; None if there is no reason for others.
        reason: for these.
        forced: whether they must be taken, because the cache would have no room otherwise.
    """

    option: str
    given: int
    wanted: int | None
    reason: str
    forced: bool


@dataclass(frozen=True)
class Candidate:
    """A backend.

    Attributes:
        source: its name or URL with all that is secret.
        persistent: whether its local copy outlives the process.
        checksums: whether its engine has checksums of its own.
        cache: its cache, if there is one that can be set.
        declared: its options that the user's URL does not give.
        buffers: bytes of its tables of writes in memory, by the option that sizes them.
    """

    source: str
    persistent: bool
    checksums: bool
    cache: Cache | None
    declared: frozenset[str]
    buffers: Mapping[str, int] = field(default_factory=dict)

    @property
    def backend(self) -> str:
        """Its name or URL, for others to read."""
        return masked(self.source)

    def measured(self, share: float) -> dict[str, str]:
        """Return the URLs to measure, with ``wanted`` and ``given`` caches, scaled so that a short run is like the job.

        A cache is to the data as it will be, and a table of writes in memory is smaller, too: otherwise it would hold
        all rows of a short run, and none would be read through the cache.

        Args:
            share: the rows that are measured, of those described.
        """
        scaled = {name: max(LEAST_BUFFER, int(size_ * share)) for name, size_ in self.buffers.items() if share < 1}
        if self.cache is None:
            return {"given": self._with(scaled)}
        sizes = {} if self.cache.forced else {"given": self.cache.given}
        if self.cache.wanted is not None:
            sizes["wanted"] = self.cache.wanted
        option = self.cache.option
        return {
            name: self._with({option: max(_LEAST_CACHE, int(size_ * share)), **scaled}) for name, size_ in sizes.items()
        }

    def choices(self, description: Description, room: Room | None, faster: float | None) -> Iterator[Choice]:
        """Yield the options to give to the backend.

        Args:
            description: of the job.
            room: what rows take; None if that is not known.
            faster: how many times as fast the wanted cache is as the given one; None if that was not measured.
        """
        if self.cache is not None and self.cache.wanted is not None:
            reason = self.cache.reason
            if faster is not None:
                reason += (
                    f"; measured, scaled down with the data: {faster:.2f} times as fast as {size(self.cache.given)}"
                )
            if self.cache.forced or (faster is not None and faster > NOISE):
                yield Choice(self.cache.option, _as_text(self.cache.wanted), reason)
        if description.durability == "synced" and "sync" in self.declared:
            yield Choice("sync", "true", "each commit is to be on the disk when it returns")
        outgrown = room is not None and room.disk_per_row * description.keys > description.memory_bytes
        if outgrown and "readahead" in self.declared:
            yield Choice(
                "readahead",
                "false",
                "the files are larger than the memory, where reading ahead brings in pages that nobody asked for; "
                "not measured, since the files of a short run are not",
            )

    def _with(self, options: Mapping[str, int]) -> str:
        name, _, query = self.source.partition("?")
        kept = [part for part in query.split("&") if part and part.partition("=")[0] not in options]
        plain = f"{name}?{'&'.join(kept)}" if kept else name.removesuffix("://")
        return with_options(plain, options.items())


def candidate(source: str, description: Description) -> Candidate:
    """Return the candidate of a backend, by name or URL.

    Raises:
        ConfigurationError: there is no such backend, or its options make no sense.
    """
    chosen = supplier(source)
    named = {name for name, _ in parse_qsl(source.partition("?")[2], keep_blank_values=True)}
    options: set[str] = {one.name for one in fields(chosen)} if is_dataclass(chosen) else set()
    engine = engine_class(chosen.name)
    option = None if engine is None else engine.cache_option
    cache = None
    if option is not None and option in options and "memory_budget" not in named:
        cache = _cache(option, getattr(chosen, option), description, named=option in named)
    buffer = None if engine is None else engine.buffer_option
    buffers = {buffer: int(getattr(chosen, buffer))} if buffer is not None and buffer in options else {}
    return Candidate(source, chosen.persistent, chosen.checksums, cache, frozenset(options - named), buffers)


def _cache(option: str, given: int, description: Description, *, named: bool) -> Cache:
    half = max(_LEAST_CACHE, description.worker_memory // 2)
    worker_data = description.data_bytes // description.workers
    wanted = _round(min(half, max(_LEAST_CACHE, worker_data * 5 // 4)))
    if named or (given <= half and (wanted <= given or worker_data <= given)):
        return Cache(option, given, None, "", forced=False)
    why = "half of" if wanted == _round(half) else "all data, which takes less than half of"
    reason = f"{why} the {size(description.worker_memory)} that a worker may take"
    if given > half:
        reason += f"; the default of {size(given)} leaves too little for everything else"
    return Cache(option, given, wanted, reason, forced=given > half)


def _round(bytes_: int) -> int:
    return bytes_ // _MIB * _MIB if bytes_ >= _MIB else bytes_


def _as_text(bytes_: int) -> str:
    """Return so many bytes as a URL has them, exactly.

    >>> _as_text(2**31), _as_text(3 * 2**20), _as_text(70_000)
    ('2GiB', '3MiB', '70000')
    """
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if bytes_ % unit == 0:
            return f"{bytes_ // unit}{name}"
    return str(bytes_)


def faster(wanted: Spread | None, given: Spread | None) -> float | None:
    """Return how many times as fast the wanted cache is, 1 if runs overlap; None if one of the two was not measured."""
    if wanted is None or given is None:
        return None
    return given.median / wanted.median if wanted.high < given.low or given.high < wanted.low else 1.0
