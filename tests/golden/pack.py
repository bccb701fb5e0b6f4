"""Makes the compressed copy of the golden files: ``python tests/golden/pack.py <golden directory>``.

One archive per family, the JSON without whitespace, the archives equal byte for byte from run to run.
"""

import io
import json
import lzma
import sys
import tarfile
from pathlib import Path

DATA = Path(__file__).parent / "data"


def pack(family: Path, archive: Path) -> None:
    """Write the files of one family into one archive."""
    preset = 9 | lzma.PRESET_EXTREME
    with lzma.open(archive, "wb", preset=preset) as stream, tarfile.open(fileobj=stream, mode="w|") as tar:
        for path in sorted(family.iterdir()):
            data = _compact(path) if path.suffix == ".json" else path.read_bytes()
            member = tarfile.TarInfo(f"{family.name}/{path.name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def _compact(path: Path) -> bytes:
    content = json.loads(path.read_text("utf-8"))
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def main(source: str) -> None:
    DATA.mkdir(exist_ok=True)
    for family in sorted(path for path in Path(source).iterdir() if path.is_dir()):
        archive = DATA / f"{family.name}.tar.xz"
        pack(family, archive)
        print(f"{archive.name}: {archive.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
