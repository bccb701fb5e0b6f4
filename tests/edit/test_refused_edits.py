"""Edits and looks at a stopped query's state that are refused, each followed by what the message advises."""

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from functools import partial
from itertools import count
from pathlib import Path
from shutil import copytree, rmtree
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from millpond.adapters.edit import EditReport, StateEditor, erase
from millpond.adapters.inspect import StateInspector
from millpond.adapters.inspect.columns import shown
from millpond.adapters.inspect.store_view import StoreView
from millpond.errors import ConfigurationError
from millpond.processors import EmitStrategy, Materialized, StreamsBuilder, TimeWindows
from millpond.processors.distribution.plan import make_plan
from millpond.stores import StoreKind, StoreSpec
from millpond.stores.durability.manifests.schema_log import keep_schemas
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.typed.windows.windowed import Windowed
from tests.edit.test_commands import run
from tests.edit.test_editing import KEY, BothCheckpoint, at, editor
from tests.evolution.job import Job, Running
from tests.evolution.oracle import Record
from tests.evolution.topologies import SINK, TOPIC
from tests.inspect.checkpoints import SPECS, Query
from tests.inspect.test_state_inspector import fill, filled
from tests.inspect.test_state_inspector import shown as rows_of
from tests.refusing import Refused

ROW = {"key": KEY, "value": 3}
ORDER, PRICE = '["a", "2026-01-02"]', '{"n": 1, "price": "1.25"}'
FIRST, SECOND = {"shop": "a", "day": date(2026, 1, 2)}, {"shop": "a", "day": date(2026, 1, 3)}


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

    def holds(
        self, *values: int, of: StateInspector | None = None, batch: int | None = None, **which: str
    ) -> StoreView:
        """Return a store of that query has these values."""
        view = (of or self.inspector()).store("plain", batch=batch, **which)
        assert {row["value"] for row in rows_of(view)} == {*values}
        return view

    def begun(self, batches: int, **given: Any) -> Query:
        """Return another query on the same state, with a checkpoint of its own."""
        place = self.query.directory / "another"
        place.mkdir()
        (place / "state").symlink_to(self.query.state)
        made = Query(place, **given)
        for _ in range(batches):
            made.run(fill(0))
        return made

    def without_operators(self) -> StateInspector:
        rmtree(self.query.checkpoint / "state")
        return self.inspector()

    def without_records(self) -> StateInspector:
        rmtree(self.query.state / "app" / "evolution")
        return self.inspector()

    def of_two_applications(self) -> StateInspector:
        other = self.begun(1, application_id="other")
        checkpoint: Any = BothCheckpoint(self.query.storage, [*self.query.manifests, *other.manifests])
        return StateInspector(checkpoint, self.query.storage)

    def of_two_sinks(self) -> StateInspector:
        """Return one checkpoint in which each of two operators has the tasks."""
        other = self.begun(len(self.inspector().batches), sink="else")
        copytree(other.checkpoint / "state" / "0", self.query.checkpoint / "state" / "1")
        return self.inspector()


class OfVerbs:
    """A stopped query with rows of verbs by the keys of orders, and by those of shops."""

    def __init__(self, directory: Path, stores: Sequence[str] = ("orders", "shops")) -> None:
        self.query = Query(directory, [StoreSpec(one, StoreKind.KEY_VALUE, BYTES, BYTES) for one in stores])
        columns: dict[str, Any] = {"shop": pa.string(), "day": pa.date32()}
        columns |= {"n": pa.int64(), "price": pa.decimal128(4, 2)}
        values = ["n", "price"]
        names = {"orders-key": ["shop", "day"], "orders": values, "shops-key": ["shop"], "shops": values}
        schemas = {place: pa.schema([(one, columns[one]) for one in some]) for place, some in names.items()}
        kept = {place: Schemas.first(one) for place, one in schemas.items() if place.removesuffix("-key") in stores}
        keep_schemas(self.query.storage, "app", kept)
        self.query.run(lambda stores, mine: stores["orders"].put(b"x", b"x"))
        self.query.run(lambda stores, mine: stores["orders"].delete(b"x"))

    def put(self, key: str = ORDER, value: str = PRICE, store: str = "orders") -> None:
        run(self.query, "put", store, key, value)

    def gets(self, n: int = 1, price: str = "1.25") -> None:
        """Check what there is now of the first order."""
        assert self.rows() == [(FIRST, n, Decimal(price))]

    def rows(self, store: str = "orders") -> list[tuple[Any, ...]]:
        found = rows_of(self.query.inspector().store(store))
        return [(row["key"], row["value"]["n"], row["value"]["price"]) for row in found]

    def erase(self, *keys: Any) -> None:
        for key in (ORDER, '["a", "2026-01-03"]'):
            self.put(key)
        for key in ("a", "b"):
            self.put(key, store="shops")
        erase(self.query.inspector(), keys, by="ann")

    def keeps(self, orders: list[Any], shops: list[str]) -> None:
        assert sorted((key for key, *_ in self.rows()), key=repr) == sorted(orders, key=repr)
        assert sorted(key["shop"] for key, *_ in self.rows("shops")) == shops


