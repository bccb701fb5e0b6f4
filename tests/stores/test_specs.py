"""Specs: checked when they are made, picklable, and the directory that follows from them."""

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import ConfigurationError
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.directory import store_directory
from millpond.stores.specs.formats import FormatVersion
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.testing.store_calls import KINDS, KindUnderTest
from millpond.stores.typed.versions.late_puts import LatePuts

LIMITS: dict[StoreKind, dict[str, int]] = {
    StoreKind.KEY_VALUE: {},
    StoreKind.TIMESTAMPED_KEY_VALUE: {},
    StoreKind.VERSIONED: {"history_retention": 1000},
    StoreKind.WINDOW: {"retention": 1000, "window_size": 10},
    StoreKind.TIMESTAMPED_WINDOW: {"retention": 1000, "window_size": 10},
    StoreKind.SESSION: {"retention": 1000},
    StoreKind.TIMESTAMPED_SESSION: {"retention": 1000},
}

SUFFIXES = ("Store", "KeyValueStore")


def spec(kind: StoreKind, name: str = "counts", **options: Any) -> StoreSpec:
    return StoreSpec(name, kind, STRING, INT64, **{**LIMITS[kind], **options})


@pytest.mark.parametrize("kind", StoreKind)
def test_a_spec_survives_pickling_and_opens_its_kind(kind: StoreKind, transaction: Transaction) -> None:
    traveled = pickle.loads(pickle.dumps(spec(kind)))
    assert traveled == spec(kind)
    store = traveled.open(transaction)
    assert type(store) is kind.traits.store
    assert (store.name, store.key_serde, store.value_serde) == ("counts", STRING, INT64)
    store.check()


@pytest.mark.parametrize("kind", KINDS, ids=[kind.id for kind in KINDS])
def test_the_reading_half_of_a_store_reads_and_does_not_write(kind: KindUnderTest, transaction: Transaction) -> None:
    store, half = kind.spec.open(transaction), kind.spec.open_read_only(transaction)
    assert isinstance(store, type(half))
    assert [method for method in kind.reads if not hasattr(half, method)] == []
    assert [method for method in kind.writes if hasattr(half, method)] == []
    assert type(half).__name__ == f"ReadOnly{type(store).__name__}"


def test_every_kind_has_its_traits() -> None:
    for kind in StoreKind:
        assert kind.traits.store.__name__ in {f"{kind.name.title().replace('_', '')}{rest}" for rest in SUFFIXES}
        assert kind.key_form.value in f"{kind.value} plain"
        assert kind.in_segments == ("window" in kind.value or "session" in kind.value)
        assert kind.versioned == spec(kind).versioned == (kind is StoreKind.VERSIONED)
        assert kind.stamped == (kind.versioned or kind.format_version is FormatVersion.TIMESTAMPED)


def test_kinds_of_one_family_differ_in_nothing_but_timestamps() -> None:
    for kind in StoreKind:
        plain = StoreKind(kind.family)
        assert plain.format_version is (FormatVersion.LATEST_APART if kind.versioned else FormatVersion.PLAIN)
        assert plain.traits.needed == kind.traits.needed
        timed = set(kind.traits.optional) - set(plain.traits.optional)
        assert timed == ({"ttl", "expired"} if kind is StoreKind.TIMESTAMPED_KEY_VALUE else set())
        assert (plain.family, plain.key_form, plain.versioned) == (kind.family, kind.key_form, kind.versioned)
    assert len({kind.family for kind in StoreKind}) == 4


@pytest.mark.parametrize("kind", StoreKind)
def test_the_directory_carries_the_format_version(kind: StoreKind) -> None:
    expected = "counts-v2" if kind.value.startswith("timestamped") else "counts-v3" if kind.versioned else "counts"
    assert store_directory(Path("/state"), "app", "0_1", "lmdb", spec(kind)) == Path("/state/app/0_1/lmdb") / expected


@pytest.mark.parametrize(
    "name", ["", " ", " counts", "a/b", "a\\b", "a\0b", "a\nb", ".", "..", ".hidden", "counts-v2", "counts-v17"]
)
def test_a_name_that_is_no_plain_file_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="store name"):
        spec(StoreKind.KEY_VALUE, name)


def test_the_message_for_a_name_that_ends_like_a_version_names_one_that_is_taken() -> None:
    with pytest.raises(ConfigurationError, match=r"'prices-v2' ends like the directory .* write 'prices_v2'"):
        spec(StoreKind.KEY_VALUE, "prices-v2")
    assert spec(StoreKind.KEY_VALUE, "prices_v2").directory_name == "prices_v2"
    assert spec(StoreKind.TIMESTAMPED_KEY_VALUE, "prices").directory_name == "prices-v2"


@pytest.mark.parametrize("name", ["counts-v", "v2", "counts-v2-old", "é", "a b", "KSTREAM-AGGREGATE-0001"])
def test_a_plain_file_name_is_taken(name: str) -> None:
    assert spec(StoreKind.KEY_VALUE, name).directory_name == name


@pytest.mark.parametrize(
    ("kind", "options", "reason"),
    [
        (StoreKind.VERSIONED, {"history_retention": None}, "needs history_retention"),
        (StoreKind.WINDOW, {"window_size": None}, "needs window_size"),
        (StoreKind.SESSION, {"retention": None}, "needs retention"),
        (StoreKind.KEY_VALUE, {"retention": 1}, "has no retention"),
        (StoreKind.WINDOW, {"grace": 1}, "has no grace"),
        (StoreKind.WINDOW, {"retention": -1}, "not negative"),
        (StoreKind.WINDOW, {"retention": 1.5}, "milliseconds as an int"),
        (StoreKind.VERSIONED, {"grace": 1001}, "longer than its history retention"),
        (StoreKind.SESSION, {"retain_duplicates": True}, "cannot retain duplicates"),
        (StoreKind.KEY_VALUE, {"late_puts": LatePuts.VALID}, "has no late_puts; .* choose the kind versioned"),
        (StoreKind.VERSIONED, {"grace": 999, "late_puts": LatePuts.VALID}, "leave out one of the two"),
        (StoreKind.KEY_VALUE, {"key_serde": "string"}, "not a serde"),
    ],
)
def test_limits_that_make_no_sense_are_refused(kind: StoreKind, options: dict[str, Any], reason: str) -> None:
    arguments: dict[str, Any] = {"key_serde": STRING, "value_serde": INT64, **LIMITS[kind], **options}
    with pytest.raises(ConfigurationError, match=reason):
        StoreSpec("counts", kind, **arguments)


@pytest.mark.parametrize("part", ["", ".", "..", "a/b"])
def test_a_directory_part_that_is_no_plain_file_name_is_refused(part: str) -> None:
    with pytest.raises(ConfigurationError, match="plain file name"):
        store_directory(Path("/state"), part, "0_1", "lmdb", spec(StoreKind.KEY_VALUE))


def test_no_other_module_of_stores_or_adapters_compares_kinds() -> None:
    rooms = Path(__file__).parents[2]
    sources = [path for room in ("stores", "adapters") for path in (rooms / room).rglob("*.py")]
    assert len(sources) > 50
    comparing = {path.name for path in sources if "StoreKind." in "".join(comparisons_in(path))}
    assert comparing == set()


def comparisons_in(path: Path) -> Iterator[str]:
    """Yield the comparisons in a file, as text."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Compare):
            yield ast.unparse(node)
