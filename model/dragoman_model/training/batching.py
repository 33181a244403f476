"""Training batches of an epoch.

Shapes: B batch, S source length, T target length.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dragoman_model.batch import pad_ids
from dragoman_model.config import ModelConfig
from dragoman_model.tokenizer import Tokenizer
from dragoman_model.training.augmentation import augment
from dragoman_model.training.corpus import Pair
from dragoman_model.training.recipe import AugmentationOptions


@dataclass(frozen=True)
class EncodedPair:
    """A sentence pair as token ids, both sides with end-of-sentence."""

    source: list[int]
    target: list[int]


@dataclass(frozen=True)
class Batch:
    """Sentence pairs of like length.

    Attributes:
        pairs: The pairs, B of them.
        num_target_tokens: Target tokens that count in the loss, end-of-sentence included, padding left out.
    """

    pairs: Sequence[EncodedPair]
    num_target_tokens: int

    def tensors(self, config: ModelConfig, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Returns source ids, (B, S), what the decoder reads, (B, T), and what it shall predict, (B, T)."""
        src_ids = pad_ids([pair.source for pair in self.pairs], config.pad_id)
        targets = pad_ids([pair.target for pair in self.pairs], config.pad_id)
        start = torch.full((len(self.pairs), 1), config.decoder_start_id)
        inputs = torch.cat((start, targets[:, :-1]), dim=1)
        return src_ids.to(device), inputs.to(device), targets.to(device)


def encode_pairs(pairs: Sequence[Pair], tokenizer: Tokenizer, config: ModelConfig) -> list[EncodedPair]:
    """Returns the pairs as token ids; those over the model's limits are left out."""
    sources = tokenizer.encode_batch([pair.source for pair in pairs])
    targets = tokenizer.encode_target_batch([pair.target for pair in pairs])
    return [
        EncodedPair(source, target)
        for source, target in zip(sources, targets, strict=True)
        if len(source) <= config.max_source_length and len(target) <= config.max_target_length
    ]


def epoch_batches(
    pairs: Sequence[Pair],
    tokenizer: Tokenizer,
    config: ModelConfig,
    augmentation: AugmentationOptions,
    *,
    max_batch_tokens: int,
    seed: int,
    epoch: int,
) -> list[Batch]:
    """Returns an epoch's batches in their order: the same for the same arguments, whatever ran before.

    Args:
        pairs: The clean training pairs.
        tokenizer: Encodes both sides.
        config: Gives the length limits.
        augmentation: Drawn anew each epoch.
        max_batch_tokens: Padded tokens of a batch on its wider side, at most.
        seed: The run's seed.
        epoch: Which epoch, from 0.
    """
    rng = random.Random(f"{seed}/{epoch}")
    encoded = encode_pairs(augment(pairs, augmentation, rng.getrandbits(32)), tokenizer, config)
    # Random order first, so that pairs of one length meet other ones each epoch; the sort is stable.
    rng.shuffle(encoded)
    encoded.sort(key=lambda pair: (len(pair.target), len(pair.source)))
    batches = list(group_pairs(encoded, max_batch_tokens))
    rng.shuffle(batches)
    return batches


def group_pairs(encoded: Sequence[EncodedPair], max_batch_tokens: int) -> Iterator[Batch]:
    """Yields batches of neighbouring pairs, each as large as ``max_batch_tokens`` padded tokens allow."""
    group: list[EncodedPair] = []
    width = 0
    for pair in encoded:
        # A batch is bounded on its wider side, so that long sources with short targets can't outgrow it.
        widened = max(width, len(pair.target), len(pair.source))
        if group and widened * (len(group) + 1) > max_batch_tokens:
            yield _batch(group)
            group, widened = [], max(len(pair.target), len(pair.source))
        group.append(pair)
        width = widened
    if group:
        yield _batch(group)


def _batch(pairs: list[EncodedPair]) -> Batch:
    return Batch(pairs, sum(len(pair.target) for pair in pairs))
