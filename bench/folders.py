"""The imports between the folders of a Python package: ``python -m millpond.bench.folders zarr polars millpond``.

Rule of this module: it reads the source that is installed and imports none of it. Imports in functions and below ``if
TYPE_CHECKING`` do not count. A module at the package's top, which all may import, counts as a folder of its own.
"""

import ast
import os
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path


def modules_of(package: str) -> dict[str, Path]:
    """Return the file of each module by name, links followed."""
    spec = find_spec(package)
    (top,) = (spec and spec.submodule_search_locations) or [""]
    files = [Path(folder, file) for folder, _, files in os.walk(top, followlinks=True) for file in files]
    parts = {file: (package, *file.relative_to(top).with_suffix("").parts) for file in files if file.suffix == ".py"}
    return {".".join(names).removesuffix(".__init__"): file for file, names in parts.items()}


def imports_of(node: ast.AST, package: str) -> Iterator[str]:
    """Yield what a module of a package imports at once, as absolute names."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - child.level + 1] if child.level else []
            origin = ".".join([*above, *([child.module] if child.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in child.names)
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not _for_type_checkers(child):
            yield from imports_of(child, package)


def _for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def in_circles(arrows: set[tuple[str, str]]) -> set[str]:
    """Return the folders that can be reached from themselves."""
    reached = arrows
    while (more := reached | {(a, d) for a, b in reached for c, d in arrows if b == c}) != reached:
        reached = more
    return {start for start, end in reached if start == end}


def figures(package: str) -> str:
    """Return the figures of a package."""
    files = modules_of(package)
    alone = {name for name, file in files.items() if file.name == "__init__.py" or name.count(".") == 1}
    folder = {name: name if name in alone else name.rpartition(".")[0] for name in files}
    arrows: set[tuple[str, str]] = set()
    lines = 0
    for name, file in files.items():
        text = file.read_text()
        lines += text.count("\n")
        for target in imports_of(ast.parse(text), folder[name]):
            home = folder.get(target) or folder.get(target.rpartition(".")[0])
            if home and home != folder[name]:
                arrows.add((folder[name], home))
    sizes = Counter(str(file.parent) for file in files.values())
    (largest, size), *_ = sizes.most_common()
    circles = sorted(in_circles(arrows))
    largest = largest.rpartition(f"/{package}/")[2]
    size_of_all = f"{len(files)} modules, {lines:,} lines, {len(sizes)} folders, the largest {largest} with {size}"
    return f"{package}: {size_of_all}\n    {len(circles)} in circles: {', '.join(circles)}"


if __name__ == "__main__":
    for given in sys.argv[1:]:
        print(figures(given))
