"""The kind of verb that some state belongs to, and the error for a verb with the name of one of another kind.

Rule of this module: it goes by the names and the terms of stores, and reads nothing.
"""

import re
from typing import Final

from millpond.errors import VerbChangedError
from millpond.stores.evolution.shape import Shape
from millpond.stores.evolution.verbs.declarations import declaration
from millpond.stores.evolution.verbs.verb_sides import LEFT, RIGHT, placed, sides_of

TABLES: Final = "tables"
"""The term of the stores of a join of many tables: their names, which the user chooses."""

_STREAM_JOIN: Final = re.compile(r"KSTREAM-[A-Z]*(THIS|OTHER)-\d{10}-store")


def kind_of(verb: str, shape: Shape) -> str | None:
    """Return the method that makes such a verb; None if the stores do not tell."""
    names = {store.name for store in shape.stores}
    if tables_of(shape):
        return "multi_join"
    if any(map(_STREAM_JOIN.fullmatch, names)):
        return "stream_join"
    if RIGHT in names:
        return "table_join" if LEFT in names else "asof_join"
    if names >= {"rows", "groups"}:
        return "aggregate"
    if any(name.startswith(f"{verb}-") for name in names):
        return "apply"
    return next((one for one in ("aggregate", "deduplicate", "latest", "over", "top_n") if one in names), None)


def tables_of(shape: Shape) -> list[str]:
    """Return the names of the tables of a join of many, in their order; none for another verb."""
    told = (str(dict(store.terms.fixed).get(TABLES, "")) for store in shape.stores if store.terms is not None)
    return re.findall(r"\w+", next(filter(None, told), ""))


def check_kind(before: str, old: Shape, verb: str, new: Shape) -> None:
    """Refuse a verb that would go on with the state of one of another kind.

    Args:
        before: the verb's former name, or its own.
        old: the shape of the state under that name.
        verb: the verb's name.
        new: the shape of the verb now.

    Raises:
        StateConflictError: the verb is of another kind.
    """
    was, is_ = kind_of(before, old), kind_of(verb, new)
    if was is None or is_ is None or was == is_:
        return
    ways = f"give the {is_} another name, and write " if before == verb else "write "
    ways += f"{declaration(None, dropped=[before])}, with which it begins empty"
    table, source = _table(new), _table(old)
    if table and source:
        place, lender = placed("<another name>" if before == verb else verb, table), placed(before, source)
        ways += f", or {declaration(None, rekeyed={place: lender})}, with which it begins with the rows that are there"
    said = "" if before == verb else f"renamed says that it is {verb!r} now, but "
    raise VerbChangedError(
        f"the state of the verb {before!r} is that of {_a(was)}; {said}{verb!r} is {_a(is_)}; {ways}"
    )


def _table(shape: Shape) -> str:
    """Return the input that is a table of rows, the right one of two; empty if there is none."""
    return max((role for role, side in sides_of(shape).items() if side.kept.is_table), default="")


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "ao" else f"a {kind}"
