"""Secrets, and texts without them: the one place that knows which texts must not be shown, and in which spellings.

Rule of this module: it imports nothing of Millpond. Code that gets a URI or URL that may hold a secret calls ``know``;
code that passes on a library's message calls ``masked`` or ``quoted``. The messages of Millpond's own errors lose the
secrets in use by themselves. Work that is sent to another process takes ``SecretsInUse`` with it.
"""

import json
import os
import re
import traceback
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from html import escape
from typing import Final
from urllib.parse import quote, quote_plus, unquote, unquote_plus

MASK: Final = "***"

_SHORTEST: Final = 4
"""The length of the shortest secret that is masked: shorter texts are parts of too many others."""
_SHORT: Final = 8
"""The length below which texts are masked as words, and not in the middle of others."""

_NAME: Final = (
    r"[\w.-]*(?:pass|pwd|secret|token|credential|auth|signature|connection_?string)[\w.-]*"
    r"|(?:[\w.-]*[_.-])?(?:sig|sas|(?:api|access|private|account|shared)?_?key)"
)
"""The names of secrets."""
_IS_NAME: Final = re.compile(_NAME, re.IGNORECASE)
_NAMED: Final = re.compile(rf"(?<![\w.-])({_NAME})=[^&\s'\"<>]*", re.IGNORECASE)
_TOLD: Final = re.compile(
    r"(?<![\w.-])(\w*(?:password|secret|token|signature|authorization|account_?key)\w*['\"]?\s*:\s*['\"]?)"
    r"(?:bearer\s+|basic\s+|sharedkey\s+)?[^\s'\"<>,}]+",
    re.IGNORECASE,
)
"""The names of secrets in JSON and in headers."""
_USER: Final = re.compile(r"//[^\s/?&]*@|//[^\s/?&:@]*:[^/?&@]*@|:(?!//)[^\s'\"]*@")
_ENDS: Final = re.compile(r"%(0[9AD]|2[0267])", re.IGNORECASE)
"""The characters that would end a password in a text if it were not quoted: blanks, line ends, quotes and ``&``."""
_QUERY: Final = re.compile(
    r"\b((?:https?|abfss?|wasbs?|adl|az|s3[an]?|gs|gcs)://[^\s'\"<>?]*\?)([^\s'\"<>]*)", re.IGNORECASE
)

_PLAIN: Final = frozenset(
    (
        *("scheme", "region", "endpoint_override", "force_virtual_addressing", "tls_ca_file_path", "connect_timeout"),
        *("request_timeout", "max_attempts", "conditional_put", "sync", "retry_limit_seconds", "enable_tls"),
        *("blob_storage_authority", "dfs_storage_authority", "credential_kind", "tenant_id", "client_id"),
        *("buffer_size", "replication", "url"),
    )
)
"""Options of state directories that are no secrets."""

_secrets: Final[set[str]] = set()


def know(uri: str) -> None:
    """Take the password of a state directory's URI for a secret, and its options, except those known to be harmless.

    In a backend's URL, only options with a secret's name are secret, and the password of a URL in an option.
    """
    _, separator, rest = uri.partition("://")
    if not separator:
        return
    user, _, _ = rest.partition("?")[0].rpartition("@")
    found = {user.partition(":")[2]}
    for part in rest.partition("?")[2].partition("#")[0].split("&"):
        name, given, value = part.partition("=")
        if _IS_NAME.fullmatch(name) or (not _is_backend(rest) and name.lower() not in _PLAIN):
            option = value if given else name
            found |= {option, unquote_plus(option)}  # a blank of an option may be a plus
        know(unquote(value))
    know_secret(*found)


def _is_backend(rest: str) -> bool:
    """Return whether a URL has no place, as backends' URLs."""
    return rest.startswith("?")


def know_secret(*secrets: str) -> None:
    """Take these texts for secrets, wherever they are."""
    new = {secret for secret in secrets if len(secret) >= _SHORTEST and not _is_harmless(secret)} - _secrets
    if new:
        _secrets.update(new)
        _in_use.cache_clear()


class SecretsInUse:
    """All secrets that ``know`` has when this is sent to another process, which then knows them, too.

    Secrets of the environment are not sent: a process without them cannot show them.
    """

    def __reduce__(self) -> "tuple[Callable[..., SecretsInUse], tuple[str, ...]]":
        return _arrived, tuple(sorted(_secrets))


def _arrived(*secrets: str) -> SecretsInUse:
    know_secret(*secrets)
    return SecretsInUse()


def without_known(text: str) -> str:
    """Return a text without the secrets in use, in any spelling: those given to ``know``, and the environment's."""
    pattern = _in_use()
    return text if pattern is None else pattern.sub(MASK, text)


