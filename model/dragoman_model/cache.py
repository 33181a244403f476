"""What the decoder keeps between steps, so that a step costs one position.

Shapes: B batch, S source length, T steps so far, C capacity in steps, H heads, K head width, L layers. Masks are bool,
True = may attend.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from dragoman_model.errors import CacheFullError

# Columns are added this many at a time: few re-allocations for a long sentence, little waste for a short one.
_GROWTH_STEPS = 16


class DecoderCache:
    """Keys and values of a batch of sentences that may each have come a different number of steps.

    Self-attention keys and values gain one column a step, written at each row's own length; cross-attention keys and
    values are computed once from the source. Rows join (`concatenate`) and leave (`select`) between steps.

    Attributes:
        lengths: Steps that each row has behind it, (B,).
        max_length: Steps that a row may take at most.
    """

    def __init__(self, cross_keys_values: Tensor, source_mask: Tensor, max_length: int) -> None:
        """Starts every row at step 0.

        Args:
            cross_keys_values: Keys and values of the encoder's output, (L, 2, B, H, S, K).
            source_mask: True at real source positions, (B, S).
            max_length: Steps that a row may take at most.
        """
        num_layers, _, num_rows, num_heads, _, head_width = cross_keys_values.shape
        self.max_length = max_length
        self.lengths = torch.zeros(num_rows, dtype=torch.long, device=cross_keys_values.device)
        self._cross = cross_keys_values
        self._source_mask = source_mask
        self._self = cross_keys_values.new_zeros(num_layers, 2, num_rows, num_heads, 0, head_width)
        self._num_steps = 0  # the longest row's, known without asking the device

    @property
    def num_rows(self) -> int:
        """Rows B held now."""
        return self.lengths.size(0)

    @property
    def num_source_columns(self) -> int:
        """Source columns S, padding included."""
        return self._source_mask.size(1)

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Writes one step's keys and values of a layer behind each row's own and returns all so far.

        Args:
            layer: Decoder layer, from 0.
            keys: New keys, (B, H, 1, K).
            values: New values, (B, H, 1, K).

        Returns:
            Keys and values, each (B, H, T, K), T = the longest row's steps with this one; views, valid until the next
            call. Columns past a row's own length are masked by `self_mask`.

        Raises:
            CacheFullError: A row already holds ``max_length`` steps.
        """
        self._ensure_capacity(self._num_steps + 1)
        rows = torch.arange(self.num_rows, device=self.lengths.device)
        self._self[layer, 0, rows, :, self.lengths] = keys[:, :, 0]
        self._self[layer, 1, rows, :, self.lengths] = values[:, :, 0]
        held = self._self[layer, :, :, :, : self._num_steps + 1]  # (2, B, H, T, K)
        return held[0], held[1]

    def self_mask(self) -> Tensor:
        """Returns which cached steps each row may attend to in this step, its new one included, (B, 1, 1, T)."""
        columns = torch.arange(self._num_steps + 1, device=self.lengths.device)
        return (columns <= self.lengths[:, None])[:, None, None]

    def cross(self, layer: int) -> tuple[Tensor, Tensor]:
        """Returns a layer's cross-attention keys and values, each (B, H, S, K)."""
        return self._cross[layer, 0], self._cross[layer, 1]

    def cross_mask(self) -> Tensor:
        """Returns which source positions each row may attend to, (B, 1, 1, S)."""
        return self._source_mask[:, None, None]

    def advance(self) -> None:
        """Counts the step whose keys and values every layer has appended."""
        self.lengths = self.lengths + 1
        self._num_steps += 1

    def select(self, rows: Tensor) -> None:
        """Keeps only ``rows``, indices (N,) in the new order, and lets go of columns that no row left uses."""
        self.lengths = self.lengths[rows]
        self._source_mask = self._source_mask[rows]
        self._num_steps = int(self.lengths.max()) if len(rows) else 0
        num_columns = int(self._source_mask.sum(1).max()) if len(rows) else 0  # padding stands at the end
        self._source_mask = self._source_mask[:, :num_columns]
        self._cross = self._cross[..., :num_columns, :].index_select(2, rows)
        self._self = self._self[..., : self._num_steps, :].index_select(2, rows)

    def concatenate(self, other: DecoderCache) -> None:
        """Takes the rows of ``other`` behind its own; shorter ones are padded and masked."""
        columns = max(self.num_source_columns, other.num_source_columns)
        steps = max(self._num_steps, other._num_steps)
        self._cross = torch.cat([_pad_columns(c._cross, columns) for c in (self, other)], dim=2)
        self._self = torch.cat(
            [_pad_columns(c._self[..., : c._num_steps, :], steps) for c in (self, other)], dim=2
        )
        self._source_mask = torch.cat(
            [F.pad(c._source_mask, (0, columns - c.num_source_columns), value=False) for c in (self, other)]
        )
        self.lengths = torch.cat((self.lengths, other.lengths))
        self._num_steps = steps

    def _ensure_capacity(self, steps: int) -> None:
        if steps > self.max_length:
            raise CacheFullError(f"the cache holds {self.max_length} steps already, its limit")
        capacity = self._self.size(-2)
        if steps > capacity:
            self._self = _pad_columns(self._self, min(capacity + _GROWTH_STEPS, self.max_length))


def _pad_columns(keys_values: Tensor, columns: int) -> Tensor:
    return F.pad(keys_values, (0, 0, 0, columns - keys_values.size(-2)))
