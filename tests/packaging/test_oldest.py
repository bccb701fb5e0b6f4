"""Every package that a user installs with Millpond has a lower bound, and ``make test-oldest`` tests it."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.packaging.oldest import PYPROJECT, pins


def test_every_dependency_is_pinned_to_its_lower_bound() -> None:
    text = PYPROJECT.read_text()
    found = dict(pin.split("==") for pin in pins())
    assert {"numpy", "pyarrow", "pyspark", "pandas", "protobuf", "pytest"} <= set(found)
    for name, bound in found.items():
        assert re.search(rf'"{name}(\[sql\])?>={re.escape(bound)}[",]', text)


def test_a_dependency_without_a_lower_bound_is_refused(tmp_path: Path) -> None:
    project = tmp_path / "pyproject.toml"
    extras = "[project.optional-dependencies]\nmetrics=[]\nsketches=[]\nspark=[]\ntesting=[]"
    project.write_text(f'[project]\ndependencies = ["pandas<3"]\n{extras}')
    with pytest.raises(ValueError, match=r"'pandas<3' in pyproject\.toml has no lower bound"):
        list(pins(project))


def test_a_cluster_gets_all_that_spark_needs_but_pyspark() -> None:
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    others = [one.removesuffix(",<3") for one in extras["spark"] if not one.startswith("pyspark")]
    assert extras["cluster"] == others
