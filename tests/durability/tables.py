"""Tables of what tests of this folder have seen: each is in a Markdown file here, or the test fails.

``MILLPOND_WRITE_TABLES=1`` writes them anew.
"""

import os
from collections.abc import Sequence
from pathlib import Path


def check_table(name: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Compare the table that ends the file of that name with what was seen."""
    file = Path(__file__).with_name(f"{name}.md")
    lines = [header, ["---"] * len(header), *rows]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    before, bar, shown = file.read_text().partition("|")
    if os.environ.get("MILLPOND_WRITE_TABLES"):
        file.write_text(before + table)
    else:
        assert bar + shown == table
