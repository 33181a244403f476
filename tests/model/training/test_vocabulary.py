import dataclasses

import pytest

from dragoman_model.errors import TrainingError
from dragoman_model.tokenizer import CAPITALS_PIECE, TOKENIZER_FILE, Tokenizer
from dragoman_model.training.recipe import TokenizerOptions
from dragoman_model.training.vocabulary import train_tokenizer
from tests.model.made_up import MANY_NAMES, made_up_pairs

OPTIONS = TokenizerOptions(vocab_size=384)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("vocabulary") / "not" / "there" / "yet"
    assert train_tokenizer(made_up_pairs(), OPTIONS, directory, MANY_NAMES) == directory / TOKENIZER_FILE
    return directory


@pytest.fixture(scope="module")
def pieces(directory):
    processor = Tokenizer.load(directory).source
    return [processor.id_to_piece(i) for i in range(processor.vocab_size())]


def test_the_vocabulary_has_the_size_asked_for_with_special_pieces_and_bytes_first(pieces):
    assert len(pieces) == 384
    assert pieces[:4] == ["<pad>", "<s>", "</s>", "<unk>"]
    assert pieces[4] == CAPITALS_PIECE
    assert pieces[5:261] == [f"<0x{byte:02X}>" for byte in range(256)]


def test_no_piece_holds_more_than_one_digit(pieces):
    learnt = pieces[261:]
    assert any(any(map(str.isdigit, piece)) for piece in learnt)
    assert all(len(piece) == 1 for piece in learnt if any(map(str.isdigit, piece)))


def test_there_are_pieces_for_both_languages(pieces):
    words = {piece.lstrip("▁") for piece in pieces[261:]}
    assert {"ä", "ß"} & {letter for word in words for letter in word}


def test_the_same_pairs_give_the_same_file(directory, tmp_path):
    path = train_tokenizer(made_up_pairs(), OPTIONS, tmp_path, MANY_NAMES)
    assert path.read_bytes() == (directory / TOKENIZER_FILE).read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == [TOKENIZER_FILE]


def test_no_piece_is_learnt_from_a_sentence_in_capitals(tmp_path):
    train_tokenizer(made_up_pairs(), OPTIONS, tmp_path, dataclasses.replace(MANY_NAMES, capitals=0.5))
    processor = Tokenizer.load(tmp_path).source
    learnt = [processor.id_to_piece(i).lstrip("▁") for i in range(261, processor.vocab_size())]
    assert not any(len(piece) > 1 and piece.isupper() for piece in learnt)


def test_too_few_pairs_for_the_size_are_refused_and_leave_nothing_behind(tmp_path):
    with pytest.raises(TrainingError, match="no vocabulary of 8000 pieces could be learnt from 256 pairs"):
        train_tokenizer(made_up_pairs(), TokenizerOptions(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_training_says_nothing(tmp_path, capfd):
    train_tokenizer(made_up_pairs(), OPTIONS, tmp_path, MANY_NAMES)
    assert capfd.readouterr() == ("", "")
