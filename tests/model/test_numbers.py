import random
import re
from collections import Counter

import pytest
import torch
from sentencepiece import SentencePieceTrainer

from dragoman_model.numbers import DigitTokens, NextDigits, SourceNumbers
from dragoman_model.options import DecodingOptions
from dragoman_model.plan import Sequence
from dragoman_model.tokenizer import TOKENIZER_FILE, Tokenizer
from dragoman_model.translator import Translator
from tests.model.decoding import decode

ONE, TWO, THREE, WORD, SILENT = 11, 12, 13, 50, 0
DIGITS = frozenset({ONE, TWO, THREE})


def numbers(*runs):
    return SourceNumbers(runs, DIGITS, frozenset({SILENT}))


@pytest.mark.parametrize(
    ("source", "written", "only", "banned"),
    [
        (numbers((ONE, TWO)), [], None, (TWO, THREE)),
        (numbers((ONE, TWO)), [WORD], None, (TWO, THREE)),
        (numbers((ONE, TWO)), [WORD, ONE], (TWO,), ()),
        (numbers((ONE, TWO)), [ONE, SILENT], (TWO,), ()),
        (numbers((ONE, TWO)), [ONE, TWO], None, (ONE, TWO, THREE)),
        (numbers((ONE, TWO)), [ONE, TWO, WORD], None, (ONE, TWO, THREE)),
        (numbers((ONE, TWO), (ONE, THREE, ONE)), [ONE], (TWO, THREE), ()),
        (numbers((ONE, TWO), (ONE, THREE, ONE)), [ONE, TWO, WORD, ONE], (THREE,), ()),
        (numbers((ONE,), (ONE, TWO)), [ONE], None, (ONE, THREE)),
        (numbers((ONE,), (ONE, TWO)), [ONE, WORD, ONE], (TWO,), ()),
        (numbers((ONE,), (ONE,)), [ONE, WORD], None, (TWO, THREE)),
        (numbers((ONE,), (ONE,)), [ONE, WORD, ONE, WORD], None, (ONE, TWO, THREE)),
        # A prefix may hold numbers that the source doesn't: they take nothing away, and may end.
        (numbers((ONE,)), [THREE], None, (ONE, TWO, THREE)),
        (numbers((ONE,)), [THREE, TWO, WORD], None, (TWO, THREE)),
    ],
)
def test_a_run_of_digits_is_one_of_the_source_that_is_left(source, written, only, banned):
    assert source.next_digits(written) == NextDigits(only, banned)


def test_numbers_are_read_from_a_source_run_by_run(made_up_tokenizer):
    target = made_up_tokenizer.target
    found = made_up_tokenizer.numbers(made_up_tokenizer.encode("Lena sees 15 apples at 7:05, or 15."))
    assert ["".join(map(target.id_to_piece, run)) for run in found.runs] == ["15", "7", "05", "15"]
    assert made_up_tokenizer.numbers(made_up_tokenizer.encode("Lena sees you.")) is None


def test_of_a_vocabulary_with_longer_numbers_nothing_is_known(tmp_path):
    sentences = (f"in the year {year} there were {year} cats" for year in [1900, 1999] * 200)
    SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_prefix=str(tmp_path / "tokenizer"), vocab_size=300, pad_id=0, bos_id=1,
        eos_id=2, unk_id=3, hard_vocab_limit=False, byte_fallback=True, minloglevel=2,
    )  # fmt: skip
    assert (tmp_path / TOKENIZER_FILE).is_file()
    foreign = Tokenizer.load(tmp_path)
    assert DigitTokens(foreign.source, foreign.target).numbers(foreign.encode("in the year 1900")) is None


TEXTS = ["Lena sees 15 apples.", "A dog likes 2048 15 9 9", "The cat sees the house.", "7 7 1234567890", "15"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam_size": 4, "num_hypotheses": 4, "length_penalty": -1.0},
        {"sampling_topk": 0, "num_hypotheses": 4, "seed": 3, "sampling_temperature": 3.0},
        {"beam_size": 3, "no_repeat_ngram_size": 1, "min_length": 5, "repetition_penalty": 1.5},
    ],
    ids=["greedy", "beams", "samples", "with other constraints"],
)
def test_no_translation_holds_a_number_that_the_source_does_not(tiny_model, options):
    translator = Translator(tiny_model)  # of random weights, which write any digit anywhere

    def strange(keep_numbers):
        found = translator.translate(TEXTS, options=DecodingOptions(**options, keep_numbers=keep_numbers))
        texts = [[one.text, *(other.text for other in one.alternatives)] for one in found]
        return sum(
            bool(runs(made) - runs(text))
            for text, all_made in zip(TEXTS, texts)
            if runs(text)
            for made in all_made
        )

    assert strange(keep_numbers=True) == 0
    if options.get("sampling_topk") == 0:
        assert strange(keep_numbers=False) > 0


def runs(text):
    return Counter(re.findall("[0-9]+", text))


@pytest.mark.parametrize("options", [{}, {"beam_size": 4, "num_hypotheses": 4}])
def test_numbers_of_one_sentence_do_not_bind_its_neighbours(tiny_model, options):
    options = DecodingOptions(**options)
    generator = torch.Generator().manual_seed(0)
    vocab_size = tiny_model.config.source_vocab_size
    sources = [
        (*torch.randint(5, vocab_size, (length,), generator=generator).tolist(), 2) for length in (3, 7, 5, 9)
    ]
    digits = tiny_model.tokenizer.encode("15 92")
    sources[1] = tuple(digits)

    def sequence(index, bound):
        found = tiny_model.tokenizer.numbers(digits) if bound and index == 1 else None
        return Sequence(id=index, source_ids=sources[index], max_length=20, options=options, numbers=found)

    def tokens(*sequences):
        found = decode(tiny_model, sequences, rng=random.Random(4))
        return {index: [one.token_ids for one in hypotheses] for index, hypotheses in found.items()}

    together = tokens(*(sequence(index, bound=True) for index in range(4)))
    for index in range(4):
        assert together[index] == tokens(sequence(index, bound=True))[index]
    free = tokens(*(sequence(index, bound=False) for index in range(4)))
    assert {index for index in range(4) if together[index] != free[index]} <= {1}
