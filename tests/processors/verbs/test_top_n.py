"""``top_n`` gives what DuckDB's ``row_number()`` gives, in whatever order and micro-batches the rows arrive."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import UnreadableRowError
from millpond.processors.aggregations.aggregate import Aggregate
from millpond.processors.distribution.execution import Decoder
from millpond.processors.options.cumulative_windows import CumulativeWindows
from millpond.processors.options.windows import SessionWindows, SlidingWindows, TimeWindows
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.tasks.task import Task
from millpond.processors.verbs.aggregate import Windows
from millpond.processors.verbs.encoding.null_keys import NullKeys
from millpond.processors.verbs.functions.top import STATE_SERDE, first_rows
from millpond.processors.verbs.top_n import INPUT_SERDE, OrderedRows, RankChanges, top_n
from millpond.processors.verbs.verb import Verb
from millpond.stores.backend.registry import supplier
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.typed.expiry import Expired
from tests.drawing import tries
from tests.processors.verbs.duck import answered
from tests.processors.verbs.running import Rows, records, running

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "formats.md").read_text()
KEYS = ("a", "b", None)
ROW_TYPES: list[tuple[str, pa.DataType]] = [
    ("id", pa.int64()),
    ("k", pa.string()),
    ("t", pa.int64()),
    ("x", pa.float64()),
    ("s", pa.string()),
]
ROWS = pa.schema(ROW_TYPES)
ORDERS = {
    "x asc nulls first": (["x"], (False,)),
    "x desc nulls last": (["x"], (True,)),
    "s desc nulls last, x asc nulls first": (["s", "x"], (True, False)),
    "s asc nulls first, x desc nulls last": (["s", "x"], (False, True)),
}
"""What DuckDB is asked, with the columns and directions of the verb. The id decides in the end."""

MILLISECOND = 1_000


def an_input(columns: Sequence[str], descending: Sequence[bool]) -> OrderedRows:
    """Return rows ordered by columns, and at last by their ids."""
    fields = [ROWS.field(name) for name in (*columns, "id")]
    return OrderedRows(
        "input",
        KeyCodec(pa.schema([ROWS.field("k")])),
        NullKeys.EQUAL,
        RowCodec(Schemas.first(pa.schema([ROWS.field(name) for name in ("id", "t", "x", "s")]))),
        order=KeyCodec(pa.schema([("order", pa.struct(fields))])),
        descending=(*descending, False),
    )


def with_order(rows: Rows, columns: Sequence[str]) -> list[dict[str, Any]]:
    return [{**row, "order": {name: row[name] for name in (*columns, "id")}} for row in rows]


def some_rows(chance: random.Random, most: int = 40) -> list[dict[str, Any]]:
    return [
        {
            "id": number,
            "k": chance.choice(KEYS),
            "t": chance.randint(-20, 60) * MILLISECOND,
            "x": chance.choice([None, float("nan"), 0.0, -0.0, float("inf"), -1.5, 2.5, 2.5]),
            "s": chance.choice([None, "", "a", "a\x01", "ab", "b"]),
        }
        for number in range(chance.randint(0, most))
    ]


def cut(rows: Rows, chance: random.Random) -> list[list[Any]]:
    """Return the rows in micro-batches of any size."""
    batches, rest = [], list(rows)
    while rest:
        size = chance.choice([1, 3, 40])
        batches.append(rest[:size])
        rest = rest[size:]
    return batches


def shown(changes: Rows) -> list[dict[str, Any]]:
    """Return the rows that a reader of the changes has in the end, who must have had each that is deleted."""
    held: dict[Any, Any] = {}
    for change in changes:
        window = change.get("window")
        place = change["k"], window and window["start"], change["rank"]
        if change["op"] == "delete":
            del held[place]
        else:
            assert held.get(place) != change["id"]
            held[place] = change["id"]
    return [
        {"k": k, "start": start, "rank": rank, "id": id_} for (k, start, rank), id_ in sorted(held.items(), key=repr)
    ]


def asked(query: str, rows: Rows) -> list[dict[str, Any]]:
    table = pa.Table.from_pylist(list(rows), ROWS)
    found = [dict(zip(("k", "start", "rank", "id"), row, strict=True)) for row in answered(query, r=table)]
    return sorted(found, key=lambda row: repr(((row["k"], row["start"], row["rank"]), row)))


def in_places(rows: Rows) -> list[str]:
    return sorted(map(repr, rows))


@pytest.mark.parametrize("descending", [False, True])
def test_texts_that_begin_alike_and_end_in_zero_bytes_are_different(descending: bool) -> None:
    """DuckDB 1.1 takes them for equal in a window."""
    texts = ["a\x00", "", "a\x00\x00", "ab", "a", "\x00", "a\x00b"]
    rows = [{"id": number, "k": "k", "t": 0, "x": None, "s": text} for number, text in enumerate(texts)]
    verb = top_n("top", an_input(["s"], [descending]), len(texts), None, columns=["id", "t"], final=False)
    with running(verb, "memory", INPUT_SERDE) as driver:
        for row in with_order(rows, ["s"]):
            driver.pipe({"input": [row]}, {"input": "t"})
        found = shown(driver.read())
    ranked = [one["id"] for one in sorted(found, key=lambda one: int(one["rank"]))]
    assert [texts[number] for number in ranked] == sorted(texts, reverse=descending)


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
@pytest.mark.parametrize("order", ORDERS)
def test_each_key_has_the_rows_that_row_number_gives_it(order: str, backend: str) -> None:
    columns, directions = ORDERS[order]
    for seed in range(tries(30 if backend == "memory" else 5)):
        chance = random.Random(seed)
        rows, n = some_rows(chance), chance.choice([1, 2, 5])
        verb = top_n("top", an_input(columns, directions), n, None, columns=["id", "t"], final=False)
        with running(verb, backend, INPUT_SERDE) as driver:
            for batch in cut(with_order(rows, columns), chance):
                driver.pipe({"input": batch}, {"input": "t"})
            found = shown(driver.read())
        query = f"""
            SELECT k, NULL AS start, row_number() OVER (PARTITION BY k ORDER BY {order}, id) AS rank, id FROM r
            QUALIFY rank <= {n}
        """
        assert in_places(found) == in_places(asked(query, rows)), seed


def test_a_state_is_what_the_page_of_formats_shows() -> None:
    codec = RowCodec(Schemas.first(pa.schema([("id", pa.int64())])))
    key, order = KeyCodec(pa.schema([ROWS.field("k")])), KeyCodec(pa.schema([("order", pa.float64())]))
    rows_of = OrderedRows("input", key, NullKeys.EQUAL, codec, order=order, descending=(True,))
    rows = [{"id": 1, "k": "a", "t": 0, "order": 2.5}, {"id": 2, "k": "a", "t": 0, "order": None}]
    section = PAGE.partition("## States of `top_n`\n")[2].partition("\n## ")[0]
    state = bytes.fromhex(section.split("```")[1])
    kept = first_rows("out", key, 2)
    found = kept.initializer()
    for value in records(rows_of, rows, "t", INPUT_SERDE).values:
        found = kept.update(b"key", value, found)
    assert STATE_SERDE.serialize(found) == state
    assert STATE_SERDE.deserialize(state) == found
    assert STATE_SERDE.name == "top-n-state-1: orders, rows"


@pytest.mark.parametrize("state", [[[b"order"], []], [[b"order"], [7]], [[7], [b"row"]], [7, 8]])
def test_a_damaged_state_is_told_as_such(state: Any) -> None:
    keys = KeyCodec(pa.schema([ROWS.field("k")]))
    kept = first_rows("out", keys, 2)
    (key,) = keys.pack(pa.table({"k": ["ann"]}))
    for one, shown in ((key, "k='ann'"), (b"key", "a key that cannot be read")):
        with pytest.raises(UnreadableRowError, match=f"^top_n 'out': the state or the row for {shown} cannot be read"):
            kept.update(one, (b"order", b"row"), state)


WINDOWS: dict[str, Windows] = {
    "tumbling": TimeWindows(20, grace=1000),
    "hopping": TimeWindows(20, advance=10, grace=1000),
    "cumulative": CumulativeWindows(20, 10, grace=1000),
    "sliding": SlidingWindows(10, grace=1000),
    "session": SessionWindows(5, grace=1000),
    "cut session": SessionWindows(5, grace=1000, max_length=12),
}
STARTS = {
    "tumbling": "SELECT *, t - ((t % 20000) + 20000) % 20000 AS start FROM r",
    "hopping": """
        SELECT *, t - ((t % 10000) + 10000) % 10000 - hop * 10000 AS start FROM r, range(2) AS hops(hop)
    """,
    "session": """
        SELECT *, min(t) OVER (PARTITION BY k, session) AS start FROM (
            SELECT *, sum(begins) OVER (PARTITION BY k ORDER BY t) AS session FROM (
                SELECT *, coalesce(t - lag(t) OVER (PARTITION BY k ORDER BY t) > 5000, true)::INT AS begins FROM r
            )
        )
    """,
}
STARTS["cut session"] = STARTS["session"].replace("PARTITION BY k", "PARTITION BY k, floor(t / 12000)")
"""The rows with each start of a window that they are in."""


def in_micros(changes: Rows) -> list[dict[str, Any]]:
    """Return the changes, with the starts of their windows as numbers."""
    return [{**row, "window": {"start": _micros(row["window"]["start"])}} for row in changes]


def _micros(time: Any) -> int:
    micros: Any = pa.scalar(time, pa.timestamp("us", "UTC"))
    return int(micros.value)


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
@pytest.mark.parametrize("kind", STARTS)
def test_each_window_has_the_rows_that_row_number_gives_it(kind: str, backend: str, final: bool) -> None:
    columns, directions = ["x"], (True,)
    for seed in range(tries(30 if backend == "memory" else 5)):
        chance = random.Random(seed)
        rows, n = some_rows(chance), chance.choice([1, 2, 5])
        verb = top_n("top", an_input(columns, directions), n, WINDOWS[kind], columns=["id", "t"], final=final)
        with running(verb, backend, INPUT_SERDE) as driver:
            for batch in cut(with_order(rows, columns), chance):
                driver.pipe({"input": batch}, {"input": "t"})
            driver.complete()
            changes = in_micros(driver.read())
        if final:
            assert not any("op" in row for row in changes)
            changes = [{**row, "op": "upsert"} for row in changes]
        query = f"""
            SELECT k, start, row_number() OVER (PARTITION BY k, start ORDER BY x DESC NULLS LAST, id) AS rank, id
            FROM ({STARTS[kind]}) QUALIFY rank <= {n}
        """
        assert in_places(shown(changes)) == in_places(asked(query, rows)), seed


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
@pytest.mark.parametrize("kind", [None, *WINDOWS])
def test_rows_that_are_equal_in_the_order_are_ranked_alike_in_any_order_and_micro_batches(
    kind: str | None, backend: str
) -> None:
    fields = [ROWS.field(name) for name in ("id", "t", "x", "s")]
    rows_of = OrderedRows(
        "input",
        KeyCodec(pa.schema([ROWS.field("k")])),
        NullKeys.EQUAL,
        RowCodec(Schemas.first(pa.schema(fields))),
        order=KeyCodec(pa.schema([("order", pa.float64())])),
        descending=(True,),
    )
    windows = None if kind is None else WINDOWS[kind]
    for seed in range(10 if backend == "memory" else 2):
        chance = random.Random(seed)
        rows = [{**row, "id": row["id"] % 3, "order": row["x"]} for row in some_rows(chance, 25)]
        answers = set()
        for _ in range(3):
            chance.shuffle(rows)
            verb = top_n("top", rows_of, 3, windows, columns=["id", "t", "s"], final=False)
            held: dict[Any, Any] = {}
            with running(verb, backend, INPUT_SERDE) as driver:
                for batch in cut(rows, chance):
                    driver.pipe({"input": batch}, {"input": "t"})
                for change in driver.read():
                    place = change["k"], repr(change.get("window")), change["rank"]
                    held[place] = change["id"], change["t"], change["s"]
                    if change["op"] == "delete":
                        del held[place]
            answers.add(repr(sorted(held.items(), key=repr)))
        assert len(answers) == 1, seed


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
@pytest.mark.parametrize("kind", [None, *STARTS])
def test_it_goes_on_after_a_restart_as_if_there_had_been_none(kind: str | None, backend: str, tmp_path: Path) -> None:
    columns, directions = ["s", "x"], (True, False)
    windows = None if kind is None else WINDOWS[kind]
    for seed in range(4):
        chance = random.Random(seed)
        batches = cut(with_order(some_rows(chance), columns), chance)
        verb = top_n("top", an_input(columns, directions), 2, windows, columns=["id", "t"], final=False)
        found: list[dict[str, Any]] = []
        for batch in batches:
            with running(verb, backend, INPUT_SERDE, local_dir=tmp_path / f"{kind}-{seed}") as driver:
                driver.pipe({"input": batch}, {"input": "t"})
                found += driver.read()
        with running(verb, backend, INPUT_SERDE) as driver:
            for batch in batches:
                driver.pipe({"input": batch}, {"input": "t"})
            expected = driver.read()
        assert [{**row, "sequence": 0} for row in found] == [{**row, "sequence": 0} for row in expected]


@pytest.mark.parametrize("expired", Expired)
def test_the_rows_of_a_key_expire_together_and_the_next_begins_anew(expired: Expired) -> None:
    rows = with_order(
        [
            {"id": 1, "k": "a", "t": 0, "x": 9.0, "s": None},
            {"id": 2, "k": "a", "t": 10, "x": 8.0, "s": None},
            {"id": 3, "k": "b", "t": 200, "x": 1.0, "s": None},
            {"id": 4, "k": "a", "t": 201, "x": 1.0, "s": None},
        ],
        ["x"],
    )
    verb = top_n("top", an_input(["x"], (True,)), 2, None, columns=["id"], final=False, ttl=100, expired=expired)
    with running(verb, serde=INPUT_SERDE) as driver:
        found = []
        for row in rows:
            driver.pipe({"input": [row]}, {"input": "t"})
            found += [(row["op"], row["k"], row["rank"], row["id"]) for row in driver.read()]
    told = [("delete", "a", 1, None), ("delete", "a", 2, None)] if expired is Expired.DELETE else []
    first = [("upsert", "a", 1, 1), ("upsert", "a", 2, 2)]
    assert sorted(found[2:-1], key=repr) == sorted([*told, ("upsert", "b", 1, 3)], key=repr)
    assert found[:2] == first
    assert found[-1] == ("upsert", "a", 1, 4)


def test_ranks_that_are_gone_are_deleted_before_others_hold_another_row() -> None:
    def of(*rows: tuple[int, str, int]) -> list[dict[str, Any]]:
        return with_order([{"id": id_, "k": key, "t": t, "x": float(id_), "s": None} for id_, key, t in rows], ["x"])

    verb = top_n(
        "top", an_input(["x"], (False,)), 2, None, columns=["id"], final=False, ttl=100, expired=Expired.DELETE
    )
    with running(verb, serde=INPUT_SERDE) as driver:
        driver.pipe({"input": of((1, "a", 0), (2, "a", 10))}, {"input": "t"})
        driver.read()
        driver.pipe({"input": of((3, "b", 200), (4, "a", 201))}, {"input": "t"})
        found = [(row["op"], row["rank"], row["id"]) for row in driver.read() if row["k"] == "a"]
    assert found == [("delete", 2, None), ("upsert", 1, 4)]


def test_a_micro_batch_has_one_change_for_each_rank_that_holds_another_row() -> None:
    def of(*ids: int) -> list[dict[str, Any]]:
        return with_order([{"id": id_, "k": "a", "t": 0, "x": float(id_), "s": None} for id_ in ids], ["x"])

    verb = top_n("top", an_input(["x"], (False,)), 3, None, columns=["id"], final=False)
    with running(verb, serde=INPUT_SERDE) as driver:
        found = []
        for batch in (of(5, 7, 6, 9), of(4, 8), of(5), of(9, 10), of(1, 2, 3)):
            driver.pipe({"input": batch}, {"input": "t"})
            found.append([(row["op"], row["rank"], row["id"]) for row in driver.read()])
    assert found == [
        [("upsert", 1, 5), ("upsert", 2, 6), ("upsert", 3, 7)],
        [("upsert", 1, 4), ("upsert", 2, 5), ("upsert", 3, 6)],
        [("upsert", 3, 5)],
        [],
        [("upsert", 1, 1), ("upsert", 2, 2), ("upsert", 3, 3)],
    ]


def as_columns(one: OrderedRows, rows: Rows) -> Columns:
    """Return what travels to the tasks of the rows."""
    times = pa.array([row["t"] for row in rows], pa.int64())
    table = pa.table(
        {
            "key": pa.array([{"k": row["k"]} for row in rows], pa.struct(list(one.keys.schema))),
            "value": pa.array([dict(row) for row in rows], pa.struct(list(one.rows.schemas.current))),
            "order": pa.array([{"order": row["order"]} for row in rows], pa.struct(list(ORDER_OF_X))),
            "timestamp": times,
        }
    )
    return Columns(one.keys_of(table), one.values_of(table), times.to_numpy())


ORDER_OF_X = pa.schema([("order", pa.struct([ROWS.field("x"), ROWS.field("id")]))])


def outcome(verb: Verb, runs: Sequence[Columns], *, whole: bool) -> Iterator[Any]:
    """Yield what comes out of each micro-batch, and what is stored then, as columns or as objects."""
    (part,) = verb.topology.subtopologies
    engine, decoder = supplier("memory").open(Path("unused")), Decoder("input", None, INPUT_SERDE)
    for run in runs:
        transaction = Transaction(engine)
        stores = {name: spec.open(transaction) for name, spec in part.stores.items()}
        task = Task(part, stores)
        task.process("input", decoder.decode(run if whole else run.to_batch()))
        task.flush()
        found = [records for records in task.take().get("top", []) if len(records)]
        made = [[column for one in verb.parts for column in one.of(records, 0)] for records in found]
        for store in stores.values():
            store.flush()
        transaction.commit()
        rows = [row for columns in made for row in pa.Table.from_arrays(columns, schema=verb.schema).to_pylist()]
        yield sorted(repr({**row, "sequence": 0}) for row in rows), list(engine.scan())


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("kind", [None, *WINDOWS])
def test_columns_give_what_objects_give_to_the_byte_of_every_state(
    kind: str | None, final: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind is None and final:
        return
    windows, rows_of = None if kind is None else WINDOWS[kind], an_input(["x"], (True,))
    verb = top_n("top", rows_of, 2, windows, columns=["id", "t"], final=final)
    for seed in range(6):
        chance = random.Random(seed)
        rows = with_order(some_rows(chance), ["x"])
        rows += [{**row, "id": row["id"] + 100, "t": row["t"] + 90_000, "k": "b"} for row in rows]
        runs = [as_columns(rows_of, batch) for batch in cut(rows, chance)]
        of_objects = list(outcome(verb, runs, whole=False))
        with monkeypatch.context() as patched:
            patched.setattr(RankChanges, "process", _refused)
            assert list(outcome(verb, runs, whole=True)) == of_objects, seed


def _refused(*_: Any) -> None:
    raise AssertionError("columns have become objects")


@pytest.mark.parametrize("expired", Expired)
def test_columns_give_what_objects_give_of_rows_that_expire(expired: Expired, monkeypatch: pytest.MonkeyPatch) -> None:
    rows_of = an_input(["x"], (True,))
    verb = top_n("top", rows_of, 2, None, columns=["id", "t"], final=False, ttl=15 * MILLISECOND, expired=expired)
    for seed in range(tries(30)):
        chance = random.Random(seed)
        rows = sorted(with_order(some_rows(chance), ["x"]), key=lambda row: int(row["t"]) + chance.randint(0, 9000))
        runs = [as_columns(rows_of, batch) for batch in cut(rows, chance)]
        of_objects = list(outcome(verb, runs, whole=False))
        with monkeypatch.context() as patched:
            patched.setattr(Aggregate, "process", _refused)
            assert list(outcome(verb, runs, whole=True)) == of_objects, seed
