"""The plugins as a user has them: wheels beside a wheel of Millpond, in an environment without any of the sources.

``make test-plugins`` makes that environment, ``.venv-plugins``, and then runs this.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.demo.test_kills import MOMENTS, Demo, kill_at
from tests.plugins.environment import PLUGINS, ROOT, Environment, wheel_of

sys.path.insert(0, str(PLUGINS / "millpond-redis" / "tests"))
sys.path.insert(0, str(PLUGINS / "millpond-slatedb" / "tests"))

from redis_servers import RedisServer, free_port
from s3_server import KEYS, S3Server

PYTHON = ROOT / ".venv-plugins" / "bin" / "python"
PAGE = (ROOT / "docs" / "writing-a-backend.md").read_text()
PASSWORD = "hunter2"
MOMENT = "after a later delta was written and before Spark committed"
ATTEMPTS = 3


def run(*command: str, cwd: Path, path: Path | None = None) -> str:
    """Return the output of a command, which must succeed; programs are looked up in ``path`` first."""
    unwanted = {"PYTHONPATH", "VIRTUAL_ENV"}
    environment = {name: value for name, value in os.environ.items() if name not in unwanted}
    if path is not None:
        environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def follow(steps: str, cwd: Path, environment: Environment) -> str:
    """Return the output of a page's commands, typed in a shell, in which a change of the directory lasts."""
    return run("bash", "-ec", steps, cwd=cwd, path=environment.bin)


@pytest.fixture
def only_millpond(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "environment", wheel_of("millpond"))


def test_everything_comes_from_a_wheel(tmp_path: Path) -> None:
    names = ("millpond", "millpond_mine", "millpond_redis", "millpond_slatedb", "millpond_sqlite")
    script = f"import {', '.join(names)}; print(*map(str, millpond.__path__))"
    for name in names:
        place = run(str(PYTHON), "-c", f"{script}; print({name}.__file__)", cwd=tmp_path).splitlines()[-1]
        assert Path(place).is_relative_to(ROOT / ".venv-plugins"), place
        assert (Path(place).parent / "py.typed").exists()


@pytest.mark.parametrize("plugin", ["millpond-sqlite", "millpond-redis", "millpond-slatedb"])
def test_a_plugin_that_is_installed_passes_its_tests(plugin: str, tmp_path: Path) -> None:
    tests = shutil.copytree(PLUGINS / plugin / "tests", tmp_path / "tests")
    shutil.copy(PLUGINS / plugin / "pyproject.toml", tmp_path)
    said = run(str(PYTHON), "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests), cwd=tmp_path)
    assert re.search(r"\b\d+ passed\b", said), said
    assert "skipped" not in said


@contextmanager
def backend_url(backend: str) -> Iterator[str]:
    """A backend for a job; servers are at a port of this machine, with a password or a secret key."""
    if backend == "sqlite":
        yield backend
        return
    if backend == "slatedb":
        with S3Server() as server, pytest.MonkeyPatch.context() as patch:
            for name, value in {**KEYS, "AWS_SECRET_ACCESS_KEY": PASSWORD}.items():
                patch.setenv(name, value)
            yield server.url()
        return
    port = free_port()
    with TemporaryDirectory(prefix="redis-") as place, RedisServer(Path(place), port=port, password=PASSWORD):
        yield f"redis://?url=redis://:{PASSWORD}@127.0.0.1:{port}/1"


@pytest.mark.parametrize("backend", ["sqlite", "redis", "slatedb"])
def test_the_demo_that_is_killed_and_started_again_has_the_right_answer(backend: str, tmp_path: Path) -> None:
    demo = Demo(tmp_path / "out", str(PYTHON))
    with backend_url(backend) as url:
        assert any(kill_at(demo, url, MOMENTS[MOMENT]) for _ in range(ATTEMPTS)), f"no run was killed {MOMENT}"
        said = demo.run(url)
    assert "yes  12,000 of 12,000 flights" in said
    shown = [path for path in demo.out.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()]
    assert PASSWORD not in said
    assert shown == []


def test_the_tutorial_leads_from_an_empty_folder_to_a_wheel(only_millpond: Environment, tmp_path: Path) -> None:
    """Every file as it stands on the page, every command in its order."""
    place = tmp_path / "tutorial"
    place.mkdir()
    said = ""
    where = place
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        file = re.match(r"# ([\w/]+\.(?:py|toml))\n", text)
        if file is not None:
            (where / file[1]).write_text(text[file.end() :])
        elif language == "sh":
            said += follow(text, where, only_millpond)
            where = place / "millpond-sqlite"
    assert "SqliteBackend has no optional methods" in said
    assert len(re.findall(r"\b\d+ passed\b", said)) == 2, said
    assert re.search(r"^sqlite  \(millpond-sqlite 0\.1\.0, millpond_sqlite:SqliteSupplier\)$", said, re.MULTILINE)
    (wheel,) = (where / "dist").glob("millpond_sqlite-*.whl")
    elsewhere = Environment(tmp_path / "elsewhere", wheel_of("millpond"), wheel)
    script = "from millpond.stores import supplier; print(supplier('sqlite://?page_cache=1MiB'))"
    assert run(str(elsewhere.python), "-c", script, cwd=tmp_path) == "SqliteSupplier(page_cache=1048576)\n"


def test_the_template_is_copied_renamed_and_done(only_millpond: Environment, tmp_path: Path) -> None:
    """By the commands of its page."""
    shutil.copytree(PLUGINS / "template", tmp_path / "plugins" / "template")
    blocks = re.findall(
        r"^```sh\n(.*?)^```$", (PLUGINS / "template" / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    said = follow("".join(blocks), tmp_path, only_millpond)
    assert re.search(r"\b\d+ passed\b", said), said
    assert "WalnutBackend has no optional methods; opted out of one file: each write makes a new file" in said
    renamed = tmp_path / "millpond-walnut"
    assert [path for path in renamed.glob("**/*.py") if "mine" in path.read_text().lower()] == []
