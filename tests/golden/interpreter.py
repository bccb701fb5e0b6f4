"""Builds a Millpond topology from the operators of a golden case, runs the case's input and collects the output.

Rule of this module: one method per operator, named after it; each is one call of the DSL. It judges nothing.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import millpond.processors as dsl
from millpond.errors import MillpondError
from millpond.stores.specs.store_spec import StoreKind
from millpond.stores.typed.versions.versioned import VersionedKeyValueStore
from tests.golden import functions as named
from tests.golden import processors
from tests.golden.storeops import store_spec

Operator = Mapping[str, Any]


@dataclass
class Run:
    """The outcome of a case.

    Attributes:
        output: the records that came out, as the format writes them.
        stores: the content of the named stores, as the format writes it.
        versioned: for each table whether the topology regards it as versioned.
        failed_at: ``build``, ``start`` or ``run`` if an error occurred, with the input record's index in ``after``.
    """

    output: list[dict[str, Any]] = field(default_factory=list)
    stores: dict[str, list[Any]] = field(default_factory=dict)
    versioned: dict[str, bool] = field(default_factory=dict)
    failed_at: str | None = None
    after: int | None = None
    error: MillpondError | None = None


class Interpreter:
    """The topology of one case, operator by operator; its tasks take records in the order of Kafka Streams.

    ``nodes`` holds what each operator made, ``types`` the serde of its values; ``stores`` the kinds of the tables'
    stores, ``kinds`` those of the processors' stores.
    """

    def __init__(self, case: Mapping[str, Any]) -> None:
        self.case = case
        self.config = case.get("config", {})
        self.builder: Any = dsl.StreamsBuilder(
            key_serde=named.TEXT,
            value_serde=named.TEXT,
            upgrade_from=self.config.get("upgrade_from"),
            optimize=self.config.get("optimization") == "all",
            order="arrival",
        )
        if any(operator["op"] == "addSource" for operator in case["topology"]):
            self.builder = dsl.TopologyBuilder(key_serde=named.TEXT, value_serde=named.TEXT, order="arrival")
        self.nodes: dict[str, Any] = {}
        self.types: dict[str, str] = {}
        self.topics: list[str] = []
        self.stores: dict[str, str] = {}
        self.kinds: dict[str, str] = {}

    def build(self) -> dsl.Topology:
        for operator in self.case["topology"]:
            method = re.sub(r"[A-Z]", lambda m: "_" + m[0].lower(), "op_" + operator["op"])
            made = getattr(self, method)(operator)
            if "id" in operator:
                self.nodes[operator["id"]] = made
        topology: dsl.Topology = self.builder.build()
        return topology

    def versioned_tables(self) -> dict[str, bool]:
        return {id_: node.versioned for id_, node in self.nodes.items() if isinstance(node, dsl.KTable)}

    # What operators have in common

    def _input(self, operator: Operator, name: str = "input") -> Any:
        return self.nodes[operator[name]]

    def _typed(self, operator: Operator, type_: str) -> str:
        self.types[operator["id"]] = type_
        return type_

    def _like_input(self, operator: Operator, name: str = "input") -> str:
        return self._typed(operator, self.types[operator[name]])

    def _materialized(self, operator: Operator, type_: str) -> dsl.Materialized | None:
        """Return the ``materialized`` of an operator with values of the serde ``type_``; None if it names nothing."""
        given = operator.get("materialized")
        if given is None:
            return None
        serdes: dict[str, Any] = {"key_serde": None, "value_serde": type_}
        if given["kind"] == "serde_only":
            return dsl.Materialized.with_serdes(**serdes)
        self.stores[given["name"]] = given["kind"]
        if given["kind"] == "versioned":
            if given.get("segment_interval_ms") == 0:
                # Millpond has no segments; a plain bad argument stands in for Kafka Streams' own check.
                raise MillpondError("a segment interval of 0")
            retention = given["history_retention_ms"]
            return dsl.Materialized.versioned(given["name"], history_retention=retention, **serdes)
        kind = StoreKind.TIMESTAMPED_KEY_VALUE if given["kind"] == "kv" else None
        return dsl.Materialized(given["name"], kind, retention=given.get("retention_ms"), **serdes)

    # Sources and sinks

    def op_stream(self, operator: Operator) -> Any:
        type_ = self._typed(operator, named.LONG if operator.get("value_type") == "long" else named.TEXT)
        return self.builder.stream(operator["topic"], dsl.Consumed(named.TEXT, type_))

    def op_table(self, operator: Operator) -> Any:
        type_ = self._typed(operator, named.LONG if operator.get("value_type") == "long" else named.TEXT)
        consumed = dsl.Consumed(named.TEXT, type_)
        return self.builder.table(operator["topic"], consumed, self._materialized(operator, type_))

    def op_global_table(self, operator: Operator) -> Any:
        type_ = self._typed(operator, named.TEXT)
        consumed = dsl.Consumed(named.TEXT, type_)
        return self.builder.global_table(operator["topic"], consumed, self._materialized(operator, type_))

    def op_to(self, operator: Operator) -> None:
        node = self._input(operator)
        produced = dsl.Produced(node.key_serde, self.types[operator["input"]])
        node.to(self._sink(operator), produced, topics=operator.get("topics", ()))

    def _sink(self, operator: Operator) -> Any:
        """Return the topic of a sink, or what chooses it."""
        topics = operator.get("topics", [operator.get("topic")])
        self.topics += topics
        if "extractor" not in operator:
            return topics[0]
        by_key = operator["extractor"] == "by_key"
        return lambda key, value: topics[len(named.text(key if by_key else value)) % len(topics)]

    # Operators of streams, tables or both

    def _on_values(self, operator: Operator, method: str, function: Any, type_: str, **options: Any) -> Any:
        """Call ``method``, which takes a store on a table and none on a stream."""
        node = self._input(operator)
        self._typed(operator, type_)
        if isinstance(node, dsl.KTable):
            return getattr(node, method)(function, self._materialized(operator, type_), **options)
        return getattr(node, method)(function, **options)

    def op_filter(self, operator: Operator) -> Any:
        predicate = named.predicate(operator["predicate"])
        return self._on_values(operator, "filter", predicate, self.types[operator["input"]])

    def op_filter_not(self, operator: Operator) -> Any:
        predicate = named.predicate(operator["predicate"])
        return self._on_values(operator, "filter_not", predicate, self.types[operator["input"]])

    def op_map_values(self, operator: Operator) -> Any:
        name = operator["mapper"]
        type_ = named.mapper_type(name, self.types[operator["input"]])
        return self._on_values(operator, "map_values", named.mapper(name), type_, value_serde=type_)

    def op_transform_values(self, operator: Operator) -> Any:
        name = operator["mapper"]
        mapper = named.mapper(name)
        type_ = named.mapper_type(name, self.types[operator["input"]])

        def transformer(key: Any, value: Any) -> Any:
            return mapper(value)

        return self._on_values(operator, "transform_values", transformer, type_, value_serde=type_)

    def op_map(self, operator: Operator) -> Any:
        select, map_value = named.selector(operator["selector"]), named.mapper(operator["mapper"])
        type_ = self._typed(operator, named.mapper_type(operator["mapper"], self.types[operator["input"]]))
        return self._input(operator).map(
            lambda key, value: (select(key, value), map_value(value)), key_serde=named.TEXT, value_serde=type_
        )

    def op_flat_map_values(self, operator: Operator) -> Any:
        self._typed(operator, named.TEXT)
        copies = operator["copies"]
        return self._input(operator).flat_map_values(
            lambda value: [] if value is None else [f"{value}" + "'" * copy for copy in range(copies)],
            value_serde=named.TEXT,
        )

    def op_branch(self, operator: Operator) -> None:
        split = self._input(operator).split()
        for name in operator["predicates"]:
            split = split.branch(named.predicate(name))
        for id_, part in zip(operator["ids"], split.default_branch().values(), strict=True):
            self.nodes[id_], self.types[id_] = part, self.types[operator["input"]]

    def op_select_key(self, operator: Operator) -> Any:
        self._like_input(operator)
        return self._input(operator).select_key(named.selector(operator["selector"]))

    def op_repartition(self, operator: Operator) -> Any:
        self._like_input(operator)
        return self._input(operator).repartition()

    def op_merge(self, operator: Operator) -> Any:
        self._like_input(operator, "this")
        return self._input(operator, "this").merge(self._input(operator, "other"))

    def op_to_table(self, operator: Operator) -> Any:
        type_ = self._like_input(operator)
        return self._input(operator).to_table(self._materialized(operator, type_))

    def op_to_stream(self, operator: Operator) -> Any:
        self._like_input(operator)
        return self._input(operator).to_stream()

    def op_unwindow(self, operator: Operator) -> Any:
        self._like_input(operator)
        return self._input(operator).select_key(
            lambda key, value: f"{key.key}@{key.start}/{key.end}", key_serde=named.TEXT
        )

    def op_suppress(self, operator: Operator) -> Any:
        self._like_input(operator)
        return self._input(operator).suppress(_suppressed(operator))

    # Processors and their stores

    def op_store(self, operator: Operator) -> None:
        self.builder.add_state_store(store_spec(operator["name"], operator))
        self.kinds[operator["name"]] = operator["kind"]

    def op_process(self, operator: Operator) -> Any:
        self._typed(operator, named.TEXT)
        described = operator["processor"]
        store = described.get("store")
        return self._input(operator).process(
            lambda: processors.make(described, self.kinds.get(store)),
            stores=[] if store is None else [store],
            value_serde=named.TEXT,
        )

    def op_add_global_store(self, operator: Operator) -> None:
        spec = store_spec(operator["name"], {"kind": "kv"})
        described = {"kind": "fill", "store": operator["name"]}
        consumed = dsl.Consumed(named.TEXT, named.TEXT)
        self.builder.add_global_store(spec, operator["topic"], lambda: processors.make(described, None), consumed)

    # Node by node

    def op_add_source(self, operator: Operator) -> Any:
        return self.builder.add_source(operator["id"], operator["topic"])

    def op_add_processor(self, operator: Operator) -> Any:
        described = operator["processor"]
        store = described.get("store")
        return self.builder.add_processor(
            operator["id"],
            lambda: processors.make(described, self.kinds.get(store)),
            *operator["parents"],
            stores=[] if store is None else [store],
        )

    def op_add_repartition(self, operator: Operator) -> Any:
        return self.builder.add_repartition(operator["id"], *operator["parents"])

    def op_add_sink(self, operator: Operator) -> None:
        topics = operator.get("topics", ())
        self.builder.add_sink(operator["name"], self._sink(operator), *operator["parents"], topics=topics)

    # Joins

    def op_join(self, operator: Operator) -> Any:
        this, other = self._input(operator, "this"), self._input(operator, "other")
        type_ = self._typed(operator, named.TEXT)
        join = getattr(this, {"inner": "join", "left": "left_join", "outer": "outer_join"}[operator["type"]])
        joiner = named.joiner(operator["joiner"])
        if isinstance(this, dsl.KTable):
            return join(other, joiner, self._materialized(operator, type_))
        if isinstance(other, dsl.KTable):
            return join(other, joiner, dsl.Joined(grace=operator.get("grace_ms")))
        return join(other, joiner, windows=_join_windows(operator["window"]))

    def op_fk_join(self, operator: Operator) -> Any:
        this, other = self._input(operator, "this"), self._input(operator, "other")
        type_ = self._typed(operator, named.TEXT)
        join = this.join if operator["type"] == "inner" else this.left_join
        extract = named.selector(operator["extractor"])
        materialized = self._materialized(operator, type_) or dsl.Materialized.with_serdes(None, type_)
        return join(
            other, named.joiner(operator["joiner"]), materialized, foreign_key=lambda value: extract(None, value)
        )

    def op_global_join(self, operator: Operator) -> Any:
        this, table = self._input(operator, "this"), self._input(operator, "other")
        self._typed(operator, named.TEXT)
        join = this.join if operator["type"] == "inner" else this.left_join
        selector = named.selector(operator["selector"])
        return join(table, named.joiner(operator["joiner"]), selector=selector)

    # Grouping and aggregation

    def op_group_by_key(self, operator: Operator) -> Any:
        self._like_input(operator)
        return self._input(operator).group_by_key()

    def op_group_by(self, operator: Operator) -> Any:
        node = self._input(operator)
        selector = named.selector(operator["selector"])
        type_ = self.types[operator["input"]]
        if not isinstance(node, dsl.KTable):
            self._typed(operator, type_)
            return node.group_by(selector, dsl.Grouped(named.TEXT, type_))
        map_value = named.mapper(operator.get("value_mapper", "identity"))
        type_ = self._typed(operator, named.mapper_type(operator.get("value_mapper", "identity"), type_))
        return node.group_by(
            lambda key, value: (selector(key, value), map_value(value)), dsl.Grouped(named.TEXT, type_)
        )

    def op_cogroup(self, operator: Operator) -> Any:
        first, *others = operator["inputs"]
        self._typed(operator, named.TEXT)
        cogrouped = self.nodes[first["input"]].cogroup(named.aggregator(first["aggregator"]))
        for part in others:
            cogrouped = cogrouped.cogroup(self.nodes[part["input"]], named.aggregator(part["aggregator"]))
        return cogrouped

    def op_windowed_by(self, operator: Operator) -> Any:
        self._like_input(operator)
        windowed = self._input(operator).windowed_by(_windows(operator["window"]))
        if operator.get("emit") == "window_close":
            return windowed.emit_strategy(dsl.EmitStrategy.ON_WINDOW_CLOSE)
        return windowed

    def _stored(self, operator: Operator, type_: str) -> dsl.Materialized:
        """Return the store of an aggregation, which always has one."""
        self._typed(operator, type_)
        return self._materialized(operator, type_) or dsl.Materialized.with_serdes(None, type_)

    def op_count(self, operator: Operator) -> Any:
        return self._input(operator).count(self._stored(operator, named.LONG))

    def op_reduce(self, operator: Operator) -> Any:
        materialized = self._stored(operator, self.types[operator["input"]])
        reducers = [named.reducer(operator[name]) for name in ("adder", "subtractor") if name in operator]
        return self._input(operator).reduce(*reducers, materialized)

    def op_aggregate(self, operator: Operator) -> Any:
        materialized = self._stored(operator, named.initializer_type(operator["initializer"]))
        functions = [named.aggregator(operator[name]) for name in ("adder", "subtractor") if name in operator]
        if "merger" in operator:
            functions.append(named.merger(operator["merger"]))
        initializer = named.initializer(operator["initializer"])
        return self._input(operator).aggregate(initializer, *functions, materialized)


def _windows(window: Mapping[str, Any]) -> Any:
    grace = window["grace_ms"]
    kind = window["kind"]
    if kind == "session":
        return dsl.SessionWindows(window["gap_ms"], grace=grace)
    if kind == "sliding":
        return dsl.SlidingWindows(window["difference_ms"], grace=grace)
    return dsl.TimeWindows(window["size_ms"], advance=window.get("advance_ms"), grace=grace)


def _join_windows(window: Mapping[str, Any]) -> Any:
    eager = bool(window.get("eager"))
    grace = window.get("grace_ms")
    if grace is None and eager:
        grace = max(86_400_000 - 2 * window["after_ms"], 0)
    return dsl.JoinWindows(before=window["before_ms"], after=window["after_ms"], grace=grace or 0, eager=eager)


def _suppressed(operator: Operator) -> Any:
    bounds = {name: operator[name] for name in ("max_records", "max_bytes") if name in operator}
    if operator["until"] == "window_closes":
        return dsl.Suppressed.until_window_closes(**bounds)
    emit_early = operator.get("when_full") != "shut_down"
    return dsl.Suppressed.until_time_limit(operator["wait_ms"], emit_early=emit_early, **bounds)


def run(case: Mapping[str, Any], backend: str) -> Run:
    """Build, start and run a case; an error ends it and is part of the result."""
    result = Run()
    interpreter = Interpreter(case)
    try:
        topology = interpreter.build()
    except MillpondError as error:
        result.failed_at, result.error = "build", error
        return result
    result.versioned = interpreter.versioned_tables()
    try:
        driver = dsl.TopologyDriver(topology, backend=backend)
    except MillpondError as error:
        result.failed_at, result.error = "start", error
        return result
    with driver:
        _pipe(interpreter, driver, result)
        for name, kind in interpreter.stores.items():
            result.stores[name] = _content(driver.store(name), kind)
    return result


def _pipe(interpreter: Interpreter, driver: dsl.TopologyDriver, result: Run) -> None:
    topics = {
        operator["topic"] for operator in interpreter.case["topology"] if "id" in operator and "topic" in operator
    }
    for index, record in enumerate(interpreter.case["input"]):
        try:
            if "advance_wall_clock_ms" in record:
                driver.advance_wall_clock(record["advance_wall_clock_ms"])
            elif record["topic"] in topics:
                headers = [(name, value.encode()) for name, value in record.get("headers", {}).items()]
                driver.pipe(record["topic"], record["key"], record["value"], record["ts"], headers=headers)
        except MillpondError as error:
            result.failed_at, result.after, result.error = "run", index, error
            return
        for topic in dict.fromkeys(interpreter.topics):
            result.output += [_written(topic, found, index) for found in driver.read(topic)]


def _written(topic: str, found: dsl.Record, after: int) -> dict[str, Any]:
    """Return a result as the format writes it."""
    headers = {name: None if value is None else value.decode() for name, value in found.headers}
    result = {"topic": topic, "key": written(found.key), "value": found.value, "ts": found.timestamp, "after": after}
    return result | {"headers": headers}


def written(key: Any) -> Any:
    """Return a key as the format writes it."""
    return {"key": key.key, "start": key.start, "end": key.end} if hasattr(key, "start") else key


def _content(store: Any, kind: str) -> list[Any]:
    """Return a store's entries as the format writes them."""
    if kind == "versioned":
        return _versioned_content(store)
    if kind == "kv":
        return [{"key": key, "value": value.value, "ts": value.timestamp} for key, value in store.scan()]
    if kind == "session":
        return [written(key) | {"value": value} for key, value in store.fetch_keys()]
    return [written(key) | {"value": entry.value, "ts": entry.timestamp} for key, entry in store.fetch_all()]


def _versioned_content(store: VersionedKeyValueStore[Any, Any]) -> list[Any]:
    entries = []
    for key, group in groupby(store.scan(), key=lambda entry: entry[0]):
        versions = [{"value": v.value, "from": v.timestamp, "to": v.valid_to} for _, v in group]
        last = versions[-1]
        latest = {"value": last["value"], "ts": last["from"]} if last["to"] is None else None
        entries.append({"key": key, "latest": latest, "versions": versions})
    return entries
