import dataclasses
from typing import Any

import grpc
import pytest

from dragoman import v1
from dragoman_client import (
    AttentionKind,
    AttentionReduction,
    AttentionSelection,
    DecodingOptions,
    FieldViolation,
    InvalidRequestError,
    Split,
    WeightType,
)
from dragoman_client.bulk import Bulk
from dragoman_client.chunks import CallSize, Chunk
from dragoman_client.requests import (
    MAX_CHARACTERS_PER_CALL,
    MAX_TEXTS_PER_CALL,
    build_attention_request,
    build_batch_header,
    build_score_chunks,
    build_stream_request,
    build_translate_chunks,
)
from dragoman_client.wire_selection import build_selection

PLAIN = {"source_language": None, "target_language": None, "model": None, "options": None}


def chunks_of(texts: list[str], **changes: object) -> list[Chunk[v1.TranslateTextRequest]]:
    return build_translate_chunks(
        texts, **{**PLAIN, "include_tokens": False, "split": "sentences", **changes}
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lengths", "sizes"),
    [
        ([], []),
        ([5], [1]),
        ([1] * MAX_TEXTS_PER_CALL, [256]),
        ([1] * 600, [256, 256, 88]),
        ([MAX_CHARACTERS_PER_CALL], [1]),
        ([MAX_CHARACTERS_PER_CALL + 1, 1], [1, 1]),
        ([1, MAX_CHARACTERS_PER_CALL, 0, 1], [1, 2, 1]),
        ([8_000] * 5, [2, 2, 1]),
        ([0] * 300, [256, 44]),
    ],
)
def test_long_list_is_cut_into_calls_within_both_limits(lengths: list[int], sizes: list[int]) -> None:
    texts = [str(index % 10) * length for index, length in enumerate(lengths)]

    chunks = chunks_of(texts)

    assert [len(chunk.request.texts) for chunk in chunks] == sizes
    assert [text for chunk in chunks for text in chunk.request.texts] == texts
    assert [chunk.offset for chunk in chunks] == [sum(sizes[:i]) for i in range(len(sizes))]


def test_every_argument_reaches_the_request() -> None:
    options = DecodingOptions(beam_size=4, length_penalty=0.0, seed=7)

    [chunk] = chunks_of(
        ["a"],
        source_language="en",
        target_language="de",
        model="en-de",
        options=options,
        include_tokens=True,
        split=Split.NONE,
    )

    assert chunk.request == v1.TranslateTextRequest(
        texts=["a"],
        source_language_code="en",
        target_language_code="de",
        model="en-de",
        options=v1.DecodingOptions(beam_size=4, length_penalty=0.0, seed=7),
        output=v1.OutputOptions(include_tokens=True),
        split=v1.TextSplit.TEXT_SPLIT_NONE,
    )


@pytest.mark.parametrize("count", [2, 3, 7])
def test_halves_of_a_call_are_the_call(count: int) -> None:
    texts = [f"text {number}" for number in range(count)]
    [chunk] = chunks_of(texts, target_prefixes=[text.upper() for text in texts], model="en-de")

    first, second = chunk.halves()

    assert [first.count, second.count] == [len(first.request.texts), len(second.request.texts)]
    assert abs(first.count - second.count) <= 1
    assert [first.offset, second.offset] == [0, first.count]
    assert [*first.request.texts, *second.request.texts] == texts
    assert [*first.request.target_prefixes, *second.request.target_prefixes] == [
        text.upper() for text in texts
    ]
    assert first.request.model == second.request.model == "en-de"


def test_only_what_is_refused_for_its_size_is_sent_in_halves() -> None:
    size = CallSize()
    too_many = InvalidRequestError("x", field_violations=(FieldViolation("texts", "too many"),))
    bad_text = InvalidRequestError("x", field_violations=(FieldViolation("texts[3]", "bad"),))
    too_large = InvalidRequestError("x", code=grpc.StatusCode.RESOURCE_EXHAUSTED)

    assert not size.learn(100, bad_text)
    assert not size.learn(1, too_many)
    assert size.takes(1000)
    assert size.learn(100, too_many)
    assert (size.takes(50), size.takes(51)) == (True, False)
    assert size.learn(7, too_large)
    assert (size.takes(4), size.takes(5)) == (True, False)


def test_each_prefix_travels_with_its_text() -> None:
    texts = [f"text {number}" for number in range(300)]
    prefixes = [f"prefix {number}" for number in range(300)]

    chunks = chunks_of(texts, target_prefixes=prefixes)

    assert [len(chunk.request.target_prefixes) for chunk in chunks] == [256, 44]
    assert [prefix for chunk in chunks for prefix in chunk.request.target_prefixes] == prefixes


def test_prefixes_that_are_not_one_for_each_text_are_a_value_error() -> None:
    with pytest.raises(ValueError, match="1 target prefixes for 2 texts"):
        chunks_of(["a", "b"], target_prefixes=["Das"])


FULL = {"source_language": "en", "target_language": "de", "model": "en-de"}
SEARCH = {**FULL, "options": DecodingOptions(beam_size=2), "include_tokens": True, "split": "none"}


