"""No error shows a secret of the state directory's URI, whatever library says it, and however it leaves."""

import pickle
import sys
import traceback
from base64 import b64encode
from collections.abc import Callable
from contextlib import redirect_stderr
from functools import cache, partial
from io import StringIO
from types import SimpleNamespace
from typing import Any, Final, NoReturn
from urllib.parse import quote

import pytest

from millpond import masking
from millpond.adapters.monitor.server import Source
from millpond.cli.terminal.ending import told, trace_without_secrets
from millpond.errors import DurabilityError, MillpondError
from millpond.masking import know, masked, masked_errors, quoted, without_known
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import Storage

SECRET: Final = "n0t/to be+shown=="
QUOTED: Final = quote(SECRET, safe="")
SPELLINGS: Final = {
    SECRET,
    QUOTED,
    QUOTED.lower(),
    quote(SECRET),
    quote(QUOTED, safe=""),
    SECRET.replace(" ", "+"),
    b64encode(SECRET.encode()).decode(),
}

PLACES: Final = {
    "`abfs://` with a SAS": f"abfs://c@acc.dfs.core.windows.net/x?sig={QUOTED}",
    "`abfs://` with a key": f"abfs://c@acc.dfs.core.windows.net/x?account_key={QUOTED}",
    "`s3://`": f"s3://key:{QUOTED}@b/x?endpoint_override=127.0.0.1:1&scheme=http&max_attempts=1&region=x",
    "`gs://`": f"gs://me:{QUOTED}@b/x?token={QUOTED}",
    "`hdfs://`": f"hdfs://me:{QUOTED}@127.0.0.1:1/x?token={QUOTED}",
    "`https://`": f"https://127.0.0.1:1/x?{QUOTED}",
    "fsspec's": f"ftp://me:{QUOTED}@127.0.0.1:1/x",
    "`file://`": f"file:///nowhere/x?token={QUOTED}&sync=perhaps",
}
"""State directories that cannot be reached, whatever network there is."""


@cache
def refusal(uri: str) -> MillpondError:
    try:
        Storage.from_uri(uri).list("")
    except MillpondError as error:
        return error
    raise AssertionError(f"{uri} can be listed")


def on_the_command_line(uri: str) -> str:
    return f"{told(refusal(uri))}\n{told(RuntimeError(f'the library says {uri}'))}"


def with_debug(uri: str) -> str:
    """Return what Python prints of an error that ends the process."""
    said, before = StringIO(), sys.excepthook
    try:
        trace_without_secrets()
        with redirect_stderr(said):
            for error in (refusal(uri), RuntimeError(f"the library says {uri}")):
                sys.excepthook(type(error), error, error.__traceback__)
    finally:
        sys.excepthook = before
    return said.getvalue()


def in_the_driver(uri: str) -> str:
    return "".join(traceback.format_exception(refusal(uri)))


def in_an_executor(uri: str) -> str:
    """Return an error of a library that nobody translates, in a worker that has the state directory."""
    short_errors = pytest.importorskip("millpond.adapters.spark.session.sent").short_errors
    refusal(uri)
    with pytest.raises(ValueError, match="cannot open") as caught, short_errors():
        fails(uri)
    return "".join(traceback.format_exception(caught.value))


def fails(uri: str, *_: object) -> NoReturn:
    untranslated = ValueError(f"cannot open {uri}")
    untranslated.__cause__ = OSError(5, f"no answer from {uri}", uri)
    raise untranslated


