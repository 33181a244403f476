"""Which attention stands in which place of a model, by its configuration."""

from __future__ import annotations

from dragoman_model.attention import Mechanism, MultiHeadAttention
from dragoman_model.config import ModelConfig
from dragoman_model.window_attention import WindowAttention


def encoder_self_attention(config: ModelConfig) -> MultiHeadAttention:
    """Returns a new encoder layer's attention over the source."""
    mechanism: Mechanism | None = None
    if config.encoder_attention == "window":
        mechanism = WindowAttention(config.attention_window, causal=False)
    return MultiHeadAttention(config.d_model, config.num_heads, mechanism)


def decoder_self_attention(config: ModelConfig) -> MultiHeadAttention:
    """Returns a new decoder layer's attention over what was written."""
    mechanism: Mechanism | None = None
    if config.decoder_attention == "window":
        mechanism = WindowAttention(config.attention_window, causal=True)
    return MultiHeadAttention(config.d_model, config.num_heads, mechanism)


def cross_attention(config: ModelConfig) -> MultiHeadAttention:
    """Returns a new decoder layer's attention over the source."""
    return MultiHeadAttention(config.d_model, config.num_heads)
