"""The backends that distributions register, and the faults of such registrations.

Rule of this module: it trusts nothing of a plugin. A breach of the contract, while a plugin is imported, made or
opened, becomes an error that names its distribution. It knows no backend, not even the built-in ones, which are
registered in the same way, as entry points of the group ``millpond.backends``.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from inspect import isabstract
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from millpond.errors import BackendNotInstalledError, BrokenBackendError, InvalidOptionError, MillpondError
from millpond.masking import masked, quoted
from millpond.releases import RELEASE
from millpond.stores.backend.contract import CONTRACT, Backend, BackendSupplier

GROUP: Final = "millpond.backends"
"""The entry-point group in which suppliers are registered."""

_PLAIN: Final = (bool, int, float, str, bytes, NoneType)
_INTEGERS: Final = range(-(2**63), 2**63)
"""The integers that engines take, which are written in other languages."""


def registered(name: str | None = None) -> list[EntryPoint]:
    """Return the registrations, or those under ``name``; a registration that is found twice is returned once."""
    points = entry_points(group=GROUP) if name is None else entry_points(group=GROUP, name=name)
    return list({(point.name, origin(point), point.value): point for point in points}.values())


def origin(point: EntryPoint) -> str:
    """Return words for the distribution of a registration."""
    return f"the distribution {point.dist.name}" if point.dist is not None else "an unknown distribution"


def supplier_class(point: EntryPoint) -> type[BackendSupplier]:
    """Return the class that is registered.

    Raises:
        BackendNotInstalledError: it cannot be imported, because something that it needs is missing.
        ConfigurationError: it is no supplier, or one of another contract.
    """
    found, where = _imported(point), f"{origin(point)} registers {point.value!r} as the backend {point.name!r}, but"
    if not (isinstance(found, type) and issubclass(found, BackendSupplier)):
        raise BrokenBackendError(f"{where} that is no subclass of millpond.stores.backend.contract.BackendSupplier")
    name = getattr(found, "name", None)
    if name != point.name:
        other = f"register it as {name!r}, or " if isinstance(name, str) else ""
        raise BrokenBackendError(f"{where} its own name is {name!r}; {other}write name = {point.name!r} in the class")
    _check_contract(found)
    if isabstract(found):
        raise BrokenBackendError(f"{where} that has no {' and no '.join(sorted(found.__abstractmethods__))}")
    return found


def made(kind: type[BackendSupplier], options: Mapping[str, str]) -> BackendSupplier:
    """Return the supplier for options as they stand in a URL.

    Raises:
        ConfigurationError: an option is unknown or makes no sense, or ``from_options`` is broken.
    """
    try:
        found: object = kind.from_options(options)
    except MillpondError:
        raise
    except (Exception, SystemExit) as error:
        given = f"the options {', '.join(options)}" if options else "no options"
        raise BrokenBackendError(f"{_owned(kind)}: from_options failed for {given}: {_told(error)}") from error
    if not isinstance(found, kind):
        raise BrokenBackendError(f"{_owned(kind)}: from_options gives {_kind_of(found)} instead of a {kind.__name__}")
    return checked(found)


def checked(supplier: BackendSupplier) -> BackendSupplier:
    """Return ``supplier``, and check that its options are of the types that its class declares.

    Raises:
        ConfigurationError: one is not, or is a number that no engine takes, or the supplier is of another contract.
    """
    kind = type(supplier)
    _check_contract(kind)
    for option, types in _declared(kind):
        value = getattr(supplier, option)
        if not any(_is_of(value, allowed) for allowed in types):
            names = " or ".join("None" if allowed is NoneType else allowed.__name__ for allowed in types)
            raise InvalidOptionError(
                f"option {option!r} of {_owned(kind)} is {_shown(option, value)}, but must be of type {names}"
            )
        if type(value) is int and value not in _INTEGERS:
            raise InvalidOptionError(
                f"option {option!r} of {_owned(kind)} is {_shown(option, value)}, but must be below 2**63"
            )
    return supplier


def opened(supplier: BackendSupplier, directory: Path) -> Backend:
    """Return the backend on ``directory``.

    Raises:
        StoreError: it cannot be opened, for a reason that the backend gives or because it is broken.
    """
    kind = type(supplier)
    try:
        found: object = supplier.open(directory)
    except (MillpondError, OSError):
        raise
    except (Exception, SystemExit) as error:
        raise BrokenBackendError(f"{_owned(kind)} failed to open {directory}: {_told(error)}") from error
    if not isinstance(found, Backend):
        raise BrokenBackendError(
            f"{_owned(kind)}: open gives {_kind_of(found)} instead of a millpond.stores.backend.contract.Backend"
        )
    return found


def owner(kind: type[BackendSupplier]) -> str:
    """Return words for the origin of a supplier class: its distribution, or its module if none registers it."""
    value = f"{kind.__module__}:{kind.__qualname__}"
    points = [point for point in registered(getattr(kind, "name", None)) if point.value.replace(" ", "") == value]
    return origin(points[0]) if points else f"the class {kind.__module__}.{kind.__qualname__}"


def _owned(kind: type[BackendSupplier]) -> str:
    return f"the backend {getattr(kind, 'name', None)!r} of {owner(kind)}"


def _imported(point: EntryPoint) -> object:
    where = f"the backend {point.name!r} of {origin(point)}"
    try:
        return point.load()
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "millpond":
            raise BrokenBackendError(
                f"{where} is written for another release of Millpond than this one, which is {RELEASE} "
                f"({quoted(error)}); install releases of the two that go together"
            ) from error
        if isinstance(error, ModuleNotFoundError):
            raise BackendNotInstalledError(
                f"{where} needs the module {error.name!r}, which is not installed; "
                f"pip install {(error.name or point.name).partition('.')[0]}"
            ) from error
        raise BackendNotInstalledError(
            f"{where} cannot be imported ({quoted(error)}); install what it needs again"
        ) from error
    except AttributeError as error:
        raise BrokenBackendError(
            f"{origin(point)} registers {point.value!r} as the backend {point.name!r}, but there is no such thing "
            f"({quoted(error)})"
        ) from error
    except (Exception, SystemExit) as error:  # a module that is a program ends the process that imports it
        raise BrokenBackendError(
            f"{where} cannot be imported: {_told(error)}; report it to those who made that distribution"
        ) from error


def _check_contract(kind: type[BackendSupplier]) -> None:
    """Refuse a supplier of a contract that this release does not keep."""
    if kind.contract != CONTRACT:
        raise BrokenBackendError(
            f"{_owned(kind)} is written for version {kind.contract!r} of the backend contract, but Millpond {RELEASE} "
            f"keeps version {CONTRACT}; install releases of the two that go together"
        )


@cache
def _declared(kind: type[BackendSupplier]) -> tuple[tuple[str, tuple[type, ...]], ...]:
    """Return the options of a dataclass of suppliers whose types are plain ones."""
    if not is_dataclass(kind):
        return ()
    try:
        hints = get_type_hints(kind)
    except Exception:  # names that only a type checker knows
        return ()
    types = {field.name: _alternatives(hints.get(field.name)) for field in fields(kind)}
    return tuple((name, found) for name, found in types.items() if all(each in _PLAIN for each in found))


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _is_of(value: object, kind: type) -> bool:
    if kind in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if kind is float else kind)


def _shown(option: str, value: object) -> str:
    text = repr(value) if isinstance(value, str | bytes) else str(value)
    shown = masked(f"{option}={text}").partition("=")[2]  # cut off, a password would have no end to be found by
    return shown if len(shown) < 60 else f"{shown[:60]}…"


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {quoted(error)}"


def _kind_of(found: object) -> str:
    return "nothing" if found is None else f"an object of type {type(found).__name__}"
