import pytest
import torch

from dragoman_model.alignment import (
    aligning_heads,
    link_sentence,
    method_of,
    mutual_links,
    token_rows,
    weighting_of,
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


def mass(rows):
    return word_mass(rows, words_of(SOURCE, "the tree"), words_of(TARGET, "der Baum"))


def test_a_word_is_the_mean_of_its_rows_and_the_sum_of_its_columns():
    rows = token_rows(WEIGHTS, None, "naive", "prior")
    torch.testing.assert_close(rows, WEIGHTS)
    torch.testing.assert_close(mass(rows), torch.tensor([[0.6, 0.2, 0.2], [0.1, 0.6, 0.3]]))


def test_the_shifted_method_takes_the_rows_that_have_read_the_word():
    rows = token_rows(WEIGHTS, None, "shifted", "prior")
    torch.testing.assert_close(mass(rows), torch.tensor([[0.2, 0.6, 0.2], [0.05, 0.35, 0.6]]))


def test_the_posterior_is_attention_times_what_each_position_says_of_the_word():
    says = torch.tensor([[1.0, 2.0, 1.0, 1.0], [1.0, 1.0, 1.0, 0.5], [9.0, 1.0, 3.0, 1.0], [1.0] * 4])
    rows = token_rows(WEIGHTS, says.log(), "naive", "posterior")
    expected = torch.tensor(
        [[0.6, 0.2, 0.1, 0.2], [0.2, 0.3, 0.3, 0.1], [0.0, 0.3, 0.9, 0.4], [0.1, 0.0, 0.1, 0.8]]
    )
    torch.testing.assert_close(rows, expected / expected.sum(-1, keepdim=True))


def test_whether_end_of_sentence_is_among_the_pieces_makes_no_difference():
    rows = token_rows(WEIGHTS, None, "shifted", "prior")
    links = [link_sentence(rows, SOURCE, "the tree", target, "der Baum") for target in (TARGET, TARGET[:-1])]
    assert links[0] == links[1]


def test_links_have_the_spans_of_whole_words_and_their_mass():
    links = link_sentence(WEIGHTS, SOURCE, "the tree", TARGET, "der Baum")
    assert [(link.source, link.target) for link in links] == [((0, 3), (0, 3)), ((4, 8), (4, 8))]
    assert [link.probability for link in links] == pytest.approx([0.6, 0.6])


@pytest.mark.parametrize(
    ("mass", "links"),
    [
        ([[0.5, 0.2, 0.3], [0.1, 0.8, 0.1]], [(0, 0.5), (1, 0.8)]),
        ([[0.3, 0.3, 0.4], [0.1, 0.8, 0.1]], [(None, 0.7), (1, 0.8)]),  # special tokens draw more
        ([[0.5, 0.2, 0.3], [0.7, 0.2, 0.1]], [(None, 0.5), (0, 0.7)]),  # the source word chooses another
        ([[1.0], [1.0]], [(None, 1.0), (None, 1.0)]),  # no source word
    ],
)
def test_words_are_linked_that_choose_each_other(mass, links):
    found = mutual_links(torch.tensor(mass))
    assert [index for index, _ in found] == [index for index, _ in links]
    assert [value for _, value in found] == pytest.approx([value for _, value in links])


def test_every_head_counts_where_none_is_configured():
    config = tiny_config(num_decoder_layers=2)
    assert aligning_heads(config) == ((0, 0), (0, 1), (1, 0), (1, 1))
    assert (method_of(config), weighting_of(config)) == ("naive", "prior")


def test_the_configured_heads_method_and_weighting_count():
    alignment = AlignmentConfig(layer=1, heads=(1,), method="shifted", weighting="posterior")
    config = tiny_config(num_decoder_layers=2, alignment=alignment)
    assert aligning_heads(config) == ((1, 1),)
    assert (method_of(config), weighting_of(config)) == ("shifted", "posterior")
