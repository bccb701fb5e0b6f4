"""The fixture that comes with Millpond, for every pytest that finds it installed.

Rule of this module: all runs of pytest load it, so it imports nothing of Millpond until a test asks for the fixture.
"""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from millpond.processors.pond.any_batches import AnyBatches


@pytest.fixture
def any_batches(request: pytest.FixtureRequest) -> "AnyBatches":
    """Feeds a verb with rows in micro-batches that are cut at random, and fails where they change what it answers.

    How they are cut follows from the name of the test: a failure happens again.
    """
    from millpond.processors.pond.any_batches import AnyBatches

    return AnyBatches(request.node.nodeid)
