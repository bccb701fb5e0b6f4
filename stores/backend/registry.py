"""Backends by name or URL.

Rule of this module: it knows no backend, not even the built-in ones. Every supplier is an entry point of the group
``millpond.backends``, in the package metadata of the distribution that provides it::

    [project.entry-points."millpond.backends"]
    rocksdb = "millpond.adapters.rocksdb:RocksDbSupplier"
"""

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import parse_qsl

from millpond.errors import BrokenBackendError, InvalidArgumentError, InvalidOptionError, UnknownBackendError
from millpond.masking import know, masked, quoted
from millpond.stores.backend import plugins
from millpond.stores.backend.contract import Backend, BackendSupplier
from millpond.stores.backend.long_keys import LongKeys


def supplier(backend: str | BackendSupplier) -> BackendSupplier:
    """Return the supplier for a name (``"lmdb"``), a URL (``"rocksdb://?block_cache=256MiB"``) or a supplier itself.

    Raises:
        UnknownBackendError: no supplier is registered under the name; the message lists those that are.
        BackendNotInstalledError: the supplier is registered, but what it imports is missing.
        ConfigurationError: the URL, one of its options or the registration itself makes no sense; the message names the
            distribution that registers it.
    """
    if isinstance(backend, BackendSupplier):
        return plugins.checked(backend)
    if not isinstance(backend, str):
        raise InvalidArgumentError(
            f"a backend is a name, a URL or a BackendSupplier, but this is of type {type(backend).__name__}; give one "
            f"of {', '.join(map(repr, backend_names()))}, or a supplier"
        )
    name, options = _parse(backend)
    return plugins.made(_supplier_class(name), options)


def backend_names() -> list[str]:
    """Return the names under which suppliers are registered, sorted."""
    return sorted({point.name for point in plugins.registered()})


def open_backend(backend: str | BackendSupplier, directory: Path) -> Backend:
    """Open the backend on ``directory``, for keys of any length; every backend is opened by this function.

    Raises:
        BackendInUseError: another process or handle has the directory open, and the engine does not share it.
        CorruptStoreError: the files are damaged.
        StoreError: the backend is broken; the message names its distribution.
    """
    opened = plugins.opened(supplier(backend), directory)
    return opened if opened.max_key_size is None else LongKeys(opened)


def try_out(backend: str | BackendSupplier) -> None:
    """Open the backend on a temporary directory, write, read and close it, before anything depends on it.

    Raises:
        ConfigurationError: it does not work here; the message names the distribution that it comes from.
    """
    chosen = supplier(backend)
    with TemporaryDirectory(prefix="millpond-") as temporary:
        directory = Path(temporary, "store")
        try:
            with open_backend(chosen, directory) as opened:
                opened.write({b"key": b"value"})
                works = opened.get(b"key") == b"value"
            chosen.destroy(directory)
        except Exception as error:
            raise BrokenBackendError(
                f"the backend {chosen.name!r} of {plugins.owner(type(chosen))} does not work here: "
                f"{type(error).__name__}: {quoted(error)}"
            ) from error
    if not works:
        raise BrokenBackendError(
            f"the backend {chosen.name!r} of {plugins.owner(type(chosen))} does not show what was just written; see "
            f"what else it breaks: millpond backends check {chosen.name}"
        )


def _parse(text: str) -> tuple[str, Mapping[str, str]]:
    know(text)
    name, separator, rest = text.partition("://")
    place, _, query = rest.partition("?")
    if (separator and place) or (not separator and "?" in name):
        raise InvalidOptionError(
            f"the backend {masked(text)!r} is neither a name nor a URL of the form "
            "name://?option=value&option=value; where stores live is not part of it"
        )
    options: dict[str, str] = {}
    for option, value in parse_qsl(query, keep_blank_values=True):
        if option in options:
            raise InvalidOptionError(f"the backend {masked(text)!r} gives the option {option!r} twice")
        options[option] = value
    return name.strip(), options


@cache
def _supplier_class(name: str) -> type[BackendSupplier]:
    """Return the class of a name's suppliers, which is kept once found; later installations are found, too."""
    points = plugins.registered(name)
    if not points:
        raise _unknown(name)
    if len(points) > 1:
        owners = " and ".join(sorted(f"{plugins.origin(point)} ({point.value})" for point in points))
        raise BrokenBackendError(f"the backend {name!r} is registered by {owners}; uninstall all but one of them")
    return plugins.supplier_class(points[0])


def _unknown(name: str) -> UnknownBackendError:
    known = backend_names()
    if not known:
        return UnknownBackendError(
            f"there is no backend {masked(name)!r}, nor any other: the metadata of the package millpond is "
            "missing; install it (pip install millpond, or pip install -e . in its sources) instead of importing it "
            "from a path"
        )
    close = get_close_matches(name.lower(), known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return UnknownBackendError(f"there is no backend {masked(name)!r}, only {', '.join(known)}{hint}")
