"""The kit finds the mistakes that authors of backends make, and says which sentence each of them breaks."""

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from xml.etree import ElementTree

import pytest

from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.backend.memory import MemorySupplier
from millpond.stores.testing import BackendSuite, ContractBroken, Feature, machines
from millpond.stores.testing.capabilities import CapabilitySuite
from millpond.stores.testing.contract import says
from millpond.stores.testing.machines import BackendMachine, MachineSuite, TransactionMachine
from millpond.stores.testing.processes import ProcessSuite
from millpond.stores.testing.reads import ReadSuite
from tests.contract.broken import IncludesStop
from tests.contract.mistakes import MISTAKES, SAID

RIGHT = ("NothingWrong", "NothingWrongWithTheLog")


class Run(NamedTuple):
    """The kit's tests on all backends that are broken."""

    printed: str
    failures: dict[str, list[str]]


def run_on_all(results: Path) -> Run:
    here = Path(__file__).parent
    broken = [str(here / "broken.py"), str(here / "broken_logs.py")]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--tb=line",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.contract.until_said",
        f"--junitxml={results}",
    ]
    # There pytest explains a comparison that fails by all that differs, however much that is and however long it takes.
    environment = {**os.environ, "CI": "true"}
    done = subprocess.run(
        [*command, *broken],
        cwd=here.parents[1],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    failures: dict[str, list[str]] = {name: [] for name in [*MISTAKES, *RIGHT]}
    for case in ElementTree.parse(results).iter("testcase"):
        for failure in (*case.iter("failure"), *case.iter("error")):
            failures[case.attrib["classname"].rpartition("Test")[2]].append(failure.attrib["message"])
    return Run(done.stdout, failures)


def test_each_mistake_is_reported_as_the_sentence_that_it_breaks_and_nothing_else_is(tmp_path: Path) -> None:
    """One test, so that one process runs the kit."""
    run = run_on_all(tmp_path / "results.xml")
    silent = [
        mistake
        for mistake, sentence in MISTAKES.items()
        if not any(
            sentence in message and re.search(SAID.get(mistake, ""), message) for message in run.failures[mistake]
        )
    ]
    assert silent == []
    assert {name: run.failures[name] for name in RIGHT} == {name: [] for name in RIGHT}
    begun = re.compile(r"(failed on (setup|teardown) with .)?(millpond\S*: )?[A-Z]\w+(\.\w+)? says: \S")
    assert [message for messages in run.failures.values() for message in messages if not begun.match(message)] == []
    assert "NothingWrong has get_many, last, load, entry_count, memory_use" in run.printed


def test_the_kit_prints_what_a_suite_opts_out_of(tmp_path: Path) -> None:
    class Capabilities(CapabilitySuite):
        opt_outs: ClassVar = {Feature.ONE_FILE: "there are no files"}

        def supplier(self) -> BackendSupplier:
            return MemorySupplier()

    told = Capabilities().told("MemoryBackend", ["last"])
    assert told == "MemoryBackend has last; opted out of one file: there are no files"


@pytest.mark.parametrize("machine", [partial(BackendMachine, persistent=False), TransactionMachine])
def test_a_step_of_a_random_history_that_fails_begins_with_a_sentence(machine: Callable[..., Any]) -> None:
    history = machine(IncludesStop)
    if isinstance(history, BackendMachine):
        history.begin()
        history.write(changes={b"a": b"1"})
    else:
        history.put_many(changes={b"a": b"1"})
        history.commit()
    with pytest.raises(ContractBroken, match=r"^Backend\.scan says: Return the entries with"):
        history.scan(start=None, stop=b"a", reverse=False)


def test_every_step_of_a_random_history_quotes_a_sentence() -> None:
    code = inspect.getsource(machines)
    steps = re.findall(r"^    @(?:rule|initialize)\(.*\n(.*)", code, flags=re.MULTILINE)
    assert len(steps) > 20
    assert [line for line in steps if not isinstance(getattr(machines, line.strip(" @"), None), says)] == []


def test_random_histories_come_last_and_other_processes_before_them(request: pytest.FixtureRequest) -> None:
    class TestOrder(BackendSuite):
        def supplier(self) -> BackendSupplier:
            return MemorySupplier()

    suite: Any = pytest.Class.from_parent(request.node.parent, name="TestOrder")
    suite.obj = TestOrder
    parts = (ReadSuite, ProcessSuite, MachineSuite)
    late = {name: part for part in parts for name in vars(part) if name.startswith("test_")}
    order = [late.get(item.originalname, ReadSuite) for item in suite.collect()]
    assert order == sorted(order, key=parts.index)
    assert set(order) == set(parts)
