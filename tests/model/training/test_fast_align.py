import pytest

from dragoman_model.training.fast_align import FastAlign
from tests.model.made_up import made_up_pairs


@pytest.fixture(scope="module")
def pairs():
    return [(source.split(), target.split()) for source, target in made_up_pairs()]


@pytest.fixture(scope="module")
def aligner(pairs):
    return FastAlign(pairs)


def test_words_that_always_stand_together_are_linked():
    words = [("red", "rot"), ("house", "haus"), ("tree", "baum"), ("small", "klein"), ("book", "buch")]
    pairs = [
        ([first[0], second[0]], [first[1], second[1]])
        for first in words
        for second in words
        if first != second
    ]
    aligner = FastAlign(pairs)
    assert aligner.intersection(pairs) == [{(0, 0), (1, 1)}] * len(pairs)


def test_the_directions_are_those_that_the_package_joins(aligner, pairs):
    """Grow-diag-final-and begins with the links that both directions have and adds none that neither has."""
    forward, backward = aligner.directions(pairs)
    joined = aligner.symmetric(pairs)
    fits = [a & b <= both <= a | b for a, b, both in zip(forward, backward, joined, strict=True)]
    assert all(fits)


def test_each_direction_has_one_link_a_word_at_most(aligner, pairs):
    forward, backward = aligner.directions(pairs)
    for links in forward:
        assert len({target for _, target in links}) == len(links)
    for links in backward:
        assert len({source for source, _ in links}) == len(links)


def test_both_directions_have_what_the_intersection_has(aligner, pairs):
    forward, backward = aligner.directions(pairs)
    for links, a, b in zip(aligner.intersection(pairs), forward, backward, strict=True):
        assert links == a & b
