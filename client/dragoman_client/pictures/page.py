"""Attention as one web page that holds all it needs and asks no network for anything."""

import base64
import hashlib
import html
import json
import re
import sys
from array import array
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Any

from dragoman_client.attention import Attention, AttentionTensor, AttentionUnit
from dragoman_client.pictures.caption import describe, source_text
from dragoman_client.pictures.ramp import NIGHT, PAPER

_PARTS = resources.files("dragoman_client.pictures") / "page_parts"
_SCRIPTS = ("data.js", "drawing.js", "heatmap.js", "links.js", "page.js")
# Two bytes a weight: finer than a screen, and a third of what digits take. The page's own word for it is in data.js.
_FULL_WEIGHT = 65535
_ESCAPES = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})


def render_page(attentions: Sequence[Attention], *, reduction: str | None = None) -> str:
    """Returns a page that shows the sentences' attention.

    Args:
        attentions: The sentences of a text, at least one, all of the same kinds.
        reduction: How layers and heads became one; None where they are apart.
    """
    style, script = _part("page.css"), "\n".join(_part(name) for name in _SCRIPTS)
    data = {
        "ramps": {"light": PAPER, "dark": NIGHT},
        "sentences": [_sentence(attention, reduction) for attention in attentions],
    }
    values = {
        "title": html.escape(" ".join(source_text(attentions[0]).split())[:80]),
        "model": html.escape(f"{attentions[0].model} · {attentions[0].model_digest[:12]}"),
        "style_hash": _digest(style),
        "script_hash": _digest(script),
        "style": style,
        "script": script,
        # No text can end the script element that holds it.
        "data": json.dumps(data, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPES),
    }
    # In one pass, so that a text which looks like a place to fill stays what it is.
    return re.sub(r"%(\w+)%", lambda match: values[match[1]], _part("page.html"))


def _sentence(attention: Attention, reduction: str | None) -> dict[str, Any]:
    return {
        "source": " ".join(source_text(attention).split()),
        "translation": " ".join(attention.translation.text.split()),
        "units": {
            "source": _units(attention.source_units),
            "target": _units(attention.target_units),
            "input": _units(attention.input_units),
        },
        "tensors": [_tensor(tensor, reduction) for tensor in attention.tensors],
    }


def _units(units: Sequence[AttentionUnit]) -> list[dict[str, Any]]:
    return [{"text": unit.text, "special": unit.special} for unit in units]


def _tensor(tensor: AttentionTensor, reduction: str | None) -> dict[str, Any]:
    weights = array("H", _scaled(tensor))
    if sys.byteorder == "big":
        weights.byteswap()
    return {
        "kind": tensor.kind.value,
        "description": describe(tensor, reduction),  # of an axis that is not apart
        "layers": list(tensor.layers) if "layer" in tensor.axes else None,
        "heads": list(tensor.heads) if "head" in tensor.axes else None,
        "weights": base64.b64encode(weights.tobytes()).decode("ascii"),
    }


def _scaled(tensor: AttentionTensor) -> Iterator[int]:
    """Yields all weights of whole rows, layer by layer and head by head."""
    for layer, head in tensor.places():
        for row in tensor.mean(layer=layer, head=head):
            for weight in row:
                yield round(min(max(weight, 0.0), 1.0) * _FULL_WEIGHT)


def _part(name: str) -> str:
    return (_PARTS / name).read_text(encoding="utf-8")


def _digest(content: str) -> str:
    """Returns what a content security policy names an inline script or style by."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode("ascii")
