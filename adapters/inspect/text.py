"""Values as text, to be looked at by people.

Rule of this module: whatever the value, there is a text, and nothing is read back from it.
"""

import json
from base64 import b64encode
from typing import Any

from millpond.stores.encoding.serdes import Serde


class TextSerde(Serde[Any]):
    """Values of any type as text: as JSON as far as they have a form in it, with bytes in base64, or else as ``str``.

    It has the name of the JSON serde because its columns are those of JSON.
    """

    name = "json"

    def serialize(self, value: Any) -> bytes:
        try:
            text = _encode(value)
        except (TypeError, ValueError, RecursionError):
            text = str(value)
        return text.encode(errors="backslashreplace")

    def deserialize(self, data: bytes) -> Any:
        return data.decode()


def _without_json(value: object) -> str:
    return b64encode(value).decode() if isinstance(value, bytes | bytearray | memoryview) else str(value)


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_without_json).encode


def shown_text(value: Any) -> str | None:
    """Return anything as text: text as it is, bytes as the text that they hold or in base64, and the rest as JSON."""
    if value is None:
        return None
    if isinstance(value, bytes):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return b64encode(value).decode()
        return text if text.isprintable() else b64encode(value).decode()
    return sound_text(value if isinstance(value, str) else TextSerde().serialize(value).decode())


def sound_text(text: str) -> str:
    """Return the text with what is no character spelled out."""
    return text.encode(errors="backslashreplace").decode()
