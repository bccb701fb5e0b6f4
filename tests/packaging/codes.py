"""The errors of Millpond as a list, and where the sources raise each of them."""

from collections.abc import Iterator

from millpond.errors import MillpondError


def every_error() -> Iterator[type[MillpondError]]:
    """All classes of ``millpond.errors``, each behind the one that it is below."""
    seen: set[type[MillpondError]] = set()
    waiting = [MillpondError]
    while waiting:
        kind = waiting.pop()
        if kind not in seen and kind.__module__ == MillpondError.__module__:
            seen.add(kind)
            yield kind
            waiting += kind.__subclasses__()
