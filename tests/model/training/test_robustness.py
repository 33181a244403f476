"""The robustness table's figures, each against a case worked by hand."""

from collections.abc import Sequence

import pytest

from dragoman_model.training.corpus import Pair
from dragoman_model.training.robustness import loops, robustness, without_final_punctuation


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", False),
        ("Das ist gut.", False),
        (
            "ha ha ha ha ha",
            True,
        ),  # "ha " four times and a half is "a h" four; "ha ha" has 3-grams three times
        ("Ich bin da Ich bin da Ich bin da", True),
        ("Ich bin da Ich bin da Ich bin", False),
        ("lalalalala", True),
        ("lalalala", False),
        ("!!!!!!!!!", False),  # nine of one character: "!!" stands four times
        ("!!!!!!!!!!", True),
        ("Donaudampf" * 5, False),  # ten characters are longer than the loops that count
    ],
)
def test_a_loop_is_a_repeated_trigram_or_a_short_piece_five_times_in_a_row(text: str, expected: bool) -> None:
    assert loops(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Guten Morgen.", "Guten Morgen"),
        ("Wirklich?!", "Wirklich"),
        ('Er sagte: "Ja."', 'Er sagte: "Ja"'),
        ("Nr. 5", "Nr. 5"),
        ("Warte …", "Warte"),
        ("Ja", "Ja"),
    ],
)
def test_only_the_final_punctuation_is_dropped(text: str, expected: str) -> None:
    assert without_final_punctuation(text) == expected


def test_a_model_that_copies_perfectly_scores_full_marks_where_source_and_target_are_the_same() -> None:
    sentence = "One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen {}."
    pairs = [Pair(sentence.format(number), sentence.format(number)) for number in range(3)]
    report = robustness(pairs, [pair.target for pair in pairs], list)
    assert (report.num_number_pairs, report.numbers_kept, report.num_loops) == (3, 1.0, 0)
    assert report.num_long_pairs == 3
    assert report.long_bleu == pytest.approx(100)
    without_punctuation, lower_case, capitals = report.spellings
    # Its copies carry the source's spelling: right without punctuation and in capitals, wrong where German keeps its case.
    assert without_punctuation.bleu == pytest.approx(100)
    assert without_punctuation.bleu_as_published < 100
    assert capitals.bleu == pytest.approx(100)
    assert lower_case.bleu < 100


def test_long_sentences_are_those_of_15_to_19_words() -> None:
    pairs = [
        Pair(" ".join(["word"] * length), f"ein Satz von {length} Worten") for length in (14, 15, 19, 20)
    ]
    report = robustness(pairs, ["nichts", pairs[1].target, pairs[2].target, "nichts"], list)
    assert report.num_long_pairs == 2
    assert report.long_bleu == pytest.approx(100)


def test_numbers_count_only_where_both_sides_hold_the_same_and_the_translation_holds_them_too() -> None:
    pairs = [Pair("At 6:30", "Um 6.30 Uhr"), Pair("Twelve 12", "Zwölf"), Pair("Room 7", "Zimmer 7")]
    report = robustness(pairs, ["Um 30.6 Uhr", "12", "Zimmer 8"], list)
    assert (report.num_number_pairs, report.numbers_kept) == (2, 0.5)


def test_each_spelling_is_translated_as_it_stands_in_the_table() -> None:
    seen: list[Sequence[str]] = []

    def translate(texts: Sequence[str]) -> Sequence[str]:
        seen.append(texts)
        return texts

    robustness([Pair("Is it Tom?", "Ist es Tom?")], ["Ist es Tom?"], translate)
    assert seen == [["Is it Tom"], ["is it tom?"], ["IS IT TOM?"]]
