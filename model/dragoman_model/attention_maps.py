"""What is made of attention weights once they are computed: small functions of tensors, without state.

Shapes: L layers, H heads, S source length, R rows (queries), C columns (keys), G groups. Leading axes may be any.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def mean_over(weights: Tensor, axis: int) -> Tensor:
    """Returns the mean over an axis of layers or heads, (1/n) Σᵢ Aᵢ; rows that sum to 1 still do."""
    return weights.mean(axis)


def mean_of_heads(weights: Tensor, heads: Sequence[tuple[int, int]]) -> Tensor:
    """Returns the mean of some heads, whatever layers they are of; rows that sum to 1 still do.

    Args:
        weights: (L, H, …).
        heads: One or more (layer, head) pairs.
    """
    layers, indices = zip(*heads, strict=True)
    return weights[list(layers), list(indices)].mean(0)


def max_over(weights: Tensor, axis: int) -> Tensor:
    """Returns the largest weight over an axis of layers or heads, maxᵢ Aᵢ, for each place alone."""
    return weights.amax(axis)


def rollout(layers: Tensor) -> Tensor:
    """Returns how much of each input reaches each output of a stack of self-attention layers.

    Ãₗ = ½ Aₗ + ½ I, where I stands for the residual connection, and R = Ã_L · … · Ã₁ (Abnar and Zuidema 2020, section 3,
    eq. 1). Rows that sum to 1 still do, and what is masked in every layer stays 0.

    Args:
        layers: The heads' mean of each layer, first layer first, (L, S, S).

    Returns:
        (S, S): row i holds the shares of the inputs in output i.
    """
    identity = torch.eye(layers.size(-1), dtype=layers.dtype, device=layers.device)
    rolled = identity
    for layer in layers:
        rolled = (0.5 * layer + 0.5 * identity) @ rolled
    return rolled


def cross_rollout(cross: Tensor, encoder: Tensor) -> Tensor:
    """Returns the decoder's attention to the encoder's inputs rather than to its outputs, C · R.

    Abnar and Zuidema 2020 roll out a single stack; here its last step is the decoder's look at the encoder: cross-attention
    says how much of each encoder output is read, R = `rollout` of the encoder how much of each source token is in it.

    Args:
        cross: The heads' mean of one decoder layer, (R, S).
        encoder: `rollout` of the encoder's layers, (S, S).

    Returns:
        (R, S); rows that sum to 1 still do.
    """
    return cross @ encoder


def sum_columns(weights: Tensor, groups: Sequence[Sequence[int]]) -> Tensor:
    """Returns the attention to groups of columns: Σ_{c ∈ g} A_{r,c} for each group g.

    Attention to a word is the sum of that to its pieces (Clark et al. 2019, section 4.1).

    Args:
        weights: (…, R, C).
        groups: Indices of each group's columns; one in no group is left out.

    Returns:
        (…, R, G); rows that sum to 1 still do where every column is in one group.
    """
    return weights @ _members(groups, weights.size(-1), weights).T


def average_rows(weights: Tensor, groups: Sequence[Sequence[int]]) -> Tensor:
    """Returns the attention from groups of rows: (1/|g|) Σ_{r ∈ g} A_{r,c} for each group g.

    Attention from a word is the mean of that from its pieces (Clark et al. 2019, section 4.1).

    Args:
        weights: (…, R, C).
        groups: Indices of each group's rows, one or more.

    Returns:
        (…, G, C); rows that sum to 1 still do.
    """
    members = _members(groups, weights.size(-2), weights)
    return members / members.sum(-1, keepdim=True) @ weights


def renormalise(weights: Tensor) -> Tensor:
    """Returns rows scaled to sum to 1: A_{r,c} / Σ_{c'} A_{r,c'}; a row of zeros stays one.

    Args:
        weights: At least 0, (…, R, C).
    """
    sums = weights.sum(-1, keepdim=True)
    return torch.where(sums > 0, weights / sums, 0.0)


def keep(weights: Tensor, rows: Sequence[int], columns: Sequence[int]) -> Tensor:
    """Returns only these rows and columns, in their order, each row scaled to sum to 1 again.

    Args:
        weights: (…, R, C).
        rows: Indices.
        columns: Indices.
    """
    return renormalise(weights[..., list(rows), :][..., list(columns)])


def largest(weights: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Returns the largest weights of each row, largest first, and the columns where they stand.

    Of equal weights the one in the lower column comes first.

    Args:
        weights: (…, R, C).
        count: At most so many of each row; 1 or more.

    Returns:
        Columns, int32, and weights, each (…, R, min(count, C)).
    """
    values, columns = weights.sort(dim=-1, descending=True, stable=True)
    return columns[..., :count].to(torch.int32), values[..., :count]


def quantise(weights: Tensor) -> Tensor:
    """Returns weights from 0 to 1 as uint8, round(255 · A): each is off by 1/510 at most."""
    return (weights * 255).round().clamp(0, 255).to(torch.uint8)


def _members(groups: Sequence[Sequence[int]], size: int, like: Tensor) -> Tensor:
    """Returns 1 where an index below ``size`` is in a group and 0 elsewhere, (G, size), in the dtype of ``like``."""
    members = like.new_zeros(len(groups), size)
    places = [(group, index) for group, indices in enumerate(groups) for index in indices]
    if places:
        rows, columns = zip(*places, strict=True)
        members[list(rows), list(columns)] = 1
    return members
