"""Calls of an aggregate by their names: what is refused at a restart, and that what a refusal says to write works."""

import ast
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import ConfigurationError, StateConflictError
from millpond.processors.verbs.kept_calls import (
    Arguments,
    CallChanges,
    KeptCall,
    calls_in,
    evolved_calls,
    first_calls,
    since_in,
    slots_of,
)
from millpond.stores.durability.manifests.schema_log import keep_schemas, next_schemas
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.times import to_instant_micros

N = KeptCall("count(null)", None)
S = KeptCall("sum(int)", "v")
W = KeptCall("sum(int)", "w")
MEAN = KeptCall("avg(int)", "v")
SOME = S._replace(where="w > 1")
LAST = KeptCall("last(int, ignore_nulls=False)", "v")
OWN = KeptCall("user_defined(int, name='spread', version=1)", "v")
BINS = KeptCall("histogram(int, edges=[1.0, 2.5])", "v")


def began(**calls: KeptCall) -> Schemas:
    return Schemas.first(first_calls(calls))


def evolved(history: Schemas, changes: CallChanges | None = None, **calls: KeptCall) -> Schemas:
    changes = changes or CallChanges()
    changes.check(calls, "totals")
    return evolved_calls(history, calls, changes, "totals")


def test_what_is_added_removed_renamed_and_reordered_keeps_its_place_and_no_other_gets_it() -> None:
    history = began(n=N, s=S)
    assert slots_of(history, "name").plain
    history = evolved(history, CallChanges(["m"], {"s": "total"}, ["n"]), m=MEAN, total=S)
    slots = slots_of(history, "name")
    assert (slots.places, slots.shortest, slots.longest, slots.plain) == ((2, 1), 2, 3, False)
    again = evolved(history, CallChanges(["m"], {"s": "total"}, ["n"]), m=MEAN, total=S)
    assert again is history
    history = evolved(history, CallChanges(["n"]), total=S, n=N, m=MEAN)
    assert slots_of(history, "name").places == (1, 3, 2)
    assert list(calls_in(history.current)) == ["total", "n", "m"]
    history = evolved(
        evolved(history, CallChanges(dropped=["n"]), total=S, m=MEAN), CallChanges(["x"]), total=S, m=MEAN, x=N
    )
    assert slots_of(history, "name").places == (1, 2, 4)
    assert slots_of(Schemas.from_json(history.to_json()), "name") == slots_of(history, "name")


ADVICE: list[tuple[dict[str, KeptCall], dict[str, KeptCall], CallChanges, str]] = [
    ({"n": N}, {"n": N, "s": S}, CallChanges(), r"write added=\['s'\]: what is added begins empty \["),
    ({"n": N, "s": S}, {"n": N}, CallChanges(), r"write dropped=\['s'\]: the state of what is dropped is deleted \["),
    ({"s": S}, {"total": S}, CallChanges(),
     r"if 's' is called 'total' now: write renamed=\{'s': 'total'\}; or else write added=\['total'\], dropped=\['s'\]"),
    ({"n": N, "s": S}, {"n": N, "s": MEAN}, CallChanges(),
     r"'s' was sum\('v'\) and is avg\('v'\), which cannot go on .*: write it again, or the new one under a name of its "
     r"own\nwrite \{'n': count\(\), 's_2': avg\('v'\)\}, added=\['s_2'\], dropped=\['s'\]: "),
    ({"s": S}, {"s": W}, CallChanges(),
     r"write it again \(if the column has been renamed: .withColumnRenamed\('w', 'v'\)\), or the new one"),
    ({"s": S}, {"s": SOME}, CallChanges(),
     r"'s' was sum\('v'\) and is sum\('v', where='w > 1'\), .* write it again, or the new one under a name of its own\n"
     r"write \{'s_2': sum\('v', where='w > 1'\)\}, added=\['s_2'\], dropped=\['s'\]: "),
    ({"s": SOME}, {"s": SOME._replace(where="w > 2")}, CallChanges(), "write it again, or the new one under a name"),
    ({"s": SOME}, {"total": SOME}, CallChanges(), "if 's' is called 'total' now: write renamed="),
    ({"s": S}, {"s": KeptCall("sum(decimal(10, 2))", "v")}, CallChanges(),
     r"sum\('v'\) with the state sum\(int\) and is sum\('v'\) with the state sum\(decimal\(10, 2\)\)"),
    ({"l": LAST}, {"l": LAST._replace(state=f"ordered {LAST.state}")}, CallChanges(), "'l_2': last"),
    ({"o": OWN}, {"o": OWN._replace(state=OWN.state.replace("1", "2"))}, CallChanges(),
     r"'o' was spread\('v'\) with the state user_defined\(int, name='spread', version=1\) and is spread\('v'\) with "
     r"the state user_defined\(int, name='spread', version=2\), which .*\{'o_2': spread\('v'\)\}, added=\['o_2'\]"),
    ({"n": N}, {"n": N, "b": BINS}, CallChanges(),
     r"calls: n=count\(\), b=histogram\('v', edges=\[1.0, 2.5\]\)\n"),
    ({"a": S, "b": N}, {"c": S, "d": MEAN}, CallChanges(),
     r"write added=\['d'\], renamed=\{'a': 'c'\}, dropped=\['b'\]; or else write added=\['c', 'd'\], dropped=\['a', "),
    ({"a": S, "b": N}, {"c": S, "d": MEAN}, CallChanges(["d"], {"a": "c"}),
     r"\nwrite added=\['d'\], renamed=\{'a': 'c'\}, dropped=\['b'\]: "),
    ({"a": S}, {"c": S}, CallChanges(["c"]), r"\nwrite added=\['c'\], dropped=\['a'\]: "),
    ({"s": S}, {"total": MEAN}, CallChanges(renamed={"s": "total"}), r"\{'total_2': avg\('v'\)\}, added=\['total_2'\]"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "now", "changes", "told"), ADVICE)
