"""Warnings about translations, on the real server."""

from __future__ import annotations

import math
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dragoman.v1 import (
    StreamTranslateTextRequest,
    TranslateBatchRequest,
    TranslateTextRequest,
    Translation,
    WarningKind,
)
from dragoman_model.batch import RunningBatch
from dragoman_model.checkpoint import LoadedModel
from dragoman_model.plan import BatchOutput, Plan
from tests.integration.dumps import dump
from tests.integration.servers import SENTENCES, RunningServer, serving, until

SHORT = {"max_decoding_length": 12}
LOOP = "Die die die"  # what a translation is made to start with


def repetition(translation: Translation) -> tuple[str, float]:
    """Returns what a translation's only warning of its kind is about."""
    kind = WarningKind.WARNING_KIND_REPETITION
    (warning,) = [warning for warning in translation.warnings if warning.kind == kind]
    assert not warning.HasField("source")
    return translation.text[warning.target.start : warning.target.end], warning.value


async def unary(server: RunningServer, text: str, prefix: str = "") -> list[Translation]:
    request = TranslateTextRequest(texts=[text], target_prefixes=[prefix], options=SHORT)
    return list((await server.stub.TranslateText(request, timeout=20)).translations)


async def streamed(server: RunningServer, text: str, prefix: str = "") -> list[Translation]:
    request = StreamTranslateTextRequest(text=text, target_prefix=prefix, options=SHORT)
    responses = [response async for response in server.stub.StreamTranslateText(request, timeout=20)]
    return list(responses[-1].result.translations)


async def bulk(server: RunningServer, text: str, prefix: str = "") -> list[Translation]:
    item = {"id": "1", "text": text, "target_prefix": prefix}
    requests = iter([TranslateBatchRequest(items=[item], options=SHORT)])
    responses = [response async for response in server.stub.TranslateBatch(requests, timeout=20)]
    return [result.translation for response in responses for result in response.results]


async def translations(server: RunningServer, text: str, prefix: str) -> list[Translation]:
    """Returns the translation of a text as each RPC that translates makes it."""
    return [translation for rpc in (unary, streamed, bulk) for translation in await rpc(server, text, prefix)]


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


# Source words that a random model's translation of this length can hardly look at all of.
LONG = "He sings in the garden and reads the red book by the house with the 12 trees where we see you."


async def translate(server: RunningServer, **fields: Any) -> Translation:
    response = await server.stub.TranslateText(
        TranslateTextRequest(texts=[LONG], options={"max_decoding_length": 1}, **fields)
    )
    (translation,) = response.translations
    return translation


def uncovered(translation: Translation) -> list[tuple[int, int]]:
    kind = WarningKind.WARNING_KIND_UNCOVERED_SOURCE
    return [(w.source.start, w.source.end) for w in translation.warnings if w.kind == kind]


async def test_uncovered_source_is_told_of_where_attention_was_asked_for(server: RunningServer):
    plain = await translate(server)
    linked = await translate(server, output={"include_alignments": True})
    (dumped,) = await dump(server, text=LONG, options={"max_decoding_length": 1})

    assert uncovered(linked) == uncovered(dumped.header.translation) == [(0, len(LONG))]
    assert uncovered(plain) == []
    assert [w for w in linked.warnings if not w.HasField("source")] == list(plain.warnings)
    assert linked.text == plain.text == dumped.header.translation.text
    assert linked.score == plain.score


async def until_all_is_looked_at(server: RunningServer) -> None:
    (sample,) = server.app.service._samples.values()
    await until(lambda: sample._looking is None)


@pytest.mark.parametrize("share", [0.0, 1.0])
async def test_sample_for_the_metrics_changes_no_answer(model: LoadedModel, share: float):
    async with serving(model) as server:
        expected = [*await translations(server, SENTENCES[0], ""), await translate(server)]
    async with serving(model, attention_sample_share=share) as server:
        made = [*await translations(server, SENTENCES[0], ""), await translate(server)]
        await until_all_is_looked_at(server)
        looked_at = server.value("dragoman_cross_attention_entropy_nats_count", model="en-de")
        entropies = server.value("dragoman_cross_attention_entropy_nats_sum", model="en-de")
        warned = server.value("dragoman_warnings_total", model="en-de", kind="uncovered_source")

    assert made == expected
    assert looked_at == 4 * share
    assert 0 <= entropies <= looked_at * math.log(256)
    assert bool(warned) == bool(share)


@pytest.mark.parametrize("rpc", [unary, streamed, bulk])
async def test_a_call_is_answered_before_its_attention_is_looked_at_for_the_metrics(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch, rpc: Callable[..., Awaitable[list[Translation]]]
):
    run, is_answered = RunningBatch.run, threading.Event()

    def look_only_after_the_answer(batch: RunningBatch, plan: Plan) -> BatchOutput:
        assert not plan.attend or is_answered.wait(30)  # longer than the call has
        return run(batch, plan)

    monkeypatch.setattr(RunningBatch, "run", look_only_after_the_answer)
    async with serving(model, attention_sample_share=1.0) as server:
        (translation,) = await rpc(server, SENTENCES[0])
        assert translation.text
        assert server.value("dragoman_cross_attention_entropy_nats_count", model="en-de") == 0
        is_answered.set()
        await until_all_is_looked_at(server)
        assert server.value("dragoman_cross_attention_entropy_nats_count", model="en-de") == 1


async def test_given_translation_is_no_part_of_the_metrics(server: RunningServer):
    await dump(server, text=LONG, translation="Er singt.")
    assert server.value("dragoman_cross_attention_entropy_nats_count", model="en-de") == 0
    await dump(server, text=LONG)
    assert server.value("dragoman_cross_attention_entropy_nats_count", model="en-de") == 1
