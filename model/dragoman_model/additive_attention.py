"""Attention by a small network in the place of the dot product.

Shapes: B batch, H heads, T queries, S keys, K head width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dragoman_model.attention import Mechanism, weigh


class AdditiveAttention(Mechanism):
    """Scores keys by e_ij = v · tanh(W_q q_i + W_k k_j) (Bahdanau et al. 2015, appendix A.1.2), in each head.

    W_q and W_k are the projections of `MultiHeadAttention`, so that a cache keeps W_k k_j as it keeps any key. Each head
    has a v of its own. Scores are not divided by √K: tanh bounds them already. There is no fused form.
    """

    def __init__(self, num_heads: int, head_width: int) -> None:
        """Makes room for the vectors v."""
        super().__init__()
        self.score_vectors = nn.Parameter(torch.empty(num_heads, head_width))  # (H, K)

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        *,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns what the queries gather from the values, as `Mechanism` does."""
        out, weights = weigh(self.scores(queries, keys), values, mask)
        return out, weights if need_weights else None

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Returns the scores, (B, H, T, S), of projected queries, (B, H, T, K), and keys, (B, H, S, K)."""
        mixed = torch.tanh(queries[..., :, None, :] + keys[..., None, :, :])  # (B, H, T, S, K)
        return (mixed @ self.score_vectors[:, None, :, None]).squeeze(-1)
