"""The training loss.

Shapes: N target tokens without padding, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dragoman_model.training.batching import Batch
from dragoman_model.transformer import Transformer

# Rows whose logits are worked on at once: 64 x 8,000 float32 values are 2 MB and stay in a core's cache.
_CHUNK_ROWS = 64


def summed_loss(
    transformer: Transformer, batch: Batch, *, smoothing: float, autocast: bool
) -> tuple[Tensor, Tensor]:
    """Returns a batch's label-smoothed loss and its negative log-likelihood, summed over its target tokens, in nats.

    Args:
        transformer: The model, in training or evaluation mode.
        batch: Sentence pairs.
        smoothing: ε, [0, 1).
        autocast: Multiplies matrices in bfloat16; weights, gradients and sums stay float32.
    """
    device = transformer.device
    src_ids, inputs, targets = batch.tensors(transformer.config, device)
    src_mask = transformer.source_mask(src_ids)
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=autocast):
        memory = transformer.encode(src_ids, src_mask)
        states = transformer.decode_states(inputs, memory, src_mask)  # (B, T, D)
        real = targets != transformer.config.pad_id
        logits = transformer.project(states[real])  # (N, V)
    return label_smoothed_cross_entropy(logits, targets[real], smoothing)


def label_smoothed_cross_entropy(logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Returns the summed loss and the summed negative log-likelihood of ``targets``.

    The target distribution gives 1 − ε to the target and spreads ε evenly over the whole vocabulary (Szegedy et al.
    2016, section 7): loss = −(1 − ε) log p(y) − ε/V Σ_v log p(v). Logits are a batch's largest tensor, so loss and
    gradient are computed together, a few rows at a time, while those are in the processor's cache.

    Args:
        logits: (N, V), any precision; sums are taken in float32 at least.
        targets: (N,), without padding.
        smoothing: ε, [0, 1).
    """
    return _LabelSmoothedCrossEntropy.apply(logits, targets, smoothing)  # type: ignore[no-untyped-call]


class _LabelSmoothedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        dtype = torch.promote_types(logits.dtype, torch.float32)
        gradient = torch.empty_like(logits)
        loss = torch.zeros((), dtype=dtype, device=logits.device)
        nll = torch.zeros_like(loss)
        for start in range(0, len(targets), _CHUNK_ROWS):
            rows = slice(start, start + _CHUNK_ROWS)
            log_probs = torch.log_softmax(logits[rows], dim=-1, dtype=dtype)
            chosen = log_probs.gather(-1, targets[rows, None])
            nll -= chosen.sum()
            loss -= (1 - smoothing) * chosen.sum() + smoothing * log_probs.mean(dim=-1).sum()
            # d loss / d logit = p(v) minus the target distribution
            difference = log_probs.exp_().sub_(smoothing / logits.size(-1))
            difference.scatter_add_(-1, targets[rows, None], torch.full_like(chosen, smoothing - 1))
            gradient[rows] = difference
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * grad_loss.to(gradient.dtype), None, None
