"""The blocks of the encoder and of the decoder.

Shapes: B batch, S source length, T target length, D width, F feed-forward, H heads. Masks are bool, True = may attend.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman_model.attention import MultiHeadAttention
from dragoman_model.config import ModelConfig
from dragoman_model.mechanisms import cross_attention, decoder_self_attention, encoder_self_attention

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}


class Dropout(nn.Module):
    """Sets a share of units to 0 in training and scales the others up to the same mean (Srivastava et al. 2014).

    PyTorch draws one random number a unit, which on a CPU costs a tenth of a training step. Here a unit takes one byte
    of a 64-bit draw: an eighth of the cost, and a share in steps of 1/256.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self._dropped_of_256 = min(round(share * 256), 255)  # something is always kept

    def forward(self, x: Tensor) -> Tensor:
        """Returns ``x`` with units dropped in training, and as it is otherwise."""
        if not self.training or not self._dropped_of_256:
            return x
        words = torch.empty(-(-x.numel() // 8), dtype=torch.int64, device=x.device).random_(-(2**63), None)
        kept = words.view(torch.uint8)[: x.numel()].view(x.shape) >= self._dropped_of_256
        return x * (kept * (256 / (256 - self._dropped_of_256))).to(x.dtype)


class FeedForward(nn.Module):
    """Two linear maps with a non-linearity between, at each position alone (Vaswani et al. 2017, eq. 2)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.in_proj = nn.Linear(config.d_model, config.d_ff)
        self.out_proj = nn.Linear(config.d_ff, config.d_model)
        self.activation = _ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        """Returns the block's output for ``x``, both (…, D)."""
        return self.out_proj(self.activation(self.in_proj(x)))


class Residual(nn.Module):
    """A residual connection with its layer normalisation and dropout.

    "post": LayerNorm(x + Dropout(block(x))) (Vaswani et al. 2017, section 3.1).
    "pre": x + Dropout(block(LayerNorm(x))) (Xiong et al. 2020).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.dropout)
        self._pre_norm = config.norm == "pre"

    def forward(self, x: Tensor, block: Callable[[Tensor], Tensor]) -> Tensor:
        """Returns ``x`` with what ``block`` adds to it, (…, D)."""
        if self._pre_norm:
            return x + self.dropout(block(self.norm(x)))
        return self.norm(x + self.dropout(block(x)))


class EncoderLayer(nn.Module):
    """Self-attention over the source, then the feed-forward block."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = encoder_self_attention(config)
        self.self_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, x: Tensor, mask: Tensor, record: list[Tensor] | None = None) -> Tensor:
        """Returns the layer's output.

        Args:
            x: (B, S, D).
            mask: Which positions hold tokens, (B, 1, 1, S).
            record: Takes the attention weights, (B, H, S, S), from the explicit form; None runs the fused form.
        """
        x = self.self_attention_residual(x, lambda h: _recorded(record, self.self_attention, h, h, mask))
        return self.feed_forward_residual(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Self-attention over what was written, cross-attention over the source, then the feed-forward block."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = decoder_self_attention(config)
        self.self_attention_residual = Residual(config)
        self.cross_attention = cross_attention(config)
        self.cross_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        self_mask: Tensor | None,
        cross_mask: Tensor,
        self_record: list[Tensor] | None = None,
        cross_record: list[Tensor] | None = None,
    ) -> Tensor:
        """Returns the layer's output for all positions at once.

        Args:
            x: (B, T, D).
            memory: The encoder's output, (B, S, D).
            self_mask: Broadcasts to (B, H, T, T), causal; None where the mechanism is causal by itself.
            cross_mask: Which source positions hold tokens, (B, 1, 1, S).
            self_record: Takes the self-attention weights, (B, H, T, T), from the explicit form; None runs the fused
                form.
            cross_record: Takes the cross-attention weights, (B, H, T, S), likewise.
        """
        x = self.self_attention_residual(
            x, lambda h: _recorded(self_record, self.self_attention, h, h, self_mask)
        )
        x = self.cross_attention_residual(
            x, lambda h: _recorded(cross_record, self.cross_attention, h, memory, cross_mask)
        )
        return self.feed_forward_residual(x, self.feed_forward)


def _recorded(
    record: list[Tensor] | None,
    attention: MultiHeadAttention,
    x: Tensor,
    memory: Tensor,
    mask: Tensor | None,
) -> Tensor:
    out, weights = attention(x, memory, mask, need_weights=record is not None)
    if record is not None:
        record.append(weights)
    return out
