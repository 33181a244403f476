import pytest

from dragoman_model.errors import CorpusError
from dragoman_model.training.corpus import Pair
from dragoman_model.training.hand_aligned import hand_aligned, parse

ENGLISH, GERMAN = "the house\nwe  see it .\n", "\ufeffdas haus\nwir sehen es .\n"
LINKS = "1 0 0 S \n1 1 1 S\n2 1 2 S\n"


def test_links_count_words_from_0_and_sentences_from_1():
    found = parse(ENGLISH, GERMAN, LINKS, from_english=True)
    assert found.pairs == [Pair("the house", "das haus"), Pair("we see it .", "wir sehen es .")]
    assert found.links == [{(0, 0), (1, 1)}, {(2, 1)}]


def test_the_other_direction_has_the_same_links_the_other_way_round():
    found = parse(ENGLISH, GERMAN, LINKS, from_english=False)
    assert found.pairs[1] == Pair("wir sehen es .", "we see it .")
    assert found.links[1] == {(1, 2)}


@pytest.mark.parametrize("line", ["3 0 0 S", "0 0 0 S", "1 0 0 P", "1 0 S", "a 0 0 S", "1 -1 0 S"])
def test_a_link_that_fits_nowhere_is_refused_with_its_line(line):
    with pytest.raises(CorpusError, match="line 2"):
        parse(ENGLISH, GERMAN, f"1 0 0 S\n{line}\n", from_english=True)


def test_sides_of_different_lengths_are_refused():
    with pytest.raises(CorpusError, match="2 English sentences and 1 German"):
        parse(ENGLISH, "das haus\n", LINKS, from_english=True)


def test_other_languages_are_refused():
    with pytest.raises(CorpusError, match="fr to de: the hand-made word links are English and German"):
        hand_aligned("fr", "de")


@pytest.mark.parametrize("line", ["1 2 0 S", "1 0 2 S"])
def test_a_link_that_leads_beyond_its_sentence_is_left_out(line):
    assert parse(ENGLISH, GERMAN, f"{LINKS}{line}\n", from_english=True) == parse(
        ENGLISH, GERMAN, LINKS, from_english=True
    )
