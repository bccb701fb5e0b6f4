"""The families of random topologies: each is a function that draws one, in a few lines.

Rule of this module: a family knows what belongs together. None leads where Kafka Streams and Millpond are declared to
differ in ways that leave nothing to compare.
"""

from collections.abc import Callable
from random import Random
from typing import Any, Final

from tests.kafka.drafts import Draft, Part, Topic
from tests.kafka.inputs import last_records, random_input

Family = Callable[[Draft], None]

SPARSE: Final = Topic(nulls=0.1, keyless=0.05)
"""A stream some of whose records have no key."""

LONG_RETENTION: Final = 1_000_000


def stateless(draft: Draft) -> None:
    stream = draft.stream(SPARSE)
    for _ in range(draft.rng.randint(1, 4)):
        stream = draft.choose(draft.stateless, draft.stateless, draft.rekeyed)(stream)
        if draft.chance(0.2) and stream.value == "string":
            stream = _branched(draft, stream)
    draft.to(stream)


def _branched(draft: Draft, stream: Part) -> Part:
    """Return the parts of a split stream; one of them goes out, and two are merged."""
    name = f"b{len(draft.operators)}"
    ids = [f"{name}-{number}" for number in range(3)]
    predicates = [draft.predicate(stream) for _ in ids[1:]]
    draft.act("branch", input=stream.id, name=name, predicates=predicates, ids=ids)
    first, second, third = map(stream.then, ids)
    draft.to(third)
    return stream.then(draft.add("merge", this=first.id, other=second.id))


def repartitions(draft: Draft) -> None:
    """Add streams that go through topics, one after the other or side by side."""
    stream = draft.rekeyed(draft.stream(SPARSE))
    again = stream.then(draft.add("repartition", input=stream.id))
    draft.to(again, draft.aggregated(draft.grouped(draft.rekeyed(again))))
    draft.to(draft.aggregated(draft.grouped(stream)))


def stream_stream_inner(draft: Draft) -> None:
    draft.to(_two_streams(draft, "inner"))


def stream_stream_outer(draft: Draft) -> None:
    draft.to(_two_streams(draft, draft.choose("left", "outer")))


def stream_stream_eager(draft: Draft) -> None:
    draft.to(_two_streams(draft, draft.choose("inner", "left", "outer"), eager=True))


def _two_streams(draft: Draft, type_: str, *, eager: bool = False) -> Part:
    this, other = draft.stream(SPARSE), draft.stream(SPARSE)
    if draft.chance(0.2):
        this = draft.stateless(this)
    if draft.chance(0.2):
        other = draft.rekeyed(other)
    if draft.chance(0.1):
        other = this
    return draft.join(this, other, type_, window=draft.join_window(eager=eager))


def stream_table(draft: Draft) -> None:
    table = draft.table()
    for _ in range(draft.rng.randrange(3)):
        table = draft.table_step(table)
    stream = draft.stream(SPARSE)
    if draft.chance(0.2):
        stream = draft.rekeyed(stream)
    draft.to(draft.join(stream, table, draft.choose("inner", "left")))


def stream_table_grace(draft: Draft) -> None:
    table = draft.table("versioned")
    grace = min(draft.choose(0, 5, 20), draft.operators[-1]["materialized"]["history_retention_ms"])
    draft.to(draft.join(draft.stream(), table, draft.choose("inner", "left"), grace_ms=grace))


def table_table(draft: Draft) -> None:
    tables = [draft.table() for _ in range(draft.rng.randint(2, 3))]
    joined = tables[0]
    for other in tables[1:]:
        if draft.chance(0.3):
            other = draft.table_step(other)
        store = draft.materialized("any")
        joined = draft.join(joined, other, draft.choose("inner", "left", "outer"), materialized=store)
    draft.to(joined)


def table_operators(draft: Draft) -> None:
    table = draft.table()
    for _ in range(draft.rng.randint(1, 4)):
        table = draft.table_step(table)
        if draft.chance(0.2):
            table = _through_a_stream(draft, table)
    draft.to(table)


