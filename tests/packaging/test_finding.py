"""A reader finds a thing where its name says: questions of a stranger, and the file that answers each.

The stranger searches for one file name. There is one such file in the library, it stands where the architecture page
says that things of its sort are, and it defines the answer.
"""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ANSWERS = {
    "Where is late data dropped?": ("processors/runtime/late.py", "LateRecords"),
    "Who writes dead letters?": ("adapters/spark/rows/dead_letters.py", "DeadLetterWriter"),
    "Which rows are unusable?": ("processors/rows/unusable.py", "Unusable"),
    "What is in a manifest?": ("stores/durability/manifests/manifest.py", "Manifest"),
    "When are durable files deleted?": ("stores/durability/manifests/garbage.py", "collect_garbage"),
    "What keeps files from deletion?": ("stores/durability/manifests/pins.py", "Pin"),
    "Who locks a local copy?": ("stores/durability/copies/lease.py", "Lease"),
    "How does a copy prove that it was closed?": (
        "stores/durability/copies/clean_shutdown.py",
        "CleanShutdownMarker",
    ),
    "How fast does a migration go?": ("stores/durability/copies/throttle.py", "MigrationThrottle"),
    "What waits while a copy gets a new format?": ("stores/durability/copies/catchup_log.py", "CatchupLog"),
    "How is S3 spoken to?": ("stores/durability/storage/s3.py", "S3Place"),
    "Which task has a key?": ("stores/encoding/partitions.py", "partition_of"),
    "How do records get to their task?": ("processors/distribution/router.py", "Router"),
    "In which form do they travel?": ("processors/distribution/exchange.py", "Blob"),
    "In which order are they taken?": ("processors/runtime/order/time_order.py", "merge"),
    "How do results come back in order?": ("processors/runtime/order/resequencer.py", "Resequencer"),
    "When do timers fire?": ("processors/runtime/punctuation.py", "Scheduler"),
    "What does an operator promise?": ("processors/runtime/promises.py", "Promises"),
    "How are two streams joined?": ("processors/streams/window_join.py", "WindowJoin"),
    "Which columns does a joined row have?": ("processors/verbs/projections.py", "JoinedRows"),
    "When do two verbs share an operator?": ("adapters/spark/verbs/frames/sharing.py", "shared_by"),
    "Which open states does a worker keep?": ("adapters/spark/worker/kept_states.py", "KeptStates"),
    "How is a plugin found?": ("stores/backend/registry.py", "supplier"),
    "Who sees uncommitted changes?": ("stores/backend/transaction.py", "Transaction"),
    "What of keys that an engine cannot take?": ("stores/backend/long_keys.py", "LongKeys"),
    "What does a versioned store do?": ("stores/typed/versions/versioned.py", "VersionedKeyValueStore"),
    "How is a store's directory converted?": ("stores/specs/migration.py", "open_directory"),
    "With which rows does a new store begin?": ("stores/evolution/seeding.py", "Seeds"),
    "Where are secrets hidden?": ("src/millpond/masking.py", "masked"),
    "How is a key erased?": ("adapters/edit/erasure.py", "erase"),
    "How is state read without Spark?": ("adapters/inspect/state_inspector.py", "StateInspector"),
    "How is a query watched?": ("adapters/monitor/query_monitor.py", "QueryMonitor"),
    "What is wrong with a query?": ("adapters/monitor/diagnosis/rules.py", "diagnose"),
    "Which keys are hot?": ("processors/distribution/hot_keys.py", "HotKeys"),
}


@pytest.fixture(scope="module")
def library() -> list[str]:
    """The modules that users install, without the benchmark."""
    rooms = ["stores", "processors", "adapters", "src/millpond"]
    listed = subprocess.run(["git", "ls-files", *rooms], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for path in listed.stdout.splitlines() if path.endswith(".py")]


@pytest.mark.parametrize("question", ANSWERS)
def test_a_question_is_answered_by_the_file_of_that_name(question: str, library: list[str]) -> None:
    path, name = ANSWERS[question]
    assert [found for found in library if Path(found).name == Path(path).name] == [path]
    assert re.search(rf"^(class|def) {name}\b", (ROOT / path).read_text(), re.MULTILINE)


def test_folders_have_about_twenty_modules(library: list[str]) -> None:
    """Of a folder with more, nobody sees at a glance what is in it."""
    sizes: dict[str, int] = {}
    for path in library:
        folder = str(Path(path).parent)
        sizes[folder] = sizes.get(folder, 0) + 1
    assert {folder: size for folder, size in sizes.items() if size > 25} == {}
