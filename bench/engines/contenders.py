"""The contenders: backends through the contract, the engines under them, and peers.

Rule of this module: what leaves it as text, such as labels and whatever goes into reports, shows no user and no
password of a backend's URL.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qsl

from millpond.bench.engines.engine import Engine, OrderedEngine, RawEngine, Row, Use, buffer_beside
from millpond.bench.engines.peers import PEERS
from millpond.bench.engines.raw import engine_class
from millpond.bench.report import installed
from millpond.bench.runs.asked import check_known
from millpond.bench.runs.labels import told_apart
from millpond.errors import ConfigurationError
from millpond.masking import masked
from millpond.stores.backend import plugins
from millpond.stores.backend.contract import Backend, BackendSupplier
from millpond.stores.backend.registry import open_backend, supplier

ContenderKind: TypeAlias = Literal["backend", "engine", "peer"]


@dataclass(frozen=True)
class Contender:
    """One row of the tables. ``source`` is the backend's name or URL with all that is secret, or the peer's name."""

    name: str
    kind: ContenderKind
    label: str
    version: str
    durability: str
    cache: str
    distribution: str
    ordered: bool
    source: str

    def shown(self) -> dict[str, str]:
        """Return the contender's entry in reports."""
        return {name: value for name, value in asdict(self).items() if name not in ("ordered", "source")}


class ContractEngine(OrderedEngine):
    """A backend of Millpond's, through the contract and nothing else: ``get``, ``scan`` and ``write``."""

    package = "millpond"

    def __init__(self, directory: Path, use: Use) -> None:
        super().__init__(directory, use)
        assert use.supplier is not None, "a backend is opened by its supplier"
        self._backend: Backend = open_backend(use.supplier, directory)

    @classmethod
    def durability(cls, use: Use) -> str:
        assert use.supplier is not None, "a backend is opened by its supplier"
        if not use.supplier.persistent:
            return "nothing outlives the process"
        if use.synced:
            return "flushed after each write"
        return "not flushed: a killed process leaves a prefix of its writes"

    def getter(self) -> Callable[[bytes], Any]:
        return self._backend.get

    def prepared(self, rows: Sequence[Row]) -> dict[bytes, bytes | None]:
        return dict(rows)

    def put_each(self, rows: Mapping[bytes, bytes | None]) -> None:
        self._backend.write(rows)
        if self.use.synced:
            self._backend.flush()

    def delete_each(self, keys: Sequence[bytes]) -> None:
        self.put_each(dict.fromkeys(keys))

    def scan(self, start: bytes, count: int) -> int:
        return sum(1 for _ in islice(self._backend.scan(start), count))

    def entries(self, *, reverse: bool) -> Iterator[Any]:
        return self._backend.scan(reverse=reverse)

    def close(self) -> None:
        self._backend.close()


def contenders(backends: Sequence[str], peers: Sequence[str], use: Use) -> list[Contender]:
    """Return each backend with the engine under it, if one is known, and each peer; none of them twice.

    Raises:
        ConfigurationError: a backend or a peer is unknown, or an option of one makes no sense.
    """
    found: dict[tuple[type[Engine], str], Contender] = {}
    for backend in backends:
        chosen = supplier(backend)
        found.setdefault((ContractEngine, backend), _backend(backend, with_cache(chosen, backend, use)))
        below = engine_class(chosen.name)
        if below is not None:
            found.setdefault((below, _options(backend)), _engine(below, backend, with_cache(chosen, backend, use)))
    check_known("peer", peers, PEERS)
    for peer in peers:
        found.setdefault((PEERS[peer], ""), _peer(peer, use))
    return _labeled(list(found.values()))


def backend_contenders(backends: Sequence[str], use: Use) -> list[Contender]:
    """Return each backend, without the engine under it; none of them twice.

    Raises:
        ConfigurationError: a backend is unknown, or an option of one makes no sense.
    """
    return [one for one in contenders(backends, (), use) if one.kind == "backend"]


def opener(kind: ContenderKind, source: str, use: Use) -> tuple[type[Engine], Use]:
    """Return the class to open a contender with, and how it is opened."""
    if kind == "peer":
        return PEERS[source], use
    chosen = supplier(source)
    below = ContractEngine if kind == "backend" else engine_class(chosen.name)
    assert below is not None, f"the backend {chosen.name} has an engine"
    return below, with_cache(chosen, source, use)


