"""``SetBack``: the times of one store on their way back to a limit, and what that has changed.

Rule of this module: it only notes. A store's kind and its layout know where their times are, and set them back.
"""

from dataclasses import dataclass, field


@dataclass
class SetBack:
    """What becomes of a store whose stream time was moved too far.

    Attributes:
        limit: no time that the store keeps is later afterward.
        moved: what the times were that it kept beyond the limit, by name.
        retimed: how many entries with a timestamp beyond the limit have the limit as their timestamp now.
        removed: how many entries that lay beyond the limit were removed.
    """

    limit: int
    moved: dict[str, int] = field(default_factory=dict)
    retimed: int = 0
    removed: int = 0

    def moves(self, name: str, time: int | None) -> bool:
        """Return whether the time called ``name`` lies beyond the limit; if so, it is noted."""
        if time is None or time <= self.limit:
            return False
        self.moved[name] = time
        return True
