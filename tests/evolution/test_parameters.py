"""The changes at a restart: each parameter of each verb and operator is refused, harmless, or the user's own.

*Refused*: stored rows depend on it, so it stays what it is as long as they do. *Harmless*: from the restart on the job
does what one would that had always had the new value, with what the old one has left out, forgotten or closed.
*The user's own*: code, columns and names, which nobody can compare; what is stored stays as it was computed.
"""

import inspect
import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import pytest

from millpond.errors import CorruptStoreError, StateConflictError
from millpond.processors import (
    CumulativeWindows,
    Joined,
    JoinWindows,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamJoined,
    Suppressed,
    TimeWindows,
    Topology,
    TopologyDriver,
)
from millpond.processors.distribution.plan import make_plan
from millpond.processors.distribution.shape_of import shape_of
from millpond.processors.options.joins import JoinType
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.keys import TERMS_ROW
from millpond.stores.evolution.matching import Declared, check_terms, origins_of, same_state
from millpond.stores.evolution.shape import Shape
from millpond.stores.specs.store_spec import StoreSpec
from millpond.stores.typed.terms import merged_terms
from tests.evolution.parameters import (
    REFUSED,
    Change,
    grouped,
    of_asof_join,
    of_multi_join,
    of_table_join,
    with_a_store,
)
from tests.evolution.test_harmless_parameters import HARMLESS

OWN: Final = "the user's own"
REFUSAL: Final = "refused"
NO_HARM: Final = "harmless"
NAMES: Final = {"name": OWN, "renamed": OWN, "dropped": OWN}
"""By its name a verb finds its state; columns and results that are not what they were are declared, or refused."""

SERDES: Final = {"key_serde": REFUSAL, "value_serde": REFUSAL}
"""In the shape since there are shapes."""

