import dataclasses
import os
import re
from pathlib import Path

import pytest

from dragoman_model.errors import CorpusError
from dragoman_model.training.corpus import (
    Pair,
    clean,
    comparison_key,
    pair_lines,
    parse_pairs,
    prepare,
    split_dev,
    without_shared_sides,
)
from dragoman_model.training.download import default_mirror
from dragoman_model.training.recipe import CleaningOptions, CorpusOptions, Recipe, load_recipe
from tests.model.training.mirror import write_mirror

SHIPPED = Path(__file__).parents[3] / "recipes" / "tatoeba-en-de.toml"
OPTIONS = CorpusOptions(train="pairs", test_source="test-en", test_target="test-de", dev_size=3, seed=1)
TRAIN = [
    ("Hi.", "Hallo!"),
    ("Go away!", "Geh weg!"),
    ("Go away!", "Verschwinde!"),
    ("I like it here.", "Hier gefällt es mir."),
    ("It snows.", "Es schneit."),
    ("It  snows. ", "Es schneit."),
    ("OK.", "OK."),
    ("No.", "Nein, das geht jetzt wirklich nicht."),
    ("The end", ""),
    ("It's late.", "Es ist spät."),
    ("He sleeps.", "Er schläft."),
    ("She sleeps.", "Sie schläft."),
    ("It is late.", "Es ist spät."),
]


@pytest.fixture
def recipe(tmp_path):
    """A recipe whose files lie in a mirror folder."""
    texts = {
        "pairs": "".join(f"{source}\t{target}\n" for source, target in TRAIN),
        "test-en": "HI\nWho knows?\n",
        "test-de": "Guten Tag.\nhier, gefällt es mir\n",
    }
    return Recipe(
        name="tiny",
        source_language="en",
        target_language="de",
        downloads=write_mirror(tmp_path / "mirror", texts),
        corpus=OPTIONS,
        cleaning=CleaningOptions(max_length_ratio=2.0, length_slack=8),
        digest="0" * 64,
    )


@pytest.fixture
def corpus(recipe, tmp_path):
    return prepare(recipe, tmp_path / "cache", tmp_path / "mirror")


def test_a_prepared_corpus_says_what_each_step_removed(corpus):
    assert corpus.counts["raw pairs"] == len(TRAIN)
    removed = {
        key.removeprefix("removed: "): n for key, n in corpus.counts.items() if key.startswith("removed: ")
    }
    assert removed["shares a side with the test set"] == 2
    assert (removed["empty"], removed["length ratio"], removed["identical sides"], removed["duplicate"]) == (
        1,
        1,
        1,
        1,
    )
    assert len(corpus.dev) == corpus.counts["dev pairs"] == 3
    assert len(corpus.test) == corpus.counts["test pairs"] == 2
    assert len(corpus.train) == corpus.counts["training pairs"] == len(TRAIN) - sum(removed.values()) - 3


def test_neither_test_nor_dev_sides_stand_in_the_training_pairs(corpus):
    for held_out in (corpus.test, corpus.dev):
        for side in (0, 1):
            seen = {comparison_key(pair[side]) for pair in held_out}
            assert not seen & {comparison_key(pair[side]) for pair in corpus.train}


def test_a_pair_that_shares_a_translation_with_the_dev_set_is_left_out(recipe, tmp_path):
    removed = []
    for seed in range(12):  # some of which draw one of the two pairs with "Es ist spät."
        drawn = dataclasses.replace(recipe, corpus=dataclasses.replace(OPTIONS, seed=seed))
        corpus = prepare(drawn, tmp_path / "cache", tmp_path / "mirror")
        targets = {pair.target for pair in corpus.dev}
        assert not targets & {pair.target for pair in corpus.train}
        removed.append(corpus.counts["removed: shares a translation with the dev set"])
    assert 1 in removed
    assert 0 in removed


def test_the_test_set_is_kept_as_it_is(corpus):
    assert corpus.test == [("HI", "Guten Tag."), ("Who knows?", "hier, gefällt es mir")]


def test_the_same_recipe_gives_the_same_corpus(recipe, corpus, tmp_path):
    assert prepare(recipe, tmp_path / "cache", tmp_path / "mirror") == corpus


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Hi!", "hi", True),
        ("  No,\tthanks. ", "no thanks", True),
        ("it's", "It s", True),
        ("Öl", "öl.", True),
        ("a-b", "a b", True),
        ("ab", "a b", False),
        ("1.5", "15", False),
        ("Straße", "Strasse", False),
    ],
)
def test_sentences_are_compared_without_case_and_punctuation(one, other, same):
    assert (comparison_key(one) == comparison_key(other)) is same


def test_a_pair_goes_when_it_shares_either_side():
    pairs = [Pair("a", "b"), Pair("A.", "x"), Pair("y", "B!"), Pair("b", "a"), Pair("y", "x")]
    assert without_shared_sides(pairs, [Pair("a", "b")]) == [Pair("b", "a"), Pair("y", "x")]


