"""``Expression``: what a user gave for a parameter of a verb, in a form that can be kept and compared at a restart.

Rule of this module: an expression is the text by which Spark names it once it is analyzed, which is the same on Spark
Connect. There are no ids, aliases and qualifiers in it, and what differs between sessions is masked. So two that differ
are different, and two that are equal may still differ in what no text has, such as the code of a function.
Kept expressions are the columns of a schema, which have their parameters in their names::

    "time=at", "order=(at * 2) /* Spark 4.3 */"

Another release of Spark may name the same expression otherwise, so it says which one it was. A column is just its name.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Self

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_KEPT: Final = re.compile(r"(?P<text>.*?)(?: /\* Spark (?P<release>\d+\.\d+) \*/)?", re.DOTALL)
_PARAMETER: Final = re.compile(r"([a-z_]+(?:\['.*?'\])?)=(.*)", re.DOTALL)
_NAME_OF_CALL: Final = ("coalesce(", ")")
"""Around an expression, so that Spark names all of it: a cast, or an access to a field, has another name alone."""

_ALIAS: Final = re.compile(r" AS (\w+|`(?:[^`]|``)+`)$")
_OF_THE_SESSION: Final = (
    (re.compile(r"TIMESTAMP '[^']*'"), "TIMESTAMP '...'"),  # in its time zone
    (re.compile(r"\b(randn?|random)\(-?\d+\)"), r"\1(...)"),  # with a seed of its own, unless there is one
)


class Expression(NamedTuple):
    """A column, or an expression of columns.

    Attributes:
        text: the column's name, or what Spark calls the expression.
        release: the release of Spark that does, such as ``4.3``; None for a column.
    """

    text: str
    release: str | None = None

    @classmethod
    def of(cls, frame: DataFrame, column: str | Column) -> Self:
        """Return the expression that a user gave, for a DataFrame that has its columns."""
        if isinstance(column, str):
            return cls(column)
        before, after = _NAME_OF_CALL
        text = frame.select(F.coalesce(column)).columns[0].removeprefix(before).removesuffix(after)
        text = _ALIAS.sub("", text)
        for pattern, mask in _OF_THE_SESSION:
            text = pattern.sub(mask, text)
        if text in frame.columns:
            if not _stays_without(frame, text, column):
                return cls(text)
            text = f"'{text}'"
        return cls(text, ".".join(frame.sparkSession.version.split(".")[:2]))

    @classmethod
    def of_kept(cls, text: str) -> Self:
        """Return the expression that was kept as this text."""
        found = _KEPT.fullmatch(text)
        assert found is not None
        return cls(found["text"], found["release"])

    def follows(self, before: "Expression", renamed: Mapping[str, str]) -> bool:
        """Return whether it may be the same as what stood there before, under the new names of columns."""
        others = self.release is not None and before.release is not None and self.release != before.release
        return others or self.text == before._renamed(renamed)

    def _renamed(self, renamed: Mapping[str, str]) -> str:
        if self.release is None or not renamed:
            return renamed.get(self.text, self.text)
        names = "|".join(map(re.escape, sorted(renamed, key=len, reverse=True)))
        return re.sub(rf"(?<!\w)(?:{names})(?!\w)", lambda found: renamed[found[0]], self.text)

    def __str__(self) -> str:
        """As one writes it."""
        return repr(self.text) if self.release is None else f"F.expr({self.text!r})"

    @property
    def kept(self) -> str:
        """As it is kept."""
        return self.text if self.release is None else f"{self.text} /* Spark {self.release} */"


def _stays_without(frame: DataFrame, name: str, column: Column) -> bool:
    """Return whether a column of this name is a literal, which is named like the column: then it needs no column."""
    try:
        frame.drop(name).select(column)
    except AnalysisException:
        return False
    return True


def kept_as(expressions: Mapping[str, Expression]) -> pa.Schema:
    """Return the schema whose names hold the expressions of parameters."""
    return pa.schema([(name_of(parameter, one), pa.null()) for parameter, one in expressions.items()])


def name_of(parameter: str, expression: Expression) -> str:
    """Return the column of that schema."""
    return f"{parameter}={expression.kept}"


def kept_in(names: Iterable[str]) -> dict[str, Expression]:
    """Return the expressions that the names of a kept schema hold, by parameter."""
    found = {}
    for name in names:
        parameter = _PARAMETER.fullmatch(name)
        assert parameter is not None
        found[parameter[1]] = Expression.of_kept(parameter[2])
    return found
