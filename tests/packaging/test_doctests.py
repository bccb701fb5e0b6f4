"""Every example in a docstring does what it shows."""

import doctest
import pkgutil
from importlib import import_module
from pathlib import Path

import pytest

import millpond

SITE = Path(__file__).resolve().parents[2] / "docs" / "site"
MODULES = [
    *(module.name for module in pkgutil.walk_packages(millpond.__path__, "millpond.")),
    *(f"docs.site.{module.stem}" for module in sorted(SITE.glob("*.py"))),
]


@pytest.mark.first
@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_do_what_they_show(name: str) -> None:
    assert doctest.testmod(import_module(name)).failed == 0
