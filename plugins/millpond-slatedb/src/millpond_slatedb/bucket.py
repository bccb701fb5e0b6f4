"""The object store: the way to it, and SlateDB's errors in Millpond's words.

Rule of this module: no message shows a key. Keys are in the environment, where SlateDB looks for them.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from slatedb.uniffi import CloseReason, Error, ObjectStoreBuilder, ObjectStoreType

from millpond.errors import (
    BackendError,
    BackendInUseError,
    BackendUnavailableError,
    CorruptStoreError,
    StoreError,
)
from millpond.masking import quoted
from millpond.stores.backend.engine import ErrorTranslator
from millpond_slatedb.calls import TimedOut

URL_FORM: Final = "s3://bucket or s3://bucket/prefix"
ENDPOINT_FORM: Final = "http://host:port or https://host:port of a service other than Amazon's"

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX: Final = re.compile(r"(/[A-Za-z0-9!_.*'()=+-]+)*")
_REFUSED: Final = re.compile(
    r"NoSuchBucket|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|status: 40[13]|Unauthenticated|"
    r"PermissionDenied|403 Forbidden|401 Unauthorized",
    re.IGNORECASE,
)
"""Errors that do not pass by themselves."""


@dataclass(frozen=True)
class Bucket:
    """The place of stores.

    Args:
        url: the bucket and a prefix.
        endpoint: the URL of a service other than Amazon's, or None.
        region: the bucket's region, or None for the environment's.
    """

    url: str
    endpoint: str | None
    region: str | None

    def object_store(self) -> Any:
        """Return SlateDB's handle of the object store, which asks for nothing yet."""
        builder = ObjectStoreBuilder.from_env(ObjectStoreType.S3)
        builder.with_config("bucket", urlsplit(self.url).netloc)
        if self.endpoint is not None:
            builder.with_config("endpoint", self.endpoint)
            builder.with_config("allow_http", "true")
        if self.region is not None:
            builder.with_config("region", self.region)
        return builder.build()

    def path_of(self, store: str) -> str:
        """Return the path of a store in the bucket."""
        return f"{urlsplit(self.url).path.strip('/')}/{store}".lstrip("/")


def is_url(text: object) -> bool:
    """Return whether ``text`` names a bucket, and maybe a prefix in it."""
    if not isinstance(text, str) or not text.startswith("s3://"):
        return False
    bucket, slash, prefix = text.removeprefix("s3://").partition("/")
    return _BUCKET.fullmatch(bucket) is not None and _PREFIX.fullmatch(f"{slash}{prefix}".rstrip("/")) is not None


def is_endpoint(text: object) -> bool:
    """Return whether ``text`` is the URL of a service, without a user and without a path."""
    if not isinstance(text, str):
        return False
    try:
        parts = urlsplit(text)
        known = parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    return bool(known) and text in (f"http://{parts.netloc}", f"https://{parts.netloc}") and "@" not in parts.netloc


class translate_errors(ErrorTranslator):
    """A context manager in which SlateDB's exceptions become Millpond's, which name the bucket and ``directory``."""

    def __init__(self, directory: Path, bucket: Bucket, timeout: float) -> None:
        super().__init__(directory)
        at = bucket.url if bucket.endpoint is None else f"{bucket.url} at {bucket.endpoint}"
        self.where = f"SlateDB in {at} with the store of {directory}"
        self._timeout = timeout

    def translated(self, error: BaseException) -> StoreError | None:
        if isinstance(error, TimedOut):
            return self._away(f"it has not answered in {self._timeout:g} s")
        if not isinstance(error, Error):
            return None
        told = quoted(error)
        if isinstance(error, Error.Closed):
            if error.reason is CloseReason.FENCED:
                return BackendInUseError(f"{self.where} has been opened elsewhere since; close it there first")
            return BackendError(f"{self.where} has ended: {told}")
        if _REFUSED.search(told) is not None:
            what_to_do = "see that the bucket is there, and that the keys in the environment may use it"
            return BackendError(f"{self.where} refuses this ({told}); {what_to_do}")
        if isinstance(error, Error.Unavailable):
            return self._away(told)
        if isinstance(error, Error.Data):
            return CorruptStoreError(self.lost(told))
        return BackendError(f"{self.where} failed: {told}")

    def _away(self, told: str) -> BackendUnavailableError:
        return BackendUnavailableError(
            f"{self.where} cannot be reached now: {told}; if that lasts, see that the service runs, or raise timeout"
        )

    def lost(self, how: str) -> str:
        """Return the message for a bucket that has lost writes."""
        return f"{self.where} does not have all rows any more: {how}"
