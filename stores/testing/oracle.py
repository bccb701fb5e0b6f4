"""A backend's content in plain Python, whose answers are those that an engine has to give.

Rule of this module: it shares no code with any backend, nor with the transaction. It is slow and obvious.
"""

from collections.abc import Mapping

Entry = tuple[bytes, bytes]


class Oracle:
    """A dict, and ``sorted`` for order."""

    def __init__(self, content: Mapping[bytes, bytes] | None = None) -> None:
        self.content: dict[bytes, bytes] = dict(content or {})

    def get(self, key: bytes) -> bytes | None:
        return self.content.get(key)

    def entries(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> list[Entry]:
        chosen = [
            (key, value)
            for key, value in self.content.items()
            if (start is None or start <= key) and (stop is None or key < stop)
        ]
        return sorted(chosen, reverse=reverse)

    def last(self, start: bytes, stop: bytes) -> Entry | None:
        entries = self.entries(start, stop)
        return entries[-1] if entries else None

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        for key, value in changes.items():
            if value is None:
                self.content.pop(key, None)
            else:
                self.content[key] = value

    def delete_range(self, start: bytes, stop: bytes) -> None:
        self.content = {key: value for key, value in self.content.items() if not start <= key < stop}
