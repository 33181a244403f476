"""Which attention stands in which place of a model, by its configuration."""

from __future__ import annotations

from dragoman_model.additive_attention import AdditiveAttention
from dragoman_model.attention import Mechanism, MultiHeadAttention
from dragoman_model.config import ModelConfig
from dragoman_model.favor_attention import FavorAttention
from dragoman_model.relative_attention import RelativeAttention
from dragoman_model.window_attention import WindowAttention


def encoder_self_attention(config: ModelConfig) -> MultiHeadAttention:
    """Returns a new encoder layer's attention over the source."""
    return _self_attention(config, causal=False)


def decoder_self_attention(config: ModelConfig) -> MultiHeadAttention:
    """Returns a new decoder layer's attention over what was written."""
    return _self_attention(config, causal=True)


def cross_attention(config: ModelConfig) -> MultiHeadAttention:
    """Returns a new decoder layer's attention over the source."""
    mechanism: Mechanism | None = None
    if config.cross_attention == "additive":
        mechanism = AdditiveAttention(config.num_heads, config.head_width)
    return MultiHeadAttention(config.d_model, config.num_heads, mechanism)


def _self_attention(config: ModelConfig, *, causal: bool) -> MultiHeadAttention:
    kind = config.decoder_attention if causal else config.encoder_attention
    mechanism: Mechanism | None = None
    if kind == "window":
        mechanism = WindowAttention(config.attention_window, causal=causal)
    elif kind == "favor":
        mechanism = FavorAttention(config.attention_features, config.head_width)
    elif config.positions == "relative":
        mechanism = RelativeAttention(config.max_relative_distance, config.head_width, causal=causal)
    return MultiHeadAttention(
        config.d_model, config.num_heads, mechanism, is_rotary=config.positions == "rotary"
    )
