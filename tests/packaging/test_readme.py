"""What the README shows is what happens."""

import contextlib
import io
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def test_the_readmes_example_prints_what_the_readme_says() -> None:
    code, printed = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", README, re.DOTALL)[0]
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        exec(compile(code, "README.md", "exec"), {})
    assert shown.getvalue() == printed
