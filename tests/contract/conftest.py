"""Parts that several modules of contracts need."""

from pathlib import Path

import pytest

from millpond.stores.testing.suite import Suite
from tests.drawing import tries

Suite.examples = tries(Suite.examples)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on the path, for distributions and modules of the test."""
    place = tmp_path / "site"
    place.mkdir()
    monkeypatch.syspath_prepend(place)
    return place