def test_a_refusal_says_what_to_write(
    before: dict[str, KeptCall], now: dict[str, KeptCall], changes: CallChanges, told: str
) -> None:
    with pytest.raises(StateConflictError, match=re.compile(told, re.DOTALL)) as refused:
        evolved(began(**before), changes, **now)
    assert str(refused.value).startswith("the verb 'totals' has other calls than its state:\n  state: ")


def written(text: str, now: Mapping[str, KeptCall]) -> tuple[dict[str, KeptCall], CallChanges]:
    """Return what a user writes who copies one of the lines of a refusal."""
    found: dict[str, Any] = {
        name: ast.literal_eval(value) for name, value in re.findall(r"(added|renamed|dropped)=(\[.*?\]|\{.*?\})", text)
    }
    calls = dict(now)
    if text.startswith("{"):
        given = ast.parse(text[: text.index("}") + 1], mode="eval").body
        assert isinstance(given, ast.Dict)
        names = [ast.literal_eval(key) for key in given.keys if key is not None]
        calls = dict(zip(names, now.values(), strict=True))
    return calls, CallChanges(found.get("added", ()), found.get("renamed", {}), found.get("dropped", ()))


CALLS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from([N, S, SOME, MEAN, LAST]), min_size=1)


@given(CALLS, CALLS, st.lists(st.sampled_from("abcd")), st.lists(st.sampled_from("abcd")))
def test_the_advice_of_each_refusal_works(
    before: dict[str, KeptCall], now: dict[str, KeptCall], added: list[str], dropped: list[str]
) -> None:
    history = began(**before)
    said = CallChanges([name for name in added if name in now], {}, [name for name in dropped if name not in now])
    try:
        evolved(history, said, **now)
    except StateConflictError as error:
        lines = re.split(r"(?:^|\n|: |or else )write (?!it again)", error.sentence)[1:]
        assert lines
        for line in lines:
            calls, changes = written(re.split(r"; or else|: (?:what|the state)", line)[0], now)
            after = evolved(history, changes, **calls)
            assert list(calls_in(after.current)) == list(calls)
            assert evolved(after, changes, **calls) is after


def test_a_release_that_knows_no_conditions_takes_a_filtered_state_for_another_one() -> None:
    metadata: Any = first_calls({"s": SOME._replace(since=5)}).field("s").metadata
    assert metadata[b"state"] == b"since 5 filtered sum(int)"
    assert calls_in(first_calls({"s": SOME, "n": N})) == {"s": SOME, "n": N}


def test_what_fits_no_call_is_refused() -> None:
    history = began(n=N, s=S)
    for changes, calls, told in (
        (CallChanges(["x"]), {"n": N, "s": S}, "added names 'x', but calls has only 'n', 's'"),
        (CallChanges(dropped=["s"]), {"n": N, "s": S}, "dropped names 's', but calls has it"),
        (CallChanges(renamed={"s": "t"}), {"n": N}, "renamed says that 's' is 't' now, but calls has only 'n'"),
        (CallChanges(renamed={"n": "s"}), {"n": N, "s": S}, "but calls has a 'n', too; take out of renamed"),
        (CallChanges(renamed={"n": "m", "s": "m"}), {"m": S}, "renamed gives two results the same name"),
    ):
        with pytest.raises(ConfigurationError, match=f"^the verb 'totals': .*{told}"):
            evolved(history, changes, **calls)