PARAMETERS: Final[dict[str, dict[str, str]]] = {
    "Millpond.latest": {
        "rows": OWN, "key": REFUSAL, "time": REFUSAL, "history": NO_HARM, "order": REFUSAL, "op": REFUSAL,
        "ttl": NO_HARM, "expired": NO_HARM, **NAMES,
    },
    "Millpond.aggregate": {
        "rows": OWN, "calls": REFUSAL, "by": REFUSAL, "time": REFUSAL, "order": REFUSAL, "window": REFUSAL,
        "until": REFUSAL, "emit": REFUSAL, "ttl": NO_HARM, "expired": NO_HARM, "added": OWN, "key": REFUSAL,
        "op": REFUSAL, **NAMES,
    },
    "Millpond.top_n": {
        "rows": OWN, "n": REFUSAL, "by": REFUSAL, "order": REFUSAL, "descending": REFUSAL, "time": REFUSAL,
        "window": REFUSAL, "until": REFUSAL, "emit": REFUSAL, "ttl": NO_HARM, "expired": NO_HARM, **NAMES,
    },
    "Millpond.deduplicate": {
        "rows": OWN, "key": REFUSAL, "time": REFUSAL, "within": NO_HARM, "grace": NO_HARM, "order": REFUSAL, **NAMES,
    },
    "Millpond.over": {
        "rows": OWN, "calls": REFUSAL, "key": REFUSAL, "time": REFUSAL, "last": REFUSAL, "within": REFUSAL,
        "grace": NO_HARM, "order": REFUSAL, "ttl": NO_HARM, "added": OWN, **NAMES,
    },
    "Millpond.apply": {
        "rows": OWN, "processor": OWN, "key": REFUSAL, "time": REFUSAL, "schema": OWN, "lateness": NO_HARM,
        "order": REFUSAL, "optional": OWN, "ttl": NO_HARM, "ticks": OWN, **NAMES,
    },
    "Millpond.asof_join": {
        "left": OWN, "right": OWN, "on": REFUSAL, "time": REFUSAL, "left_time": REFUSAL, "right_time": REFUSAL,
        "history": NO_HARM,
        "how": NO_HARM, "grace": NO_HARM, "tolerance": OWN, "exact": OWN, "direction": NO_HARM,
        "where": OWN, "otherwise": OWN, "default": OWN, "emit": REFUSAL, "left_key": REFUSAL,
        "right_order": REFUSAL, "right_op": REFUSAL, "null_safe": REFUSAL, **NAMES,
    },
    "Millpond.lookup_join": dict.fromkeys(
        ("left", "right", "on", "left_time", "right_time", "columns", "how", "tolerance", "exact", "direction", "where",
         "otherwise", "default", "right_order", "right_op", "null_safe", "max_bytes", "name"), OWN,
    ),
    "Millpond.stream_join": {
        "left": OWN, "right": OWN, "on": REFUSAL, "time": REFUSAL, "left_time": REFUSAL, "right_time": REFUSAL,
        "within": REFUSAL,
        "before": REFUSAL, "after": REFUSAL, "at_most": REFUSAL, "how": REFUSAL, "grace": NO_HARM, "null_safe": REFUSAL,
        **NAMES,
    },
    "Millpond.table_join": {
        "left": OWN, "right": OWN, "on": REFUSAL, "time": REFUSAL, "left_time": REFUSAL, "right_time": REFUSAL,
        "left_key": REFUSAL,
        "left_order": REFUSAL, "right_order": REFUSAL, "left_op": REFUSAL, "right_op": REFUSAL, "how": REFUSAL,
        "ttl": NO_HARM, "expired": NO_HARM, "history": NO_HARM, "null_safe": REFUSAL, **NAMES,
    },
    "Millpond.multi_join": {
        "tables": REFUSAL, "on": REFUSAL, "time": REFUSAL, "order": REFUSAL, "op": REFUSAL, "how": REFUSAL,
        "ttl": NO_HARM, "expired": NO_HARM, "history": NO_HARM, "null_safe": REFUSAL, **NAMES,
    },
    "TimeWindows": {"size": REFUSAL, "advance": REFUSAL, "grace": NO_HARM, "offset": REFUSAL, "calendar": REFUSAL},
    "CumulativeWindows": {"size": REFUSAL, "step": REFUSAL, "grace": NO_HARM, "offset": REFUSAL},
    "SlidingWindows": {"difference": REFUSAL, "grace": NO_HARM},
    "SessionWindows": {"gap": REFUSAL, "gap_of": REFUSAL, "grace": NO_HARM, "within": REFUSAL},
    "JoinWindows": {
        "before": REFUSAL, "after": REFUSAL, "grace": NO_HARM, "eager": REFUSAL, "drop_late": NO_HARM,
    },
    "Suppressed": {
        "wait": REFUSAL, "max_records": NO_HARM, "max_bytes": NO_HARM, "emit_early": NO_HARM, "name": REFUSAL,
    },
    "Materialized": {
        "name": REFUSAL, "kind": REFUSAL, **SERDES, "history_retention": NO_HARM, "grace": NO_HARM,
        "late_puts": NO_HARM, "retention": NO_HARM, "ttl": NO_HARM, "expired": NO_HARM, "caching": NO_HARM,
        "backend": OWN, "checksums": OWN,
    },
    "Joined": {
        "key_serde": OWN, "value_serde": OWN, "grace": NO_HARM, "name": OWN, "within_history": NO_HARM,
        "tolerance": OWN, "exact": OWN, "direction": NO_HARM, "where": OWN, "otherwise": OWN,
    },
    "StreamJoined": {
        **SERDES, "other_value_serde": REFUSAL, "name": REFUSAL, "store_name": REFUSAL, "backend": OWN,
        "checksums": OWN,
    },
    "StoreSpec": {
        "name": REFUSAL, "kind": REFUSAL, **SERDES, "window_size": REFUSAL, "calendar": REFUSAL,
        "retain_duplicates": REFUSAL,
        "layout": REFUSAL, "terms": REFUSAL, "history_retention": NO_HARM, "grace": NO_HARM, "late_puts": NO_HARM,
        "retention": NO_HARM, "ttl": NO_HARM, "expired": NO_HARM, "backend": OWN, "checksums": OWN,
    },
}  # fmt: skip

BY_OTHERS: Final = {
    *(f"{owner}.{name}" for owner in PARAMETERS for name in (*SERDES, "other_value_serde", "kind", "layout", "terms")),
    "StoreSpec.name",
    *(f"Millpond.{verb}.key" for verb in ("latest", "aggregate", "deduplicate", "over", "apply")),
    *(f"Millpond.{verb}.on" for verb in ("asof_join", "stream_join", "table_join", "multi_join")),
    *(f"Millpond.{verb}.{name}" for verb in ("aggregate", "top_n") for name in ("by", "until")),
    "Millpond.aggregate.calls",
    "Millpond.over.calls",
    "Millpond.top_n.order",
    *(f"Millpond.{verb}.time" for verb in ("latest", "aggregate", "top_n", "deduplicate", "over", "apply")),
    *(
        f"Millpond.{verb}.{time}"
        for verb in ("asof_join", "stream_join", "table_join")
        for time in ("time", "left_time", "right_time")
    ),
    *(f"Millpond.{verb}.op" for verb in ("latest", "aggregate")),
    "Millpond.multi_join.time",
    "Millpond.multi_join.op",
    "Millpond.asof_join.right_op",
    "Millpond.table_join.left_op",
    "Millpond.table_join.right_op",
}
"""What is refused for its shape alone, and columns, expressions, calls and earlier windows: tests of shapes, of verbs
on Spark, of kept calls and of changed windows have them."""