def in_an_executor_without(uri: str) -> str:
    """Return the same in a worker that never opens the state directory, and knows what has come with its work."""
    sent = pytest.importorskip("millpond.adapters.spark.session.sent").Sent
    refusal(uri)
    packed = pickle.dumps(sent(partial(fails, uri)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masking, "_secrets", set())
        masking._in_use.cache_clear()
        function = pickle.loads(packed)
        with pytest.raises(ValueError, match="cannot open") as caught:
            list(function(iter(())))
    masking._in_use.cache_clear()
    return "".join(traceback.format_exception(caught.value))


def in_the_progress(uri: str) -> str:
    """Return what is kept of a source that Spark describes by its URI."""
    keeping = pytest.importorskip("millpond.adapters.spark.monitoring.keeping")
    source = SimpleNamespace(description=f"FileStreamSource[{uri}]", numInputRows=1, metrics={})
    progress = SimpleNamespace(
        id=1, runId=2, name="q", batchId=1, timestamp="2026-01-01T00:00:00Z", durationMs={}, sources=[source]
    )
    return str(keeping.micro_batch(progress, []))


def in_the_log(uri: str) -> str:
    return f"{refusal(uri)}"


WAYS: Final[dict[str, Callable[[str], str]]] = {
    "command line": on_the_command_line,
    "`--debug`": with_debug,
    "driver": in_the_driver,
    "executor": in_an_executor,
    "executor that opens nothing": in_an_executor_without,
    "progress": in_the_progress,
    "log": in_the_log,
}

Seen = dict[tuple[str, str], str]


def whether_shown(text: str) -> str:
    return "shown" if any(one in text for one in SPELLINGS) else "masked"


@pytest.fixture(scope="module")
def seen() -> Seen:
    """Return whether a secret was shown, for each place and way."""
    return {(place, way): whether_shown(act(uri)) for place, uri in PLACES.items() for way, act in WAYS.items()}


def test_no_way_out_shows_a_secret(seen: Seen) -> None:
    assert [case for case, what in seen.items() if what != "masked"] == []


@pytest.mark.parametrize("spelled", sorted(SPELLINGS))
def test_a_secret_in_use_is_known_in_any_spelling(spelled: str) -> None:
    know(f"s3://key:{QUOTED}@bucket/x")
    assert spelled not in str(DurabilityError(f"the library says {spelled}, and no more"))
    assert DurabilityError(f"<{spelled}>").sentence == "<***>"


@pytest.mark.parametrize(
    "text",
    [
        "GET https://acc.blob.core.windows.net/c?sv=2024-01-01&sig=hunter22 failed",
        '{"access_token": "hunter22", "expires_in": 3600}',
        "Authorization: Bearer hunter22",
        "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=hunter22",
        "https://bucket.s3.amazonaws.com/x?X-Amz-Credential=a&X-Amz-Signature=hunter22",
    ],
)
def test_what_looks_like_a_secret_in_what_a_library_says_is_masked(text: str) -> None:
    assert "hunter22" not in masked(text)


@pytest.mark.parametrize("blank", ["+", "%20"])
def test_a_secret_with_a_blank_is_known_however_that_is_quoted(blank: str) -> None:
    Storage.from_uri(f"file:///nowhere/x?token=a{blank}blank%2Fin%2Bit")
    for spelled in ("a blank/in+it", "a%20blank%2Fin%2Bit", "a+blank%2Fin%2Bit"):
        assert without_known(f"<{spelled}>") == "<***>"


def test_the_password_of_a_backend_is_known() -> None:
    with pytest.raises(MillpondError):
        supplier("nowhere://?url=redis%3A%2F%2Fme%3AhunterX77%40host%2F0")
    assert without_known("cannot log in with hunterX77") == "cannot log in with ***"


def test_the_secrets_of_the_environment_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "abcdefgh/ijkl")
    know("s3://key:another-one-of-these@bucket")
    assert without_known("abcdefgh/ijkl, abcdefgh%2Fijkl") == "***, ***"


def test_what_is_no_secret_stays() -> None:
    know("s3://bucket/x?scheme=http&region=eu-west-1&endpoint_override=storage.example:9000&max_attempts=3")
    know("file:///x?sync=false")
    text = "http eu-west-1 storage.example:9000 false 3 x?sync=false, see Consumed(key='k', value='v')"
    assert without_known(text) == text


class Told(Exception):
    """An error that says more than its arguments."""

    def __init__(self, url: dict[str, str]) -> None:
        super().__init__(url)

    def __str__(self) -> str:
        return f"no answer from {self.args[0]['url']}"


def of_a_group() -> BaseException:
    return ExceptionGroup("two", [OSError(5, "x?sig=hunter-of-errors"), Told({"url": "x?sig=hunter-of-errors"})])


def with_a_note() -> BaseException:
    error = ValueError("failed")
    error.add_note("while x?sig=hunter-of-errors was asked")
    return error


@pytest.mark.parametrize(
    "error",
    [
        Told({"url": "x?sig=hunter-of-errors"}),
        of_a_group(),
        with_a_note(),
        SystemExit("x?sig=hunter-of-errors"),
    ],
)
def test_no_error_passes_that_shows_a_secret_wherever_it_keeps_it(error: BaseException) -> None:
    know("s3://key:hunter-of-errors@b")
    with pytest.raises(BaseException) as caught, masked_errors():  # noqa: PT011
        raise error
    text = "".join(traceback.format_exception(caught.value))
    assert "hunter-of-errors" not in text
    assert "?sig=***" in text


def test_the_server_of_the_page_has_nothing_to_print_that_shows_a_secret() -> None:
    url = "https://storage.example/x?sig=hunter-of-errors"

    def look() -> NoReturn:
        fails(url)

    know("s3://key:hunter-of-errors@b")
    watched: Any = SimpleNamespace(look=look)
    with pytest.raises(ValueError, match="cannot open") as caught:
        Source(watched, 1.0).data()
    assert "hunter-of-errors" not in "".join(traceback.format_exception(caught.value))


def test_an_error_without_a_secret_passes_as_it_is() -> None:
    error = KeyError("counts")
    with pytest.raises(KeyError) as caught, masked_errors():
        raise error
    assert caught.value is error
    assert error.args == ("counts",)


def test_a_cause_is_masked_with_its_file_and_its_own_causes() -> None:
    error = OSError(2, "no https://h/x?sig=hunter22", "s3://me:hunter22@b")
    error.__cause__ = KeyError("token=hunter22")
    assert "hunter22" not in quoted(error)
    assert "hunter22" not in "".join(traceback.format_exception(error))
    assert error.filename == "s3://***@b"
