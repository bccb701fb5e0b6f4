"""Manifests: their JSON never changes its meaning, and unknown versions are refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import FormatError
from millpond.releases import RELEASE, Release
from millpond.stores.durability import DurabilityPolicy, Manifest
from millpond.stores.durability.manifests.base import Base
from millpond.stores.durability.manifests.bridge import BRIDGED, Bridge
from millpond.stores.durability.manifests.policy import garbage_base
from millpond.stores.durability.storage.checked_text import checked_text
from millpond.stores.durability.storage.durable_file import DurableFile, FileKind, file_name, new_commit_id, sequence_of

SNAPSHOT = DurableFile(FileKind.SNAPSHOT, 3, "a" * 32, 10, 1000, 7)
DELTA = DurableFile(FileKind.DELTA, 4, "b" * 32, 2, 300, 8)
MANIFEST = Manifest("app", "0_1", "print", "c" * 32, SNAPSHOT, (DELTA,), (Base(1, 1),))

VERSION_1 = (
    '{"millpond":1,"application":"app","task":"0_1","fingerprint":"print","lineage":"cccccccccccccccccccccccccccccccc",'
    '"snapshot":[3,"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",10,1000,7],'
    '"deltas":[[4,"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",2,300,8]],"bases":[1]}'
)


VERSION_2 = (
    '{"millpond":2,"application":"app","task":"0_1","fingerprint":"print","lineage":"cccccccccccccccccccccccccccccccc",'
    '"snapshot":[3,"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",10,1000,7],'
    '"deltas":[[4,"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",2,300,8]],"bases":[1],"crc32":1542270963}'
)


VERSION_2_OF_A_RELEASE = (
    '{"millpond":2,"application":"app","task":"0_1","fingerprint":"print","lineage":"cccccccccccccccccccccccccccccccc",'
    '"snapshot":[3,"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",10,1000,7],'
    '"deltas":[[4,"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",2,300,8]],"bases":[1],'
    '"written_by":"0.2.0","oldest_reader":"0.2.0","crc32":626704308}'
)


VERSION_3 = (
    '{"millpond":3,"application":"app","task":"0_1","fingerprint":"print","lineage":"cccccccccccccccccccccccccccccccc",'
    '"snapshot":[3,"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",10,1000,7],'
    '"deltas":[[4,"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",2,300,8]],"bases":[1],"prepared":["counts"],"written_by":"0.2.0",'
    '"oldest_reader":"0.2.0","crc32":576771627}'
)


BRIDGED_MANIFEST = replace(MANIFEST, bridge=Bridge("9" * 32, (DurableFile(FileKind.DELTA, 3, "a" * 32, 4, 400, 9),)))
VERSION_2_WITH_A_BRIDGE = (
    '{"millpond":2,"application":"app","task":"0_1","fingerprint":"print","lineage":"cccccccccccccccccccccccccccccccc",'
    '"snapshot":[3,"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",10,1000,7],'
    '"deltas":[[4,"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",2,300,8]],"bases":[1],'
    '"bridge":["99999999999999999999999999999999",[[3,"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",4,400,9]]],'
    '"written_by":"0.2.0","oldest_reader":"0.2.0","crc32":3686987334}'
)


def written_now(text: str) -> str:
    """Return what this release writes in place of a text that 0.2.0 wrote."""
    content = {name: value for name, value in json.loads(text).items() if name != "crc32"}
    return checked_text({**content, "written_by": RELEASE})


def delta(sequence: int) -> DurableFile:
    return DurableFile(FileKind.DELTA, sequence, new_commit_id(), 1, 100, 0)


def snapshot(sequence: int) -> DurableFile:
    return DurableFile(FileKind.SNAPSHOT, sequence, new_commit_id(), 1, 100, 0)


def test_version_2_is_written_as_ever() -> None:
    assert MANIFEST.to_json() == written_now(VERSION_2_OF_A_RELEASE)


@pytest.mark.parametrize("text", [VERSION_2, VERSION_2_OF_A_RELEASE])
def test_version_2_is_read_as_ever(text: str) -> None:
    assert Manifest.from_json(text) == MANIFEST


def test_the_two_releases_take_few_bytes() -> None:
    assert len(VERSION_2_OF_A_RELEASE) - len(VERSION_2) < 50


def test_version_1_is_written_for_the_release_that_reads_no_other() -> None:
    old = replace(MANIFEST, prepared=("counts",), oldest_reader=Release(0, 1))
    text = old.to_json()
    assert text.startswith(VERSION_1[:-1])
    assert json.loads(text) == json.loads(VERSION_1) | {
        "prepared": ["counts"],
        "written_by": RELEASE,
        "oldest_reader": "0.1.0",
    }
    read = Manifest.from_json(text)
    assert (read, read.oldest_reader) == (old, Release(0, 1))


def test_the_oldest_reader_is_that_of_all_files() -> None:
    old = Manifest.from_json(VERSION_1)
    assert old.oldest_reader == Release(0, 1)
    assert old.with_delta(delta(5), Release(0, 1)).oldest_reader == Release(0, 1)
    mixed = old.with_delta(delta(5), Release(0, 2))
    assert mixed.oldest_reader == mixed.with_delta(delta(6), Release(0, 1)).oldest_reader == Release(0, 2)
    assert mixed.with_snapshot(snapshot(6), (), Release(0, 1)).oldest_reader == Release(0, 1)


@pytest.mark.parametrize("known", [1, 2, 3])
def test_a_known_version_that_a_later_release_must_read_is_refused(known: int) -> None:
    content = json.loads({1: VERSION_1, 2: VERSION_2, 3: VERSION_3}[known])
    content.pop("crc32", None)
    content |= {"written_by": "9.10.1", "oldest_reader": "9.10.0"}
    text = json.dumps(content) if known == 1 else checked_text(content)
    with pytest.raises(FormatError, match=r"task '0_1' was written by release 9\.10\.1 .* for release 9\.10\.0 or"):
        Manifest.from_json(text)


@pytest.mark.parametrize("release", [17, "", "newest", "1", "0.2.0.1", None])
def test_a_reader_that_is_no_release_is_damage(release: object) -> None:
    with pytest.raises(FormatError, match="damaged"):
        Manifest.from_json(json.dumps(json.loads(VERSION_1) | {"written_by": "0.2.0", "oldest_reader": release}))


def test_a_manifest_for_a_later_release_is_read_by_that(monkeypatch: pytest.MonkeyPatch) -> None:
    later = json.dumps(json.loads(VERSION_1) | {"written_by": "9.9.1", "oldest_reader": "9.8.0"})
    with pytest.raises(
        FormatError, match=rf"is release {RELEASE}; run release 9\.8\.0 or a newer one\. Nothing has been"
    ):
        Manifest.from_json(later)
    monkeypatch.setattr("millpond.releases.THIS_RELEASE", Release.of("9.8.0"))
    assert Manifest.from_json(later) == MANIFEST


def test_a_flip_in_any_bit_of_a_manifest_is_found() -> None:
    original = VERSION_2.encode()
    for bit in range(len(original) * 8):
        damaged = bytearray(original)
        damaged[bit // 8] ^= 1 << bit % 8
        if chr(damaged[bit // 8]).isascii():  # no other byte can be alone in the text that the manifest is
            with pytest.raises(FormatError):
                Manifest.from_json(damaged.decode())


def test_version_1_is_read_as_ever() -> None:
    assert Manifest.from_json(VERSION_1) == MANIFEST


def test_the_empty_manifest_survives_the_round_trip() -> None:
    empty = Manifest.empty("app", "0_1", "print")
    assert Manifest.from_json(empty.to_json()) == empty
    assert (empty.commit, empty.sequence, empty.files) == ("", 0, ())


def test_an_unknown_version_is_refused_by_number() -> None:
    with pytest.raises(FormatError, match="version 5, but this release of Millpond knows versions 1 to 4; run the"):
        Manifest.from_json(VERSION_2.replace('"millpond":2', '"millpond":5'))


def test_an_unknown_version_tells_which_release_reads_it() -> None:
    later = '{"millpond":5,"oldest_reader":"9.8.0","written_by":"9.9.1"}'
    with pytest.raises(FormatError, match=r"run release 9\.8\.0 or a newer one \(it was written by 9\.9\.1\)"):
        Manifest.from_json(later)


def test_version_3_is_written_only_for_stores_that_are_prepared() -> None:
    prepared = replace(MANIFEST, prepared=("counts", "sums"))
    text = prepared.to_json()
    written = json.loads(text)
    assert (written["millpond"], written["prepared"], written["oldest_reader"]) == (3, ["counts", "sums"], "0.2.0")
    assert written["written_by"] == RELEASE
    assert Manifest.from_json(text) == prepared
    assert replace(prepared, prepared=()).to_json() == written_now(VERSION_2_OF_A_RELEASE)


def test_version_3_is_read_as_ever() -> None:
    assert Manifest.from_json(VERSION_3) == replace(MANIFEST, prepared=("counts",))


def test_version_2_with_a_bridge_is_written_and_read_as_ever() -> None:
    assert BRIDGED_MANIFEST.to_json() == written_now(VERSION_2_WITH_A_BRIDGE)
    assert Manifest.from_json(VERSION_2_WITH_A_BRIDGE) == BRIDGED_MANIFEST


def test_a_bridge_leads_across_snapshots_and_never_further_than_is_worth_it() -> None:
    manifest = Manifest.empty("app", "0_1", "").with_snapshot(snapshot(1), ())
    commits = [manifest.commit]
    for sequence in range(2, 2 * BRIDGED):
        own = delta(sequence)
        large = DurableFile(FileKind.SNAPSHOT, sequence, own.commit, 1000, 100, 0)
        manifest = manifest.with_delta(own) if sequence % 3 else manifest.with_snapshot(large, (), delta=own)
        commits.append(manifest.commit)
    assert manifest.bridge is not None
    assert manifest.bridge.commits == commits[: -len(manifest.deltas) or None][-BRIDGED - 1 :]
    assert manifest.across(commits[-3 - BRIDGED]) is None
    assert Manifest.from_json(manifest.to_json()) == manifest
    own = delta(manifest.sequence + 1)
    small = DurableFile(FileKind.SNAPSHOT, own.sequence, own.commit, 3, 100, 0)
    bridge = manifest.with_snapshot(small, (), delta=own).bridge
    assert bridge is not None
    assert len(bridge.deltas) == small.rows
    assert manifest.with_snapshot(small, ()).bridge is None


@pytest.mark.parametrize(
    "bridge",
    [
        [],
        ["9" * 32, []],
        ["", [[3, "a" * 32, 2, 300, 8]]],
        ["9" * 32, [[3, "b" * 32, 2, 300, 8]]],
        ["9" * 32, [[1, "b" * 32, 2, 300, 8], [3, "a" * 32, 2, 300, 8]]],
    ],
)
def test_a_bridge_that_does_not_lead_to_the_snapshot_is_refused(bridge: list[object]) -> None:
    with pytest.raises(FormatError, match="damaged"):
        Manifest.from_json(checked_text({**json.loads(MANIFEST.to_json()), "bridge": bridge}))


@pytest.mark.parametrize("text", ["", "rubbish", "[]", "{}", "17", '"text"'])
def test_what_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        Manifest.from_json(text)


@pytest.mark.parametrize("field", ["application", "task", "fingerprint", "lineage", "snapshot", "deltas", "bases"])
def test_a_manifest_without_one_of_its_fields_is_damaged(field: str) -> None:
    content = json.loads(VERSION_1)
    del content[field]
    with pytest.raises(FormatError, match="damaged"):
        Manifest.from_json(json.dumps(content))


@pytest.mark.parametrize("field", ["snapshot", "deltas", "bases"])
@pytest.mark.parametrize("damage", ["rubbish", [[1, 2]], 17])
def test_a_manifest_with_a_field_of_another_shape_is_damaged(field: str, damage: object) -> None:
    with pytest.raises(FormatError, match="damaged"):
        Manifest.from_json(json.dumps(json.loads(VERSION_1) | {field: damage}))


@pytest.mark.parametrize(
    "damage",
    [
        {"lineage": "../../elsewhere"},
        {"lineage": "C" * 32},
        {"lineage": "c" * 31 + "\n"},
        {"snapshot": [3, "../" * 10 + "aa", 10, 1000, 7]},
        {"snapshot": [-1, "a" * 32, 10, 1000, 7]},
        {"snapshot": [3, "a" * 32, 10, True, 7]},
        {"snapshot": [3, "a" * 32, "10", 1000, 7]},
        {"deltas": [[6, "b" * 32, 2, 300, 8]]},
        {"bases": [1.5]},
        {"application": 17},
    ],
)
def test_what_no_commit_writes_is_refused(damage: dict[str, object]) -> None:
    with pytest.raises(FormatError, match="damaged"):
        Manifest.from_json(json.dumps(json.loads(VERSION_1) | damage))


def test_names_of_files_tell_their_sequence() -> None:
    assert sequence_of(file_name(FileKind.DELTA, 17, "a" * 32)) == 17
    assert DELTA.name == "000000000004-bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb.delta.parquet"
    for name in ("notes.txt", "17.delta.parquet", "topology-1"):
        assert sequence_of(name) is None


def test_what_follows_a_commit_is_known_for_commits_of_the_manifest_only() -> None:
    assert MANIFEST.after(SNAPSHOT.commit) == (DELTA,)
    assert MANIFEST.after(DELTA.commit) == ()
    assert MANIFEST.after("d" * 32) is None
    assert MANIFEST.after("") is None
    assert Manifest.empty("app", "0_1", "").after("") == ()


def test_a_manifest_is_small() -> None:
    manifest = Manifest.empty("application", "0_1", "f" * 64).with_snapshot(
        snapshot(1), tuple(Base(one, one) for one in range(16))
    )
    for sequence in range(2, 66):
        manifest = manifest.with_delta(delta(sequence))
    assert len(manifest.to_json()) < 5_000


@given(st.lists(st.booleans(), max_size=120), st.integers(1, 20))
def test_garbage_is_older_than_all_that_retained_manifests_name(snapshots: list[bool], retained: int) -> None:
    policy = DurabilityPolicy(retained_commits=retained)
    manifest, history = Manifest.empty("app", "0_1", ""), []
    for sequence, is_snapshot in enumerate(snapshots, start=1):
        if is_snapshot or sequence == 1:
            manifest = manifest.with_snapshot(snapshot(sequence), policy.bases_after(manifest))
        else:
            manifest = manifest.with_delta(delta(sequence))
        history.append(manifest)
        base = garbage_base(manifest, policy) or 0
        assert all(file.sequence >= base for kept in history[-retained - 1 :] for file in kept.files)
        assert len(manifest.bases) <= 18 + retained % 16


def test_garbage_does_not_pile_up() -> None:
    policy = DurabilityPolicy(retained_commits=160)
    manifest = Manifest.empty("app", "0_1", "")
    for sequence in range(1, 1000):
        manifest = manifest.with_snapshot(snapshot(sequence), policy.bases_after(manifest))
    base = garbage_base(manifest, policy)
    assert base is not None
    assert manifest.sequence - base <= 160 + 10
    assert len(manifest.bases) <= 18


COUNTS = {
    "a sequence beyond the digits of a name": lambda content: content["snapshot"].__setitem__(0, 10**12),
    "a sequence of 10^30": lambda content: content["snapshot"].__setitem__(0, 10**30),
    "rows beyond 63 bits": lambda content: content["snapshot"].__setitem__(2, 2**63),
    "a size of 2^80": lambda content: content["snapshot"].__setitem__(3, 2**80),
    "a checksum beyond 32 bits": lambda content: content["snapshot"].__setitem__(4, 2**32),
    "a base of 10^30": lambda content: content.__setitem__("bases", [10**30]),
    "a negative size": lambda content: content["snapshot"].__setitem__(3, -1),
    "a size that is true": lambda content: content["snapshot"].__setitem__(3, True),
}


@pytest.mark.parametrize("change", COUNTS.values(), ids=COUNTS)
def test_a_count_that_cannot_be_is_refused(change: Callable[[dict[str, Any]], None]) -> None:
    file = DurableFile(FileKind.SNAPSHOT, 1, new_commit_id(), 1, 1, 1)
    whole = json.loads(Manifest("app", "0_0", "f", new_commit_id(), file, bases=(Base(1, 1),)).to_json())
    del whole["crc32"]
    assert Manifest.from_json(checked_text(whole)).sequence == 1
    change(whole)
    with pytest.raises(FormatError, match="is no count from 0 to"):
        Manifest.from_json(checked_text(whole))
