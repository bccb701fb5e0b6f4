"""The same random calls on the three backends, and on the oracle: the same answers."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millpond.stores.backend.contract import Backend
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.registry import open_backend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.testing.store_calls import KINDS, RETENTION, WINDOW, KindUnderTest, Seeded
from millpond.stores.testing.store_oracles import SessionOracle, VersionedOracle, WindowOracle
from tests.drawing import tries

BACKENDS = ("memory", "lmdb", "rocksdb")
ROUNDS = tries(42)
CALLS = 250
COMMIT_EVERY = 25
REOPEN_EVERY = 100


class Side:
    """One store on one backend."""

    def __init__(self, kind: KindUnderTest, backend: Backend) -> None:
        backend.write({row: None for row, _ in backend.scan()})
        self._kind = kind
        self._transaction = Transaction(backend)
        self.store: Any = kind.spec.open(self._transaction)

    def commit(self) -> None:
        self.store.flush()
        self._transaction.commit()

    def reopen(self) -> None:
        self.store.check()
        self.store.close()
        self.store = self._kind.spec.open(self._transaction)

    def rows(self) -> list[tuple[bytes, bytes]]:
        return list(self._transaction.scan())


@pytest.mark.first
@pytest.mark.parametrize("kind", KINDS, ids=[kind.id for kind in KINDS])
def test_every_backend_gives_the_same_answers_and_holds_the_same_rows(kind: KindUnderTest, tmp_path: Path) -> None:
    backends = [open_backend(name, tmp_path / name) for name in BACKENDS]
    compare_rounds(kind, backends)
    for backend in backends:
        backend.close()


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (KINDS[2], lambda: VersionedOracle(RETENTION, RETENTION - 500)),
        (KINDS[2], lambda: VersionedOracle(RETENTION + 500, RETENTION)),
        (KINDS[3], lambda: WindowOracle(RETENTION + 100, WINDOW, retain_duplicates=False)),
        (KINDS[4], lambda: WindowOracle(RETENTION, WINDOW, retain_duplicates=False)),
        (KINDS[6], lambda: SessionOracle(RETENTION - 100)),
        (KINDS[8], lambda: VersionedOracle(RETENTION, None)),
        (KINDS[8], lambda: VersionedOracle(RETENTION, None, "valid first")),
        (KINDS[9], lambda: VersionedOracle(RETENTION, None, "valid")),
    ],
)
def test_an_answer_that_is_a_little_wrong_is_noticed(kind: KindUnderTest, wrong: Callable[[], Any]) -> None:
    backends: list[Backend] = [MemoryBackend() for _ in range(3)]
    with pytest.raises(AssertionError):
        compare_rounds(replace(kind, oracle=wrong), backends)


def compare_rounds(kind: KindUnderTest, backends: list[Backend]) -> None:
    for seed in range(ROUNDS):
        compare(kind, backends, Seeded(seed))


def compare(kind: KindUnderTest, backends: list[Backend], choices: Seeded) -> None:
    oracle = kind.oracle()
    sides = [Side(kind, backend) for backend in backends]
    for number in range(1, CALLS + 1):
        choices.pass_time()
        call = kind.draw(choices)
        first, *others = (call(side.store) for side in sides)
        assert all(other == first for other in others), (number, call)
        assert kind.comparable(first) == kind.comparable(call(oracle)), (number, call)
        if number % COMMIT_EVERY == 0:
            for side in sides:
                side.commit()
        if number % REOPEN_EVERY == 0:
            for side in sides:
                side.reopen()
    assert sides[0].rows() == sides[1].rows() == sides[2].rows()
