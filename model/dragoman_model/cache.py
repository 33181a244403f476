"""What the decoder keeps between steps, so that a step costs one position.

Shapes: N sentences, W rows of each sentence, R rows (N × W), S source length, T steps so far, C capacity in steps, H heads,
K head width, L layers. Masks are bool, True = may attend.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from dragoman_model.errors import CacheFullError

# Columns are added this many at a time: few re-allocations for a long sentence, little waste for a short one.
_GROWTH_STEPS = 16


class SentenceCache:
    """Cross-attention keys and values, computed once from each source however many rows translate it.

    Attributes:
        keys_values: (L, 2, N, H, S, K).
        source_mask: True at real source positions, (N, S).
    """

    def __init__(self, keys_values: Tensor, source_mask: Tensor) -> None:
        self.keys_values = keys_values
        self.source_mask = source_mask

    @property
    def num_columns(self) -> int:
        """Source columns S, padding included."""
        return self.source_mask.size(1)

    def select(self, sentences: Tensor) -> SentenceCache:
        """Returns ``sentences``, indices in the new order, without columns that none of them uses."""
        mask = self.source_mask[sentences]
        num_columns = int(mask.sum(1).max()) if len(sentences) else 0  # padding stands at the end
        keys_values = self.keys_values[..., :num_columns, :].index_select(2, sentences)
        return SentenceCache(keys_values, mask[:, :num_columns])

    def concatenate(self, other: SentenceCache) -> SentenceCache:
        """Returns the sentences of both, padded to the longer source."""
        columns = max(self.num_columns, other.num_columns)
        return SentenceCache(
            torch.cat([_pad_columns(c.keys_values, columns) for c in (self, other)], dim=2),
            torch.cat(
                [F.pad(c.source_mask, (0, columns - c.num_columns), value=False) for c in (self, other)]
            ),
        )


class RowCache:
    """Self-attention keys and values of rows that may each have come a different number of steps.

    They gain one column a step, written at each row's own length.

    Attributes:
        lengths: Steps that each row has behind it, (R,).
        max_length: Steps that a row may take at most.
    """

    def __init__(self, keys_values: Tensor, max_length: int) -> None:
        """Starts every row at step 0, with room for what ``keys_values``, (L, 2, R, H, C, K), has columns for."""
        self.max_length = max_length
        self.lengths = torch.zeros(keys_values.size(2), dtype=torch.long, device=keys_values.device)
        self._keys_values = keys_values
        self._num_steps = 0  # the longest row's, known without asking the device
        self._is_even = True  # every row has come as far as the longest

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Writes one step's keys and values of a layer behind each row's own and returns all so far.

        Args:
            layer: Decoder layer, from 0.
            keys: New keys, (R, H, 1, K).
            values: New values, (R, H, 1, K).

        Returns:
            Keys and values, each (R, H, T, K), T = the longest row's steps with this one; views, valid until the next
            call. Columns past a row's own length are masked by `mask`.

        Raises:
            CacheFullError: A row already holds ``max_length`` steps.
        """
        self._ensure_capacity(self._num_steps + 1)
        if self._is_even:  # a plain copy is several times as fast as one by index
            self._keys_values[layer, 0, :, :, self._num_steps] = keys[:, :, 0]
            self._keys_values[layer, 1, :, :, self._num_steps] = values[:, :, 0]
        else:
            rows = torch.arange(len(self.lengths), device=self.lengths.device)
            self._keys_values[layer, 0, rows, :, self.lengths] = keys[:, :, 0]
            self._keys_values[layer, 1, rows, :, self.lengths] = values[:, :, 0]
        held = self._keys_values[layer, :, :, :, : self._num_steps + 1]  # (2, R, H, T, K)
        return held[0], held[1]

    def mask(self) -> Tensor:
        """Returns which cached steps each row may attend to in this step, its new one included, (R, 1, 1, T)."""
        columns = torch.arange(self._num_steps + 1, device=self.lengths.device)
        return (columns <= self.lengths[:, None])[:, None, None]

    def advance(self) -> None:
        """Counts the step whose keys and values every layer has appended."""
        self.lengths = self.lengths + 1
        self._num_steps += 1

    def copy(self, sources: Tensor, targets: Tensor) -> None:
        """Overwrites rows ``targets`` with what rows ``sources``, at the same step, held before the call."""
        held = self._keys_values[..., : self._num_steps, :]
        held.index_copy_(2, targets, held.index_select(2, sources))

    def select(self, rows: Tensor) -> None:
        """Keeps only ``rows``, indices in the new order, and lets go of columns that no row left uses."""
        self.lengths = self.lengths[rows]
        self._num_steps = int(self.lengths.max()) if len(rows) else 0
        self._is_even |= len(rows) <= 1
        # With the room for the next steps, so that they needn't make it.
        self._keys_values = self._keys_values[..., : self._capacity(self._num_steps), :].index_select(2, rows)

    def concatenate(self, other: RowCache) -> None:
        """Takes the rows of ``other`` behind its own; shorter ones are padded and masked."""
        steps = max(self._num_steps, other._num_steps)
        columns = self._capacity(steps)
        self._keys_values = torch.cat(
            [_pad_columns(c._keys_values[..., : c._num_steps, :], columns) for c in (self, other)], dim=2
        )
        self.lengths = torch.cat((self.lengths, other.lengths))
        self._is_even &= other._is_even and self._num_steps == other._num_steps
        self._num_steps = steps

    def _ensure_capacity(self, steps: int) -> None:
        if steps > self.max_length:
            raise CacheFullError(f"the cache holds {self.max_length} steps already, its limit")
        if steps > self._keys_values.size(-2):
            self._keys_values = _pad_columns(self._keys_values, self._capacity(steps))

    def _capacity(self, steps: int) -> int:
        """Returns how many columns to hold for so many steps, so that there is room for one more and some."""
        return min((steps // _GROWTH_STEPS + 1) * _GROWTH_STEPS, self.max_length)


class DecoderCache:
    """What is kept of sentences with W rows each; the rows of a sentence stand together.

    Sentences join (`concatenate`) and leave (`select`) between steps.

    Attributes:
        sentences: Of each sentence, once.
        rows: Of each row.
        width: Rows W of each sentence.
    """

    def __init__(self, sentences: SentenceCache, max_length: int, *, width: int = 1) -> None:
        """Starts every row at step 0.

        Args:
            sentences: What the encoder's output gave.
            max_length: Steps that a row may take at most.
            width: Rows of each sentence.
        """
        num_layers, _, num_sentences, num_heads, _, head_width = sentences.keys_values.shape
        shape = (num_layers, 2, num_sentences * width, num_heads, 0, head_width)
        self.sentences = sentences
        self.rows = RowCache(sentences.keys_values.new_zeros(shape), max_length)
        self.width = width

    @property
    def num_rows(self) -> int:
        """Rows R held now."""
        return len(self.rows.lengths)

    def cross(self, layer: int) -> tuple[Tensor, Tensor]:
        """Returns a layer's cross-attention keys and values, each (N, H, S, K)."""
        return self.sentences.keys_values[layer, 0], self.sentences.keys_values[layer, 1]

    def cross_mask(self) -> Tensor:
        """Returns which source positions each sentence's rows may attend to, (N, 1, 1, S)."""
        return self.sentences.source_mask[:, None, None]

    def select(self, sentences: Tensor) -> None:
        """Keeps only ``sentences``, indices in the new order, with all their rows."""
        self.sentences = self.sentences.select(sentences)
        rows = sentences[:, None] * self.width + torch.arange(self.width, device=sentences.device)
        self.rows.select(rows.flatten())

    def concatenate(self, other: DecoderCache) -> None:
        """Takes the sentences of ``other``, of the same width, behind its own."""
        assert other.width == self.width
        self.sentences = self.sentences.concatenate(other.sentences)
        self.rows.concatenate(other.rows)

    def at_step_zero(self, sentences: Tensor, width: int) -> DecoderCache:
        """Returns a new cache of some ``sentences``, by index, each with ``width`` rows that have yet to take a step."""
        return DecoderCache(self.sentences.select(sentences), self.rows.max_length, width=width)


def _pad_columns(keys_values: Tensor, columns: int) -> Tensor:
    return F.pad(keys_values, (0, 0, 0, columns - keys_values.size(-2)))
