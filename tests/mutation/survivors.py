"""The mutants that the tests do not kill: ``python -m tests.mutation.survivors --help``.

One process collects the tests, imports all modules and runs no test itself. A child of it runs all tests once, with a
probe at each mutant, and so finds who reaches it. Then each mutant gets a child of its own, which plants it and runs
the tests that reach it until one fails: of each module of tests in turn, the fastest first, for some seconds. The
mutants that are left are planted all at once, and all tests run; each that fails is run with each of the mutants that
it reaches, alone. That is repeated with the tests that have failed until none does, so that no test kills any mutant
that is left. A test that takes very much longer than without a mutant has noticed it, too.

Tests that start processes see no mutant in them.
"""

import argparse
import builtins
import csv
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
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import FunctionType

import pytest

from tests.mutation.mutants import PROBE, ROOT, Mutant, changed, drawn, found_again, functions_of, take_effect
from tests.parts import recorded, slow_tests

COLUMNS = (*Mutant._fields, "outcome", "test", "seconds")
Outcome = tuple[str, str, float]
"""``killed`` or ``survived``, the test that has killed a mutant, and how many seconds it took."""


class Mutating:
    """A plugin of pytest that runs mutants instead of the tests."""

    def __init__(self, mutants: list[Mutant], options: argparse.Namespace) -> None:
        """Plant ``mutants`` when the tests have been collected."""
        self.mutants = mutants
        self.options = options
        self.functions: dict[str, list[FunctionType]] = {}
        self.failed = False

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
        self.failed |= report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run each mutant in a child, then those that are left together, and write the rows."""
        self.functions = functions_of({mutant.module for mutant in self.mutants})
        outcomes = dict.fromkeys(range(len(self.mutants)), ("survived", "", 0.0))
        if self.options.left is None:
            self._one_by_one(session, outcomes)
        self._together(session, outcomes)
        self._write(outcomes)
        return True

    def _one_by_one(self, session: pytest.Session, outcomes: dict[int, Outcome]) -> None:
        reached: defaultdict[int, list[str]] = defaultdict(list)
        seconds: dict[str, float] = {}
        for said in self._child(session.items, range(len(self.mutants)), (), {}):
            if said[0] == "passed":
                seconds[said[1]] = float(said[2])
                for number in json.loads(said[3]):
                    reached[number].append(said[1])
        items = {item.nodeid: item for item in session.items}
        for number in outcomes:
            order = _in_turn(reached[number], seconds, self.options.most)
            outcomes[number] = self._outcome(number, [items[name] for name in order], seconds)
            self._write(outcomes)

    def _together(self, session: pytest.Session, outcomes: dict[int, Outcome]) -> None:
        """Plant all mutants that are left at once; who fails is run with each of those that it reaches, alone."""
        items = {item.nodeid: item for item in session.items}
        failing: dict[str, list[int]] = {name: [] for name in items}
        reached: set[int] = set()
        while failing:
            left = [number for number, outcome in outcomes.items() if outcome[0] == "survived"]
            tried = [items[name] for name in failing]
            failing = {}
            for said in self._child(tried, left, left, {}):
                numbers = json.loads(said[3]) if len(said) > 2 else left
                reached.update(numbers)
                if said[0] != "passed":
                    failing[said[1]] = numbers
            for name, numbers in failing.items():
                for number in numbers:
                    if outcomes[number][0] == "survived":
                        outcomes[number] = self._outcome(number, [items[name]], {})
            self._write(outcomes)
            if failing and all(outcomes[number][0] == "survived" for number in left):
                print("These fail although no mutant alone is the cause:", *failing, sep="\n  ", file=sys.stderr)
                break
        outcomes.update((number, ("not reached", "", 0.0)) for number in set(left).difference(reached))
        self._write(outcomes)

    def _outcome(self, number: int, items: list[pytest.Item], seconds: Mapping[str, float]) -> Outcome:
        """Return whether a mutant was killed, by which test, and after how many seconds."""
        began = time.monotonic()
        for word, name, *_ in self._child(items, (), [number], seconds):
            if word in ("failed", "ended"):
                return "killed", name, time.monotonic() - began
        return "survived", "", time.monotonic() - began

    def _write(self, outcomes: dict[int, Outcome]) -> None:
        with open(self.options.out, "w", newline="") as file:
            rows = csv.writer(file, delimiter="\t", lineterminator="\n")
            rows.writerow(COLUMNS)
            for number, (outcome, test, seconds) in outcomes.items():
                row = (*self.mutants[number], outcome, test, f"{seconds:.1f}")
                rows.writerow([str(value).replace("\n", " ") for value in row])

    def _child(
        self, items: list[pytest.Item], probed: Iterable[int], planted: Iterable[int], seconds: Mapping[str, float]
    ) -> Iterator[list[str]]:
        """Run tests in a child with mutants planted, and yield what it says of each.

        Yields:
            ``passed`` or ``failed``, the test, its seconds, and which of the probed mutants it has reached; or
            ``ended``, and the test that has taken too long or ended the child. Another child goes on behind that test.
        """
        left = list(items)
        while left:
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(read)
                self._alone(left, probed, planted, write)
            os.close(write)
            try:
                running = None
                for word, name, *others in _said(read, seconds):
                    running = name if word == "running" else running
                    if word != "running":
                        yield [word, name, *others]
            finally:
                os.close(read)
                _end(child)
                # The next child would take the time to remove what this one has left.
                shutil.rmtree(left[0].config.option.basetemp, ignore_errors=True)
            if running is None:
                raise RuntimeError("a child has run no test")
            left = left[1 + [item.nodeid for item in left].index(running) :] if running else []

    def _alone(self, items: list[pytest.Item], probed: Iterable[int], planted: Iterable[int], write: int) -> None:
        """Run tests in this child, and end it."""
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        items[0].config.pluginmanager.unregister(name="terminalreporter")
        reached: set[int] = set()
        setattr(builtins, PROBE, reached.add)
        try:
            self._plant(probed, planted)
            for item, following in zip(items, [*items[1:], None], strict=True):
                reached.clear()
                _say(write, "running", item.nodeid)
                self.failed = False
                began = time.monotonic()
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                took = time.monotonic() - began
                _say(write, "failed" if self.failed else "passed", item.nodeid, took, json.dumps(sorted(reached)))
            _say(write, "running", "")
        finally:
            os._exit(0)

    def _plant(self, probed: Iterable[int], planted: Iterable[int]) -> None:
        files: defaultdict[tuple[str, str], tuple[list[int], dict[int, int]]] = defaultdict(lambda: ([], {}))
        for number in planted:
            files[self.mutants[number].module, self.mutants[number].path][0].append(self.mutants[number].number)
        for number in probed:
            files[self.mutants[number].module, self.mutants[number].path][1][self.mutants[number].number] = number
        for (module, path), (numbers, probes) in files.items():
            take_effect(self.functions[module], changed(path, numbers, probes))


def _say(to: int, *what: object) -> None:
    os.write(to, ("\t".join(map(str, what)) + "\n").encode())


def _end(child: int) -> None:
    """End a child and all that it has started."""
    with suppress(ProcessLookupError):
        if os.getpgid(child) == child:
            os.killpg(child, signal.SIGKILL)
        else:
            os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _said(read: int, seconds: Mapping[str, float]) -> Iterator[list[str]]:
    """Yield what a child says, until it has done, ends, or a test takes too long; then ``ended`` and the test."""
    rest, running, limit, slow = b"", "", 60.0, slow_tests()
    while True:
        in_time = select.select([read], [], [], limit)[0]
        received = os.read(read, 65536) if in_time else b""
        if not received:
            if running:
                yield ["ended", running]
            return
        *lines, rest = (rest + received).split(b"\n")
        for line in lines:
            said = line.decode().split("\t")
            if said[0] == "running":
                running = said[1]
                limit = 15 + 20 * seconds.get(running, slow.get(running.partition("[")[0], 1.0))
            yield said
            if said == ["running", ""]:
                return


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
    """Return the mutants that no test has killed in earlier results, as far as they are still there."""
    with open(results, newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    left = [row for row in rows if row["outcome"] in ("survived", "not reached")]
    numbers = {"line", "number"}
    then = [Mutant._make(int(row[name]) if name in numbers else row[name] for name in Mutant._fields) for row in left]
    return [now for mutant in then if (now := found_again(mutant)) is not None]


def main() -> None:
    """Draw mutants, run them, and print how many of each room are killed."""
    parser = argparse.ArgumentParser(description="Plant mutants, and write who kills them.")
    parser.add_argument("--seed", type=int, default=1, help="draws other mutants")
    parser.add_argument("--each", type=int, default=120, help="how many of each room")
    parser.add_argument("--left", type=Path, help="earlier results, whose mutants that are left are planted together")
    parser.add_argument("--out", type=Path, default=Path("build/mutants.tsv"), help="the results")
    parser.add_argument("--most", type=float, default=3, help="the most seconds of tests for a mutant alone")
    parser.add_argument("--recorded", type=Path, help="the --junitxml of an earlier run of the tests")
    parser.add_argument("--below", type=float, default=1, help="leave out tests that took as many seconds then")
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
