"""The work of ``make`` before it installs anything, and its message if the machine lacks something."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with a Makefile and no .venv."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def make(project: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")} | variables
    return subprocess.run(
        ["make", *arguments], cwd=project, env=environment, capture_output=True, text=True, check=False
    )


def program(path: Path, script: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("target", ["demo", "test", "test-oldest", "test-versions", "test-plugins", "test-delta"])
def test_a_missing_java_is_noticed_before_anything_is_installed(project: Path, target: str) -> None:
    done = make(project, target, JAVA_HOME=str(project / "nowhere"))
    assert done.returncode != 0
    assert "apt-get install openjdk-17-jre-headless" in done.stderr
    assert "JAVA_HOME" in done.stderr
    assert not (project / ".venv").exists()


def test_a_program_that_the_tests_need_and_that_is_missing_is_named(project: Path) -> None:
    done = make(project, "needs-nowhere")
    assert done.returncode != 0
    assert "These tests need nowhere, which was not found." in done.stderr
    assert make(project, "needs-sh").returncode == 0
    for target, programs in {"test-kafka": ("mvn", "javac"), "test-delta": ("mvn",)}.items():
        would = make(project, "-n", target).stdout
        assert all(f"command -v {name} " in would for name in programs)


@pytest.mark.parametrize(
    ("said", "accepted"),
    [
        ('openjdk version "17.0.15" 2025-04-15', True),
        ('openjdk version "21" 2023-09-19', True),
        ('openjdk version "11.0.2" 2019-01-15', False),
        ('java version "1.8.0_292"', False),
    ],
)
def test_java_must_be_17_or_later(project: Path, said: str, accepted: bool) -> None:
    program(project / "java" / "bin" / "java", f"echo '{said}' >&2")
    done = make(project, "java", JAVA_HOME=str(project / "java"))
    assert (done.returncode == 0) is accepted, done.stderr


def test_a_missing_redis_server_is_named_with_its_package(project: Path) -> None:
    done = make(project, "redis-server", f"PATH={project}")
    assert done.returncode != 0
    assert "apt-get install redis-server" in done.stderr
    program(project / "redis-server", "exit 0")
    assert make(project, "redis-server", f"PATH={project}").returncode == 0


def test_a_python_that_is_too_old_is_refused_and_another_can_be_named(project: Path) -> None:
    old = program(project / "python3.9", "exit 1")
    done = make(project, ".venv/bin/python", f"PYTHON={old}")
    assert done.returncode != 0
    assert f"Millpond needs Python 3.11 or later; {old} is not one" in done.stderr
    assert "make PYTHON=" in done.stderr


def test_another_python_and_pyspark_have_an_environment_of_their_own_and_run_what_the_oldest_do(project: Path) -> None:
    (project / "tests" / "packaging").mkdir(parents=True)
    (project / "tests" / "packaging" / "oldest.py").touch()
    oldest = make(project, "-n", "test-oldest").stdout.splitlines()
    done = make(project, "-n", "test-versions", "PYTHON=/opt/python3.14", "PYSPARK=4.2.1").stdout
    assert "\"/opt/python3.14\" -m venv '.venv-python3.14-pyspark4.2.1'" in done
    assert "'pyspark[sql]==4.2.1'" in done
    assert oldest[-1].replace(".venv-oldest", ".venv-python3.14-pyspark4.2.1") == done.splitlines()[-1]


def test_the_demo_keeps_each_backends_outputs_apart(project: Path) -> None:
    for backend, out in (("lmdb", "demo-out/lmdb"), ("rocksdb://?block_cache=64MiB", "demo-out/rocksdb")):
        done = make(project, "-n", "demo", f"BACKEND={backend}")
        assert f"millpond demo --backend '{backend}' --out '{out}'" in done.stdout


def test_both_parts_of_the_tests_are_run_before_a_change_lands(project: Path) -> None:
    for target, part in {"test": "first", "test-rest": "rest"}.items():
        assert f"--part {part}" in make(project, "-n", target).stdout
        assert f"\nrun {target}\n" in (ROOT / ".ci" / "run").read_text()


def test_a_soak_lasts_as_long_as_it_is_told_to(project: Path) -> None:
    assert "MILLPOND_SOAK_SECONDS='60'" in make(project, "-n", "soak", "SECONDS=60").stdout


def test_an_installation_is_used_again_until_pyproject_changes(project: Path) -> None:
    program(project / ".venv" / "bin" / "python", "exit 0")
    stamp = project / ".venv" / "dev.stamp"
    assert make(project, ".venv/dev.stamp").returncode == 0
    first = stamp.stat().st_mtime_ns
    assert "up to date" in make(project, ".venv/dev.stamp").stdout
    os.utime(project / "pyproject.toml", ns=(first + 10**9, first + 10**9))
    os.utime(stamp, ns=(first, first))
    assert "pip" in make(project, ".venv/dev.stamp").stdout
