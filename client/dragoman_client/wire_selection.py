"""An attention selection ↔ the wire contract's enumerations."""

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from dragoman.v1 import AttentionKind as WireKind
from dragoman.v1 import AttentionLevel as WireLevel
from dragoman.v1 import AttentionReduction as WireReduction
from dragoman.v1 import AttentionSelection as WireSelection
from dragoman.v1 import TensorType
from dragoman_client.selection import (
    AttentionKind,
    AttentionLevel,
    AttentionReduction,
    AttentionSelection,
    WeightType,
)

E = TypeVar("E", bound=Enum)
W = TypeVar("W")

WIRE_KINDS = {
    AttentionKind.CROSS: WireKind.ATTENTION_KIND_CROSS,
    AttentionKind.ENCODER_SELF: WireKind.ATTENTION_KIND_ENCODER_SELF,
    AttentionKind.DECODER_SELF: WireKind.ATTENTION_KIND_DECODER_SELF,
}
_REDUCTIONS = {
    AttentionReduction.MEAN: WireReduction.ATTENTION_REDUCTION_MEAN,
    AttentionReduction.MAX: WireReduction.ATTENTION_REDUCTION_MAX,
    AttentionReduction.ROLLOUT: WireReduction.ATTENTION_REDUCTION_ROLLOUT,
}
_LEVELS = {
    AttentionLevel.PIECE: WireLevel.ATTENTION_LEVEL_PIECE,
    AttentionLevel.WORD: WireLevel.ATTENTION_LEVEL_WORD,
}
_TYPES = {
    WeightType.FLOAT32: TensorType.TENSOR_TYPE_FLOAT32,
    WeightType.FLOAT16: TensorType.TENSOR_TYPE_FLOAT16,
    WeightType.UINT8: TensorType.TENSOR_TYPE_UINT8,
}


def build_selection(selection: AttentionSelection) -> WireSelection:
    """Returns the message of a selection.

    Raises:
        ValueError: A value is none of its enumeration's.
        TypeError: It is no selection.
    """
    kind: type = type(selection)
    if not issubclass(kind, AttentionSelection):
        raise TypeError(f"selection is of type {kind.__name__}; it must be AttentionSelection")
    return WireSelection(
        kinds=[_wire("kinds", value, AttentionKind, WIRE_KINDS) for value in selection.kinds],
        layers=selection.layers,
        heads=selection.heads,
        layer_reduction=_optional(
            "layer_reduction", selection.layer_reduction, AttentionReduction, _REDUCTIONS
        ),
        head_reduction=_optional("head_reduction", selection.head_reduction, AttentionReduction, _REDUCTIONS),
        level=_optional("level", selection.level, AttentionLevel, _LEVELS),
        drop_special_tokens=selection.drop_special_tokens,
        tensor_type=_optional("weight_type", selection.weight_type, WeightType, _TYPES),
        top_k=selection.top_k,
    )


def _wire(name: str, value: E | str, enumeration: type[E], wire: Mapping[E, W]) -> W:
    try:
        return wire[enumeration(value)]
    except ValueError:
        allowed = ", ".join(repr(known.value) for known in enumeration)
        raise ValueError(f"{name} has {value!r}; allowed are {allowed}") from None


def _optional(name: str, value: E | str | None, enumeration: type[E], wire: Mapping[E, W]) -> W | None:
    return None if value is None else _wire(name, value, enumeration, wire)
