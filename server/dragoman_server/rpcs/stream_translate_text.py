"""StreamTranslateText: one text's translation, sent as it grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import cast

from dragoman.v1 import (
    StreamTranslateTextRequest,
    StreamTranslateTextResponse,
    TextDelta,
    TranslateTextResponse,
)
from dragoman_model.plan import FinishedSentence
from dragoman_model.streaming import GrowingText
from dragoman_model.translation import PreparedText
from dragoman_server.catalogue import ServedModel
from dragoman_server.request import Call
from dragoman_server.rpcs.attention_sample import AttentionSample
from dragoman_server.rpcs.work import (
    Backend,
    Context,
    assemble_text,
    assembling_cost,
    check_lengths,
    check_size,
    decode_work,
    new_call,
    off_loop,
    prepare_text,
)
from dragoman_server.sentences import SentenceProgress
from dragoman_server.validation import validate_stream_translate_text


async def stream_translate_text(
    backend: Backend,
    samples: dict[str, AttentionSample],
    request: StreamTranslateTextRequest,
    context: Context,
) -> AsyncIterator[StreamTranslateTextResponse]:
    """Yields what is sure of the translation as soon as it is, and last the whole translation."""
    backend.record(request.model, 1)
    asked = validate_stream_translate_text(request, backend.limits)
    served = backend.select(asked.model)
    check_lengths(served, asked.options)
    options = asked.options.with_seed()
    num_characters = len(asked.text) + len(asked.target_prefix)
    with served.engine.room.hold(1 if asked.text.strip() else 0):
        prepared = await off_loop(
            num_characters,
            lambda: prepare_text(
                served, "text", asked.text, split=asked.split, target_prefix=asked.target_prefix
            ),
        )
    check_size("text", len(prepared.source_ids), served)
    work = decode_work(served, prepared, options, "target_prefix", asked.output)
    decoding = _Decoding(served, prepared, new_call(work, served, context, reports_progress=True))
    num_sent = 0
    async with aclosing(decoding.deltas()) as deltas:
        async for delta in deltas:
            num_sent += len(delta)
            yield StreamTranslateTextResponse(delta=TextDelta(text=delta))
    translation = await off_loop(
        assembling_cost(num_characters, options, asked.output),
        lambda: assemble_text(served, prepared, decoding.results, options, asked.output),
    )
    assert num_sent == len(translation.text)
    if not asked.output.include_alignments:  # else it has been looked at
        samples[served.name].offer(prepared, decoding.results)
    result = TranslateTextResponse(
        translations=[translation], model=served.name, model_digest=served.model.digest
    )
    yield StreamTranslateTextResponse(result=result)


class _Decoding:
    """The engine's work on one text.

    Attributes:
        results: One for each sentence, once there are no more deltas.
    """

    def __init__(self, served: ServedModel, prepared: PreparedText, call: Call) -> None:
        self.results: list[FinishedSentence] = []
        self._served = served
        self._call = call
        self._text = GrowingText(served.model.tokenizer, prepared.split)
        self._changed = asyncio.Event()

    async def deltas(self) -> AsyncGenerator[str, None]:
        """Yields what follows the text so far; who takes them slowly gets fewer and longer ones."""
        if not self._call.work:  # a blank text, which is all separator
            self._served.metrics.count_sentences("blank")
            if blank := self._text.take():
                yield blank
            return
        running = asyncio.create_task(self._served.engine.submit(self._call, self._take_progress))
        running.add_done_callback(lambda _: self._changed.set())
        try:
            while not running.done():
                await self._changed.wait()
                self._changed.clear()
                if delta := self._text.take():
                    yield delta
            self.results = cast(list[FinishedSentence], list(await running))
            if delta := self._text.take():
                yield delta
        finally:
            running.cancel()

    def _take_progress(self, progress: SentenceProgress) -> None:
        self._text.advance(progress.index, progress.token_ids, is_complete=progress.is_complete)
        self._changed.set()