def test_a_result_gets_the_name_of_another_one_that_is_dropped_or_has_a_new_name_itself() -> None:
    history = began(n=N, s=S)
    told = r"would be 's', 'n' and the one that has that name; write (.*), which .* give calls that one as 's_2', too, "
    with pytest.raises(StateConflictError, match=told + "and write (.*) \\[") as refused:
        evolved(history, CallChanges(renamed={"n": "s"}), s=N)
    found = re.search(told + "and write (.*)$", refused.value.sentence)
    assert found is not None
    for line, calls, places in ((found[1], {"s": N}, (0,)), (found[2], {"s": N, "s_2": S}, (0, 1))):
        changes = written(line, calls)[1]
        after = evolved(history, changes, **calls)
        assert calls_in(after.current) == calls
        assert slots_of(after, "name").places == places
        assert evolved(after, changes, **calls) is after


def test_a_name_that_is_dropped_and_given_away_at_once_is_told_without_a_word_of_it() -> None:
    history = began(e=S, f=N)
    with pytest.raises(StateConflictError, match=r"'e' was sum.* and is count") as refused:
        evolved(history, e=N)
    line = (
        r"if 'f' is called 'e' now: write renamed=\{'f': 'e'\}, dropped=\['e'\]; or else write \{'e_2': count\(\)\}, "
    )
    assert re.search(line, refused.value.sentence)
    changes = CallChanges(renamed={"f": "e"}, dropped=["e"])
    after = evolved(history, changes, e=N)
    assert slots_of(after, "name").places == (1,)
    assert evolved(after, changes, e=N) is after
    later = evolved(after, replace(changes, added=["m"]), e=N, m=MEAN)
    assert slots_of(later, "name").places == (1, 2)


@pytest.mark.parametrize("declared", [True, False])
def test_results_exchange_their_names_by_way_of_a_third_one(declared: bool) -> None:
    history, swapped = began(a=N, b=S), {"a": S, "b": N}
    said = CallChanges(renamed={"a": "b", "b": "a"} if declared else {})
    told = r"renamed=(\{'a': 'a_2'\}) in one release, and renamed=(\{'b': 'a', 'a_2': 'b'\}) in the next"
    with pytest.raises((ConfigurationError, StateConflictError), match=told) as refused:
        evolved(history, said, **swapped)
    found = re.search(told, refused.value.sentence)
    assert found is not None
    first, second = (CallChanges(renamed=ast.literal_eval(one)) for one in found.groups())
    history = evolved(evolved(history, first, a_2=N, b=S), second, **swapped)
    assert slots_of(history, "name").places == (1, 0)
    assert evolved(history, second, **swapped) is history


def test_names_that_are_handed_on_are_so_once() -> None:
    changes = CallChanges(renamed={"a": "b", "b": "c"}, dropped=["c"])
    history = evolved(began(a=N, b=S, c=W), changes, b=N, c=S)
    assert slots_of(history, "name").places == (0, 1)
    assert evolved(history, changes, b=N, c=S) is history


@pytest.mark.parametrize(
    ("said", "once", "then"),
    [
        (CallChanges(["c"], {"c": "b"}), CallChanges(renamed={"c": "b"}), CallChanges(["c"])),
        (CallChanges(["c"], dropped=["c"]), CallChanges(dropped=["c"]), CallChanges(["c"])),
    ],
    ids=["renamed", "dropped"],
)
def test_a_new_result_gets_the_name_of_one_that_is_gone_in_the_next_release(
    said: CallChanges, once: CallChanges, then: CallChanges
) -> None:
    rest: dict[str, KeptCall] = {"b": N} if said.renamed else {"a": S}
    before = began(c=N) if said.renamed else began(c=N, a=S)
    with pytest.raises(ConfigurationError, match=r"in one release, and add it in the next \["):
        evolved(before, said, **rest, c=MEAN)
    history = evolved(evolved(before, once, **rest), then, **rest, c=MEAN)
    assert slots_of(history, "name").places[-1] == slots_of(before, "name").longest
    assert calls_in(history.current) == {**rest, "c": MEAN}
    assert evolved(history, then, **rest, c=MEAN) is history


def test_of_two_queries_whose_calls_have_other_arguments_the_one_that_runs_first_goes_on(tmp_path: Path) -> None:
    storage = Storage.from_uri(f"file://{tmp_path}?sync=false")
    one, other = (next_schemas(storage, "app", "input-calls", first_calls({"s": call}), {}, ()) for call in (S, W))
    for _ in range(2):
        keep_schemas(storage, "app", {"input-calls": one})
    with pytest.raises(StateConflictError, match="build the query again"):
        keep_schemas(storage, "app", {"input-calls": other})


def test_arguments_that_follow_each_other_are_the_same_and_the_newest_is_kept() -> None:
    history, now = began(s=S), {"s": S._replace(argument="V")}
    after = evolved_calls(history, now, CallChanges(), "totals", Arguments(lambda one, other: one == other.lower()))
    assert calls_in(after.current) == now
    assert slots_of(after, "name") == slots_of(history, "name")


