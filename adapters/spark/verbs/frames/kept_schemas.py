"""``KeptSchemas``: what a verb's rows are packed with, compared with what its state has, and kept beside it.

Rule of this module: it decides whether rows of the state can go on with those that come, from names, types and
expressions alone. What a user may have changed is declared, never guessed.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

import pyarrow as pa

from millpond.adapters.spark.job.job import Job
from millpond.adapters.spark.verbs.frames.expressions import Expression, kept_as, kept_in, name_of
from millpond.adapters.spark.verbs.frames.inputs import type_name
from millpond.errors import CallChangedError, InvalidEvolutionError
from millpond.processors.calls.joins.key_kinds import key_kinds, listed_key
from millpond.processors.calls.readings import Packing, Reading, packed_key, packed_order
from millpond.processors.options.grouping import GROUPING_ID
from millpond.processors.options.known_names import did_you_mean
from millpond.stores.durability.manifests.schema_log import Beside, kept_schemas, next_schemas
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.evolution.matching import check_said
from millpond.stores.evolution.verbs.declarations import declaration

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

_SHOWN: Final = {Beside.FOREIGN: "foreign key"}
"""The names of fixed columns in errors, where they differ from the place."""


class Described(Reading, Protocol):
    """An input of a verb, as far as something of it is kept: ``inputs.RowInput`` says what this is."""

    @property
    def expressions(self) -> Mapping[str, Expression]: ...


@dataclass(frozen=True)
class ColumnChanges:
    """The user's declarations about columns that were different in an earlier run.

    Attributes:
        renamed: the new name of each old one.
        dropped: the old names of columns that are gone.
    """

    renamed: Mapping[str, str]
    dropped: Collection[str]

    def __post_init__(self) -> None:
        check_said(self.renamed, self.dropped)

    def check(self, inputs: Sequence[Reading]) -> None:
        """Refuse a declaration whose new name no input has.

        Raises:
            ConfigurationError: there is one.
        """
        columns = {name for rows in inputs for name in (*rows.names, *rows.keys, *rows.values)}
        for old, new in self.renamed.items():
            if _top(new) not in columns:
                hint = did_you_mean(new, columns)
                raise InvalidEvolutionError(
                    f"renamed says that {old!r} is {new!r} now, but no input has a {new!r}{hint}"
                )


@dataclass(frozen=True)
class KeptSchemas(Packing):
    """The schemas of what one verb keeps.

    Attributes:
        job: the part of the job that is the verb's.
        name: the verb's.
        changes: what the user declares of the inputs' columns.
        kept: whether the verb leaves state; without that, nothing is compared or kept.
        by_place: the histories so far; each input that is described adds its own.
    """

    job: Job
    name: str
    changes: ColumnChanges
    kept: bool
    by_place: dict[str, Schemas] = field(default_factory=dict)

    def note_expressions(self, inputs: Sequence[Described]) -> None:
        """Note what the rows of the state are put with: times, operations, orders and arguments of calls.

        Raises:
            StateConflictError: the state has rows that were put with others.
        """
        for rows in filter(self._stores, inputs):
            place = Beside.EXPRESSIONS.place(rows.role)
            kept = self._before(place)
            before = {} if kept is None else kept_in(kept.current.names)
            now = rows.expressions
            self._check_expressions(before, now)
            pairs = {name_of(name, one): name_of(name, now[name]) for name, one in before.items() if name in now}
            renamed = {old: new for old, new in pairs.items() if old != new}
            self._note(place, kept_as({**before, **now}), renamed)

    def keys(self, rows: Reading) -> KeyCodec:
        """Return the codec of an input's keys; their names and types are kept with the state.

        Raises:
            StateConflictError: the state has keys of other columns, or of other types.
        """
        return self._fixed(rows, Beside.KEY, packed_key(rows))

    def rows(self, rows: Reading) -> Schemas:
        """Return the schemas of an input's rows, the newest one last; they are kept with the state.

        Raises:
            StateConflictError: the state has rows that cannot be read with these columns.
        """
        return self._evolved(rows.role, rows.schema(rows.values)) if self._stores(rows) else super().rows(rows)

    def foreign(self, rows: Reading) -> KeyCodec | None:
        """Return the codec of an input's foreign keys, if it has some.

        Raises:
            StateConflictError: the state has foreign keys of other columns, or of other types.
        """
        return self._fixed(rows, Beside.FOREIGN, rows.key_schema(rows.foreign)) if rows.foreign else None

    def order(self, rows: Reading) -> KeyCodec | None:
        """Return the codec of the order among rows of one key and time, if there is one.

        Raises:
            ConfigurationError: it has no order.
            StateConflictError: the state has orders of another type.
        """
        return self._fixed(rows, Beside.ORDER, packed_order(rows)) if rows.ordered else None

    def times(self, rows: Reading) -> pa.DataType:
        """Return the type of the times of one of the inputs; it is kept with the state.

        Raises:
            StateConflictError: the state has times of the other type.
        """
        self._fixed(rows, Beside.TIME, pa.schema([("time", rows.times)]))
        return rows.times

    def beside(
        self,
        rows: Reading,
        what: Beside,
        first: Callable[[], pa.Schema],
        evolved: Callable[[Schemas], Schemas],
    ) -> Schemas | None:
        """Return the history of what lies beside the rows of one of the inputs; None where these do not stay in state.

        Args:
            rows: the input.
            what: the kind of schema beside the rows.
            first: its columns, where it begins.
            evolved: the history that goes on.
        """
        if not self._stores(rows):
            return None
        place = what.place(rows.role)
        before = self._before(place)
        if before is None:
            return self._note(place, first())
        self.by_place[place] = evolved(before)
        return self.by_place[place]

    def _stores(self, rows: Reading) -> bool:
        """Return whether rows of that input stay in state, so that a later run has to read them."""
        return self.kept and rows.stored

    def _check_expressions(self, before: Mapping[str, Expression], now: Mapping[str, Expression]) -> None:
        """Refuse an expression that is another than before. What was all upserts may get operations."""
        for name, old in before.items():
            new = now.get(name)
            if new is None and not name.partition("[")[0].endswith("op"):
                continue  # The state has another shape then, or other calls.
            if new is None or not new.follows(old, self.changes.renamed):
                columns = new is not None and new.release is None and old.release is None
                back = f" (if the column has been renamed: .withColumnRenamed({new}, {old}))" if columns else ""
                raise CallChangedError(
                    f"the verb {self.name!r} has {name}={new}, but the rows in the state of "
                    f"{self.job.application_id!r} were put with {name}={old}; write {name}={old} again{back}, or "
                    f"{self._begin_anew}"
                )

    def _fixed(self, rows: Reading, what: Beside, columns: pa.Schema) -> KeyCodec:
        """Return the codec of columns that stay what they are as long as the state, but for names that are declared."""
        if not self._stores(rows):
            return KeyCodec(columns)
        place, shown = what.place(rows.role), _SHOWN.get(what, what.value)
        before = self._before(place)
        if before is None:
            self._note(place, columns)
        elif key_kinds(before.current) != key_kinds(columns):
            raise CallChangedError(
                f"the {shown} of {rows.role!r} is ({listed_key(columns)}), but the state of "
                f"{self.job.application_id!r} has {shown}s of ({listed_key(before.current)}); "
                f"{self._as_before(what, before.current, columns)}"
            )
        elif before.current.names != columns.names:
            self._rename(rows.role, what, before.current, columns)
        else:
            self.by_place[place] = before
        return KeyCodec(columns)

    def _rename(self, role: str, what: Beside, before: pa.Schema, columns: pa.Schema) -> None:
        """Note the new names of columns that are fixed, if the user has declared them.

        Raises:
            StateConflictError: they are not the same columns.
        """
        pairs = {old: new for old, new in zip(before.names, columns.names, strict=True) if old != new}
        if any(self.changes.renamed.get(old) != new for old, new in pairs.items()):
            shown = _SHOWN.get(what, what.value)
            back = "".join(f".withColumnRenamed({new!r}, {old!r})" for old, new in pairs.items())
            raise CallChangedError(
                f"the {shown} of {role!r} is ({listed_key(columns)}), but the rows in the state of "
                f"{self.job.application_id!r} were put by ({listed_key(before)}); write these columns again (if they "
                f"have been renamed: {back}), or {self._begin_anew}{self._rows_along(what)}"
            )
        fields = zip(before, columns.names, strict=True)
        renamed = pa.schema([column.with_name(name) for column, name in fields])
        self._note(what.place(role), renamed, pairs)

    def _evolved(self, role: str, schema: pa.Schema) -> Schemas:
        """Return the history of the schemas of an input's rows in the state, with ``schema`` as the newest."""
        before = self._before(role)
        known = {*schema.names, *(() if before is None else before.current.names)}
        renamed = {old: new for old, new in self.changes.renamed.items() if known & {_top(old), _top(new)}}
        dropped = [old for old in self.changes.dropped if _top(old) in known]
        return self._note(role, schema, renamed, dropped)

    def _before(self, place: str) -> Schemas | None:
        """Return the history of a place's schemas; None if no rows are of them, as far as can be told now."""
        return kept_schemas(self.job.storage, self.job.begun_as, place) if self.job.reached else None

    def _note(
        self, place: str, schema: pa.Schema, renamed: Mapping[str, str] = _NOTHING, dropped: Collection[str] = ()
    ) -> Schemas:
        """Return the history of a place's schemas with ``schema`` as the newest, to be kept with the first row.

        Raises:
            StateConflictError: rows of the schemas so far cannot be read as rows of this one.
        """
        storage, application_id = self.job.storage, self.job.begun_as
        known = self.job.reached
        self.by_place[place] = (
            next_schemas(storage, application_id, place, schema, renamed, dropped) if known else Schemas.first(schema)
        )
        return self.by_place[place]

    def _as_before(self, what: Beside, before: pa.Schema, columns: pa.Schema) -> str:
        """Return the line to write where columns that are fixed have other types, or are more or fewer."""
        types = dict(zip(before.names, key_kinds(before), strict=True))
        cast = [name for name, kind in zip(columns.names, key_kinds(columns), strict=True) if types.get(name) != kind]
        if set(columns.names) != set(before.names) or not cast:
            again = _again(before.names, grouped=GROUPING_ID not in columns.names)
            return f"write {again} again, or {self._begin_anew}{self._rows_along(what)}"
        if what in (Beside.TIME, Beside.ORDER):
            return f"cast it: (...).cast({type_name(before.field(0))!r}), or {self._begin_anew}"
        lines = (f".withColumn({name!r}, F.col({name!r}).cast({type_name(before.field(name))!r}))" for name in cast)
        return f"cast the columns: {''.join(lines)}, or {self._begin_anew}"

    @property
    def _begin_anew(self) -> str:
        """The line to write for a verb that is to go on without its state."""
        return f"give the verb another name, and drop the old one: {declaration(None, dropped=[self.name])}"

    def _rows_along(self, what: Beside) -> str:
        """Return the line to write for a verb that has another key, and is to begin with the rows of its state."""
        if what is not Beside.KEY:
            return ""
        rekeyed = declaration(None, rekeyed={"<the other name>": self.name})
        return f"; to begin with its rows, as far as they are there: {rekeyed}"


def _top(path: str) -> str:
    """Return the column of a path such as ``address.street``."""
    return path.partition(".")[0]


def _again(names: Sequence[str], *, grouped: bool) -> str:
    """Return the columns as a user writes them again.

    Args:
        names: the columns.
        grouped: whether that they are those of grouping sets is to be told, if so they are.
    """
    given = [name for name in names if name != GROUPING_ID]
    if grouped and given != list(names):
        return f"the grouping sets of {', '.join(given)}"
    return f"the columns {', '.join(given)}" if given else "by=[]"