def shape(topology: Topology) -> Shape:
    return shape_of(make_plan(topology, None, 2))


def shown(change: Change) -> str:
    return change.of[0]


@pytest.mark.parametrize("change", REFUSED, ids=shown)
def test_a_parameter_on_which_stored_rows_depend_is_refused_before_a_query_starts(change: Change) -> None:
    before, after = Shape.from_json(shape(change.before).to_json()), shape(change.after)
    check_terms(before, shape(change.before))
    if change.told is None:
        assert not same_state(before, after)
        return
    assert same_state(before, after)
    with pytest.raises(StateConflictError, match=change.told):
        check_terms(before, after)
    with pytest.raises(StateConflictError, match=change.told):
        origins_of(before, after, Declared())


@pytest.mark.parametrize("change", [one for one in REFUSED if one.told is not None], ids=shown)
def test_a_store_refuses_rows_that_were_made_with_another_parameter(change: Change) -> None:
    assert change.told is not None
    for name, spec in change.before.stores.items():
        backend, after = MemoryBackend(), change.after.stores[name]
        committed(spec, backend)
        with Transaction(backend) as transaction:
            spec.open(transaction)
        if spec.terms != after.terms:
            for opened in (after.open, after.open_read_only):
                with Transaction(backend) as transaction, pytest.raises(StateConflictError, match=change.told):
                    opened(transaction)


@pytest.mark.parametrize("change", REFUSED, ids=shown)
def test_state_of_which_no_parameter_is_known_goes_on_once_and_then_knows_them(change: Change) -> None:
    for name, spec in change.before.stores.items():
        after = change.after.stores.get(name)
        if after is None or after.kind is not spec.kind or after.layout != spec.layout or after.terms is None:
            continue
        backend = MemoryBackend()
        committed(spec, backend)
        backend.write({TERMS_ROW: None})
        committed(after, backend)
        assert backend.get(TERMS_ROW) == after.terms.to_bytes()


def committed(spec: StoreSpec, backend: MemoryBackend) -> None:
    with Transaction(backend) as transaction:
        store = spec.open(transaction)
        store.put_metadata("mark", b"%d" % len(backend.get(b"\x00mark") or b""))
        store.flush()
        transaction.commit()


def test_every_parameter_is_refused_harmless_or_the_users_own() -> None:
    pytest.importorskip("pyspark")
    from millpond.adapters.spark import Millpond

    options: list[Any] = [
        TimeWindows, CumulativeWindows, SlidingWindows, SessionWindows, JoinWindows, Suppressed, Materialized, Joined,
        StreamJoined, StoreSpec,
    ]  # fmt: skip
    known = {one.__name__: {field.name for field in fields(one)} for one in options}
    for verb in (
        "latest",
        "aggregate",
        "top_n",
        "deduplicate",
        "over",
        "apply",
        "asof_join",
        "lookup_join",
        "stream_join",
        "table_join",
        "multi_join",
    ):
        known[f"Millpond.{verb}"] = {*inspect.signature(getattr(Millpond, verb)).parameters} - {"self"}
    assert known == {owner: {*parameters} for owner, parameters in PARAMETERS.items()}
    said = {f"{owner}.{name}": what for owner, parameters in PARAMETERS.items() for name, what in parameters.items()}
    assert {one for one, what in said.items() if what == REFUSAL} - BY_OTHERS <= {
        of for change in REFUSED for of in change.of
    }
    assert {one for one, what in said.items() if what == NO_HARM} <= HARMLESS


