"""``spark-submit`` to a standalone cluster whose Pythons have Millpond only by what is submitted."""

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.packaging.test_packages import clean_copy
from tests.plugins.environment import Environment
from tests.spark.standalone import standalone, submit

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

JOB = Path(__file__).with_name("submitted_job.py")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of Millpond in a wheelhouse."""
    place = tmp_path_factory.mktemp("wheel")
    builder = Environment(place / "builder")
    builder.pip("install", "setuptools>=77", "wheel")
    sources = clean_copy(place / "millpond")
    builder.pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(place / "wheelhouse"), str(sources))
    (made,) = (place / "wheelhouse").glob("millpond-*.whl")
    return made


@pytest.fixture(scope="module")
def archive(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with Millpond from the wheelhouse, packed."""
    place = tmp_path_factory.mktemp("archive")
    environment = Environment(place / "env")
    # Millpond of the development environment is in sight, and no part of the archive.
    found = ["--ignore-installed", "--no-index", "--no-deps", "--find-links", str(wheel.parent)]
    environment.pip("install", *found, "millpond")
    with tarfile.open(place / "env.tar.gz", "w:gz", compresslevel=1) as packed:
        packed.add(place / "env", arcname=".")
    return place / "env.tar.gz"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with all packages but Millpond."""
    return Environment(tmp_path_factory.mktemp("bare") / "env").python


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the master of a standalone cluster."""
    with standalone(tmp_path_factory.mktemp("cluster")) as url:
        yield url


def last_line(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return what the job has printed last."""
    lines = [line for line in done.stderr.splitlines() if re.search("Error|Exception|FAILED", line)]
    assert done.returncode == 0, "\n".join([done.stdout[-2000:], *lines[:60]])
    printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return printed


def submitted_with_archive(cluster: str, archive: Path, place: Path, driver: Path) -> dict[str, Any]:
    """Return what the job prints whose driver runs another Python than ``./env/bin/python``, which executors have."""
    python = ["--conf", "spark.pyspark.python=./env/bin/python", "--conf", f"spark.pyspark.driver.python={driver}"]
    return last_line(submit(place, cluster, "--archives", f"{archive}#env", *python, str(JOB), str(place)))


def test_an_archive_is_what_executors_run_and_the_driver_has_it_unpacked(
    cluster: str, archive: Path, tmp_path: Path
) -> None:
    (tmp_path / "env").mkdir()
    subprocess.run(["tar", "-xzf", str(archive), "-C", str(tmp_path / "env")], check=True)
    found = submitted_with_archive(cluster, archive, tmp_path, tmp_path / "env" / "bin" / "python")
    assert found["counts"] == [["a", 2], ["b", 1]]
    python, millpond = found["worker"]
    assert "/env/bin/python" in python
    assert str(tmp_path) not in millpond


def test_a_driver_beside_which_the_archive_is_not_unpacked_is_told_before_the_query_starts(
    cluster: str, archive: Path, tmp_path: Path
) -> None:
    found = submitted_with_archive(cluster, archive, tmp_path, archive.parent / "env" / "bin" / "python")
    assert (
        "Spark starts ./env/bin/python for a verb where its driver runs, too, and that cannot run" in found["refused"]
    )
    advice = "unpacked where the driver starts: mkdir env && tar -xzf env.tar.gz -C env [MILLPOND-WORKER-PYTHON]"
    assert found["refused"].endswith(advice)
    assert not (tmp_path / "state").exists()


def test_the_wheel_under_another_name_is_a_py_file(cluster: str, wheel: Path, bare: Path, tmp_path: Path) -> None:
    (tmp_path / "millpond.zip").write_bytes(wheel.read_bytes())
    python = ["--conf", f"spark.pyspark.python={bare}"]
    done = submit(tmp_path, cluster, "--py-files", "millpond.zip", *python, str(JOB), str(tmp_path))
    found = last_line(done)
    assert found["counts"] == [["a", 2], ["b", 1]]
    assert "millpond.zip" in found["worker"][1]


def test_a_standalone_cluster_has_no_cluster_mode_for_python(cluster: str, tmp_path: Path) -> None:
    done = submit(tmp_path, cluster, "--deploy-mode", "cluster", str(JOB), str(tmp_path))
    assert done.returncode != 0
    assert (
        "Cluster deploy mode is currently not supported for python applications on standalone clusters" in done.stderr
    )


def test_the_environments_of_these_tests_have_no_millpond_of_their_own(bare: Path) -> None:
    asked = [
        str(bare),
        "-c",
        "import importlib.util as u; print(u.find_spec('millpond'), u.find_spec('pyspark') is None)",
    ]
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    told = subprocess.run(asked, capture_output=True, text=True, check=True, env=own).stdout
    assert told.split() == ["None", "False"]
    assert sys.executable != str(bare)
