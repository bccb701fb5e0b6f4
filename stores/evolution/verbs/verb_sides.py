"""The stores of a verb that keep the rows of its inputs as they came, so that another verb can begin with them.

Rule of this module: it goes by the names, kinds and layouts of stores, and reads nothing.
"""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from millpond.stores.evolution.shape import Shape, StoreShape

INPUT: Final = "input"
LEFT: Final = "left"
RIGHT: Final = "right"

SIDES: Final = (LEFT, RIGHT)
"""The inputs of a join, as a user writes them behind the join's name."""

_TABLES: Final[Mapping[str, str]] = {"latest": INPUT, LEFT: LEFT, RIGHT: RIGHT}
"""The input of each store that is a table of rows, by the store's name."""

_IN_WINDOWS: Final = re.compile(r"KSTREAM-(?:JOIN|LEFT|RIGHT|OUTER)(THIS|OTHER)-\d{10}-store")
"""The store of a side of a join of streams. A semi or anti join forgets left rows once they have met right ones."""

_WAITING: Final = "time-ordered-buffer"
"""The layout of the store in which rows wait for their grace."""


class Kept(Enum):
    """The kind of rows of an input that are kept."""

    VERSIONS = "versions"
    """For each key, the versions of the history and the latest, deletes among them."""

    LAST = "last"
    """For each key, the row that came last."""

    IN_WINDOWS = "in windows"
    """The rows that may still meet others."""

    WAITING = "waiting"
    """The rows that wait for their grace."""

    @property
    def is_table(self) -> bool:
        """True if a row replaces others of its key."""
        return self in (Kept.VERSIONS, Kept.LAST)


class KeptSide(NamedTuple):
    """The rows of one input in a verb's state.

    Attributes:
        role: the input's role.
        store: the store of the rows.
        kept: the kind of rows that are kept.
        ordered: whether an order decides among rows of one key and time.
    """

    role: str
    store: StoreShape
    kept: Kept
    ordered: bool


def sides_of(shape: Shape) -> dict[str, KeptSide]:
    """Return the inputs whose rows a verb keeps as they came, by role.

    An aggregate, a join by foreign key, and a semi or anti join of streams have none.
    """
    if len({store.subtopology for store in shape.stores}) != 1:
        return {}
    names = {store.name for store in shape.stores}
    found = {}
    for store in shape.stores:
        side = _side(store)
        if side is not None:
            role, kept = side
            found[role] = KeptSide(role, store, kept, f"{role}-order" in names)
    return found


def placed(verb: str, role: str) -> str:
    """Return a side of a verb, as a user writes it.

    >>> placed("priced", "right"), placed("prices", "input")
    ('priced.right', 'prices')
    """
    return verb if role == INPUT else f"{verb}.{role}"


def _side(store: StoreShape) -> tuple[str, Kept] | None:
    window = _IN_WINDOWS.fullmatch(store.name)
    if window is not None and store.kind.in_segments:
        return (LEFT if window[1] == "THIS" else RIGHT), Kept.IN_WINDOWS
    if store.layout is not None:
        return (LEFT, Kept.WAITING) if store.layout.name == _WAITING else None
    role = _TABLES.get(store.name)
    if role is None or not (store.kind.versioned or store.kind.stamped):
        return None
    return role, Kept.VERSIONS if store.kind.versioned else Kept.LAST
