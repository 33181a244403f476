"""Self-attention that knows how far each key is from its query.

Shapes: B batch, H heads, T positions, S keys, K head width, N offsets.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from dragoman_model.attention import Mechanism, explicit_attention, unweighed_attention


class RelativeAttention(Mechanism):
    """Scaled dot-product attention with a learned key vector for each offset (Shaw et al. 2018, eq. 4).

    e_ij = q_i · (k_j + a_{j−i}) / √K, with j − i clipped to −k … k; of the paper's vectors those for keys, none for
    values. The heads of a layer share them. Queries are multiplied with the N vectors, and the products put where they
    belong, so that no (T, S, K) tensor is made. Beyond k all offsets are alike, so no sequence is too long.
    """

    def __init__(self, max_distance: int, head_width: int, *, causal: bool) -> None:
        """Makes room for the vectors.

        Args:
            max_distance: The k above, 1 or more.
            head_width: Width K.
            causal: No key stands behind its query; the offsets 1 … k then have no vectors.
        """
        super().__init__()
        self.max_distance = max_distance
        num_offsets = max_distance + 1 if causal else 2 * max_distance + 1
        self.key_vectors = nn.Parameter(torch.empty(num_offsets, head_width))  # (N, K), from offset −k on

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        *,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns what the queries gather from the values of the same sequence, as `Mechanism` does."""
        places = torch.arange(queries.size(-2), device=queries.device)
        added_scores = self.scores(queries / math.sqrt(queries.size(-1)), places - places[:, None])
        if need_weights:
            return explicit_attention(queries, keys, values, mask, added_scores)
        return unweighed_attention(queries, keys, values, mask, added_scores), None

    def scores(self, queries: Tensor, offsets: Tensor) -> Tensor:
        """Returns q_i · a_{j−i}, which is added to the scores, (…, T, S).

        Args:
            queries: Divided by √K already, (…, T, K).
            offsets: j − i of each key from each query, broadcasts to (…, T, S).
        """
        by_offset = queries @ self.key_vectors.t()  # (…, T, N)
        highest = len(self.key_vectors) - 1 - self.max_distance
        index = offsets.clamp(-self.max_distance, highest) + self.max_distance
        return by_offset.gather(-1, index.expand(*by_offset.shape[:-1], -1))  # (…, T, S)
