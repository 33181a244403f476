"""The stream of DumpAttention: for each sentence a header, then its tensor in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dragoman.v1 import (
    AttentionHeader,
    AttentionKind,
    AttentionUnit,
    DumpAttentionResponse,
    TensorChunk,
    TensorInfo,
    TensorType,
    Translation,
)
from dragoman_model.checkpoint import LoadedModel
from dragoman_model.options import DecodingOptions
from dragoman_model.plan import AttentionOutput, Hypothesis
from dragoman_model.text import Sentence, SplitText
from dragoman_model.tokenizer import Piece
from dragoman_model.translator import PreparedText, assemble
from dragoman_server.messages import span_message, translation_message

# Under 1 MiB with the message around it, and a whole number of float32 weights.
CHUNK_BYTES = 960 * 1024


@dataclass(frozen=True, kw_only=True)
class AttendedSentence:
    """A sentence, its translation and what the decoder looked at.

    Attributes:
        index: Which sentence of the text, from 0.
        count: Sentences of the text.
        start: Where it begins in the text, in code points.
        source_pieces: Its tokens, end-of-sentence last.
        target_pieces: The tokens of its translation; spans are into the translation.
        translation: As returned in the header.
        output: The weights.
    """

    index: int
    count: int
    start: int
    source_pieces: Sequence[Piece]
    target_pieces: Sequence[Piece]
    translation: Translation
    output: AttentionOutput


def attended_sentence(
    model: LoadedModel,
    prepared: PreparedText,
    index: int,
    hypotheses: Sequence[Hypothesis],
    options: DecodingOptions,
    output: AttentionOutput,
    given: str | None,
) -> AttendedSentence:
    """Returns one sentence of a text with its translation and weights.

    Args:
        model: The model that translated.
        prepared: The text.
        index: Which of its sentences, from 0.
        hypotheses: The sentence's translations as tokens, best first; the weights are the first one's.
        options: How they were searched for.
        output: The weights.
        given: The translation as the caller gave it, if so; it is echoed as it came.
    """
    sentence = prepared.split.sentences[index]
    alone = PreparedText(
        text=sentence.text,
        split=SplitText((Sentence(sentence.text, 0),), ("", "")),
        source_ids=(prepared.source_ids[index],),
    )
    translation = translation_message(assemble(model, alone, [hypotheses]), options, include_tokens=False)
    if given is None:
        _, target_pieces = model.tokenizer.target_pieces(hypotheses[0].token_ids)
    else:
        translation.text = given
        target_pieces = model.tokenizer.given_target_pieces(given)
    return AttendedSentence(
        index=index,
        count=len(prepared.split.sentences),
        start=sentence.start,
        source_pieces=model.tokenizer.source_pieces(sentence.text),
        target_pieces=target_pieces,
        translation=translation,
        output=output,
    )


def attention_responses(model: LoadedModel, sentence: AttendedSentence) -> Iterator[DumpAttentionResponse]:
    """Yields the responses of one sentence.

    Spans of source units are into the text that the caller sent; spans of target and input units into the text of the
    header's translation.
    """
    weights = sentence.output.cross.contiguous().numpy().astype("<f4", copy=False)  # (L, H, T, S)
    data = weights.tobytes()
    num_layers, num_heads = weights.shape[:2]
    targets = [_unit(piece) for piece in sentence.target_pieces]
    start_piece = model.tokenizer.target.id_to_piece(model.config.decoder_start_id)
    header = AttentionHeader(
        sentence_index=sentence.index,
        sentence_count=sentence.count,
        translation=sentence.translation,
        model=model.name,
        model_digest=model.digest,
        source_units=[_unit(piece, sentence.start) for piece in sentence.source_pieces],
        target_units=targets,
        input_units=[AttentionUnit(text=start_piece, special=True), *targets[:-1]],
        tensors=[
            TensorInfo(
                name="cross",
                kind=AttentionKind.ATTENTION_KIND_CROSS,
                type=TensorType.TENSOR_TYPE_FLOAT32,
                shape=weights.shape,
                axes=("layer", "head", "target", "source"),
                layers=range(num_layers),
                heads=range(num_heads),
                size_bytes=len(data),
            )
        ],
    )
    yield DumpAttentionResponse(header=header)
    for offset in range(0, len(data), CHUNK_BYTES):
        chunk = TensorChunk(tensor_index=0, offset_bytes=offset, data=data[offset : offset + CHUNK_BYTES])
        yield DumpAttentionResponse(chunk=chunk)


def blank_response(model: LoadedModel, translation: Translation) -> DumpAttentionResponse:
    """Returns the one response for a text without a sentence: its translation, which is itself, and no tensor."""
    header = AttentionHeader(translation=translation, model=model.name, model_digest=model.digest)
    return DumpAttentionResponse(header=header)


def _unit(piece: Piece, offset: int = 0) -> AttentionUnit:
    return AttentionUnit(text=piece.text, span=span_message(piece.span, offset), special=piece.special)