def _through_a_stream(draft: Draft, table: Part) -> Part:
    """Return the table that the updates of a table make."""
    stream = draft.updates(table)
    return draft.latest(draft.rekeyed(stream) if draft.chance(0.5) else stream)


def foreign_key_inner(draft: Draft) -> None:
    draft.to(_foreign_key(draft, "inner"))


def foreign_key_left(draft: Draft) -> None:
    draft.to(_foreign_key(draft, "left"))


def _foreign_key(draft: Draft, type_: str) -> Part:
    this, other = draft.table(), draft.table()
    if draft.chance(0.3):
        other = draft.mapped(other, "mapValues", draft.choose("upper", "prefix:b", "to_null_if_contains:b"))
    extractor = draft.choose("value_first_char", "value_prefix_before_colon", "value_first_char_or_null:b")
    id_ = draft.add("fkJoin", this=this.id, other=other.id, type=type_, extractor=extractor, joiner="concat")
    return Part(id_, "table", plain=False)


def foreign_keys_of_one_table(draft: Draft) -> None:
    """Add joins by foreign keys whose sides have a table in common, or have met before."""
    table, other = draft.table("kv"), draft.table("kv")
    if draft.chance(0.5):
        draft.to(draft.join(table, other, draft.choose("inner", "left", "outer")))
    sides: list[Callable[[], Part]] = [
        lambda: draft.mapped(other, "transformValues", "default:z"),
        lambda: draft.join(table, table, "inner"),
        lambda: draft.join(other, table, draft.choose("inner", "left", "outer")),
        lambda: table,
    ]
    right = draft.choose(*sides)()
    type_ = draft.choose("inner", "left")
    id_ = draft.add("fkJoin", this=table.id, other=right.id, type=type_, extractor="value_first_char", joiner="concat")
    draft.to(table.then(id_))


def global_table(draft: Draft) -> None:
    table = draft.global_table()
    stream = draft.stream(SPARSE)
    selector = draft.choose("key", "value_first_char", "value_prefix_before_colon", "value_first_char_or_null:a")
    id_ = draft.add(
        "globalJoin",
        this=stream.id,
        other=table.id,
        type=draft.choose("inner", "left"),
        selector=selector,
        joiner=draft.joiner(),
    )
    draft.to(Part(id_, "stream", plain=False))


def stream_aggregations(draft: Draft) -> None:
    stream = draft.stream(SPARSE)
    if draft.chance(0.3):
        stream = draft.stateless(stream)
    table = draft.aggregated(draft.grouped(stream), draft.materialized("any"))
    draft.to(draft.table_step(table) if draft.chance(0.3) else table)


def table_aggregations(draft: Draft) -> None:
    table = draft.table()
    if draft.chance(0.4):
        table = draft.table_step(table)
    aggregated = draft.aggregated(draft.grouped(table), draft.materialized(draft.choose(None, "kv")))
    if draft.chance(0.3):
        aggregated = draft.aggregated(draft.grouped(aggregated))
    draft.to(aggregated)


def _windowed_count(draft: Draft, kind: str, emit: str | None = None) -> Part:
    window = draft.window(kind)
    grouped = draft.grouped(draft.without_nulls(draft.stream(Topic(keyless=0.05))))
    store: dict[str, Any] = {"kind": "session" if kind == "session" else "window", "name": "windows"}
    if emit or draft.chance(0.3):
        store["retention_ms"] = LONG_RETENTION
    elif draft.chance(0.5):
        return draft.aggregated(draft.windowed(grouped, window, emit), session=kind == "session")
    return draft.aggregated(draft.windowed(grouped, window, emit), store, session=kind == "session")


def time_windows(draft: Draft) -> None:
    _followed(draft, _windowed_count(draft, draft.choose("tumbling", "hopping")))


def sliding_windows(draft: Draft) -> None:
    draft.to(_windowed_count(draft, "sliding"))


def session_windows(draft: Draft) -> None:
    _followed(draft, _windowed_count(draft, "session"))


