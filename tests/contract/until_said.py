"""A pytest plugin: once a mistake has been reported as the sentence that it breaks, the rest of the kit passes over it.

Most of the kit's time goes to backends of which nothing else is asked. Tests that prove the sentence go first.
"""

import inspect
import re
from typing import Any

import pytest

from millpond.stores.testing import sentences
from millpond.stores.testing.contract import says
from tests.contract.mistakes import MISTAKES, SAID

_said: set[str] = set()


def mistake_of(item: pytest.Item) -> str:
    """Return the mistake of the backend that a test of the kit runs on."""
    return item.nodeid.split("::")[-2].removeprefix("Test")


def is_said(mistake: str, message: str) -> bool:
    return MISTAKES.get(mistake, "\n") in message and re.search(SAID.get(mistake, ""), message) is not None


def proves(item: pytest.Item, mistake: str) -> bool:
    """Return whether a test names the sentence that a mistake breaks."""
    quoted = {name: one.sentence for name, one in vars(sentences).items() if isinstance(one, says)}
    broken = {name for name, sentence in quoted.items() if MISTAKES.get(mistake, "\n") in sentence}
    return isinstance(item, pytest.Function) and not broken.isdisjoint(
        re.findall(r"\w+", inspect.getsource(item.function))
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(dict.fromkeys(map(mistake_of, items)))}
    items.sort(key=lambda item: (places[mistake_of(item)], not proves(item, mistake_of(item))))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if mistake_of(item) in _said:
        pytest.skip("its mistake is found")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if call.excinfo is not None and is_said(mistake_of(item), str(call.excinfo.value)):
        _said.add(mistake_of(item))
    return report
