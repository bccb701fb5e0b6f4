"""Whose a checkpoint and a directory are: what keeps others out says what to give, and that is taken. No Spark runs."""

import pytest

pytest.importorskip("pyspark")

from millpond.adapters.spark.outputs.owners import claim_checkpoint, claim_directory
from millpond.errors import StateConflictError
from tests.spark.test_continuation import MemoryFiles


def test_what_is_advised_for_a_checkpoint_and_a_path_of_others_is_taken() -> None:
    files = MemoryFiles({"/plain/metadata": "{}"})
    query = claim_checkpoint(files, "/c", ["a", "b"])
    files.write("/c/metadata", "{}")
    claim_directory(files, "/out/a", query, "a")
    files.write("/out/a/batch_id=0/part", "rows")
    for place in ("/c", "/plain"):
        with pytest.raises(StateConflictError, match="give the checkpoint_location of this query, or a new one with"):
            claim_checkpoint(files, place, ["a"])
    assert claim_checkpoint(files, "/c", ["a", "b"]) == query
    other = claim_checkpoint(files, "/new", ["a"])
    assert other != query
    with pytest.raises(StateConflictError, match="numbers begin anew with each checkpoint; give sink 'a' another path"):
        claim_directory(files, "/out/a", other, "a")
    for _ in range(2):
        claim_directory(files, "/out/new", other, "a")
        claim_directory(files, "/out/a", query, "a")
