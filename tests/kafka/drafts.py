"""A random topology while it is made: operators are added one by one, and what each of them makes has a name.

Rule of this module: it knows what may follow what, and nothing of families of topologies.
"""

from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final, Literal, TypeVar

KEYS: Final = "abcd"
VALUES: Final = ("a1", "b22", "c3", "d:x4", "a:y", "bb", "c", "a9", "d", "bc7")

T = TypeVar("T")
Kind = Literal["stream", "table", "global", "grouped", "windowed"]


@dataclass(frozen=True)
class Part:
    """The product of an operator.

    Attributes:
        id: its name.
        kind: what it is.
        value: ``string`` or ``long``.
        windowed: whether its keys are windows.
        plain: whether its values are as they were read, or shorter: numbers in them are small.
        versioned: whether it is a table that a versioned store holds.
        table: of what is grouped: whether it was a table.
        held: the operators that have held its records back.
    """

    id: str
    kind: Kind
    value: str = "string"
    windowed: bool = False
    plain: bool = True
    versioned: bool = False
    table: bool = False
    held: frozenset[str] = frozenset()

    def then(self, id_: str, **changes: Any) -> "Part":
        """Return what an operator makes of it, if nothing but this changes."""
        return replace(self, id=id_, **changes)


@dataclass(frozen=True)
class Topic:
    """The content of a source topic.

    Attributes:
        nulls: the share of null values.
        keyless: the share of null keys.
        calls: the kind of store that its values are calls of; None if they are words.
        distinct_times: no two records of a key have the same time.
    """

    nulls: float = 0.1
    keyless: float = 0.0
    calls: str | None = None
    distinct_times: bool = False


