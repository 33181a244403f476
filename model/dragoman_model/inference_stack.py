"""What encoder and decoder have in common as they serve.

Shapes: P rows, one a token, D width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from dragoman_model.inference_layers import FeedForwardMaps, Norm
from dragoman_model.positions import rotate
from dragoman_model.transformer import Transformer


class Stack:
    """What encoder and decoder have in common as they serve: sizes, and the parts of a layer beside attention."""

    def __init__(self, transformer: Transformer) -> None:
        config = transformer.config
        self.config = config
        self.device = transformer.device
        self._dtype = transformer.positions.dtype
        self._is_rotary = config.positions == "rotary"
        self._embedding_scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
        self._pre_norm = config.norm == "pre"
        self._num_layers, self._num_heads = config.num_decoder_layers, config.num_heads
        self._head_width = config.d_model // config.num_heads
        self._scale = 1 / math.sqrt(self._head_width)

    def _embed(self, embedding: Tensor, token_ids: Tensor, positions: Tensor) -> Tensor:
        return torch.add(positions, embedding[token_ids], alpha=self._embedding_scale)

    def _before(self, norm: Norm, x: Tensor) -> Tensor:
        return norm(x) if self._pre_norm else x

    def _after(self, norm: Norm, x: Tensor) -> Tensor:
        return x if self._pre_norm else norm(x)

    def _feed_forward(self, x: Tensor, block: FeedForwardMaps) -> Tensor:
        return self._after(block.norm, x + block.outer(block.inner(self._before(block.norm, x))))

    def _turned(self, projected: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        """Returns queries, keys and values, (P, 3 D), with the first two turned to their places."""
        heads = projected.view(-1, 3 * self._num_heads, self._head_width)
        turned = rotate(heads[:, : 2 * self._num_heads], turns[0][:, None], turns[1][:, None])
        return torch.cat((turned, heads[:, 2 * self._num_heads :]), dim=1).flatten(1)


def parted(rows: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
    """Returns rows in parts of these sizes; costs nothing where there is one."""
    return (rows,) if len(sizes) == 1 else rows.split(list(sizes))


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Returns the parts' rows, one part behind the other; costs nothing where there is one."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
