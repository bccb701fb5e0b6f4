"""``StoreSuite``: every typed store on a backend, with random histories against naive oracles.

Rule of this module: expectations come from ``store_oracles`` alone. A history also commits, rolls back and opens
the store anew at any point.
"""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from millpond.stores.backend.contract import Backend
from millpond.stores.backend.registry import open_backend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.testing.store_calls import KINDS, Choices, KindUnderTest
from millpond.stores.testing.suite import Suite
from millpond.stores.typed.store import WritableStore


class _Drawn(Choices):
    """Choices by hypothesis."""

    def __init__(self) -> None:
        self.data: Any = None

    def integer(self, low: int, high: int) -> int:
        drawn: int = self.data.draw(st.integers(low, high))
        return drawn

    def pick(self, among: Any) -> Any:
        return self.data.draw(st.sampled_from(among))


class StoreMachine(RuleBasedStateMachine):
    """One store of one kind against its oracle."""

    def __init__(self, kind: KindUnderTest, backend: Backend) -> None:
        super().__init__()
        backend.write({row: None for row, _ in backend.scan()})
        self._kind = kind
        self._transaction = Transaction(backend)
        self._choices = _Drawn()
        self._oracle = kind.oracle()
        self._log: list[Any] = []
        self._committed = 0
        self._store: WritableStore[Any, Any] = self._open()

    def _open(self) -> WritableStore[Any, Any]:
        return self._kind.spec.open(self._transaction)

    @rule(data=st.data())
    def call(self, data: Any) -> None:
        self._choices.data = data
        self._choices.pass_time()
        drawn = self._kind.draw(self._choices)
        got, wanted = drawn(self._store), drawn(self._oracle)
        assert self._kind.comparable(got) == self._kind.comparable(wanted), drawn
        if drawn.method in self._kind.writes:
            self._log.append(drawn)

    @rule()
    def commit(self) -> None:
        self._store.flush()
        self._transaction.commit()
        self._committed = len(self._log)

    @rule()
    def commit_and_reopen(self) -> None:
        self.commit()
        self._store.close()
        self._store = self._open()

    @precondition(lambda self: len(self._log) > self._committed)
    @rule()
    def roll_back(self) -> None:
        self._transaction.rollback()
        self._store.close()
        self._store = self._open()
        del self._log[self._committed :]
        self._oracle = self._kind.oracle()
        for call in self._log:
            call(self._oracle)

    @rule()
    def check(self) -> None:
        self._store.check()
        observed = getattr(self._oracle, "observed_stream_time", None)
        assert getattr(self._store, "observed_stream_time", None) == observed

    def teardown(self) -> None:
        self._store.check()
        self._store.close()
        self._transaction.close()


class StoreSuite(Suite):
    """Tests of stores on a backend. Subclass it as ``Test...``, and return the supplier from ``supplier``."""

    @pytest.mark.parametrize("kind", KINDS, ids=[kind.id for kind in KINDS])
    def test_random_histories_of_a_store_agree_with_the_oracle(self, kind: KindUnderTest, directory: Path) -> None:
        with open_backend(self.supplier(), directory) as backend:
            run_state_machine_as_test(
                lambda: StoreMachine(kind, backend),  # type: ignore[arg-type]  # a factory will do
                settings=settings(
                    max_examples=self.examples,
                    stateful_step_count=40,
                    deadline=None,
                    phases=(Phase.generate, Phase.shrink),
                    database=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
