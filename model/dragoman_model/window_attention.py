"""Sliding-window attention: time and memory grow as length times window, not as length squared.

Shapes: B batch, T positions, H heads, K head width; G chunks of C = w queries, each with the N keys that they may see. Masks are
bool, True = may attend.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from dragoman_model.attention import Mechanism, explicit_attention, unweighed_attention


class WindowAttention(Mechanism):
    """Self-attention in which a position sees only those fewer than w steps away (Beltagy et al. 2020, section 3.1).

    softmax(Q Kᵀ / √d_k + M) V with M = 0 where |t − s| < w, in a decoder where 0 ≤ t − s < w, and −∞ elsewhere: 2w − 1
    positions of an encoder, w of a decoder, each position itself among them. L layers see L (w − 1) steps far.

    The matrix is never formed. Queries stand in chunks of w, and each chunk meets the keys of its own stretch and of the w − 1
    positions before it (and behind it) alone.
    """

    def __init__(self, window: int, *, causal: bool) -> None:
        """Takes the window w, 1 or more, and whether positions see only themselves and what is before them."""
        super().__init__()
        self.window = window
        self.causal = causal

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        *,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns what the queries gather from the values of one and the same sequence, T = S.

        Args:
            queries: (B, H, T, K).
            keys: (B, H, T, K).
            values: (B, H, T, K).
            mask: Which positions hold tokens, broadcasts to (B, 1, 1, T), or None. The window itself is not in it.
            need_weights: Forms the whole matrix, for looking at.

        Returns:
            The output, (B, H, T, K), and the weights, (B, H, T, T), 0 exactly outside the window, or None.
        """
        length = queries.size(2)
        if need_weights or length <= self.window:
            band = window_mask(length, self.window, causal=self.causal, device=queries.device)
            within = band if mask is None else band & mask
            if need_weights:
                return explicit_attention(queries, keys, values, within)
            return unweighed_attention(queries, keys, values, within), None
        return self._attend_in_chunks(queries, keys, values, mask), None

    def _attend_in_chunks(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        batch, length = queries.size(0), queries.size(2)
        chunk = self.window
        before = self.window - 1
        after = 0 if self.causal else before
        num_chunks = -(-length // chunk)
        missing = num_chunks * chunk - length
        size = before + chunk + after

        def stretches(x: Tensor) -> Tensor:
            """Returns what each chunk sees of (B, H, T, K), as (B × G, H, N, K)."""
            padded = F.pad(x, (0, 0, before, missing + after))
            return padded.unfold(2, size, chunk).permute(0, 2, 1, 4, 3).flatten(0, 1)

        chunks = F.pad(queries, (0, 0, 0, missing)).unflatten(2, (num_chunks, chunk))
        is_token = queries.new_ones((1, length), dtype=torch.bool) if mask is None else mask.flatten(1)
        seen = F.pad(is_token, (before, missing + after)).unfold(1, size, chunk)  # (B or 1, G, N)
        # How far behind its query each key is; query r of a chunk stands at column r + w − 1 of its stretch.
        columns = torch.arange(size, device=queries.device)
        band = _is_near(
            columns[before : before + chunk].unsqueeze(1) - columns, self.window, self.causal
        )  # (C, N)
        within = (seen.unsqueeze(2) & band).expand(batch, -1, -1, -1).flatten(0, 1).unsqueeze(1)
        out = unweighed_attention(
            chunks.transpose(1, 2).flatten(0, 1), stretches(keys), stretches(values), within
        )  # (B × G, H, C, K)
        return out.unflatten(0, (batch, num_chunks)).transpose(1, 2).flatten(2, 3)[:, :, :length]


def window_mask(length: int, window: int, *, causal: bool, device: torch.device | None = None) -> Tensor:
    """Returns the (T, T) mask of the positions that each may attend to: a band along the diagonal."""
    positions = torch.arange(length, device=device)
    return _is_near(positions.unsqueeze(1) - positions, window, causal)


def _is_near(steps: Tensor, window: int, causal: bool) -> Tensor:
    """Returns which keys a query may attend to, by how far each is behind it."""
    return (steps.abs() < window) & (steps >= 0) if causal else steps.abs() < window
