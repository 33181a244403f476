import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman_model.tokenizer import Piece
from dragoman_model.words import piece_units, word_units

END = Piece(2, "</s>", None, special=True)


def pieces_of(*described):
    """A piece without a place is special."""
    return [
        Piece(9, one, None, special=True) if isinstance(one, str) else Piece(9, one[0], one[1:])
        for one in described
    ]


def test_pieces_are_units_as_they_are():
    units = piece_units(pieces_of(("▁a", 0, 1), "</s>"))
    assert [(unit.text, unit.span, unit.special, unit.pieces) for unit in units] == [
        ("▁a", (0, 1), False, (0,)),
        ("</s>", None, True, (1,)),
    ]


@pytest.mark.parametrize(
    ("text", "described", "words"),
    [
        ("A garden", [("▁A", 0, 1), ("▁gar", 2, 5), ("den", 5, 8), "</s>"], ["A", "garden", "</s>"]),
        ("a  b", [("▁a", 0, 1), ("▁", 1, 2), ("▁b", 2, 4), "</s>"], ["a", "b", "</s>"]),
        ("a b.", [("▁a b", 0, 3), (".", 3, 4)], ["a b."]),
        ("x 🙂!", [("▁x", 0, 1), ("▁", 2, 2), ("<0xF0>", 2, 3), ("<0x9F>", 2, 3), ("!", 3, 4)], ["x", "🙂!"]),
        ("🙂 x", [("<0xF0>", 0, 1), ("<0x9F>", 1, 1), ("▁x", 2, 3)], ["🙂", "x"]),
        ("a ", [("▁a", 0, 1), ("▁", 1, 2)], ["a"]),
        ("a ", [("▁a", 0, 1), ("▁", 2, 2), "</s>"], ["a", "</s>"]),
        ("  ", [("▁", 2, 2), "</s>"], ["▁", "</s>"]),
        ("<s> a", ["<s>", ("a", 4, 5)], ["<s>", "a"]),
        ("A DOG", ["<capitals>", ("▁a", 0, 1), ("▁dog", 2, 5), "</s>"], ["<capitals>", "A", "DOG", "</s>"]),
        ("one\ttwo", [("one", 0, 3), ("\ttwo", 3, 7)], ["one", "two"]),
        ("", ["</s>"], ["</s>"]),
    ],
)
def test_words_are_what_white_space_bounds(text, described, words):
    pieces = pieces_of(*described)
    units = word_units(pieces, text)
    assert [unit.text for unit in units] == words
    assert [index for unit in units for index in unit.pieces] == list(range(len(pieces)))
    assert [unit.special for unit in units] == [word in ("<s>", "<capitals>", "</s>") for word in words]
    for unit in units:
        if unit.special:
            assert unit.span is None
        elif unit.text != "▁":
            assert text[slice(*unit.span)] == unit.text


@given(st.text(max_size=40))
def test_every_piece_of_any_text_is_in_one_word_in_its_order(made_up_tokenizer, text):
    pieces = made_up_tokenizer.source_pieces(text)
    units = word_units(pieces, text)
    assert [index for unit in units for index in unit.pieces] == list(range(len(pieces)))
    spans = [unit.span for unit in units if not unit.special]
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans))


def test_words_of_a_text_are_those_of_its_white_space(made_up_tokenizer):
    text = "  Lena sees\u00a0the 😀 big street,   ½ of it.\n"
    units = word_units(made_up_tokenizer.source_pieces(text), text)
    assert [unit.text for unit in units] == [*text.split(), "</s>"]