def teller(kind: ContenderKind, source: str) -> type[Engine] | None:
    """Return the class that knows what the engine has written."""
    return PEERS[source] if kind == "peer" else engine_class(supplier(source).name)


def with_cache(chosen: BackendSupplier, backend: str, use: Use) -> Use:
    """Return ``use`` for a backend whose engine has the cache that is asked for, unless its URL says otherwise.

    Raises:
        ConfigurationError: the engine names options that the backend does not have.
    """
    below, named = engine_class(chosen.name), dict(parse_qsl(_options(backend)))
    option = None if below is None else below.cache_option
    if use.cache_bytes is None or below is None or option is None or option in named:
        return replace(use, supplier=chosen, cache_bytes=None)
    buffer = below.buffer_option
    declared: set[str] = {field.name for field in fields(chosen)} if is_dataclass(chosen) else set()
    unknown = {name for name in (option, buffer) if name is not None} - declared
    if unknown or not is_dataclass(chosen):
        raise ConfigurationError(
            f"the engine of the backend {chosen.name!r} says that {' and '.join(sorted(map(repr, unknown)))} sizes its "
            "memory, but the backend has no such option"
        )
    sizes = {option: use.cache_bytes}
    if buffer is not None and buffer not in named:
        sizes[buffer] = buffer_beside(use.cache_bytes, getattr(chosen, buffer))
    sized: BackendSupplier = replace(chosen, **sizes)
    return replace(use, supplier=sized)


def _backend(backend: str, use: Use) -> Contender:
    assert use.supplier is not None, "a backend has a supplier"
    point = next(iter(plugins.registered(use.supplier.name)))
    distribution = "unknown" if point.dist is None else point.dist.name
    return Contender(
        name=use.supplier.name,
        kind="backend",
        label=f"{masked(backend)} (Millpond)",
        version=version_of(distribution),
        durability=ContractEngine.durability(use),
        cache=_cache(engine_class(use.supplier.name) or ContractEngine, use),
        distribution=distribution,
        ordered=True,
        source=backend,
    )


def _engine(below: type[RawEngine], backend: str, use: Use) -> Contender:
    assert use.supplier is not None, "an engine has the supplier of its backend"
    options = masked(_options(backend))
    label = f"{below.package} (raw, {options})" if options else f"{below.package} (raw)"
    return _of_class(below, use, use.supplier.name, "engine", label, backend)


def _peer(peer: str, use: Use) -> Contender:
    label = f"{peer} (raw)" if issubclass(PEERS[peer], RawEngine) else peer
    return _of_class(PEERS[peer], use, peer, "peer", label, peer)


def _of_class(engine: type[Engine], use: Use, name: str, kind: ContenderKind, label: str, source: str) -> Contender:
    return Contender(
        name=name,
        kind=kind,
        label=label,
        version=version_of(engine.package),
        durability=engine.durability(use),
        cache=_cache(engine, use),
        distribution=engine.package,
        ordered=issubclass(engine, OrderedEngine),
        source=source,
    )


def _cache(engine: type[Engine], use: Use) -> str:
    if use.cache_bytes is None or (issubclass(engine, RawEngine) and engine.cache_option is None):
        return engine.cache
    buffered = issubclass(engine, RawEngine) and engine.buffer_option is not None
    said = f"{engine.cache}, {use.cache_bytes:,} bytes"
    return f"{said}; a table of writes no larger, unless below 1 MiB" if buffered else said


def _options(backend: str) -> str:
    return backend.partition("?")[2]


def version_of(distribution: str) -> str:
    """Return the version of a distribution for reports; that of Python's own SQLite if it is ``python``."""
    if distribution == "python":
        return f"SQLite {sqlite3.sqlite_version}"
    return installed(distribution) or "not installed"


def _labeled(found: Sequence[Contender]) -> list[Contender]:
    labels = told_apart([contender.label for contender in found])
    return [replace(contender, label=label) for contender, label in zip(found, labels, strict=True)]
