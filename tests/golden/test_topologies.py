"""Every golden topology behaves as Kafka Streams was recorded to, or as its own contract says if it broke that.

Without ``--backend`` all cases run on memory, and in ``make test`` a part of them on the other backends.
"""

import pytest

from tests.golden import comparison, interpreter
from tests.golden.conftest import BACKENDS
from tests.golden.loader import Case, cases


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    recorded = [case for case in cases(metafunc.config.getoption("golden_dir", None)) if "topology" in case.content]
    backends = metafunc.config.getoption("backend", None) or BACKENDS
    runs = [(case, backend) for backend in backends for case in recorded]
    metafunc.parametrize(("recorded", "engine"), runs, ids=[f"{case.id}-{backend}" for case, backend in runs])


@pytest.mark.first
def test_a_topology_does_what_was_recorded(recorded: Case, engine: str) -> None:
    run = interpreter.run(recorded.content, engine)
    if recorded.compare == "skip":
        # Not comparable; but an error is allowed only where the two differ in what they accept.
        assert run.failed_at in (None, "build"), run.error
        return
    error = recorded.content.get("error", {})
    assert run.failed_at == error.get("at"), run.error or f"no error, but Kafka Streams says: {error.get('message')}"
    assert run.after == error.get("after")
    if run.failed_at in (None, "run"):
        assert comparison.compare_output(recorded, run.output) == []
        assert comparison.compare_versioned(recorded, run.versioned) == []
    if run.failed_at is None:
        assert comparison.compare_stores(recorded, run.stores) == []
