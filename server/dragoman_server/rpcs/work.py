"""From valid requests to the engine's work and back to texts: what several RPCs share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar, cast

import grpc

from dragoman.v1 import Translation
from dragoman_model.alignment import aligning_heads, link_text
from dragoman_model.coverage import attention_entropy, uncovered_text
from dragoman_model.errors import PrefixTooLongError, SentenceTooLongError
from dragoman_model.lengths import max_length_of
from dragoman_model.options import DecodingOptions
from dragoman_model.plan import FinishedSentence
from dragoman_model.quality import QualityWarning
from dragoman_model.translation import PreparedText, assemble, prepare
from dragoman_server.catalogue import Catalogue, ServedModel
from dragoman_server.errors import FieldViolation, InvalidArgumentError
from dragoman_server.limits import CallLimits
from dragoman_server.logs import current_call
from dragoman_server.messages import translation_message
from dragoman_server.request import Call, Decode, ModelChoice, OutputChoice, Work

T = TypeVar("T")

# Up to here tokenising takes less than a millisecond or two, about what it costs to hand it to another thread.
_MAX_INLINE_CHARACTERS = 4096
# Linking a sentence's words takes so many times as long as decoding its tokens.
_LINKING_COST = 16

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True)
class Backend:
    """What every RPC works with.

    Attributes:
        catalogue: The served models.
        limits: What one call may hold.
        draining: Set once the server shuts down.
    """

    catalogue: Catalogue
    limits: CallLimits
    draining: asyncio.Event = field(default_factory=asyncio.Event)

    def record(self, model: str, num_texts: int) -> None:
        """Notes for the log what the present call asks for, before anything is checked."""
        record = current_call.get()
        record.model = self.catalogue.label(model)
        record.num_texts = num_texts

    def select(self, choice: ModelChoice) -> ServedModel:
        """Returns the model that the present call asks for.

        Raises:
            NotFoundError: There is none.
            EngineHungError: Its engine stands still. A call that was let in before waits for it.
            EngineGoneError: Its engine is gone, and the calls that were let in before have failed.
        """
        served = self.catalogue.select(choice)
        current_call.get().model = served.name
        outage = served.find_outage()
        if outage is not None:
            raise outage
        return served


def new_call(
    work: Sequence[Work],
    served: ServedModel,
    context: Context,
    *,
    stream: int | None = None,
    reports_progress: bool = False,
) -> Call:
    """Returns the present call's work with its deadline.

    Args:
        work: Its sentences.
        served: The model.
        context: gRPC's, of the call.
        stream: Names the bulk stream that this is an item of, which arrives only now.
        reports_progress: What is sure is said while the translations are written.
    """
    record = current_call.get()
    remaining = context.time_remaining()
    return Call(
        work=tuple(work),
        arrived=record.arrived if stream is None else served.engine.clock(),
        stream=stream,
        reports_progress=reports_progress,
        deadline=None if remaining is None else served.engine.clock() + remaining,
        request_id=record.request_id,
    )


def check_size(field: str, count: int, served: ServedModel) -> None:
    """Refuses a call that not even an idle server would take; trying again is of no use, fewer texts are.

    Raises:
        InvalidArgumentError: ``count`` sentences are more than the queue holds.
    """
    limit = served.engine.room.max_queue_size
    if count > limit:
        description = f"too many sentences; at most {limit} in one call, send the text in several"
        raise InvalidArgumentError(violations=[FieldViolation(field, description)])


def check_lengths(served: ServedModel, options: DecodingOptions) -> None:
    """Refuses options that ask for longer translations than the model writes.

    Raises:
        InvalidArgumentError: The least or the greatest length is above the model's limit.
    """
    longest = served.model.config.max_target_length - 1
    for name, value in (
        ("max_decoding_length", options.max_length),
        ("min_decoding_length", options.min_length),
    ):
        if value is not None and value > longest:
            description = f"{value} given; the model writes at most {longest} tokens"
            raise InvalidArgumentError(violations=[FieldViolation(f"options.{name}", description)])


async def off_loop(num_characters: int, work: Callable[[], T]) -> T:
    """Runs ``work`` here where it is short, and in another thread where it would keep other calls waiting."""
    return work() if num_characters <= _MAX_INLINE_CHARACTERS else await asyncio.to_thread(work)


def prepare_text(
    served: ServedModel, field: str, text: str, *, split: bool, target_prefix: str = ""
) -> PreparedText:
    """Returns a text ready to be decoded.

    Args:
        served: The model.
        field: Path of the request's field that holds the text.
        text: The text.
        split: Cuts it into sentences.
        target_prefix: What its translation starts with.

    Raises:
        InvalidArgumentError: A sentence is above the model's limit.
    """
    try:
        return prepare(served.model, text, sentences=split, target_prefix=target_prefix)
    except SentenceTooLongError as error:
        description = (
            f"sentence {error.sentence_index} (from 0) has {error.length} tokens; "
            f"the model reads at most {error.limit}, end-of-sentence included"
        )
        raise InvalidArgumentError(violations=[FieldViolation(field, description)]) from error


def decode_work(
    served: ServedModel,
    prepared: PreparedText,
    options: DecodingOptions,
    prefix_field: str,
    output: OutputChoice | None = None,
) -> list[Decode]:
    """Returns the work for each sentence of a text.

    Args:
        served: The model.
        prepared: The text.
        options: How to search.
        prefix_field: Path of the request's field that holds the text's target prefix.
        output: What is wanted beside the text; None is nothing.

    Raises:
        InvalidArgumentError: The prefix leaves no room for a translation.
    """
    work = []
    is_looked_at = output is not None and output.include_alignments
    heads = aligning_heads(served.model.config) if is_looked_at else ()
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
            Decode(
                source_ids=source_ids,
                max_length=max_length,
                options=options,
                prefix_ids=prefix_ids,
                attention_heads=heads,
                numbers=served.model.tokenizer.numbers(source_ids) if options.keep_numbers else None,
            )
        )
        prefix_ids = ()
    return work


async def decode(served: ServedModel, work: Sequence[Decode], context: Context) -> list[FinishedSentence]:
    """Returns a result for each sentence, in order."""
    if not work:
        return []
    results = await served.engine.submit(new_call(work, served, context))
    return cast(list[FinishedSentence], list(results))


def assemble_text(
    served: ServedModel,
    prepared: PreparedText,
    results: Sequence[FinishedSentence],
    options: DecodingOptions,
    output: OutputChoice,
) -> Translation:
    """Returns the message of a text's translation from its sentences' results; what it warns of is counted."""
    hypotheses = [sentence.hypotheses for sentence in results]
    # Without tokens it takes a tenth of the time.
    translation = assemble(served.model, prepared, hypotheses, with_tokens=output.include_tokens)
    served.metrics.count_warnings(translation.warnings)
    links = []
    if results and output.include_alignments:
        uncovered = look_at_text(served, prepared, results)
        translation = replace(translation, warnings=(*translation.warnings, *uncovered))
        links = link_text(served.model, prepared, results, output.alignment_method)
    return translation_message(translation, options, include_tokens=output.include_tokens, word_links=links)


def look_at_text(
    served: ServedModel, prepared: PreparedText, results: Sequence[FinishedSentence]
) -> list[QualityWarning]:
    """Returns what a text's attention warns of; that is counted, and how spread it was."""
    for result in results:
        assert result.attention is not None
        served.metrics.cross_attention_entropy_nats.observe(attention_entropy(result.attention.cross_mean))
    uncovered = uncovered_text(served.model, prepared, results)
    served.metrics.count_warnings(uncovered)
    return uncovered


