"""The old store that each store of a new shape continues, and the sub-topologies whose state stays as it is.

Rule of this module: it compares shapes and what a user has declared, and reads nothing. Stores are matched by name,
wherever they are in the topology. A loss, or rows that could not be read, are an error.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from millpond.errors import CallChangedError, InvalidEvolutionError, StateConflictError, StoresChangedError
from millpond.stores.encoding.times import Instant, to_instant
from millpond.stores.evolution.carrying import Origin
from millpond.stores.evolution.conversion import CONVERTIBLE, Conversion
from millpond.stores.evolution.shape import Shape, StoreShape, difference
from millpond.stores.specs.store_spec import StoreKind

_NUMBERED: Final = re.compile(r"\d{10}")
"""A mark in the name of a store that nobody has named."""

_JOIN: Final = re.compile(r"^KSTREAM-(?:LEFT)?JOIN-(?=\d{10})")
"""The beginning of the name of a store of a stream-table join, by the type of the join."""


@dataclass(frozen=True)
class Declared:
    """The user's declaration of stores that have changed.

    Attributes:
        renamed: the new names, by the old ones.
        dropped: the names of stores that are gone, with all that they hold.
        converted: the kind, as ``StoreKind`` names it, of each store that was of another kind, by its new name.
        valid_from: for stores that become versioned, by their new names, the time from which values with unknown
            timestamps are valid.
        accept_loss: whether versions and timestamps may be lost that the new kinds do not keep.
        verb: the name of the verb whose stores they are; None for stores of a topology.
    """

    renamed: Mapping[str, str] = field(default_factory=dict)
    dropped: Collection[str] = ()
    converted: Mapping[str, str] = field(default_factory=dict)
    valid_from: Mapping[str, Instant] = field(default_factory=dict)
    accept_loss: bool = False
    verb: str | None = None

    @property
    def anew(self) -> str:
        """The advice for a verb that is to begin without its state."""
        return f"give the verb another name, and drop this one: Evolution(..., dropped=[{self.verb!r}])"


def same_state(before: Shape, after: Shape, converted: Collection[str] = ()) -> bool:
    """Return whether state of one shape is state of the other.

    A plain store may become timestamped and back (KIP-258), unless it is among ``converted``, the new names of stores
    that a user declares to become another kind.
    """
    return not told_difference(before, after, converted)


def called_after(before: Shape, after: Shape, old: str, new: str) -> dict[str, str]:
    """Return the new names of the stores that are called after a verb, if that has a new name."""
    names = {store.name: f"{new}{store.name.removeprefix(old)}" for store in before.stores}
    return {
        one: other
        for one, other in names.items()
        if one.startswith(f"{old}-") and after.named(other) and not after.named(one)
    }


def are_alike(old: str, before: Shape, new: str, after: Shape) -> bool:
    """Return whether the state of one verb is what another's would be, whatever the number of partitions."""
    names = called_after(before, after, old, new)
    stores = tuple(replace(store, name=names.get(store.name, store.name)) for store in before.stores)
    renamed = Shape(after.partitions, stores)
    try:
        check_terms(renamed, after)
    except StateConflictError:
        return False
    return same_state(renamed, after)


def check_terms(before: Shape, after: Shape) -> None:
    """Refuse state whose rows were made with other parameters of an operator than it has now.

    Raises:
        StateConflictError: a store of the same name has others.
    """
    for old in before.stores:
        for new in after.named(old.name):
            _check_terms(old, new)


def check_said(renamed: object, dropped: object) -> None:
    """Refuse a declaration that is no mapping, or no list, of names: in a text, each letter would be a name.

    Raises:
        ConfigurationError: it is not.
    """
    if not isinstance(renamed, Mapping) or not all(isinstance(one, str) for one in (*renamed, *renamed.values())):
        raise InvalidEvolutionError(f"renamed is {renamed!r}; give a mapping from each old name to the new one")
    if (
        isinstance(dropped, str)
        or not isinstance(dropped, Collection)
        or not all(isinstance(one, str) for one in dropped)
    ):
        listed = [dropped] if isinstance(dropped, str) else ["old"]
        raise InvalidEvolutionError(f"dropped is {dropped!r}; write the names in a list, such as {listed!r}")


def told_difference(before: Shape, after: Shape, converted: Collection[str] = ()) -> str:
    """Return the differences for which state has to be carried over, a line each; empty if there are none."""
    return difference(_plain(before, converted), _plain(after, converted))


def conversions_to_declare(before: Shape, after: Shape) -> dict[str, str]:
    """Return the ``converted`` of ``Evolution`` for stores that kept their names and have another kind."""
    return {
        new.name: new.kind.value
        for old in before.stores
        for new in after.named(old.name)
        if old.kind.family != new.kind.family and _may_become(old, new)
    }


