"""Linear attention with positive orthogonal random features (FAVOR+): no matrix of queries by keys.

Shapes: B batch, T queries, S keys, H heads, K head width, M features. Masks are bool, True = may attend.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dragoman_model.attention import Mechanism


class FavorAttention(Mechanism):
    """Softmax attention estimated in time and memory that grow as the length (Choromanski et al. 2021).

    With φ(x)ᵢ = exp(wᵢ · x − |x|² / 2) / √M and standard normal wᵢ, E[φ(x) · φ(y)] = exp(x · y) (lemma 1). So, with queries and
    keys divided by K^¼, softmax(Q Kᵀ / √K) V ≈ D⁻¹ φ(Q) (φ(K)ᵀ V), where D has the sums φ(Q) φ(K)ᵀ 1 on its diagonal: from
    right to left it costs T M K, not T S K. All terms are positive, so that weights are, too; their error falls as 1 / √M.

    The wᵢ are drawn once, from PyTorch's seeded generator, and are saved with the model, which learns to live with them.

    Attributes:
        directions: The wᵢ, (M, K).
    """

    def __init__(self, num_features: int, head_width: int) -> None:
        """Draws the features M, 1 or more, for heads of width K."""
        super().__init__()
        self.register_buffer("directions", orthogonal_directions(num_features, head_width))
        self.directions: Tensor

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        *,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns what the queries gather from the values, in float32 at least until the end.

        Args:
            queries: (B, H, T, K).
            keys: (B, H, S, K).
            values: (B, H, S, K).
            mask: Which keys are of tokens, broadcasts to (B, 1, 1, S), or None; the same for all queries.
            need_weights: Forms the weights that the features imply, φ(q) · φ(k) / Σ φ(q) · φ(k').

        Returns:
            The output, (B, H, T, K), and the weights, (B, H, T, S), or None. Without any token both are 0.
        """
        with torch.autocast(queries.device.type, enabled=False):
            dtype = torch.promote_types(queries.dtype, torch.float32)
            by_query, by_key = self._features(queries.to(dtype), keys.to(dtype), mask)
            if need_weights:
                weights = by_query @ by_key.transpose(-2, -1)  # (B, H, T, S)
                weights = weights / _at_least_half(weights.sum(-1, keepdim=True))
                return weights.to(values.dtype) @ values, weights
            gathered = by_query @ (by_key.transpose(-2, -1) @ values.to(dtype))  # (B, H, T, K)
            sums = by_query @ by_key.sum(-2).unsqueeze(-1)  # (B, H, T, 1)
            return (gathered / _at_least_half(sums)).to(values.dtype), None

    def _features(self, queries: Tensor, keys: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns φ of the queries, (B, H, T, M), and of the keys, (B, H, S, M), but for factors that cancel out.

        A factor of a whole query does, and so does one of a feature that keys lose and queries gain. They are chosen so that
        the largest number of each query is 1, and that of each feature over the keys: nothing overflows, and no sum is less
        than 1. Being without effect they have no gradient.
        """
        scale = queries.size(-1) ** -0.25
        directions = self.directions.to(queries.dtype).t() * scale  # (K, M)
        by_key = keys @ directions - keys.square().sum(-1, keepdim=True) * (scale**2 / 2)
        if mask is not None:
            by_key = by_key.masked_fill(~mask.transpose(-2, -1), -torch.inf)
        largest = by_key.detach().amax(-2, keepdim=True)  # (B, H, 1, M)
        largest = largest.masked_fill(largest == -torch.inf, 0.0)  # no token at all
        by_query = queries @ directions + largest
        by_query = by_query - by_query.detach().amax(-1, keepdim=True)
        return by_query.exp(), (by_key - largest).exp()


def orthogonal_directions(num_features: int, width: int) -> Tensor:
    """Returns random vectors, (M, K), each standard normal, and orthogonal to the others of its block of K.

    They estimate the same as independent ones and err less, since no two of a block measure the same (Choromanski et al. 2021,
    section 2.4).
    """
    shape = -(-num_features // width), width, width  # whole blocks
    q, r = torch.linalg.qr(torch.randn(shape, dtype=torch.float64))
    # Without the signs not all rotations would be equally likely.
    rotations = q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    lengths = torch.randn(shape, dtype=torch.float64).norm(dim=-1, keepdim=True)
    return (rotations * lengths).flatten(0, 1)[:num_features].float()


def _at_least_half(sums: Tensor) -> Tensor:
    """Returns sums, which are 1 or more where there is any token, without the zeros of where there is none."""
    return sums.clamp_min(0.5)
