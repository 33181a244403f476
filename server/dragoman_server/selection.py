"""From the protocol's attention selection to the model's: every field is obeyed or refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from dragoman.v1 import AttentionKind as KindMessage
from dragoman.v1 import AttentionLevel, AttentionReduction, TensorType
from dragoman.v1 import AttentionSelection as SelectionMessage
from dragoman_model.config import ModelConfig
from dragoman_model.selection import AttentionKind, AttentionSelection, ElementType, Reduction
from dragoman_server.errors import InvalidArgumentError
from dragoman_server.findings import Findings

N = TypeVar("N", bound=int)
T = TypeVar("T")

KINDS = {
    KindMessage.ATTENTION_KIND_CROSS: AttentionKind.CROSS,
    KindMessage.ATTENTION_KIND_ENCODER_SELF: AttentionKind.ENCODER_SELF,
    KindMessage.ATTENTION_KIND_DECODER_SELF: AttentionKind.DECODER_SELF,
}
TENSOR_TYPES = {
    TensorType.TENSOR_TYPE_FLOAT32: ElementType.FLOAT32,
    TensorType.TENSOR_TYPE_FLOAT16: ElementType.FLOAT16,
    TensorType.TENSOR_TYPE_UINT8: ElementType.UINT8,
    TensorType.TENSOR_TYPE_INT32: ElementType.INT32,
}
_REDUCTIONS = {
    AttentionReduction.ATTENTION_REDUCTION_UNSPECIFIED: None,
    AttentionReduction.ATTENTION_REDUCTION_MEAN: Reduction.MEAN,
    AttentionReduction.ATTENTION_REDUCTION_MAX: Reduction.MAX,
    AttentionReduction.ATTENTION_REDUCTION_ROLLOUT: Reduction.ROLLOUT,
}
_WORDS = {
    AttentionLevel.ATTENTION_LEVEL_UNSPECIFIED: False,
    AttentionLevel.ATTENTION_LEVEL_PIECE: False,
    AttentionLevel.ATTENTION_LEVEL_WORD: True,
}
_WEIGHT_TYPES = {
    TensorType.TENSOR_TYPE_UNSPECIFIED: ElementType.FLOAT32,
    **{number: element for number, element in TENSOR_TYPES.items() if element is not ElementType.INT32},
}


def check_selection(message: SelectionMessage, findings: Findings) -> AttentionSelection:
    """Returns which attention the caller wants, or the default where ``findings`` grew.

    Whether its layers and heads exist, `check_layers_and_heads` says once the model is known.
    """
    before = len(findings.invalid)
    kinds = _check_kinds(message.kinds, findings)
    layers, heads = (_check_numbers(name, getattr(message, name), findings) for name in ("layers", "heads"))
    layer_reduction, head_reduction = (
        _check_choice(name, getattr(message, name), AttentionReduction, _REDUCTIONS, findings)
        for name in ("layer_reduction", "head_reduction")
    )
    words = _check_choice("level", message.level, AttentionLevel, _WORDS, findings)
    element_type = _check_choice("tensor_type", message.tensor_type, TensorType, _WEIGHT_TYPES, findings)
    top_k = message.top_k if message.HasField("top_k") else None
    if top_k is not None and top_k < 1:
        findings.refuse("selection.top_k", f"{top_k} given; must be at least 1")
    if head_reduction is Reduction.ROLLOUT:
        findings.refuse("selection.head_reduction", "a rollout runs over layers; set layer_reduction instead")
    elif layer_reduction is Reduction.ROLLOUT and head_reduction is Reduction.MAX:
        findings.refuse("selection.head_reduction", "a rollout averages heads; leave it unset")
    if len(findings.invalid) > before:
        return AttentionSelection()
    return AttentionSelection(
        kinds=kinds or (AttentionKind.CROSS,),
        layers=layers,
        heads=heads,
        layer_reduction=layer_reduction,
        head_reduction=head_reduction,
        words=bool(words),
        drop_special_tokens=message.drop_special_tokens,
        element_type=element_type or ElementType.FLOAT32,
        top_k=top_k,
    )


def check_layers_and_heads(selection: AttentionSelection, config: ModelConfig) -> None:
    """Refuses layers and heads that the model doesn't have.

    Raises:
        InvalidArgumentError: There is no such layer in one of the kinds, or no such head.
    """
    findings = Findings()
    for kind in selection.kinds:
        in_encoder = kind is AttentionKind.ENCODER_SELF
        count = config.num_encoder_layers if in_encoder else config.num_decoder_layers
        owner = "encoder" if in_encoder else "decoder"
        missing = [layer for layer in selection.layers if layer >= count]
        if missing and not findings.invalid:
            findings.refuse(
                "selection.layers", f"{missing[0]} given; the {owner} has layers 0 to {count - 1}"
            )
    missing = [head for head in selection.heads if head >= config.num_heads]
    if missing:
        findings.refuse(
            "selection.heads", f"{missing[0]} given; each layer has heads 0 to {config.num_heads - 1}"
        )
    if findings.invalid:
        raise InvalidArgumentError(violations=findings.invalid)


def _check_kinds(kinds: Sequence[KindMessage], findings: Findings) -> tuple[AttentionKind, ...]:
    if len(kinds) > len(KINDS) or len(set(kinds)) < len(kinds):
        findings.refuse("selection.kinds", "holds a kind twice")
        return ()
    checked = [
        _check_choice(f"kinds[{index}]", kind, KindMessage, KINDS, findings)
        for index, kind in enumerate(kinds)
    ]
    return tuple(kind for kind in checked if kind is not None)


def _check_numbers(name: str, numbers: Sequence[int], findings: Findings) -> tuple[int, ...]:
    """Returns layers or heads."""
    if min(numbers, default=0) < 0:
        findings.refuse(f"selection.{name}", "counted from 0; a negative number given")
    elif len(set(numbers)) < len(numbers):
        findings.refuse(f"selection.{name}", "holds a number twice")
    return tuple(numbers)


def _check_choice(
    name: str, value: N, enum: EnumTypeWrapper, choices: Mapping[N, T], findings: Findings
) -> T | None:
    """Returns what an enum field means; proto3 lets unknown numbers through."""
    if value in choices:
        return choices[value]
    known = enum.DESCRIPTOR.values_by_number
    allowed = ", ".join(known[number].name for number in choices if number)
    findings.refuse(
        f"selection.{name}", f"{known[value].name if value in known else value} is none of {allowed}"
    )
    return None
