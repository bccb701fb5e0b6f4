"""The promises of the page of the command line about JSON: the keys of each command's objects, in order."""

import re
from typing import Final

from tests.packaging.code_blocks import ROOT

_ROW: Final = re.compile(r"^\| `([a-z][a-z -]*)` \| ((?:`\w+`(?:, )?)+) \|$", re.MULTILINE)

KEYS: Final = {
    command: tuple(re.findall(r"`(\w+)`", keys))
    for command, keys in _ROW.findall((ROOT / "docs" / "command-line.md").read_text())
}
