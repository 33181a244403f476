import io
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import SentencePieceTrainer

from dragoman_model.errors import ModelDirectoryError, PieceError
from dragoman_model.tokenizer import (
    BOS_ID,
    CAPITALS_PIECE,
    EOS_ID,
    PAD_ID,
    TOKENIZER_FILE,
    UNK_ID,
    Tokenizer,
)
from dragoman_model.training.recipe import TokenizerOptions
from dragoman_model.training.vocabulary import train_tokenizer
from tests.model.made_up import MANY_NAMES, made_up_pairs

VOCAB_SIZE = 384


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(made_up_pairs(), TokenizerOptions(vocab_size=VOCAB_SIZE), directory, MANY_NAMES)
    return directory


@pytest.fixture(scope="module")
def tokenizer(directory):
    return Tokenizer.load(directory)


def spans_by_piece(pieces):
    return [(piece.text, piece.span) for piece in pieces if not piece.special]


def covered(text, pieces):
    return [text[slice(*piece.span)] for piece in pieces if not piece.special]


def mark_of(tokenizer):
    return tokenizer.source.piece_to_id(CAPITALS_PIECE)


def test_encoding_ends_with_eos_and_decodes_to_the_same_text(tokenizer):
    ids = tokenizer.encode("The cat sees 15 apples.")
    assert ids[-1] == EOS_ID
    assert ids.count(EOS_ID) == 1
    assert tokenizer.decode(ids) == "The cat sees 15 apples."
    assert max(ids) < tokenizer.vocab_size == VOCAB_SIZE


def test_a_joint_vocabulary_reads_and_writes_with_one_processor(tokenizer):
    assert tokenizer.source is tokenizer.target
    assert tokenizer.encode("Die Katze mag dich.") == tokenizer.encode_target("Die Katze mag dich.")


def test_a_batch_is_encoded_like_its_texts_one_by_one(tokenizer):
    texts = ["A dog likes you.", "", "Ein Hund\ud800", "  Straße  "]
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_target_batch(texts) == [tokenizer.encode_target(text) for text in texts]
    assert tokenizer.encode_batch([]) == []


def test_every_digit_is_a_piece_of_its_own(tokenizer):
    pieces = spans_by_piece(tokenizer.source_pieces("A dog sees 15 apples"))
    digits = [
        text.lstrip("▁") for text, _ in pieces if any(map(str.isdigit, text)) and not text.startswith("<0x")
    ]
    assert digits == ["1", "5"]


@pytest.mark.parametrize("text", ["日本語", "😀👩‍👧", "Ж", "ō", "\x00", "a\x00b", "🏳️‍🌈 x", "\ufeff", "→"])
def test_an_unseen_character_is_never_unknown(tokenizer, text):
    assert UNK_ID not in tokenizer.encode(text)


