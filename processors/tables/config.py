"""``TableConfig``: what a table's processors do beside their own work, settled when the topology is built."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TableConfig:
    """What the processors that make one table have to know of it. While the graph is built, the graph replaces it.

    Attributes:
        store: the store that holds the table; None if it is not materialised.
        versioned: whether downstream processors apply the rules of KIP-914 to it.
        send_olds: whether somebody downstream needs the values before each update.
        caching: whether only the last update of a key in each micro-batch is emitted.
    """

    store: str | None = None
    versioned: bool = False
    send_olds: bool = False
    caching: bool = False
