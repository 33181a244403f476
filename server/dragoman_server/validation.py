"""From protocol messages to plain data: every field is obeyed or refused.

Values that no server would take are INVALID_ARGUMENT and reported first; sound values for things that this server can't
do yet are UNSUPPORTED. Either way all fields at fault are named at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from dragoman.v1 import (
    AlignmentMethod,
    AttentionKind,
    AttentionLevel,
    AttentionReduction,
    AttentionSelection,
    DecodingOptions,
    DumpAttentionRequest,
    OutputOptions,
    TensorType,
    TextSplit,
    TranslateTextRequest,
)
from dragoman_server.errors import FieldViolation, InvalidArgumentError, UnsupportedError
from dragoman_server.languages import is_well_formed
from dragoman_server.request import AttentionRequest, DecodingLimits, ModelChoice, TranslateRequest


@dataclass(frozen=True, kw_only=True)
class TextLimits:
    """What one call may hold: texts, and Unicode code points in each."""

    max_text_count: int = 256
    max_text_characters: int = 20_000


@dataclass(frozen=True)
class _OptionRule:
    """An option of which one value is served: its default."""

    served: float
    is_sound: Callable[[float], bool]
    allowed: str


_AT_LEAST_ONE = (lambda value: value >= 1, "at least 1")
_NOT_NEGATIVE = (lambda value: value >= 0, "at least 0")

_OPTION_RULES = {
    "beam_size": _OptionRule(1, *_AT_LEAST_ONE),
    "num_hypotheses": _OptionRule(1, *_AT_LEAST_ONE),
    "length_penalty": _OptionRule(1, math.isfinite, "a finite number"),
    "repetition_penalty": _OptionRule(
        1, lambda value: math.isfinite(value) and value >= 1, "a number, at least 1"
    ),
    "no_repeat_ngram_size": _OptionRule(0, *_NOT_NEGATIVE),
    "sampling_topk": _OptionRule(1, *_NOT_NEGATIVE),
    "sampling_topp": _OptionRule(1, lambda value: 0 < value <= 1, "above 0 and at most 1"),
    "sampling_temperature": _OptionRule(
        1, lambda value: math.isfinite(value) and value > 0, "a number above 0"
    ),
}


@dataclass
class _Findings:
    """What is wrong with a request so far."""

    invalid: list[FieldViolation] = field(default_factory=list)
    unsupported: list[FieldViolation] = field(default_factory=list)

    def refuse(self, path: str, description: str) -> None:
        self.invalid.append(FieldViolation(path, description))

    def not_yet(self, path: str, description: str) -> None:
        self.unsupported.append(FieldViolation(path, description))

    def raise_any(self) -> None:
        if self.invalid:
            raise InvalidArgumentError(violations=self.invalid)
        if self.unsupported:
            raise UnsupportedError(violations=self.unsupported)


def validate_translate_text(request: TranslateTextRequest, limits: TextLimits) -> TranslateRequest:
    """Returns what the caller asks for.

    Raises:
        InvalidArgumentError: A field holds what no server would take.
        UnsupportedError: A field asks for what this server can't do.
    """
    findings = _Findings()
    count = len(request.texts)
    if not 1 <= count <= limits.max_text_count:
        findings.refuse("texts", f"{count} texts given; 1 to {limits.max_text_count} allowed")
    else:  # looking at each of millions would keep every other call waiting
        for index, text in enumerate(request.texts):
            _check_text(f"texts[{index}]", text, limits, findings)
    decoding_limits = _check_options(request.options, findings)
    _check_output(request.output, findings)
    split = _check_split(request.split, findings)
    model = _check_model(request, findings)
    if request.target_prefixes:
        findings.not_yet("target_prefixes", "not supported by this server; leave it empty")
    findings.raise_any()
    return TranslateRequest(
        texts=tuple(request.texts),
        model=model,
        limits=decoding_limits,
        split=split,
        include_tokens=request.output.include_tokens,
    )


def validate_dump_attention(request: DumpAttentionRequest, limits: TextLimits) -> AttentionRequest:
    """Returns what the caller asks for.

    Raises:
        InvalidArgumentError: A field holds what no server would take.
        UnsupportedError: A field asks for what this server can't do.
    """
    findings = _Findings()
    _check_text("text", request.text, limits, findings)
    decoding_limits = _check_options(request.options, findings)
    split = _check_split(request.split, findings)
    model = _check_model(request, findings)
    translation = request.translation if request.HasField("translation") else None
    if translation is not None:
        _check_text("translation", translation, limits, findings)
        _check_given_translation(request, findings)
        split = False
    _check_selection(request.selection, findings)
    findings.raise_any()
    return AttentionRequest(
        text=request.text, model=model, limits=decoding_limits, split=split, translation=translation
    )


def _check_text(path: str, text: str, limits: TextLimits, findings: _Findings) -> None:
    if len(text) > limits.max_text_characters:
        findings.refuse(path, f"{len(text)} characters; at most {limits.max_text_characters} allowed")


def _check_options(options: DecodingOptions, findings: _Findings) -> DecodingLimits:
    for name, rule in _OPTION_RULES.items():
        if not options.HasField(name):
            continue
        value = getattr(options, name)
        if not rule.is_sound(value):
            findings.refuse(f"options.{name}", f"{value:g} given; must be {rule.allowed}")
        elif value != rule.served:
            findings.not_yet(f"options.{name}", f"{value:g} given; this server supports {rule.served:g} only")
    if options.HasField("seed"):
        findings.not_yet("options.seed", "this server doesn't sample; leave it unset")
    min_length = options.min_decoding_length
    max_length = options.max_decoding_length if options.HasField("max_decoding_length") else None
    if min_length < 0:
        findings.refuse("options.min_decoding_length", f"{min_length} given; must be at least 0")
    if max_length is not None and max_length < 1:
        findings.refuse("options.max_decoding_length", f"{max_length} given; must be at least 1")
    elif max_length is not None and min_length > max_length:
        findings.refuse(
            "options.min_decoding_length", f"{min_length} given; more than max_decoding_length {max_length}"
        )
    return DecodingLimits(min_length=min_length, max_length=max_length)


def _check_output(output: OutputOptions, findings: _Findings) -> None:
    if output.include_alignments:
        findings.not_yet("output.include_alignments", "not supported by this server; leave it unset")
    _check_choice("output.alignment_method", output.alignment_method, AlignmentMethod, (), findings)


def _check_split(split: TextSplit, findings: _Findings) -> bool:
    _check_choice("split", split, TextSplit, TextSplit.values(), findings)
    return split != TextSplit.TEXT_SPLIT_NONE


def _check_model(request: TranslateTextRequest | DumpAttentionRequest, findings: _Findings) -> ModelChoice:
    for name in ("source_language_code", "target_language_code"):
        code = getattr(request, name)
        if code and not is_well_formed(code):
            findings.refuse(name, f"{code[:64]!r} is not a BCP-47 language tag, such as en or pt-BR")
    return ModelChoice(
        name=request.model,
        source_language=request.source_language_code,
        target_language=request.target_language_code,
    )


def _check_given_translation(request: DumpAttentionRequest, findings: _Findings) -> None:
    if request.split == TextSplit.TEXT_SPLIT_SENTENCES:
        findings.refuse(
            "split", "a given translation is that of one sentence; leave it unset or TEXT_SPLIT_NONE"
        )
    for name in ("min_decoding_length", "max_decoding_length"):
        if request.options.HasField(name):
            findings.refuse(f"options.{name}", "has no meaning where the translation is given")


def _check_selection(selection: AttentionSelection, findings: _Findings) -> None:
    cross = (AttentionKind.ATTENTION_KIND_CROSS,)
    if len(selection.kinds) > len(AttentionKind.values()) or len(set(selection.kinds)) < len(selection.kinds):
        findings.refuse("selection.kinds", "holds a kind twice")
    else:
        for index, kind in enumerate(selection.kinds):
            if kind == AttentionKind.ATTENTION_KIND_UNSPECIFIED:
                findings.refuse(f"selection.kinds[{index}]", "must not be unspecified")
            else:
                _check_choice(f"selection.kinds[{index}]", kind, AttentionKind, cross, findings)
    for name in ("layers", "heads"):
        numbers = getattr(selection, name)
        if min(numbers, default=0) < 0:
            findings.refuse(f"selection.{name}", "counted from 0; a negative number given")
        elif numbers:
            findings.not_yet(f"selection.{name}", "this server returns all; leave it empty")
    for name in ("layer_reduction", "head_reduction"):
        _check_choice(f"selection.{name}", getattr(selection, name), AttentionReduction, (), findings)
    pieces, float32 = AttentionLevel.ATTENTION_LEVEL_PIECE, TensorType.TENSOR_TYPE_FLOAT32
    _check_choice("selection.level", selection.level, AttentionLevel, (pieces,), findings)
    _check_choice("selection.tensor_type", selection.tensor_type, TensorType, (float32,), findings)
    if selection.drop_special_tokens:
        findings.not_yet("selection.drop_special_tokens", "not supported by this server; leave it unset")
    if selection.HasField("top_k"):
        if selection.top_k < 1:
            findings.refuse("selection.top_k", f"{selection.top_k} given; must be at least 1")
        else:
            findings.not_yet("selection.top_k", "this server returns all weights; leave it unset")


def _check_choice(
    path: str, value: int, enum: EnumTypeWrapper, served: Sequence[int], findings: _Findings
) -> None:
    """Checks an enum field: 0 is unset, and proto3 lets unknown numbers through."""
    known = enum.DESCRIPTOR.values_by_number
    if value not in known:
        findings.refuse(
            path, f"{value} is none of {', '.join(item.name for item in known.values() if item.number)}"
        )
    elif value != 0 and value not in served:
        findings.not_yet(path, f"{known[value].name} is not supported by this server; leave it unset")
