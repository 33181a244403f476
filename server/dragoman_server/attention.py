"""The stream of DumpAttention: for each sentence a header, then its tensors in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dragoman.v1 import (
    AttentionHeader,
    AttentionUnit,
    DumpAttentionResponse,
    TensorChunk,
    TensorInfo,
    Translation,
)
from dragoman_model.attention_dump import AttentionArray, Units, select_attention
from dragoman_model.checkpoint import LoadedModel
from dragoman_model.coverage import uncovered_source
from dragoman_model.options import DecodingOptions
from dragoman_model.plan import AttentionOutput, Hypothesis
from dragoman_model.quality import QualityWarning, sentence_warnings
from dragoman_model.selection import AttentionSelection
from dragoman_model.text import Sentence, SplitText
from dragoman_model.tokenizer import Piece
from dragoman_model.translation import PreparedText, assemble
from dragoman_model.words import Unit
from dragoman_server.messages import span_message, translation_message
from dragoman_server.selection import KINDS, TENSOR_TYPES

_KINDS = {kind: message for message, kind in KINDS.items()}
_TENSOR_TYPES = {element_type: message for message, element_type in TENSOR_TYPES.items()}

# Under 1 MiB with the message around it, and a whole number of float32 weights.
CHUNK_BYTES = 960 * 1024


@dataclass(frozen=True, kw_only=True)
class AttendedSentence:
    """A sentence, its translation and what the decoder looked at.

    Attributes:
        index: Which sentence of the text, from 0.
        count: Sentences of the text.
        text: The sentence.
        start: Where it begins in the text, in code points.
        source_pieces: Its tokens, end-of-sentence last.
        target_pieces: The tokens of its translation; spans are into the translation.
        translation: As returned in the header.
        warnings: Signs that it may be bad, as in the header.
        output: The weights.
    """

    index: int
    count: int
    text: str
    start: int
    source_pieces: Sequence[Piece]
    target_pieces: Sequence[Piece]
    translation: Translation
    warnings: tuple[QualityWarning, ...]
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
    text = assemble(model, alone, [hypotheses])
    if given is None:
        _, target_pieces = model.tokenizer.target_pieces(hypotheses[0].token_ids)
    else:
        text = replace(text, text=given, warnings=sentence_warnings(sentence.text, given))
        target_pieces = model.tokenizer.given_target_pieces(given)
    source_pieces = model.tokenizer.source_pieces(sentence.text)
    uncovered = uncovered_source(output.cross_mean, source_pieces, sentence.text, target_pieces, text.text)
    warnings = tuple(warning.moved(sentence.start, 0) for warning in (*text.warnings, *uncovered))
    translation = translation_message(replace(text, warnings=warnings), options, include_tokens=False)
    return AttendedSentence(
        index=index,
        count=len(prepared.split.sentences),
        text=sentence.text,
        start=sentence.start,
        source_pieces=source_pieces,
        target_pieces=target_pieces,
        translation=translation,
        warnings=warnings,
        output=output,
    )


@dataclass(frozen=True)
class SelectedWeights:
    """What is sent of a sentence's attention.

    Attributes:
        units: Rows and columns.
        arrays: The weights, in the order in which they are sent.
    """

    units: Units
    arrays: Sequence[AttentionArray]


def num_weights(output: AttentionOutput) -> int:
    """Returns how many weights of a sentence were computed."""
    every = (output.cross, output.encoder_self, output.decoder_self)
    return sum(weights.numel() for weights in every if weights is not None)


def select_weights(
    model: LoadedModel, sentence: AttendedSentence, selection: AttentionSelection
) -> SelectedWeights:
    """Returns what is wanted of a sentence's attention; takes time where the sentence is long."""
    start_id = model.config.decoder_start_id
    units = Units.of(
        sentence.source_pieces,
        sentence.text,
        sentence.target_pieces,
        sentence.translation.text,
        Piece(start_id, model.tokenizer.target.id_to_piece(start_id), None, special=True),
        words=selection.words,
    )
    arrays = select_attention(sentence.output, selection, units)
    return SelectedWeights(units.without_special() if selection.drop_special_tokens else units, arrays)


def attention_responses(
    model: LoadedModel, sentence: AttendedSentence, selected: SelectedWeights
) -> Iterator[DumpAttentionResponse]:
    """Yields the responses of one sentence.

    Spans of source units are into the text that the caller sent; spans of target and input units into the text of the
    header's translation.
    """
    header = AttentionHeader(
        sentence_index=sentence.index,
        sentence_count=sentence.count,
        translation=sentence.translation,
        model=model.name,
        model_digest=model.digest,
        source_units=[_unit(unit, sentence.start) for unit in selected.units.source],
        target_units=[_unit(unit) for unit in selected.units.target],
        input_units=[_unit(unit) for unit in selected.units.input],
        tensors=[
            TensorInfo(
                name=array.name,
                kind=_KINDS[array.kind],
                type=_TENSOR_TYPES[array.element_type],
                shape=array.shape,
                axes=array.axes,
                layers=array.layers,
                heads=array.heads,
                size_bytes=len(array.data),
            )
            for array in selected.arrays
        ],
    )
    yield DumpAttentionResponse(header=header)
    for index, array in enumerate(selected.arrays):
        for offset in range(0, len(array.data), CHUNK_BYTES):
            data = array.data[offset : offset + CHUNK_BYTES]
            yield DumpAttentionResponse(chunk=TensorChunk(tensor_index=index, offset_bytes=offset, data=data))


def blank_response(model: LoadedModel, translation: Translation) -> DumpAttentionResponse:
    """Returns the one response for a text without a sentence: its translation, which is itself, and no tensor."""
    header = AttentionHeader(translation=translation, model=model.name, model_digest=model.digest)
    return DumpAttentionResponse(header=header)


def _unit(unit: Unit, offset: int = 0) -> AttentionUnit:
    return AttentionUnit(text=unit.text, span=span_message(unit.span, offset), special=unit.special)
