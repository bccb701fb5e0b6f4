"""Ten programs of newcomers, each copied from the page it stands on into an empty folder, with Millpond from its wheel.

``python -m tests.packaging.test_newcomers`` runs them, and prints a table with how long each took.
"""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent
from time import monotonic, sleep
from typing import NamedTuple

import pytest

from millpond.bench.runs.processor_time import ProcessorTime
from tests.packaging.code_blocks import blocks
from tests.packaging.test_packages import clean_copy
from tests.plugins.environment import ROOT, Environment

MOST_SECONDS = 60
"""How much processor time a program of the README may take."""


class Program(NamedTuple):
    """A program on a page, and what the page says that it prints.

    Attributes:
        page: the page.
        what: what the program is about.
        code: its text.
        printed: what it prints.
    """

    page: str
    what: str
    code: str
    printed: str


def of_page(page: str, what: str, mark: str, *, before: bool = True) -> Program:
    """Return the block of a page that has a text, behind those before it, which its reader has typed as well."""
    found = blocks(page)
    last = next(number for number, block in enumerate(found) if mark in block.code)
    typed = found[: last + 1] if before else [found[last]]
    assert found[last].printed is not None
    return Program(page, what, "".join(block.code for block in typed), "".join(block.printed or "" for block in typed))


def of_example(name: str, what: str) -> Program:
    """Return a program of the examples, whose docstring ends with what it prints."""
    page = f"examples/{name}.py"
    code = (ROOT / page).read_text()
    return Program(page, what, code, dedent((ast.get_docstring(ast.parse(code)) or "").partition("prints::\n\n")[2]))


WITHOUT_JAVA = [
    of_page("README.md", "an as-of join of dicts", "Pond()"),
    of_page("docs/without-spark.md", "expressions of Arrow", 'pc.field("ask")'),
    of_page("docs/without-spark.md", "windows, micro-batch by micro-batch", "counting.advance"),
    of_page("docs/without-spark.md", "whether a result is right", "verify(at_once"),
    of_example("lookup_join", "a table in files"),
]
WITH_SPARK = [
    of_page("README.md", "an as-of join of DataFrames", "configure(", before=False),
    of_example("dataframe_asof_join", "two as-of joins in one query"),
    of_example("final_windows", "windows, once they are final"),
    of_example("unpaid_orders", "a rule with timers"),
    of_example("late_stream_join", "a join of two streams"),
]


class Took(NamedTuple):
    """The time that a program took, and its output aside.

    Attributes:
        seconds: until it ended.
        processor: seconds of processor time of all its processes.
        aside: what it has written to the standard error.
    """

    seconds: float
    processor: float
    aside: str


class Newcomer:
    """Somebody who has installed Millpond, and types what stands on a page.

    Args:
        directory: where the environment is made.
        made: makes the wheel in a folder.
    """

    def __init__(self, directory: Path, made: Callable[[Path], Path] | None = None) -> None:
        self.environment = Environment(directory / "environment", (made or wheel)(directory))

    def run(self, program: Program, place: Path) -> Took:
        """Run a program in an empty folder until it has printed what the page says."""
        place.mkdir()
        (place / "program.py").write_text(program.code)
        unwanted = {"PYTHONPATH", "VIRTUAL_ENV", "PYSPARK_PYTHON", "JDK_JAVA_OPTIONS", "MILLPOND_ALL_CASES"}
        known = {name: value for name, value in os.environ.items() if name not in unwanted}
        known["PATH"] = f"{self.environment.bin}{os.pathsep}{known['PATH']}"
        out, aside = place / "out", place / "aside"
        with out.open("w") as stdout, aside.open("w") as stderr:
            began = monotonic()
            running = subprocess.Popen(["python", "program.py"], cwd=place, env=known, stdout=stdout, stderr=stderr)
            spent = ProcessorTime.of_family(running.pid)
            while running.poll() is None:
                spent.look()
                sleep(0.1)
        took = Took(monotonic() - began, spent.look(), aside.read_text())
        assert running.returncode == 0, took.aside[-3000:]
        assert out.read_text().rstrip() == program.printed.rstrip()
        return took


