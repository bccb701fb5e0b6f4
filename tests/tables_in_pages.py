"""Tables in pages that tests make: a page shows what a test has seen, or the test fails.

``MILLPOND_WRITE_TABLES=1`` writes them anew.
"""

import os
from collections.abc import Sequence
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "durability.md"


def check_table(name: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Compare the table of that name in the page with what was seen."""
    lines = [header, ["---"] * len(header), *rows]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    begin, end = f"<!-- {name}: made by a test -->\n", f"<!-- end of {name} -->\n"
    before, _, rest = PAGE.read_text().partition(begin)
    shown, _, after = rest.partition(end)
    if os.environ.get("MILLPOND_WRITE_TABLES"):
        PAGE.write_text(before + begin + table + end + after)
    else:
        assert shown == table
