"""Spans of DumpAttention count code points of the text as the caller sent it, whatever is in it."""

from __future__ import annotations

import pytest

from dragoman.v1 import AttentionUnit
from tests.integration.dumps import dump
from tests.integration.servers import RunningServer
from tests.integration.spans import TEXTS, assert_in_order, seen, visible


def ranges(units: list[AttentionUnit]) -> list[tuple[int, int]]:
    return [(unit.span.start, unit.span.end) for unit in units if not unit.special]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_source_spans_cover_every_visible_character_of_the_text_as_sent(
    server: RunningServer, text: str
):
    for level in ("ATTENTION_LEVEL_PIECE", "ATTENTION_LEVEL_WORD"):
        found = await dump(server, text=text, selection={"level": level})
        spans = [span for one in found for span in ranges(list(one.header.source_units))]
        assert_in_order(spans, len(text))
        assert seen(text, spans) == visible(text)
        assert all(
            unit.special == (not unit.HasField("span")) for one in found for unit in one.header.source_units
        )
        assert all(one.header.source_units[-1].special for one in found)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_a_word_is_named_as_it_stands_in_the_text(server: RunningServer, text: str):
    found = await dump(
        server, text=text, selection={"level": "ATTENTION_LEVEL_WORD", "drop_special_tokens": True}
    )
    units = [unit for one in found for unit in one.header.source_units]
    words = [text[unit.span.start : unit.span.end] for unit in units]
    assert [unit.text for unit in units] == [" ".join(word.split()) for word in words]
    assert "".join(map(visible, words)) == visible(text)


@pytest.mark.parametrize("given", TEXTS.values(), ids=TEXTS)
async def test_target_and_input_spans_count_in_the_translation_as_given(server: RunningServer, given: str):
    (found,) = await dump(server, text="He sings!", translation=given)
    header = found.header
    assert header.translation.text == given
    spans = ranges(list(header.target_units))
    assert_in_order(spans, len(given))
    assert seen(given, spans) == visible(given)
    assert list(header.input_units[1:]) == list(header.target_units[:-1])


async def test_one_character_of_several_pieces_is_whole_in_each_of_them(server: RunningServer):
    text = "He sings 😀 ½"
    (found,) = await dump(server, text=text)
    for character in "😀½":
        place = text.index(character)
        pieces = [
            unit.text
            for unit in found.header.source_units
            if (unit.span.start, unit.span.end) == (place, place + 1)
        ]
        assert len(pieces) > 1


async def test_spans_of_a_later_sentence_start_where_it_stands(server: RunningServer):
    text = "½ 😀! Ｔhe  cat.\n\nA e\u0301 b."
    found = await dump(
        server, text=text, selection={"level": "ATTENTION_LEVEL_WORD", "drop_special_tokens": True}
    )
    words = [[text[start:end] for start, end in ranges(list(one.header.source_units))] for one in found]
    assert words[-1] == ["A", "e\u0301", "b."]
    assert [word for sentence in words for word in sentence] == text.split()
