"""What cross-attention shows of a translation."""

from __future__ import annotations

import math

import pytest
import torch

from dragoman_model.batch import RunningBatch
from dragoman_model.coverage import attention_entropy, means_in_a_row, uncovered_source, word_coverage
from dragoman_model.plan import ForcedDecode, Plan
from dragoman_model.quality import Thresholds, WarningKind
from dragoman_model.tokenizer import Piece
from dragoman_model.words import Unit

SOURCE = "I stay home because it rains hard."
TARGET = "Ich bleibe daheim."


def pieces_of(text: str) -> list[Piece]:
    """A piece for each word, and end-of-sentence."""
    found, end = [], 0
    for word in text.split():
        start = text.index(word, end)
        end = start + len(word)
        found.append(Piece(7, "▁" + word, (start, end), special=False))
    return [*found, Piece(2, "</s>", None, special=True)]


def looks(*rows: dict[int, float], length: int = 8) -> torch.Tensor:
    """Attention of each row, given by column; end-of-sentence, the last column, gets the rest."""
    weights = torch.zeros(len(rows), length)
    for row, columns in zip(weights, rows, strict=True):
        for column, weight in columns.items():
            row[column] = weight
        row[-1] += 1 - row.sum()
    return weights


def found(weights: torch.Tensor, thresholds: Thresholds | None = None) -> list[tuple[str, float]]:
    """The uncovered parts of the source with their values."""
    warnings = uncovered_source(
        weights,
        pieces_of(SOURCE),
        SOURCE,
        pieces_of(TARGET),
        TARGET,
        thresholds or Thresholds(min_coverage=0.2),
    )
    for warning in warnings:
        assert warning.kind is WarningKind.UNCOVERED_SOURCE
        assert warning.target is None
    return [(SOURCE[slice(*warning.source)], warning.value) for warning in warnings]


def test_source_words_that_draw_no_attention_are_told_of_with_their_place():
    # End-of-sentence's row looks at what is left, which covers nothing.
    weights = looks({0: 0.9}, {1: 0.9}, {2: 0.8, 3: 0.04}, {3: 0.5, 4: 0.2, 5: 0.2, 6: 0.1})

    ((part, value),) = found(weights)

    assert part == "because it rains hard."
    assert value == pytest.approx(0.01)


def test_one_word_or_two_may_be_left_out():
    assert found(looks({0: 0.5, 2: 0.5}, {3: 0.5, 4: 0.5}, {6: 1.0}, {})) == []


def test_covered_words_at_the_ends_of_a_run_are_no_part_of_it():
    weights = looks({0: 0.9}, {1: 0.5, 2: 0.3}, {6: 0.3}, {})

    # "home" and "hard." draw 0.3 each: with two uncovered neighbours that is little, but they are not left out.
    assert [part for part, _ in found(weights)] == ["because it rains"]


def test_parts_that_are_apart_are_told_of_one_by_one():
    weights = looks({3: 1.0}, {3: 1.0}, {3: 1.0}, {})
    assert [part for part, _ in found(weights)] == ["I stay home", "it rains hard."]


def test_text_of_fewer_words_than_count_is_never_warned_of():
    warnings = uncovered_source(
        looks({}, length=3),
        pieces_of("Stay home."),
        "Stay home.",
        pieces_of(""),
        "",
        Thresholds(min_coverage=9),
    )
    assert warnings == []


def test_translation_without_a_word_covers_nothing():
    warnings = uncovered_source(looks({}), pieces_of(SOURCE), SOURCE, pieces_of(""), "")
    assert [SOURCE[slice(*warning.source)] for warning in warnings] == [SOURCE]


def test_coverage_sums_over_words_of_the_translation_and_pieces_of_the_source():
    generator = torch.Generator().manual_seed(1)
    weights = torch.rand(5, 4, generator=generator).softmax(-1)
    source = [Unit("a", (0, 1), False, (0, 1)), Unit("b", (2, 3), False, (2,))]
    target = [Unit("c", (0, 1), False, (0,)), Unit("d", (2, 3), False, (1, 2, 3))]

    coverage = word_coverage(weights, source, target)

    expected = [
        sum(sum(float(weights[t, s]) for t in v.pieces for s in u.pieces) / len(v.pieces) for v in target)
        for u in source
    ]
    assert coverage.tolist() == pytest.approx(expected)


def test_means_are_of_neighbours():
    assert means_in_a_row(torch.tensor([1.0, 2.0, 6.0, 4.0]), 3).tolist() == [3.0, 4.0]
    assert means_in_a_row(torch.tensor([1.0, 2.0]), 3).tolist() == []


def test_entropy_is_none_for_one_token_and_its_logarithm_for_all_alike():
    assert attention_entropy(looks({3: 1.0}, {0: 1.0})) == 0
    assert attention_entropy(torch.full((3, 7), 1 / 7)) == pytest.approx(math.log(7))
    assert attention_entropy(torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])) == pytest.approx(
        math.log(2) / 2
    )


def test_mean_attention_is_the_same_whichever_heads_are_asked_for(tiny_model):
    batch = RunningBatch(tiny_model.transformer)
    every, one = batch.run(
        Plan(
            attend=tuple(
                ForcedDecode(id=index, source_ids=(5, 6, 7, 2), target_ids=(8, 9, 2), heads=heads)
                for index, heads in enumerate([(), ((0, 1),)])
            )
        )
    ).attentions

    torch.testing.assert_close(every.cross_mean, every.cross.mean((0, 1)))
    torch.testing.assert_close(one.cross_mean, every.cross_mean)
    assert one.cross.shape == (1, 1, 3, 4)
