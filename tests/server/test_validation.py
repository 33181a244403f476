"""Every field of every request is obeyed or refused; a new field without a decision here fails."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from dragoman.v1 import (
    AlignmentMethod,
    AttentionLevel,
    BatchItem,
    DumpAttentionRequest,
    ListModelsRequest,
    TensorType,
    TextSplit,
    TranslateBatchRequest,
    TranslateTextRequest,
)
from dragoman.v1 import AttentionKind as KindMessage
from dragoman_model.options import DecodingOptions
from dragoman_model.selection import AttentionSelection
from dragoman_server.errors import InvalidArgumentError, RequestError, UnsupportedError
from dragoman_server.findings import Findings
from dragoman_server.limits import CallLimits
from dragoman_server.request import OutputChoice
from dragoman_server.validation import (
    validate_batch_item,
    validate_dump_attention,
    validate_later_batch,
    validate_translate_text,
)
from tests.server.request_cases import (
    ELSEWHERE,
    INVALID,
    LIMITS,
    METHODS,
    OBEYED,
    OPTIONS,
    PLAIN_NAMES,
    REQUESTS,
    TRANSLATING,
    WRITING,
    leaves,
    request_with,
    validate,
)


def test_every_request_field_has_a_decision():
    fields = {
        leaf
        for request in (*REQUESTS.values(), ListModelsRequest())
        for leaf in leaves(request.DESCRIPTOR, request.DESCRIPTOR.name)
    }
    options = {f"{request}.options.{name}" for request in TRANSLATING for _, name in OPTIONS}
    methods = {f"{request}.output.alignment_method" for request in WRITING}
    decided = {case[0] for case in OBEYED} | options | methods | ELSEWHERE
    assert decided == fields


@pytest.mark.parametrize(("path", "value", "attribute", "expected"), OBEYED)
def test_a_served_field_is_obeyed(path: str, value: Any, attribute: str, expected: Any):
    plain = validate(request_with(path, value))
    for name in attribute.split("."):
        plain = getattr(plain, name)
    assert plain == expected


@pytest.mark.parametrize(("options", "name"), OPTIONS)
@pytest.mark.parametrize("request_name", TRANSLATING)
def test_a_decoding_option_is_obeyed(request_name: str, options: dict[str, Any], name: str):
    request = copy.deepcopy(REQUESTS[request_name])
    request.MergeFrom(type(request)(options=options))
    plain = validate(request).options
    assert getattr(plain, PLAIN_NAMES.get(name, name)) == options[name]
    default = getattr(DecodingOptions(), PLAIN_NAMES.get(name, name))
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


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("request_name", WRITING)
def test_an_alignment_method_is_obeyed(request_name: str, method: AlignmentMethod):
    request = copy.deepcopy(REQUESTS[request_name])
    request.output.include_alignments = True
    request.output.alignment_method = method
    assert validate(request).output.alignment_method == METHODS[method]


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
