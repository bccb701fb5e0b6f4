"""S3: the parts of a URI, and the clients that are made from them.

Rule of this module: all that is special about S3 is here. Arrow's file system reads, lists, writes and deletes. It has
no conditional put, so a file that is to be written once goes through boto3, where that is installed. Both send a
request a few times at most and wait a bounded time for an answer, as the URI's options say.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, NamedTuple, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from pyarrow import fs

from millpond.errors import InvalidOptionError, StateDirectoryError
from millpond.masking import quoted
from millpond.stores.backend.options import Parser, parse_bool, parse_choice, parse_int
from millpond.stores.durability.storage.uris import shown

SCHEME: Final = "s3"

_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""The environment variables that name a service other than Amazon's, the more specific one first."""
_SCHEMES: Final = ("http", "https")
_EXISTS: Final = 412
"""The status of an answer for an object that exists already."""


class S3Connection(NamedTuple):
    """The target of an S3 URI.

    Attributes:
        filesystem: Arrow's file system.
        root: the bucket and the path in it.
        put_new: writes an object if none has its name, whatever others do meanwhile, or raises a ``FileExistsError``;
            None if nothing can do that.
    """

    filesystem: Any
    root: str
    put_new: Callable[[str, bytes], None] | None


@dataclass(frozen=True)
class S3Options:
    """The options of a URI.

    Attributes:
        region: the bucket's region; None to find it out, or with an endpoint, to take the environment's.
        scheme: ``https`` or ``http``.
        endpoint_override: host and port, or the URL, of a service other than Amazon's; None for the environment's, or
            else Amazon's.
        force_virtual_addressing: whether the bucket is part of the host's name where an endpoint is given, too.
        tls_ca_file_path: the certificates that are trusted; None for the system's.
        connect_timeout: seconds to wait for a connection.
        request_timeout: seconds without a byte after which a request has failed.
        max_attempts: the most times that a request is sent.
        conditional_put: whether the service knows ``If-None-Match: *``.
    """

    region: str | None = None
    scheme: str = "https"
    endpoint_override: str | None = None
    force_virtual_addressing: bool = False
    tls_ca_file_path: str | None = None
    connect_timeout: float = 5
    request_timeout: float = 15
    max_attempts: int = 4
    conditional_put: bool = True

    @classmethod
    def of(cls, query: str, environment: Mapping[str, str]) -> Self:
        """Return the options in a URI's query, with those that it lacks from the environment.

        Raises:
            ConfigurationError: an option is unknown, or its value is impossible.
        """
        values = {name: _value(name, text) for name, text in parse_qsl(query, keep_blank_values=True)}
        options = cls(**values)
        endpoint = next(filter(None, (options.endpoint_override, *map(environment.get, _ENDPOINTS))), None)
        if endpoint is None or "://" not in endpoint:
            return replace(options, endpoint_override=endpoint)
        url = urlsplit(endpoint)
        if url.scheme not in _SCHEMES:
            raise StateDirectoryError(
                f"the S3 endpoint, which the state directory's URI or {' or '.join(_ENDPOINTS)} names, has the scheme "
                f"{url.scheme!r}; say http or https"
            )
        return replace(options, endpoint_override=url.netloc, scheme=url.scheme)

    @property
    def endpoint_url(self) -> str | None:
        """The URL of a service other than Amazon's; None for Amazon's."""
        return None if self.endpoint_override is None else f"{self.scheme}://{self.endpoint_override}"