NEW_YEAR = 1_767_225_600_000_000


def test_the_time_since_which_a_call_is_true_is_kept_until_it_is_dropped() -> None:
    history = evolved(began(n=N), CallChanges({"m": NEW_YEAR, "s": None}), n=N, m=MEAN, s=S)
    assert since_in(history.current) == {"m": NEW_YEAR}
    for said in (CallChanges({"m": NEW_YEAR, "s": None}), CallChanges(["m", "s"]), CallChanges()):
        assert evolved(history, said, n=N, m=MEAN, s=S) is history
    renamed = evolved(Schemas.from_json(history.to_json()), CallChanges(renamed={"m": "mean"}), mean=MEAN, s=S, n=N)
    assert since_in(renamed.current) == {"mean": NEW_YEAR}
    dropped = evolved(renamed, CallChanges(dropped=["mean"]), s=S, n=N)
    assert since_in(evolved(dropped, CallChanges(["mean"]), s=S, n=N, mean=MEAN).current) == {}


def test_a_call_with_which_the_state_began_has_all_rows_whatever_is_added() -> None:
    history = began(n=N)
    assert evolved(history, CallChanges({"n": NEW_YEAR}), n=N) is history


def test_a_release_that_knows_no_such_times_takes_the_call_for_another_one() -> None:
    history = evolved(began(n=N), CallChanges({"m": NEW_YEAR}), n=N, m=MEAN)
    metadata = history.current.field("m").metadata
    assert metadata is not None
    assert metadata[b"state"] == b"since 1767225600000000 avg(int)"


@pytest.mark.parametrize(
    ("begun", "said", "told"),
    [
        (NEW_YEAR, NEW_YEAR + 1, "'m' is true since 2026-01-01T00:00:00+00:00, and cannot be true since 2026-01-01T00"),
        (None, NEW_YEAR, "'m' began empty, and cannot be true since 2026-01-01T00:00:00+00:00; write added=['m'], or"),
    ],
)
def test_another_time_than_the_call_began_with_is_refused_and_both_advices_work(
    begun: int | None, said: int, told: str
) -> None:
    history = evolved(began(n=N), CallChanges({"m": begun}), n=N, m=MEAN)
    with pytest.raises(StateConflictError, match=re.escape(told)) as refused:
        evolved(history, CallChanges({"m": said}), n=N, m=MEAN)
    stay, anew = re.split(r"write |under another name: ", refused.value.sentence)[1:]
    calls, changes = written(stay, {"n": N, "m": MEAN})
    assert evolved(history, timed(changes), **calls) is history
    calls, changes = written(anew, {"n": N, "m": MEAN})
    assert since_in(evolved(history, timed(changes), **calls).current) == {"m_2": said}


def test_rows_from_before_come_too_late_for_a_call_that_has_begun_and_both_advices_work() -> None:
    history = evolved(began(n=N), CallChanges(["m"]), n=N, m=MEAN)
    with pytest.raises(StateConflictError) as refused:
        evolved(history, CallChanges(["m"], filled=["m"]), n=N, m=MEAN)
    told = refused.value.sentence
    assert "'m' began empty, and cannot get the rows from before; write added=['m'], or begin anew under" in told
    assert told.endswith("'m_2': avg('v')}, added={'m_2': history}, dropped=['m']")
    assert evolved(history, CallChanges(["m"]), n=N, m=MEAN) is history
    after = evolved(history, CallChanges(["m_2"], {}, ["m"], ["m_2"]), n=N, m_2=MEAN)
    assert slots_of(after, "name").places == (0, 2)


def test_a_place_that_a_record_knows_is_nobody_elses_though_no_schema_has_it() -> None:
    history = began(n=N)
    assert slots_of(history, "name", {1}).longest == 2
    after = evolved_calls(history, {"n": N, "s": S}, CallChanges(["s"]), "totals", filled={1})
    assert slots_of(after, "name").places == (0, 2)


def test_advice_keeps_the_times_that_are_said() -> None:
    with pytest.raises(StateConflictError, match=r"write added=\{'m': '2026-01-01T00:00:00\+00:00', 's': None\}: "):
        evolved(began(n=N), CallChanges({"m": NEW_YEAR}), n=N, m=MEAN, s=S)


def timed(changes: CallChanges) -> CallChanges:
    """Return the changes with times as a verb has them."""
    if not isinstance(changes.added, Mapping):
        return changes
    added: Mapping[str, Any] = changes.added
    return CallChanges(
        {name: one and to_instant_micros(datetime.fromisoformat(one)) for name, one in added.items()},
        changes.renamed,
        changes.dropped,
    )