EDITS = [
    Refused(
        "an edit needs the name of its author; give by=..., as in by='ann'",
        lambda stopped: editor(stopped.query, by=""),
        lambda stopped: editor(stopped.query, by="ann").close(),
    ),
    Refused(
        "an erasure needs the name of its author; give by=..., as in by='ann'",
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
        " keeps; give a later ",
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
        " and keeps no versions; leave as_of out, which is --as-of, or look at an earlier micro-batch",
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
    Refused(
        " has not committed a micro-batch yet; its stores can be read after the first one",
        lambda stopped: stopped.begun(0).inspector().stores(),
        lambda stopped: stopped.holds(0, of=stopped.begun(1, application_id="new").inspector()),
    ),
    Refused(
        "; look at one of these, of which Spark retains as many as spark.sql.streaming.minBatchesToRetain says",
        lambda stopped: stopped.holds(batch=3),
        lambda stopped: stopped.holds(0, batch=0),
        lambda stopped: stopped.holds(0, 1, 2, batch=2),
    ),
    Refused(
        "; give the checkpointLocation of a query that has some",
        lambda stopped: stopped.without_operators().stores(),
        lambda stopped: stopped.holds(0, 1, 2),
    ),
    Refused(
        "give the job's own state_dir; if it is that, start the query once with this release, which keeps records",
        lambda stopped: stopped.without_records().stores(),
        lambda stopped: stopped.holds(0, 1, 2),
        lambda stopped: (
            stopped.without_records(),
            Query(stopped.query.directory),
            stopped.holds(0, 1, 2),
        ),
    ),
    Refused(
        " stores \n; say which one: ",
        lambda stopped: stopped.holds(of=stopped.of_two_applications()),
        lambda stopped: stopped.holds(0, 1, 2, of=stopped.of_two_applications(), application_id="app", sink="out"),
        lambda stopped: stopped.holds(0, of=stopped.of_two_applications(), application_id="other", sink="out"),
    ),
    Refused(
        "; give those of one that there is: ",
        lambda stopped: stopped.holds(application_id="other"),
        lambda stopped: stopped.holds(0, 1, 2, application_id="app", sink="out"),
    ),
    Refused(
        "; give each sink a checkpoint of its own",
        lambda stopped: stopped.of_two_sinks().stores(),
        lambda stopped: stopped.holds(0, of=stopped.begun(1, sink="else").inspector()),
        lambda stopped: (stopped.begun(1, sink="else"), stopped.holds(0, 1, 2)),
    ),
    Refused(
        "; give the topology that the query runs: specs=topology.stores, which is --topology",
        lambda stopped: stopped.holds(of=stopped.inspector(specs={"plain": SPECS["times"]})),
        lambda stopped: stopped.holds(0, 1, 2, of=stopped.inspector(specs=SPECS)),
    ),
]
"""What is asked."""

PACKED = [
    Refused(
        "; give a value for each column, in order or by name",
        lambda verbs: verbs.put(key='["a"]'),
        lambda verbs: (verbs.put(), verbs.gets()),
        lambda verbs: (verbs.put(key='{"day": "2026-01-02", "shop": "a"}'), verbs.gets()),
    ),
    Refused(
        "; give a JSON object with its columns ",
        lambda verbs: verbs.put(value="n=1"),
        lambda verbs: (verbs.put(value=PRICE), verbs.gets()),
    ),
    *(
        Refused(
            "; give its \n as ",
            lambda verbs, wrong=wrong: verbs.put(value=wrong),  # type: ignore[misc]
            lambda verbs, right=right: (verbs.put(value=right), verbs.gets(2, "1.50")),  # type: ignore[misc]
        )
        for wrong, right in (
            ('{"n": "two", "price": "1.5"}', '{"n": 2, "price": "1.5"}'),
            ('{"n": 2.5, "price": "1.5"}', '{"n": "2", "price": "1.5"}'),
            ('{"n": 2, "price": 1.5}', '{"n": 2.0, "price": "1.5"}'),
        )
    ),
    Refused(
        "; give whole keys, each as the list of its values",
        lambda verbs: verbs.erase({"shop": "a"}),
        lambda verbs: (verbs.erase(["a"]), verbs.keeps([FIRST, SECOND], ["b"])),
        lambda verbs: (verbs.erase(["a", "2026-01-02"]), verbs.keeps([SECOND], ["a", "b"])),
    ),
]
"""What is put and erased by the columns of verbs."""


@pytest.mark.parametrize("refused", [*EDITS, *LOOKS], ids=repr)
def test_what_is_refused_is_done_as_its_message_says(refused: Refused, tmp_path: Path) -> None:
    places = count()
    refused.check(lambda: Stopped(tmp_path / str(next(places))), ConfigurationError)


def test_a_part_of_a_key_has_values_of_its_columns_and_stands_for_all_keys_that_have_them(tmp_path: Path) -> None:
    orders = OfVerbs(tmp_path, ["orders"])
    for key in (ORDER, '["a", "2026-01-03"]', '["b", "2026-01-03"]'):
        orders.put(key)
    for part, told in (({"day": "soon"}, "give its 'day' as date32"), ({"shop": 5}, "give its 'shop' as string \\[")):
        with pytest.raises(ConfigurationError, match=f"can be the key of no store: .* is no part of a key of .*{told}"):
            erase(orders.query.inspector(), [part], by="ann")
    erase(orders.query.inspector(), [{"day": "2026-01-03"}], by="ann")
    assert [key for key, *_ in orders.rows()] == [FIRST]
    erase(orders.query.inspector(), [{"shop": "a"}], by="ann")
    assert orders.rows() == []


@pytest.mark.parametrize("refused", PACKED, ids=repr)
def test_what_is_refused_of_verbs_is_done_as_its_message_says(refused: Refused, tmp_path: Path) -> None:
    places = count()
    refused.check(lambda: OfVerbs(tmp_path / str(next(places))), ConfigurationError)


def test_a_window_of_a_task_without_rows_is_put_once_one_has_come_and_comes_out(tmp_path: Path) -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="int64")
    windowed = builder.stream(TOPIC).group_by_key().windowed_by(TimeWindows(10))
    windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(Materialized("counts")).to(SINK)
    variant: Any = SimpleNamespace(plan=partial(make_plan, builder.build(), SINK, 3), checksums=False)
    job = Job(tmp_path)
    job.start(Running(variant, "memory"))
    job.run([Record("a", 1, 5), Record("b", 1, 25)])
    row = {"key": "g", "window_start": 30, "value": 4, "timestamp": 35}

    def put(inspector: StateInspector) -> None:
        with StateEditor(inspector, "ann", "") as edits:
            edits.put("counts", [row], ahead=True)
            edits.commit()

    with pytest.raises(ConfigurationError, match=r"has had no row yet.*; put it once one has come \["):
        job.edit(put)
    assert job.run([Record("g", 1, 29)]) == []
    job.edit(put)
    told: list[Any] = [(one.key, one.value) for one in job.run([Record("g", 1, 50)])]
    assert told == [(Windowed("g", 20, 30), 1), (Windowed("g", 30, 40), 4)]
