"""The joint vocabulary of a model: SentencePiece pieces of both languages, learnt from its training pairs."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import sentencepiece

from dragoman_model.errors import TrainingError
from dragoman_model.tokenizer import BOS_ID, CAPITALS_PIECE, EOS_ID, PAD_ID, TOKENIZER_FILE, UNK_ID
from dragoman_model.training.augmentation import augment
from dragoman_model.training.corpus import Pair
from dragoman_model.training.recipe import AugmentationOptions, TokenizerOptions


def train_tokenizer(
    pairs: Sequence[Pair],
    options: TokenizerOptions,
    directory: Path,
    augmentation: AugmentationOptions | None = None,
) -> Path:
    """Trains a tokenizer and writes it as ``tokenizer.model``; the same arguments give the same file.

    Args:
        pairs: Clean training pairs, as they are.
        options: The vocabulary's size and coverage.
        directory: Where to; it is made if need be.
        augmentation: What the model will see, one pass of which the vocabulary is learnt from; None: the defaults.

    Returns:
        The file's path.

    Raises:
        TrainingError: The pairs are too few for so many pieces.
    """
    # Symbols to copy are left out: they stand for all that is rare, and what is rare is spelt in bytes. A sentence in
    # capitals is read in small letters.
    augmentation = dataclasses.replace(augmentation or AugmentationOptions(), capitals=0.0, copied=0.0)
    rows = augment(pairs, augmentation, options.seed)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / TOKENIZER_FILE
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(side for row in rows for side in row),
                model_writer=file,
                model_type="unigram",
                vocab_size=options.vocab_size,
                character_coverage=options.character_coverage,
                control_symbols=[CAPITALS_PIECE],  # no text can hold a control symbol
                byte_fallback=True,  # no character is ever lost
                split_digits=True,  # a number is copied digit by digit, so that any number can be
                normalization_rule_name="nmt_nfkc",
                pad_id=PAD_ID,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                unk_id=UNK_ID,
                num_threads=1,  # sums of floats depend on how the sentences are shared out
                shuffle_input_sentence=False,
                minloglevel=2,  # errors only
            )
        partial.replace(path)
    except (RuntimeError, OSError) as error:
        raise TrainingError(
            f"no vocabulary of {options.vocab_size} pieces could be learnt from {len(pairs)} pairs: {error}"
        ) from error
    finally:
        partial.unlink(missing_ok=True)
    return path
