"""Shapes: the form of one query's state, apart from its rows.

Rule of this module: a shape has the place of each store and the form of its rows, and compares. It does not decide
whether one shape may follow another. Its JSON carries a version number, and a version never changes its meaning.

Version 1::

    {"shape":1,"partitions":4,"stores":[
      {"subtopology":1,"name":"counts","kind":"timestamped-key-value","key_serde":"string","value_serde":"int64",
       "layout":["suppress-buffer",1,"string" or null] or null,"record_key_serde":"string","is_global":false,
       "terms":{"size":600000},"noted":{"grace":60000}},…],
     "behind":["joined"],"crc32":checksum of the text up to here and "}"}

There are ``terms`` only if a store has fixed ones, and ``noted`` only if some may not become less; without them, they
are unknown. There is ``behind`` only if a verb runs in the operator of others.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Self

from millpond.errors import DamagedRecordError, FormatError, MillpondError
from millpond.stores.durability.storage.checked_text import (
    MOST_PARTITIONS,
    check_text,
    checked_text,
    read_count,
    read_flag,
    read_text,
)
from millpond.stores.specs.formats import check_store_name
from millpond.stores.specs.store_spec import StoreKind
from millpond.stores.typed.layouts import Layout
from millpond.stores.typed.terms import Terms, read_noted, read_terms

SHAPE_VERSION: Final = 1


@dataclass(frozen=True)
class StoreShape:
    """One store of one sub-topology; each of its partitions has rows of its own.

    Attributes:
        subtopology: the number of the sub-topology.
        name: the store's name.
        kind: the store's kind.
        key_serde: the name of the serde of its keys.
        value_serde: the name of the serde of its values.
        layout: the layout of its rows beyond the kind's; None for none.
        record_key_serde: the name of the serde of the keys by whose bytes records find their partition.
        is_global: whether every partition holds all rows, as for a global table.
        terms: the parameters on which its rows depend; None for none, or for unknown ones. They decide whether it can
            go on with rows, and are no part of the shape's identity.
    """

    subtopology: int
    name: str
    kind: StoreKind
    key_serde: str
    value_serde: str
    layout: Layout | None
    record_key_serde: str
    is_global: bool = False
    terms: Terms | None = field(default=None, compare=False)

    @property
    def content(self) -> dict[str, Any]:
        """The content for JSON."""
        layout, terms = self.layout, self.terms
        content: dict[str, Any] = {
            "subtopology": self.subtopology,
            "name": self.name,
            "kind": self.kind.value,
            "key_serde": self.key_serde,
            "value_serde": self.value_serde,
            "layout": layout and [layout.name, layout.version, layout.key_serde],
            "record_key_serde": self.record_key_serde,
            "is_global": self.is_global,
        }
        if terms is not None and terms.in_shape.fixed:
            content["terms"] = dict(terms.fixed)
        if terms is not None and terms.in_shape.noted:
            content["noted"] = dict(terms.in_shape.noted)
        return content

    @classmethod
    def from_content(cls, content: Any) -> Self:
        """Return the store from its JSON's objects.

        Raises:
            KeyError, TypeError, ValueError, ConfigurationError: it is no store.
        """
        layout = content["layout"]
        shape = cls(
            subtopology=read_count(content["subtopology"]),
            name=read_text(content["name"]),
            kind=StoreKind(content["kind"]),
            key_serde=read_text(content["key_serde"]),
            value_serde=read_text(content["value_serde"]),
            layout=None if layout is None else _layout(*layout),
            record_key_serde=read_text(content["record_key_serde"]),
            is_global=read_flag(content["is_global"]),
            terms=_terms(content.get("terms", {}), content.get("noted", {})),
        )
        check_store_name(shape.name)
        return shape

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield its properties, beside its name: the name of each, and its value."""
        yield "sub-topology", str(self.subtopology)
        yield "kind", self.kind.value
        yield "key serde", self.key_serde
        yield "value serde", self.value_serde
        yield "layout", "none" if self.layout is None else f"{self.layout.name} {self.layout.version}"
        yield "serde of the records' keys", self.record_key_serde
        yield "global", "yes" if self.is_global else "no"


