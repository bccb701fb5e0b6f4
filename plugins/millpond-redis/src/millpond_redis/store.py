"""One store on a server: calls that prove themselves, and their recovery when the connection breaks.

Rule of this module: it knows no rows. A call that was sent and not answered may have been carried out, or may be later;
so before the next call, a new token is taken, which refuses calls still on their way, and the number of writes tells
which of the two it was.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import redis

from millpond.errors import CorruptStoreError
from millpond_redis.address import Address
from millpond_redis.place import Place
from millpond_redis.scripts import CHECK, TAKE
from millpond_redis.server import NOT_REACHED, connected, refuse_what_is_unsafe, translate_errors


def keys_of(store: str) -> list[str]:
    """Return the names of a store's keys: its state, its order, its rows."""
    return [f"millpond:{store}:{part}" for part in ("state", "order", "rows")]


class Store:
    """The store of a directory, opened.

    Raises:
        BackendInUseError: another handle has it open.
        BackendUnavailableError: the server cannot be reached.
        ConfigurationError: the server is not safe.
        CorruptStoreError: the server has lost what was flushed, or the rows are in another of its databases.
    """

    def __init__(self, directory: Path, address: Address, timeout: float) -> None:
        self._errors = translate_errors(directory, address)
        self._opener, self._generation = str(uuid4()), 0
        self._place = Place(directory, address)
        self._keys = keys_of(self._place.record.store)
        self._client: Any = None
        self._scripts: dict[str, Any] = {}
        self._possible: set[int] = set()
        was = self._place.record
        try:
            if was.database != address.database:
                raise CorruptStoreError(self._errors.lost(f"they are in the database {was.database} of the server"))
            with self._errors:
                self._client = connected(address, timeout)
                refuse_what_is_unsafe(self._client, self._errors.where)
                self._writes = self._take(opened_by="", may_be_new=was.flushed == 0 and was.is_at(address))
            if self._writes < was.flushed:
                raise CorruptStoreError(
                    self._errors.lost(f"it has had {self._writes} writes, but {was.flushed} were flushed")
                )
            if not was.is_at(address):
                self._place.note_server(address.server)
        except BaseException:
            self._release()
            raise

    @property
    def errors(self) -> translate_errors:
        """The translation of redis-py's exceptions into Millpond's."""
        return self._errors

    def read(self, script: str, *arguments: object) -> Any:
        """Return the result of a script that changes nothing; run it once more if the connection has broken."""
        with self._errors:
            try:
                return self._call(script, arguments)
            except redis.ConnectionError:
                return self._call(script, arguments)

    def write(self, calls: Sequence[tuple[str, Sequence[object]]]) -> None:
        """Call scripts that change the store, all or none."""
        with self._errors:
            try:
                self._change(calls)
            except redis.ConnectionError:
                before = min(self._possible)
                self._settle()
                if self._writes == before:
                    self._change(calls)

    def flush(self) -> None:
        """Note on this machine the writes that the server has, so that a loss of them is noticed."""
        self.read(CHECK)
        if self._writes != self._place.record.flushed:
            self._place.note_flush(self._writes)

    def close(self) -> None:
        """Release the server and the directory."""
        try:
            if not self._possible:
                self.flush()
        finally:
            self._release()

    def _release(self) -> None:
        if self._client is not None:
            self._client.close()
        self._place.release()

    @property
    def _token(self) -> str:
        return f"{self._opener}:{self._generation}"

    def _call(self, script: str, arguments: Sequence[object]) -> Any:
        self._settle()
        try:
            return self._script(script)(self._keys, [self._token, self._writes, *arguments])
        except NOT_REACHED:
            self._possible = {self._writes}
            raise

    def _change(self, calls: Sequence[tuple[str, Sequence[object]]]) -> None:
        self._settle()
        before, after = self._writes, self._writes + len(calls)
        try:
            if len(calls) == 1:
                ((script, arguments),) = calls
                self._script(script)(self._keys, [self._token, before, *arguments])
            else:
                transaction = self._client.pipeline(transaction=True)
                for number, (script, arguments) in enumerate(calls, start=before):
                    self._script(script)(self._keys, [self._token, number, *arguments], client=transaction)
                transaction.execute()
        except NOT_REACHED:
            self._possible = {before, after}
            raise
        self._writes = after

    def _settle(self) -> None:
        """Find out, after a call without an answer, whether it was carried out."""
        if not self._possible:
            return
        writes = self._take(opened_by=self._opener, may_be_new=False)
        if writes not in self._possible:
            raise CorruptStoreError(self._errors.lost("it is not where it was when the connection broke"))
        self._writes, self._possible = writes, set()

    def _take(self, *, opened_by: str, may_be_new: bool) -> int:
        self._generation += 1
        new = "may be new" if may_be_new else "is there"
        return int(self._script(TAKE)(self._keys, [self._token, opened_by, new]))

    def _script(self, text: str) -> Any:
        if text not in self._scripts:
            self._scripts[text] = self._client.register_script(text)
        return self._scripts[text]