def origins_of(before: Shape, after: Shape, declared: Declared) -> dict[str, Origin]:
    """Return the old store of each store of the new shape, by its name; stores that are missing there begin empty.

    Raises:
        ConfigurationError: a declaration names no kind, or no time.
        StateConflictError: a declaration fits no store, an old store is neither continued nor dropped, or a store would
            continue one whose rows it cannot read.
    """
    if declared.verb is not None:
        declared = replace(declared, renamed={**_joined_otherwise(before, after), **declared.renamed})
    _check_declared(after, declared)
    _check_numbered(before, after, declared)
    new_names = {store.name: declared.renamed.get(store.name, store.name) for store in before.stores}
    lost = sorted(old for old, new in new_names.items() if not after.named(new) and old not in declared.dropped)
    if lost and declared.verb is not None:
        raise _lacks(lost, after, declared)
    if lost:
        raise StoresChangedError(
            f"the state has the stores {lost}, which the topology has not; declare what became of them: "
            "Evolution(..., renamed={'old name': 'new name'}), or dropped=[...] to go on without what they hold"
        )
    found: dict[str, Origin] = {}
    for store in before.stores:
        new = new_names[store.name]
        if store.name in declared.dropped or new in found:
            continue
        others = after.named(new)
        for other in others:
            _check_readable(store, other, declared)
        found[new] = Origin(store.subtopology, store.name, _conversion(store, others[0], declared))
    return found


def _joined_otherwise(before: Shape, after: Shape) -> dict[str, str]:
    """Return the new names of a verb's stores that are called after the type of its join, which has changed."""
    now = {_JOIN.sub("", store.name): store.name for store in after.stores if _JOIN.match(store.name)}
    names = (store.name for store in before.stores if _JOIN.match(store.name) and not after.named(store.name))
    return {name: now[number] for name in names if (number := _JOIN.sub("", name)) in now}


def kept_subtopologies(before: Shape, after: Shape, origins: Mapping[str, Origin]) -> frozenset[int]:
    """Return the sub-topologies whose tasks stay the same: the same stores and names, in as many partitions."""
    if before.partitions != after.partitions:
        return frozenset()
    old, new = _by_subtopology(_plain(before)), _by_subtopology(_plain(after))
    return frozenset(
        index
        for index, stores in new.items()
        if old.get(index) == stores and all(_stays(origins.get(name), name) for name in stores)
    )


def _stays(origin: Origin | None, name: str) -> bool:
    return origin is not None and origin.name == name and origin.conversion is None


def _by_subtopology(shape: Shape) -> dict[int, dict[str, StoreShape]]:
    found: dict[int, dict[str, StoreShape]] = {}
    for store in shape.stores:
        found.setdefault(store.subtopology, {})[store.name] = store
    return found


def _plain(shape: Shape, but: Collection[str] = ()) -> Shape:
    """Return the shape with plain stores in place of their timestamped twins, except those of some names."""
    stores = (one if one.name in but else replace(one, kind=StoreKind(one.kind.family)) for one in shape.stores)
    return replace(shape, stores=tuple(stores))


def _check_declared(after: Shape, declared: Declared) -> None:
    names = sorted({store.name for store in after.stores})
    for old, new in declared.renamed.items():
        if new not in names:
            raise StoresChangedError(
                f"renamed says that {old!r} is {new!r} now, but the topology has the stores {names}; write one of "
                f"them, or, to go on without what it holds, dropped=[{old!r}] in place of that"
            )
    targets = [*declared.renamed.values()]
    if len(set(targets)) < len(targets):
        raise StoresChangedError(
            f"renamed gives two old stores the same new name: {dict(declared.renamed)}; leave one of them, and name "
            "the other one in dropped=[...]"
        )
    for name in declared.dropped:
        if name in declared.renamed:
            raise StoresChangedError(f"the store {name!r} is both renamed and dropped; take it out of one of them")
        if name in names and name not in targets:
            raise StoresChangedError(
                f"dropped names the store {name!r}, which the topology has; take it out, or, to begin empty, give the "
                "store of the topology another name"
            )

    for what, said in (("converted", declared.converted), ("valid_from", declared.valid_from)):
        unknown = sorted(set(said) - set(names))
        if unknown:
            raise StoresChangedError(
                f"{what} names the stores {unknown}, but the topology has the stores {names}; write a store by the "
                "name that it has there, or leave it out"
            )
    for name, text in declared.converted.items():
        _check_kind(name, _kind_named(name, text), after.named(name)[0].kind)
    for name, time in declared.valid_from.items():
        to_instant(time, f"valid_from of store {name!r}")
        versioned = after.named(name)[0].kind.versioned
        if name not in declared.converted or not versioned:
            add = f"add converted={{{name!r}: {StoreKind.VERSIONED.value!r}}}, or " if versioned else ""
            raise StoresChangedError(
                f"valid_from gives a time for the store {name!r}, which is not declared to become versioned; {add}"
                "leave it out"
            )


