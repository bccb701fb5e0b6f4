"""``SetBack``: the times of one store that are set back to a limit, and the changes made.

Rule of this module: it only notes. A store's kind and its layout know where their times are, and set them back.
"""

from dataclasses import dataclass, field


@dataclass
class SetBack:
    """The changes to a store whose stream time was moved too far, and is set back.

    Attributes:
        limit: no time that the store keeps is later afterward.
        moved: the times that it kept beyond the limit, by name.
        retimed: the number of entries whose timestamp was beyond the limit and is the limit now.
        removed: the number of entries beyond the limit that were removed.
    """

    limit: int
    moved: dict[str, int] = field(default_factory=dict)
    retimed: int = 0
    removed: int = 0

    def moves(self, name: str, time: int | None) -> bool:
        """Return whether the time called ``name`` lies beyond the limit, and note it if so."""
        if time is None or time <= self.limit:
            return False
        self.moved[name] = time
        return True
