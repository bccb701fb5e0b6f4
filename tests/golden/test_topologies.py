"""Every golden topology behaves as Kafka Streams was recorded to, or as its own contract says where it broke that."""

from tests.golden import comparison, interpreter
from tests.golden.loader import Case

BACKENDS = ("memory",)


def concerns(case: Case) -> bool:
    return "topology" in case.content


def test_a_topology_does_what_was_recorded(case: Case, backend_name: str) -> None:
    run = interpreter.run(case.content, backend_name)
    if case.compare == "skip":
        # Not comparable; but only where the two differ in what they allow may there be an error.
        assert run.failed_at in (None, "build"), run.error
        return
    error = case.content.get("error", {})
    assert run.failed_at == error.get("at"), run.error or f"no error, but Kafka Streams says: {error.get('message')}"
    assert run.after == error.get("after")
    if run.failed_at in (None, "run"):
        assert comparison.compare_output(case, run.output) == []
        assert comparison.compare_versioned(case, run.versioned) == []
    if run.failed_at is None:
        assert comparison.compare_stores(case, run.stores) == []
