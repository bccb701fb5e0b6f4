"""New names of things with names, where one may take the name that another gives up.

Rule of this module: it knows names alone. A declaration stays in the code, so it has to mean the same at each start:
names that are handed on belong to the first start as long as the first of them is there, and names cannot be exchanged
at once.
"""

from collections.abc import Collection, Mapping
from itertools import count


def free_name(name: str, taken: Collection[str]) -> str:
    """Return the name with a number, which is not taken.

    >>> free_name("n", ["n", "n_2"])
    'n_3'
    """
    return next(one for one in (f"{name}_{number}" for number in count(2)) if one not in taken)


def to_apply(renamed: Mapping[str, str], before: Collection[str], after: Collection[str]) -> dict[str, str]:
    """Return the new names that an earlier run has not given yet.

    >>> handed_on = {"a": "b", "b": "c"}
    >>> to_apply(handed_on, ["a", "b"], ["b", "c"]), to_apply(handed_on, ["b", "c"], ["b", "c"])
    ({'a': 'b', 'b': 'c'}, {})
    """
    return {
        old: new
        for old, new in renamed.items()
        if old in before and (old not in after or first_of(renamed, old) in before)
    }


def first_of(renamed: Mapping[str, str], name: str) -> str:
    """Return the first of the names that are handed on until one gets that name."""
    by_new, seen = {new: old for old, new in renamed.items()}, {name}
    while (old := by_new.get(name)) is not None and old not in seen:
        seen.add(old)
        name = old
    return name


def exchange_refused(renamed: Mapping[str, str], taken: Collection[str]) -> str:
    """Return the message for names that are exchanged, with the lines to write; empty if none are.

    >>> exchange_refused({"v": "w", "w": "v"}, ["v", "w"])
    "renamed exchanges the names 'v', 'w', which each start would do again; go by way of a third name: \
renamed={'v': 'v_2'} in one release, and renamed={'w': 'v', 'v_2': 'w'} in the next"
    """
    circle = exchanged(renamed)
    if not circle:
        return ""
    return (
        f"renamed exchanges the names {', '.join(map(repr, circle))}, which each start would do again; go by way of a "
        f"third name: {by_third_name(circle, renamed, taken)}"
    )


def exchanged(renamed: Mapping[str, str]) -> list[str]:
    """Return names each of which goes to the next one, and the last one to the first; none if there are none."""
    return next((one for one in (leading_back(renamed, old) for old in renamed) if one), [])


def by_third_name(circle: Collection[str], renamed: Mapping[str, str], taken: Collection[str]) -> str:
    """Return the lines to write for names that are exchanged."""
    first, *others = circle
    third = free_name(first, {*taken, *renamed})
    following = {old: renamed[old] for old in others} | {third: renamed[first]}
    return f"renamed={{{first!r}: {third!r}}} in one release, and renamed={following} in the next"


def leading_back(renamed: Mapping[str, str], name: str) -> list[str]:
    """Return the names that lead back to one, which is the first; none if it is handed on, or keeps its name."""
    found = [name]
    while (new := renamed.get(found[-1])) is not None and new not in found:
        found.append(new)
    return found if len(found) > 1 and renamed.get(found[-1]) == name else []
