"""The pages of the reference: one for each public module, with all of its public names.

Rule of this module: which names are public is said in ``tests/packaging/public_names.txt`` alone. What each of them is
says its docstring.
"""

from pathlib import Path

FOLDER = "reference"
INDEX = f"{FOLDER}/README.md"


def public_names(snapshot: Path) -> dict[str, list[str]]:
    """Return the public names of each module, from the file that lists them.

    Raises:
        ValueError: the file begins with something other than a module.
    """
    names: dict[str, list[str]] = {}
    for line in snapshot.read_text().splitlines():
        depth = len(line) - len(line.lstrip())
        if depth == 0:
            names[line] = []
        elif not names:
            raise ValueError(f"{snapshot} does not begin with the name of a module: {line!r}")
        elif depth == 4:
            name = line.strip().removeprefix("class ").removeprefix("def ").partition("(")[0]
            names[next(reversed(names))].append(name)
    return names


def pages(names: dict[str, list[str]]) -> dict[str, str]:
    """Return the Markdown of each page by its path; the first one is the index."""
    index = "# Reference\n\nAll public names by the module that they are imported from.\n"
    for module, members in names.items():
        listed = " ·\n".join(f"[`{name}`][{module}.{name}]" for name in members)
        index += f"\n## [{module}]({module}.md)\n\n{listed}\n"
    return {INDEX: index} | {f"{FOLDER}/{module}.md": _page(module, members) for module, members in names.items()}


def _page(module: str, members: list[str]) -> str:
    options = ("members", "show_root_heading", "show_root_toc_entry")
    about = f"# {module}\n\n::: {module}\n    options:\n" + "".join(f"      {option}: false\n" for option in options)
    return about + "".join(f"\n::: {module}.{name}\n" for name in members)
