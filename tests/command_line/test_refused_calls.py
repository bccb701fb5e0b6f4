"""What is asked of a query that does not run, and is refused: each followed by what the message advises.

Who types it on the command line and who calls it from Python is refused in the same place.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.adapters.inspect.cleaning import Cleaning
from millpond.adapters.inspect.row_texts import Writer
from millpond.adapters.monitor.server import server
from millpond.adapters.rocksdb import RocksDbSupplier
from millpond.adapters.spark.copies.standby import Share, Standby
from millpond.cli import durations
from millpond.cli.state import topology_named
from millpond.errors import ConfigurationError
from millpond.processors import StreamsBuilder
from millpond.releases import RELEASE, older_release
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.evolution.verbs import SaidOfVerbs
from tests.refusing import Refused

SCHEMA = pa.schema([("k", pa.string())])
text = "no topology"
topology = StreamsBuilder().build()


class Calls:
    """Where nothing is."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.storage = Storage.from_uri(place / "state")

    def served(self, port: int) -> None:
        watched: Any = None
        server(watched, port, 1.0).server_close()

    def standby(self, lag: int) -> Standby:
        nothing: Any = None
        return Standby(nothing, nothing, lag=lag)


COMMANDS = [
    Refused(
        "; say of what: '",
        lambda calls: durations.millis("--interval", "5"),
        lambda calls: durations.millis("--interval", "5 milliseconds"),
        lambda calls: durations.millis("--interval", "5 seconds"),
    ),
    Refused(
        "; give more than nothing, as in '2 seconds'",
        lambda calls: durations.seconds("--interval", "0 seconds"),
        lambda calls: durations.seconds("--interval", "2 seconds"),
    ),
    Refused(
        "; give MODULE:NAME, as in jobs:flights",
        lambda calls: topology_named("nowhere:topology"),
        lambda calls: topology_named(f"{__name__}:topology"),
    ),
    Refused(
        "; give what StreamsBuilder.build returned",
        lambda calls: topology_named(f"{__name__}:text"),
        lambda calls: topology_named(f"{__name__}:topology"),
    ),
    Refused(
        "so give one from \n to ",
        lambda calls: older_release("9.0.0"),
        lambda calls: older_release("0.1.0"),
        lambda calls: older_release(RELEASE),
    ),
    Refused(
        " makes no sense; give I/N with I from 1 to N, as in 1/3",
        lambda calls: Share.parsed("4/3"),
        lambda calls: Share.parsed("1/3"),
    ),
    Refused(
        " micro-batches, because a copy that is further behind cannot follow across a snapshot",
        lambda calls: calls.standby(16),
        lambda calls: calls.standby(0),
        lambda calls: calls.standby(15),
    ),
    Refused(
        " cannot be had: \n; give another, or 0",
        lambda calls: calls.served(-1),
        lambda calls: calls.served(0),
    ),
]
"""Options of commands."""

FILES = [
    Refused(
        "there is nothing to be cleaned; give a state_dir, a local_dir, or both",
        lambda calls: Cleaning(None),
        lambda calls: Cleaning(calls.storage),
        lambda calls: Cleaning(None, local_dirs=[calls.place]),
        lambda calls: Cleaning(calls.storage, local_dirs=[calls.place]),
    ),
    Refused(
        "tell what a state directory needs; give that, too, with state_dir",
        lambda calls: Cleaning(None, local_dirs=[calls.place], applications=["job"]),
        lambda calls: Cleaning(calls.storage, local_dirs=[calls.place], applications=["job"]),
    ),
    Refused(
        " ms; give at least as much where durable files are cleaned",
        lambda calls: Cleaning(calls.storage, older_than="1 minute"),
        lambda calls: Cleaning(calls.storage, older_than=Cleaning(calls.storage).policy.retained_forks_ms),
    ),
    Refused(
        " ends with \n; give a file that ends with ",
        lambda calls: Writer(calls.place / "rows.xls", SCHEMA),
        lambda calls: Writer(calls.place / "rows.parquet", SCHEMA),
        lambda calls: Writer(calls.place / "rows.csv", SCHEMA),
        lambda calls: Writer(calls.place / "rows.json", SCHEMA),
    ),
    Refused(
        "; leave out block_cache, which is part of the budget",
        lambda calls: RocksDbSupplier(memory_budget=1 << 30, block_cache=1 << 20),
        lambda calls: RocksDbSupplier(memory_budget=1 << 30),
    ),
    Refused(
        " bytes for all stores of a worker; leave out one of them",
        lambda calls: RocksDbSupplier(memory_budget=1 << 30).with_memory_budget(1 << 29),
        lambda calls: RocksDbSupplier().with_memory_budget(1 << 29),
    ),
]
"""Files and engines."""

VERBS = [
    Refused(
        " is both renamed and dropped; decide for one",
        lambda calls: SaidOfVerbs(renamed={"a": "b"}, dropped=["a"]),
        lambda calls: SaidOfVerbs(renamed={"a": "b"}),
        lambda calls: SaidOfVerbs(dropped=["a"]),
    ),
    Refused(
        "which is itself; give the verb that has another key another name",
        lambda calls: SaidOfVerbs(rekeyed={"a": "a"}),
        lambda calls: SaidOfVerbs(rekeyed={"by-b": "a"}),
    ),
    Refused(
        " and its side \n; decide for one",
        lambda calls: SaidOfVerbs(rekeyed={"a": "b", "a.right": "c"}),
        lambda calls: SaidOfVerbs(rekeyed={"a": "b"}),
        lambda calls: SaidOfVerbs(rekeyed={"a.right": "c"}),
    ),
    Refused(
        ", which is renamed or dropped as well; decide for one",
        lambda calls: SaidOfVerbs(rekeyed={"a": "b"}, dropped=["a"]),
        lambda calls: SaidOfVerbs(rekeyed={"a": "b"}),
        lambda calls: SaidOfVerbs(dropped=["a"]),
    ),
]
"""What is declared of verbs."""


@pytest.mark.parametrize("refused", [*COMMANDS, *FILES, *VERBS], ids=repr)
def test_what_is_refused_is_done_as_its_message_says(refused: Refused, tmp_path: Path) -> None:
    refused.check(lambda: Calls(tmp_path), ConfigurationError)
