"""Options as text."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import ConfigurationError
from millpond.masking import masked
from millpond.stores.backend.memory import MemorySupplier
from millpond.stores.backend.options import check_option, parse_bool, parse_int, parse_options, parse_size
from millpond.stores.backend.registry import supplier


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("7", 7), ("7B", 7), ("1kB", 1000), ("1KiB", 1024), (" 2 mib ", 2**21), ("0.5GB", 5 * 10**8)],
)
def test_sizes_have_decimal_and_binary_units(text: str, size: int) -> None:
    assert parse_size(text) == size


QUOTED = ("%20", "%09", "%0a", "%0D", "%22", "%27", "%26")


@pytest.mark.parametrize("text", ["", "-1", "MiB", "1 2", "1k", "1PiB", "1e3", "٣", "²MiB", "0.5", "0.9B", "1_000"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a size such as"):
        parse_size(text)


def test_switches_have_words_for_on_and_off() -> None:
    assert [parse_bool(word) for word in ("true", "ON", "yes", "1")] == [True] * 4
    assert [parse_bool(word) for word in ("false", "Off", "no", "0")] == [False] * 4
    with pytest.raises(ValueError, match="true or false"):
        parse_bool("maybe")


def test_whole_numbers_may_have_a_sign() -> None:
    assert [parse_int("12"), parse_int("-1")] == [12, -1]
    assert parse_int(" +12 ") == 12
    for text in ("1.5", "", "1_000", "٣", "²", "nan", "0x10", "9" * 5000):
        with pytest.raises(ValueError, match="a whole number"):
            parse_int(text)


def test_a_long_value_is_shown_by_its_beginning_without_a_password() -> None:
    with pytest.raises(ConfigurationError, match=r"is '9+…', but must be") as refused:
        parse_options("x", {"a": "9" * 5000}, {"a": parse_size})
    assert len(str(refused.value)) < 400
    with pytest.raises(ConfigurationError) as refused:
        check_option("x", "url", f"redis://me:hunter2{'2' * 300}@host", False, "text")
    assert "hunter" not in str(refused.value)


def test_as_many_open_files_as_the_engine_cannot_count_are_refused_before_it_opens() -> None:
    with pytest.raises(ConfigurationError, match=r"'max_open_files' of the backend 'rocksdb' is 2147483648"):
        supplier("rocksdb://?max_open_files=2147483648")


def test_an_unknown_option_lists_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="has no option 'c'; its options are a, b"):
        parse_options("x", {"c": "1"}, {"b": parse_int, "a": parse_int})
    with pytest.raises(ConfigurationError, match="has no option 'c'; it has no options"):
        parse_options("x", {"c": "1"}, {})


@pytest.mark.parametrize(
    "text",
    [
        "redis://:hunter2@host:6379/0",
        "redis://me:hunter2@host",
        "redis://hunter2@host",
        "redis:hunter2@host",
        "redis://me:x@hunter2:y@host",
        "redis://?url=redis://:hunter2@host&timeout=5",
        "redis://?url=redis%3A%2F%2F%3Ahunter2%40host&timeout=5",
        "redis://?password=hunter2&timeout=5",
        "redis://?timeout=5&db_passwd=hunter2",
        "redis://?API_KEY=hunter2&api-token=hunter2&client.secret=hunter2",
        *(f"redis://?url=redis://me:x{mark}hunter2@host" for mark in QUOTED),
        *(f"redis://?password=x{mark}hunter2" for mark in QUOTED),
        *(f"redis://me:x{mark}hunter2@host" for mark in (" ", "'", '"', "\t")),
    ],
)
def test_messages_show_no_passwords(text: str) -> None:
    shown = masked(text)
    assert "hunter2" not in shown
    assert "***" in shown
    assert ("timeout=5" in shown) == ("timeout=5" in text)
    for refused in (f"{text}&a=1&a=2", text.replace("redis", "redsi"), text.replace("://", "/://x")):
        with pytest.raises(ConfigurationError) as refusal:
            supplier(refused)
        assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(("option", "value"), [("url", "redis://:hunter2@host"), ("db_password", "hunter2")])
def test_a_refused_value_is_shown_without_its_password(option: str, value: str) -> None:
    def refuse(text: str) -> str:
        raise ValueError("something else")

    with pytest.raises(ConfigurationError, match=rf"'{option}' of the backend 'x' is '.*\*\*\*.*'") as refused:
        parse_options("x", {option: value}, {option: refuse})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("value", [b"redis://:hunter2@host", ["redis://:hunter2@host"], Path("redis://:hunter2@host")])
def test_a_value_of_another_type_is_shown_without_its_password(value: object) -> None:
    with pytest.raises(ConfigurationError, match=r"is .*\*\*\*@host.*, but must be text") as refused:
        check_option("x", "url", value, False, "text")
    assert "hunter2" not in str(refused.value)


def test_what_is_not_secret_is_shown() -> None:
    for text in ("rocksdb://?block_cache=64MiB&wal=off", "lmdb://?map_size=1GiB", "monkey://?keys=5"):
        assert masked(text) == text


@dataclass(frozen=True)
class UrlSupplier(MemorySupplier):
    url: str = ""


def test_a_password_longer_than_what_is_shown_of_a_value_of_another_type_is_not_shown() -> None:
    url: Any = f"redis://me:{'hunter2' * 20}@host".encode()
    with pytest.raises(ConfigurationError, match=r"is b'redis://\*\*\*@host', but must be of type str") as refused:
        supplier(UrlSupplier(url))
    assert "hunter2" not in str(refused.value)
