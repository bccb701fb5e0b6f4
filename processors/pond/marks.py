"""Notes that verbs leave on the columns of their results, for the verb that reads them next.

Rule of this module: it alone knows where in a schema of Arrow they are. A library of data frames may lose them;
then a user says what the next verb would have known: ``op``, or a longer grace.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import pyarrow as pa

from millpond.processors.calls.account import Path
from millpond.processors.calls.feeds import FEED, feed_among, feed_marks
from millpond.processors.calls.made import Made
from millpond.processors.calls.tables import Rows

_BOUND: Final = "millpond.bound"

AnyRows = TypeVar("AnyRows", bound=Rows)
"""Rows, or a class of them that knows more."""


def noted(made: Made) -> pa.Schema:
    """Return the columns of a verb's result, with the notes on them."""
    marks: dict[Path, dict[str, Any]] = {path: {_BOUND: bound} for path, bound in made.account.marks.items()}
    for path, mark in ({} if made.feed is None else feed_marks(made.verb.name, made.feed, made.row)).items():
        marks.setdefault(path, {}).update(mark)
    return pa.schema([_with(one, marks.get((one.name,))) for one in made.verb.schema])


def rows_of(kind: type[AnyRows], role: str, schema: pa.Schema) -> AnyRows:
    """Return the rows of an input with these columns, by the notes on them."""
    bounds: dict[Path, int | None] = {(one.name,): _read(one, _BOUND) for one in schema}
    feed = feed_among({one.name: _read(one, FEED) for one in schema})
    plain = pa.schema([pa.field(one.name, one.type) for one in schema])
    return kind.of(role, plain, bounds, feed)


def _with(field: Any, mark: Mapping[str, Any] | None) -> Any:
    return field if mark is None else field.with_metadata({name: json.dumps(value) for name, value in mark.items()})


def _read(field: Any, name: str) -> Any:
    text = (field.metadata or {}).get(name.encode())
    return None if text is None else json.loads(text)
