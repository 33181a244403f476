import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dragoman_model.text import Sentence, split_text

any_text = st.text(st.characters(), max_size=60) | st.lists(
    st.sampled_from(
        ["Hi.", "Mr. Smith", " ", "\n", "\r\n", "\r", "\u2028", "\x85", "!", "😀", "\ufeff", "\x00", "\ud800"]
    )
).map("".join)


def sentences(text, language="en", **options):
    return [sentence.text for sentence in split_text(text, language, **options).sentences]


@given(any_text, st.sampled_from(["en", "de", "en-GB", "xx", ""]), st.booleans())
@example(" " * 10_000, "en", True)
@example("\x00", "en", True)
@example("\ufeffHi.\r\n\r\nYou.", "en", True)
@example(". . . \u2029.", "en", True)
@example("👩‍👧 a. 👩‍👧 b.", "de", True)
def test_any_text_is_joined_again_from_its_own_sentences(text, language, cut):
    split = split_text(text, language, sentences=cut)
    assert len(split.separators) == len(split.sentences) + 1
    assert split.join([sentence.text for sentence in split.sentences]) == text
    for sentence in split.sentences:
        assert sentence.text == sentence.text.strip() != ""
        assert text.startswith(sentence.text, sentence.start)
        assert not cut or len(sentence.text.splitlines()) == 1
    assert not "".join(split.separators).strip()


def test_translations_take_the_sentences_places_and_nothing_else_moves():
    split = split_text("  One. \r\n\tTwo!  ", "en")
    assert split.join(["Eins.", "Zwei!"]) == "  Eins. \r\n\tZwei!  "


@pytest.mark.parametrize("text", ["", " ", "\n", " \t\r\n\u2028\u00a0", " " * 10_000])
def test_a_blank_text_has_no_sentences(text):
    split = split_text(text, "en")
    assert split.sentences == ()
    assert split.separators == (text,)
    assert split.join([]) == text


@pytest.mark.parametrize(
    "line_break", ["\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
)
def test_a_line_break_ends_a_sentence(line_break):
    split = split_text(f"no full stop{line_break}another line", "en")
    assert [sentence.text for sentence in split.sentences] == ["no full stop", "another line"]
    assert split.separators == ("", line_break, "")


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("Mr. Smith is here. He waits.", "en", ["Mr. Smith is here.", "He waits."]),
        ("Dr. Kern kam am 3. Mai. Er blieb.", "de", ["Dr. Kern kam am 3. Mai.", "Er blieb."]),
        ("Really? Yes! Good.", "en-US", ["Really?", "Yes!", "Good."]),
        (
            "It costs 2.50 at www.shop.example/a.html today.",
            "en",
            ["It costs 2.50 at www.shop.example/a.html today."],
        ),
        ("one without an end", "en", ["one without an end"]),
        ("これは。それは。", "ja", ["これは。", "それは。"]),
    ],
)
def test_a_text_is_cut_at_sentence_ends_and_not_at_abbreviations(text, language, expected):
    assert sentences(text, language) == expected


def test_starts_count_code_points_and_not_bytes():
    assert split_text("Ä😀 ja. Öl ist da.", "de").sentences[1] == Sentence("Öl ist da.", 7)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello. 😀", ["Hello. 😀"]),
        ("😀 Hello.", ["😀 Hello."]),
        ("... Well. Yes.", ["... Well.", "Yes."]),
        ("Well. *** Yes.", ["Well.", "*** Yes."]),
        ("Well.\n***\nYes.", ["Well.", "***", "Yes."]),
        ("!!!", ["!!!"]),
    ],
)
def test_a_part_without_a_word_belongs_to_its_neighbour_in_the_line(text, expected):
    assert sentences(text) == expected


def test_without_cutting_the_text_is_one_sentence():
    split = split_text(" One. Two.\nThree. ", "en", sentences=False)
    assert split.sentences == (Sentence("One. Two.\nThree.", 1),)
    assert split.separators == (" ", " ")
