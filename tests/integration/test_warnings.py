"""Warnings about translations, on the real server."""

from __future__ import annotations

import pytest

from dragoman.v1 import (
    StreamTranslateTextRequest,
    TranslateBatchRequest,
    TranslateTextRequest,
    Translation,
    WarningKind,
)
from tests.integration.dumps import dump
from tests.integration.servers import RunningServer

SHORT = {"max_decoding_length": 12}
LOOP = "Die die die"  # what a translation is made to start with


def repetition(translation: Translation) -> tuple[str, float]:
    """Returns what a translation's only warning of its kind is about."""
    kind = WarningKind.WARNING_KIND_REPETITION
    (warning,) = [warning for warning in translation.warnings if warning.kind == kind]
    assert not warning.HasField("source")
    return translation.text[warning.target.start : warning.target.end], warning.value


async def translations(server: RunningServer, text: str, prefix: str) -> list[Translation]:
    """Returns the translation of a text as each RPC that translates makes it."""
    unary = await server.stub.TranslateText(
        TranslateTextRequest(texts=[text], target_prefixes=[prefix], options=SHORT)
    )
    streamed = [
        response
        async for response in server.stub.StreamTranslateText(
            StreamTranslateTextRequest(text=text, target_prefix=prefix, options=SHORT)
        )
    ]
    item = {"id": "1", "text": text, "target_prefix": prefix}
    bulk = [
        response
        async for response in server.stub.TranslateBatch(
            iter([TranslateBatchRequest(items=[item], options=SHORT)])
        )
    ]
    return [
        *unary.translations,
        *streamed[-1].result.translations,
        *(result.translation for response in bulk for result in response.results),
    ]


@pytest.mark.parametrize("text", ["I am here.", "  I am here."])
async def test_every_translation_that_repeats_itself_says_so(server: RunningServer, text: str):
    before = server.value("dragoman_warnings_total", model="en-de", kind="repetition")

    made = await translations(server, text, LOOP)

    assert len(made) == 3
    for translation in made:
        looped, times = repetition(translation)
        assert looped.split() == ["die"] * int(times)
    after = server.value("dragoman_warnings_total", model="en-de", kind="repetition")
    assert after - before == 3


async def test_blank_text_has_no_warning(server: RunningServer):
    assert [list(translation.warnings) for translation in await translations(server, " \n", "")] == [[]] * 3


async def test_given_translation_is_warned_of_in_the_text_as_it_was_sent(server: RunningServer):
    text = "  The cat sleeps on it."

    (sentence,) = await dump(server, text=text, translation="  The cat sleeps on it")

    (copy,) = [w for w in sentence.header.translation.warnings if w.kind == WarningKind.WARNING_KIND_COPY]
    assert text[copy.source.start : copy.source.end] == "The cat sleeps on it"
    assert sentence.header.translation.text[copy.target.start : copy.target.end] == "The cat sleeps on it"
    assert copy.value == 1
    assert server.value("dragoman_warnings_total", model="en-de", kind="copy") == 0
