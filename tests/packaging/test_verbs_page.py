"""The page of verbs has every verb with every argument, as signatures and docstrings have them, and no others."""

import inspect
import re
from itertools import chain
from typing import Any

import pytest

pytest.importorskip("pyspark")

from docs.site import verbs
from millpond import processors
from millpond.processors.verbs import aggregates

TEXT = verbs.PAGE.read_text()
TABLES = dict(re.findall(r"<!-- arguments of (\w+) -->(.*?)<!-- end -->", TEXT, re.DOTALL))


def test_the_tables_say_what_the_docstrings_say() -> None:
    assert verbs.written(TEXT) == TEXT, "python -m docs.site.verbs writes them"


def test_every_verb_has_a_section_and_a_table_of_all_of_its_arguments() -> None:
    assert sorted(re.findall(r"^##+ `(\w+)`$", TEXT, re.MULTILINE)) == verbs.verbs()
    taken = {name: _taken(name) for name in [*verbs.verbs(), *(kind.__name__ for kind in verbs.KINDS)]}
    assert {name: _shown(table) for name, table in TABLES.items()} == {
        name: all_ for name, all_ in taken.items() if all_
    }


def _taken(name: str) -> set[str]:
    return set(chain.from_iterable(verbs.parameters(kind, name) for kind in verbs.KINDS))


def _shown(table: str) -> set[str]:
    cells = re.findall(r"^\| (`.+?`) \|", table, re.MULTILINE)
    return {argument for cell in cells for argument in re.findall(r"`(\w+)`", cell)}


def test_no_argument_is_named_that_does_not_exist() -> None:
    called: list[Any] = [getattr(room, name) for room in (processors, aggregates) for name in room.__all__]
    known = set(chain.from_iterable(map(_taken, TABLES)))
    known.update(chain.from_iterable(inspect.signature(one).parameters for one in called if callable(one)))
    written = set(re.findall(r"(?<![\w.])(\w+)=(?!=)", " ".join(re.findall(r"`([^`\n]+)`", TEXT))))
    assert written - known == set()


def test_an_argument_without_a_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Half:
        def verb(self, rows: object, *, key: str) -> None:
            """Do it.

            Args:
                rows: the rows.
            """

    monkeypatch.setattr(verbs, "KINDS", (Half,))
    with pytest.raises(ValueError, match=r"Half\.verb takes \['key', 'rows'\]; its docstring has \['rows'\]"):
        verbs.table("verb")
