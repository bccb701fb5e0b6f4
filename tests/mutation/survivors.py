"""Which mutants the tests do not kill: ``python -m tests.mutation.survivors --help``.

One process collects the tests, imports all modules and runs no test itself. A child of it runs all tests once, with a
probe at each mutant, and so finds who reaches it. Then each mutant gets a child of its own, which plants it and runs
the tests that reach it until one fails: of each module of tests in turn, the fastest first. A test that takes very much
longer than without the mutant has noticed it, too. Tests that start processes see no mutant in them.
"""

import argparse
import builtins
import csv
import importlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.mutation.mutants import PROBE, ROOT, Mutant, drawn, planted, probed, take_effect
from tests.parts import recorded

COLUMNS = ("room", "path", "line", "function", "kind", "number", "before", "after", "outcome", "test", "seconds")


class Reached(NamedTuple):
    """What the tests do without mutants: how long each takes, and who reaches each mutant."""

    seconds: dict[str, float]
    tests: dict[int, list[str]]


class Mutating:
    """A plugin of pytest that runs mutants instead of the tests."""

    def __init__(self, mutants: list[Mutant], options: argparse.Namespace) -> None:
        """Plant ``mutants`` when the tests have been collected."""
        self.mutants = mutants
        self.options = options
        self.failed: str | None = None
        self.passed: float | None = None
        self.tell: Callable[[str], None] = lambda _: None

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """Spare the search for the smallest case that fails."""
        from hypothesis import Phase, settings

        settings.register_profile("mutants", settings(), phases=(Phase.explicit, Phase.generate))
        settings.load_profile("mutants")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out the tests that took too long in the run that was recorded."""
        if self.options.recorded is not None:
            took = recorded(self.options.recorded)
            items[:] = [item for item in items if took.get(item.nodeid, 0.0) < self.options.below]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note whether the test that runs has failed."""
        if report.failed:
            self.failed = report.nodeid
        elif report.when == "call" and report.passed:
            self.passed = report.duration

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run each mutant in a child, and write its row."""
        for module in {mutant.module for mutant in self.mutants}:
            importlib.import_module(module)
        began = time.monotonic()
        reached = self._reached(session)
        print(f"{len(session.items)} tests ran in {time.monotonic() - began:.0f} s", file=sys.stderr)
        items = {item.nodeid: item for item in session.items}
        with open(self.options.out, "w", newline="") as file:
            rows = csv.writer(file, delimiter="\t", lineterminator="\n")
            rows.writerow(COLUMNS)
            for number, mutant in enumerate(self.mutants):
                began = time.monotonic()
                order = _in_turn(reached.tests.get(number, []), reached.seconds, self.options.most)
                outcome, test = self._outcome(mutant, [items[name] for name in order], reached.seconds)
                self._tidy(session)
                row = (*mutant, outcome, test, f"{time.monotonic() - began:.1f}")
                rows.writerow([str(value).replace("\n", " ") for value in row])
                file.flush()
        return True

    def _reached(self, session: pytest.Session) -> Reached:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "reached.json")
            child = os.fork()
            if child == 0:
                self._alone(session, lambda: file.write_text(json.dumps(self._probe(session))))
            os.waitpid(child, 0)
            self._tidy(session)
            passed: dict[str, tuple[float, list[int]]] = json.loads(file.read_text())
        tests = defaultdict(list)
        for name, (_, numbers) in passed.items():
            for number in numbers:
                tests[number].append(name)
        return Reached({name: seconds for name, (seconds, _) in passed.items()}, tests)

    def _probe(self, session: pytest.Session) -> dict[str, tuple[float, list[int]]]:
        reached: set[int] = set()
        setattr(builtins, PROBE, reached.add)
        files: defaultdict[tuple[str, str], dict[int, int]] = defaultdict(dict)
        for number, mutant in enumerate(self.mutants):
            files[mutant.module, mutant.path][mutant.number] = number
        for (module, path), numbers in files.items():
            take_effect(module, probed(path, numbers))
        passed = {}
        for item, following in zip(session.items, [*session.items[1:], None], strict=True):
            reached.clear()
            began = time.monotonic()
            if self._passes(item, following):
                passed[item.nodeid] = (time.monotonic() - began, sorted(reached))
        return passed

    def _passes(self, item: pytest.Item, following: pytest.Item | None) -> bool:
        self.failed = self.passed = None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return self.failed is None and self.passed is not None

    def _tidy(self, session: pytest.Session) -> None:
        """Remove what a child has left, which the next one would take the time to remove."""
        shutil.rmtree(session.config.option.basetemp, ignore_errors=True)

    def _alone(self, session: pytest.Session, run: Callable[[], object]) -> None:
        """Run something in this child, silently, and end the child."""
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        if not self.options.loud:
            os.dup2(nowhere, 1), os.dup2(nowhere, 2)
        session.config.pluginmanager.unregister(name="terminalreporter")
        code = 1
        try:
            run()
            code = 0
        finally:
            os._exit(code)

    def _outcome(self, mutant: Mutant, items: list[pytest.Item], seconds: dict[str, float]) -> tuple[str, str]:
        """Return ``killed`` or ``survived``, or what else became of it, and the test that killed it."""
        if not items:
            return "not reached", ""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            self.tell = lambda line: _written(write, line)
            self._alone(session=items[0].session, run=lambda: self._kill(mutant, items))
        os.close(write)
        try:
            return _watched(read, seconds)
        finally:
            os.close(read)
            os.killpg(child, signal.SIGKILL) if _is_group(child) else os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def _kill(self, mutant: Mutant, items: list[pytest.Item]) -> None:
        try:
            take_effect(mutant.module, planted(mutant))
        except ValueError:
            self.tell("unfit\t")
            return
        for item, following in zip(items, [*items[1:], None], strict=True):
            self.tell(f"running\t{item.nodeid}")
            self._passes(item, following)
            if self.failed is not None:
                self.tell(f"killed\t{item.nodeid}")
                return
        self.tell("survived\t")


def _is_group(child: int) -> bool:
    try:
        return os.getpgid(child) == child
    except ProcessLookupError:
        return False


def _written(to: int, line: str) -> None:
    os.write(to, f"{line}\n".encode())


def _watched(read: int, seconds: dict[str, float]) -> tuple[str, str]:
    """Follow a child until it says what became of the mutant, ends, or a test takes too long."""
    rest, running, limit = b"", "", 60.0
    while True:
        if not select.select([read], [], [], limit)[0]:
            return "killed by time", running
        received = os.read(read, 65536)
        if not received:
            return "killed by the end of the process", running
        *lines, rest = (rest + received).split(b"\n")
        for line in lines:
            outcome, _, running = line.decode().partition("\t")
            if outcome != "running":
                return outcome, running
            limit = 15 + 20 * seconds[running]


def _in_turn(names: Iterable[str], seconds: dict[str, float], most: float) -> list[str]:
    """Order tests: the fastest of each module, then the second of each; and as many as ``most`` seconds allow."""
    ranked = []
    count: Counter[str] = Counter()
    for name in sorted(names, key=lambda name: seconds[name]):
        module = name.partition("::")[0]
        ranked.append((count[module], seconds[name], name))
        count[module] += 1
    order: list[str] = []
    total = 0.0
    for _, took, name in sorted(ranked):
        total += took
        if total > most and order:
            break
        order.append(name)
    return order


def earlier(results: Path) -> list[Mutant]:
    """Return the mutants that no test has killed in earlier results."""
    with open(results, newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    left = [row for row in rows if row["outcome"] in ("survived", "not reached")]
    numbers = {"line", "number"}
    return [Mutant._make(int(row[name]) if name in numbers else row[name] for name in Mutant._fields) for row in left]


def main() -> None:
    """Draw mutants, run them, and print how many of each room are killed."""
    parser = argparse.ArgumentParser(description="Plant mutants, and write who kills them.")
    parser.add_argument("--seed", type=int, default=1, help="draws other mutants")
    parser.add_argument("--each", type=int, default=120, help="how many of each room")
    parser.add_argument("--left", type=Path, help="earlier results, of whose mutants those are tried that are left")
    parser.add_argument("--out", type=Path, default=Path("build/mutants.tsv"), help="the results")
    parser.add_argument("--most", type=float, default=60, help="the most seconds of tests for a mutant")
    parser.add_argument("--recorded", type=Path, help="the --junitxml of an earlier run of the tests")
    parser.add_argument("--below", type=float, default=1, help="leave out tests that took as many seconds then")
    parser.add_argument("--loud", action="store_true", help="show what the tests print")
    options, pytest_arguments = parser.parse_known_args()
    os.environ["CI"] = "true"  # Hypothesis draws the same cases for each mutant
    os.chdir(ROOT)
    mutants = earlier(options.left) if options.left else drawn(options.seed, options.each)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        fixed = ["-q", "-p", "no:cacheprovider", "--basetemp", str(Path(folder, "tests"))]
        fixed += ["-m", "not spark and not long", "--part", "first"]
        code = pytest.main([*fixed, *pytest_arguments], plugins=[Mutating(mutants, options)])
    with open(options.out, newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    print(f"commit {commit}, seed {options.seed}, {options.out}")
    for room in dict.fromkeys(row["room"] for row in rows):
        print(room, dict(Counter(row["outcome"] for row in rows if row["room"] == room)))
    sys.exit(code)


if __name__ == "__main__":
    main()
