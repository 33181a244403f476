"""Which word of a translation stands for which word of its source, read from cross-attention.

Shapes: T target length, S source length, V words of the translation, U words of the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dragoman_model.alignment_config import AlignmentMethod
from dragoman_model.attention_maps import average_rows, sum_columns
from dragoman_model.checkpoint import LoadedModel
from dragoman_model.config import ModelConfig
from dragoman_model.plan import FinishedSentence
from dragoman_model.tokenizer import Piece
from dragoman_model.translator import PreparedText
from dragoman_model.words import Unit, word_units


@dataclass(frozen=True)
class WordLink:
    """A word of a translation and what it stands for.

    Attributes:
        source: The source word, half-open code points; None where the word stands for nothing there.
        target: The word of the translation, likewise.
        probability: Attention mass of the link, 0 to 1.
    """

    source: tuple[int, int] | None
    target: tuple[int, int]
    probability: float


def aligning_heads(config: ModelConfig) -> tuple[tuple[int, int], ...]:
    """Returns the (layer, head) pairs whose mean links words: the configured ones, or all where none are."""
    if config.alignment is not None:
        return tuple((config.alignment.layer, head) for head in config.alignment.heads)
    return tuple(
        (layer, head) for layer in range(config.num_decoder_layers) for head in range(config.num_heads)
    )


def aligning_method(config: ModelConfig) -> AlignmentMethod:
    """Returns the configured method; naive where there is none."""
    return config.alignment.method if config.alignment is not None else "naive"


@torch.inference_mode()
def link_sentence(
    weights: Tensor,
    source: Sequence[Piece],
    source_text: str,
    target: Sequence[Piece],
    target_text: str,
    method: AlignmentMethod,
) -> list[WordLink]:
    """Returns the links of a sentence's words: one for each word of the translation, in their order.

    Args:
        weights: Cross-attention of each target token's prediction, end-of-sentence's last, (T, S).
        source: The sentence's tokens, end-of-sentence last.
        source_text: What their spans count in.
        target: The translation's tokens in their order; whether end-of-sentence is among them makes no difference.
        target_text: What their spans count in.
        method: Which row of the weights is a word's.
    """
    source_words, target_words = words_of(source, source_text), words_of(target, target_text)
    mass = word_mass(weights, source_words, target_words, method)
    return [
        WordLink(
            source=None if index is None else source_words[index].span,
            target=_span(word),
            probability=probability,
        )
        for word, (index, probability) in zip(target_words, best_links(mass), strict=True)
    ]


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
    method = method or aligning_method(model.config)
    links: list[WordLink] = []
    offset = 0  # of the sentence's translation
    for sentence, separator, result in zip(
        prepared.split.sentences, prepared.split.separators, results, strict=False
    ):
        assert result.attention is not None
        offset += len(separator)
        translation, target = model.tokenizer.target_pieces(result.best.token_ids)
        source = model.tokenizer.source_pieces(sentence.text)
        weights = result.attention.cross[0, 0]  # (T, S)
        for link in link_sentence(weights, source, sentence.text, target, translation, method):
            moved = None if link.source is None else _moved(link.source, sentence.start)
            links.append(WordLink(moved, _moved(link.target, offset), link.probability))
        offset += len(translation)
    return links


def words_of(pieces: Sequence[Piece], text: str) -> list[Unit]:
    """Returns the words of a text that a person would count: no special token, and no white space by itself."""
    return [
        unit for unit in word_units(pieces, text) if unit.span is not None and unit.span[0] < unit.span[1]
    ]


def word_mass(
    weights: Tensor, source: Sequence[Unit], target: Sequence[Unit], method: AlignmentMethod
) -> Tensor:
    """Returns how much each word of a translation looks at each word of its source, and at nothing there.

    The pieces of a source word are summed, the rows of a target word averaged. Row t is that of the step in which target token
    t is *predicted*, which is what the naive method takes; the decoder *reads* the token in the next one, which is what the
    shifted method takes (Chen et al. 2020, section 3.1).

    Args:
        weights: Cross-attention, end-of-sentence's row last, (T, S).
        source: Words of the source.
        target: Words of the translation.
        method: Which row is a token's.

    Returns:
        (V, U + 1), rows sum to 1; the last column is what goes to special tokens.
    """
    offset = 1 if method == "shifted" else 0
    rows = average_rows(weights, [[index + offset for index in unit.pieces] for unit in target])
    columns = sum_columns(rows, [unit.pieces for unit in source])
    rest = (rows.sum(-1, keepdim=True) - columns.sum(-1, keepdim=True)).clamp(min=0)
    return torch.cat((columns, rest), dim=-1)


def best_links(mass: Tensor) -> list[tuple[int | None, float]]:
    """Returns for each word of a translation its source word, None where special tokens draw more, and the mass of it.

    Args:
        mass: From `word_mass`, (V, U + 1).
    """
    num_words = mass.size(-1) - 1
    values, indices = mass.max(dim=-1)
    return [
        (index if index < num_words else None, min(value, 1.0))
        for index, value in zip(indices.tolist(), values.tolist(), strict=True)
    ]


def _moved(span: tuple[int, int], offset: int) -> tuple[int, int]:
    return span[0] + offset, span[1] + offset


def _span(unit: Unit) -> tuple[int, int]:
    assert unit.span is not None
    return unit.span
