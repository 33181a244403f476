"""What cross-attention shows of a translation: source words that it left out, and how spread its looks were.

Shapes: T target length, S source length, V words of the translation, U words of the source.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dragoman_model.alignment import words_of
from dragoman_model.attention_maps import average_rows, sum_columns
from dragoman_model.checkpoint import LoadedModel
from dragoman_model.plan import FinishedSentence
from dragoman_model.quality import THRESHOLDS, QualityWarning, Thresholds, WarningKind
from dragoman_model.tokenizer import Piece
from dragoman_model.translation import PreparedText
from dragoman_model.words import Unit


@torch.inference_mode()
def uncovered_source(
    weights: Tensor,
    source: Sequence[Piece],
    source_text: str,
    target: Sequence[Piece],
    target_text: str,
    thresholds: Thresholds = THRESHOLDS,
) -> list[QualityWarning]:
    """Returns a warning for each run of source words that the words of the translation hardly look at.

    Single words say little: a language drops the other's articles and auxiliaries. Where several in a row draw no attention, a
    part of the sentence is likely to be missing.

    Args:
        weights: Cross-attention of each target token's prediction, the mean of every head of every layer, (T, S). Which heads
            align best makes no difference: what is left out is left out by all, and their mean finds it best.
        source: The sentence's tokens.
        source_text: What their spans count in.
        target: The translation's tokens in their order; rows beyond them don't count.
        target_text: What their spans count in.
        thresholds: What counts as odd.
    """
    source_words, target_words = words_of(source, source_text), words_of(target, target_text)
    coverage = word_coverage(weights, source_words, target_words)
    num_words = thresholds.num_uncovered_words
    is_odd = means_in_a_row(coverage, num_words) < thresholds.min_coverage
    runs: list[tuple[int, int]] = []
    for first in is_odd.nonzero().flatten().tolist():
        begin = runs.pop()[0] if runs and first <= runs[-1][1] else first
        runs.append((begin, first + num_words))
    values = coverage.tolist()
    return [_uncovered(values, run, source_words, thresholds.min_coverage) for run in runs]


def uncovered_text(
    model: LoadedModel, prepared: PreparedText, results: Sequence[FinishedSentence]
) -> list[QualityWarning]:
    """Returns the warnings of a text's sentences, with spans into the text as it was given.

    Args:
        model: Gives the tokenizer.
        prepared: The text.
        results: For each of its sentences the translation, with its attention.
    """
    warnings = []
    for sentence, result in zip(prepared.split.sentences, results, strict=True):
        assert result.attention is not None
        translation, target = model.tokenizer.target_pieces(result.best.token_ids)
        source = model.tokenizer.source_pieces(sentence.text)
        found = uncovered_source(result.attention.cross_mean, source, sentence.text, target, translation)
        warnings += [warning.moved(sentence.start, 0) for warning in found]
    return warnings


def word_coverage(weights: Tensor, source: Sequence[Unit], target: Sequence[Unit]) -> Tensor:
    """Returns how much attention each source word draws, in words of the translation: c_u = Σ_v A_{v,u}.

    It is the linguistic coverage of Tu et al. 2016 without a fertility, over whole words.

    Args:
        weights: Cross-attention, (T, S).
        source: Words of the source.
        target: Words of the translation.

    Returns:
        (U,); with one word for one all are about 1.
    """
    if not target:
        return weights.new_zeros(len(source))
    rows = average_rows(weights, [unit.pieces for unit in target])  # (V, S)
    return sum_columns(rows, [unit.pieces for unit in source]).sum(0)


def means_in_a_row(values: Tensor, count: int) -> Tensor:
    """Returns the mean of each ``count`` neighbours; empty where there are fewer."""
    return values.unfold(0, count, 1).mean(-1) if len(values) >= count else values[:0]


def attention_entropy(weights: Tensor) -> float:
    """Returns the mean over rows of H = −Σ_s A_{t,s} ln A_{t,s}, in nats: 0 looks at one token alone, ln S at all alike.

    Args:
        weights: Cross-attention, the mean of every head of every layer, (T, S); rows sum to 1.
    """
    return float(torch.special.entr(weights).sum(-1).mean())


def _uncovered(
    coverage: Sequence[float], run: tuple[int, int], words: Sequence[Unit], least: float
) -> QualityWarning:
    """Returns the warning of a run of words, without those at its ends that are covered."""
    first, last = run[0], run[1] - 1
    while coverage[first] >= least:
        first += 1
    while coverage[last] >= least:
        last -= 1
    value = sum(coverage[first : last + 1]) / (last + 1 - first)
    begin, end = words[first].span, words[last].span
    assert begin is not None
    assert end is not None
    return QualityWarning(
        kind=WarningKind.UNCOVERED_SOURCE,
        message=f"{_count(last + 1 - first)} of the source drew {value:.2f} words' attention each, on average.",
        value=value,
        source=(begin[0], end[1]),
    )


def _count(num_words: int) -> str:
    return "A word" if num_words == 1 else f"{num_words} words in a row"
