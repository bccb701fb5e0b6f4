"""``TableConfig``: the duties of a table's processors besides their own work, settled when the topology is built."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TableConfig:
    """The configuration of the processors that make a table; only the graph replaces it, while it grows.

    Attributes:
        store: the store that holds the table; None if it is not materialized.
        versioned: whether downstream processors apply the rules of KIP-914 to it.
        send_olds: whether an operator downstream needs the value before each update.
        caching: whether only the last update of a key in each micro-batch is emitted.
        in_turn: whether each record of a key replaces the one before it, and so counts from no earlier time.
        remade: whether it is made a second time, in other tasks, so that functions that fail have been counted before.
    """

    store: str | None = None
    versioned: bool = False
    send_olds: bool = False
    caching: bool = False
    in_turn: bool = False
    remade: bool = False
