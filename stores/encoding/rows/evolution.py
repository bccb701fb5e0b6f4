"""The changes that the schema of one place may have, and the refusal of others.

Rule of this module: it never guesses. A column that vanishes while another appears may have been renamed, and only the
user knows; a type changes only to one that holds all its values. It decides and gives ids;
``millpond.stores.encoding.rows.packing`` then reads old rows.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Final

import pyarrow as pa

from millpond.errors import ColumnsChangedError, InvalidEvolutionError
from millpond.stores.encoding.rows.nested import Column, Columns, child_fields, leaf_paths, numbered
from millpond.stores.encoding.rows.renames import exchange_refused, first_of, to_apply
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


_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_DIGITS: Final[Mapping[Any, int]] = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
"""The number of digits of the largest number."""


def widens(old: Any, new: Any) -> bool:
    """Return whether ``new`` is another type than ``old`` and holds each of its values exactly; neither is nested."""
    if pa.types.is_decimal(new):
        whole = new.precision - new.scale
        if pa.types.is_decimal(old):
            return bool(old != new and new.scale >= old.scale and whole >= old.precision - old.scale)
        return bool(new.scale >= 0 and whole >= _DIGITS.get(old, whole + 1))
    if old in _INTEGERS and new in _INTEGERS:
        return _INTEGERS.index(old) < _INTEGERS.index(new)
    if new == pa.float64():
        return old in (pa.int8(), pa.int16(), pa.int32(), pa.float32())
    return bool(old == pa.date32() and new == pa.timestamp("us"))


@dataclass(frozen=True)
class Change:
    """The user's declaration of a change of schema, with paths such as ``address.street`` and ``items.element.price``.

    Attributes:
        renamed: the new paths of columns, by their old paths.
        dropped: the paths of columns that are gone.
        where: the name of the place in errors.
    """

    renamed: Mapping[str, str]
    dropped: Collection[str]
    where: str


def evolved_columns(old: Columns, new: Sequence[Any], change: Change, ids: Iterator[int], known: set[str]) -> Columns:
    """Return the columns ``new``, with the ids of those of ``old`` that they continue.

    Args:
        old: the current columns.
        new: the wanted fields, with types in their one form.
        change: the user's declaration.
        ids: the ids for new columns.
        known: all paths that columns of the history have or had.

    Raises:
        ConfigurationError: a part of ``change`` fits nothing.
        StateConflictError: rows of ``old`` cannot be read as rows of ``new``, or might be read in more than one way.
    """
    before, now = _paths([column.field for column in old]), _paths(new)
    exchanged = exchange_refused(change.renamed, before | now)
    if exchanged:
        raise InvalidEvolutionError(f"{change.where}: {exchanged}")
    matching = _Matching(replace(change, renamed=to_apply(change.renamed, before, now)), ids)
    columns = matching.columns(old, new, "", "")
    known = set() if columns == old else known
    _check_renamed(change, matching.origins, before, now, known)
    _check_dropped(change, now, known)
    if matching.problems:
        both = side_by_side([column.field for column in old], new, matching.origins, matching.problems)
        raise ColumnsChangedError(
            f"{change.where}: the rows in the state cannot be read with the schema of now\n{both}"
        )
    return columns


@dataclass
class _Matching:
    """The matching of two schemas, which goes through both at once and collects its findings."""

    change: Change
    ids: Iterator[int]
    origins: dict[str, str] = field(default_factory=dict)
    """The paths of old columns, by the paths of the new columns that continue them."""
    problems: list[Problem] = field(default_factory=list)

    def columns(self, old: Sequence[Column], new: Sequence[Any], old_path: str, new_path: str) -> Columns:
        """Match columns by their names or as declared; both are within the same struct, or at the top."""
        names = self._names_now(old, {field.name for field in new}, old_path, new_path)
        vanished = [names[name] for name in names.keys() - {field.name for field in new}]
        added = [field for field in new if field.name not in names]
        for field_ in added:
            self._check_added(field_, new_path)
        for column in sorted(vanished, key=lambda column: column.id):
            self._check_vanished(column, added, old_path, new_path)
        return tuple(
            self._column(names[field.name], field, old_path, new_path)
            if field.name in names
            else numbered(field, self.ids)
            for field in new
        )

    def _names_now(
        self, old: Sequence[Column], there: Collection[str], old_path: str, new_path: str
    ) -> dict[str, Column]:
        """Return the columns by the names that they have now: those declared, or else the old ones."""
        names: dict[str, Column] = {}
        called = {column.field.name: self._called(old_path + column.field.name, there, new_path) for column in old}
        for column in old:
            path, called_now = old_path + column.field.name, called[column.field.name]
            name = called_now or column.field.name
            if not called_now and name in called.values() and path in self.change.dropped:
                continue
            if name in names:
                other = old_path + names[name].field.name
                gone = old_path + name
                todo = f"add dropped=[{gone!r}], which loses the values of that column, or give it a new name, too"
                self._found([path, other], [new_path + name], f"two columns would be {new_path + name!r}; {todo}")
            names[name] = column
        return names

    def _called(self, path: str, there: Collection[str], new_path: str) -> str:
        """Return the new name of a column within the same struct; empty if it has none."""
        now = self.change.renamed.get(path, "")
        leaf = now.removeprefix(new_path)
        return leaf if now.startswith(new_path) and leaf in there else ""

    def _column(self, old: Column, new: Any, old_path: str, new_path: str) -> Column:
        old_path, new_path = old_path + old.field.name, new_path + new.name
        self.origins[new_path] = old_path
        self._check_field(old.field, new, old_path, new_path)
        inner = child_fields(new.type)
        if type_name(old.field.type) != type_name(new.type) or not inner:
            children: Columns = ()
        elif type_name(new.type) == "struct":
            children = self.columns(old.children, inner, f"{old_path}.", f"{new_path}.")
        else:
            children = tuple(
                self._column(*pair, f"{old_path}.", f"{new_path}.") for pair in zip(old.children, inner, strict=True)
            )
        return Column(old.id, new, children)

    def _check_added(self, new: Any, new_path: str) -> None:
        if not new.nullable:
            path = new_path + new.name
            self._found([], [path], f"{path!r} is added as NOT NULL, but old rows do not have it; make it nullable")

    def _check_vanished(self, old: Column, added: Sequence[Any], old_path: str, new_path: str) -> None:
        path = old_path + old.field.name
        candidates = [new_path + new.name for new in added if _fits(old.field.type, new.type)]
        if path not in self.change.dropped and candidates:
            ways = " or ".join([*(f"renamed={{{path!r}: {name!r}}}" for name in candidates), f"dropped=[{path!r}]"])
            self._found([path], candidates, f"{path!r} is gone, and may have been renamed; say which: {ways}")

    def _check_field(self, old: Any, new: Any, old_path: str, new_path: str) -> None:
        if not _fits(old.type, new.type):
            text = f"{old_path!r} cannot become {type_name(new.type)}: not every {type_name(old.type)} is one"
            self._found([old_path], [new_path], f"{text}; cast it back, or drop it and add another under a new name")
        if old.nullable and not new.nullable:
            text = f"{new_path!r} is NOT NULL now, but may be null in old rows; let it be nullable"
            self._found([old_path], [new_path], text)
        if (old.metadata or {}) != (new.metadata or {}):
            text = f"the metadata of {old_path!r} was {old.metadata}, but is {new.metadata}; keep it as it was"
            self._found([old_path], [new_path], text)

    def _found(self, old: Sequence[str], new: Sequence[str], text: str) -> None:
        self.problems.append(Problem((old, new), text))


def _fits(old: Any, new: Any) -> bool:
    """Return whether values of ``old`` may be values of ``new``; nested types are compared by their kinds."""
    if child_fields(old) or child_fields(new) or "struct" in (type_name(old), type_name(new)):
        return type_name(old) == type_name(new)
    return old == new or widens(old, new)


def _check_renamed(
    change: Change, origins: Mapping[str, str], before: set[str], after: set[str], known: set[str]
) -> None:
    """Check the renames; ``known`` is empty if nothing has changed: then an earlier run may have applied them."""
    handed_on = set(change.renamed.values())
    for was, now in change.renamed.items():
        said = f"{change.where}: renamed says that {was!r} is {now!r} now, but"
        origin = origins.get(now)
        if now not in after:
            raise InvalidEvolutionError(f"{said} there is no {now!r}{_nearest(now, after)}")
        if was in after and was in handed_on:
            first = first_of(change.renamed, was)
            if known and first not in known:
                raise InvalidEvolutionError(f"{said} there was no {first!r} to be {was!r}{_nearest(first, known)}")
            continue
        if was in after:
            raise InvalidEvolutionError(
                f"{said} there is a column {was!r}; take that out, or, if an earlier run has applied what is said, "
                f"take {was!r} out of renamed; a new {was!r} comes in the release after the one that renames the old"
            )
        if origin is None and was not in before:
            raise InvalidEvolutionError(f"{said} there was no {was!r}{_nearest(was, before)}")
        if origin is None:
            struct, place = was.rpartition(".")[0], now.rpartition(".")[0]
            both = f"renamed={{{struct!r}: {place!r}, {was!r}: {now!r}}}, if the struct is renamed, or "
            moved = struct in before - after and place in after - before
            raise InvalidEvolutionError(
                f"{said} a column cannot move to another struct; write {both if moved else ''}"
                f"dropped=[{was!r}] in place of that, which loses its values, or keep the column {was!r}, without that"
            )


def _check_dropped(change: Change, after: set[str], known: set[str]) -> None:
    """Check the drops; ``known`` is empty if nothing has changed: a first run may have begun without the column."""
    by_new = {now: was for was, now in change.renamed.items()}
    for path in change.dropped:
        said = f"{change.where}: dropped says that {path!r} is gone, but"
        if path in by_new and known and by_new[path] not in known:
            was = by_new[path]
            raise InvalidEvolutionError(f"{said} there was no {was!r} to take its name{_nearest(was, known)}")
        if path in after and path not in by_new:
            raise InvalidEvolutionError(f"{said} it is there; take it out of the columns, or out of dropped")
        if known and path not in known:
            raise InvalidEvolutionError(f"{said} there never was such a column{_nearest(path, known)}")


def _paths(fields: Sequence[Any]) -> set[str]:
    return {path for path, _ in leaf_paths(fields)}


def _nearest(path: str, paths: Collection[str]) -> str:
    nearest = get_close_matches(path, paths, 1, 0)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""
