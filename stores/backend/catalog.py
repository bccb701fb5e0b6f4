"""Descriptions of the registered backends, for programs that list them.

Rule of this module: it opens nothing. A backend that cannot be used is described by the reason, and hides no other
backend.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from importlib.metadata import EntryPoint
from typing import Any, get_type_hints

from millpond.errors import MillpondError
from millpond.masking import masked
from millpond.stores.backend import plugins
from millpond.stores.backend.contract import OVERRIDABLE, Backend, BackendSupplier, overrides


@dataclass(frozen=True)
class OptionDescription:
    """An option of a backend.

    Attributes:
        name: its name in a URL.
        type: its type, as the supplier declares it.
        default: its default, as Python writes it; None if it must be given.
    """

    name: str
    type: str
    default: str | None


@dataclass(frozen=True)
class BackendDescription:
    """A registration, and the properties of the backend that are known without opening it.

    Attributes:
        name: the name of the backend.
        distribution: the distribution that registers it.
        version: the version of that distribution.
        registered: the class that is registered, as ``module:class``.
        error: the reason why it cannot be used; None if it can.
        persistent: whether its content outlives the process.
        checksums: whether its engine has checksums of its own.
        capabilities: the optional methods that it has; None if its ``open`` declares no return type.
        options: its options; None if its supplier is no dataclass.
    """

    name: str
    distribution: str | None
    version: str | None
    registered: str
    error: str | None = None
    persistent: bool | None = None
    checksums: bool | None = None
    capabilities: tuple[str, ...] | None = field(default=None)
    options: tuple[OptionDescription, ...] | None = field(default=None)


def described() -> list[BackendDescription]:
    """Return all registrations, in the order of their names."""
    points = plugins.registered()
    names = Counter(point.name for point in points)
    ordered = sorted(points, key=lambda point: (point.name, plugins.origin(point), point.value))
    return [_described(point, names) for point in ordered]


def _described(point: EntryPoint, names: Mapping[str, int]) -> BackendDescription:
    distribution, version = (point.dist.name, point.dist.version) if point.dist is not None else (None, None)
    try:
        kind = plugins.supplier_class(point)
        facts: dict[str, Any] = {
            "persistent": kind.persistent,
            "checksums": kind.checksums,
            "capabilities": _capabilities(kind),
            "options": _options(kind),
        }
        plugins.made(kind, {})
        error = "several distributions register this name; uninstall all but one" if names[point.name] > 1 else None
    except MillpondError as refusal:
        facts, error = {}, str(refusal)
    return BackendDescription(point.name, distribution, version, point.value, error, **facts)


def _capabilities(kind: type[BackendSupplier]) -> tuple[str, ...] | None:
    opened = _hints(kind.open).get("return")
    if not (isinstance(opened, type) and issubclass(opened, Backend)) or opened is Backend:
        return None
    return tuple(name for name in OVERRIDABLE if overrides(opened, name))


def _options(kind: type[BackendSupplier]) -> tuple[OptionDescription, ...] | None:
    if not is_dataclass(kind):
        return None
    hints = _hints(kind)
    found = []
    for option in fields(kind):
        hint = hints.get(option.name, option.type)
        shown = hint.__name__ if isinstance(hint, type) else str(hint)
        default = option.default_factory() if option.default_factory is not MISSING else option.default
        found.append(
            OptionDescription(option.name, shown, None if default is MISSING else _shown(option.name, default))
        )
    return tuple(found)


def _hints(what: Any) -> dict[str, Any]:
    try:
        return get_type_hints(what)
    except Exception:  # names that only a type checker knows
        return {}


def _shown(option: str, value: object) -> str:
    """Return the value as Python writes it, without secrets."""
    return masked(f"{option}={value!r}").partition("=")[2]
