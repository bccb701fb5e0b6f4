"""The labels of contenders."""

from collections.abc import Sequence


def told_apart(labels: Sequence[str]) -> list[str]:
    """Return labels with a number behind each that occurs twice, as URLs do that differ only in what is secret.

    >>> told_apart(["lmdb", "redis://***@host", "redis://***@host"])
    ['lmdb', 'redis://***@host 1', 'redis://***@host 2']
    """
    numbered = (f"{label} {labels[: place + 1].count(label)}" for place, label in enumerate(labels))
    return [number if labels.count(label) > 1 else label for label, number in zip(labels, numbered, strict=True)]
