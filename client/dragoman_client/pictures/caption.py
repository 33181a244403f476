"""What a picture shows, in words."""

import unicodedata

from dragoman_client.attention import Attention, AttentionTensor
from dragoman_client.selection import AttentionKind, AttentionReduction

KIND_NAMES = {
    AttentionKind.CROSS: "cross-attention",
    AttentionKind.ENCODER_SELF: "encoder self-attention",
    AttentionKind.DECODER_SELF: "decoder self-attention",
}
_REDUCTION_NAMES = {"mean": "mean", "max": "maximum", "rollout": "rollout"}


def clean(label: str) -> str:
    """Returns a label that takes the columns it seems to take: controls become visible, the rest stays."""
    return "".join(
        "\N{REPLACEMENT CHARACTER}"
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        else character
        for character in label
    )


def source_text(attention: Attention) -> str:
    """Returns the sentence's part of the text."""
    spans = [unit.span for unit in attention.source_units if unit.span is not None]
    return (
        attention.text[min(s.start for s in spans) : max(s.end for s in spans)] if spans else attention.text
    )


def describe(
    tensor: AttentionTensor, reduction: str | None, *, layer: int | None = None, head: int | None = None
) -> tuple[str, str, str]:
    """Says which attention is shown, of which layers and of which heads.

    Args:
        tensor: The weights.
        reduction: How layers and heads became one; None where they are apart.
        layer: The layer that is shown, where they are apart; None says how many there are.
        head: The head, likewise.
    """
    kind = KIND_NAMES[tensor.kind]
    if reduction == AttentionReduction.ROLLOUT.value:
        through = " and the encoder" if tensor.kind is AttentionKind.CROSS else ""
        rolled = f"rollout through {_numbered('layer', tensor.layers)}{through}"
        return kind, rolled, _chosen("head", tensor.heads, "mean")
    if reduction is None:
        layers = tensor.layers if layer is None else (layer,)
        heads = tensor.heads if head is None else (head,)
        return kind, _numbered("layer", layers), _numbered("head", heads)
    return kind, _chosen("layer", tensor.layers, reduction), _chosen("head", tensor.heads, reduction)


def place_in_text(attention: Attention) -> str:
    """Says which model translated, and which sentence of several this is."""
    if attention.sentence_count == 1:
        return attention.model
    return f"{attention.model} · sentence {attention.sentence_index + 1} of {attention.sentence_count}"


def _chosen(axis: str, numbers: tuple[int, ...], reduction: str) -> str:
    """Says which layers or heads a picture shows."""
    if len(numbers) == 1:
        return f"{axis} {numbers[0]}"
    return f"{_REDUCTION_NAMES[reduction]} of {len(numbers)} {axis}s"


def _numbered(axis: str, numbers: tuple[int, ...]) -> str:
    return f"{axis} {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} {axis}s"