def test_the_advice_of_a_refusal_works(tmp_path: Path) -> None:
    def run(topology: Topology, *times: int) -> list[Any]:
        with TopologyDriver(topology, backend="lmdb", local_dir=tmp_path) as driver:
            driver.pipe_all("in", [("a", 1, time) for time in times])
            return [(*record.key[1:], record.value) for record in driver.read("out")]

    minute = 60_000
    assert run(grouped(TimeWindows(10 * minute)), 0, minute)[-1:] == [(0, 10 * minute, 2)]
    told = (
        "^the rows of the store 'counts' were made by a windowed aggregation with size='10 minutes' and not '20 "
        r"minutes', .*; write size='10 minutes', .* again, or give the new store another name, and drop the old one: "
        r"Evolution\(\.\.\., dropped=\['counts'\]\) \["
    )
    with pytest.raises(StateConflictError, match=told):
        run(grouped(TimeWindows(20 * minute)), 2 * minute)
    assert run(grouped(TimeWindows("10 minutes")), 2 * minute) == [(0, 10 * minute, 3)]
    assert run(grouped(TimeWindows(20 * minute), name="others"), 3 * minute) == [(0, 20 * minute, 1)]
    before, after = shape(grouped(TimeWindows(10))), shape(grouped(TimeWindows(20), name="others"))
    assert not origins_of(before, after, Declared(dropped=["counts"]))


def test_a_longer_grace_of_final_results_and_a_shorter_one_of_updates_are_taken() -> None:
    for emit, grace in (("final", 30), ("updates", 5)):
        before = Shape.from_json(shape(grouped(TimeWindows(10, grace=20), emit)).to_json())
        check_terms(before, shape(grouped(TimeWindows(10, grace=grace), emit)))


def test_a_join_of_many_tables_goes_on_with_the_same_tables_alone() -> None:
    before, types = shape(of_multi_join(types=[JoinType.LEFT] * 2)), [JoinType.LEFT] * 3
    for tables, declared in (("abcd", Declared()), ("ab", Declared(dropped=["c"]))):
        after = shape(of_multi_join(list(tables), types[: len(tables) - 1]))
        assert not same_state(before, after)
        with pytest.raises(StateConflictError, match=r"with tables=\['a', 'b', 'c'\] and not \['a', 'b'"):
            origins_of(before, after, declared)


def test_damaged_terms_are_refused() -> None:
    (spec,) = with_a_store().stores.values()
    for damage in (
        b"",
        b"[]",
        b"[" * 100_000,
        b'{"fixed":{}}',
        b'{"fixed":{"a":1.5},"noted":{}}',
        b'{"fixed":{},"noted":{"a":"b"}}',
    ):
        backend = MemoryBackend()
        backend.write({TERMS_ROW: damage})
        with Transaction(backend) as transaction, pytest.raises(CorruptStoreError, match="damaged terms"):
            spec.open(transaction)


def test_partitions_that_become_one_know_the_shortest_history_of_all() -> None:
    one, other = (b'{"fixed":{"size":10},"noted":{"grace":%d}}' % grace for grace in (5, 3))
    assert merged_terms([one, other]) == b'{"fixed":{"size":10},"noted":{"grace":3},"terms":1}'


@pytest.mark.parametrize("verb", [of_asof_join, of_table_join, of_multi_join])
def test_state_of_a_release_without_null_safe_keys_goes_on_without_them(verb: Callable[..., Topology]) -> None:
    """All terms but that of null-safe keys are known."""
    for name, spec in verb().stores.items():
        backend = MemoryBackend()
        committed(spec, backend)
        kept = json.loads(backend.get(TERMS_ROW) or b"{}")
        assert kept["fixed"].pop("null_safe") == "False"
        if not kept["fixed"] and not kept["noted"]:
            continue
        backend.write({TERMS_ROW: json.dumps(kept).encode()})
        after = verb(null_safe=True).stores[name]
        with Transaction(backend) as transaction, pytest.raises(StateConflictError, match="null_safe=False and not"):
            after.open(transaction)
        committed(spec, backend)
        assert json.loads(backend.get(TERMS_ROW) or b"{}")["fixed"]["null_safe"] == "False"


def test_terms_without_a_number_are_those_of_the_first_version() -> None:
    (spec,) = with_a_store().stores.values()
    assert spec.terms is not None
    numbered = spec.terms.to_bytes()
    backend = MemoryBackend()
    backend.write({TERMS_ROW: numbered.replace(b',"terms":1', b"")})
    committed(spec, backend)
    assert backend.get(TERMS_ROW) == numbered
    (other,) = with_a_store(window_size=20).stores.values()
    backend.write({TERMS_ROW: numbered.replace(b',"terms":1', b"")})
    with Transaction(backend) as transaction, pytest.raises(StateConflictError, match="window_size='10 milliseconds'"):
        other.open(transaction)
