"""Distributions that are installed as far as their metadata."""

from pathlib import Path

from millpond.stores.backend.plugins import GROUP


def install(place: Path, distribution: str, **backends: str) -> None:
    """Put the metadata of a distribution that registers ``backends`` into ``place``."""
    metadata = place / f"{distribution.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    lines = [f"[{GROUP}]", *(f"{name} = {value}" for name, value in backends.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
