"""URIs, as they may be shown.

Rule of this module: a URI may hold secrets, before its host and in its options. The text that is shown holds neither.
"""

import re
from typing import Final

_SECRETS: Final = re.compile(r"(?<=://)[^/?#@]*:(?!\d*/)(?:[^/?#]*|[^?#@]*)@")
"""A user with a password, even one with a ``/`` that should be escaped. A container before ``@`` is no secret."""


def shown(uri: str) -> str:
    """Return a path or URI as messages show it: without options, and without a user that has a password."""
    if "://" not in uri:
        return uri
    return _SECRETS.sub("", uri.partition("?")[0].partition("#")[0])


def below(uri: str, name: str) -> str:
    """Return the path or URI of a name in a directory, with the options of the directory's URI.

    >>> below("/data/", "state"), below("s3://bucket/data?region=eu-central-1", "state")
    ('/data/state', 's3://bucket/data/state?region=eu-central-1')
    """
    place, mark, options = uri.partition("?") if "://" in uri else (uri, "", "")
    return f"{place.rstrip('/')}/{name}{mark}{options}"
