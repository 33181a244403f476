"""DumpAttention: the attention weights behind one text's translation, made now or given."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator

from dragoman.v1 import DumpAttentionRequest, DumpAttentionResponse
from dragoman_model.coverage import attention_entropy
from dragoman_model.plan import AttentionOutput
from dragoman_model.translation import assemble
from dragoman_server.attention import (
    attended_sentence,
    attention_responses,
    blank_response,
    num_weights,
    select_weights,
)
from dragoman_server.catalogue import ServedModel
from dragoman_server.errors import FieldViolation, InvalidArgumentError
from dragoman_server.messages import translation_message
from dragoman_server.request import Attend
from dragoman_server.rpcs.concurrency import ConcurrentCalls
from dragoman_server.rpcs.work import (
    Backend,
    Context,
    check_lengths,
    check_size,
    decode,
    decode_work,
    given_target,
    given_work,
    new_call,
    off_loop,
    prepare_text,
)
from dragoman_server.selection import check_layers_and_heads
from dragoman_server.validation import validate_dump_attention

# Reducing and writing so many takes a millisecond or two, about what it costs to hand them to another thread.
_MAX_INLINE_WEIGHTS = 100_000


async def dump_attention(
    backend: Backend, calls: dict[str, ConcurrentCalls], request: DumpAttentionRequest, context: Context
) -> AsyncIterator[DumpAttentionResponse]:
    """Yields the attention of the text's translation, sentence by sentence."""
    backend.record(request.model, 1)
    asked = validate_dump_attention(request, backend.limits)
    served = backend.select(asked.model)
    check_lengths(served, asked.options)
    check_layers_and_heads(asked.selection, served.model.config)
    options = asked.options.with_seed()
    with calls[served.name]:
        with served.engine.room.hold(1 if asked.text.strip() else 0):
            prepared = await off_loop(
                len(asked.text), lambda: prepare_text(served, "text", asked.text, split=asked.split)
            )
        check_size("text", len(prepared.source_ids), served)
        if not prepared.source_ids and asked.translation is not None:
            violation = FieldViolation("text", "blank, but a translation of it is given")
            raise InvalidArgumentError(violations=[violation])
        if not prepared.source_ids:
            served.metrics.count_sentences("blank")
            blank = assemble(served.model, prepared, [])
            yield blank_response(served.model, translation_message(blank, options, include_tokens=False))
            return
        if asked.translation is None:
            decodes = decode_work(served, prepared, options, "target_prefix")
        else:
            target_ids = given_target(served, "translation", asked.translation)
            decodes = [given_work(prepared.source_ids[0], target_ids)]
        for index, made in enumerate(await decode(served, decodes, context)):
            # One sentence at a time, so that the weights of a long text never stand in memory together.
            work = Attend(
                source_ids=prepared.source_ids[index],
                target_ids=made.best.token_ids,
                kinds=asked.selection.needed_kinds,
            )
            output = await _attend(served, work, context)
            sentence = attended_sentence(
                served.model, prepared, index, made.hypotheses, options, output, asked.translation
            )
            if asked.translation is None:
                served.metrics.count_warnings(sentence.warnings)
                served.metrics.cross_attention_entropy_nats.observe(attention_entropy(output.cross_mean))
            select = functools.partial(select_weights, served.model, sentence, asked.selection)
            is_small = num_weights(output) <= _MAX_INLINE_WEIGHTS
            selected = select() if is_small else await asyncio.to_thread(select)
            for response in attention_responses(served.model, sentence, selected):
                yield response


async def _attend(served: ServedModel, work: Attend, context: Context) -> AttentionOutput:
    (output,) = await served.engine.submit(new_call([work], served, context))
    assert isinstance(output, AttentionOutput)
    return output