@dataclass(frozen=True)
class Shape:
    """The state of one query: the number of partitions of each sub-topology, and the stores.

    A global table's store is there once for each sub-topology that has a copy.

    Attributes:
        partitions: the number of tasks of each sub-topology, at least 1.
        stores: the stores in the order of sub-topology and name, each pair of them once.
        behind: the names of the verbs in whose operator the query's verb runs, behind them. It tells where manifests
            are, and is no part of the state's identity.
    """

    partitions: int
    stores: tuple[StoreShape, ...]
    behind: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stores", tuple(sorted(self.stores, key=_place)))
        if self.partitions < 1:
            raise ValueError(f"{self.partitions} is no number of partitions")
        for one, another in pairwise(self.stores):
            if _place(one) == _place(another):
                raise ValueError(f"sub-topology {one.subtopology} has two stores named {one.name!r}")

    def named(self, name: str) -> tuple[StoreShape, ...]:
        """Return the stores of that name: one, none, or the copies of a global table."""
        return tuple(store for store in self.stores if store.name == name)

    @property
    def tasks(self) -> list[str]:
        """The ids of the tasks that have stores, in the order of sub-topology and partition."""
        subtopologies = sorted({store.subtopology for store in self.stores})
        return [f"{index}_{partition}" for index in subtopologies for partition in range(self.partitions)]

    @property
    def content(self) -> dict[str, Any]:
        """The content for JSON, without the checksum: for records that hold a shape."""
        content: dict[str, Any] = {
            "shape": SHAPE_VERSION,
            "partitions": self.partitions,
            "stores": [store.content for store in self.stores],
        }
        return content | ({"behind": list(self.behind)} if self.behind else {})

    def to_json(self) -> str:
        return checked_text(self.content)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the shape that ``to_json`` wrote.

        Raises:
            FormatError: this release does not know the version, or the text is not a shape.
        """
        try:
            content = json.loads(text)
            shape = cls.from_content(content)
            check_text(text)
        except (ValueError, RecursionError) as error:
            raise DamagedRecordError(f"a shape of state is damaged ({error}): {text[:200]!r}") from error
        return shape

    @classmethod
    def from_content(cls, content: Any) -> Self:
        """Return the shape whose ``content`` this is.

        Raises:
            FormatError: this release does not know the version, or it is no shape.
        """
        version = content.get("shape") if isinstance(content, dict) else None
        if type(version) is not int or version != SHAPE_VERSION:
            raise FormatError(
                f"a shape of state has version {version!r}, but this release of Millpond knows version "
                f"{SHAPE_VERSION}; run the release that wrote it, or a newer one"
            )
        try:
            return cls(
                read_count(content["partitions"], MOST_PARTITIONS),
                tuple(map(StoreShape.from_content, content["stores"])),
                tuple(map(read_text, content.get("behind", []))),
            )
        except (LookupError, TypeError, ValueError, MillpondError) as error:
            raise DamagedRecordError(f"a shape of state is damaged ({error!r}): {str(content)[:200]}") from error


def difference(before: Shape, after: Shape) -> str:
    """Return the differences between two shapes, a line each, the old beside the new; empty if they are equal.

    Stores are compared with their namesakes, copies of a global table in the order of their sub-topologies.
    """
    lines = []
    if before.partitions != after.partitions:
        lines.append(f"partitions: {before.partitions} -> {after.partitions}")
    for name in sorted({store.name for store in (*before.stores, *after.stores)}):
        lines += _differences(name, before.named(name), after.named(name))
    return "\n".join(lines)


def _differences(name: str, before: tuple[StoreShape, ...], after: tuple[StoreShape, ...]) -> Iterator[str]:
    """Yield the lines about the stores called ``name``."""
    old = [store for store in before if store not in after]
    new = [store for store in after if store not in before]
    for one, other in zip(old, new, strict=False):
        changed = [
            f"{what} {value} -> {now}"
            for (what, value), (_, now) in zip(one.facts(), other.facts(), strict=True)
            if value != now
        ]
        yield f"store {name!r}: {', '.join(changed)}"
    for one in old[len(new) :]:
        yield f"store {name!r}: {_told(one)} -> none"
    for one in new[len(old) :]:
        yield f"store {name!r}: none -> {_told(one)}"


def _told(store: StoreShape) -> str:
    return f"{store.kind.value}, {store.key_serde} to {store.value_serde}, in sub-topology {store.subtopology}"


def _place(store: StoreShape) -> tuple[int, str]:
    return store.subtopology, store.name


def _terms(fixed: Any, noted: Any) -> Terms | None:
    terms = Terms(tuple(read_terms(fixed).items()), tuple(read_noted(noted).items()), tuple(noted))
    return terms if terms != Terms() else None


def _layout(name: Any, version: Any, key_serde: Any) -> Layout:
    return Layout(read_text(name), read_count(version), key_serde=None if key_serde is None else read_text(key_serde))
