"""The labels of contenders."""

from collections.abc import Sequence


def told_apart(labels: Sequence[str]) -> list[str]:
    """With a number behind each label that another has, too, as URLs have that differ only in what is secret.

    >>> told_apart(["lmdb", "redis://***@host", "redis://***@host"])
    ['lmdb', 'redis://***@host 1', 'redis://***@host 2']
    """
    numbered = (f"{label} {labels[: place + 1].count(label)}" for place, label in enumerate(labels))
    return [number if labels.count(label) > 1 else label for label, number in zip(labels, numbered, strict=True)]
