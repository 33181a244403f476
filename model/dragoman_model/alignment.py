"""Which word of a translation stands for which word of its source, read from cross-attention.

Shapes: T target length, S source length, V words of the translation, U words of the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dragoman_model.alignment_config import AlignmentMethod, Weighting
from dragoman_model.attention_maps import average_rows, sum_columns
from dragoman_model.checkpoint import LoadedModel
from dragoman_model.config import ModelConfig
from dragoman_model.plan import FinishedSentence
from dragoman_model.tokenizer import Piece
from dragoman_model.translation import PreparedText
from dragoman_model.words import Unit, word_units


@dataclass(frozen=True)
class WordLink:
    """A word of a translation and what it stands for.

    Attributes:
        source: The source word, half-open code points; None where the word stands for nothing there.
        target: The word of the translation, likewise.
        probability: How much of all that the word could stand for speaks for this, 0 to 1.
    """

    source: tuple[int, int] | None
    target: tuple[int, int]
    probability: float


def aligning_heads(config: ModelConfig) -> tuple[tuple[int, int], ...]:
    """Returns the (layer, head) pairs whose mean links words: the configured ones, or all where none are."""
    if config.alignment is not None:
        return tuple((config.alignment.layer, head) for head in config.alignment.heads)
    return every_head(config)


def every_head(config: ModelConfig) -> tuple[tuple[int, int], ...]:
    """Returns the (layer, head) pairs of all of a model's cross-attention."""
    return tuple(
        (layer, head) for layer in range(config.num_decoder_layers) for head in range(config.num_heads)
    )


def method_of(config: ModelConfig) -> AlignmentMethod:
    """Returns the configured method; naive where there is none."""
    return config.alignment.method if config.alignment is not None else "naive"


def weighting_of(config: ModelConfig) -> Weighting:
    """Returns the configured weighting; attention as it is where there is none."""
    return config.alignment.weighting if config.alignment is not None else "prior"


@torch.inference_mode()
def token_rows(cross: Tensor, logits: Tensor | None, method: AlignmentMethod, weighting: Weighting) -> Tensor:
    """Returns for each token of a translation how much each source position stands for it, (T, S); rows sum to 1.

    Row t of attention is that of the step in which token t is *predicted*, which is what the naive method takes; the decoder
    *reads* the token in the next one, which is what the shifted method takes (Chen et al. 2020, section 3.1). The last token
    is end-of-sentence, which no step reads; its row stays as it is.

    The naive row is chosen before the token is known: it is a prior over source positions. The posterior, once the token is
    known, is p(j | y_t) ∝ a_tj · p(y_t | j) (Shankar and Sarawagi 2019), here with p(y_t | j) ∝ exp of `direct_logits`. The
    shifted row has read the token; there the same product is no posterior, and the dev set says whether it is of use.

    Args:
        cross: Mean attention of the heads that align, (T, S).
        logits: Their `direct_logits`, (T, S); None where attention is taken as it is.
        method: Which row is a token's.
        weighting: Prior or posterior.
    """
    rows = torch.cat((cross[1:], cross[-1:])) if method == "shifted" else cross
    if weighting == "prior":
        return rows
    assert logits is not None
    return (logits + rows.log()).softmax(-1)


def link_text(
    model: LoadedModel,
    prepared: PreparedText,
    results: Sequence[FinishedSentence],
    method: AlignmentMethod | None = None,
) -> list[WordLink]:
    """Returns the links of a text's words, with spans into the text as it was given and its translation as it is returned.

    Args:
        model: Gives the tokenizer and the configured method.
        prepared: The text.
        results: For each of its sentences the translation with the attention of `aligning_heads`.
        method: None takes the configured one.
    """
    method, weighting = method or method_of(model.config), weighting_of(model.config)
    links: list[WordLink] = []
    offset = 0  # of the sentence's translation
    for sentence, separator, result in zip(
        prepared.split.sentences, prepared.split.separators, results, strict=False
    ):
        assert result.attention is not None
        offset += len(separator)
        translation, target = model.tokenizer.target_pieces(result.best.token_ids)
        source = model.tokenizer.source_pieces(sentence.text)
        attention = result.attention
        rows = token_rows(attention.cross[0, 0], attention.direct_logits, method, weighting)
        for link in link_sentence(rows, source, sentence.text, target, translation):
            moved = None if link.source is None else _moved(link.source, sentence.start)
            links.append(WordLink(moved, _moved(link.target, offset), link.probability))
        offset += len(translation)
    return links


@torch.inference_mode()
def link_sentence(
    rows: Tensor, source: Sequence[Piece], source_text: str, target: Sequence[Piece], target_text: str
) -> list[WordLink]:
    """Returns the links of a sentence's words: one for each word of the translation, in their order.

    Args:
        rows: From `token_rows`, (T, S).
        source: The sentence's tokens, end-of-sentence last.
        source_text: What their spans count in.
        target: The translation's tokens in their order; whether end-of-sentence is among them makes no difference.
        target_text: What their spans count in.
    """
    source_words, target_words = words_of(source, source_text), words_of(target, target_text)
    mass = word_mass(rows, source_words, target_words)
    return [
        WordLink(
            source=None if index is None else source_words[index].span,
            target=_span(word),
            probability=probability,
        )
        for word, (index, probability) in zip(target_words, mutual_links(mass), strict=True)
    ]


def words_of(pieces: Sequence[Piece], text: str) -> list[Unit]:
    """Returns the words of a text that a person would count: no special token, and no white space by itself."""
    return [
        unit for unit in word_units(pieces, text) if unit.span is not None and unit.span[0] < unit.span[1]
    ]


def word_mass(rows: Tensor, source: Sequence[Unit], target: Sequence[Unit]) -> Tensor:
    """Returns how much each word of a source stands for each word of its translation, and how much nothing there does.

    The columns of a source word's pieces are summed, the rows of a target word's averaged.

    Args:
        rows: From `token_rows`, (T, S).
        source: Words of the source.
        target: Words of the translation.

    Returns:
        (V, U + 1), rows sum to 1; the last column is what goes to special tokens.
    """
    rows = average_rows(rows, [unit.pieces for unit in target])
    columns = sum_columns(rows, [unit.pieces for unit in source])
    rest = (rows.sum(-1, keepdim=True) - columns.sum(-1, keepdim=True)).clamp(min=0)
    return torch.cat((columns, rest), dim=-1)


def mutual_links(mass: Tensor) -> list[tuple[int | None, float]]:
    """Returns for each word of a translation the source word with which it is linked, and how much speaks for it.

    Two words are linked where they choose each other: of the source words none stands more for this one, nor do special
    tokens, and for no other word of the translation does this source word stand more. Where none is, the word stands for
    nothing in the source; what speaks for that is what the strongest source word leaves.

    Args:
        mass: From `word_mass`, (V, U + 1).
    """
    words, rest = mass[:, :-1], mass[:, -1].tolist()
    if not words.numel():
        return [(None, 1.0)] * mass.size(0)
    values, sources = words.max(dim=1)
    back = words.argmax(dim=0).tolist()
    links: list[tuple[int | None, float]] = []
    for target, (value, source) in enumerate(zip(values.tolist(), sources.tolist(), strict=True)):
        is_mutual = back[source] == target and value >= rest[target]
        probability = value if is_mutual else 1.0 - value
        links.append((source if is_mutual else None, min(max(probability, 0.0), 1.0)))
    return links


def _moved(span: tuple[int, int], offset: int) -> tuple[int, int]:
    return span[0] + offset, span[1] + offset


def _span(unit: Unit) -> tuple[int, int]:
    assert unit.span is not None
    return unit.span