def assembling_cost(num_characters: int, options: DecodingOptions, output: OutputChoice) -> int:
    """Returns the characters whose tokenising takes about as long as assembling translations of so many, for `off_loop`."""
    return num_characters * (options.num_hypotheses + (_LINKING_COST if output.include_alignments else 0))


def given_target(served: ServedModel, field: str, translation: str) -> tuple[int, ...]:
    """Returns the tokens of a translation that the caller gives, end-of-sentence last.

    Raises:
        InvalidArgumentError: There are more than the model writes; ``field`` is the request's field at fault.
    """
    target_ids = tuple(served.model.tokenizer.encode_target(translation))
    check_target_length(served, field, len(target_ids))
    return target_ids


def check_target_length(served: ServedModel, field: str, length: int) -> None:
    """Refuses a given translation of more tokens than the model writes.

    Raises:
        InvalidArgumentError: It is; ``field`` is the request's field at fault.
    """
    limit = served.model.config.max_target_length
    if length > limit:
        description = f"{length} tokens; the model writes at most {limit}, end-of-sentence included"
        raise InvalidArgumentError(violations=[FieldViolation(field, description)])


def given_work(source_ids: tuple[int, ...], target_ids: tuple[int, ...]) -> Decode:
    """Returns the work of scoring a given translation: to end-of-sentence, or where its tokens lack that, to where it was cut."""
    return Decode(source_ids=source_ids, max_length=len(target_ids), prefix_ids=target_ids, is_given=True)