@pytest.mark.parametrize("text", ["日本語", "😀 x", "Ж", "naïve →", "Ā"])
def test_an_unseen_character_survives_the_round_trip(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_decoding_skips_special_tokens_wherever_they_stand(tokenizer):
    cat, dog = tokenizer.encode("The cat"), tokenizer.encode("A dog")
    assert tokenizer.decode([BOS_ID, *cat, PAD_ID, *dog, PAD_ID, PAD_ID]) == "The cat A dog"
    assert tokenizer.decode([BOS_ID, EOS_ID, PAD_ID]) == ""


def test_source_spans_cover_words_and_not_the_space_before_them(tokenizer):
    text = "The  cat sees\tthe house"
    pieces = tokenizer.source_pieces(text)
    assert [piece.id for piece in pieces] == tokenizer.encode(text)
    assert "".join(covered(text, pieces)) == "Thecatseesthehouse"
    assert pieces[-1].special
    assert pieces[-1].span is None
    starts = {text.index(word) for word in ("The", "cat", "sees", "the", "house")}
    assert starts <= {piece.span[0] for piece in pieces[:-1]}


@pytest.mark.parametrize(
    ("text", "character"),
    [
        ("Lena ﬁ x", "ﬁ"),
        ("Lena ２ x", "２"),
        ("Lena ½ x", "½"),
        ("Lena … x", "…"),
        ("Lena 😀 x", "😀"),
        ("Lena 日 x", "日"),
        ("Lena e\u0301 x", "e\u0301"),
        ("Lena ㍿ x", "㍿"),
    ],
)
def test_all_pieces_of_one_character_share_its_span(tokenizer, text, character):
    start = text.index(character)
    words = [piece for piece in tokenizer.source_pieces(text)[:-1] if piece.span != (start, start)]
    inside = [
        piece.span for piece in words if piece.span[0] < start + len(character) and piece.span[1] > start
    ]
    assert inside
    assert set(inside) == {(start, start + len(character))}


def test_each_of_two_emoji_in_a_row_has_its_own_four_bytes(tokenizer):
    bytes_ = [
        span for text, span in spans_by_piece(tokenizer.source_pieces("😀😁")) if text.startswith("<0x")
    ]
    assert bytes_ == [(0, 1)] * 4 + [(1, 2)] * 4


def test_spans_count_in_the_text_as_given_after_leading_and_repeated_spaces(tokenizer):
    text = "   \n Lena   mag\u00a0  dich  "
    assert "".join(covered(text, tokenizer.source_pieces(text))) == "Lenamagdich"


@pytest.mark.parametrize("ignored", ["\ud800", "\u200b", "\ufeff", "\x01", "\u3000"])
def test_what_normalisation_drops_is_no_part_of_the_word_after_it(tokenizer, ignored):
    text = f"Lena {ignored} mag"
    assert tokenizer.encode(text) == tokenizer.encode("Lena mag")
    assert "".join(covered(text, tokenizer.source_pieces(text))) == "Lenamag"


def test_ten_thousand_spaces_are_no_token(tokenizer):
    assert tokenizer.encode(" " * 10_000) == [EOS_ID]
    assert tokenizer.source_pieces(" " * 10_000 + "Lena")[0].span[1] > 10_000


def assert_ordered_and_disjoint_or_equal(spans, length):
    for start, end in spans:
        assert 0 <= start <= end <= length
    for one, other in itertools.pairwise(spans):
        assert one == other or one[1] <= other[0]


@given(st.text(max_size=40))
def test_source_spans_of_any_text_are_ordered_within_it_and_disjoint_or_equal(tokenizer, text):
    pieces = tokenizer.source_pieces(text)
    assert [piece.id for piece in pieces] == tokenizer.encode(text)
    assert_ordered_and_disjoint_or_equal([piece.span for piece in pieces if not piece.special], len(text))


@given(st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=20))
def test_target_spans_of_any_tokens_cover_all_of_the_decoded_text_but_spaces(tokenizer, ids):
    text, pieces = tokenizer.target_pieces(ids)
    assert text == tokenizer.decode(ids)
    assert [piece.id for piece in pieces] == ids
    silent = (PAD_ID, BOS_ID, EOS_ID, mark_of(tokenizer))
    assert [piece.special for piece in pieces] == [token in silent for token in ids]
    spans = [piece.span for piece in pieces if not piece.special]
    assert_ordered_and_disjoint_or_equal(spans, len(text))
    left_out = set(range(len(text))) - {i for span in spans for i in range(*span)}
    assert not "".join(text[i] for i in sorted(left_out)).strip()


def test_target_spans_of_a_sentence_join_to_its_words(tokenizer):
    ids = tokenizer.encode_target("Unser Lehrer malt 15 Äpfel 😀.")
    text, pieces = tokenizer.target_pieces(ids)
    assert text == "Unser Lehrer malt 15 Äpfel 😀."
    distinct = [span for span, _ in itertools.groupby(piece.span for piece in pieces[:-1])]
    assert "".join(text[slice(*span)] for span in distinct) == text.replace(" ", "")


def test_bytes_that_are_no_character_decode_to_replacement_characters(tokenizer):
    ids = tokenizer.encode("😀")
    broken = [token for token in ids if tokenizer.source.id_to_piece(token).startswith("<0x")][:2]
    text, pieces = tokenizer.target_pieces([*broken, *tokenizer.encode("Lena")])
    assert text.startswith("\ufffd")
    assert text.endswith("Lena")
    assert pieces[0].span[0] == 0


# Capitals


@given(st.lists(st.integers(2, VOCAB_SIZE - 1).filter(lambda i: i != EOS_ID), max_size=30), st.booleans())
def test_a_translations_pieces_are_its_tokens(tokenizer, ids, is_cut):
    ids = ids if is_cut else [*ids, EOS_ID]
    _, pieces = tokenizer.target_pieces(ids)
    assert tokenizer.target_ids([piece.text for piece in pieces]) == ids


@pytest.mark.parametrize(
    ("pieces", "index", "words"),
    [
        (["▁", "nowhere to be found"], 1, "not in the model's vocabulary"),
        (["", "</s>"], 0, "not in the model's vocabulary"),
        (["a\0"], 0, "not in the model's vocabulary"),
        (["<s>", "▁"], 0, "in no translation"),
        (["▁", "<pad>"], 1, "in no translation"),
        (["▁", "</s>", "▁", "</s>"], 1, "may only be the last"),
    ],
)
def test_a_piece_that_no_translation_has_there_is_refused(tokenizer, pieces, index, words):
    with pytest.raises(PieceError, match=words) as caught:
        tokenizer.target_ids(pieces)
    assert caught.value.index == index


@pytest.mark.parametrize("text", ["THE CAT SEES 15 APPLES!", "OK", "NAÏVE 😀", "ÄPFEL", "A B"])
def test_a_text_in_capitals_is_a_mark_and_its_small_letters(tokenizer, text):
    ids = tokenizer.encode(text)
    assert ids == [mark_of(tokenizer), *tokenizer.encode(text.lower())]
    assert tokenizer.encode_batch([text]) == [ids]
    assert tokenizer.decode(ids) == text


