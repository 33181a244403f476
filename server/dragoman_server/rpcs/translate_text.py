"""TranslateText: some texts, whole or nothing."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from dragoman.v1 import TranslateTextRequest, TranslateTextResponse
from dragoman_model.plan import FinishedSentence
from dragoman_model.translation import PreparedText
from dragoman_server.catalogue import ServedModel
from dragoman_server.request import TranslateRequest
from dragoman_server.rpcs.attention_sample import AttentionSample
from dragoman_server.rpcs.work import (
    Backend,
    Context,
    assemble_text,
    assembling_cost,
    check_lengths,
    check_size,
    decode,
    decode_work,
    off_loop,
    prepare_text,
)
from dragoman_server.validation import validate_translate_text


async def translate_text(
    backend: Backend, samples: dict[str, AttentionSample], request: TranslateTextRequest, context: Context
) -> TranslateTextResponse:
    """Returns translations of the request's texts; the whole call succeeds or fails."""
    backend.record(request.model, len(request.texts))
    asked = validate_translate_text(request, backend.limits)
    served = backend.select(asked.model)
    check_lengths(served, asked.options)
    options = asked.options.with_seed()
    num_texts = sum(1 for text in asked.texts if text.strip())
    num_characters = sum(map(len, (*asked.texts, *asked.target_prefixes)))
    check_size("texts", num_texts, served)
    with served.engine.room.hold(num_texts):
        prepared = await off_loop(num_characters, lambda: _prepare_texts(served, asked))
    work = [
        sentence
        for index, text in enumerate(prepared)
        for sentence in decode_work(served, text, options, f"target_prefixes[{index}]", asked.output)
    ]
    results = _by_text(prepared, await decode(served, work, context))
    translations = await off_loop(
        assembling_cost(num_characters, options, asked.output),
        lambda: [
            assemble_text(served, text, sentences, options, asked.output)
            for text, sentences in zip(prepared, results, strict=True)
        ],
    )
    if not asked.output.include_alignments:  # else all have been looked at
        for text, sentences in zip(prepared, results, strict=True):
            samples[served.name].offer(text, sentences)
    served.metrics.count_sentences("blank", sum(1 for text in prepared if not text.source_ids))
    return TranslateTextResponse(
        translations=translations, model=served.name, model_digest=served.model.digest
    )


def _prepare_texts(served: ServedModel, asked: TranslateRequest) -> list[PreparedText]:
    prepared = []
    num_sentences = 0
    for index, (text, prefix) in enumerate(zip(asked.texts, asked.target_prefixes, strict=True)):
        prepared.append(
            prepare_text(served, f"texts[{index}]", text, split=asked.split, target_prefix=prefix)
        )
        # Each time, so that what follows a text too many is not prepared for nothing.
        num_sentences += len(prepared[-1].source_ids)
        check_size("texts", num_sentences, served)
    return prepared


def _by_text(
    prepared: Sequence[PreparedText], results: Sequence[FinishedSentence]
) -> list[Sequence[FinishedSentence]]:
    ends = list(itertools.accumulate(len(text.source_ids) for text in prepared))
    assert ends[-1] == len(results)
    return [results[start:end] for start, end in itertools.pairwise((0, *ends))]
