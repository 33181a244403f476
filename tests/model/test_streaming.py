"""Text that grows: never a broken character, never a word taken back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman_model.streaming import GrowingText
from dragoman_model.text import is_start_of_character, split_text
from dragoman_model.tokenizer import EOS_ID


@pytest.fixture(scope="module")
def tokenizer(made_up_tokenizer):
    return made_up_tokenizer


def byte_ids(tokenizer, data):
    return [tokenizer.target.piece_to_id(f"<0x{byte:02X}>") for byte in data]


def token_ids(tokenizer, parts):
    """Returns the ids of words, bytes and numbered pieces, one after the other."""
    ids = []
    for part in parts:
        if isinstance(part, bytes):
            ids += byte_ids(tokenizer, part)
        elif isinstance(part, str):
            ids += tokenizer.encode_target(part)[:-1]
        else:
            ids.append(part)
    return ids


parts = st.lists(
    st.one_of(
        st.sampled_from(["das Haus", "Äpfel 15", "😀", "ß", "▁", " "]),
        st.sampled_from(["😀".encode()[:3], "é".encode()[1:], "é".encode(), b"\xed\xa0", b"\xf5", b"A"]),
        st.binary(max_size=5),
        st.integers(0, 383),
    ),
    max_size=8,
)


@given(parts, parts)
def test_stable_text_starts_whatever_follows(tokenizer, before, after):
    known = token_ids(tokenizer, before)
    whole = known + token_ids(tokenizer, after)
    assert tokenizer.decode(whole).startswith(tokenizer.decode_stable(known))


@given(parts)
def test_stable_text_lacks_at_most_one_character(tokenizer, before):
    known = token_ids(tokenizer, before)
    text, stable = tokenizer.decode(known), tokenizer.decode_stable(known)
    held_back = text[len(stable) :]
    assert len(held_back) <= 3
    assert set(held_back) <= {"\ufffd"}


@pytest.mark.parametrize(
    ("written", "stable"),
    [
        (["das", b"\xf0\x9f\x98"], "das"),
        (["das", b"\xf0\x9f\x98\x80"], "das😀"),
        ([b"\xf0\x9f\x98", "das"], "\ufffd\ufffd\ufffd das"),
        ([b"\x80"], "\ufffd"),
        ([b"A\xc3"], "A"),
        ([b"\xf0\x9f", 0, b"\x98"], ""),
        ([b"\xf0\x9f", 0, b"\x98\x80"], "😀"),
    ],
)
def test_bytes_wait_for_their_character(tokenizer, written, stable):
    assert tokenizer.decode_stable(token_ids(tokenizer, written)) == stable


def test_every_start_of_a_character_is_one_and_no_character_is():
    for character in ["é", "ß", "€", "\ufffd", "ࠀ", "😀", "\U0010ffff"]:
        data = character.encode()
        assert all(is_start_of_character(data[:length]) for length in range(1, len(data)))
        assert not is_start_of_character(data)
    for data in (b"A", b"\x80", b"\xc3A", b"\xc0", b"\xf5\x80", b"\xff"):
        assert not is_start_of_character(data)


def test_a_later_sentence_waits_for_those_before_it(tokenizer):
    split = split_text(" One two.  Three four.\n", "en")
    first, second = ([*tokenizer.encode_target(text)] for text in ("das Haus", "ein Hund"))
    text = GrowingText(tokenizer, split)
    assert text.take() == " "
    text.advance(1, second, is_complete=True)
    assert text.take() == ""
    text.advance(0, first[:-1], is_complete=False)
    assert text.take() == "das Haus"
    assert text.take() == ""
    text.advance(0, first, is_complete=True)
    assert text.take() == "  ein Hund\n"
    assert text.take() == ""


def test_what_was_held_back_comes_with_the_end(tokenizer):
    text = GrowingText(tokenizer, split_text("One.", "en"))
    broken = [*tokenizer.encode_target("das")[:-1], *byte_ids(tokenizer, b"\xf0\x9f")]
    text.advance(0, broken, is_complete=False)
    assert text.take() == "das"
    text.advance(0, [*broken, EOS_ID], is_complete=True)
    assert text.take() == "\ufffd\ufffd"


def test_a_blank_text_is_handed_out_as_it_is(tokenizer):
    text = GrowingText(tokenizer, split_text(" \n\t", "en"))
    assert text.take() == " \n\t"
    assert text.take() == ""
