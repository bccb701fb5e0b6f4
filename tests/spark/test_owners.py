"""The owners of checkpoints and directories: a refusal of others says what to give, and that works. No Spark runs."""

import pytest

pytest.importorskip("pyspark")

from millpond.adapters.spark.outputs.owners import check_apart, claim_checkpoint, claim_directory
from millpond.errors import ConfigurationError, StateConflictError
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


def test_sinks_with_one_path_are_given_each_its_own() -> None:
    files = MemoryFiles({})
    query = claim_checkpoint(files, "/c", ["a", "b"])
    with pytest.raises(ConfigurationError, match=r"'a' and 'b' both have the path /out/,.*; give each its own"):
        check_apart(files, {"a": "/out", "b": "/out/"})
    paths = {"a": "/out/a", "b": "/out/b"}
    check_apart(files, paths)
    for _ in range(2):
        for sink, path in paths.items():
            claim_directory(files, path, query, sink)
            files.content[f"{path}/batch_id=0/part"] = "rows"