class Draft:
    """A topology that grows.

    Args:
        rng: chooses.

    Attributes:
        operators: those added, in order.
        topics: what each source topic gets.
    """

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.operators: list[dict[str, Any]] = []
        self.topics: dict[str, Topic] = {}
        self._sinks = 0

    def add(self, op: str, **fields: Any) -> str:
        """Add an operator; its name. Fields that are None are left out."""
        id_ = f"n{len(self.operators)}"
        given = {name: value for name, value in fields.items() if value is not None}
        self.operators.append({"op": op, "id": id_, **given})
        return id_

    def act(self, op: str, **fields: Any) -> None:
        """Add an operator that makes nothing of its own."""
        self.operators.append({"op": op, **fields})

    def new_topic(self, topic: Topic) -> str:
        name = f"t{len(self.topics)}"
        self.topics[name] = topic
        return name

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def choose(self, *options: T) -> T:
        return self.rng.choice(options)

    # Sources and sinks

    def stream(self, topic: Topic = Topic()) -> Part:
        return Part(self.add("stream", topic=self.new_topic(topic)), "stream")

    def table(self, store: str | None = "any", topic: Topic = Topic()) -> Part:
        """Return a table of a topic; ``store`` as for ``materialized``."""
        given = self.materialized(store)
        versioned = given is not None and given["kind"] == "versioned"
        if versioned:
            topic = Topic(nulls=topic.nulls, distinct_times=True)
        return Part(self.add("table", topic=self.new_topic(topic), materialized=given), "table", versioned=versioned)

    def global_table(self) -> Part:
        return Part(self.add("globalTable", topic=self.new_topic(Topic())), "global")

    def to(self, *parts: Part) -> None:
        for part in parts:
            self.act("to", input=part.id, topic=f"out{self._sinks}")
            self._sinks += 1

    def materialized(self, store: str | None) -> dict[str, Any] | None:
        """Return ``kv``, ``versioned`` or ``None``; ``any`` is one of these."""
        if store == "any":
            store = self.choose(None, "kv", "versioned")
        if store is None:
            return None
        given: dict[str, Any] = {"kind": store, "name": f"s{len(self.operators)}"}
        if store == "versioned":
            given["history_retention_ms"] = self.choose(0, 10, 30, 100, 10_000)
        return given

    # Records one by one

    def predicate(self, part: Part) -> str:
        options = ["not_null", "always", "key_ne:a", "number_even", "number_gt:3"]
        if part.value == "string":
            options += ["value_len_even", "value_lt:b", "value_ge:b", "value_contains:a", "never"]
        if part.windowed:
            options.remove("key_ne:a")
        if not part.plain:
            options = [name for name in options if not name.startswith("number")]
        return self.choose(*options)

    def mapper(self, part: Part) -> str:
        if part.value == "long":
            return self.choose("identity", "str")
        options = ["identity", "upper", "prefix:b", "suffix:7", "first_char", "to_null_if_len_odd"]
        options += ["to_null_if_contains:b", "after_colon", "str", *(["number"] if part.plain else [])]
        return self.choose(*options)

    def selector(self, part: Part) -> str:
        if part.value == "long":
            return self.choose("number_mod:3", "const:a", "value")
        options = ["value_first_char", "const:a", "value", "value_prefix_before_colon", "value_first_char_or_null:b"]
        options += ["number_mod:3"] if part.plain else []
        options += [] if part.windowed else ["key"]
        return self.choose(*options)

    def mapped(self, part: Part, op: str, mapper: str, **fields: Any) -> Part:
        id_ = self.add(op, input=part.id, mapper=mapper, **fields)
        name = mapper.partition(":")[0]
        value = "long" if name == "number" else part.value if name in ("identity", "default") else "string"
        plain = part.plain and name not in ("prefix", "suffix")
        store = fields.get("materialized")
        versioned = part.versioned if store is None else store["kind"] == "versioned"
        return part.then(id_, value=value, plain=plain, versioned=versioned)

    def stateless(self, part: Part) -> Part:
        """Add one random operator on a stream, which leaves its keys alone."""
        op = self.choose("filter", "filterNot", "mapValues", "mapValues", "flatMapValues")
        if op in ("filter", "filterNot"):
            return part.then(self.add(op, input=part.id, predicate=self.predicate(part)))
        if op == "mapValues":
            mapper = self.choose(self.mapper(part), "default:z") if part.value == "string" else self.mapper(part)
            return self.mapped(part, op, mapper)
        return part.then(self.add(op, input=part.id, copies=self.rng.randrange(3)), value="string", plain=False)

    def rekeyed(self, part: Part) -> Part:
        """Return a stream with other keys."""
        if part.windowed:
            return part.then(self.add("unwindow", input=part.id), windowed=False)
        if self.chance(0.3):
            return self.mapped(part, "map", self.mapper(part), selector=self.selector(part))
        return part.then(self.add("selectKey", input=part.id, selector=self.selector(part)))

    def without_nulls(self, part: Part) -> Part:
        """Return a stream without null values: windowed aggregations of Kafka Streams would take them for values."""
        return part.then(self.add("filter", input=part.id, predicate="not_null"))

    def table_step(self, part: Part, store: str | None = "any") -> Part:
        """Add one random operator on a table, which leaves its keys alone."""
        given = None if part.windowed else self.materialized(store)
        op = self.choose("filter", "filterNot", "mapValues", "transformValues")
        if op in ("filter", "filterNot"):
            versioned = part.versioned if given is None else given["kind"] == "versioned"
            id_ = self.add(op, input=part.id, predicate=self.predicate(part), materialized=given)
            return part.then(id_, versioned=versioned)
        mapper = self.mapper(part)
        if op == "transformValues" and part.value == "string" and self.chance(0.5):
            mapper = "default:z"
        return self.mapped(part, op, mapper, materialized=given)

    def updates(self, table: Part) -> Part:
        """Return the updates of a table, as a stream."""
        return table.then(self.add("toStream", input=table.id), kind="stream", versioned=False)

    def latest(self, stream: Part) -> Part:
        """Return the table that a stream's records make."""
        store = self.materialized(self.choose(None, "kv"))
        return stream.then(self.add("toTable", input=stream.id, materialized=store), kind="table")

    # Joins

    def joiner(self) -> str:
        return self.choose("concat", "concat_key")

    def join(self, this: Part, other: Part, type_: str, **fields: Any) -> Part:
        """Return a join of any kind but by a foreign key or with a global table; ``materialized`` for tables only."""
        keyless = this.kind == "table"
        joiner = "concat" if keyless or this.windowed else self.joiner()
        id_ = self.add("join", this=this.id, other=other.id, type=type_, joiner=joiner, **fields)
        store = fields.get("materialized")
        versioned = store is not None and store["kind"] == "versioned"
        held = this.held | other.held
        return this.then(id_, value="string", plain=False, versioned=versioned, held=held)

    def join_window(self, *, eager: bool = False) -> dict[str, Any]:
        before, after = self.choose(0, 5, 10, 20), self.choose(0, 5, 10, 20)
        grace = self.choose(0, 5, 20) if before + after else self.choose(5, 20)
        window = {"kind": "join", "before_ms": before, "after_ms": after, "grace_ms": grace}
        return window | ({"eager": True} if eager else {})

    # Aggregations

    def grouped(self, part: Part) -> Part:
        """Return a stream or a table, grouped by its key or by another."""
        if part.kind == "stream" and not part.windowed and self.chance(0.5):
            return part.then(self.add("groupByKey", input=part.id), kind="grouped")
        id_ = self.add("groupBy", input=part.id, selector=self.selector(part))
        return part.then(id_, kind="grouped", windowed=False, versioned=False, table=part.kind == "table")

    def window(self, kind: str) -> dict[str, Any]:
        grace = self.choose(0, 5, 20, 60)
        size = self.choose(5, 10, 30)
        if kind == "session":
            return {"kind": kind, "gap_ms": size, "grace_ms": grace}
        if kind == "sliding":
            return {"kind": kind, "difference_ms": size, "grace_ms": grace}
        if kind == "hopping":
            return {"kind": kind, "size_ms": size, "advance_ms": self.choose(2, 3, 5), "grace_ms": grace}
        return {"kind": kind, "size_ms": size, "grace_ms": grace}

    def any_window(self) -> dict[str, Any]:
        return self.window(self.choose("tumbling", "hopping", "sliding", "session"))

    def windowed(self, part: Part, window: dict[str, Any], emit: str | None = None) -> Part:
        id_ = self.add("windowedBy", input=part.id, window=window, emit=emit)
        return part.then(id_, kind="windowed", windowed=True)

    def aggregated(self, part: Part, materialized: dict[str, Any] | None = None, *, session: bool = False) -> Part:
        """Return a count, a reduction or an aggregate of what is grouped."""
        op = self.choose("count", "reduce", "aggregate")
        fields: dict[str, Any] = {"input": part.id, "materialized": materialized}
        versioned = materialized is not None and materialized["kind"] == "versioned"
        table = part.then("", kind="table", versioned=versioned)
        if op == "count":
            return table.then(self.add(op, **fields), value="long", plain=True)
        if op == "reduce":
            return table.then(self.add(op, **fields, **self._reducers(part)), plain=False)
        numbers = part.plain and self.chance(0.4)
        add, subtract, merge = self.choose(*([("sum", "sub", "sum_merge")] if numbers else _TEXTS))
        fields |= {"initializer": "zero" if numbers else "empty", "adder": add}
        fields |= {"subtractor": subtract} if part.table else {}
        fields |= {"merger": merge} if session else {}
        return table.then(self.add(op, **fields), value="long" if numbers else "string", plain=numbers)

    def _reducers(self, part: Part) -> dict[str, str]:
        words = part.value == "string"
        if part.table:
            adder, subtractor = ("reduce_concat", "reduce_concat_sub") if words else ("reduce_last", "reduce_first")
            return {"adder": adder, "subtractor": subtractor}
        numeric = ("reduce_last", "reduce_first")
        return {"adder": self.choose(*numeric, "reduce_concat", "reduce_max") if words else self.choose(*numeric)}


_TEXTS: Final = (
    ("concat_add", "concat_sub", "concat_merge"),
    ("concat_key_add", "concat_sub", "concat_merge"),
    ("set_add", "set_remove", "set_merge"),
    ("set_add", "set_remove_null", "set_merge"),
)
