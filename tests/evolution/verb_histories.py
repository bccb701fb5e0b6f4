"""Histories of queries of verbs: how they begin, and what happens then, release after release."""

from typing import Final

from hypothesis import strategies as st

from millpond.processors.options.joins import ASOF_JOINS, AsofDirection
from millpond.stores.typed.expiry import Expired
from tests.evolution.histories import DEATHS, KEYS, WHICH, Steps, step
from tests.evolution.story import BACKENDS
from tests.evolution.verb_drafts import KINDS, TTLS
from tests.evolution.verb_life import PARTITIONS, Arrival

_KIND = st.sampled_from(KINDS)
_ARRIVAL = st.builds(Arrival, st.sampled_from(KEYS[:5]), st.integers(0, 30), st.none() | st.integers(0, 99))
_DEATHS = st.one_of(*[st.just(list[int]())] * 3, DEATHS)
"""Half as often as in the shorter lives of jobs."""
_CHANGE = {"which": WHICH, "deaths": _DEATHS}

STEPS: Final[Steps] = {
    "repartition": (2, {"more": st.integers(1, PARTITIONS - 1), "deaths": _DEATHS}),
    "batch": (
        8, {"rows": st.lists(_ARRIVAL, max_size=6), "right": st.booleans(), "deaths": _DEATHS},
    ),
    "change_columns": (
        3,
        {
            **_CHANGE,
            "how": st.sampled_from(["comes", "goes", "has another name", "becomes wider"]),
            "column": WHICH,
        },
    ),
    "change_calls": (
        3,
        {
            **_CHANGE,
            "how": st.sampled_from(["comes", "goes", "has another name", "has another place"]),
            "call": WHICH,
        },
    ),
    "rename_verb": (2, _CHANGE),
    "replace_verb": (1, {**_CHANGE, "kind": _KIND}),
    "rekey_verb": (
        3,
        {**_CHANGE, "kind": WHICH, "sides": st.tuples(WHICH, WHICH), "grouped": st.booleans(), "into": st.booleans()},
    ),
    "add_verb": (1, {"at": WHICH, "kind": _KIND, "deaths": _DEATHS}),
    "drop_verb": (1, _CHANGE),
    "change_reach": (1, _CHANGE),
    "change_ttl": (
        2,
        {
            **_CHANGE,
            "ttl": st.sampled_from(TTLS),
            "expired": st.sampled_from(Expired),
            "rows": st.lists(_ARRIVAL, min_size=1, max_size=4),
        },
    ),
    "change_match": (
        2,
        {
            **_CHANGE,
            "how": st.sampled_from(ASOF_JOINS),
            "exact": st.booleans(),
            "tolerance": WHICH,
            "direction": st.sampled_from(AsofDirection),
            "rows": st.lists(_ARRIVAL, min_size=1, max_size=4),
        },
    ),
    "change_windows": (2, {**_CHANGE, "size": WHICH, "wait": st.sampled_from([0, 20, 60])}),
    "restart": (1, {"says": st.booleans()}),
    "switch_backend": (1, {"which": WHICH}),
    "lose_the_machine": (1, {}),
    "set_back": (2, _CHANGE),
    "edit_verb": (3, {**_CHANGE, "put": st.none() | st.integers(1, 99), "undone": st.booleans()}),
    "edit_timer": (
        2,
        {
            **_CHANGE,
            "key": st.sampled_from(KEYS[:5]),
            "name": st.sampled_from(["idle", "soon", "own"]),
            "wait": st.none() | st.integers(-60, 60),
            "undone": st.booleans(),
        },
    ),
    "erase_key": (1, {"key": st.sampled_from(KEYS[:5]), "deaths": _DEATHS}),
}  # fmt: skip
"""What can happen: how likely it is, and how; the first one is always a release, so that the simplest life ends."""

HAPPENS: Final = frozenset(
    {
        "killed in a batch",
        "killed while carrying over",
        "killed in an edit",
        "a column comes",
        "a column goes",
        "a column has another name",
        "a column becomes wider",
        "a call comes",
        "a call with a condition comes",
        "a call goes",
        "a call has another name",
        "a call has another place",
        "over: a call comes",
        "over: a call goes",
        "over: a call has another name",
        "groups: a call comes",
        "groups: a call goes",
        "groups: a call has another name",
        "groups: a call has another place",
        "a verb has another name",
        "a verb stands in the place of another",
        "a verb began with the rows of another",
        "a verb began by another key",
        "a verb came",
        "a verb went",
        "another history or grace",
        "another time to live",
        "another match",
        "left: another match",
        "semi: another match",
        "anti: another match",
        "forward: another match",
        "nearest: another match",
        "a row of the very time of another one",
        "other windows from a time on",
        "other sessions from a time on",
        "silent: something expired",
        "delete: something expired",
        "went back",
        "a timer fired",
        "a row of a stream was told alone",
        "a rule found no state any more",
        "a row was deleted",
        "a row was put",
        "a timer was set",
        "a timer was deleted",
        "a timer was as before",
        "a window was deleted",
        "a window was put",
        "a session was deleted",
        "a session was put",
        "a row was brought back",
        "a key was erased",
        "switch to memory",
        "switch to lmdb",
        "switch to rocksdb",
    }
)
"""What comes of steps."""

BEGINNINGS: Final = st.fixed_dictionaries(
    {
        "kinds": st.lists(_KIND, min_size=1, max_size=3),
        "partitions": st.integers(1, 3),
        "backend": st.sampled_from(BACKENDS),
    }
)
STEP: Final = step(STEPS)