@dataclass(frozen=True)
class S3Place:
    """A bucket, and the way to reach it.

    Attributes:
        bucket: its name.
        root: the bucket and the path in it.
        access_key: the identity of the caller, with ``secret_key``; None for the one that AWS finds in the environment,
            in its files, or on the machine.
        secret_key: the secret.
        options: the rest.
    """

    bucket: str
    root: str
    access_key: str | None
    secret_key: str | None
    options: S3Options

    @classmethod
    def of(cls, uri: str) -> Self:
        """Return the place that a URI names.

        Raises:
            ConfigurationError: it names no bucket, has half a key, or an option that is wrong.
        """
        parts = urlsplit(uri)
        user, _, bucket = parts.netloc.rpartition("@")
        access_key, _, secret_key = (unquote(part) for part in user.partition(":"))
        if not bucket or ":" in bucket:
            raise StateDirectoryError(
                f"the state directory {shown(uri)!r} names no bucket; say s3://bucket/prefix, and if the URI has a "
                "secret key, with %2F in place of each / in it"
            )
        if bool(access_key) != bool(secret_key):
            raise StateDirectoryError(
                f"the state directory s3://{bucket}{parts.path} has half a key; say s3://KEY:SECRET@{bucket}, or leave "
                "both to AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        options = S3Options.of(parts.query, os.environ)
        root = (bucket + unquote(parts.path)).rstrip("/")
        return cls(bucket, root, access_key or None, secret_key or None, options)

    def connect(self) -> S3Connection:
        """Return clients for it, which must not be used on both sides of a fork.

        Raises:
            OSError: its region cannot be found out.
            TypeError: the release of pyarrow that is installed does not know an option.
        """
        options = self.options
        if options.region is None and options.endpoint_override is None:
            options = replace(options, region=fs.resolve_s3_region(self.bucket))
        filesystem = _arrow_filesystem(self, options)
        knows_conditions = options.conditional_put and find_spec("boto3") is not None
        if not knows_conditions:
            return S3Connection(filesystem, self.root, None)
        return S3Connection(filesystem, self.root, _conditional_puts(self, replace(options, region=filesystem.region)))


def _arrow_filesystem(place: S3Place, options: S3Options) -> Any:
    given: dict[str, Any] = {
        "access_key": place.access_key,
        "secret_key": place.secret_key,
        "region": options.region,
        "scheme": options.scheme,
        "endpoint_override": options.endpoint_override,
        "force_virtual_addressing": options.force_virtual_addressing,
        "connect_timeout": options.connect_timeout,
        "request_timeout": options.request_timeout,
        "retry_strategy": fs.AwsStandardS3RetryStrategy(max_attempts=options.max_attempts),
    }
    if options.tls_ca_file_path is not None:
        given["tls_ca_file_path"] = options.tls_ca_file_path
    filesystem: Any = fs.S3FileSystem
    try:
        # One request for a file of up to 10 MiB, where Arrow otherwise sends three.
        return filesystem(**given, allow_delayed_open=True)
    except TypeError:  # before pyarrow 21
        return filesystem(**given)


def _conditional_puts(place: S3Place, options: S3Options) -> Callable[[str, bytes], None]:
    """Return a function that writes an object unless it is there."""

    def put_new(location: str, content: bytes) -> None:
        errors: Any = import_module("botocore.exceptions")
        client = _boto_client(place.access_key, place.secret_key, options, os.getpid())
        bucket, _, key = location.partition("/")
        try:
            client.put_object(Bucket=bucket, Key=key, Body=content, IfNoneMatch="*")
        except errors.ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == _EXISTS:
                raise FileExistsError(f"{location} exists already") from error
            raise OSError(
                f"{quoted(error)}; if the service knows no If-None-Match, say conditional_put=false"
            ) from error
        except errors.BotoCoreError as error:
            raise OSError(quoted(error)) from error

    return put_new


@lru_cache
def _boto_client(access_key: str | None, secret_key: str | None, options: S3Options, process: int) -> Any:
    config: Any = import_module("botocore.config").Config
    boto3: Any = import_module("boto3")
    return boto3.session.Session().client(
        "s3",
        region_name=options.region,
        endpoint_url=options.endpoint_url,
        use_ssl=options.scheme == "https",
        verify=options.tls_ca_file_path,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        config=config(
            connect_timeout=options.connect_timeout,
            read_timeout=options.request_timeout,
            retries={"mode": "standard", "total_max_attempts": options.max_attempts},
            request_checksum_calculation="when_required",
            s3={"addressing_style": _addressing(options)},
        ),
    )


def _addressing(options: S3Options) -> str:
    return "virtual" if options.endpoint_override is None or options.force_virtual_addressing else "path"


def _value(name: str, text: str) -> Any:
    parse = _PARSERS.get(name)
    if parse is None:
        raise InvalidOptionError(
            f"the state directory's URI has the option {name!r}, which s3:// does not have; the options are "
            f"{', '.join(_PARSERS)}"
        )
    try:
        return parse(text)
    except ValueError as error:
        raise InvalidOptionError(f"the state directory's URI says {name}={text}, but {name} must be {error}") from error


def _text(text: str) -> str:
    if not text:
        raise ValueError("given")
    return text


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds <= 3600:
        raise ValueError("seconds, more than 0 and at most 3600")
    return seconds


def _attempts(text: str) -> int:
    if not 1 <= (attempts := parse_int(text)) <= 100:
        raise ValueError("1 to 100")
    return attempts


_PARSERS: Final[Mapping[str, Parser]] = {
    "region": _text,
    "scheme": parse_choice(*_SCHEMES),
    "endpoint_override": _text,
    "force_virtual_addressing": parse_bool,
    "tls_ca_file_path": _text,
    "connect_timeout": _seconds,
    "request_timeout": _seconds,
    "max_attempts": _attempts,
    "conditional_put": parse_bool,
}
