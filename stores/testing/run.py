"""The kit, run on a backend that has a name, without a test file by its author.

Rule of this module: it writes the file that an author would write, and runs it as an author would, in a process of its
own. The backend's name is in a file beside it, so that a traceback does not show the password of a URL.
"""

import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from xml.etree import ElementTree

from millpond.errors import InvalidArgumentError, MissingPackageError
from millpond.masking import masked
from millpond.stores.testing.features import Feature

_NEEDED: Final = ("pytest", "hypothesis")
_STANDARD_ERROR: Final = 2
_TEST: Final = """\
from pathlib import Path

from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.backend.registry import supplier
from millpond.stores.testing import BackendSuite, Feature


class TestBackend(BackendSuite):
    examples = {examples}
    opt_outs = {{{opt_outs}}}

    def supplier(self) -> BackendSupplier:
        return supplier(Path(__file__).with_name("backend").read_text())
"""


@dataclass(frozen=True)
class Outcome:
    """The outcome of the kit for a backend.

    Attributes:
        backend: its name or URL, without secrets.
        kept: whether the backend keeps the contract.
        passed, failed, skipped: the numbers of such tests.
        failures: the names of failed tests, with the first line of each message.
    """

    backend: str
    kept: bool
    passed: int
    failed: int
    skipped: int
    failures: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as an object of JSON."""
        return {**asdict(self), "failures": [{"test": name, "said": said} for name, said in self.failures.items()]}


def run_kit(backend: str, opt_outs: Mapping[str, str], *, examples: int, aside: bool = False) -> Outcome:
    """Run the kit on a backend's name or URL, and print the results on the standard output.

    Args:
        backend: the name or URL.
        opt_outs: names of features (``millpond.stores.testing.Feature``) that the backend does not have, and reasons.
        examples: the number of random histories to try.
        aside: whether to print the results on the standard error instead.

    Raises:
        ConfigurationError: pytest or hypothesis is not installed, or there is no such feature.
    """
    for package in _NEEDED:
        if find_spec(package) is None:
            raise MissingPackageError(f"the conformance kit needs {package}: pip install 'millpond[testing]'")
    for feature, reason in opt_outs.items():
        if feature not in list(Feature) or not reason.strip():
            raise InvalidArgumentError(
                f"{feature!r} with the reason {reason!r} is nothing to opt out of; the features are "
                f"{', '.join(Feature)}, each with a reason"
            )
    given = ", ".join(f"Feature({feature!r}): {reason!r}" for feature, reason in opt_outs.items())
    with TemporaryDirectory(prefix="millpond-kit-") as place:
        Path(place, "backend").write_text(backend)
        Path(place, "test_backend.py").write_text(_TEST.format(examples=examples, opt_outs=given))
        Path(place, "pytest.ini").write_text("[pytest]\n")
        report = Path(place, "report.xml")
        options = ["-q", "--tb=short", "-p", "no:cacheprovider", f"--basetemp={Path(place, 'stores')}"]
        command = [sys.executable, "-m", "pytest", *options, f"--junitxml={report}"]
        done = subprocess.run(command, cwd=place, check=False, stdout=_STANDARD_ERROR if aside else None)
        cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    return _outcome(masked(backend), done.returncode == 0, cases)


def _outcome(backend: str, kept: bool, cases: Collection[ElementTree.Element]) -> Outcome:
    failures = {
        case.get("name", ""): _first_line(found)
        for case in cases
        for found in [*case.iter("failure"), *case.iter("error")]
    }
    skipped = sum(case.find("skipped") is not None for case in cases)
    return Outcome(backend, kept, len(cases) - skipped - len(failures), len(failures), skipped, failures)


def _first_line(found: ElementTree.Element) -> str:
    return masked(found.get("message", "").partition("\n")[0])
