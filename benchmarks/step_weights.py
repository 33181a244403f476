"""The attention weights that cached decoding computes, step by step, taken from beneath the model.

Serving keeps no weights. What it hands to softmax or to the fused kernel is watched here, so that what DumpAttention shows can
be compared with what translating did.

Shapes: L layers, H heads, S source length, T target length, W beams.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor

from dragoman_model.batch import RunningBatch
from dragoman_model.options import DecodingOptions
from dragoman_model.plan import AttentionOutput, ForcedDecode, Hypothesis, Plan, Sequence
from dragoman_model.selection import AttentionKind
from dragoman_model.transformer import Transformer


@dataclass(frozen=True)
class Decoding:
    """One sentence decoded by itself.

    Attributes:
        source_ids: Its tokens.
        best: Its best hypothesis.
        cross: That hypothesis's cross-attention as each step computed it, (L, H, T, S).
        forced: The forced pass over it, with every kind of attention.
    """

    source_ids: tuple[int, ...]
    best: Hypothesis
    cross: Tensor
    forced: AttentionOutput


def decode_watched(
    transformer: Transformer, source_ids: tuple[int, ...], *, beam_size: int, max_length: int
) -> Decoding:
    """Returns a sentence's translation with the weights of the steps that made it.

    Args:
        transformer: The model.
        source_ids: The sentence, end-of-sentence last; longer than ``beam_size``.
        beam_size: 1 is greedy search.
        max_length: Target tokens at most, without end-of-sentence.
    """
    batch = RunningBatch(transformer)
    options = DecodingOptions(beam_size=beam_size)
    plan = Plan(admit=(Sequence(id=0, source_ids=source_ids, max_length=max_length, options=options),))
    written: list[list[tuple[int, ...]]] = [[()]]  # by the rows, before each step
    steps: list[list[Tensor]] = []  # each layer's cross-attention in each step
    finished: list[Any] = []
    while not finished:
        with watched(beam_size) as weights:
            finished = batch.run(plan).finished
        assert len(weights) == 2 * transformer.config.num_decoder_layers
        steps.append(weights[1::2])  # of each layer two: over what was written, then over the source
        plan = Plan()
        if not finished:
            [group] = batch._groups.values()
            written.append([tuple(row) for row in group.searches[0].written()])
    best = finished[0].best
    rows = [written[step].index(best.token_ids[:step]) for step in range(len(best.token_ids))]
    heads = transformer.config.num_heads
    cross = torch.stack(
        [
            torch.stack([layer.reshape(heads, -1, layer.size(-1))[:, row] for layer in layers])
            for layers, row in zip(steps, rows, strict=False)
        ],
        dim=2,
    )  # (L, H, T, columns)
    forced = ForcedDecode(
        id=0, source_ids=source_ids, target_ids=best.token_ids, kinds=frozenset(AttentionKind)
    )
    [output] = batch.run(Plan(attend=(forced,))).attentions
    return Decoding(source_ids, best, cross[..., : len(source_ids)], output)


@contextmanager
def watched(width: int) -> Iterator[list[Tensor]]:
    """Collects the weights of every attention of at most ``width`` queries: those of a step, and not the encoder's."""
    found: list[Tensor] = []
    fused, softmax = F.scaled_dot_product_attention, torch.softmax

    def keep(weights: Tensor) -> None:
        if weights.size(-2) <= width:
            found.append(weights)

    def watched_fused(queries: Tensor, keys: Tensor, values: Tensor, **options: Any) -> Tensor:
        scores = queries @ keys.transpose(-2, -1) * (options.get("scale") or queries.size(-1) ** -0.5)
        mask = options.get("attn_mask")
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype is torch.bool else scores + mask
        keep(softmax(scores, -1))
        return fused(queries, keys, values, **options)

    def watched_softmax(scores: Tensor, *arguments: Any, **options: Any) -> Tensor:
        weights = softmax(scores, *arguments, **options)
        keep(weights)
        return weights

    with (
        mock.patch.object(F, "scaled_dot_product_attention", watched_fused),
        mock.patch.object(torch, "softmax", watched_softmax),
    ):
        yield found
