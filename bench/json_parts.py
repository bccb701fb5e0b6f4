"""Parts of a JSON file by name and type: missing parts and other types are refused with their place in the file.

Rule of this module: it knows no names of any file.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from millpond.errors import ConfigurationError


class Part:
    """A JSON object at a place of a file, and its entries, each of the type that is asked for.

    Args:
        value: the object.
        place: where it is, such as ``results[3]``; empty for the whole file.
        origin: what errors call the file.

    Raises:
        ConfigurationError: it is no object. All methods raise the same for what is missing or of another type.
    """

    def __init__(self, value: object, place: str, origin: str) -> None:
        self._place, self.origin = place, origin
        if not isinstance(value, Mapping):
            raise self.wrong("", "is not an object")
        self.values: Mapping[str, Any] = value

    def wrong(self, name: str, what: str) -> ConfigurationError:
        """Return the error that says what is the matter with an entry, or, without a name, with the object itself."""
        place = ".".join(filter(None, (self._place, name))) or "the whole file"
        return ConfigurationError(f"{self.origin}: {place} {what}, so no 'millpond bench' has written it like this")

    def _get(self, name: str) -> Any:
        if name not in self.values:
            raise self.wrong(name, "is missing")
        return self.values[name]

    def text(self, name: str) -> str:
        value = self._get(name)
        if not isinstance(value, str):
            raise self.wrong(name, "is not a string")
        return value

    def text_if_any(self, name: str) -> str | None:
        return None if self.values.get(name) is None else self.text(name)

    def number(self, name: str, *, positive: bool = False) -> float:
        """Return a number of at least zero."""
        value = self._get(name)
        if not _is_number(value) or value < 0 or (positive and value == 0):
            raise self.wrong(name, f"is not a number {'above' if positive else 'of at least'} zero")
        return float(value)

    def number_if_any(self, name: str) -> float | None:
        return None if self.values.get(name) is None else self.number(name)

    def part(self, name: str) -> "Part":
        return Part(self._get(name), ".".join(filter(None, (self._place, name))), self.origin)

    def part_if_any(self, name: str) -> "Part | None":
        return None if self.values.get(name) is None else self.part(name)

    def listed(self, name: str) -> list[Any]:
        value = self._get(name)
        if not isinstance(value, list):
            raise self.wrong(name, "is not a list")
        return value

    def parts(self, name: str) -> Iterator["Part"]:
        for place, value in enumerate(self.listed(name)):
            yield Part(value, f"{name}[{place}]", self.origin)

    def numbers(self, name: str) -> tuple[float, ...]:
        values = self.listed(name)
        if not values or not all(_is_number(value) and value > 0 for value in values):
            raise self.wrong(name, "is not a list of numbers above zero")
        return tuple(map(float, values))

    def points_if_any(self, name: str) -> tuple[tuple[float, float], ...]:
        """Return pairs of numbers of at least zero; none if the entry is missing or null."""
        if self.values.get(name) is None:
            return ()
        values = self.listed(name)
        pairs = all(isinstance(value, list) and len(value) == 2 and all(map(_is_number, value)) for value in values)
        if not pairs or any(x < 0 or y < 0 for x, y in values):
            raise self.wrong(name, "is not a list of pairs of numbers of at least zero")
        return tuple((float(x), float(y)) for x, y in values)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