def _kind_named(name: str, text: str) -> StoreKind:
    known = [kind.value for kind in CONVERTIBLE]
    if text not in known:
        raise InvalidEvolutionError(f"converted says that the store {name!r} becomes {text!r}; give one of {known}")
    return StoreKind(text)


def _check_kind(name: str, declared: StoreKind, kind: StoreKind) -> None:
    if declared is not kind:
        raise StoresChangedError(
            f"converted says that the store {name!r} becomes {declared.value!r}, but in the topology it is "
            f"{kind.value!r}; write converted={{{name!r}: {kind.value!r}}}, or change the topology"
        )


def _may_become(old: StoreShape, new: StoreShape) -> bool:
    """Return whether a store may become one of the other's kind: stores with rows of an operator may not."""
    return old.kind in CONVERTIBLE and new.kind in CONVERTIBLE and old.layout is None and new.layout is None


def _conversion(old: StoreShape, new: StoreShape, declared: Declared) -> Conversion | None:
    """Return the conversion of the rows of a store; None if none is declared, or it has been done."""
    if new.name not in declared.converted or old.kind is new.kind:
        return None
    time = declared.valid_from.get(new.name)
    return Conversion(old.kind, new.kind, None if time is None else to_instant(time))


def _check_numbered(before: Shape, after: Shape, declared: Declared) -> None:
    """Refuse to match by running numbers as names, which mean another store once an operator comes or goes."""
    old, new = set(_numbered(before)), set(_numbered(after))
    open_ones = sorted(old - set(declared.renamed) - set(declared.dropped))
    if old != new and open_ones and declared.verb is not None:
        raise _lacks(open_ones, after, declared)
    if old != new and open_ones:
        raise StoresChangedError(
            f"the stores {open_ones} have no names of their own but running numbers, which may mean other stores in "
            f"the changed topology (there: {sorted(new) or 'none'}); say for each of them which one it is: "
            "Evolution(..., renamed={'old name': 'new name'}), with the same name twice where it stayed, or "
            "dropped=[...]"
        )


def _lacks(stores: Collection[str], after: Shape, declared: Declared) -> StateConflictError:
    """Return the error for a verb that no longer has the stores which it had."""
    there = sorted({store.name for store in after.stores})
    return CallChangedError(
        f"the state of the verb {declared.verb!r} has the stores {list(stores)}, but as it is now the verb has "
        f"{there}; call it with its former arguments, or {declared.anew}"
    )


def _numbered(shape: Shape) -> Iterator[str]:
    return (store.name for store in shape.stores if _NUMBERED.search(store.name))


def _check_terms(old: StoreShape, new: StoreShape) -> None:
    if old.terms is not None and new.terms is not None:
        new.terms.check(old.name, old.terms.kept)


def _check_readable(old: StoreShape, new: StoreShape, declared: Declared) -> None:
    """Refuse a store that can read the rows of the one that it continues neither directly nor converted."""
    others = [
        ("key serde", old.key_serde, new.key_serde),
        ("value serde", old.value_serde, new.value_serde),
        ("layout", old.layout, new.layout),
        ("copies of all rows", old.is_global, new.is_global),
    ]
    whose = "" if declared.verb is None else f"the verb {declared.verb!r}: "
    changed = [f"{what}: {before} -> {after}" for what, before, after in others if before != after]
    declares = new.name in declared.converted
    if old.kind.family != new.kind.family or (declares and old.kind is not new.kind):
        if _may_become(old, new) and not (declares or changed):
            raise StoresChangedError(
                f"{whose}the store {new.name!r} is {new.kind.value!r}, but the rows of {old.name!r} are those of a "
                f"store that is {old.kind.value!r}; declare that it becomes another kind: Evolution(..., "
                f"converted={{{new.name!r}: {new.kind.value!r}}}), or {_without(old, new, declared)}"
            )
        if not (_may_become(old, new) and declares):
            changed.insert(0, f"kind: {old.kind.value} -> {new.kind.value}")
    if changed:
        raise StoresChangedError(
            f"{whose}the store {new.name!r} cannot go on with the rows of {old.name!r} ({'; '.join(changed)}); "
            f"{_without(old, new, declared)}"
        )
    _check_terms(old, new)


def _without(old: StoreShape, new: StoreShape, declared: Declared) -> str:
    """Return the advice for a store that is to begin empty instead of going on with the rows of an old one."""
    drops = f"drop the old one: Evolution(..., dropped=[{old.name!r}])"
    if declared.verb is not None:
        begins = declared.anew
    elif old.name != new.name:
        begins = f"take {old.name!r} out of renamed, and {drops}"
    else:
        begins = f"give the new one another name, and {drops}"
    return f"{begins}, without {new.name!r} in converted" if new.name in declared.converted else begins
