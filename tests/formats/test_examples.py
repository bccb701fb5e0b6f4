"""The examples of docs/formats.md are rows of the golden files, and its table of numbers is what the code says."""

import re
from pathlib import Path

import pytest

from millpond.processors.tables.foreign_key.messages import Content, Response
from millpond.stores.encoding import extension_types
from tests.formats.scenarios import SCENARIOS, Scenario, read
from tests.stores.test_serdes import GOLDEN

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "formats.md").read_text()

ROW = re.compile(r"^((?:[0-9a-f]{2})+(?: [0-9a-f]+)*) ->(?: ([0-9a-f]+(?: [0-9a-f]+)*))?(?:  +\S.*)?$", re.MULTILINE)


def example(scenario: Scenario) -> dict[bytes, bytes]:
    """Return the rows in the block after the link to the scenario's golden file."""
    _, found, rest = PAGE.partition(f"(../tests/formats/golden/{scenario.file.name})")
    assert found, f"docs/formats.md does not show {scenario.file.name}"
    block = rest.split("```")[1]
    return {bytes.fromhex(row): bytes.fromhex(value) for row, value in ROW.findall(block)}


SHOWN = [scenario for scenario in SCENARIOS if scenario.name != "unpaired-records"]
"""Without that one, because all its rows are among those of `waiting`."""


@pytest.mark.parametrize("scenario", SHOWN, ids=lambda scenario: scenario.name)
def test_the_example_of_a_layout_is_of_its_golden_file(scenario: Scenario) -> None:
    shown = example(scenario)
    assert shown.items() <= read(scenario.file)[scenario.store].items()
    assert shown


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_the_table_of_numbers_has_every_layout(scenario: Scenario) -> None:
    if scenario.layout is not None:
        assert re.search(rf"`{scenario.layout.name}`[^|]* \| row `00 layout` \| {scenario.layout.version} \|", PAGE)


def test_the_example_of_a_response_is_what_is_written() -> None:
    for response in (Response(bytes(range(16)), Content.VALUE, b"name"), Response(None, Content.NOTHING)):
        data = response.to_bytes().hex()
        parts = [data[:2], data[2:4], data[4:36], data[36:]]
        assert f"`{' '.join(filter(None, parts))}`" in PAGE


def test_the_examples_of_extension_types_are_what_is_written_and_no_code_is_missing() -> None:
    section = PAGE.partition("### Extension types of `msgpack`")[2].partition("\n## ")[0]
    codes = re.findall(r"^ +(0x7\d)  ", extension_types.__doc__ or "", re.MULTILINE)
    shown = re.findall(r"  ?((?:c7 \w\w|d[678]) 7\w(?: \w+)+)$", section.split("```")[1], re.MULTILINE)
    assert set(shown) <= {data for _, data in GOLDEN}
    assert len(shown) == len(codes) == 7
