"""Backends by name or URL.

Rule of this module: it knows no backend, not even the built-in ones. Every supplier is an entry point of the group
``millpond.backends``, in the package metadata of the distribution that provides it::

    [project.entry-points."millpond.backends"]
    rocksdb = "millpond.adapters.rocksdb:RocksDbSupplier"
"""

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from urllib.parse import parse_qsl

from millpond.errors import BackendNotInstalledError, ConfigurationError, UnknownBackendError
from millpond.stores.backend import Backend, BackendSupplier
from millpond.stores.longkeys import LongKeys

GROUP = "millpond.backends"
"""The entry-point group in which suppliers are registered."""


def supplier(backend: str | BackendSupplier) -> BackendSupplier:
    """The supplier that a name (``"lmdb"``), a URL (``"rocksdb://?block_cache=256MiB"``) or a supplier stands for.

    Raises:
        UnknownBackendError: no supplier is registered under the name; the message lists those that are.
        BackendNotInstalledError: the supplier is registered, but what it imports is missing.
        ConfigurationError: the URL, one of its options or the registration itself makes no sense.
    """
    if isinstance(backend, BackendSupplier):
        return backend
    if not isinstance(backend, str):
        raise ConfigurationError(
            f"a backend is a name, a URL or a BackendSupplier, but this is of type {type(backend).__name__}"
        )
    name, options = _parse(backend)
    return _supplier_class(name).from_options(options)


def backend_names() -> list[str]:
    """The names under which suppliers are registered, sorted."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def open_backend(backend: str | BackendSupplier, directory: Path) -> Backend:
    """Open the backend on ``directory``, for keys of any length; every backend is opened by this function.

    Raises:
        BackendInUseError: another process or handle has the directory open, and the engine does not share it.
        CorruptStoreError: the files are damaged.
    """
    opened = supplier(backend).open(directory)
    return opened if opened.max_key_size is None else LongKeys(opened)


def _parse(text: str) -> tuple[str, Mapping[str, str]]:
    name, separator, rest = text.partition("://")
    place, _, query = rest.partition("?")
    if (separator and place) or (not separator and "?" in name):
        raise ConfigurationError(
            f"the backend {text!r} is neither a name nor a URL of the form name://?option=value&option=value; "
            "where stores live is not part of it"
        )
    options: dict[str, str] = {}
    for option, value in parse_qsl(query, keep_blank_values=True):
        if option in options:
            raise ConfigurationError(f"the backend {text!r} gives the option {option!r} twice")
        options[option] = value
    return name.strip(), options


@cache
def _supplier_class(name: str) -> type[BackendSupplier]:
    """The class of a name's suppliers. Kept once it is found; whatever is installed later is found, too."""
    point = _entry_point(name)
    found = _load(point)
    if not (isinstance(found, type) and issubclass(found, BackendSupplier)):
        raise ConfigurationError(
            f"{_origin(point)} registers {point.value!r} as the backend {name!r}, but that is no subclass of "
            "millpond.stores.backend.BackendSupplier"
        )
    if getattr(found, "name", None) != name:
        raise ConfigurationError(
            f"{_origin(point)} registers {point.value!r} as the backend {name!r}, but its own name is "
            f"{getattr(found, 'name', None)!r}; they must be the same"
        )
    return found


def _entry_point(name: str) -> EntryPoint:
    points = {(_origin(point), point.value): point for point in entry_points(group=GROUP, name=name)}
    if not points:
        raise _unknown(name)
    if len(points) > 1:
        owners = " and ".join(f"{origin} ({value})" for origin, value in sorted(points))
        raise ConfigurationError(f"the backend {name!r} is registered by {owners}; uninstall all but one of them")
    return next(iter(points.values()))


def _unknown(name: str) -> UnknownBackendError:
    known = backend_names()
    if not known:
        return UnknownBackendError(
            f"there is no backend {name!r}, nor any other: the metadata of the package millpond is missing. "
            "Install it (pip install millpond, or pip install -e . in its sources) instead of importing it from a path"
        )
    close = get_close_matches(name.lower(), known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return UnknownBackendError(f"there is no backend {name!r}, only {', '.join(known)}{hint}")


def _load(point: EntryPoint) -> object:
    try:
        return point.load()
    except ModuleNotFoundError as error:
        raise BackendNotInstalledError(
            f"the backend {point.name!r} of {_origin(point)} needs the module {error.name!r}, which is not installed: "
            f"pip install {(error.name or point.name).partition('.')[0]}"
        ) from error
    except ImportError as error:
        raise BackendNotInstalledError(
            f"the backend {point.name!r} of {_origin(point)} cannot be imported ({error}); install what it needs again"
        ) from error
    except AttributeError as error:
        raise ConfigurationError(
            f"{_origin(point)} registers {point.value!r} as the backend {point.name!r}, but there is no such thing "
            f"({error})"
        ) from error


def _origin(point: EntryPoint) -> str:
    return f"the distribution {point.dist.name}" if point.dist is not None else "an unknown distribution"
