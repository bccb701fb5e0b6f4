"""``Base``: a snapshot as the garbage collection remembers it.

Rule of this module: it knows sequences, neither files nor rows.
"""

from typing import Any, NamedTuple, Self

from millpond.stores.durability.storage.durable_file import read_sequence


class Base(NamedTuple):
    """A snapshot: no manifest from the commit ``since`` on names files before ``sequence``, a bridge's apart.

    The two are the same, except for a snapshot that was written in steps, which belongs to an earlier commit than its
    last part.
    """

    sequence: int
    since: int

    @property
    def in_steps(self) -> bool:
        """True if it was written in steps."""
        return self.since != self.sequence

    def content(self) -> int | tuple[int, int]:
        """Return the content for JSON."""
        return (self.sequence, self.since) if self.in_steps else self.sequence

    @classmethod
    def of(cls, content: Any) -> Self:
        """Return the base with that ``content``.

        Raises:
            TypeError, ValueError: the content is of another form.
        """
        sequence, since = content if isinstance(content, list) else (content, content)
        return cls(read_sequence(sequence), read_sequence(since))
