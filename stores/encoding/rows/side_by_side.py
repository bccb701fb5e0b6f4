"""Two schemas as text, side by side, with marks where they do not fit.

Rule of this module: it only shows; ``millpond.stores.encoding.rows.evolution`` decides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from millpond.stores.encoding.rows.nested import leaf_paths
from millpond.stores.encoding.rows.schema_json import type_name

_OLD_TITLE: Final = "in the state"
_NEW_TITLE: Final = "now"


@dataclass(frozen=True)
class Problem:
    """A mismatch of two schemas.

    Attributes:
        paths: the paths of the columns concerned, of the state and of now.
        text: the fault, and the advice.
    """

    paths: tuple[Sequence[str], Sequence[str]]
    text: str


def side_by_side(
    old: Sequence[Any], new: Sequence[Any], origins: Mapping[str, str], problems: Sequence[Problem]
) -> str:
    """Return several lines: both schemas, a line for each column, then the problems.

    Args:
        old: the fields of the state.
        new: the fields of now.
        origins: the paths of old fields, by the paths of the new ones that continue them.
        problems: at least one.
    """
    left, right = (dict(leaf_paths(fields)) for fields in (old, new))
    continued = {origin: path for path, origin in origins.items()}
    pairs = [(path, continued.get(path)) for path in left] + [(None, path) for path in right if path not in origins]
    marked = [{path for problem in problems for path in problem.paths[side]} for side in (0, 1)]
    rows = [(one in marked[0] or other in marked[1], _shown(one, left), _shown(other, right)) for one, other in pairs]
    width = max(len(text) for text in [_OLD_TITLE, *(row[1] for row in rows)])
    lines = [f"  {_OLD_TITLE:{width}}  {_NEW_TITLE}"]
    lines += [f"{'>' if mark else ' '} {one:{width}}  {other}".rstrip() for mark, one, other in rows]
    return "\n".join([*lines, *(problem.text for problem in problems)])


def _shown(path: str | None, fields: Mapping[str, Any]) -> str:
    if path is None:
        return "-"
    return f"{path}: {type_name(fields[path].type)}{'' if fields[path].nullable else ' not null'}"
