"""The content of a wheel: the whole tree."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.releases import THIS_RELEASE, Release

ROOT = Path(__file__).resolve().parents[2]
ROOMS = {"millpond": "src/millpond"} | {
    f"millpond.{room}": room for room in ("adapters", "bench", "processors", "stores")
}


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    """The content of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def modules_of_the_tree() -> dict[str, Path]:
    """Return every module below the rooms, by its import name; links from src/millpond to rooms are not followed."""
    found = {}
    for package, folder in ROOMS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join([package, *parts]).removesuffix(".__init__")] = path
    return found


def packages_of_the_tree() -> set[str]:
    return {name for name, path in modules_of_the_tree().items() if path.name == "__init__.py"}


def test_every_folder_with_modules_is_a_package() -> None:
    homeless = [path for path in modules_of_the_tree().values() if not (path.parent / "__init__.py").exists()]
    assert homeless == []


def test_each_room_at_the_root_is_linked_where_packages_are_found(project: dict[str, Any]) -> None:
    assert project["tool"]["setuptools"]["packages"] == {"find": {"where": ["src"]}}
    for folder in list(ROOMS.values())[1:]:
        assert (ROOT / "src" / "millpond" / folder).resolve() == ROOT / folder


def test_the_version_stands_in_one_place_and_the_changelog_knows_it(project: dict[str, Any]) -> None:
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "millpond.__version__"}
    changelog = (ROOT / "CHANGELOG.md").read_text().splitlines()
    first, second = [line.removeprefix("## ") for line in changelog if line.startswith("## ")][:2]
    assert first == millpond.__version__ or (first == "Unreleased" and Release.of(second) < THIS_RELEASE)


@pytest.mark.slow
def test_a_wheel_holds_every_module_the_page_the_license_and_py_typed(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(clean_copy(tmp_path / "source"))],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("millpond-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {
        name.replace(".", "/") + ("/__init__.py" if path.name == "__init__.py" else ".py")
        for name, path in modules_of_the_tree().items()
    }
    page = {f"millpond/adapters/monitor/page/page.{kind}" for kind in ("html", "css", "js")}
    page.add("millpond/bench/pages/page.css")
    page |= {f"millpond/explained/{path.name}" for path in (ROOT / "docs" / "errors").glob("MILLPOND-*.md")}
    assert expected | {"millpond/py.typed"} | page == {name for name in names if name.startswith("millpond/")}
    assert wheel.name.startswith(f"millpond-{millpond.__version__}-")
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert any(name.endswith(".dist-info/entry_points.txt") for name in names)


def clean_copy(target: Path) -> Path:
    """Return a copy of what the wheel is built from, so that no stale build/ can slip in and none is left behind."""
    import shutil

    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for folder in (*ROOMS.values(), "docs/errors"):
        shutil.copytree(ROOT / folder, target / folder, symlinks=True, ignore=ignored, dirs_exist_ok=True)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, target / file)
    return target
