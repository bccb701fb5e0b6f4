"""``RecentVersions`` knows every older version of a key from its first one on, in whatever order they came."""

from collections.abc import Callable
from functools import partial
from operator import methodcaller

from hypothesis import given
from hypothesis import strategies as st

from millpond.stores.encoding.keys import pack_time
from millpond.stores.typed.versions.earlier_versions import RecentVersions
from millpond.stores.typed.versions.version_rows import TOMBSTONE

TIMES = st.integers(0, 30)


@given(st.booleans(), st.lists(st.tuples(st.booleans(), TIMES, st.booleans())), st.lists(TIMES, min_size=1))
def test_the_version_of_a_time_is_found_whatever_came_late_or_waited_to_be_noted(
    alone: bool, puts: list[tuple[bool, int, bool]], asked: list[int]
) -> None:
    recent, expected = RecentVersions(), dict[int, bytes]()
    latest = 15
    recent.replaced(b"row", pack_time(latest), b"first", alone=alone)
    expected[latest] = b"first"
    for number, (later, time, waits) in enumerate(puts):
        version = b"%d" % number
        note = recent.later if waits else partial(_now, recent)
        if later:
            latest += 1 + time
            note(methodcaller("replaced", b"row", pack_time(latest), version, alone=False))
            expected[latest] = version
        elif time < latest:
            note(methodcaller("put", b"row", pack_time(time), version))
            if alone or time >= 15:
                expected[time] = version
    for time in [*asked, *expected]:
        valid = max((start for start in expected if start <= time), default=None)
        nothing = (b"", TOMBSTONE) if alone else None
        found = nothing if valid is None else (pack_time(valid), expected[valid])
        assert recent.at(b"row", time) == found
    entries = [(pack_time(start), expected[start]) for start in sorted(expected)]
    assert recent.of_key(b"row", len(entries) + 1) == [*([(b"", TOMBSTONE)] if alone else []), *entries]
    assert recent.of_key(b"row", len(entries) - 1) is None
    assert recent.of_key(b"other", 0) == []
    recent.later(methodcaller("put", b"row", pack_time(latest), b"forgotten"))
    recent.forget(b"row")
    assert recent.at(b"row", latest) is None


def _now(recent: RecentVersions, note: Callable[[RecentVersions], None]) -> None:
    note(recent)
