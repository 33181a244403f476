"""Word links of every translate call, on the real server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dragoman.v1 import (
    AlignmentMethod,
    StreamTranslateTextRequest,
    TextSpan,
    TranslateBatchRequest,
    TranslateTextRequest,
    Translation,
)
from tests.integration.servers import SENTENCES, RunningServer
from tests.integration.spans import TEXTS, assert_in_order, seen, visible

MODEL = {"model": "en-de"}
LINKED = {"include_alignments": True}
TEXT = "  A girl is reading a book. He sings!\n\nWhere is the ½ red house?"


async def translate(server: RunningServer, *texts: str, **fields: Any) -> list[Translation]:
    response = await server.stub.TranslateText(TranslateTextRequest(texts=texts, **fields))
    return list(response.translations)


def ranges(spans: Sequence[TextSpan]) -> list[tuple[int, int]]:
    return [(span.start, span.end) for span in spans]


def assert_whole_words(spans: Sequence[tuple[int, int]], text: str) -> None:
    """No span begins or ends within a word, or holds none."""
    for start, end in spans:
        assert 0 <= start < end <= len(text)
        assert not text[start].isspace()
        assert start == 0 or text[start - 1].isspace()
        assert end == len(text) or text[end].isspace()


def said(translation: Translation) -> tuple[Any, ...]:
    """Returns all of a translation but its links; numbers to as many digits as hold in any company in the batch."""
    return (
        translation.text,
        translation.finish_reason,
        pytest.approx(translation.score, abs=1e-4),
        translation.source_token_count,
        [token.piece for token in translation.tokens],
        [alternative.text for alternative in translation.alternatives],
        translation.seed,
    )


def linked_words(translation: Translation) -> list[tuple[Any, ...]]:
    return [
        (ranges([link.target]), ranges([link.source]), pytest.approx(link.probability, abs=1e-4))
        for link in translation.word_links
    ]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_links_stand_at_words_of_the_text_as_sent_and_of_the_translation_as_returned(
    server: RunningServer, text: str
):
    (translation,) = await translate(server, text, output=LINKED)
    targets = ranges([link.target for link in translation.word_links])
    assert_in_order(targets, len(translation.text))
    assert_whole_words(targets, translation.text)
    assert seen(translation.text, targets) == visible(translation.text)
    sources = ranges([link.source for link in translation.word_links if link.HasField("source")])
    assert_whole_words(sources, text)
    assert all(0 <= link.probability <= 1 for link in translation.word_links)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam_size": 4, "num_hypotheses": 3},
        {"sampling_topk": 0, "num_hypotheses": 2, "seed": 5},
        {"max_decoding_length": 3},
    ],
)
async def test_asking_for_links_changes_nothing_else(server: RunningServer, options: dict[str, Any]):
    output = {"include_tokens": True}
    plain = await translate(server, TEXT, *SENTENCES, options=options, output=output)
    linked = await translate(server, TEXT, *SENTENCES, options=options, output={**output, **LINKED})
    assert list(map(said, linked)) == list(map(said, plain))
    assert all(translation.word_links for translation in linked)
    assert not any(translation.word_links for translation in plain)


async def test_links_of_a_sentence_are_the_same_wherever_it_stands(server: RunningServer):
    (alone,) = await translate(server, SENTENCES[0], output=LINKED)
    (second,) = await translate(server, f"{SENTENCES[1]}  {SENTENCES[0]}", output=LINKED)
    moved = list(second.word_links)[-len(alone.word_links) :]
    source, target = len(SENTENCES[1]) + 2, len(second.text) - len(alone.text)
    for link, other in zip(alone.word_links, moved, strict=True):
        assert (other.target.start, other.target.end) == (
            link.target.start + target,
            link.target.end + target,
        )
        assert other.HasField("source") == link.HasField("source")
        if link.HasField("source"):
            assert (other.source.start, other.source.end) == (
                link.source.start + source,
                link.source.end + source,
            )
        assert other.probability == pytest.approx(link.probability, abs=1e-5)


@pytest.mark.parametrize("method", [0, *AlignmentMethod.values()[1:]])
async def test_all_calls_link_alike(server: RunningServer, method: AlignmentMethod):
    output = {**LINKED, "alignment_method": method}
    (unary,) = await translate(server, TEXT, output=output)
    streamed = [
        response.result.translations[0]
        async for response in server.stub.StreamTranslateText(
            StreamTranslateTextRequest(text=TEXT, output=output)
        )
        if response.HasField("result")
    ]
    header = TranslateBatchRequest(
        items=[{"id": "1", "text": TEXT}, {"id": "2", "text": " "}], **MODEL, output=output
    )
    bulk = {
        result.id: result.translation
        async for response in server.stub.TranslateBatch(iter([header]))
        for result in response.results
    }
    for other in (*streamed, bulk["1"]):
        assert said(other) == said(unary)
        assert linked_words(other) == linked_words(unary)
    assert not bulk["2"].word_links


async def test_the_methods_read_different_rows(server: RunningServer):
    default, naive, shifted = [
        (await translate(server, TEXT, output={**LINKED, "alignment_method": method}))[0].word_links
        for method in AlignmentMethod.values()
    ]
    assert default == naive  # of a model that names no method
    assert [link.target for link in shifted] == [link.target for link in naive]
    assert list(shifted) != list(naive)


async def test_a_blank_text_has_no_links(server: RunningServer):
    (blank,) = await translate(server, " \n", output=LINKED)
    assert blank == Translation(text=" \n", finish_reason=3)


async def test_a_large_call_is_linked_off_the_event_loop_and_alike(server: RunningServer):
    texts = [f"{sentence} {index}" for index in range(30) for sentence in SENTENCES]
    many = await translate(server, *texts, output=LINKED)
    (one,) = await translate(server, texts[0], output=LINKED)
    assert [link.target for link in many[0].word_links] == [link.target for link in one.word_links]
    assert all(translation.word_links for translation in many)
