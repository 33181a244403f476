"""The RPCs: from request to model work and back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import grpc

from dragoman.v1 import (
    DumpAttentionRequest,
    DumpAttentionResponse,
    ListModelsRequest,
    ListModelsResponse,
    TranslateTextRequest,
    TranslateTextResponse,
    TranslationServiceServicer,
)
from dragoman_model.errors import PrefixTooLongError, SentenceTooLongError
from dragoman_model.options import DecodingOptions
from dragoman_model.plan import AttentionOutput, FinishedSentence, FinishReason, Hypothesis
from dragoman_model.translator import PreparedText, TextTranslation, assemble, max_length_of, prepare
from dragoman_server.attention import attended_sentence, attention_responses, blank_response
from dragoman_server.catalogue import Catalogue, ServedModel
from dragoman_server.errors import FieldViolation, InvalidArgumentError, QueueFullError
from dragoman_server.limits import CallLimits
from dragoman_server.logs import current_call
from dragoman_server.messages import limits_message, model_message, translation_message
from dragoman_server.request import Attend, Call, Decode, ModelChoice
from dragoman_server.validation import validate_dump_attention, validate_translate_text

T = TypeVar("T")

# Up to here tokenising takes less than a millisecond or two, about what it costs to hand it to another thread.
_MAX_INLINE_CHARACTERS = 4096

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class TranslationService(TranslationServiceServicer):
    """Serves the models of a catalogue.

    Args:
        catalogue: The served models.
        limits: What one call may hold.
        max_attention_calls: DumpAttention calls served at once, for each model.
    """

    def __init__(self, catalogue: Catalogue, limits: CallLimits, *, max_attention_calls: int = 16) -> None:
        self._catalogue = catalogue
        self._limits = limits
        self._attention_calls = {served.name: _CallLimit(max_attention_calls) for served in catalogue.models}

    async def TranslateText(  # noqa: N802 (as the contract spells it)
        self, request: TranslateTextRequest, context: Context
    ) -> TranslateTextResponse:
        """Translates the request's texts; the whole call succeeds or fails."""
        self._record(request.model, len(request.texts))
        asked = validate_translate_text(request, self._limits)
        served = self._select(asked.model)
        _check_lengths(served, asked.options)
        options = asked.options.with_seed()
        num_texts = sum(1 for text in asked.texts if text.strip())
        num_characters = sum(map(len, (*asked.texts, *asked.target_prefixes)))
        _check_size("texts", num_texts, served)
        with served.engine.hold_room(num_texts):
            prepared = await _off_loop(
                num_characters,
                lambda: _prepare_texts(
                    served, "texts", asked.texts, split=asked.split, target_prefixes=asked.target_prefixes
                ),
            )
        results = await self._decode(served, prepared, options, context)
        translations = await _off_loop(
            num_characters * options.num_hypotheses,
            lambda: [
                translation_message(text, options, include_tokens=asked.include_tokens)
                for text in _assemble_texts(served, prepared, results)
            ],
        )
        served.metrics.count_sentences("blank", sum(1 for text in prepared if not text.source_ids))
        return TranslateTextResponse(
            translations=translations,
            model=served.name,
            model_digest=served.model.digest,
        )

    async def DumpAttention(  # noqa: N802 (as the contract spells it)
        self, request: DumpAttentionRequest, context: Context
    ) -> AsyncIterator[DumpAttentionResponse]:
        """Yields the cross-attention of the text's translation, made now or given, sentence by sentence."""
        self._record(request.model, 1)
        asked = validate_dump_attention(request, self._limits)
        served = self._select(asked.model)
        _check_lengths(served, asked.options)
        options = asked.options.with_seed()
        with self._attention_calls[served.name]:
            with served.engine.hold_room(1 if asked.text.strip() else 0):
                (prepared,) = await _off_loop(
                    len(asked.text), lambda: _prepare_texts(served, "text", [asked.text], split=asked.split)
                )
            if not prepared.source_ids and asked.translation is not None:
                violation = FieldViolation("text", "blank, but a translation of it is given")
                raise InvalidArgumentError(violations=[violation])
            if not prepared.source_ids:
                served.metrics.count_sentences("blank")
                blank = assemble(served.model, prepared, [])
                yield blank_response(served.model, translation_message(blank, options, include_tokens=False))
                return
            if asked.translation is None:
                made = await self._decode(served, [prepared], options, context)
                targets = [sentence.best.token_ids for sentence in made]
            else:
                made = []
                targets = [_given_target(served, asked.translation)]
            for index, target_ids in enumerate(targets):
                # One sentence at a time, so that the weights of a long text never stand in memory together.
                work = Attend(source_ids=prepared.source_ids[index], target_ids=target_ids)
                (output,) = await served.engine.submit(_call([work], served, context))
                assert isinstance(output, AttentionOutput)
                hypotheses = (
                    made[index].hypotheses
                    if made
                    else (Hypothesis(target_ids, output.log_probabilities, FinishReason.EOS),)
                )
                sentence = attended_sentence(
                    served.model, prepared, index, hypotheses, options, output, asked.translation
                )
                for response in attention_responses(served.model, sentence):
                    yield response

    async def ListModels(  # noqa: N802 (as the contract spells it)
        self, request: ListModelsRequest, context: Context
    ) -> ListModelsResponse:
        """Lists the served models, page by page where asked to."""
        current_call.get().model = ""
        models, next_page_token = self._catalogue.page(request.page_size, request.page_token)
        return ListModelsResponse(
            models=[model_message(served.model) for served in models],
            next_page_token=next_page_token,
            limits=limits_message(self._limits),
        )

    async def _decode(
        self,
        served: ServedModel,
        prepared: Sequence[PreparedText],
        options: DecodingOptions,
        context: Context,
    ) -> list[FinishedSentence]:
        """Returns a result for each sentence of all texts, in order."""
        work = [
            decode
            for index, text in enumerate(prepared)
            for decode in _decode_work(served, text, options, f"target_prefixes[{index}]")
        ]
        if not work:
            return []
        results = await served.engine.submit(_call(work, served, context))
        return cast(list[FinishedSentence], list(results))

    def _select(self, choice: ModelChoice) -> ServedModel:
        served = self._catalogue.select(choice)
        current_call.get().model = served.name
        return served

    def _record(self, model: str, num_texts: int) -> None:
        record = current_call.get()
        record.model = self._catalogue.label(model)
        record.num_texts = num_texts