def _followed(draft: Draft, table: Part) -> None:
    """Write a windowed table out as it is, or through operators."""
    if draft.chance(0.3):
        table = draft.table_step(table)
    if draft.chance(0.3):
        table = draft.aggregated(draft.grouped(table))
    draft.to(table)


def final_results(draft: Draft) -> None:
    draft.to(_windowed_count(draft, draft.choose("tumbling", "hopping", "sliding", "session"), "window_close"))


def suppressed_windows(draft: Draft) -> None:
    kind = draft.choose("tumbling", "hopping", "session", "sliding")
    table = _windowed_count(draft, kind)
    # Sliding windows leave the buffer of Kafka Streams sooner, so it is full later.
    bounded = kind != "sliding" and draft.chance(0.3)
    full = {"max_records": draft.choose(1, 2, 5), "when_full": "shut_down"} if bounded else {}
    draft.to(table.then(draft.add("suppress", input=table.id, until="window_closes", **full)))


def suppressed_updates(draft: Draft) -> None:
    tables: list[Callable[[], Part]] = [
        lambda: draft.table("kv"),
        lambda: draft.table(None),
        lambda: draft.aggregated(draft.grouped(draft.stream())),
        lambda: _windowed_count(draft, draft.choose("tumbling", "session")),
    ]
    table = draft.choose(*tables)()
    suppressed = _suppressed(draft, table)
    if draft.chance(0.3):
        suppressed = draft.aggregated(draft.grouped(suppressed))
    elif draft.chance(0.5) and not table.windowed:
        suppressed = draft.join(suppressed, draft.table(), draft.choose("inner", "left", "outer"))
    draft.to(suppressed)


def _suppressed(draft: Draft, table: Part) -> Part:
    """Return the updates of a table that wait for some time, and perhaps in little room."""
    full: dict[str, Any] = {}
    if draft.chance(0.5):
        when_full = draft.choose("emit_early", "emit_early", "shut_down")
        full = {"max_records": draft.choose(1, 2, 5), "when_full": when_full}
    id_ = draft.add("suppress", input=table.id, until="time_limit", wait_ms=draft.choose(0, 5, 20, 60), **full)
    return table.then(id_, versioned=False, held=table.held | {id_})


def cogroups(draft: Draft) -> None:
    grouped = []
    for _ in range(draft.rng.randint(1, 3)):
        part = draft.grouped(draft.without_nulls(draft.stream(SPARSE)))
        grouped.append({"input": part.id, "aggregator": draft.choose("concat_add", "concat_key_add", "set_add")})
    cogrouped = draft.add("cogroup", inputs=grouped)
    kind = draft.choose(None, "tumbling", "hopping", "sliding", "session")
    fields: dict[str, Any] = {"merger": "concat_merge"} if kind == "session" else {}
    if kind is not None:
        cogrouped = draft.add("windowedBy", input=cogrouped, window=draft.window(kind))
    id_ = draft.add("aggregate", input=cogrouped, initializer="empty", **fields)
    draft.to(Part(id_, "table", windowed=kind is not None, plain=False))


def processors(draft: Draft) -> None:
    """Add processors with a store of their own, one that they share, and that of a table."""
    draft.act("store", name="own", kind="kv")
    stream = _processed(draft, draft.stream(SPARSE), "last_seen", store="own")
    draft.to(stream)
    if draft.chance(0.5):
        draft.to(_processed(draft, draft.stateless(draft.stream()), "last_seen", store="own"))
    if draft.chance(0.5):
        draft.table("kv")
        name = draft.operators[-1]["materialized"]["name"]
        draft.to(_processed(draft, draft.stream(SPARSE), "look_up", store=name))
    if draft.chance(0.5):
        draft.to(draft.aggregated(draft.grouped(stream)))


def _processed(draft: Draft, stream: Part, kind: str, **fields: Any) -> Part:
    if stream.value == "long":
        stream = draft.mapped(stream, "mapValues", "str")
    return stream.then(draft.add("process", input=stream.id, processor={"kind": kind, **fields}), plain=False)


