import collections

import pytest
import torch

from dragoman_model.tokenizer import EOS_ID
from dragoman_model.training.batching import EncodedPair, encode_pairs, epoch_batches, group_pairs
from dragoman_model.training.corpus import Pair
from dragoman_model.training.recipe import AugmentationOptions
from tests.model.made_up import made_up_pairs
from tests.models import tiny_config

CONFIG = tiny_config()
AUGMENTATION = AugmentationOptions()
NO_AUGMENTATION = AugmentationOptions(
    drop_punctuation=0, lower_case=0, lower_case_drop_punctuation=0, capitals=0, typographic=0,
    number_copies=0, numbered=0, joined=0, joined_numbers=0, copied=0, names=0,
)  # fmt: skip


def batches_of(tokenizer, *, augmentation=AUGMENTATION, max_batch_tokens=150, seed=1, epoch=0):
    return epoch_batches(
        made_up_pairs(), tokenizer, CONFIG, augmentation,
        max_batch_tokens=max_batch_tokens, seed=seed, epoch=epoch,
    )  # fmt: skip


def test_an_epoch_depends_on_seed_and_number_alone(made_up_tokenizer):
    later = batches_of(made_up_tokenizer, epoch=3)
    torch.rand(7)  # neither torch's generator nor what ran before has a part in it
    batches_of(made_up_tokenizer, epoch=0)
    assert batches_of(made_up_tokenizer, epoch=3) == later
    assert batches_of(made_up_tokenizer, epoch=4) != later
    assert batches_of(made_up_tokenizer, epoch=3, seed=2) != later


def test_epochs_differ_in_order_and_company_without_augmentation_too(made_up_tokenizer):
    one, two = (batches_of(made_up_tokenizer, augmentation=NO_AUGMENTATION, epoch=epoch) for epoch in (0, 1))
    assert one != two

    def companies(batches):
        return {frozenset((*pair.source, 0, *pair.target) for pair in batch.pairs) for batch in batches}

    assert len(companies(one) & companies(two)) < len(one) / 2


@pytest.mark.parametrize("max_batch_tokens", [60, 150, 100_000])
def test_every_pair_is_in_an_epoch_once(made_up_tokenizer, max_batch_tokens):
    batches = batches_of(made_up_tokenizer, augmentation=NO_AUGMENTATION, max_batch_tokens=max_batch_tokens)
    seen = collections.Counter(
        (tuple(pair.source), tuple(pair.target)) for batch in batches for pair in batch.pairs
    )
    expected = collections.Counter(
        (tuple(made_up_tokenizer.encode(source)), tuple(made_up_tokenizer.encode_target(target)))
        for source, target in made_up_pairs()
    )
    assert seen == expected


@pytest.mark.parametrize("max_batch_tokens", [40, 150, 1000])
def test_no_batch_is_larger_than_allowed_and_most_are_nearly_full(made_up_tokenizer, max_batch_tokens):
    batches = batches_of(made_up_tokenizer, max_batch_tokens=max_batch_tokens)
    sizes = []
    for batch in batches:
        src_ids, inputs, targets = batch.tensors(CONFIG, torch.device("cpu"))
        sizes.append(max(src_ids.numel(), targets.numel()))
        assert sizes[-1] <= max_batch_tokens or len(batch.pairs) == 1
        assert inputs.shape == targets.shape
    if max_batch_tokens > 100:
        assert sum(sizes) / len(sizes) > 0.6 * max_batch_tokens


def test_a_pair_wider_than_a_batch_stands_alone():
    long, short = EncodedPair([5] * 30, [6] * 3), EncodedPair([5], [6])
    batches = list(group_pairs([short, short, long, short], max_batch_tokens=10))
    assert [[len(pair.source) for pair in batch.pairs] for batch in batches] == [[1, 1], [30], [1]]


def test_a_batch_is_bounded_on_its_wider_side():
    wide_sources = [EncodedPair([5] * 9, [6] * 2)] * 5
    assert [len(batch.pairs) for batch in group_pairs(wide_sources, max_batch_tokens=20)] == [2, 2, 1]
    wide_targets = [EncodedPair([5] * 2, [6] * 9)] * 5
    assert [len(batch.pairs) for batch in group_pairs(wide_targets, max_batch_tokens=20)] == [2, 2, 1]


def test_the_decoder_reads_what_it_predicts_one_step_late():
    batch = next(iter(group_pairs([EncodedPair([7, 8, 2], [9, 10, 2]), EncodedPair([7, 2], [11, 2])], 100)))
    src_ids, inputs, targets = batch.tensors(CONFIG, torch.device("cpu"))
    assert src_ids.tolist() == [[7, 8, 2], [7, 2, 0]]
    assert inputs.tolist() == [[1, 9, 10], [1, 11, 2]]
    assert targets.tolist() == [[9, 10, 2], [11, 2, 0]]
    assert batch.num_target_tokens == 5


def test_pairs_over_the_models_limits_are_left_out(made_up_tokenizer):
    config = tiny_config(max_source_length=6, max_target_length=8)
    pairs = [Pair("you", "dich"), Pair("you " * 9, "dich"), Pair("you", "dich " * 9)]
    assert len(encode_pairs(pairs, made_up_tokenizer, config)) == 1


def test_both_sides_end_with_end_of_sentence(made_up_tokenizer):
    for pair in encode_pairs(made_up_pairs()[:5], made_up_tokenizer, CONFIG):
        assert pair.source[-1] == pair.target[-1] == EOS_ID
