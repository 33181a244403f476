import dataclasses

import pytest

from dragoman import v1
from dragoman_client import DecodingOptions, InvalidRequestError, Split
from dragoman_client.requests import (
    MAX_CHARACTERS_PER_CALL,
    MAX_TEXTS_PER_CALL,
    TranslateChunk,
    build_attention_request,
    build_translate_chunks,
)

PLAIN = {"source_language": None, "target_language": None, "model": None, "options": None}


def chunks_of(texts: list[str], **changes: object) -> list[TranslateChunk]:
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

    [(request, _)] = chunks_of(
        ["a"],
        source_language="en",
        target_language="de",
        model="en-de",
        options=options,
        include_tokens=True,
        split=Split.NONE,
    )

    assert request == v1.TranslateTextRequest(
        texts=["a"],
        source_language_code="en",
        target_language_code="de",
        model="en-de",
        options=v1.DecodingOptions(beam_size=4, length_penalty=0.0, seed=7),
        output=v1.OutputOptions(include_tokens=True),
        split=v1.TextSplit.TEXT_SPLIT_NONE,
    )


def test_each_prefix_travels_with_its_text() -> None:
    texts = [f"text {number}" for number in range(300)]
    prefixes = [f"prefix {number}" for number in range(300)]

    chunks = chunks_of(texts, target_prefixes=prefixes)

    assert [len(chunk.request.target_prefixes) for chunk in chunks] == [256, 44]
    assert [prefix for chunk in chunks for prefix in chunk.request.target_prefixes] == prefixes


def test_prefixes_that_are_not_one_for_each_text_are_a_value_error() -> None:
    with pytest.raises(ValueError, match="1 target prefixes for 2 texts"):
        chunks_of(["a", "b"], target_prefixes=["Das"])


def test_plain_request_says_no_more_than_its_text() -> None:
    [(request, _)] = chunks_of(["a"])

    assert request == v1.TranslateTextRequest(texts=["a"], split=v1.TextSplit.TEXT_SPLIT_SENTENCES)


def test_options_are_those_of_the_contract() -> None:
    names = {field.name for field in dataclasses.fields(DecodingOptions)}

    assert names == set(v1.DecodingOptions.DESCRIPTOR.fields_by_name)


def test_unset_option_is_not_sent_and_a_zero_is() -> None:
    [(request, _)] = chunks_of(["a"], options=DecodingOptions(no_repeat_ngram_size=0))

    assert [field.name for field, _ in request.options.ListFields()] == ["no_repeat_ngram_size"]


def test_attention_request_holds_the_given_translation_even_when_empty() -> None:
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
