"""A pytest plugin: once a mistake has been reported as the sentence that it breaks, the rest of the kit passes over it.

Most of the kit's time goes to backends of which nothing else is asked.
"""

from typing import Any

import pytest

from tests.contract.mistakes import MISTAKES

_said: set[str] = set()


def mistake_of(item: pytest.Item) -> str:
    """The mistake of the backend that a test of the kit runs on."""
    return item.nodeid.split("::")[-2].removeprefix("Test")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if mistake_of(item) in _said:
        pytest.skip("its mistake is found")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if call.excinfo is not None and MISTAKES.get(mistake_of(item), "\n") in str(call.excinfo.value):
        _said.add(mistake_of(item))
    return report
