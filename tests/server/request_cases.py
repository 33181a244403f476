"""Requests of every kind, and for each of their fields what becomes of it: obeyed, or refused."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from dragoman.v1 import (
    AlignmentMethod,
    AttentionLevel,
    AttentionReduction,
    DumpAttentionRequest,
    ScoreTextRequest,
    StreamTranslateTextRequest,
    TensorType,
    TextSplit,
    TranslateBatchRequest,
    TranslateTextRequest,
)
from dragoman.v1 import AttentionKind as KindMessage
from dragoman_model.selection import AttentionKind, ElementType, Reduction
from dragoman_server.limits import CallLimits
from dragoman_server.validation import (
    validate_dump_attention,
    validate_score_text,
    validate_stream_translate_text,
    validate_translate_batch,
    validate_translate_text,
)

LIMITS = CallLimits(
    max_text_count=3, max_text_characters=10, max_beam_size=6, max_num_hypotheses=5, max_sentence_rows=6
)


WRITING = (
    "TranslateTextRequest",
    "StreamTranslateTextRequest",
    "TranslateBatchRequest",
)  # with an output of their own


TRANSLATING = (*WRITING, "DumpAttentionRequest")  # those with decoding options


METHODS = {
    AlignmentMethod.ALIGNMENT_METHOD_UNSPECIFIED: None,
    AlignmentMethod.ALIGNMENT_METHOD_NAIVE: "naive",
    AlignmentMethod.ALIGNMENT_METHOD_SHIFTED: "shifted",
}


# Options, each with what lets it be as it is: its own path comes last.
OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"beam_size": 6}, "beam_size"),
    ({"beam_size": 4, "num_hypotheses": 3}, "num_hypotheses"),
    ({"sampling_topk": 0, "num_hypotheses": 5}, "num_hypotheses"),
    ({"length_penalty": 0.5}, "length_penalty"),
    ({"length_penalty": -2.0}, "length_penalty"),
    ({"repetition_penalty": 1.5}, "repetition_penalty"),
    ({"no_repeat_ngram_size": 3}, "no_repeat_ngram_size"),
    ({"keep_numbers": False}, "keep_numbers"),
    ({"min_decoding_length": 3}, "min_decoding_length"),
    ({"max_decoding_length": 7}, "max_decoding_length"),
    ({"sampling_topk": 0}, "sampling_topk"),
    ({"sampling_topk": 5}, "sampling_topk"),
    ({"sampling_topp": 0.5}, "sampling_topp"),
    ({"sampling_temperature": 0.5}, "sampling_temperature"),
    ({"seed": 0}, "seed"),
    ({"seed": -(2**63)}, "seed"),
]


PLAIN_NAMES = {"min_decoding_length": "min_length", "max_decoding_length": "max_length"}


# Fields whose effect the plain data shows: path, value sent, attribute of the plain data, value there.
OBEYED: list[tuple[str, Any, str, Any]] = [
    ("TranslateTextRequest.texts", ["a", "b"], "texts", ("a", "b")),
    ("TranslateTextRequest.model", "en-de", "model.name", "en-de"),
    ("TranslateTextRequest.source_language_code", "en-GB", "model.source_language", "en-GB"),
    ("TranslateTextRequest.target_language_code", "de", "model.target_language", "de"),
    ("TranslateTextRequest.output.include_tokens", True, "output.include_tokens", True),
    ("TranslateTextRequest.output.include_alignments", True, "output.include_alignments", True),
    ("TranslateTextRequest.split", TextSplit.TEXT_SPLIT_NONE, "split", False),
    ("TranslateTextRequest.split", TextSplit.TEXT_SPLIT_SENTENCES, "split", True),
    ("TranslateTextRequest.target_prefixes", ["Das"], "target_prefixes", ("Das",)),
    ("DumpAttentionRequest.text", "b", "text", "b"),
    ("DumpAttentionRequest.model", "en-de", "model.name", "en-de"),
    ("DumpAttentionRequest.source_language_code", "en", "model.source_language", "en"),
    ("DumpAttentionRequest.target_language_code", "de", "model.target_language", "de"),
    ("DumpAttentionRequest.split", TextSplit.TEXT_SPLIT_NONE, "split", False),
    ("DumpAttentionRequest.translation", "", "translation", ""),
    ("DumpAttentionRequest.translation", "c", "split", False),
    ("StreamTranslateTextRequest.text", "b", "text", "b"),
    ("StreamTranslateTextRequest.model", "en-de", "model.name", "en-de"),
    ("StreamTranslateTextRequest.source_language_code", "en-GB", "model.source_language", "en-GB"),
    ("StreamTranslateTextRequest.target_language_code", "de", "model.target_language", "de"),
    ("StreamTranslateTextRequest.output.include_tokens", True, "output.include_tokens", True),
    ("StreamTranslateTextRequest.output.include_alignments", True, "output.include_alignments", True),
    ("StreamTranslateTextRequest.split", TextSplit.TEXT_SPLIT_NONE, "split", False),
    ("StreamTranslateTextRequest.target_prefix", "Das", "target_prefix", "Das"),
    ("TranslateBatchRequest.model", "en-de", "model.name", "en-de"),
    ("TranslateBatchRequest.source_language_code", "en-GB", "model.source_language", "en-GB"),
    ("TranslateBatchRequest.target_language_code", "de", "model.target_language", "de"),
    ("TranslateBatchRequest.output.include_tokens", True, "output.include_tokens", True),
    ("TranslateBatchRequest.output.include_alignments", True, "output.include_alignments", True),
    ("TranslateBatchRequest.split", TextSplit.TEXT_SPLIT_NONE, "split", False),
    (
        "DumpAttentionRequest.selection.kinds",
        [KindMessage.ATTENTION_KIND_DECODER_SELF, KindMessage.ATTENTION_KIND_ENCODER_SELF],
        "selection.kinds",
        (AttentionKind.DECODER_SELF, AttentionKind.ENCODER_SELF),
    ),
    ("DumpAttentionRequest.selection.layers", [3, 0], "selection.layers", (3, 0)),
    ("DumpAttentionRequest.selection.heads", [1], "selection.heads", (1,)),
    (
        "DumpAttentionRequest.selection.layer_reduction",
        AttentionReduction.ATTENTION_REDUCTION_ROLLOUT,
        "selection.layer_reduction",
        Reduction.ROLLOUT,
    ),
    (
        "DumpAttentionRequest.selection.layer_reduction",
        AttentionReduction.ATTENTION_REDUCTION_MAX,
        "selection.layer_reduction",
        Reduction.MAX,
    ),
    (
        "DumpAttentionRequest.selection.head_reduction",
        AttentionReduction.ATTENTION_REDUCTION_MEAN,
        "selection.head_reduction",
        Reduction.MEAN,
    ),
    ("DumpAttentionRequest.selection.level", AttentionLevel.ATTENTION_LEVEL_WORD, "selection.words", True),
    ("DumpAttentionRequest.selection.drop_special_tokens", True, "selection.drop_special_tokens", True),
    (
        "DumpAttentionRequest.selection.tensor_type",
        TensorType.TENSOR_TYPE_FLOAT16,
        "selection.element_type",
        ElementType.FLOAT16,
    ),
    (
        "DumpAttentionRequest.selection.tensor_type",
        TensorType.TENSOR_TYPE_UINT8,
        "selection.element_type",
        ElementType.UINT8,
    ),
    ("DumpAttentionRequest.selection.top_k", 4, "selection.top_k", 4),
    ("ScoreTextRequest.items.text", "b", "texts", ("b",)),
    ("ScoreTextRequest.items.translation", "b", "translations", ("b",)),
    ("ScoreTextRequest.items.pieces", ["b"], "translations", (("b",),)),
    ("ScoreTextRequest.model", "en-de", "model.name", "en-de"),
    ("ScoreTextRequest.source_language_code", "en-GB", "model.source_language", "en-GB"),
    ("ScoreTextRequest.target_language_code", "de", "model.target_language", "de"),
]


_OPTIONS_INVALID: list[tuple[str, Any]] = [
    ("options.beam_size", 0),
    ("options.beam_size", 7),
    ("options.num_hypotheses", -1),
    ("options.num_hypotheses", 2),  # of one beam
    ("options.num_hypotheses", 6),
    ("options.length_penalty", float("nan")),
    ("options.length_penalty", 51.0),
    ("options.repetition_penalty", float("inf")),
    ("options.repetition_penalty", 0.9),
    ("options.no_repeat_ngram_size", -1),
    ("options.min_decoding_length", -1),
    ("options.max_decoding_length", 0),
    ("options.sampling_topk", -1),
    ("options.sampling_topp", 0.0),
    ("options.sampling_topp", 1.5),
    ("options.sampling_temperature", 0.0),
    ("options.sampling_temperature", float("inf")),
]


INVALID: list[tuple[str, Any]] = [
    *((f"{request}.{path}", value) for request in TRANSLATING for path, value in _OPTIONS_INVALID),
    ("TranslateTextRequest.texts", []),
    ("TranslateTextRequest.texts", ["a"] * 4),
    ("TranslateTextRequest.source_language_code", "en_GB"),
    ("TranslateTextRequest.target_language_code", "Deutsch ist schön"),
    ("TranslateTextRequest.split", 99),
    ("TranslateTextRequest.target_prefixes", ["Das", "Der"]),
    ("TranslateTextRequest.target_prefixes", ["a" * 11]),
    ("TranslateTextRequest.output.alignment_method", 99),
    *((f"{request}.output.alignment_method", method) for request in WRITING for method in METHODS if method),
    ("DumpAttentionRequest.text", "a" * 11),
    ("DumpAttentionRequest.source_language_code", "-"),
    ("DumpAttentionRequest.split", 99),
    ("DumpAttentionRequest.translation", "a" * 11),
    ("DumpAttentionRequest.selection.kinds", [KindMessage.ATTENTION_KIND_UNSPECIFIED]),
    ("DumpAttentionRequest.selection.kinds", [KindMessage.ATTENTION_KIND_CROSS] * 2),
    ("DumpAttentionRequest.selection.layers", [-1]),
    ("DumpAttentionRequest.selection.layers", [1, 1]),
    ("DumpAttentionRequest.selection.heads", [-1]),
    ("DumpAttentionRequest.selection.layer_reduction", 99),
    ("DumpAttentionRequest.selection.head_reduction", AttentionReduction.ATTENTION_REDUCTION_ROLLOUT),
    ("DumpAttentionRequest.selection.level", 99),
    ("DumpAttentionRequest.selection.tensor_type", 99),
    ("DumpAttentionRequest.selection.tensor_type", TensorType.TENSOR_TYPE_INT32),
    ("DumpAttentionRequest.selection.top_k", 0),
    ("StreamTranslateTextRequest.text", "a" * 11),
    ("StreamTranslateTextRequest.target_prefix", "a" * 11),
    ("StreamTranslateTextRequest.source_language_code", "en_GB"),
    ("StreamTranslateTextRequest.split", 99),
    ("StreamTranslateTextRequest.output.alignment_method", 99),
    ("TranslateBatchRequest.target_language_code", "en_GB"),
    ("TranslateBatchRequest.split", 99),
    ("TranslateBatchRequest.output.alignment_method", 99),
    ("ScoreTextRequest.items.text", "a" * 11),
    ("ScoreTextRequest.items.translation", "a" * 11),
    ("ScoreTextRequest.items.pieces", ["aaaaaa", "bbbbb"]),
    ("ScoreTextRequest.source_language_code", "en_GB"),
    ("ScoreTextRequest.target_language_code", "?"),
]  # fmt: skip


# Paging is tested with the catalogue; what becomes of a stream's items, with the real server, and below.
ELSEWHERE = {
    "ListModelsRequest.page_size",
    "ListModelsRequest.page_token",
    *(f"TranslateBatchRequest.items.{name}" for name in ("id", "text", "target_prefix")),
}


REQUESTS: dict[str, Any] = {
    "TranslateTextRequest": TranslateTextRequest(texts=["a"]),
    "StreamTranslateTextRequest": StreamTranslateTextRequest(text="a"),
    "TranslateBatchRequest": TranslateBatchRequest(items=[{"id": "1", "text": "a"}]),
    "DumpAttentionRequest": DumpAttentionRequest(text="a"),
    "ScoreTextRequest": ScoreTextRequest(items=[{"text": "a"}]),
}


VALIDATE: dict[str, Any] = {
    "TranslateTextRequest": validate_translate_text,
    "StreamTranslateTextRequest": validate_stream_translate_text,
    "TranslateBatchRequest": validate_translate_batch,
    "DumpAttentionRequest": validate_dump_attention,
    "ScoreTextRequest": validate_score_text,
}


def request_with(path: str, value: Any) -> Message:
    """Returns a valid request but for the field at ``path``; on the way, the first of several items is taken."""
    name, *fields = path.split(".")
    request = copy.deepcopy(REQUESTS[name])
    *parents, field = fields
    target: Any = request
    for parent in parents:
        target = getattr(target, parent)
        target = target if isinstance(target, Message) else target[0]
    if isinstance(value, list):
        target.ClearField(field)
        getattr(target, field).extend(value)
    else:
        setattr(target, field, value)
    return request


def validate(request: Message) -> Any:
    return VALIDATE[request.DESCRIPTOR.name](request, LIMITS)


def leaves(descriptor: Descriptor, path: str) -> Iterator[str]:
    for field in descriptor.fields:
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            yield from leaves(field.message_type, f"{path}.{field.name}")
        else:
            yield f"{path}.{field.name}"
