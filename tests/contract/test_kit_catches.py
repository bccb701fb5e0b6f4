"""The kit finds the mistakes that authors of backends make, and says which sentence each of them breaks."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

MISTAKES = {
    "ForgetsEmptyValues": "Values may be empty.",
    "IncludesStop": "The entries with ``start <= key < stop``, in key order.",
    "ExcludesStartInReverse": "``reverse`` gives the same entries in the opposite order.",
    "ComparesSignedBytes": "Keys compare as unsigned bytes",
    "ScansTheLiveMap": "The iterator shows the content as it was when ``scan`` was called",
    "HasScansWithoutClose": "It has a ``close`` method",
    "FailsToDeleteWhatIsNotThere": "Deleting a key that does not exist is no error.",
    "WritesLater": "When ``write`` returns, ``get`` and ``scan`` show the changes.",
    "ForgetsItsEnd": "Every method but ``close`` raises ``StoreClosedError``",
    "ClosesOnce": "Closing twice is no error.",
    "DropsRepeatedKeys": "Keys may repeat.",
    "FindsTheLastOfAll": "The entry with the greatest key in ``start <= key < stop``",
    "DeletesTheStopToo": "Delete the entries with ``start <= key < stop``, atomically.",
}


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The messages of all failures of the kit, by the backend that is broken."""
    results = tmp_path_factory.mktemp("kit") / "results.xml"
    here = Path(__file__).with_name("broken.py")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--tb=line",
        "-p",
        "no:cacheprovider",
        f"--junitxml={results}",
        str(here),
    ]
    subprocess.run(command, cwd=here.parents[2], capture_output=True, check=False)
    messages = dict.fromkeys([*MISTAKES, "NothingWrong"], "")
    for case in ElementTree.parse(results).iter("testcase"):
        for failure in case.iter("failure"):
            messages[case.attrib["classname"].rpartition("Test")[2]] += failure.attrib["message"] + "\n"
    return messages


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_reported_as_the_sentence_that_it_breaks(failures: dict[str, str], mistake: str) -> None:
    assert MISTAKES[mistake] in failures[mistake]


def test_the_same_tests_pass_on_the_backend_that_the_broken_ones_are_made_of(failures: dict[str, str]) -> None:
    assert failures["NothingWrong"] == ""