def timers(draft: Draft) -> None:
    """Add a processor that acts by stream time or by the wall clock, and perhaps another after it."""
    draft.act("store", name="own", kind="kv")
    timing = {"interval_ms": draft.choose(1, 7, 20, 50), "clock": draft.choose("stream", "wall")}
    stream = draft.stream(SPARSE)
    if draft.chance(0.5):
        fired = _processed(draft, stream, "collect", store="own", **timing)
    else:
        times = {"times": draft.choose(1, 3)} if draft.chance(0.5) else {}
        fired = _processed(draft, stream, "tick", **timing, **times)
    if draft.chance(0.3):
        fired = _processed(draft, fired, "tick", interval_ms=13, clock=draft.choose("stream", "wall"))
    draft.to(fired)


def timers_behind_topics(draft: Draft) -> None:
    """Add processors that act by stream time in the tasks behind a repartition topic, and perhaps before it."""
    stream = draft.stream(SPARSE)
    if draft.chance(0.3):
        stream = _ticking(draft, stream)
    if draft.chance(0.3):
        other = draft.stream(SPARSE)
        stream = stream.then(draft.add("merge", this=stream.id, other=other.id), plain=stream.plain and other.plain)
    stream = draft.rekeyed(stream)
    stream = stream.then(draft.add("repartition", input=stream.id, apart=True))
    draft.act("store", name="own", kind="kv")
    timing = {"interval_ms": draft.choose(1, 7, 20, 50), "clock": "stream"}
    if draft.chance(0.5):
        fired = _processed(draft, stream, "collect", store="own", **timing)
    else:
        fired = _ticking(draft, stream)
    if draft.chance(0.4):
        again = draft.rekeyed(fired)
        fired = _ticking(draft, again.then(draft.add("repartition", input=again.id, apart=True)))
    draft.to(fired)


def _ticking(draft: Draft, stream: Part) -> Part:
    times = {"times": draft.choose(1, 3)} if draft.chance(0.5) else {}
    return _processed(draft, stream, "tick", interval_ms=draft.choose(3, 13, 40), clock="stream", **times)


def global_stores(draft: Draft) -> None:
    """Add a store that a processor fills for all tasks, and others that read it, also behind a repartition topic."""
    draft.add("addGlobalStore", name="everywhere", topic=draft.new_topic(Topic()))
    stream = _processed(draft, draft.stream(SPARSE), "peek", store="everywhere")
    draft.to(stream)
    if draft.chance(0.5):
        again = draft.rekeyed(stream)
        again = again.then(draft.add("repartition", input=again.id))
        draft.to(_processed(draft, again, "peek", store="everywhere"))


def chosen_topics(draft: Draft) -> None:
    """Add sinks whose topic a function chooses."""
    stream = draft.stream(SPARSE)
    for _ in range(draft.rng.randint(1, 2)):
        stream = draft.choose(draft.stateless, draft.rekeyed)(stream)
        _to_chosen(draft, input=stream.id)


def _to_chosen(draft: Draft, op: str = "to", **fields: Any) -> None:
    topics = [f"out{len(draft.operators)}-{number}" for number in range(draft.rng.randint(1, 3))]
    draft.act(op, extractor=draft.choose("by_key", "by_value"), topics=topics, **fields)


