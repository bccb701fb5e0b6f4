"""The kit, run on a backend that has a name, without a test file of its author's.

Rule of this module: it writes the file that an author would write, and runs it as an author would, in a process of its
own. What the file tests is beside it, so that a traceback does not show the password of a URL.
"""

import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from millpond.errors import ConfigurationError
from millpond.stores.testing.features import Feature

_NEEDED: Final = ("pytest", "hypothesis")
_TEST: Final = """\
from pathlib import Path

from millpond.stores.backend import BackendSupplier
from millpond.stores.registry import supplier
from millpond.stores.testing import BackendSuite, Feature


class TestBackend(BackendSuite):
    examples = {examples}
    opt_outs = {{{opt_outs}}}

    def supplier(self) -> BackendSupplier:
        return supplier(Path(__file__).with_name("backend").read_text())
"""


def run_kit(backend: str, opt_outs: Mapping[str, str], *, examples: int) -> bool:
    """Run the kit on a backend's name or URL; it says on the standard output what it saw. Whether all tests pass.

    Args:
        backend: the name or URL.
        opt_outs: names of features (``millpond.stores.testing.Feature``) that the backend does not have, and reasons.
        examples: how many random histories are tried.

    Raises:
        ConfigurationError: pytest or hypothesis is not installed, or there is no such feature.
    """
    for package in _NEEDED:
        if find_spec(package) is None:
            raise ConfigurationError(f"the conformance kit needs {package}: pip install 'millpond[testing]'")
    for feature, reason in opt_outs.items():
        if feature not in list(Feature) or not reason.strip():
            raise ConfigurationError(
                f"{feature!r} with the reason {reason!r} is nothing to opt out of; the features are "
                f"{', '.join(Feature)}, each with a reason"
            )
    given = ", ".join(f"Feature({feature!r}): {reason!r}" for feature, reason in opt_outs.items())
    with TemporaryDirectory(prefix="millpond-kit-") as place:
        Path(place, "backend").write_text(backend)
        Path(place, "test_backend.py").write_text(_TEST.format(examples=examples, opt_outs=given))
        Path(place, "pytest.ini").write_text("[pytest]\n")
        options = ["-q", "--tb=short", "-p", "no:cacheprovider", "--basetemp", str(Path(place, "stores"))]
        done = subprocess.run([sys.executable, "-m", "pytest", *options], cwd=place, check=False)
    return done.returncode == 0
