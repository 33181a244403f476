"""Results as JSON: what ``--json`` prints, one object a line."""

import json
import sys
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, BinaryIO

# Line ends to many a reader of JSON lines; JSON itself lets them stand.
_ESCAPES = str.maketrans({"\u2028": "\\u2028", "\u2029": "\\u2029", "\x85": "\\u0085"})


def print_json(document: dict[str, Any], stream: BinaryIO | None = None) -> None:
    """Writes one object as one line of UTF-8 to the stream; None takes standard output."""
    line = json.dumps(document, ensure_ascii=False, allow_nan=False).translate(_ESCAPES)
    stream = stream or sys.stdout.buffer
    stream.write(line.encode() + b"\n")
    stream.flush()


def as_document(value: Any) -> Any:
    """Returns a result's dataclasses, enumerations and tuples as JSON's kinds of value."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_document(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, tuple | list):
        return [as_document(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.7g}")  # float32 holds no more
    return value