@pytest.mark.parametrize(
    ("pair", "options", "reason"),
    [
        (("", "x"), {}, "empty"),
        (("\u00a0 ", "x"), {}, "empty"),
        (("a", "xy"), {"min_characters": 2}, "too short"),
        (("a" * 11, "b" * 9), {"max_characters": 10}, "too long"),
        (("a b c", "d"), {"max_words": 2}, "too long"),
        (("a" * 20, "b" * 5), {"max_length_ratio": 3.0, "length_slack": 4}, "length ratio"),
        (("same", "same"), {}, "identical sides"),
    ],
)
def test_a_bad_pair_is_removed_and_counted(pair, options, reason):
    kept, removed = clean([Pair(*pair)], CleaningOptions(**options))
    assert kept == []
    assert {key: count for key, count in removed.items() if count} == {reason: 1}


@pytest.mark.parametrize(
    ("pair", "options"),
    [
        (("a" * 10, "b"), {"max_characters": 10, "length_slack": 9}),
        (("a b", "c d"), {"max_words": 2}),
        (("a" * 19, "b" * 5), {"max_length_ratio": 3.0, "length_slack": 4}),
        (("a" * 300, "b"), {"max_length_ratio": float("inf")}),
        (("same", "same"), {"drop_identical": False}),
    ],
)
def test_a_pair_at_the_limit_stays(pair, options):
    assert clean([Pair(*pair)], CleaningOptions(**options))[0] == [pair]


def test_white_space_becomes_single_spaces():
    assert clean([Pair(" a\t b ", "c\u00a0d")], CleaningOptions())[0] == [("a b", "c d")]


def test_duplicates_stay_where_the_recipe_says_so():
    pairs = [Pair("a", "b"), Pair("a ", "b")]
    assert len(clean(pairs, CleaningOptions())[0]) == 1
    assert len(clean(pairs, CleaningOptions(drop_duplicates=False))[0]) == 2


@pytest.mark.parametrize("seed", range(5))
def test_a_dev_set_has_whole_groups_of_one_source_side(seed):
    pairs = [Pair(f"Source {i // 3}.", f"Target {i}.") for i in range(30)]
    train, dev = split_dev(pairs, 9, seed)
    assert len(dev) == 9
    assert sorted(train + dev) == sorted(pairs)
    assert not {pair.source for pair in dev} & {pair.source for pair in train}


def test_a_dev_set_is_not_larger_than_asked_for():
    pairs = [Pair(f"Source {i // 2}.", f"Target {i}.") for i in range(20)]
    assert len(split_dev(pairs, 5, 0)[1]) == 4


def test_another_seed_chooses_another_dev_set():
    pairs = [Pair(f"Source {i}.", f"Target {i}.") for i in range(50)]
    assert split_dev(pairs, 5, 0) == split_dev(pairs, 5, 0)
    assert split_dev(pairs, 5, 0) != split_dev(pairs, 5, 1)


def test_dev_size_0_keeps_every_pair_for_training():
    assert split_dev([Pair("a", "b")], 0, 0) == ([Pair("a", "b")], [])


def test_a_dev_set_that_leaves_nothing_to_train_on_is_refused():
    with pytest.raises(CorpusError, match="dev_size is 1, but there are only 1 pairs"):
        split_dev([Pair("a", "b")], 1, 0)


def test_columns_are_those_of_the_recipe():
    options = CorpusOptions(train="x", source_column=2, target_column=0, test_source="x", test_target="x")
    assert parse_pairs("de\tid\ten\r\nja\t1\tyes\tCC BY\n", options) == [("en", "de"), ("yes", "ja")]


def test_only_line_feeds_end_a_pair():
    assert parse_pairs("a\u2028b\tc\x85d\n", OPTIONS) == [("a\u2028b", "c\x85d")]


def test_a_line_with_too_few_columns_is_named():
    with pytest.raises(CorpusError, match=r"pairs: line 2 has 1 column\(s\), expected at least 2"):
        parse_pairs("a\tb\nc d\n", OPTIONS)


def test_test_files_of_different_lengths_are_refused():
    with pytest.raises(CorpusError, match="test-en has 2 lines, test-de has 1"):
        pair_lines("a\nb\n", "c\n", OPTIONS)


def test_blank_test_lines_keep_their_place():
    assert pair_lines("a\n\nb", "c\nd\n\n", OPTIONS) == [("a", "c"), ("", "d"), ("b", "")]


needs_corpus = pytest.mark.skipif(
    default_mirror() is None or not any("deu-eng.zip" in files for _, _, files in os.walk(default_mirror())),
    reason="needs the corpus: name a folder that holds deu-eng.zip and the test set in DRAGOMAN_DATA_MIRROR",
)


@needs_corpus
def test_removing_the_test_sets_sides_from_the_shipped_corpus_keeps_159563_of_169813_pairs(tmp_path):
    recipe = load_recipe(SHIPPED)
    corpus = prepare(recipe, tmp_path)
    assert corpus.counts["raw pairs"] == 169_813
    assert corpus.counts["raw pairs"] - corpus.counts["removed: shares a side with the test set"] == 159_563
    assert len(corpus.test) == 17_565
    assert len(corpus.dev) == 2000
    assert 155_000 < len(corpus.train) < 157_563

    def key(sentence):
        return " ".join(re.sub(r"\W+", " ", sentence.lower()).split())

    for held_out in (corpus.test, corpus.dev):
        for side in (0, 1):
            seen = {key(pair[side]) for pair in held_out}
            assert not any(key(pair[side]) in seen for pair in corpus.train)
