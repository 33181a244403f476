"""Which attention stands in which place of a model, by its configuration."""

from __future__ import annotations

from dragoman_model.attention import MultiHeadAttention
from dragoman_model.config import ModelConfig


def encoder_self_attention(config: ModelConfig) -> MultiHeadAttention:
    """Returns a new encoder layer's attention over the source."""
    return MultiHeadAttention(config.d_model, config.num_heads)


def decoder_self_attention(config: ModelConfig) -> MultiHeadAttention:
    """Returns a new decoder layer's attention over what was written."""
    return MultiHeadAttention(config.d_model, config.num_heads)


def cross_attention(config: ModelConfig) -> MultiHeadAttention:
    """Returns a new decoder layer's attention over the source."""
    return MultiHeadAttention(config.d_model, config.num_heads)
