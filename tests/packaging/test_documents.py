"""What the documents point at is there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_file_that_the_documents_name_exists() -> None:
    missing = []
    for document in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        text = document.read_text()
        links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
        missing += [f"{document.name}: {link}" for link in links if not (document.parent / link).exists()]
        sources = re.findall(r"`((?:stores|processors|adapters|bench|src|tests)/[\w/]+(?:\.py|/))`", text)
        missing += [f"{document.name}: {source}" for source in sources if not (ROOT / source).exists()]
    assert missing == []
