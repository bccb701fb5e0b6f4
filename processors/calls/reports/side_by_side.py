"""Tables of rows of two sides, as text and as HTML.

Rule of this module: it lays texts out, and does not know what they say.
"""

from collections.abc import Collection, Mapping, Sequence
from html import escape
from typing import Any, Final

NOTHING: Final = "-"
"""Stands where a side has no row."""


def text_table(titles: Sequence[str], lines: Collection[Sequence[str]]) -> list[str]:
    """Return the lines of a table, each column as wide as its longest text.

    >>> text_table(["a", "b"], [["long", "x"]])
    ['a     b', 'long  x']
    """
    every = [titles, *lines]
    widths = [max(map(len, column)) for column in zip(*every, strict=True)]
    padded = ("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in every)
    return [line.rstrip() for line in padded]


def html_table(titles: Sequence[str], lines: Collection[Sequence[str]]) -> str:
    """Return the same for a notebook.

    >>> html_table(["a"], [["<"]])
    '<table><tr><th>a</th></tr><tr><td>&lt;</td></tr></table>'
    """
    tagged = [("th", titles), *(("td", line) for line in lines)]
    rows = ("".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) for tag, cells in tagged)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def row_cells(
    key: Mapping[str, Any], columns: Sequence[str], one: Mapping[str, Any] | None, other: Mapping[str, Any] | None
) -> Sequence[str]:
    """Return the texts of a pair of rows: its key, the columns that differ, and both sides.

    Args:
        key: the key; empty if rows have none.
        columns: the columns that differ; none if only one side has the row.
        one, other: the row on either side.

    >>> row_cells({"id": 1}, ("v",), {"id": 1, "v": 2}, {"id": 1, "v": 3})
    ('id=1', 'v', 'v=2', 'v=3')
    """
    shown = columns or tuple(one or other or ())
    sides = (_told({name: row[name] for name in shown}) if row else NOTHING for row in (one, other))
    return _told(key) or NOTHING, ", ".join(columns) or NOTHING, *sides


def _told(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in row.items())