@pytest.mark.parametrize(
    ("message", "left_out"),
    [
        (build_stream_request("a", target_prefix="Das", **SEARCH), set()),
        (build_translate_chunks(["a"], target_prefixes=["Das"], **SEARCH)[0].request, set()),
        (build_batch_header(**SEARCH), {"items"}),  # those follow
        (build_score_chunks([("a", "b")], **FULL)[0].request, set()),
    ],
    ids=["stream", "translate", "batch", "score"],
)
def test_every_field_of_the_contract_can_be_asked_for(message: Any, left_out: set[str]) -> None:
    asked = {field.name for field, _ in message.ListFields()}

    assert asked == set(message.DESCRIPTOR.fields_by_name) - left_out


def test_item_of_a_bulk_call_has_every_field_of_the_contract() -> None:
    item = Bulk(ordered=True, max_pending=1).add("a", "Das")

    assert item == v1.BatchItem(id="0", text="a", target_prefix="Das")
    assert {field.name for field, _ in item.ListFields()} == set(v1.BatchItem.DESCRIPTOR.fields_by_name)


def test_plain_messagesays_no_more_than_its_text() -> None:
    [chunk] = chunks_of(["a"])

    assert chunk.request == v1.TranslateTextRequest(texts=["a"], split=v1.TextSplit.TEXT_SPLIT_SENTENCES)


def test_options_are_those_of_the_contract() -> None:
    names = {field.name for field in dataclasses.fields(DecodingOptions)}

    assert names == set(v1.DecodingOptions.DESCRIPTOR.fields_by_name)


def test_unset_option_is_not_sent_and_a_zero_is() -> None:
    [chunk] = chunks_of(["a"], options=DecodingOptions(no_repeat_ngram_size=0))

    assert [field.name for field, _ in chunk.request.options.ListFields()] == ["no_repeat_ngram_size"]


def test_attention_messageholds_the_given_translation_even_when_empty() -> None:
    given = build_attention_request("a", translation="", split=None, **PLAIN)  # type: ignore[arg-type]
    own = build_attention_request("a", translation=None, split="none", **PLAIN)  # type: ignore[arg-type]

    assert given.HasField("translation")
    assert not own.HasField("translation")
    assert own.split == v1.TextSplit.TEXT_SPLIT_NONE


def test_lone_surrogate_is_refused_with_its_place() -> None:
    with pytest.raises(
        InvalidRequestError, match=r"texts\[1\] holds the lone surrogate U\+D83D at position 2"
    ) as caught:
        chunks_of(["fine 🙂", "ab\ud83dcd"])

    assert caught.value.field_violations[0].field == "texts[1]"


@pytest.mark.parametrize("name", ["model", "source_language", "target_language"])
def test_name_that_is_not_text_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="lone surrogate"):
        chunks_of(["a"], **{name: "\udc80"})


def test_unknown_split_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="split is 'paragraphs'; it must be 'sentences' or 'none'"):
        chunks_of(["a"], split="paragraphs")


def test_options_of_another_type_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="options is of type dict; it must be DecodingOptions"):
        chunks_of(["a"], options={"beam_size": 4})


def test_every_field_of_a_selection_travels() -> None:
    selection = AttentionSelection(
        kinds=(AttentionKind.DECODER_SELF, "cross"),
        layers=(1, 0),
        heads=(3,),
        layer_reduction="rollout",
        head_reduction=AttentionReduction.MEAN,
        level="word",
        drop_special_tokens=True,
        weight_type=WeightType.UINT8,
        top_k=4,
    )

    assert set(vars(selection)) == {
        {"tensor_type": "weight_type"}.get(field.name, field.name)
        for field in v1.AttentionSelection.DESCRIPTOR.fields
    }
    assert build_selection(selection) == v1.AttentionSelection(
        kinds=["ATTENTION_KIND_DECODER_SELF", "ATTENTION_KIND_CROSS"],
        layers=[1, 0],
        heads=[3],
        layer_reduction="ATTENTION_REDUCTION_ROLLOUT",
        head_reduction="ATTENTION_REDUCTION_MEAN",
        level="ATTENTION_LEVEL_WORD",
        drop_special_tokens=True,
        tensor_type="TENSOR_TYPE_UINT8",
        top_k=4,
    )
    assert build_selection(AttentionSelection()) == v1.AttentionSelection()


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("kinds", ("crossed",), "'cross', 'encoder-self', 'decoder-self'"),
        ("layer_reduction", "sum", "'mean', 'max', 'rollout'"),
        ("level", "letter", "'piece', 'word'"),
        ("weight_type", "int32", "'float32', 'float16', 'uint8'"),
    ],
)
def test_a_value_that_no_selection_has_is_refused_with_those_it_has(
    field: str, value: object, allowed: str
) -> None:
    with pytest.raises(ValueError, match=f"{field} has .* allowed are {allowed}"):
        build_selection(AttentionSelection(**{field: value}))  # type: ignore[arg-type]
