"""Edits and looks at a stopped query's state that are refused, each followed by what the message advises."""

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from millpond.adapters.edit import EditReport, StateEditor, erase
from millpond.adapters.inspect import StateInspector
from millpond.adapters.inspect.columns import shown
from millpond.errors import ConfigurationError
from tests.edit.test_editing import KEY, at, editor
from tests.inspect.checkpoints import Query
from tests.inspect.test_state_inspector import filled
from tests.refusing import Refused

ROW = {"key": KEY, "value": 3}


class Stopped:
    """A query that has run two micro-batches."""

    def __init__(self, directory: Path) -> None:
        self.query: Query = filled(directory)

    def put(self, store: str, *, ahead: bool = False, **row: Any) -> None:
        with editor(self.query) as edits:
            assert edits.put(store, [{**ROW, **row}], ahead=ahead) == 1

    def delete(self, store: str, **window: Any) -> None:
        with editor(self.query) as edits:
            assert edits.delete(store, KEY, **window)

    def edited(self, *, committed: bool) -> StateEditor:
        edits = editor(self.query)
        edits.put("plain", [ROW])
        if committed:
            assert len(edits.commit()) == 1
        return edits

    def edited_and_undone(self) -> list[EditReport]:
        self.edited(committed=True)
        with editor(self.query) as another:
            another.put("plain", [ROW])
        return editor(self.query).undo()

    def inspector(self, **given: Any) -> StateInspector:
        return self.query.inspector(**given)


EDITS = [
    Refused(
        "nobody is named who edits the state; give by=..., as in by='ann'",
        lambda stopped: editor(stopped.query, by=""),
        lambda stopped: editor(stopped.query, by="ann").close(),
    ),
    Refused(
        "nobody is named who erases; give by=..., as in by='ann'",
        lambda stopped: erase(stopped.inspector(), [KEY], by=""),
        lambda stopped: erase(stopped.inspector(), [KEY], by="ann"),
    ),
    Refused(
        "and by or why has a key that is erased; leave it out",
        lambda stopped: erase(stopped.inspector(), [KEY], by="ann", why=f"{KEY} asks for it"),
        lambda stopped: erase(stopped.inspector(), [KEY], by="ann", why="somebody asks for it"),
    ),
    Refused(
        " and has no windows; leave window_start out to delete the key",
        lambda stopped: stopped.delete("plain", window_start=10),
        lambda stopped: stopped.delete("plain"),
    ),
    Refused(
        "there are edits that are not committed, and undo takes back one that is",
        lambda stopped: stopped.edited(committed=False).undo(),
        lambda stopped: (stopped.edited(committed=True), editor(stopped.query).undo()),
        lambda stopped: stopped.edited_and_undone(),
    ),
    Refused(
        ", and it knows the state from before; make a new one: StateEditor.at(...)",
        lambda stopped: stopped.edited(committed=True).put("plain", [ROW]),
        lambda stopped: (stopped.edited(committed=True), stopped.put("plain")),
    ),
    Refused(
        " ends before it begins; give a later valid_to",
        lambda stopped: stopped.put("versions", valid_from=at(5), valid_to=at(5)),
        lambda stopped: stopped.put("versions", valid_from=at(5), valid_to=at(6)),
    ),
    Refused(
        " keeps; give a later valid_from",
        lambda stopped: stopped.put("versions", valid_from=at(-5000)),
        lambda stopped: stopped.put("versions", valid_from=at(5)),
    ),
    Refused(
        " does not fit store ",
        lambda stopped: stopped.put("sessions", window_start=at(3)),
        lambda stopped: stopped.put("sessions", window_start=at(3), window_end=at(4)),
    ),
    Refused(
        " whose timestamp could stay; give ",
        lambda stopped: stopped.put("times", key="nobody"),
        lambda stopped: stopped.put("times", key="nobody", timestamp=at(1)),
    ),
    Refused(
        "give an earlier time, or put it with ahead=True",
        lambda stopped: stopped.put("versions", valid_from=at(500)),
        lambda stopped: stopped.put("versions", valid_from=at(5)),
        lambda stopped: stopped.put("versions", valid_from=at(500), ahead=True),
    ),
]
"""What is put, deleted or erased."""

LOOKS = [
    Refused(
        " and keeps no versions; leave as_of out, or look at an earlier micro-batch",
        lambda stopped: stopped.inspector().store("plain").get(KEY, as_of=5),
        lambda stopped: stopped.inspector().store("plain").get(KEY),
        lambda stopped: stopped.inspector().store("plain", batch=0).get(KEY),
    ),
    Refused(
        " and keeps no versions; get tells what it has for a key",
        lambda stopped: stopped.inspector().store("plain").history(KEY),
        lambda stopped: stopped.inspector().store("plain").get(KEY),
    ),
    Refused(
        " serde (\n); give text, a number, bytes in hexadecimal digits, or else JSON",
        lambda _: [shown(name, None).parse("[") for name in ("int64", "bytes", "msgpack")],
        lambda _: [
            shown(name, None).parse(text)
            for name, text in {"string": "[", "int64": "7", "bytes": "5b", "msgpack": '["a", 7]'}.items()
        ],
    ),
    Refused(
        "; give the query's checkpointLocation, and start the query first",
        lambda stopped: StateInspector.at(str(stopped.query.state), str(stopped.query.state)).stores(),
        lambda stopped: StateInspector.at(str(stopped.query.checkpoint), str(stopped.query.state)).stores(),
    ),
]
"""What is asked."""


@pytest.mark.parametrize("refused", [*EDITS, *LOOKS], ids=repr)
def test_what_is_refused_is_done_as_its_message_says(refused: Refused, tmp_path: Path) -> None:
    places = count()
    refused.check(lambda: Stopped(tmp_path / str(next(places))), ConfigurationError)
