"""Which old store each store of a new shape continues, and what of the state stays as it is.

Rule of this module: it compares shapes and what a user has declared, and reads nothing. Stores are matched by name,
wherever they are in the topology. What would be lost, or could not be read, is an error.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from millpond.errors import StateConflictError
from millpond.stores.evolution.carrying import Origin
from millpond.stores.evolution.shape import Shape, StoreShape, difference
from millpond.stores.specs import StoreKind

_NUMBERED: Final = re.compile(r"\d{10}")
"""Stands in the name of a store to which nobody has given one."""


@dataclass(frozen=True)
class Declared:
    """What a user says of stores that are not what they were.

    Attributes:
        renamed: the new name of each old one.
        dropped: the names of stores that are gone, with all that they hold.
    """

    renamed: Mapping[str, str] = field(default_factory=dict)
    dropped: Collection[str] = ()


def same_state(before: Shape, after: Shape) -> bool:
    """Whether state of one shape is state of the other; a plain store may become timestamped and back (KIP-258)."""
    return not told_difference(before, after)


def told_difference(before: Shape, after: Shape) -> str:
    """What differs so that state has to be carried over, a line each; empty if nothing does."""
    return difference(_plain(before), _plain(after))


def origins_of(before: Shape, after: Shape, declared: Declared) -> dict[str, Origin]:
    """The old store of each store of the new shape, by its name; stores that are missing there begin empty.

    Raises:
        StateConflictError: a declaration fits no store, an old store is neither continued nor dropped, or a store would
            continue one whose rows it cannot read.
    """
    _check_declared(after, declared)
    _check_numbered(before, after, declared)
    new_names = {store.name: declared.renamed.get(store.name, store.name) for store in before.stores}
    lost = sorted(old for old, new in new_names.items() if not after.named(new) and old not in declared.dropped)
    if lost:
        raise StateConflictError(
            f"the state has the stores {lost}, which the topology has not; declare what became of them: "
            "Evolution(..., renamed={'old name': 'new name'}), or dropped=[...] to go on without what they hold"
        )
    found: dict[str, Origin] = {}
    for store in before.stores:
        new = new_names[store.name]
        if store.name in declared.dropped or new in found:
            continue
        for other in after.named(new):
            _check_readable(store, other)
        found[new] = Origin(store.subtopology, store.name)
    return found


def kept_subtopologies(before: Shape, after: Shape, origins: Mapping[str, Origin]) -> frozenset[int]:
    """The sub-topologies whose tasks have what they had: the same stores and names, in as many partitions."""
    if before.partitions != after.partitions:
        return frozenset()
    old, new = _by_subtopology(_plain(before)), _by_subtopology(_plain(after))
    return frozenset(
        index
        for index, stores in new.items()
        if old.get(index) == stores and all(name in origins and origins[name].name == name for name in stores)
    )


def _by_subtopology(shape: Shape) -> dict[int, dict[str, StoreShape]]:
    found: dict[int, dict[str, StoreShape]] = {}
    for store in shape.stores:
        found.setdefault(store.subtopology, {})[store.name] = store
    return found


def _plain(shape: Shape) -> Shape:
    return replace(shape, stores=tuple(replace(one, kind=StoreKind(one.kind.family)) for one in shape.stores))


def _check_declared(after: Shape, declared: Declared) -> None:
    names = sorted({store.name for store in after.stores})
    for old, new in declared.renamed.items():
        if new not in names:
            raise StateConflictError(
                f"renamed says that {old!r} is {new!r} now, but the topology has the stores {names}"
            )
    targets = [*declared.renamed.values()]
    if len(set(targets)) < len(targets):
        raise StateConflictError(f"renamed gives two old stores the same new name: {dict(declared.renamed)}")
    for name in declared.dropped:
        if name in declared.renamed:
            raise StateConflictError(f"the store {name!r} is both renamed and dropped; decide for one")
        if name in names and name not in targets:
            raise StateConflictError(
                f"dropped names the store {name!r}, which the topology has; to begin it empty, give it another name"
            )


def _check_numbered(before: Shape, after: Shape, declared: Declared) -> None:
    """Refuse to match by names that are running numbers, which mean another store once an operator comes or goes."""
    old, new = set(_numbered(before)), set(_numbered(after))
    open_ones = sorted(old - set(declared.renamed) - set(declared.dropped))
    if old != new and open_ones:
        raise StateConflictError(
            f"the stores {open_ones} have no names of their own but running numbers, which may mean other stores in "
            f"the changed topology (there: {sorted(new) or 'none'}); say for each of them which one it is: "
            "Evolution(..., renamed={'old name': 'new name'}), with the same name twice where it stayed, or "
            "dropped=[...]"
        )


def _numbered(shape: Shape) -> Iterator[str]:
    return (store.name for store in shape.stores if _NUMBERED.search(store.name))


def _check_readable(old: StoreShape, new: StoreShape) -> None:
    """Refuse a store that cannot read the rows of the one that it continues."""
    reads = [
        ("kind", old.kind.family, new.kind.family),
        ("key serde", old.key_serde, new.key_serde),
        ("value serde", old.value_serde, new.value_serde),
        ("layout", old.layout, new.layout),
        ("copies of all rows", old.is_global, new.is_global),
    ]
    changed = [f"{what}: {before} -> {after}" for what, before, after in reads if before != after]
    if changed:
        raise StateConflictError(
            f"the store {new.name!r} cannot go on with the rows of {old.name!r} ({'; '.join(changed)}); give the new "
            f"one another name, and drop the old one: Evolution(..., dropped=[{old.name!r}])"
        )