def wheel(directory: Path) -> Path:
    """Return a wheel of Millpond, made by ``python -m build`` from an sdist."""
    source = clean_copy(directory / "source")
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(directory / "dist"), str(source)],
        check=True,
        capture_output=True,
    )
    (made,) = (directory / "dist").glob("millpond-*.whl")
    return made


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Newcomer:
    return Newcomer(tmp_path_factory.mktemp("newcomer"))


@pytest.mark.long
@pytest.mark.parametrize("program", WITHOUT_JAVA, ids=lambda program: program.what)
def test_a_program_of_a_page_runs_from_an_empty_folder(program: Program, newcomer: Newcomer, tmp_path: Path) -> None:
    newcomer.run(program, tmp_path / "empty")


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("program", WITH_SPARK, ids=lambda program: program.what)
def test_a_program_of_a_page_runs_on_spark_from_an_empty_folder(
    program: Program, newcomer: Newcomer, tmp_path: Path
) -> None:
    newcomer.run(program, tmp_path / "empty")


@pytest.mark.long
@pytest.mark.spark
def test_the_programs_of_the_readme_take_less_than_a_minute_and_the_first_one_makes_no_noise(
    newcomer: Newcomer, tmp_path: Path
) -> None:
    first, second = (
        newcomer.run(program, tmp_path / str(number)) for number, program in enumerate((WITHOUT_JAVA[0], WITH_SPARK[0]))
    )
    assert first.processor < second.processor < MOST_SECONDS
    assert first.aside == ""


FIXTURE = """
import pyarrow as pa
from datetime import datetime
from millpond.processors.verbs import aggregates as agg

def test_counts(any_batches):
    rows = [{"k": "a", "at": datetime(2026, 6, 1, hour)} for hour in range(6)]
    schema = pa.Table.from_pylist(rows).schema
    assert any_batches(lambda pond: pond.aggregate(schema, {"n": agg.count()}, by="k", time="at"), rows)[0]["n"] == 6
"""


@pytest.mark.long
def test_pytest_finds_the_fixture_of_an_installed_millpond(newcomer: Newcomer, tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(FIXTURE)
    command = [str(newcomer.environment.python), "-m", "pytest", "-q", "test_own.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_the_sdist_and_the_wheel_pass_twine_and_each_of_them_installs(tmp_path: Path) -> None:
    pytest.importorskip("twine")
    made = wheel(tmp_path)
    (sdist,) = made.parent.glob("millpond-*.tar.gz")
    checked = [sys.executable, "-m", "twine", "check", "--strict", str(made), str(sdist)]
    done = subprocess.run(checked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    code = "import millpond; from millpond import Pond; print(millpond.__version__)"
    for number, file in enumerate((made, sdist)):
        environment = Environment(tmp_path / str(number), file)
        told = subprocess.run([str(environment.python), "-c", code], cwd=tmp_path, capture_output=True, text=True,
                              check=True).stdout  # fmt: skip
        assert told.strip() in file.name


def rows() -> Iterator[str]:
    """Yield the lines of a table with how long each program takes."""
    with TemporaryDirectory() as place:
        newcomer = Newcomer(Path(place))
        for number, program in enumerate([*WITHOUT_JAVA, *WITH_SPARK]):
            took = newcomer.run(program, Path(place, str(number)))
            java = "no" if program in WITHOUT_JAVA else "yes"
            yield f"| {program.page} | {program.what} | {java} | {took.seconds:.1f} | {took.processor:.1f} |"


if __name__ == "__main__":
    print(json.dumps({"python": sys.version.split()[0], "cores": os.cpu_count()}))
    for row in rows():
        print(row, flush=True)