def masked(text: str) -> str:
    """Return a foreign text without the secrets in use, and without anything that looks like one.

    >>> masked("redis://?url=redis%3A%2F%2Fme%3Ahunter2%40host%2F0&api_token=hunter2&sync=yes")
    'redis://?url=redis://***@host/0&api_token=***&sync=yes'
    >>> masked("GET 'https://acc.blob.core.windows.net/c?sv=2024&sig=q%2Fr' failed")
    "GET 'https://acc.blob.core.windows.net/c?sv=***&sig=***' failed"
    """
    plain = without_known(unquote(_ENDS.sub(r"%25\1", without_known(text))))
    named = _NAMED.sub(rf"\1={MASK}", _USER.sub(_without_user, plain))
    return _QUERY.sub(_without_values, _TOLD.sub(rf"\1{MASK}", named))


def quoted(error: BaseException) -> str:
    """Return a library's error as a message may show it. The error is masked, too: traces show it as the cause."""
    for one in _chain(error):
        _mask_in_place(one, masked)
    return masked(str(error))


def without_known_in(error: BaseException) -> None:
    """Take the secrets in use out of an error and of all its causes, of any origin."""
    for one in _chain(error):
        _mask_in_place(one, without_known)


@contextmanager
def masked_errors() -> Iterator[None]:
    """Let no error pass that shows a secret in use, in its message, its notes or its causes.

    An error that cannot be masked, such as one whose text is not among its arguments, is replaced by its text.
    """
    try:
        yield
    except BaseException as error:
        without_known_in(error)
        shown = "".join(traceback.format_exception(error))
        told = without_known(shown)
        if told != shown:
            raise RuntimeError(told) from None
        raise


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its causes, and the errors that it groups."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += [cause for cause in (one.__cause__, one.__context__) if cause is not None]
            waiting += one.exceptions if isinstance(one, BaseExceptionGroup) else ()


def _mask_in_place(error: BaseException, mask: Callable[[str], str]) -> None:
    """Mask the texts of an error: its arguments, its notes, and other text that it keeps."""
    notes = getattr(error, "__notes__", ())
    if isinstance(notes, list):
        notes[:] = [mask(str(note)) for note in notes]
    error.args = tuple(mask(one) if isinstance(one, str) else one for one in error.args)
    kept = [name for name, value in vars(error).items() if isinstance(value, str)]
    if isinstance(error, OSError):
        kept += [name for name in ("strerror", "filename", "filename2") if isinstance(getattr(error, name), str)]
    for name in kept:
        with suppress(AttributeError, TypeError):
            setattr(error, name, mask(getattr(error, name)))


@cache
def _in_use() -> re.Pattern[str] | None:
    """Return the pattern of the secrets in use; None if there are none."""
    environment = {
        value
        for key, value in os.environ.items()
        if _IS_NAME.fullmatch(key)
        and len(value) >= _SHORT
        and not value.startswith(("/", "~"))
        and not _is_harmless(value)
    }
    spelled = sorted({text for secret in _secrets | environment for text in _spellings(secret)}, key=len, reverse=True)
    return re.compile("|".join(map(_findable, spelled)), re.IGNORECASE) if spelled else None


def _spellings(secret: str) -> set[str]:
    """Return the forms of a secret in texts: quoted for a URL once or twice, in JSON, Python, HTML or Base64."""
    plain = unquote(secret)
    found = {
        secret,
        plain,
        quote(plain),
        quote(plain, safe=""),
        quote_plus(plain),
        plain.replace(" ", "+"),
        quote(quote(plain, safe=""), safe=""),
    }
    found |= {quote(secret, safe=""), json.dumps(plain)[1:-1], repr(plain)[1:-1], escape(plain)}
    if len(plain) >= _SHORT:
        found.add(b64encode(plain.encode()).decode().rstrip("="))
    return {one for one in found if len(one) >= _SHORTEST}


def _findable(text: str) -> str:
    return f"{re.escape(text)}=*" if len(text) >= _SHORT else rf"(?<![^\W_]){re.escape(text)}(?![^\W_])"


def _is_harmless(text: str) -> bool:
    """Return whether a text is a number, a truth value or the like, which other texts contain, too."""
    return re.fullmatch(r"[\d.:-]*|true|false|https?|none|default|anonymous", text, re.IGNORECASE) is not None


def _without_user(user: re.Match[str]) -> str:
    return f"{'//' if user[0].startswith('//') else ':'}{MASK}@"


def _without_values(url: re.Match[str]) -> str:
    parts = [part.partition("=") for part in url[2].split("&")]
    return url[1] + "&".join(f"{name}={MASK}" if separator else MASK for name, separator, _ in parts)
