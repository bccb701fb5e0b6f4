"""Keys as texts, for those who watch a query.

Rule of this module: whatever the key, there is a text, of a bounded length and without secrets.
"""

from collections.abc import Mapping
from typing import Any, Final

from millpond.adapters.inspect.text import shown_text
from millpond.adapters.spark.rows.late_rows import as_json
from millpond.errors import MillpondError
from millpond.masking import masked
from millpond.processors.distribution.execution import Decoder
from millpond.processors.verbs.verb import Input

_LONGEST: Final = 80


def key_texts(
    keys: Mapping[tuple[str, Any], int], decoders: Mapping[str, Decoder], inputs: Mapping[str, Input]
) -> dict[str, int]:
    """The texts of keys, with what stands at them.

    Args:
        keys: by topic and key, as records travel.
        decoders: how keys are read, by topic.
        inputs: of a verb, by topic: reads packed keys.
    """
    found: dict[str, int] = {}
    for (topic, key), amount in keys.items():
        text = masked(_text(topic, key, decoders, inputs))[:_LONGEST]
        found[text] = found.get(text, 0) + amount
    return found


def _text(topic: str, key: Any, decoders: Mapping[str, Decoder], inputs: Mapping[str, Input]) -> str:
    if topic in inputs:
        (text,) = as_json(inputs[topic].key_columns, [key])
        if text is not None:
            return text
    reader = decoders[topic].key_serde if topic in decoders else None
    try:
        read = key if reader is None or key is None else reader.deserialize(key)
    except MillpondError:
        read = key
    return shown_text(read) or "null"
