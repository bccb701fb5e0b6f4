"""The server: the way to it, the refusal of unsafe ones, and its errors in Millpond's words.

Rule of this module: no message shows a user or a password.
"""

import ssl
from pathlib import Path
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from millpond.errors import (
    BackendError,
    BackendInUseError,
    BackendUnavailableError,
    ConfigurationError,
    CorruptStoreError,
    StoreError,
    StoreFullError,
)
from millpond.masking import quoted
from millpond.stores.backend.engine import ErrorTranslator
from millpond_redis.address import Address
from millpond_redis.scripts import FENCED, LOST

NOT_REACHED = (redis.ConnectionError, redis.TimeoutError)
"""Errors that leave open whether a call was carried out."""

_BROKEN_OFF: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""Errors of a connection with TLS whose server ends."""

_WANTS_A_CERTIFICATE: Final = {"TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE"}
"""The reasons of TLS 1.3 and 1.2 when a client has to have a certificate."""

_NOT_NOW: Final = ("MISCONF", "MASTERDOWN", "NOREPLICAS", "BUSY ")
"""The beginnings of errors with which a server refuses calls for a time, and has not carried them out."""


class translate_errors(ErrorTranslator):
    """A context manager in which redis-py's exceptions become Millpond's, which name the server and ``directory``."""

    def __init__(self, directory: Path, address: Address) -> None:
        super().__init__(directory)
        self.where = f"Redis at {address.shown} with the store of {directory}"
        self._if_it_lasts = f"if that lasts, see that it runs and takes connections {address.kind} there"

    def translated(self, error: BaseException) -> StoreError | None:
        if not isinstance(error, redis.RedisError):
            return None
        told = _told(error)
        if isinstance(error, redis.AuthenticationError):
            return BackendError(f"{self.where} refuses the user or the password ({told}); correct them in the URL")
        if isinstance(error, NOT_REACHED):
            return self._not_reached(error.__context__, told)
        if isinstance(error, redis.ReadOnlyError) or told.startswith(_NOT_NOW):
            return BackendUnavailableError(f"{self.where} refuses calls now: {told}")
        if isinstance(error, redis.OutOfMemoryError):
            return StoreFullError(f"{self.where} has no room left ({told}); raise its maxmemory")
        if told.startswith(FENCED):
            return BackendInUseError(f"{self.where} has been opened elsewhere since; close it there and open it again")
        if told.startswith(LOST):
            how = "the server was restarted without them, failed over, evicted them, or had keys deleted"
            return CorruptStoreError(self.lost(how))
        if told.startswith("WRONGTYPE"):
            return CorruptStoreError(self.lost("something else has the name of one of its keys"))
        return BackendError(f"{self.where} failed: {told}")

    def _not_reached(self, why: BaseException | None, told: str) -> StoreError:
        """Return the error for a call without an answer: some causes last until somebody changes something."""
        if isinstance(why, ssl.SSLCertVerificationError):
            what_to_do = "name the file of its certificate in SSL_CERT_FILE, or correct the host in the URL"
            return BackendError(f"{self.where} has a certificate that is not trusted ({told}); {what_to_do}")
        if isinstance(why, ssl.SSLError) and why.reason in _WANTS_A_CERTIFICATE:
            what_to_do = "name the file of one that it trusts in the option 'certificate'"
            return BackendError(f"{self.where} wants a certificate of its clients ({told}); {what_to_do}")
        if isinstance(why, ssl.SSLError) and not isinstance(why, _BROKEN_OFF):
            return BackendError(f"{self.where} refuses TLS ({told}); see that its port is one for that")
        if isinstance(why, PermissionError):
            return BackendError(f"{self.where} may not be used by the user of this process ({told}); allow it")
        return BackendUnavailableError(f"{self.where} cannot be reached now: {told}; {self._if_it_lasts}")

    def lost(self, how: str) -> str:
        """Return the message for a server that has lost writes."""
        return f"{self.where} does not have all rows any more: {how}"


def _told(error: redis.RedisError) -> str:
    """Return the server's message, without the rows of a call, which redis-py puts before it."""
    text = quoted(error)
    return text.partition(" of pipeline caused error: ")[2] or text


def connected(address: Address, timeout: float, database: int | None = None) -> Any:
    """Return a client for one thread at a time. It sends nothing twice by itself: only the caller knows what may be.

    Args:
        address: the server's address.
        timeout: seconds that each call may take.
        database: one of the server's databases instead of the one in ``address``.

    Raises:
        ConfigurationError: the file of the certificate cannot be used.
    """
    certificate = {} if address.certificate is None else {"ssl_certfile": _usable(address.certificate)}
    return redis.Redis.from_url(
        address.url if database is None else f"{address.url}?db={database}",
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        retry=Retry(NoBackoff(), 0),
        decode_responses=False,
        **certificate,
    )


def _usable(certificate: str) -> str:
    """Return the path of a certificate, once it can be used: later, any fault of it would look like the server's."""
    try:
        # A wrong password rather than none, or else the terminal would be asked for an encrypted key's.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate, password="")
    except OSError as error:
        wanted = "see that this machine has it, with its key, which must not be encrypted"
        raise ConfigurationError(f"the certificate {certificate} cannot be used ({error}); {wanted}") from error
    return certificate


def refuse_what_is_unsafe(client: Any, where: str) -> None:
    """Refuse a server that would lose rows silently.

    Raises:
        ConfigurationError: it is a replica, a part of a cluster, or may evict rows.
    """
    info = client.info()
    policy = info.get("maxmemory_policy", "noeviction")
    if info.get("role", "master") != "master":
        reason = "it is a replica, which takes no writes; give the URL of its primary"
    elif info.get("cluster_enabled"):
        reason = "it is a part of a cluster, which spreads keys; use a server of its own"
    elif policy != "noeviction":
        reason = f"its maxmemory-policy is {policy}, which may throw rows away; set it to noeviction"
    else:
        return
    raise ConfigurationError(f"{where} is refused: {reason}")
