"""The family ``stores``: operations directly on a store, with the answers that Kafka Streams gave."""

from itertools import groupby
from operator import itemgetter
from typing import Any

import pytest

from millpond.errors import ConfigurationError, InvalidKeyError
from millpond.stores.backend.contract import Backend
from millpond.stores.backend.transaction import Transaction
from tests.golden.loader import Case
from tests.golden.storeops import open_store

COMMIT_EVERY = 7

ERRORS = {
    "java.lang.NullPointerException": InvalidKeyError,
    "java.lang.IllegalArgumentException": ConfigurationError,
}
"""Errors that are the caller's fault; any other is something that one of Kafka's engines cannot do but Millpond can."""

SPANS_OF_SEVERAL_KEYS = {
    "fetchKeys",
    "backwardFetchKeys",
    "fetchAll",
    "backwardFetchAll",
    "all",
    "backwardAll",
    "findSessionsKeys",
    "backwardFindSessionsKeys",
    "findSessionsTime",
}


def concerns(case: Case) -> bool:
    """Return whether a case is of a store of Millpond: not one that evicts its least recently used entries."""
    return case.family == "stores" and case.content["store"].get("impl") != "lru"


def test_a_store_answers_every_operation_as_kafka_streams_does(case: Case, backend: Backend) -> None:
    described = case.content["store"]
    transaction = Transaction(backend)
    store, operations = open_store(described, transaction)
    comparison = Comparison(described)
    for number, operation in enumerate(case.content["ops"]):
        comparison.observe(operation)
        call, arguments = operations[operation["op"]], operation["args"]
        error = ERRORS.get(operation.get("throws"))
        if error is not None:
            with pytest.raises(error):
                call(*arguments)
        elif "throws" in operation:
            call(*arguments)
        else:
            right = operation.get("ideal_returns", operation["returns"])
            got, wanted = comparison.comparable(operation, call(*arguments)), comparison.comparable(operation, right)
            assert got == wanted, f"operation {number}: {operation['op']} {arguments}"
        if number % COMMIT_EVERY == 0:
            store.flush()
            transaction.commit()
    store.check()
    store.close()


class Comparison:
    """The parts of an answer that are compared, in one case.

    Kafka's own engines differ in three things, and its RocksDB is right: sessions with equal ends come by start; a null
    put into a window store with duplicates does not advance its stream time; its point fetch finds the last put.
    """

    def __init__(self, store: dict[str, Any]) -> None:
        self._store = store
        self._kind = store["kind"]
        self._stray = store.get("impl") == "in_memory" and store.get("retain_duplicates", False)
        self._stray_time = 0

    def observe(self, operation: dict[str, Any]) -> None:
        """Follow the stream time of Kafka's engine in memory."""
        if operation["op"] == "put" and self._stray:
            self._stray_time = max(self._stray_time, operation["args"][-1])

    def comparable(self, operation: dict[str, Any], answer: Any) -> Any:
        """Return an answer without the parts that are not compared."""
        name = operation["op"]
        if self._kind == "versioned":
            return self._versions(name, operation, answer)
        if self._kind == "session" and isinstance(answer, list):
            return sessions_by_key(answer, "backward" in name)
        if self._stray and name == "fetch":
            return None
        if self._stray and isinstance(answer, list):
            expired = self._stray_time - self._store["retention_ms"]
            answer = [span for span in answer if span[0 if name.lower().endswith("fetchrange") else 1] > expired]
        return spans_by_key(answer) if name in SPANS_OF_SEVERAL_KEYS and "window" in self._kind else answer

    def _versions(self, name: str, operation: dict[str, Any], answer: Any) -> Any:
        """Drop ``validTo`` from as-of lookups as Kafka does, including the one that a delete makes."""
        if name in {"getAsOf", "delete"} and answer is not None:
            return {**answer, "validTo": None}
        if operation.get("beyond_retention") and isinstance(answer, list):
            horizon = operation["observed_stream_time"] - self._store["history_retention_ms"]
            return [version for version in answer if version["to"] is None or version["to"] > horizon]
        return answer


def spans_by_key(spans: list[Any]) -> dict[str, list[Any]]:
    """Return spans per key, in the order in which they came: between keys no order is promised."""
    return {key: list(found) for key, found in groupby(sorted(spans, key=itemgetter(0)), key=itemgetter(0))}


def sessions_by_key(sessions: list[Any], backward: bool) -> dict[str, list[Any]]:
    """Return the same, but spans with equal ends, whose order differs, go by start."""
    by_key = spans_by_key(sessions)
    ends = {key: [end for _, _, end, _ in found] for key, found in by_key.items()}
    assert all(found == sorted(found, reverse=backward) for found in ends.values())
    return {key: sorted(found, key=itemgetter(2, 1), reverse=backward) for key, found in by_key.items()}
