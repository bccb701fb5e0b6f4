"""``RecentVersions`` knows every older version of a key from its first one on, in whatever order they came."""

from hypothesis import given
from hypothesis import strategies as st

from millpond.stores.encoding.keys import pack_time
from millpond.stores.typed.versions.recent_versions import RecentVersions
from millpond.stores.typed.versions.version_rows import TOMBSTONE

TIMES = st.integers(0, 30)


@given(st.booleans(), st.lists(st.tuples(st.booleans(), TIMES)), st.lists(TIMES, min_size=1))
def test_the_version_of_a_time_is_found_whatever_came_late(
    alone: bool, puts: list[tuple[bool, int]], asked: list[int]
) -> None:
    recent, expected = RecentVersions(), dict[int, bytes]()
    latest = 15
    recent.replaced(b"row", pack_time(latest), b"first", alone=alone)
    expected[latest] = b"first"
    for number, (later, time) in enumerate(puts):
        version = b"%d" % number
        if later:
            latest += 1 + time
            recent.replaced(b"row", pack_time(latest), version, alone=False)
            expected[latest] = version
        elif time < latest:
            recent.put(b"row", pack_time(time), version)
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
    recent.forget(b"row")
    assert recent.at(b"row", 15) is None
