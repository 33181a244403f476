"""Every field of every request is obeyed or refused; a new field without a decision here fails."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from dragoman.v1 import (
    AlignmentMethod,
    AttentionLevel,
    AttentionReduction,
    BatchItem,
    DumpAttentionRequest,
    ListModelsRequest,
    ScoreTextRequest,
    StreamTranslateTextRequest,
    TensorType,
    TextSplit,
    TranslateBatchRequest,
    TranslateTextRequest,
)
from dragoman.v1 import AttentionKind as KindMessage
from dragoman_model.options import DecodingOptions
from dragoman_model.selection import AttentionKind, AttentionSelection, ElementType, Reduction
from dragoman_server.errors import InvalidArgumentError, RequestError, UnsupportedError
from dragoman_server.findings import Findings
from dragoman_server.limits import CallLimits
from dragoman_server.request import OutputChoice
from dragoman_server.validation import (
    validate_batch_item,
    validate_dump_attention,
    validate_later_batch,
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

_METHODS = {
    AlignmentMethod.ALIGNMENT_METHOD_UNSPECIFIED: None,
    AlignmentMethod.ALIGNMENT_METHOD_NAIVE: "naive",
    AlignmentMethod.ALIGNMENT_METHOD_SHIFTED: "shifted",
}

# Options, each with what lets it be as it is: its own path comes last.
_OPTIONS: list[tuple[dict[str, Any], str]] = [
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
_PLAIN_NAMES = {"min_decoding_length": "min_length", "max_decoding_length": "max_length"}

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
    *((f"{request}.output.alignment_method", method) for request in WRITING for method in _METHODS if method),
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
    "ScoreTextRequest": ScoreTextRequest(items=[{"text": "a", "translation": "a"}]),
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


def test_every_request_field_has_a_decision():
    fields = {
        leaf
        for request in (*REQUESTS.values(), ListModelsRequest())
        for leaf in leaves(request.DESCRIPTOR, request.DESCRIPTOR.name)
    }
    options = {f"{request}.options.{name}" for request in TRANSLATING for _, name in _OPTIONS}
    methods = {f"{request}.output.alignment_method" for request in WRITING}
    decided = {case[0] for case in OBEYED} | options | methods | ELSEWHERE
    assert decided == fields


@pytest.mark.parametrize(("path", "value", "attribute", "expected"), OBEYED)
def test_a_served_field_is_obeyed(path: str, value: Any, attribute: str, expected: Any):
    plain = validate(request_with(path, value))
    for name in attribute.split("."):
        plain = getattr(plain, name)
    assert plain == expected


@pytest.mark.parametrize(("options", "name"), _OPTIONS)
@pytest.mark.parametrize("request_name", TRANSLATING)
def test_a_decoding_option_is_obeyed(request_name: str, options: dict[str, Any], name: str):
    request = copy.deepcopy(REQUESTS[request_name])
    request.MergeFrom(type(request)(options=options))
    plain = validate(request).options
    assert getattr(plain, _PLAIN_NAMES.get(name, name)) == options[name]
    default = getattr(DecodingOptions(), _PLAIN_NAMES.get(name, name))
    assert default != options[name]


@pytest.mark.parametrize(
    ("options", "name", "description"),
    [
        ({"sampling_topk": 0, "beam_size": 2}, "beam_size", "must be 1 when sampling"),
        ({"beam_size": 3, "num_hypotheses": 4}, "num_hypotheses", "at most beam_size, 3"),
        ({"beam_size": 5}, "beam_size", "at most 4 rows"),
        ({"sampling_topk": 0, "num_hypotheses": 5}, "num_hypotheses", "at most 4 rows"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any], name: str, description: str):
    limits = CallLimits(max_sentence_rows=4)
    with pytest.raises(InvalidArgumentError, match=description) as caught:
        validate_translate_text(TranslateTextRequest(texts=["a"], options=options), limits)
    assert violated(caught.value) == f"options.{name}"


@pytest.mark.parametrize("method", _METHODS)
@pytest.mark.parametrize("request_name", WRITING)
def test_an_alignment_method_is_obeyed(request_name: str, method: AlignmentMethod):
    request = copy.deepcopy(REQUESTS[request_name])
    request.output.include_alignments = True
    request.output.alignment_method = method
    assert validate(request).output.alignment_method == _METHODS[method]


def test_a_field_that_is_not_served_yet_is_refused_by_its_path():
    findings = Findings()
    findings.not_yet("options.beam_size", "not supported by this server")
    with pytest.raises(UnsupportedError) as caught:
        findings.raise_any()
    assert violated(caught.value) == "options.beam_size"


@pytest.mark.parametrize(("path", "value"), INVALID)
def test_a_senseless_value_is_refused_by_its_path(path: str, value: Any):
    with pytest.raises(InvalidArgumentError) as caught:
        validate(request_with(path, value))
    assert violated(caught.value) == path.partition(".")[2]


def violated(error: RequestError) -> str:
    (violation,) = error.violations
    assert violation.description
    return re.sub(r"\[\d+\]", "", violation.field)


def test_defaults_are_what_an_empty_request_means():
    plain = validate_translate_text(TranslateTextRequest(texts=["a"]), LIMITS)
    assert plain.split
    assert plain.output == OutputChoice()
    assert plain.options == DecodingOptions()
    assert plain.target_prefixes == ("",)


def test_options_spelled_out_as_their_defaults_are_taken():
    request = TranslateTextRequest(texts=["a"])
    for name, value in (
        ("beam_size", 1), ("num_hypotheses", 1), ("length_penalty", 1), ("repetition_penalty", 1),
        ("no_repeat_ngram_size", 0), ("sampling_topk", 1), ("sampling_topp", 1), ("sampling_temperature", 1),
        ("keep_numbers", True),
    ):  # fmt: skip
        setattr(request.options, name, value)
    assert validate_translate_text(request, LIMITS).options == DecodingOptions()


def test_a_selection_spelled_out_as_its_default_is_taken():
    request = DumpAttentionRequest(text="a")
    assert validate_dump_attention(request, LIMITS).selection == AttentionSelection()
    request.selection.kinds.append(KindMessage.ATTENTION_KIND_CROSS)
    request.selection.level = AttentionLevel.ATTENTION_LEVEL_PIECE
    request.selection.tensor_type = TensorType.TENSOR_TYPE_FLOAT32
    assert validate_dump_attention(request, LIMITS).selection == AttentionSelection()


def test_characters_are_code_points():
    assert validate_translate_text(TranslateTextRequest(texts=["😀" * 10]), LIMITS).texts == ("😀" * 10,)


def test_a_long_text_is_named_with_its_index_length_and_limit():
    with pytest.raises(InvalidArgumentError, match=r"texts\[1\]: 11 characters; at most 10 allowed"):
        validate_translate_text(TranslateTextRequest(texts=["a", "b" * 11]), LIMITS)


def test_prefixes_of_too_many_texts_are_not_looked_at():
    request = TranslateTextRequest(texts=["a"] * 4, target_prefixes=["", "", "", "a" * 11])
    with pytest.raises(InvalidArgumentError) as caught:
        validate_translate_text(request, LIMITS)
    assert violated(caught.value) == "texts"


def test_an_integer_at_fault_is_shown_in_full():
    request = TranslateTextRequest(texts=["a"], options={"beam_size": 2**31 - 1})
    with pytest.raises(InvalidArgumentError, match="2147483647 given; must be 1 to 6"):
        validate_translate_text(request, LIMITS)


def test_all_fields_at_fault_are_named_together():
    request = TranslateTextRequest(texts=["a" * 11], source_language_code="?", split=7)
    request.options.beam_size = 40
    request.output.include_alignments = True  # sound, and so not named beside what isn't
    with pytest.raises(InvalidArgumentError) as caught:
        validate_translate_text(request, LIMITS)
    assert {violation.field for violation in caught.value.violations} == {
        "texts[0]", "source_language_code", "split", "options.beam_size",
    }  # fmt: skip


def test_violations_stay_within_what_metadata_may_hold():
    limits = CallLimits(max_text_count=10_000, max_text_characters=1)
    with pytest.raises(InvalidArgumentError) as caught:
        validate_translate_text(TranslateTextRequest(texts=["aa"] * 5000), limits)
    assert len(caught.value.violations) <= 16
    assert "and 4997 more" in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "violation"),
    [
        ({"text": "a", "translation": "b", "split": TextSplit.TEXT_SPLIT_SENTENCES}, "split"),
        (
            {"text": "a", "translation": "b", "options": {"max_decoding_length": 5}},
            "options.max_decoding_length",
        ),
        ({"text": "a", "translation": "b", "options": {"beam_size": 2}}, "options.beam_size"),
    ],
)
def test_what_contradicts_a_given_translation_is_refused(fields: dict[str, Any], violation: str):
    with pytest.raises(InvalidArgumentError) as caught:
        validate_dump_attention(DumpAttentionRequest(**fields), LIMITS)
    assert violated(caught.value) == violation


def test_a_least_length_above_the_greatest_is_refused():
    request = TranslateTextRequest(texts=["a"], options={"min_decoding_length": 5, "max_decoding_length": 4})
    with pytest.raises(InvalidArgumentError, match="more than max_decoding_length 4"):
        validate_translate_text(request, LIMITS)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("TranslateTextRequest.texts", ["a" * 11] * 1000),
        ("DumpAttentionRequest.selection.kinds", [99] * 1000),
    ],
)
def test_a_list_that_is_far_too_long_is_refused_as_a_whole(path: str, value: Any):
    with pytest.raises(InvalidArgumentError) as caught:
        validate(request_with(path, value))
    assert [violation.field for violation in caught.value.violations] == [path.partition(".")[2]]


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ({"id": ""}, "id"),
        ({"id": "x" * 129}, "id"),
        ({"id": "ä" * 65}, "id"),  # of two bytes each
        ({"text": "a" * 11}, "text"),
        ({"target_prefix": "a" * 11}, "target_prefix"),
    ],
)
def test_an_item_at_fault_is_refused_by_its_field(item: dict[str, str], field: str):
    validate_batch_item(BatchItem(id="x" * 128, text="a" * 10, target_prefix="a" * 10), LIMITS)
    with pytest.raises(InvalidArgumentError) as caught:
        validate_batch_item(BatchItem(**{"id": "1", **item}), LIMITS)
    assert violated(caught.value) == field


def test_a_later_message_holds_items_alone():
    items = [{"id": "1", "text": "a"}]
    validate_later_batch(TranslateBatchRequest(items=items))
    for descriptor in TranslateBatchRequest.DESCRIPTOR.fields:
        if descriptor.name == "items":
            continue
        request = TranslateBatchRequest(items=items)
        if descriptor.message_type is not None:
            getattr(request, descriptor.name).SetInParent()
        else:
            setattr(request, descriptor.name, 1 if descriptor.enum_type is not None else "en")
        with pytest.raises(InvalidArgumentError, match="first message") as caught:
            validate_later_batch(request)
        assert violated(caught.value) == descriptor.name