def nodes(draft: Draft) -> None:
    """Build a topology node by node: processors with several parents and children, shared stores, topics between."""
    draft.act("store", name="own", kind="kv")
    draft.act("store", name="held", kind="kv")
    timer: dict[str, Any] | None = None
    if draft.chance(0.5):
        timer = {"kind": draft.choose("tick", "collect"), "interval_ms": draft.choose(3, 13, 40), "clock": "stream"}
        timer |= {"store": "held"} if timer["kind"] == "collect" else {}
    if draft.chance(0.4):
        draft.add("addGlobalStore", name="everywhere", topic=draft.new_topic(Topic()))
    sources = 1 if timer else draft.rng.randint(1, 2)
    made = [draft.add("addSource", topic=draft.new_topic(Topic())) for _ in range(sources)]
    for _ in range(draft.rng.randint(1, 3)):
        made.append(_node(draft, made, timed=timer is not None))
    if timer:
        made.append(draft.add("addProcessor", parents=[draft.choose(*made)], processor=timer))
    for _ in range(draft.rng.randint(1, 3)):
        made.append(_node(draft, made, timed=timer is not None))
    ends = [name for name in made if not any(name in one.get("parents", ()) for one in draft.operators)]
    for number, name in enumerate(ends):
        if draft.chance(0.3):
            _to_chosen(draft, "addSink", name=f"sink{number}", parents=[name])
        else:
            draft.act("addSink", name=f"sink{number}", topic=f"out{number}", parents=[name])


def _node(draft: Draft, made: list[str], *, timed: bool) -> str:
    """Return a node more. Who routes goes to two that are made with it, and comes back together behind them.

    There is a timer, or a topic between nodes, and one of them: Kafka Streams' test driver has one stream time for all
    tasks, and takes what is due, or has come, at the same time in the order of a heap.
    """
    parents = draft.rng.sample(made, draft.choose(1, 1, min(2, len(made))))
    kinds: list[dict[str, Any]] = [
        {"kind": "last_seen", "store": "own"},
        {"kind": "rekey"},
    ]
    if any(operator["op"] == "addGlobalStore" for operator in draft.operators):
        kinds.append({"kind": "peek", "store": "everywhere"})
    topics = any(operator["op"] == "addRepartition" for operator in draft.operators)
    if not timed and not topics and draft.chance(0.3):
        return draft.add("addRepartition", parents=parents)
    if draft.chance(0.2):
        first = len(draft.operators)
        children = [f"n{first + 1}", f"n{first + 2}"]
        router = draft.add("addProcessor", parents=parents, processor={"kind": "route", "children": children})
        for _ in children:
            draft.add("addProcessor", parents=[router], processor=draft.choose(*kinds))
        return draft.add("addProcessor", parents=children, processor={"kind": "rekey"})
    return draft.add("addProcessor", parents=parents, processor=draft.choose(*kinds))


def stores(draft: Draft) -> None:
    kind = draft.choose("kv", "timestamped_kv")
    draft.act("store", name="own", kind=kind)
    draft.to(_processed(draft, draft.stream(Topic(calls=kind)), "call", store="own"))


def versioned_stores(draft: Draft) -> None:
    draft.act("store", name="own", kind="versioned", history_retention_ms=draft.choose(0, 20, 10_000))
    draft.to(_processed(draft, draft.stream(Topic(calls="versioned")), "call", store="own"))


def window_stores(draft: Draft) -> None:
    kind = draft.choose("window", "session")
    sizes = {"window_size_ms": 10} if kind == "window" else {}
    draft.act("store", name="own", kind=kind, retention_ms=draft.choose(10, 30, 10_000), **sizes)
    draft.to(_processed(draft, draft.stream(Topic(calls=kind)), "call", store="own"))


def mixes(draft: Draft) -> None:
    """Add some operators, each on something that is there."""
    draft.act("store", name="own", kind="kv")
    streams, tables = [draft.stream(SPARSE), draft.stream(SPARSE)], [draft.table(), draft.table()]
    for _ in range(draft.rng.randint(2, 6)):
        made = draft.choose(*_STEPS)(draft, streams, tables)
        (streams if made.kind == "stream" else tables).append(made)
    draft.to(*streams[2:], *tables[2:])


Step = Callable[[Draft, list[Part], list[Part]], Part]


def _on_a_stream(step: Callable[[Draft, Part], Part]) -> Step:
    return lambda draft, streams, tables: step(draft, draft.choose(*streams))


def _on_a_table(step: Callable[[Draft, Part], Part]) -> Step:
    return lambda draft, streams, tables: step(draft, draft.choose(*tables))


