"""Change feeds as tables: the keys by which a verb may keep one.

A delete shows only the columns by which rows of its feed replace each other. So in a table by any other key,
it does not say which row goes, and an update that moves a row to another key does not say so either.
"""

from collections.abc import Sequence

from millpond.processors.calls.readings import Column, Read, VerbRows


def key_of_feed(rows: VerbRows[Column, Read], key: Sequence[str], op: Column | None) -> str | None:
    """Return the key of a verb's change feed, as one writes it, if a table by another key would be wrong.

    Args:
        rows: the rows.
        key: the key of the table.
        op: the column with the operation, as the user gave it.

    Returns:
        None if the table has the key of the feed, or the rows are no feed with a known key.
    """
    feed = rows.told
    if feed is None or feed.row is None or not feed.tells(op) or set(feed.row) == set(key):
        return None
    return as_written(sorted(feed.row))


def as_written(names: Sequence[str]) -> str:
    """Return columns as a user gives them: one by its name, several as a list.

    >>> as_written(["id"]), as_written(["id", "rank"])
    ("'id'", "['id', 'rank']")
    """
    return repr(names[0]) if len(names) == 1 else repr(list(names))
