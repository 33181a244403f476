"""The layers of a `Transformer` as they serve: its weights, laid out as the maps of an `InferenceModel`.

Projections that read the same input are one matrix product, and 1/√d_k is folded into the queries' weights.

Shapes: D width; R rows, H heads, W queries of a row, C columns of the cache, K head width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dragoman_model.additive_attention import AdditiveAttention
from dragoman_model.attention import Mechanism, MultiHeadAttention
from dragoman_model.layers import DecoderLayer, EncoderLayer, FeedForward, Residual
from dragoman_model.linear import Map, fused
from dragoman_model.relative_attention import RelativeAttention

# Scores of queries, (R × H, W, K), and keys, (R × H, K, C), as (R × H, W, C).
Scores = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Norm:
    """Layer normalisation."""

    weight: Tensor
    bias: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        """Returns ``x``, (…, D), normalised."""
        return torch.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


@dataclass(frozen=True)
class FeedForwardMaps:
    """The feed-forward block."""

    norm: Norm
    inner: Map  # with its activation
    outer: Map


@dataclass(frozen=True)
class EncoderMaps:
    """An encoder layer."""

    norm: Norm
    queries_keys_values: Map
    mechanism: Mechanism | None  # None is attention to all positions, with its scale in the queries' weights
    out: Map
    feed_forward: FeedForwardMaps


@dataclass(frozen=True)
class DecoderMaps:
    """A decoder layer; what its source's keys and values are made with is outside, for all layers together."""

    self_norm: Norm
    queries_keys_values: Map
    relative: RelativeAttention | None
    self_out: Map
    cross_norm: Norm
    cross_queries: Map
    cross_scores: Scores
    cross_out: Map
    feed_forward: FeedForwardMaps


def norm_of(module: nn.Module) -> Norm:
    """Returns a `torch.nn.LayerNorm` with its weights as they are."""
    assert isinstance(module, nn.LayerNorm)
    return Norm(module.weight.detach(), module.bias.detach(), module.eps)


def encoder_maps(layer: EncoderLayer, scale: float) -> EncoderMaps:
    """Returns an encoder layer's maps; ``scale`` is 1/√d_k, which its mechanism may apply itself."""
    mechanism = layer.self_attention.mechanism
    is_full = type(mechanism) is Mechanism
    return EncoderMaps(
        norm=norm_of(layer.self_attention_residual.norm),
        queries_keys_values=fused(_projections(layer.self_attention), (scale if is_full else 1.0, 1.0, 1.0)),
        mechanism=None if is_full else mechanism,
        out=fused([layer.self_attention.out_proj]),
        feed_forward=_feed_forward(layer.feed_forward, layer.feed_forward_residual),
    )


def decoder_maps(layer: DecoderLayer, scale: float) -> DecoderMaps:
    """Returns a decoder layer's maps, with ``scale``, 1/√d_k, in all queries of dot products."""
    mechanism, cross_mechanism = layer.self_attention.mechanism, layer.cross_attention.mechanism
    is_additive = isinstance(cross_mechanism, AdditiveAttention)
    return DecoderMaps(
        self_norm=norm_of(layer.self_attention_residual.norm),
        queries_keys_values=fused(_projections(layer.self_attention), (scale, 1.0, 1.0)),
        relative=mechanism if isinstance(mechanism, RelativeAttention) else None,
        self_out=fused([layer.self_attention.out_proj]),
        cross_norm=norm_of(layer.cross_attention_residual.norm),
        cross_queries=fused([layer.cross_attention.q_proj], (1.0 if is_additive else scale,)),
        cross_scores=_cross_scores(cross_mechanism),
        cross_out=fused([layer.cross_attention.out_proj]),
        feed_forward=_feed_forward(layer.feed_forward, layer.feed_forward_residual),
    )


def _cross_scores(mechanism: Mechanism) -> Scores:
    if not isinstance(mechanism, AdditiveAttention):
        return torch.bmm
    heads = len(mechanism.score_vectors)

    def scores(queries: Tensor, keys: Tensor) -> Tensor:
        by_head = queries.unflatten(0, (-1, heads)), keys.transpose(1, 2).unflatten(0, (-1, heads))
        return mechanism.scores(*by_head).flatten(0, 1)

    return scores


def _projections(attention: MultiHeadAttention) -> list[nn.Module]:
    return [attention.q_proj, attention.k_proj, attention.v_proj]


def _feed_forward(block: FeedForward, residual: Residual) -> FeedForwardMaps:
    return FeedForwardMaps(
        norm=norm_of(residual.norm),
        inner=fused([block.in_proj], activation=block.activation),
        outer=fused([block.out_proj]),
    )
