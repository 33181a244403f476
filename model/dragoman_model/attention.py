"""Scaled dot-product attention, written twice, and multi-head attention over any mechanism.

Shapes: B batch, T queries, S keys, D width, H heads, K head width. Masks are bool, True = may attend, and broadcast to
(B, H, T, S).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman_model.positions import rotate, rotation
from dragoman_model.quantization import in_half_precision


def explicit_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    added_scores: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns attention's output and its weights, computed as the formula reads.

    softmax(Q Kᵀ / √d_k + M) V (Vaswani et al. 2017, eq. 1), with M = 0 where ``mask`` is True and −∞ where it is False.
    The softmax runs in float32 at least, so that rows sum to 1 in any precision.

    Args:
        queries: (…, T, K).
        keys: (…, S, K).
        values: (…, S, K).
        mask: Broadcasts to (…, T, S); None lets every query attend to every key.
        added_scores: What positions add to the scaled scores, broadcasts to (…, T, S); None is nothing.

    Returns:
        The output, (…, T, K), and the weights, (…, T, S). A query that may attend to nothing has weights and output 0.
    """
    scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.size(-1))  # (…, T, S)
    if added_scores is not None:
        scores = scores + added_scores
    return weigh(scores, values, mask)


def weigh(scores: Tensor, values: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Returns the values' means by the softmax of the scores, (…, T, K), and that softmax, (…, T, S).

    Args:
        scores: (…, T, S).
        values: (…, S, K).
        mask: As in `explicit_attention`.
    """
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    softmax_dtype = torch.promote_types(scores.dtype, torch.float32)
    weights = torch.softmax(scores, dim=-1, dtype=softmax_dtype)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)  # a row of −∞ alone gives NaN, which stands for "nothing"
    return weights.to(values.dtype) @ values, weights


def fused_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    added_scores: Tensor | None = None,
) -> Tensor:
    """Returns the output of `explicit_attention` through PyTorch's fused kernels, which keep no weights.

    Args:
        queries: (B, H, T, K).
        keys: (B, H, S, K).
        values: (B, H, S, K).
        mask: Two dimensions or more, broadcasts to (B, H, T, S); None lets every query attend to every key.
        added_scores: What positions add to the scaled scores, broadcasts to (B, H, T, S); None is nothing.

    Returns:
        The output, (B, H, T, K); 0 for a query that may attend to nothing.
    """
    if added_scores is not None:
        mask = added_scores if mask is None else added_scores.masked_fill(~mask, -torch.inf)
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """Returns the (T, T) mask that lets position t attend to positions 0 … t."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


class Mechanism(nn.Module):
    """How queries gather values by their keys; this one is scaled dot-product attention over all keys.

    Others derive from it. `mechanisms.py` chooses one by the configuration.
    """

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        *,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns what the queries gather from the values.

        Args:
            queries: (B, H, T, K).
            keys: (B, H, S, K).
            values: (B, H, S, K).
            mask: Broadcasts to (B, H, T, S), or None.
            need_weights: Runs the explicit form and returns its weights.

        Returns:
            The output, (B, H, T, K), and the weights, (B, H, T, S), or None.
        """
        if need_weights:
            return explicit_attention(queries, keys, values, mask)
        return unweighed_attention(queries, keys, values, mask), None


def unweighed_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    added_scores: Tensor | None = None,
) -> Tensor:
    """Returns attention's output through the form that is faster here; arguments as in `fused_attention`."""
    # On a CPU the fused kernel's backward pass takes several times the explicit one's for rows as short as
    # sentences.
    if torch.is_grad_enabled() and queries.device.type == "cpu":
        return explicit_attention(queries, keys, values, mask, added_scores)[0]
    return fused_attention(queries, keys, values, mask, added_scores)


class MultiHeadAttention(nn.Module):
    """Attention in H subspaces of width K = D / H, side by side (Vaswani et al. 2017, section 3.2.2).

    Queries come from one sequence, keys and values from another or the same one. Projections and attention are separate
    steps, so that a cache can keep what was projected.

    Attributes:
        keeps_half_precision: Rounds keys and values as the cache of a decoder does beside 8-bit weights.
    """

    def __init__(
        self, d_model: int, num_heads: int, mechanism: Mechanism | None = None, *, is_rotary: bool = False
    ) -> None:
        """Starts with random projections.

        Args:
            d_model: Width D.
            num_heads: Heads H.
            mechanism: How the heads attend; None is scaled dot-product attention over all keys.
            is_rotary: Queries and keys, of one sequence, turn with their positions (`positions.rotate`).
        """
        super().__init__()
        self.num_heads = num_heads
        self.mechanism = mechanism or Mechanism()
        self.is_rotary = is_rotary
        self.keeps_half_precision = False
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def project_queries(self, x: Tensor) -> Tensor:
        """Returns the queries of ``x``, (B, T, D), as (B, H, T, K)."""
        return self._split_heads(self.q_proj(x))

    def project_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the keys and the values of ``x``, (B, S, D), each (B, H, S, K)."""
        return self._split_heads(self.k_proj(x)), self._split_heads(self.v_proj(x))

    def attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None,
        *,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns what the queries gather from the values, projected back to width D.

        Args:
            queries: (B, H, T, K).
            keys: (B, H, S, K).
            values: (B, H, S, K).
            mask: Broadcasts to (B, H, T, S), or None.
            need_weights: Runs the explicit form and returns its weights.

        Returns:
            The output, (B, T, D), and the weights, (B, H, T, S), or None.
        """
        heads, weights = self.mechanism(queries, keys, values, mask, need_weights=need_weights)
        return self.merge_heads(heads), weights

    def merge_heads(self, heads: Tensor) -> Tensor:
        """Returns what the heads gathered, (B, H, T, K), projected back to width D, (B, T, D)."""
        return self.out_proj(heads.transpose(1, 2).flatten(2))

    def forward(
        self, x: Tensor, memory: Tensor, mask: Tensor | None = None, *, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Returns attention of ``x``, (B, T, D), over ``memory``, (B, S, D), as `attend` does."""
        queries = self.project_queries(x)
        keys, values = self.project_keys_values(memory)
        if self.is_rotary:
            places = torch.arange(x.size(1), device=x.device)
            turns = rotation(places, queries.size(-1), queries.dtype)
            queries, keys = rotate(queries, *turns), rotate(keys, *turns)
        if self.keeps_half_precision:
            keys, values = (in_half_precision(kept).to(queries.dtype) for kept in (keys, values))
        return self.attend(queries, keys, values, mask, need_weights=need_weights)

    def _split_heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (B, H, T, K)
