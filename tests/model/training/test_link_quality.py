import pytest
import torch

from dragoman_model.alignment_config import AlignmentConfig
from dragoman_model.checkpoint import load_model
from dragoman_model.training.align import choose_heads, plain_words
from dragoman_model.training.corpus import Pair
from dragoman_model.training.link_quality import AttendedPair, attend_pairs, score_links
from tests.models import make_tiny_model, tiny_config


def test_the_error_rate_is_that_computed_by_hand():
    # S has 4 links, P two more, A 5: 3 of them sure, 1 possible. 1 - (3 + 4) / (5 + 4) = 2/9.
    sure = [{(0, 0), (1, 1)}, {(0, 1), (2, 2)}]
    possible = [{(0, 0), (1, 1), (1, 2)}, {(0, 1), (2, 2), (3, 3)}]
    found = [{(0, 0), (1, 1), (1, 2)}, {(0, 1), (4, 4)}]
    scores = score_links(found, sure, possible)
    assert scores.aer == pytest.approx(2 / 9)
    assert scores.precision == pytest.approx(4 / 5)
    assert scores.recall == pytest.approx(3 / 4)


def test_where_all_links_are_sure_the_error_is_one_minus_f1():
    scores = score_links([{(0, 0), (1, 0)}], [{(0, 0), (1, 1), (2, 2)}])
    assert scores.aer == pytest.approx(
        1 - 2 * scores.precision * scores.recall / (scores.precision + scores.recall)
    )
    assert scores.aer == pytest.approx(1 - 2 * 1 / 5)


@pytest.mark.parametrize(
    ("found", "sure", "aer"), [([set()], [set()], 1), ([set()], [{(0, 0)}], 1), ([{(0, 0)}], [{(0, 0)}], 0)]
)
def test_the_error_rate_at_its_ends(found, sure, aer):
    assert score_links(found, sure).aer == aer


def test_the_heads_that_align_best_are_found():
    """Head 1 of layer 1 sees the diagonal where words are read, the others noise."""
    generator = torch.Generator().manual_seed(4)
    pairs, links = [], []
    for length in (4, 5, 6, 7, 8, 9):
        cross = torch.rand(2, 3, length + 1, length + 1, generator=generator)
        cross[1, 1] = 0.01
        for word in range(length):
            cross[1, 1, word + 1, word] = 1.0
        words = [(index,) for index in range(length)]
        logits = torch.randn(cross.shape, generator=generator)
        pairs.append(AttendedPair(cross / cross.sum(-1, keepdim=True), logits, words, words))
        links.append({(index, index) for index in range(length)})
    alignment, aer = choose_heads(tiny_config(num_decoder_layers=2, d_model=12, num_heads=3), pairs, links)
    assert alignment == AlignmentConfig(layer=1, heads=(1,), method="shifted", weighting="prior")
    assert aer == 0


def test_links_of_a_set_are_those_that_the_server_makes(tmp_path):
    model = load_model(make_tiny_model(tmp_path / "en-de"), device="cpu", precision="float32")
    (pair,) = attend_pairs(model.transformer, model.tokenizer, [Pair("The  cat sees", "Die Katze")])
    assert pair is not None
    assert pair.mass(((0, 0), (0, 1)), "naive", "posterior").shape == (2, 4)
    assert all(
        0 <= source < 3 and 0 <= target < 2 for source, target in pair.links(((0, 0),), "shifted", "prior")
    )


def test_a_pair_that_is_too_long_has_no_attention(tmp_path):
    model = load_model(make_tiny_model(tmp_path / "en-de", max_source_length=4), device="cpu")
    assert attend_pairs(model.transformer, model.tokenizer, [Pair("The cat sees the house", "x")]) == [None]


def test_plain_words_are_as_many_as_white_space_bounds():
    assert plain_words(Pair("Well, it's — a  DOG!", "...")) == (["well", "its", "—", "a", "dog"], ["..."])
