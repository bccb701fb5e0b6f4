"""The kit, run in this process test by test until the first failure, without what pytest does around each.

Rule of this module: it gives a test the same arguments as the fixtures of ``millpond.stores.testing.suite``.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from inspect import signature
from io import StringIO
from itertools import count
from pathlib import Path
from typing import Any

from millpond.stores.testing.sentences import DESTROY, RELEASE, SEEN
from millpond.stores.testing.suite import EDGE_KEYS, Suite


class _Captured:
    """In the place of pytest's ``capsys``."""

    def disabled(self) -> Any:
        return redirect_stdout(StringIO())


def first_failure(suite: Suite, parts: Sequence[type[Suite]], place: Path) -> Exception | None:
    """Return what the first test of ``parts`` that fails has raised; None if none does."""
    numbers = count()
    for part in parts:
        for name, test in vars(part).items():
            for arguments in _arguments(test) if name.startswith("test_") else ():
                try:
                    _run(suite, test, arguments, place / str(next(numbers)))
                except Exception as error:
                    error.add_note(name)
                    return error
    return None


def _arguments(test: Callable[..., None]) -> Iterator[dict[str, Any]]:
    """Yield the arguments that ``pytest.mark.parametrize`` gives, for one name; a test without it runs once."""
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    for mark in marks:
        name, values = mark.args
        yield from ({name: value} for value in values)
    if not marks:
        yield {}


def _run(suite: Suite, test: Callable[..., None], arguments: dict[str, Any], place: Path) -> None:
    place.mkdir(parents=True)
    with _nothing_stays_outside(suite, place), ExitStack() as stack:
        given: dict[str, Any] = {"tmp_path": place, "directory": place / "task" / "store", "capsys": _Captured()}
        wanted = signature(test).parameters
        if wanted.keys() & {"backend", "filled"}:
            backend = suite.open(given["directory"])
            stack.callback(RELEASE(backend.close))
            if "filled" in wanted:
                with SEEN:
                    backend.write({key: b"<" + key + b">" for key in reversed(EDGE_KEYS)})
            given |= {"backend": backend, "filled": backend}
        test(suite, **arguments, **{name: value for name, value in given.items() if name in wanted})


@contextmanager
def _nothing_stays_outside(suite: Suite, place: Path) -> Iterator[None]:
    before = sorted(map(repr, suite.outside()))
    yield
    with DESTROY:
        for path in [path for path in place.glob("**/*") if path.is_dir()]:
            suite.supplier().destroy(path)
        assert sorted(map(repr, suite.outside())) == before, "stores are left outside of their directories"