# One letter, a word among others, what small letters would not give back, and letters without case.
@pytest.mark.parametrize("text", ["I", "A 15", "The CAT", "STRAßE", "İSTANBUL", "15", "猫", ""])
def test_other_texts_have_no_mark(tokenizer, text):
    ids = tokenizer.encode(text)
    assert mark_of(tokenizer) not in ids
    assert tokenizer.decode(ids) == text


def test_the_mark_cannot_be_typed(tokenizer):
    assert mark_of(tokenizer) not in tokenizer.encode(f"{CAPITALS_PIECE} The cat")


@given(st.text(st.sampled_from("ABßÄ😀ǅİ ŉ1.é"), max_size=20))
def test_capitals_lose_no_character(tokenizer, text):
    small = tokenizer.source.encode(text.lower(), out_type=int)
    plain = tokenizer.source.decode(tokenizer.source.encode(text, out_type=int))
    if tokenizer.encode(text)[:1] == [mark_of(tokenizer)]:
        plain = tokenizer.source.decode(small).upper()
    assert tokenizer.decode(tokenizer.encode(text)) == plain
    assert plain.replace(" ", "") == tokenizer.source.normalize(text).replace("▁", "")


def test_spans_of_a_text_in_capitals_are_those_of_its_letters(tokenizer):
    text = "THE CAT LIKES YOU"
    mark, *pieces, eos = tokenizer.source_pieces(text)
    assert (mark.text, mark.span, mark.special) == (CAPITALS_PIECE, None, True)
    assert eos.id == EOS_ID
    assert "".join(covered(text, pieces)) == "THECATLIKESYOU"


def test_a_sharp_s_in_capitals_is_two_letters_of_one_span(tokenizer):
    ids = [mark_of(tokenizer), *tokenizer.target.encode("eine Straße da", out_type=int), EOS_ID]
    text, pieces = tokenizer.target_pieces(ids)
    assert text == tokenizer.decode(ids) == "EINE STRASSE DA"
    assert "".join(covered(text, pieces)) == "EINESTRASSEDA"


def test_a_mark_behind_another_token_says_nothing(tokenizer):
    ids = tokenizer.target.encode("Die Katze", out_type=int)
    assert tokenizer.decode([ids[0], mark_of(tokenizer), *ids[1:], EOS_ID]) == "Die Katze"


def test_a_prefix_in_capitals_has_the_mark_only_where_the_source_has_it(tokenizer):
    plain = tokenizer.target.encode("NATO", out_type=int)
    assert tokenizer.encode_target_prefix("NATO", tokenizer.encode("The cat")) == plain
    marked = tokenizer.encode_target_prefix("NATO", tokenizer.encode("THE CAT"))
    assert marked == tokenizer.encode_target("NATO")[:-1]
    assert marked[0] == mark_of(tokenizer)
    assert tokenizer.encode_target_prefix("", tokenizer.encode("THE CAT")) == []


def test_a_vocabulary_without_the_mark_spells_capitals_as_they_are(tmp_path):
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(["the cat", "THE CAT"] * 9),
        model_writer=model,
        vocab_size=272,
        byte_fallback=True,
        pad_id=PAD_ID,
        bos_id=BOS_ID,
        eos_id=EOS_ID,
        unk_id=UNK_ID,
        minloglevel=2,
    )
    (tmp_path / TOKENIZER_FILE).write_bytes(model.getvalue())
    old = Tokenizer.load(tmp_path)
    assert old.encode("THE CAT") == [*old.source.encode("THE CAT", out_type=int), EOS_ID]
    assert old.decode(old.encode("THE CAT")) == "THE CAT"


def test_a_missing_tokenizer_is_named(tmp_path):
    with pytest.raises(ModelDirectoryError, match=rf"{TOKENIZER_FILE}: cannot be read: No such file"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("damage", ["empty", "foreign", "truncated"])
def test_a_damaged_tokenizer_is_named(directory, tmp_path, damage):
    whole = (directory / TOKENIZER_FILE).read_bytes()
    content = {"empty": b"", "foreign": b"PK\x03\x04 not a model", "truncated": whole[: len(whole) // 2]}[
        damage
    ]
    (tmp_path / TOKENIZER_FILE).write_bytes(content)
    with pytest.raises(ModelDirectoryError, match=rf"{TOKENIZER_FILE}: is not a SentencePiece model"):
        Tokenizer.load(tmp_path)


def test_a_tokenizer_with_other_special_ids_is_refused(tmp_path):
    import sentencepiece

    sides = [side for pair in made_up_pairs() for side in pair]
    with (tmp_path / TOKENIZER_FILE).open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sides), model_writer=file, vocab_size=60, minloglevel=2
        )
    with pytest.raises(ModelDirectoryError, match="ids of pad, bos, eos and unk are"):
        Tokenizer.load(tmp_path)