def _merged(draft: Draft, streams: list[Part], tables: list[Part]) -> Part:
    one = draft.choose(*streams)
    other = draft.choose(*(stream for stream in streams if stream.value == one.value))
    plain = one.plain and other.plain
    return one.then(draft.add("merge", this=one.id, other=other.id), plain=plain, held=one.held | other.held)


def _paired(draft: Draft, streams: list[Part], tables: list[Part]) -> Part:
    return draft.join(draft.choose(*streams), draft.choose(*streams), "inner", window=draft.join_window())


def _looked_up(draft: Draft, streams: list[Part], tables: list[Part]) -> Part:
    stream = draft.choose(*streams)
    return draft.join(stream, _apart(draft, stream, tables), draft.choose("inner", "left"))


def _joined(draft: Draft, streams: list[Part], tables: list[Part]) -> Part:
    store = draft.materialized(draft.choose(None, "kv"))
    table = draft.choose(*tables)
    return draft.join(table, _apart(draft, table, tables), draft.choose("inner", "left", "outer"), materialized=store)


def _apart(draft: Draft, part: Part, tables: list[Part]) -> Part:
    """Return a table that no operator holds back together with a part: the one at hand would be an earlier row."""
    return draft.choose(*(table for table in tables if not table.held & part.held))


def _in_windows(draft: Draft, stream: Part) -> Part:
    """Return the updates of windows, under keys that name the window."""
    window = draft.window(draft.choose("tumbling", "hopping", "session"))
    grouped = draft.grouped(draft.without_nulls(stream))
    return draft.rekeyed(draft.updates(draft.aggregated(draft.windowed(grouped, window), session="gap_ms" in window)))


def _suppressed_unless_versioned(draft: Draft, table: Part) -> Part:
    """Return a suppressed table; versioned tables cannot be suppressed."""
    return draft.table_step(table, "kv") if table.versioned else _suppressed(draft, table)


_STEPS: Final[tuple[Step, ...]] = (
    _on_a_stream(Draft.stateless),
    _on_a_stream(Draft.rekeyed),
    _on_a_stream(Draft.latest),
    _on_a_stream(lambda draft, stream: draft.aggregated(draft.grouped(stream))),
    _on_a_stream(_in_windows),
    _on_a_stream(lambda draft, stream: _processed(draft, stream, "last_seen", store="own")),
    _on_a_table(Draft.table_step),
    _on_a_table(Draft.updates),
    _on_a_table(lambda draft, table: draft.aggregated(draft.grouped(table))),
    _on_a_table(_suppressed_unless_versioned),
    _merged,
    _paired,
    _looked_up,
    _joined,
)

FAMILIES: Final[dict[str, Family]] = {
    family.__name__: family
    for family in (
        stateless,
        repartitions,
        stream_stream_inner,
        stream_stream_outer,
        stream_stream_eager,
        stream_table,
        stream_table_grace,
        table_table,
        table_operators,
        foreign_key_inner,
        foreign_key_left,
        foreign_keys_of_one_table,
        global_table,
        stream_aggregations,
        table_aggregations,
        time_windows,
        sliding_windows,
        session_windows,
        final_results,
        suppressed_windows,
        suppressed_updates,
        cogroups,
        processors,
        timers,
        timers_behind_topics,
        global_stores,
        chosen_topics,
        nodes,
        stores,
        versioned_stores,
        window_stores,
        mixes,
    )
}


def random_case(family: str, seed: int) -> dict[str, Any]:
    """Return a topology of a family and its input, in the form of the golden files; the same for the same seed."""
    rng = Random(f"{family}-{seed}")
    draft = Draft(rng)
    FAMILIES[family](draft)
    topology = draft.operators
    records = random_input(rng, draft.topics, wall_clock=family == "timers")
    if family == "stream_stream_outer":
        records += last_records(records, draft.topics)
    config = {"default_store": rng.choice(("rocksdb", "rocksdb", "in_memory"))}
    if rng.random() < 0.2:
        config["optimization"] = "all"
    return {"case": f"{family}-{seed}", "family": family, "config": config, "topology": topology, "input": records}