class _CallLimit:
    """Lets so many calls in at once and refuses the others."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._running = 0

    def __enter__(self) -> None:
        if self._running >= self._limit:
            raise QueueFullError(
                f"{self._running} DumpAttention calls are running; at most {self._limit} may"
            )
        self._running += 1

    def __exit__(self, *_: object) -> None:
        self._running -= 1


def _call(work: Sequence[Decode | Attend], served: ServedModel, context: Context) -> Call:
    record = current_call.get()
    remaining = context.time_remaining()
    return Call(
        work=tuple(work),
        arrived=record.arrived,
        deadline=None if remaining is None else served.engine.clock() + remaining,
        request_id=record.request_id,
    )


def _check_size(field: str, count: int, served: ServedModel) -> None:
    """Refuses a call that not even an idle server would take; trying again is of no use, fewer texts are."""
    limit = served.engine.max_queue_size
    if count > limit:
        description = f"too many sentences; at most {limit} in one call, send the text in several"
        raise InvalidArgumentError(violations=[FieldViolation(field, description)])


def _check_lengths(served: ServedModel, options: DecodingOptions) -> None:
    longest = served.model.config.max_target_length - 1
    for name, value in (
        ("max_decoding_length", options.max_length),
        ("min_decoding_length", options.min_length),
    ):
        if value is not None and value > longest:
            description = f"{value} given; the model writes at most {longest} tokens"
            raise InvalidArgumentError(violations=[FieldViolation(f"options.{name}", description)])


def _decode_work(
    served: ServedModel, prepared: PreparedText, options: DecodingOptions, prefix_field: str
) -> list[Decode]:
    work = []
    prefix_ids = prepared.prefix_ids  # the first sentence's
    for source_ids in prepared.source_ids:
        try:
            max_length = max_length_of(served.model.config, options, len(source_ids), len(prefix_ids))
        except PrefixTooLongError as error:
            description = (
                f"{error.length} tokens; with these options at most {error.limit} leave room for more"
            )
            raise InvalidArgumentError(violations=[FieldViolation(prefix_field, description)]) from error
        work.append(
            Decode(source_ids=source_ids, max_length=max_length, options=options, prefix_ids=prefix_ids)
        )
        prefix_ids = ()
    return work


def _given_target(served: ServedModel, translation: str) -> tuple[int, ...]:
    target_ids = tuple(served.model.tokenizer.encode_target(translation))
    limit = served.model.config.max_target_length
    if len(target_ids) > limit:
        description = f"{len(target_ids)} tokens; the model writes at most {limit}, end-of-sentence included"
        raise InvalidArgumentError(violations=[FieldViolation("translation", description)])
    return target_ids


async def _off_loop(num_characters: int, work: Callable[[], T]) -> T:
    """Runs ``work`` here where it is short, and in another thread where it would keep other calls waiting."""
    return work() if num_characters <= _MAX_INLINE_CHARACTERS else await asyncio.to_thread(work)


def _prepare_texts(
    served: ServedModel,
    field: str,
    texts: Sequence[str],
    *,
    split: bool,
    target_prefixes: Sequence[str] = ("",),
) -> list[PreparedText]:
    prepared = []
    num_sentences = 0
    for index, (text, prefix) in enumerate(zip(texts, target_prefixes, strict=True)):
        try:
            prepared.append(prepare(served.model, text, sentences=split, target_prefix=prefix))
        except SentenceTooLongError as error:
            path = f"{field}[{index}]" if field == "texts" else field
            description = (
                f"sentence {error.sentence_index} (from 0) has {error.length} tokens; "
                f"the model reads at most {error.limit}, end-of-sentence included"
            )
            raise InvalidArgumentError(violations=[FieldViolation(path, description)]) from error
        # Each time, so that what follows a text too many is not prepared for nothing.
        num_sentences += len(prepared[-1].source_ids)
        _check_size(field, num_sentences, served)
    return prepared


def _assemble_texts(
    served: ServedModel, prepared: Sequence[PreparedText], results: Sequence[FinishedSentence]
) -> list[TextTranslation]:
    translations = []
    position = 0
    for text in prepared:
        end = position + len(text.source_ids)
        sentences = [sentence.hypotheses for sentence in results[position:end]]
        translations.append(assemble(served.model, text, sentences))
        position = end
    assert position == len(results)
    return translations
