"""Keys as texts, for those who watch a query.

Rule of this module: whatever the key, there is a text, of a bounded length and without secrets.
"""

from collections.abc import Mapping
from typing import Any, Final

from millpond.adapters.inspect.text import shown_text
from millpond.adapters.spark.rows.late_rows import as_json
from millpond.masking import masked
from millpond.processors.distribution.execution import Decoder
from millpond.processors.verbs.verb import Input

_LONGEST: Final = 80


def key_texts(
    keys: Mapping[tuple[str, Any], int], decoders: Mapping[str, Decoder], inputs: Mapping[str, Input]
) -> dict[str, int]:
    """Return the texts of keys, with what stands at them.

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
    try:
        text = _read(topic, key, decoders, inputs)
    except Exception:  # a serde of a user's may raise anything, and what is only looked at fails no task
        text = None
    return text or shown_text(key) or "null"


def _read(topic: str, key: Any, decoders: Mapping[str, Decoder], inputs: Mapping[str, Input]) -> str | None:
    if topic in inputs:
        (text,) = as_json(inputs[topic].key_columns, [key])
        return text
    reader = decoders[topic].key_serde if topic in decoders else None
    return shown_text(key if reader is None or key is None else reader.deserialize(key))
