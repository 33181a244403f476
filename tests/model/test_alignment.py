import pytest
import torch

from dragoman_model.alignment import (
    aligning_heads,
    aligning_method,
    best_links,
    link_sentence,
    word_mass,
    words_of,
)
from dragoman_model.alignment_config import AlignmentConfig
from dragoman_model.tokenizer import Piece
from tests.models import tiny_config

END = Piece(2, "</s>", None, special=True)
SOURCE = [Piece(9, "▁the", (0, 3)), Piece(9, "▁tr", (4, 6)), Piece(9, "ee", (6, 8)), END]
TARGET = [Piece(9, "▁der", (0, 3)), Piece(9, "▁B", (4, 5)), Piece(9, "aum", (5, 8)), END]
# Rows: der, B, aum, end-of-sentence; columns: the, tr, ee, end-of-sentence.
WEIGHTS = torch.tensor(
    [[0.6, 0.1, 0.1, 0.2], [0.2, 0.3, 0.3, 0.2], [0.0, 0.3, 0.3, 0.4], [0.1, 0.0, 0.1, 0.8]]
)


def mass(method):
    return word_mass(WEIGHTS, words_of(SOURCE, "the tree"), words_of(TARGET, "der Baum"), method)


def test_a_word_looks_by_the_rows_that_predict_it_at_the_sum_of_the_pieces_of_each_source_word():
    torch.testing.assert_close(mass("naive"), torch.tensor([[0.6, 0.2, 0.2], [0.1, 0.6, 0.3]]))


def test_the_shifted_method_takes_the_rows_that_have_read_the_word():
    torch.testing.assert_close(mass("shifted"), torch.tensor([[0.2, 0.6, 0.2], [0.05, 0.35, 0.6]]))


def test_whether_end_of_sentence_is_among_the_pieces_makes_no_difference():
    links = [
        link_sentence(WEIGHTS, SOURCE, "the tree", target, "der Baum", "shifted")
        for target in (TARGET, TARGET[:-1])
    ]
    assert links[0] == links[1]


def test_links_have_the_spans_of_whole_words_and_their_mass():
    links = link_sentence(WEIGHTS, SOURCE, "the tree", TARGET, "der Baum", "naive")
    assert [(link.source, link.target) for link in links] == [((0, 3), (0, 3)), ((4, 8), (4, 8))]
    assert [link.probability for link in links] == pytest.approx([0.6, 0.6])


def test_a_word_that_looks_at_special_tokens_most_stands_for_nothing():
    assert best_links(torch.tensor([[0.3, 0.3, 0.4], [0.5, 0.1, 0.4]])) == [
        (None, pytest.approx(0.4)),
        (0, pytest.approx(0.5)),
    ]


def test_every_head_counts_where_none_is_configured():
    config = tiny_config(num_decoder_layers=2)
    assert aligning_heads(config) == ((0, 0), (0, 1), (1, 0), (1, 1))
    assert aligning_method(config) == "naive"


def test_the_configured_heads_and_method_count():
    config = tiny_config(
        num_decoder_layers=2, alignment=AlignmentConfig(layer=1, heads=(1,), method="shifted")
    )
    assert aligning_heads(config) == ((1, 1),)
    assert aligning_method(config) == "shifted"
